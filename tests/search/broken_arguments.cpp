// Rules about what tensors and options must be, beside those of broken.cpp.
#include "broken.h"

namespace search {

using testing::ok;

namespace {

bool quantizes(const Call& call) { return call.verb == "quantize" || call.verb == "requantize"; }
bool pads(const Call& call) { return call.verb == "pad_groups" || call.verb == "unpad_groups"; }
bool is_fp8(const Side& side) { return !side.plain() && oracle::is_fp8(side.format); }
bool is_mx(const Side& side) { return !side.plain() && oracle::is_mx(side.format); }
bool has_rows(const Call& call) {
    return std::all_of(call.shape.begin(), call.shape.end(), [](int64_t size) { return size > 2; });
}

// Returns memory that is aligned for everything and that a refused call does not touch.
float* any_memory(const Bound& bound) { return reinterpret_cast<float*>(bound.runner.arena->device(0)); }
constexpr uint64_t many_bytes = uint64_t{1} << 40;

void extend_buffers(Bound& bound) {
    auto* const memory = reinterpret_cast<uint8_t*>(any_memory(bound));
    for (auto& [name, pointer] : bound.pointers) pointer = {pointer.address ? pointer.address : memory, many_bytes};
}

// Replaces a tensor with one of another shape, in buffers that look large enough.
bool reshape(Bound& bound, size_t number, testing::Dims dims) {
    extend_buffers(bound);
    bound.create(number, dims);
    bound.point();
    return true;
}

// ---- Arguments ---------------------------------------------------------------------------------------------------------

bool no_context(Bound& bound, int64_t) {
    bound.context = nullptr;
    return true;
}

bool no_tensor(Bound& bound, int64_t at) {
    bound.tensors[static_cast<size_t>(at) % bound.tensors.size()] = testing::Tensor();
    return true;
}

bool end_of_addresses(Bound& bound, int64_t at) {
    std::vector<std::string> large;
    for (const auto& [name, image] : bound.problem.images)
        if (image.used && image.before.size() > 256) large.push_back(name);
    if (large.empty()) return false;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there.
    auto* const last = reinterpret_cast<uint8_t*>(UINTPTR_MAX - 255);
    bound.pointers[large[static_cast<size_t>(at) % large.size()]].address = last;
    bound.point();
    return true;
}

bool no_workspace(Bound& bound, int64_t) {
    bound.workspace.address = nullptr;
    return bound.workspace.bytes > spare_workspace;
}
bool short_workspace(Bound& bound, int64_t) {
    if (bound.workspace.bytes == spare_workspace) return false;
    bound.workspace.bytes -= spare_workspace + 1;
    return true;
}
bool misaligned_workspace(Bound& bound, int64_t at) {
    bound.workspace.address += 1 << at % 8;
    return bound.workspace.bytes > spare_workspace;
}

// ---- Tensors -----------------------------------------------------------------------------------------------------------

bool other_format(Bound& bound, int64_t) {
    const TensorPlan& plan = bound.problem.tensors[1];
    const int32_t format = plan.side.format == MXQ_FORMAT_MXFP4 ? MXQ_FORMAT_MXFP8_E4M3 : MXQ_FORMAT_MXFP4;
    bound.tensors[1] =
        testing::make_tensor(plan.side.plain() ? MXQ_FORMAT_F32 + (plan.side.format == MXQ_FORMAT_F32) : format, plan.dims);
    return true;
}

bool other_layout(Bound& bound, int64_t at) {
    const auto number = static_cast<size_t>(at % 2);
    const Side& side = bound.problem.tensors[number].side;
    if (side.plain() || oracle::is_fp8(side.format)) return false;
    extend_buffers(bound);
    bound.point();
    ok(mxq_tensor_set_swizzled(bound.tensors[number], !side.swizzled));
    return true;
}

bool swizzle_columnwise_groups(Bound& bound, int64_t) {
    for (size_t i = 0; i < bound.tensors.size(); ++i) {
        const TensorPlan& plan = bound.problem.tensors[i];
        const std::string scales = plan.name + ".columnwise.scales";
        if (!is_fp8(plan.side) || oracle::tile_of(plan.side.scaling).width != 128 || !plan.side.grouped ||
            !bound.has(scales) || !bound.image(scales).used)
            continue;
        extend_buffers(bound);
        bound.point();
        ok(mxq_tensor_set_swizzled(bound.tensors[i], 1));
        return true;
    }
    return false;
}

bool amax_of_other_format(Bound& bound, int64_t) {
    bound.tensors[1] = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, bound.problem.tensors[1].dims);
    return true;
}

bool no_amax(Bound& bound, int64_t) {
    for (int32_t part : both_parts) ok(mxq_tensor_set_amax(bound.tensors[1], part, nullptr, 0));
    return true;
}

bool decode_scale_of_output(Bound& bound, int64_t) {
    const Side& out = bound.problem.tensors[1].side;
    if (out.format != MXQ_FORMAT_NVFP4) return false;
    for (int32_t part : both_parts) {
        if (!(out.parts & part)) continue;
        ok(mxq_tensor_set_amax(bound.tensors[1], part, nullptr, 0));
        ok(mxq_tensor_set_decode_scale(bound.tensors[1], part, any_memory(bound), many_bytes));
    }
    return true;
}

bool no_groups(Bound& bound, int64_t) {
    for (size_t i = 0; i < bound.tensors.size(); ++i) bound.create(i, bound.problem.tensors[i].dims);
    return true;
}

bool wrong_host_ends(Bound& bound, int64_t) {
    static const std::vector<int64_t> wrong(MXQ_MAX_GROUPS, -1);
    if (bound.problem.call.group_count() == 0) return false;
    const size_t size = bound.problem.call.ends_type == MXQ_TYPE_INT64 ? 8 : 4;
    ok(mxq_tensor_set_host_ends(bound.tensors[0], wrong.data(), size * static_cast<size_t>(bound.problem.call.group_count())));
    return true;
}

// Gives a tensor ends of its own, in other memory, of which one differs. A query takes them for equal.
bool other_ends(Bound& bound, int64_t at) {
    const auto& plans = bound.problem.tensors;
    const Call& call = bound.problem.call;
    if (!bound.runner.device->is_cpu() || !plans[0].side.grouped) return false;
    oracle::Ends ends = call.ends();
    const auto number = static_cast<size_t>(at) % ends.size();
    const int64_t next = number + 1 < ends.size() ? ends[number + 1] : call.rows(), before = number ? ends[number - 1] : 0;
    if (ends[number] < next)
        ends[number] += 1;
    else if (ends[number] > before)
        ends[number] -= 1;
    else
        return false;
    static thread_local std::vector<int64_t> wide;
    static thread_local std::vector<int32_t> narrow;
    wide.assign(ends.begin(), ends.end());
    narrow.assign(ends.begin(), ends.end());
    for (size_t i = plans.size(); i-- > 1;) {
        if (!plans[i].side.grouped) continue;
        const void* own = call.ends_type == MXQ_TYPE_INT64 ? static_cast<const void*>(wide.data()) : narrow.data();
        ok(testing::set_ends(bound.tensors[i], own, call.ends_type, static_cast<int32_t>(ends.size())));
        return true;
    }
    return false;
}

// Says that groups cover all rows where rows follow the last end. A device cannot read that.
bool cover_too_few(Bound& bound, int64_t at) {
    if (!bound.runner.device->is_cpu()) return false;
    std::vector<mxq_tensor*> grouped;
    for (size_t i = 0; i < bound.tensors.size(); ++i)
        if (bound.problem.tensors[i].side.grouped) grouped.push_back(bound.tensors[i]);
    ok(mxq_tensor_set_groups_cover_rows(grouped[static_cast<size_t>(at) % grouped.size()], 1));
    return true;
}

// ---- Outputs and lists ---------------------------------------------------------------------------------------------------

bool const_output(Bound& bound, int64_t) {
    const size_t number = bound.tensors.size() - 1;
    const TensorPlan& plan = bound.problem.tensors[number];
    const std::string written = plan.name + (plan.side.plain() ? "" : std::string(".") + part_name(plan.side.read_part()));
    const Pointer codes = bound.has(written + ".codes") ? bound.pointers.at(written + ".codes") : Pointer{};
    const Pointer buffer = bound.pointers.at(written + (plan.side.plain() ? ".data" : ".scales"));
    if (buffer.bytes == 0) return false;
    if (plan.side.plain()) {
        ok(mxq_tensor_set_const_data(bound.tensors[number], buffer.address, buffer.bytes));
        return true;
    }
    ok(mxq_tensor_set_const_part(bound.tensors[number], plan.side.read_part(), codes.address, codes.bytes, buffer.address,
                                 buffer.bytes));
    return true;
}

bool output_with_gaps(Bound& bound, int64_t) {
    const TensorPlan& out = bound.problem.tensors[1];
    if (out.side.plain() || out.side.grouped) return false;
    const int64_t far = int64_t{1} << 20;
    return mxq_tensor_set_strides(bound.tensors[1], out.side.read_part(), far, 0, 0, 0) == MXQ_STATUS_OK;
}

bool swapped(Bound& bound, int64_t) {
    std::swap(bound.tensors[0], bound.tensors[1]);
    return true;
}

bool no_expert(Bound& bound, int64_t at) { return bound.drop_address(at); }

// ---- Options -----------------------------------------------------------------------------------------------------------

// A transform that one of two tensors has, which must have the same.
bool other_hadamard(Bound& bound, int64_t at) {
    const Call& call = bound.problem.call;
    const auto number = static_cast<size_t>(at % 2);
    const Side& side = bound.problem.tensors[number].side;
    if (!testing::takes_hadamard(bound.problem.tensors[number].spec)) return false;
    const bool columnwise = number == 0 ? call.transpose_a == MXQ_TRANSPOSE_T
                                        : call.transpose_b == MXQ_TRANSPOSE_N && !call.reads_b_by_rows();
    const int32_t part = !call.is_product() ? side.read_part() : columnwise ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
    const int32_t mask = part == MXQ_PART_ROWWISE ? side.rowwise_mask : side.columnwise_mask;
    const testing::Dims dims = bound.problem.tensors[number].dims;
    const int64_t contraction = part == MXQ_PART_ROWWISE ? dims.cols : side.grouped ? 16 : dims.rows;
    if (contraction % 16) return false;
    const bool keeps = side.transforms(part) && at / 2 % 2;
    ok(mxq_tensor_set_hadamard(bound.tensors[number], part, keeps || !side.transforms(part), keeps ? mask ^ 1 : 0));
    return true;
}

bool source_of_other_part(Bound& bound, int64_t) {
    ok(mxq_quantize_options_set_source_part(made(bound.options), MXQ_PART_BOTH - bound.problem.call.first.parts));
    return true;
}

bool source_of_no_part(Bound& bound, int64_t at) {
    ok(mxq_quantize_options_set_source_part(made(bound.options), static_cast<int32_t>(1 + at % 2)));
    return true;
}

bool rule_of_given_scale(Bound& bound, int64_t at) {
    if (!bound.has("out.quantization_scale")) return false;  // 0 experts have none
    if (at % 2) ok(mxq_quantize_options_set_amax_epsilon(made(bound.options), 0.5f));
    else ok(mxq_quantize_options_set_power_of_two_scales(made(bound.options), 1));
    return true;
}

bool stochastic_of_other_format(Bound& bound, int64_t) {
    if (testing::takes_stochastic(bound.problem.tensors[1].spec)) return false;
    ok(mxq_quantize_options_set_stochastic_rounding(made(bound.options), reinterpret_cast<uint64_t*>(any_memory(bound)), 16));
    return true;
}

// ---- Products ----------------------------------------------------------------------------------------------------------

bool experts_of_product(Bound& bound, int64_t at) {
    const auto number = bound.problem.call.verb == "gemm" ? static_cast<size_t>(at % 3) : size_t{1};
    if (bound.problem.tensors[number].side.indexed) return false;  // rows by index are those of a matrix
    testing::Dims dims = bound.problem.tensors[number].dims;
    if (bound.problem.call.verb == "gemm")
        dims.experts = 1;
    else
        dims.experts = *dims.experts + 1;
    return reshape(bound, number, dims);
}

// ---- Which calls they suit ---------------------------------------------------------------------------------------------

bool any_call(const Call&) { return true; }
bool alike(const Call& call) { return pads(call) || call.verb == "swizzle_scales" || call.verb == "unswizzle_scales"; }
bool compares_hadamard(const Call& call) { return alike(call) || call.is_product(); }
bool pads_mx(const Call& call) { return pads(call) && is_mx(call.first); }
bool in_columnwise_groups(const Call& call) {
    return has_rows(call) && call.groups && call.group_count() > 0 && (is_fp8(call.first) || is_fp8(call.second)) &&
           (call.is_product() || quantizes(call) || call.verb == "dequantize");
}
bool is_amax(const Call& call) { return call.verb == "amax"; }
bool needs_amax(const Call& call) { return is_amax(call) && call.experts() != 0; }
bool reads_one_part(const Call& call) {
    return (call.verb == "dequantize" || call.verb == "requantize") && call.first.parts != MXQ_PART_BOTH;
}
bool reads_none(const Call& call) { return !call.is_product() && call.verb != "dequantize" && call.verb != "requantize"; }
bool has_given_scale(const Call& call) { return call.given_scale; }
bool quantizes_nvfp4(const Call& call) { return quantizes(call) && call.second.format == MXQ_FORMAT_NVFP4; }
bool needs_groups(const Call& call) { return pads(call) || call.verb == "grouped_gemm"; }
bool host_ends(const Call& call) { return call.host_ends; }
bool of_elements_in_groups(const Call& call) {
    const bool has_elements = std::all_of(call.shape.begin(), call.shape.end(), [](int64_t size) { return size > 0; });
    return call.groups && call.group_count() > 0 && has_elements;
}
bool leaves_rows(const Call& call) {
    return of_elements_in_groups(call) && !call.host_ends && call.ends().back() < call.rows();
}
bool writes_parts(const Call& call) {
    return !is_amax(call) && std::all_of(call.shape.begin(), call.shape.end(), [](int64_t size) { return size > 0; });
}
bool writes_quantized(const Call& call) { return quantizes(call) || (alike(call) && !call.first.plain()); }
bool changes_kind(const Call& call) { return call.verb == "quantize" || call.verb == "dequantize"; }
// Experts without elements need no address.
bool has_list(const Call& call) {
    const bool has_elements = std::all_of(call.shape.begin(), call.shape.end(), [](int64_t size) { return size > 0; });
    return (call.first.listed || call.second.listed) && has_elements;
}
bool converts(const Call& call) { return !call.is_product(); }
bool gemm(const Call& call) { return call.is_product() && !call.contracts_groups(); }

}  // namespace

