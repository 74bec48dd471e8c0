#include "broken.h"

namespace search {

using testing::ok;

namespace {

// ---- Buffers -----------------------------------------------------------------------------------------------------------

// Returns the buffers that a rule is about, by their names.
template <class Takes>
std::vector<std::string> buffers_where(const Bound& bound, const Takes& takes) {
    std::vector<std::string> out;
    for (const auto& [name, image] : bound.problem.images)
        if (image.used && !image.before.empty() && takes(name, image)) out.push_back(name);
    return out;
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Returns whether the tensor that a buffer belongs to has 0 experts.
bool has_no_experts(const Problem& problem, const std::string& buffer) {
    for (const TensorPlan& plan : problem.tensors)
        if (buffer.compare(0, plan.name.size() + 1, plan.name + ".") == 0) return plan.dims.experts == 0;
    return false;
}

// Returns whether NULL clears the buffer, so that the call goes on without it.
bool is_optional(const Bound& bound, const std::string& name) {
    const bool nvfp4 = !bound.problem.call.is_product() && bound.problem.call.second.format == MXQ_FORMAT_NVFP4;
    const bool is_global = ends_with(name, ".amax") || ends_with(name, ".decode_scale");
    if (is_global && has_no_experts(bound.problem, name)) return true;
    if (name == "out.rowwise.amax" || name == "out.columnwise.amax") return !nvfp4 || bound.problem.call.verb == "amax";
    if (name == "bias_gradient" || name == "row_weight_gradient" || name == "routing.dropped" ||
        name == "routing.choice_rows")
        return true;
    return ends_with(name, ".starts") || (ends_with(name, ".ends") && name != "ends") || name == "out.quantization_scale" ||
           name == "seed_offset";
}

// Returns whether a setter of a routing takes the buffer, which looks at its size itself.
bool is_of_routing(const std::string& name) { return name.rfind("routing.", 0) == 0; }

bool shorten(Bound& bound, int64_t at) {
    // Arrays of ends and seeds come without an extent, and rows by index with the only one that their setter takes.
    const auto names = buffers_where(bound, [](const std::string& name, const Image&) {
        return name != "ends" && name != "seed_offset" && !ends_with(name, ".row_indices") && !is_of_routing(name);
    });
    if (names.empty()) return false;
    bound.pointers[names[static_cast<size_t>(at) % names.size()]].bytes -= 1;
    bound.point();
    return true;
}

bool set_null(Bound& bound, int64_t at) {
    const auto names =
        buffers_where(bound, [&](const std::string& name, const Image&) { return !is_optional(bound, name); });
    if (names.empty()) return false;
    bound.pointers[names[static_cast<size_t>(at) % names.size()]] = {};
    bound.point();
    return true;
}

bool misalign(Bound& bound, int64_t at) {
    const auto names = buffers_where(
        bound, [](const std::string& name, const Image& image) { return image.element > 1 && name != "routing.memory"; });
    if (names.empty()) return false;
    bound.pointers[names[static_cast<size_t>(at) % names.size()]].address += 1;
    bound.point();
    return true;
}

// An output takes the address of another buffer whose elements are no smaller, so that it stays aligned.
bool overlap(Bound& bound, int64_t at) {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const auto& [name, image] : bound.problem.images)
        for (const auto& [other, second] : bound.problem.images)
            if (name != other && image.written && image.used && second.used && !image.before.empty() &&
                !second.before.empty() && second.element % image.element == 0)
                pairs.emplace_back(name, other);
    if (pairs.empty()) return false;
    const auto& [name, other] = pairs[static_cast<size_t>(at) % pairs.size()];
    bound.pointers[name].address = bound.pointers[other].address;
    bound.point();
    return true;
}

// ---- Shapes and formats ------------------------------------------------------------------------------------------------

// Lets every buffer look large enough for other shapes; a refused call touches none of them.
void extend_buffers(Bound& bound) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nothing has and nobody reads.
    auto* const somewhere = reinterpret_cast<uint8_t*>(uint64_t{1} << 45);
    for (auto& [name, pointer] : bound.pointers)
        if (!is_of_routing(name)) pointer = {pointer.address ? pointer.address : somewhere, uint64_t{1} << 40};
}

bool other_shape(Bound& bound, int64_t at) {
    const size_t number = bound.tensors.size() - 1;
    testing::Dims dims = bound.problem.tensors[number].dims;
    (at % 2 ? dims.rows : dims.cols) += 1;
    extend_buffers(bound);
    bound.create(number, dims);
    bound.point();
    return true;
}

bool other_dimensions(Bound& bound, int64_t) {
    const TensorPlan& plan = bound.problem.tensors[1];
    if (bound.problem.call.is_product() || plan.side.grouped || plan.dims.experts) return false;
    bound.create(1, {1, plan.dims.rows, plan.dims.cols});
    bound.point();
    return true;
}

// A plain tensor where the verb takes a quantized one, or the other way round.
bool wrong_kind(Bound& bound, int64_t at) {
    const std::string& verb = bound.problem.call.verb;
    if (verb == "pad_groups" || verb == "unpad_groups") return false;
    const size_t number = bound.problem.call.is_product() ? 2 : static_cast<size_t>(at % 2);
    const TensorPlan& plan = bound.problem.tensors[number];
    bound.tensors[number] = testing::make_tensor(plan.side.plain() ? MXQ_FORMAT_MXFP4 : MXQ_FORMAT_BF16, plan.dims);
    return true;
}

// TENSOR is the default of FP8. A tensor whose scaling was set refuses swizzled scales itself.
bool swizzle_tensor(Bound& bound, int64_t) {
    const TensorPlan& plan = bound.problem.tensors[0];
    const std::string& verb = bound.problem.call.verb;
    if (verb != "dequantize" && verb != "requantize" && !bound.problem.call.is_product()) return false;
    bound.tensors[0] = testing::make_tensor(plan.side.format, plan.dims);
    bound.point();
    ok(mxq_tensor_set_swizzled(bound.tensors[0], 1));
    return true;
}

bool same_layout(Bound& bound, int64_t at) {
    const std::string& verb = bound.problem.call.verb;
    if (verb != "swizzle_scales" && verb != "unswizzle_scales") return false;
    const auto number = static_cast<size_t>(at % 2);
    extend_buffers(bound);
    bound.point();
    ok(mxq_tensor_set_swizzled(bound.tensors[number], !bound.problem.tensors[number].side.swizzled));
    return true;
}

bool no_part(Bound& bound, int64_t at) {
    std::vector<size_t> quantized;
    for (size_t i = 0; i < bound.tensors.size(); ++i)
        if (!bound.problem.tensors[i].side.plain()) quantized.push_back(i);
    if (quantized.empty() || bound.problem.call.verb == "amax") return false;
    const size_t number = quantized[static_cast<size_t>(at) % quantized.size()];
    for (int32_t part : both_parts) {
        ok(mxq_tensor_clear_part(bound.tensors[number], part));
        const oracle::Spec& spec = bound.problem.tensors[number].spec;  // whose transforms the other tensor compares
        if (spec.transforms(part))
            ok(mxq_tensor_set_hadamard(bound.tensors[number], part, 1, static_cast<int32_t>(spec.mask(part))));
    }
    return true;
}

// ---- Groups ------------------------------------------------------------------------------------------------------------

bool other_groups(Bound& bound, int64_t at) {
    const auto& plans = bound.problem.tensors;
    const Call& call = bound.problem.call;
    for (size_t i = plans.size(); i-- > 1;) {
        if (!plans[i].side.grouped || !plans[0].side.grouped) continue;
        uint8_t* const ends = bound.pointers.at("ends").address;
        const auto count = static_cast<int32_t>(call.group_count());
        const bool is_aligned = reinterpret_cast<uintptr_t>(ends) % 8 == 0;  // for ends of either type
        if (at % 2 && count > 0)
            ok(testing::set_ends(bound.tensors[i], ends, call.ends_type, count - 1));
        else if (is_aligned)
            ok(testing::set_ends(bound.tensors[i], ends, MXQ_TYPE_INT32 + MXQ_TYPE_INT64 - call.ends_type, count));
        return is_aligned || (at % 2 && count > 0);
    }
    return false;
}

bool wrong_direction(Bound& bound, int64_t) {
    const std::string& verb = bound.problem.call.verb;
    const bool pads = verb == "pad_groups", unpads = verb == "unpad_groups";
    const Side &in = bound.problem.tensors[0].side, &out = bound.problem.tensors[1].side;
    const Side& narrow = pads ? in : out;
    const bool columnwise = !in.plain() && !(in.parts & MXQ_PART_ROWWISE);
    if ((!pads && !unpads) || narrow.rowwise == 128 || columnwise) return false;
    const Side& wide = pads ? out : in;
    const size_t number = pads ? 1 : 0, other = 1 - number;
    extend_buffers(bound);
    bound.point();
    ok(mxq_tensor_set_group_alignment(bound.tensors[number], 1, static_cast<int32_t>(wide.columnwise)));
    ok(mxq_tensor_set_group_alignment(bound.tensors[other], 128, static_cast<int32_t>(narrow.columnwise)));
    return true;
}

// ---- Options -----------------------------------------------------------------------------------------------------------

bool unknown_implementation(Bound& bound, int64_t) {
    if (bound.problem.call.is_product())
        ok(mxq_gemm_options_set_implementation(bound.gemm_options, "no such thing"));
    else if (bound.problem.call.is_activation())
        ok(mxq_activate_options_set_implementation(bound.activate_options, "no such thing"));
    else
        ok(mxq_quantize_options_set_implementation(made(bound.options), "no such thing"));
    return true;
}

// An option that means nothing to the verb or to the format that it writes.
bool foreign_option(Bound& bound, int64_t at) {
    const Call& call = bound.problem.call;
    if (call.is_product()) return false;
    const bool quantizes = call.verb == "quantize" || call.verb == "requantize" || call.verb == "amax";
    const bool mx = quantizes && !call.second.plain() && oracle::is_mx(call.second.format),
               nvfp4 = quantizes && call.second.format == MXQ_FORMAT_NVFP4,
               fp8 = quantizes && !call.second.plain() && oracle::is_fp8(call.second.format);
    mxq_quantize_options* const options = made(bound.options);
    const bool transforms = call.verb == "dequantize" && testing::is_e2m1(bound.problem.tensors[0].spec);
    switch (at % 7) {
        case 0: return !mx && mxq_quantize_options_set_scale_rounding(options, MXQ_SCALE_ROUNDING_RCEIL) == MXQ_STATUS_OK;
        case 1: return !mx && mxq_quantize_options_set_nonfinite(options, MXQ_NONFINITE_PROPAGATE) == MXQ_STATUS_OK;
        case 2: return !nvfp4 && mxq_quantize_options_set_four_over_six(options, MXQ_FOUR_OVER_SIX_MAE) == MXQ_STATUS_OK;
        case 3: return !nvfp4 && mxq_quantize_options_set_compute_amax(options, at / 7 % 2) == MXQ_STATUS_OK;
        case 4: return !fp8 && mxq_quantize_options_set_power_of_two_scales(options, 1) == MXQ_STATUS_OK;
        case 5: return !fp8 && mxq_quantize_options_set_amax_epsilon(options, 1) == MXQ_STATUS_OK;
        default: return !transforms && mxq_quantize_options_set_undo_hadamard(options, 0) == MXQ_STATUS_OK;
    }
}

bool hadamard_of_any_length(Bound& bound, int64_t) {
    const Call& call = bound.problem.call;
    const TensorPlan& out = bound.problem.tensors[1];
    if ((call.verb != "quantize" && call.verb != "requantize") || !testing::takes_hadamard(out.spec)) return false;
    const bool rowwise = call.cols() % 16 && out.side.parts & MXQ_PART_ROWWISE;
    const bool columnwise = call.rows() % 16 && out.side.parts & MXQ_PART_COLUMNWISE && !out.side.grouped;
    if (!rowwise && !columnwise) return false;
    ok(mxq_tensor_set_hadamard(bound.tensors[1], rowwise ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE, 1, 0xD7E8));
    return true;
}

bool use_stream(Bound& bound, int64_t) {
    if (!bound.runner.device->is_cpu()) return false;
    bound.stream = &bound;
    return true;
}

// ---- Products ----------------------------------------------------------------------------------------------------------

bool other_contraction(Bound& bound, int64_t) {
    const Call& call = bound.problem.call;
    if (!call.is_product() || call.contracts_groups()) return false;
    if (call.second.indexed && call.transpose_b == MXQ_TRANSPOSE_N) return false;  // there is an index for each row
    testing::Dims dims = bound.problem.tensors[1].dims;
    (call.transpose_b == MXQ_TRANSPOSE_T ? dims.cols : dims.rows) += 1;
    extend_buffers(bound);
    bound.create(1, dims);
    bound.point();
    return true;
}

bool other_blocks(Bound& bound, int64_t) {
    const Call& call = bound.problem.call;
    if (!call.is_product() || call.first.plain() || call.second.plain()) return false;
    const testing::Dims dims = bound.problem.tensors[1].dims;
    if (oracle::is_fp8(call.first.format)) {  // which goes with blocks of any length, but for its own kind
        const bool wide = oracle::tile_of(call.first.scaling).width == 128;
        bound.tensors[1] = testing::make_tensor(testing::spec_of(MXQ_FORMAT_FP8_E5M2, wide ? MXQ_SCALING_ROW : MXQ_SCALING_1X128),
                                                dims, false);
        return true;
    }
    bound.tensors[1] =
        testing::make_tensor(call.first.format == MXQ_FORMAT_NVFP4 ? MXQ_FORMAT_MXFP4 : MXQ_FORMAT_NVFP4, dims);
    return true;
}

bool accumulate_in_16_bits(Bound& bound, int64_t) {
    const Call& call = bound.problem.call;
    if (!call.is_product() || call.d.format == MXQ_FORMAT_F32 || call.beta != 0) return false;
    ok(mxq_gemm_options_set_accumulate(bound.gemm_options, 1));
    return true;
}

bool bias_of_gradient(Bound& bound, int64_t) {
    if (!bound.problem.call.contracts_groups()) return false;
    const Pointer data = bound.pointers.at("ends");
    ok(mxq_gemm_options_set_bias(bound.gemm_options, MXQ_FORMAT_F32, data.address, uint64_t{1} << 40));
    return true;
}

bool both_transposed(Bound& bound, int64_t) {
    if (!bound.problem.call.contracts_groups()) return false;
    ok(mxq_gemm_options_set_transpose(bound.gemm_options, MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_T));
    return true;
}

// Gives the rows of a plain tensor of an activation padding, which no activation takes.
bool pad_rows(Bound& bound, int64_t at) {
    std::vector<size_t> plain;
    for (size_t i = 0; i < bound.tensors.size(); ++i)
        if (bound.problem.tensors[i].side.plain() && bound.problem.tensors[i].side.grouped) plain.push_back(i);
    if (plain.empty()) return false;
    extend_buffers(bound);
    bound.point();
    ok(mxq_tensor_set_group_alignment(bound.tensors[plain[static_cast<size_t>(at) % plain.size()]], 32, 0));
    return true;
}

// ---- Memory ------------------------------------------------------------------------------------------------------------

// Returns the problem with ends that are out of order or past the rows.
std::optional<Problem> with_wrong_ends(const Problem& problem, int64_t at) {
    Problem out = problem;
    Image& image = out.images.at("ends");
    const int64_t rows = problem.call.rows(), wrong[] = {rows + 1, -1, INT32_MAX, INT32_MIN};
    const int64_t number = at / 4 % problem.call.group_count(), value = wrong[at % 4];
    std::memcpy(&image.before[static_cast<size_t>(number * image.element)], &value, static_cast<size_t>(image.element));
    image.after = image.before;
    out.call.host_ends = false;  // which every device checks
    return out;
}

// Returns the problem with an amax, a decode scale or a quantization scale that no memory holds which somebody wrote.
std::optional<Problem> with_wrong_number(const Problem& problem, int64_t at) {
    Problem out = problem;
    std::vector<Image*> images;
    for (auto& [name, image] : out.images) {
        const bool is_number =
            ends_with(name, ".amax") || ends_with(name, ".decode_scale") || ends_with(name, ".quantization_scale");
        if (is_number && image.used && !image.written && !image.before.empty()) images.push_back(&image);
    }
    if (images.empty()) return std::nullopt;
    Image& image = *images[static_cast<size_t>(at) % images.size()];
    const float wrong[] = {NAN, -1.0f, -INFINITY, -0x1p-149f};
    const auto count = static_cast<int64_t>(image.before.size() / sizeof(float));
    int64_t number = at / 4 % count;
    const oracle::Ends ends = problem.call.ends();
    if (problem.call.groups && count == problem.call.group_count())  // those of groups without rows are not looked at
        for (int64_t tried = 0; oracle::group_rows(ends, static_cast<size_t>(number)) == 0; number = (number + 1) % count)
            if (++tried > count) return std::nullopt;
    std::memcpy(&image.before[static_cast<size_t>(number) * sizeof(float)], &wrong[at % 4], sizeof(float));
    image.after = image.before;
    return out;
}

// ---- The rules ---------------------------------------------------------------------------------------------------------

bool any_call(const Call&) { return true; }
bool conversion(const Call& call) { return !call.is_product(); }
bool product(const Call& call) { return call.is_product(); }
bool swizzles(const Call& call) { return call.verb == "swizzle_scales" || call.verb == "unswizzle_scales"; }
bool pads(const Call& call) { return call.verb == "pad_groups" || call.verb == "unpad_groups"; }
bool quantizes(const Call& call) { return call.verb == "quantize" || call.verb == "requantize"; }
bool in_groups(const Call& call) { return call.groups && call.group_count() > 0; }
bool has_elements(const Call& call) {
    return std::all_of(call.shape.begin(), call.shape.end(), [](int64_t size) { return size > 0; });
}
bool in_groups_with_elements(const Call& call) { return in_groups(call) && has_elements(call); }
bool has_matrices(const Call& call) { return has_elements(call) && (!call.groups || call.group_count() > 0); }
bool has_one_scale(const Call& call) { return call.first.scaling == MXQ_SCALING_TENSOR; }
bool two_dimensions(const Call& call) { return !call.is_product() && call.shape.size() == 2 && !call.groups; }
bool no_amax(const Call& call) { return call.verb != "amax"; }
bool no_pad(const Call& call) { return !pads(call); }
bool contracts(const Call& call) { return call.contracts_groups(); }
bool has_hadamard(const Call& call) { return quantizes(call) && (call.cols() % 16 || call.rows() % 16); }
bool activates_groups(const Call& call) { return call.is_activation() && call.groups; }
bool routes(const Call& call) { return call.verb == "route"; }
bool sums_rows(const Call& call) { return call.computed; }
bool leave_bound(Bound&, int64_t) { return true; }

std::vector<Rule> with_arguments(std::vector<Rule> rules) {
    rules.insert(rules.end(), argument_rules().begin(), argument_rules().end());
    return rules;
}

const std::vector<Rule>& all_rules() {
    static const std::vector<Rule> all = with_arguments({
        {"short", any_call, MXQ_STATUS_BUFFER_TOO_SMALL, true, shorten},
        {"null", any_call, MXQ_STATUS_MISSING_BUFFER, false, set_null},
        {"misaligned", any_call, MXQ_STATUS_MISALIGNED, true, misalign},
        {"overlap", any_call, MXQ_STATUS_INVALID_ARGUMENT, true, overlap},
        {"shape", any_call, MXQ_STATUS_SHAPE_MISMATCH, true, other_shape},
        {"dimensions", two_dimensions, MXQ_STATUS_SHAPE_MISMATCH, true, other_dimensions},
        {"kind", no_pad, MXQ_STATUS_UNSUPPORTED, true, wrong_kind},
        {"swizzled_tensor", has_one_scale, MXQ_STATUS_UNSUPPORTED, true, swizzle_tensor},
        {"layout", swizzles, MXQ_STATUS_INVALID_ARGUMENT, true, same_layout},
        {"no_part", no_amax, MXQ_STATUS_MISSING_BUFFER, false, no_part},
        {"groups", in_groups, MXQ_STATUS_SHAPE_MISMATCH, true, other_groups},
        {"ends", in_groups_with_elements, MXQ_STATUS_INVALID_ARGUMENT, false, leave_bound, with_wrong_ends},
        {"number", has_matrices, MXQ_STATUS_INVALID_ARGUMENT, false, leave_bound, with_wrong_number},
        {"direction", pads, MXQ_STATUS_INVALID_ARGUMENT, true, wrong_direction},
        {"implementation", any_call, MXQ_STATUS_UNSUPPORTED, true, unknown_implementation},
        {"option", conversion, MXQ_STATUS_INVALID_ARGUMENT, true, foreign_option},
        {"hadamard", has_hadamard, MXQ_STATUS_SHAPE_MISMATCH, true, hadamard_of_any_length},
        {"stream", any_call, MXQ_STATUS_INVALID_ARGUMENT, false, use_stream},
        {"contraction", product, MXQ_STATUS_SHAPE_MISMATCH, true, other_contraction},
        {"blocks", product, MXQ_STATUS_UNSUPPORTED, true, other_blocks},
        {"accumulate", product, MXQ_STATUS_INVALID_ARGUMENT, true, accumulate_in_16_bits},
        {"bias", contracts, MXQ_STATUS_UNSUPPORTED, true, bias_of_gradient},
        {"transposes", contracts, MXQ_STATUS_UNSUPPORTED, true, both_transposed},
        {"padded", activates_groups, MXQ_STATUS_UNSUPPORTED, true, pad_rows},
        {"id", routes, MXQ_STATUS_INVALID_ARGUMENT, false, leave_bound, with_wrong_id, true},
        {"choice_row", sums_rows, MXQ_STATUS_INVALID_ARGUMENT, false, leave_bound, with_wrong_choice_row},
    });
    return all;
}

}  // namespace

namespace {

// Returns whether a rule is one of the layer's verbs, too.
bool is_of_layer(const Rule& rule, const Call& call) {
    if (rule.name == "shape") return call.verb != "route";
    for (const char* name : {"short", "null", "misaligned", "overlap", "ends", "number", "implementation", "stream", "id",
                             "choice_row", "padded"})
        if (rule.name == name) return true;
    return false;
}

}  // namespace

std::vector<std::string> rules_for(const Call& call) {
    std::vector<std::string> out;
    for (const Rule& rule : all_rules())
        if (rule.suits(call) && (!call.is_layer() || is_of_layer(rule, call))) out.push_back(rule.name);
    return out;
}

const Rule& rule_of(const std::string& name) {
    for (const Rule& rule : all_rules())
        if (rule.name == name) return rule;
    throw std::runtime_error("\"" + name + "\": no such rule");
}

}  // namespace search
