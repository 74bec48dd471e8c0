#include "problem.h"

#include "values.h"

namespace search {

using oracle::GroupedPart;
using testing::poison;

const char* part_name(int32_t part) { return part == MXQ_PART_ROWWISE ? "rowwise" : "columnwise"; }

oracle::Groups groups_of(const Call& call, const Side& side) { return {call.ends(), side.rowwise, side.columnwise}; }

oracle::Spec spec_of(const Call& call, const Side& side, bool is_target) {
    oracle::Spec spec = testing::spec_of(side.format, side.scaling);
    if (side.plain()) return spec;
    spec.per_matrix = call.per_expert && testing::has_amax(spec);
    if (testing::is_nvfp4(spec) && call.t256) spec.nvfp4_t = 256;
    spec.hadamard = side.hadamard;
    spec.rowwise_mask = static_cast<uint32_t>(side.rowwise_mask);
    spec.columnwise_mask = static_cast<uint32_t>(side.columnwise_mask);
    if (!is_target) return spec;
    if (call.rounding) spec.rounding = call.rounding;
    if (call.nonfinite) spec.nonfinite = call.nonfinite;
    spec.four_over_six = call.four_over_six;
    spec.eps = call.epsilon;
    spec.power_of_two = call.power_of_two;
    spec.stochastic = call.stochastic;
    spec.seed = call.values.seed * 0x9E3779B97F4A7C15u;
    spec.offset = call.values.seed * 0x2545F4914F6CDD1Du;
    const int64_t matrices = call.groups ? call.group_count() : call.experts().value_or(1),
                  count = spec.per_matrix ? matrices : 1;
    const bool given = testing::is_nvfp4(spec) ? !call.compute_amax : call.given_scale;
    if (!given) return spec;
    (testing::is_nvfp4(spec) ? spec.amax : spec.quantization_scale) = draw_numbers(call.values.seed, count);
    for (float& scale : spec.quantization_scale)  // which a CPU refuses
        if (std::isinf(scale) || std::isinf(1 / scale)) scale = 1;
    return spec;
}

int64_t rows_of_values(const oracle::Spec& spec, int64_t rows) {
    return spec.transforms(MXQ_PART_COLUMNWISE) ? 16 * oracle::ceil_div(rows, 16) : rows;
}

Image written_image(Bytes after, int64_t element) {
    Bytes before(after.size(), poison);
    return {std::move(before), std::move(after), element, true};
}
Image read_image(Bytes bytes, int64_t element) {
    Bytes before = bytes;
    return {std::move(before), std::move(bytes), element};
}

namespace {

GroupedPart quantized(const Call& call, const TensorPlan& tensor, const oracle::Spec& spec, const oracle::Floats& x,
                      int32_t part) {
    const auto [experts, rows, cols] = tensor.dims;
    if (tensor.side.grouped)
        return oracle::quantize_groups(spec, x, rows, cols, groups_of(call, tensor.side), part, tensor.side.swizzled);
    GroupedPart out = testing::all_written(oracle::quantize(spec, x, tensor.dims.shape(), part, tensor.side.swizzled));
    // A call writes nothing of a tensor without elements but TENSOR scales and computed amaxes.
    if (x.empty() && spec.scaling != MXQ_SCALING_TENSOR) out.scales_written.assign(out.scales_written.size(), 0);
    return out;
}

oracle::Part raw_part(const Call& call, const TensorPlan& tensor, int32_t part, const Values& values) {
    const oracle::Spec& spec = tensor.spec;
    const auto [experts, rows, cols] = tensor.dims.shape();
    cases::Random random(values.seed);
    oracle::Part out;
    const int64_t matrices = tensor.side.grouped ? call.group_count() : experts, numbers = spec.per_matrix ? matrices : 1;
    if (testing::is_nvfp4(spec)) out.amax = draw_numbers(values.seed, numbers);
    if (!tensor.side.grouped) {
        const auto [n, lines, length] = oracle::line_shape(tensor.dims.shape(), part);
        out.codes.resize(static_cast<size_t>(n * lines * oracle::row_bytes(spec.format, length)));
        out.scales.resize(static_cast<size_t>(oracle::scale_count(spec, tensor.dims.shape(), part, tensor.side.swizzled) *
                                              oracle::scale_bytes(spec.format)));
        for (int64_t e = 0; e < n; ++e)
            oracle::put_matrix(spec, raw_matrix(values, spec, lines, length, random),
                               oracle::placement_of(spec, e, lines, length, tensor.side.swizzled), out);
        return out;
    }
    const oracle::Groups groups = groups_of(call, tensor.side);
    const oracle::GroupLayout layout(spec, rows, cols, groups, part, tensor.side.swizzled);
    out.codes.resize(static_cast<size_t>(layout.code_bytes()));
    out.scales.resize(static_cast<size_t>(layout.scales() * oracle::scale_bytes(spec.format)));
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        oracle::Matrix matrix = raw_matrix(values, spec, layout.line_rows(g), layout.line_cols(g), random);
        const int64_t m = oracle::group_rows(groups.ends, g);
        const int64_t filled = part == MXQ_PART_COLUMNWISE ? rows_of_values(spec, m) : m;
        for (int64_t i = 0; i < matrix.rows; ++i)
            for (int64_t j = 0; j < matrix.cols; ++j)
                if ((part == MXQ_PART_ROWWISE ? i : j) >= filled) matrix.codes[static_cast<size_t>(i * matrix.cols + j)] = 0;
        oracle::clear_padding(spec, matrix, m, part);
        oracle::put_matrix(spec, matrix, layout.placement(g), out);
    }
    return oracle::marked(layout, std::move(out)).on(oracle::untouchable);
}

}  // namespace