const std::vector<Rule>& argument_rules() {
    static const std::vector<Rule> all = {
        {"context", any_call, MXQ_STATUS_INVALID_ARGUMENT, true, no_context},
        {"tensor", any_call, MXQ_STATUS_INVALID_ARGUMENT, true, no_tensor},
        {"end_of_addresses", any_call, MXQ_STATUS_INVALID_ARGUMENT, true, end_of_addresses},
        {"no_workspace", any_call, MXQ_STATUS_MISSING_BUFFER, false, no_workspace},
        {"short_workspace", any_call, MXQ_STATUS_BUFFER_TOO_SMALL, false, short_workspace},
        {"misaligned_workspace", any_call, MXQ_STATUS_MISALIGNED, false, misaligned_workspace},
        {"other_format", alike, MXQ_STATUS_SHAPE_MISMATCH, true, other_format},
        {"other_layout", pads_mx, MXQ_STATUS_INVALID_ARGUMENT, true, other_layout},
        {"swizzled_columns", in_columnwise_groups, MXQ_STATUS_UNSUPPORTED, true, swizzle_columnwise_groups},
        {"amax_format", is_amax, MXQ_STATUS_UNSUPPORTED, true, amax_of_other_format},
        {"no_amax", needs_amax, MXQ_STATUS_MISSING_BUFFER, false, no_amax},
        {"decode_scale", quantizes_nvfp4, MXQ_STATUS_INVALID_ARGUMENT, true, decode_scale_of_output},
        {"no_groups", needs_groups, MXQ_STATUS_INVALID_ARGUMENT, true, no_groups},
        {"host_ends", host_ends, MXQ_STATUS_INVALID_ARGUMENT, true, wrong_host_ends},
        {"other_ends", of_elements_in_groups, MXQ_STATUS_SHAPE_MISMATCH, false, other_ends},
        {"const_output", writes_parts, MXQ_STATUS_INVALID_ARGUMENT, true, const_output},
        {"gaps_in_output", writes_quantized, MXQ_STATUS_UNSUPPORTED, true, output_with_gaps},
        {"swapped", changes_kind, MXQ_STATUS_UNSUPPORTED, true, swapped},
        {"expert", has_list, MXQ_STATUS_MISSING_BUFFER, false, no_expert},
        {"cover", leaves_rows, MXQ_STATUS_INVALID_ARGUMENT, false, cover_too_few},
        {"other_hadamard", compares_hadamard, MXQ_STATUS_INVALID_ARGUMENT, true, other_hadamard},
        {"source_part", reads_one_part, MXQ_STATUS_MISSING_BUFFER, true, source_of_other_part},
        {"no_source", reads_none, MXQ_STATUS_INVALID_ARGUMENT, true, source_of_no_part},
        {"unused_rule", has_given_scale, MXQ_STATUS_INVALID_ARGUMENT, true, rule_of_given_scale},
        {"stochastic_format", converts, MXQ_STATUS_INVALID_ARGUMENT, true, stochastic_of_other_format},
        {"experts", gemm, MXQ_STATUS_SHAPE_MISMATCH, true, experts_of_product},
    };
    return all;
}

}  // namespace search