oracle::Part draw_part(const Call& call, const TensorPlan& tensor, int32_t part, const Values& values) {
    oracle::Part out;
    if (is_raw(values)) {
        out = raw_part(call, tensor, part, values);
    } else {
        const Bytes dense = draw_plain(values, tensor.spec, MXQ_FORMAT_F32, tensor.dims.shape());
        const oracle::Floats x = oracle::load(MXQ_FORMAT_F32, dense.data(), tensor.dims.shape().count());
        out = quantized(call, tensor, tensor.spec, x, part).on(oracle::untouchable);
    }
    if (call.decode_scale && testing::is_nvfp4(tensor.spec)) {
        const auto draw = values.kind == "opposite" ? draw_far_numbers : draw_numbers;
        out.global_scale = draw(values.seed + 1, static_cast<int64_t>(out.amax.size()));
    }
    return out;
}

namespace {

// Returns the distances of lines with these gaps, in bytes. Listed experts lie at multiples of 8 bytes.
Lying lying(testing::Lines lines, int64_t line_gap, int64_t expert_gap, bool listed) {
    testing::Distances apart;
    if (line_gap) apart.line = lines.width + line_gap;
    if (expert_gap || listed) apart.matrix = lines.lines * apart.line_of(lines) + expert_gap;
    if (listed) apart.matrix = oracle::ceil_div(apart.matrix, 8) * 8 + 8;
    return {lines, apart};
}

Bytes laid_apart(const Bytes& dense, const Lying& lying, bool listed) {
    if (dense.empty() || !listed)
        return dense.empty() ? dense : testing::move_apart(dense, lying.lines, lying.apart, oracle::untouchable);
    Bytes reversed;
    for (int64_t e = lying.lines.matrices; e-- > 0;)
        reversed.insert(reversed.end(), dense.begin() + e * lying.lines.dense(),
                        dense.begin() + (e + 1) * lying.lines.dense());
    return testing::move_apart(reversed, lying.lines, lying.apart, oracle::untouchable);
}

}  // namespace

Lying code_lying(const TensorPlan& tensor, int32_t part) {
    const Side& side = tensor.side;
    return lying(testing::code_lines(tensor.spec, tensor.dims.shape(), part), side.code_line, side.code_expert, side.listed);
}

Lying scale_lying(const TensorPlan& tensor, int32_t part) {
    const Side& side = tensor.side;
    const int64_t bytes = oracle::scale_bytes(tensor.spec.format);
    testing::Lines lines = testing::scale_lines(tensor.spec, tensor.dims.shape(), part, side.swizzled);
    if (tensor.spec.scaling == MXQ_SCALING_TENSOR && !tensor.spec.per_matrix) lines.matrices = 1;
    return lying(lines, side.scale_line * bytes, side.scale_expert * bytes, side.listed);
}

Lying data_lying(const TensorPlan& tensor) {
    const auto [experts, rows, cols] = tensor.dims.shape();
    const int64_t element = oracle::plain_bytes(tensor.side.format);
    return lying({experts, rows, cols * element}, tensor.side.gap * element, 0, true);
}

std::vector<std::string> block_of(const Problem& problem, const TensorPlan& tensor) {
    if (!tensor.side.memory) return {};
    if (tensor.side.plain()) return {tensor.name + ".data"};
    std::vector<std::string> out;
    const bool takes_amax = testing::is_nvfp4(tensor.spec) && tensor.dims.experts != 0;
    for (int32_t part : both_parts) {
        if (!(tensor.side.parts & part)) continue;
        const std::string prefix = tensor.name + "." + part_name(part);
        out.insert(out.end(), {prefix + ".codes", prefix + ".scales"});
        if (takes_amax && problem.images.count(prefix + ".amax")) out.push_back(prefix + ".amax");
    }
    return out;
}

void add_part(Problem& problem, const TensorPlan& tensor, int32_t part, const oracle::Part& stored, bool used) {
    const std::string prefix = tensor.name + "." + part_name(part);
    const auto add = [&](const char* what, const Bytes& bytes, int64_t element) {
        Image image = read_image(bytes, element);
        image.used = used;
        problem.images[prefix + what] = image;
    };
    const bool apart = tensor.side.is_apart(), listed = tensor.side.listed;
    const int64_t scale_bytes = oracle::scale_bytes(tensor.spec.format);
    add(".codes", apart ? laid_apart(stored.codes, code_lying(tensor, part), listed) : stored.codes, 1);
    add(".scales", apart ? laid_apart(stored.scales, scale_lying(tensor, part), listed) : stored.scales, scale_bytes);
    if (!testing::is_nvfp4(tensor.spec)) return;
    if (stored.global_scale.empty())
        add(".amax", testing::bytes_of(stored.amax), 4);
    else
        add(".decode_scale", testing::bytes_of(stored.global_scale), 4);
}

Bytes with_gaps(const TensorPlan& tensor, const Bytes& rows, const Bytes& written, uint8_t fill) {
    const int64_t element = oracle::plain_bytes(tensor.side.format), row = tensor.dims.cols * element;
    const Bytes dense = oracle::on_background(rows, written, fill);
    if (row == 0) return {};
    Bytes out;
    for (int64_t at = 0; at < static_cast<int64_t>(dense.size()); at += row) {
        if (at) out.insert(out.end(), static_cast<size_t>(tensor.side.gap * element), fill);
        out.insert(out.end(), dense.begin() + at, dense.begin() + at + row);
    }
    return out;
}

namespace {

// Returns the rows of a plain tensor as it stores them, in groups with padding where it has groups itself.
oracle::Written plain_rows(const Call& call, const TensorPlan& tensor, const Bytes& dense, bool output) {
    const int64_t row = tensor.dims.cols * oracle::plain_bytes(tensor.side.format);
    if (tensor.side.grouped) return oracle::pad_rows(dense, row, tensor.dims.rows, call.ends(), tensor.side.rowwise);
    oracle::Written out{dense, Bytes(dense.size(), 1)};
    if (!call.groups || !output) return out;
    const oracle::Ends ends = call.ends();  // rows that belong to no group are not written
    std::fill(out.written.begin() + (ends.empty() ? 0 : ends.back()) * row, out.written.end(), uint8_t{0});
    return out;
}

}  // namespace

void add_plain(Problem& problem, const TensorPlan& tensor, const Bytes& dense) {
    if (tensor.side.indexed) return add_indexed(problem, tensor, dense);
    Image& image = problem.images[tensor.name + ".data"];
    const int64_t element = oracle::plain_bytes(tensor.side.format);
    if (tensor.side.listed) {
        image = read_image(laid_apart(dense, data_lying(tensor), true), element);
        return;
    }
    const oracle::Written rows = plain_rows(problem.call, tensor, dense, false);
    image = read_image(with_gaps(tensor, rows.bytes, rows.written, oracle::untouchable), element);
}

void add_plain_output(Problem& problem, const TensorPlan& tensor, const Bytes& dense) {
    const oracle::Written rows = plain_rows(problem.call, tensor, dense, true);
    problem.images[tensor.name + ".data"] =
        written_image(with_gaps(tensor, rows.bytes, rows.written, poison), oracle::plain_bytes(tensor.side.format));
}

namespace {

void add_output_part(Problem& problem, const TensorPlan& tensor, int32_t part, const GroupedPart& expected) {
    const Call& call = problem.call;
    const oracle::Spec& spec = tensor.spec;
    const std::string prefix = tensor.name + "." + part_name(part);
    const oracle::Part on = expected.on(poison);
    problem.images[prefix + ".codes"] = written_image(on.codes, 1);
    problem.images[prefix + ".scales"] = written_image(on.scales, oracle::scale_bytes(spec.format));
    const bool has = testing::is_nvfp4(spec) || (oracle::is_fp8(spec.format) && call.compute_amax);
    if (!has) return;
    Bytes amax = testing::bytes_of(on.amax);
    const bool like_scales = oracle::is_fp8(spec.format) && spec.scaling != MXQ_SCALING_TENSOR;
    if (like_scales) amax = oracle::on_background(amax, expected.scales_written, poison);
    problem.images[prefix + ".amax"] = spec.amax.empty() ? written_image(amax, 4) : read_image(amax, 4);
}

// Adds what options point to: a quantization scale, and the seed and offset of stochastic rounding.
void add_numbers_of_options(Problem& problem, const oracle::Spec& spec) {
    if (!spec.quantization_scale.empty())
        problem.images["out.quantization_scale"] = read_image(testing::bytes_of(spec.quantization_scale), 4);
    if (!spec.stochastic) return;
    Bytes numbers(16);
    std::memcpy(numbers.data(), &spec.seed, 8);
    std::memcpy(numbers.data() + 8, &spec.offset, 8);
    problem.images["seed_offset"] = read_image(numbers, 8);
}

}  // namespace

void add_quantized_output(Problem& problem, const TensorPlan& out, const oracle::Floats& x) {
    for (int32_t part : both_parts) {
        if (!(out.side.parts & part)) continue;
        oracle::Spec spec = out.spec;
        if (problem.call.own_amax && part == MXQ_PART_COLUMNWISE)
            spec.amax = draw_numbers(problem.call.values.seed + 1, static_cast<int64_t>(spec.amax.size()));
        add_output_part(problem, out, part, quantized(problem.call, out, spec, x, part));
    }
    add_numbers_of_options(problem, out.spec);
}

namespace {

// Adds the parts of a quantized tensor that is read, and returns the values that it holds: transformed ones where they are
// kept.
oracle::Floats add_source(Problem& problem, const TensorPlan& in, bool keep_hadamard) {
    oracle::Floats x;
    const int32_t source = problem.call.source_part();
    const oracle::Spec spec = keep_hadamard ? oracle::untransformed(in.spec) : in.spec;
    for (int32_t part : both_parts) {
        if (!(in.side.parts & part)) continue;
        const oracle::Part stored = draw_part(problem.call, in, part, problem.call.values);
        add_part(problem, in, part, stored, part == source);
        if (part != source) continue;
        x = in.side.grouped ? oracle::dequantize_groups(spec, stored, in.dims.rows, in.dims.cols,
                                                        groups_of(problem.call, in.side), part, in.side.swizzled)
                            : oracle::dequantize(spec, stored, in.dims.shape(), part, in.side.swizzled);
    }
    return x;
}

void add_quantize(Problem& problem) {
    const TensorPlan &in = problem.tensors[0], &out = problem.tensors[1];
    const Bytes dense = draw_plain(problem.call.values, out.spec, in.side.format, in.dims.shape());
    add_plain(problem, in, dense);
    add_quantized_output(problem, out, oracle::load(in.side.format, dense.data(), in.dims.shape().count()));
}

void add_amax(Problem& problem) {
    const Call& call = problem.call;
    const TensorPlan &in = problem.tensors[0], &out = problem.tensors[1];
    const Bytes dense = draw_plain(call.values, out.spec, in.side.format, in.dims.shape());
    add_plain(problem, in, dense);
    const oracle::Floats x = oracle::load(in.side.format, dense.data(), in.dims.shape().count());
    for (int32_t part : both_parts) {
        if (!(out.side.parts & part)) continue;
        const oracle::Floats amax =
            out.side.grouped ? oracle::group_amax(out.spec, x, in.dims.rows, in.dims.cols, groups_of(call, out.side), part)
                             : oracle::amax(out.spec, x, in.dims.shape(), part);
        problem.images[std::string("out.") + part_name(part) + ".amax"] = written_image(testing::bytes_of(amax), 4);
    }
}

void add_dequantize(Problem& problem) {
    const oracle::Floats x = add_source(problem, problem.tensors[0], problem.call.keep_hadamard);
    add_plain_output(problem, problem.tensors[1], oracle::store(problem.tensors[1].side.format, x));
}

void add_requantize(Problem& problem) {
    const TensorPlan& in = problem.tensors[0];
    TensorPlan out = problem.tensors[1];
    const bool passes = in.side.transforms(problem.call.source_part());  // values as they are, to a part that is transformed alike
    if (passes) out.spec = oracle::untransformed(out.spec);
    add_quantized_output(problem, out, add_source(problem, in, passes));
}

void add_convert(Problem& problem) {
    const TensorPlan &in = problem.tensors[0], &out = problem.tensors[1];
    const Bytes dense = draw_plain(problem.call.values, in.spec, in.side.format, in.dims.shape());
    add_plain(problem, in, dense);
    const oracle::Floats x = oracle::load(in.side.format, dense.data(), in.dims.shape().count());
    add_plain_output(problem, out, oracle::store(out.side.format, x));
}

void add_swizzle(Problem& problem) {
    const Call& call = problem.call;
    const TensorPlan& in = problem.tensors[0];
    const bool with_codes = call.values.seed % 2;  // the pointers of codes may be NULL
    for (int32_t part : both_parts) {
        if (!(in.side.parts & part)) continue;
        const oracle::Part stored = draw_part(call, in, part, call.values);
        const bool to_swizzled = call.verb == "swizzle_scales";
        const oracle::Written moved =
            in.side.grouped
                ? oracle::move_group_scales(in.spec, stored.scales, in.dims.rows, in.dims.cols, groups_of(call, in.side),
                                            part, to_swizzled)
                : oracle::Written{oracle::move_scales(in.spec, stored.scales, in.dims.shape(), part, to_swizzled), {}};
        const bool has_elements = in.dims.shape().count() > 0;  // else there are no scales, or ROW scales that are not written
        const Bytes written = in.side.grouped ? moved.written : Bytes(moved.bytes.size(), has_elements);
        const int64_t element = oracle::scale_bytes(in.spec.format);
        const std::string of_part = std::string(".") + part_name(part);
        add_part(problem, in, part, stored, true);
        problem.images.erase("in" + of_part + ".amax"), problem.images.erase("in" + of_part + ".decode_scale");
        problem.images["out" + of_part + ".scales"] =
            written_image(oracle::on_background(moved.bytes, written, poison), element);
        problem.images["in" + of_part + ".codes"].used = false;
        if (!with_codes) problem.images.erase("in" + of_part + ".codes");
        if (!with_codes) continue;
        Image& image = problem.images["out" + of_part + ".codes"] = read_image(stored.codes, 1);
        image.used = false;
    }
}

Bytes integers(const std::vector<int64_t>& numbers, int32_t type) {
    const size_t size = type == MXQ_TYPE_INT32 ? 4 : 8;
    Bytes out(numbers.size() * size);
    for (size_t i = 0; i < numbers.size(); ++i) std::memcpy(&out[i * size], &numbers[i], size);  // little-endian
    return out;
}

void add_starts(Problem& problem, const TensorPlan& out, int32_t part) {
    if (!problem.call.starts) return;
    const oracle::Groups groups = groups_of(problem.call, out.side);
    const int64_t alignment = out.side.plain() ? groups.rowwise : groups.alignment(out.spec, part);
    const std::vector<int64_t> all = oracle::padded_starts(groups.ends, alignment);
    const int32_t type = problem.call.ends_type;
    const std::string prefix = std::string("out.") + part_name(part);
    problem.images[prefix + ".starts"] =
        written_image(integers({all.begin(), all.end() - 1}, type), type == MXQ_TYPE_INT32 ? 4 : 8);
    problem.images[prefix + ".ends"] =
        written_image(integers({all.begin() + 1, all.end()}, type), type == MXQ_TYPE_INT32 ? 4 : 8);
}

void add_pad(Problem& problem) {
    const Call& call = problem.call;
    const TensorPlan &in = problem.tensors[0], &out = problem.tensors[1];
    if (in.side.plain()) {
        const Bytes dense = draw_plain(call.values, in.spec, in.side.format, in.dims.shape());
        add_plain(problem, in, dense);
        add_plain_output(problem, out, dense);
        return add_starts(problem, out, MXQ_PART_ROWWISE);
    }
    for (int32_t part : both_parts) {
        if (!(in.side.parts & part)) continue;
        const oracle::Part stored = draw_part(call, in, part, call.values);
        GroupedPart moved = oracle::realign_part(in.spec, stored, in.dims.rows, in.dims.cols, groups_of(call, in.side),
                                                 groups_of(call, out.side), part, in.side.swizzled);
        if (call.group_count() == 0) moved.scales_written.assign(moved.scales_written.size(), 0);
        const oracle::Part on = moved.on(poison);
        const std::string of_part = std::string(".") + part_name(part);
        const int64_t element = oracle::scale_bytes(in.spec.format);
        problem.images["in" + of_part + ".codes"] = read_image(stored.codes, 1);
        problem.images["in" + of_part + ".scales"] = read_image(stored.scales, element);
        problem.images["out" + of_part + ".codes"] = written_image(on.codes, 1);
        problem.images["out" + of_part + ".scales"] = written_image(on.scales, element);
        add_starts(problem, out, part);
    }
}

}  // namespace

void drop_unused_offsets(Call& call) {
    if (call.offsets.empty()) return;
    const Problem problem = make_problem(call);
    std::erase_if(call.offsets, [&](const auto& offset) { return problem.images.count(offset.first) == 0; });
    for (const TensorPlan& tensor : problem.tensors)
        for (const std::string& buffer : block_of(problem, tensor)) call.offsets.erase(buffer);
}

namespace {

std::vector<TensorPlan> conversion_tensors(const Call& call) {
    const bool targets = call.verb == "quantize" || call.verb == "requantize" || call.verb == "amax";
    return {{"in", call.first, spec_of(call, call.first, false), call.dims()},
            {"out", call.second, spec_of(call, call.second, targets), call.dims()}};
}

Problem with_tensors(const Call& call) {
    Problem problem;
    problem.call = call;
    if (call.groups)
        problem.images["ends"] = read_image(integers(call.ends(), call.ends_type), call.ends_type == MXQ_TYPE_INT32 ? 4 : 8);
    problem.tensors = call.is_product() ? product_tensors(call)
                      : call.is_layer() ? layer_tensors(call)
                                        : conversion_tensors(call);
    return problem;
}

}  // namespace

Problem make_outline(const Call& call) {
    if (call.is_layer()) return make_problem(call);
    Problem problem = with_tensors(call);
    for (TensorPlan& tensor : problem.tensors) tensor.side.memory = false;  // its addresses are set one by one
    for (const TensorPlan& tensor : problem.tensors)
        if (tensor.side.plain())
            problem.images[tensor.name + ".data"] = read_image({}, oracle::plain_bytes(tensor.side.format));
        else
            for (int32_t part : both_parts)
                if (tensor.side.parts & part) add_part(problem, tensor, part, {}, true);
    if (call.is_product())
        add_bias_image(problem);
    else
        add_numbers_of_options(problem, problem.tensors[1].spec);
    return problem;
}

Problem make_problem(const Call& call) {
    Problem problem = with_tensors(call);
    if (call.is_product())
        add_product(problem);
    else if (call.is_layer())
        add_layer(problem);
    else if (call.verb == "quantize")
        add_quantize(problem);
    else if (call.verb == "amax")
        add_amax(problem);
    else if (call.verb == "dequantize")
        add_dequantize(problem);
    else if (call.verb == "convert")
        add_convert(problem);
    else if (call.verb == "requantize")
        add_requantize(problem);
    else if (call.verb == "swizzle_scales" || call.verb == "unswizzle_scales")
        add_swizzle(problem);
    else if (call.verb == "pad_groups" || call.verb == "unpad_groups")
        add_pad(problem);
    else
        throw std::runtime_error("\"" + call.verb + "\": no such verb");
    return problem;
}

}  // namespace search
