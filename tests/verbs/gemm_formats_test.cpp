// mxq_gemm and mxq_grouped_gemm keep the bound for every pair of formats with the same blocks, for FP8 beside block scales, and
// for plain operands.
#include "../formats.h"
#include "product.h"

using testing::Buffer;
using testing::ok;

namespace {

const oracle::Spec plain = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE);

bool is_plain(const oracle::Spec& spec) { return spec.format <= MXQ_FORMAT_BF16; }

oracle::Spec plain_spec(int32_t format) { return testing::spec_of(format, MXQ_SCALING_NONE); }

// Returns how many elements along the contraction share a scale, 0 for all, as the header compares the two operands.
int64_t blocking(const oracle::Spec& spec) {
    if (oracle::is_mx(spec.format)) return 32;
    int64_t width = oracle::tile_of(spec.scaling).width;
    return width == oracle::whole ? 0 : width;
}

// Returns every pair of formats and scalings with the same blocks, FP8 beside those with block scales, each format with the plain ones that the device multiplies
// it with on either side, and the pairs of plain ones.
std::vector<std::pair<oracle::Spec, oracle::Spec>> all_pairs(const testing::Device& device) {
    std::vector<std::pair<oracle::Spec, oracle::Spec>> out{{plain, plain}, {plain_spec(MXQ_FORMAT_F16), plain_spec(MXQ_FORMAT_F16)}};
    std::vector<int32_t> beside_any{MXQ_FORMAT_BF16}, before_any{MXQ_FORMAT_BF16, MXQ_FORMAT_F16};
    if (device.is_cpu()) {
        beside_any = before_any = {MXQ_FORMAT_BF16, MXQ_FORMAT_F16, MXQ_FORMAT_F32};
        for (int32_t a : cases::plain_formats)
            for (int32_t b : cases::plain_formats)
                if (a != b || a == MXQ_FORMAT_F32) out.emplace_back(plain_spec(a), plain_spec(b));
    }
    for (const oracle::Spec& a : testing::all_formats()) {
        for (int32_t format : beside_any) out.emplace_back(a, plain_spec(format));
        for (int32_t format : before_any) out.emplace_back(plain_spec(format), a);
        for (const oracle::Spec& b : testing::all_formats())
            if (blocking(a) == blocking(b) || (oracle::is_fp8(a.format) && !oracle::is_fp8(b.format))) out.emplace_back(a, b);
    }
    return out;
}

oracle::Spec draw(const oracle::Spec& base, cases::Random& random) {
    oracle::Spec spec = base;
    if (is_plain(spec)) return spec;
    if (testing::has_amax(spec)) spec.per_matrix = random.below(2);
    if (testing::is_nvfp4(spec)) spec.nvfp4_t = random.below(2) ? 448.0f : 256.0f;
    return spec;
}

// Draws normal values, sometimes with outliers, sometimes of a magnitude far from 1, sometimes with a few NaNs.
oracle::Floats draw_values(cases::Random& random, size_t count) {
    const int64_t kind = random.below(6);
    const int shift = kind == 1 ? static_cast<int>(random.below(80)) - 60 : 0;
    oracle::Floats x(count);
    for (float& value : x) {
        value = std::ldexp(random.normal(), shift);
        if (kind == 2 && random.below(50) == 0) value *= 1000;
        if (kind == 3 && random.below(400) == 0) value = NAN;
    }
    return x;
}

// An operand: its tensor, its buffers, and the values that it decodes to.
struct Operand {
    testing::Tensor tensor;
    std::unique_ptr<testing::InputPart> part;
    std::unique_ptr<Buffer> data;
    oracle::Floats lines;  // values, (matrices, outer, k); of a grouped operand, see make_grouped
};

// Returns the numbers in a plain format, within its range, since a bound wants no infinity.
oracle::Bytes stored_numbers(int32_t format, oracle::Floats x) {
    if (format == MXQ_FORMAT_F16)
        for (float& value : x)
            if (std::fabs(value) > 65504) value = std::copysign(65504.0f, value);
    return oracle::store(format, x);
}

Operand make_plain(testing::Device& device, int32_t format, const oracle::Floats& x, testing::Dims dims, size_t offset) {
    Operand out;
    oracle::Bytes bytes = stored_numbers(format, x);
    out.tensor = testing::make_tensor(format, dims);
    out.lines = oracle::load(format, bytes.data(), x.size());
    out.data = std::make_unique<Buffer>(device, bytes, offset * static_cast<size_t>(oracle::plain_bytes(format)));
    ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
    return out;
}

// Returns each (rows, cols) matrix as (cols, rows).
oracle::Floats each_transposed(const oracle::Floats& x, oracle::Shape shape) {
    oracle::Floats out;
    for (int64_t e = 0; e < shape.experts; ++e) {
        const oracle::Floats one = oracle::transposed(x.data() + e * shape.rows * shape.cols, shape.rows, shape.cols);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// Makes an operand of `outer` lines of k codes. If `transposed`, the tensor is (k, outer) and its columnwise part is used, or its
// rows where it is plain.
Operand make_operand(testing::Device& device, const oracle::Spec& spec, std::optional<int64_t> matrices, int64_t outer, int64_t k,
                     bool transposed, bool swizzled, cases::Random& random, size_t offset) {
    testing::Dims dims = transposed ? testing::Dims{matrices, k, outer} : testing::Dims{matrices, outer, k};
    oracle::Floats x = draw_values(random, dims.shape().count());
    if (is_plain(spec)) {
        Operand out = make_plain(device, spec.format, x, dims, offset);
        if (transposed) out.lines = each_transposed(out.lines, dims.shape());
        return out;
    }
    int32_t part = transposed ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
    oracle::Part stored = oracle::quantize(spec, x, dims.shape(), part, swizzled);
    Operand out;
    out.tensor = testing::make_tensor(spec, dims, swizzled);
    out.lines = oracle::lines(spec, stored, dims.shape(), part, swizzled);
    out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored, offset);
    return out;
}

// Makes weights (k, outer) that are quantized along their rows alone, with lines of k codes as make_operand has them.
Operand make_rows_of_weights(testing::Device& device, const oracle::Spec& spec, std::optional<int64_t> matrices, int64_t outer,
                             int64_t k, bool swizzled, cases::Random& random) {
    Operand out = make_operand(device, spec, matrices, k, outer, false, swizzled, random, 0);
    out.lines = each_transposed(out.lines, {matrices.value_or(1), k, outer});
    return out;
}

// Returns whether fp32 scales change from code to code across the rows of a part, so that they multiply no sum.
bool has_scales_of_rows(const oracle::Spec& spec) {
    return oracle::is_fp8(spec.format) && (spec.scaling == MXQ_SCALING_ROW || spec.scaling == MXQ_SCALING_1X128);
}

// Makes a grouped (rows, cols) operand. Its `lines` are the values of its rows, (rows, cols) without padding.
Operand make_grouped(testing::Device& device, const oracle::Spec& spec, int64_t rows, int64_t cols, const oracle::Groups& groups, int32_t part,
                     bool swizzled, const testing::DeviceEnds& ends, cases::Random& random) {
    oracle::Floats x = draw_values(random, static_cast<size_t>(rows * cols));
    testing::Dims dims{std::nullopt, rows, cols};
    Operand out;
    if (is_plain(spec)) {
        const oracle::Bytes bytes = stored_numbers(spec.format, x);
        auto padded = oracle::pad_rows(bytes, cols * oracle::plain_bytes(spec.format), rows, groups.ends, groups.rowwise);
        out.tensor = testing::make_tensor(spec.format, dims);
        out.lines = oracle::load(spec.format, bytes.data(), x.size());
        out.data = std::make_unique<Buffer>(device, oracle::on_background(padded.bytes, padded.written, oracle::untouchable));
        ok(mxq_tensor_set_data(out.tensor, out.data->data(), out.data->bytes()));
    } else {
        oracle::Part stored = oracle::quantize_groups(spec, x, rows, cols, groups, part, swizzled).on(oracle::untouchable);
        out.tensor = testing::make_tensor(spec, dims, swizzled);
        out.lines = oracle::dequantize_groups(spec, stored, rows, cols, groups, part, swizzled);
        out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, part, stored);
    }
    ends.set(out.tensor, groups);
    return out;
}

bool is_exact(const oracle::Spec& spec) { return is_plain(spec) || oracle::is_mx(spec.format); }

// Says of two operands what their bound depends on.
struct Kinds {
    Kinds(const oracle::Spec& a, const oracle::Spec& b)
        : f16(a.format == MXQ_FORMAT_F16 && b.format == MXQ_FORMAT_F16),
          exact(is_exact(a) && is_exact(b) && (f16 || a.format != MXQ_FORMAT_F16)) {}
    bool f16, exact;
};

std::string check(const oracle::Promise& promise, Kinds kinds, const std::vector<oracle::Element>& expected, const oracle::Floats& d,
                  int32_t format, int64_t k, bool accumulate) {
    double factor = oracle::bound_factor(promise, k, kinds.exact);
    if (factor < 0) return "no class of bound from " + promise.implementation;
    if (d.size() != expected.size()) return "the test lost elements";
    if (kinds.f16) return oracle::check_product(oracle::of_f16(expected, promise.implementation), d, format, factor + accumulate);
    return oracle::check_product(expected, d, format, factor + accumulate);
}

bool draw_swizzled(const oracle::Spec& spec, cases::Random& random, bool grouped_columns = false) {
    return !is_plain(spec) && random.below(2) && testing::can_swizzle(spec, grouped_columns);
}

std::string text(const oracle::Spec& a, const oracle::Spec& b) {
    const auto one = [](const oracle::Spec& spec) { return is_plain(spec) ? mxq_format_name(spec.format) : testing::describe(spec); };
    return one(a) + " x " + one(b);
}

constexpr int64_t quantized_pairs = 25 * 25 + 2 * 2 + 4 * 4 + 4 * 4 + 8 * (25 + 2);

int64_t pair_count(const testing::Device& device) {
    return quantized_pairs + (device.is_cpu() ? 9 + 3 * 2 * 35 : 2 + 3 * 35);
}

}  // namespace

MXQ_EACH_DEVICE("gemm formats: the bound for every pair of formats") {
    const int64_t sizes[] = {1, 17, 32, 64, 96, 130}, depths[] = {0, 1, 31, 32, 64, 100, 128, 257, 288, 512};
    int64_t ran = 0;
    for (auto& [a_base, b_base] : all_pairs(device)) {
        cases::Random random(static_cast<uint64_t>(ran) + 1);
        oracle::Spec a_spec = draw(a_base, random), b_spec = draw(b_base, random);
        int64_t m = sizes[random.below(6)], n = sizes[random.below(6)], k = depths[random.below(10)];
        bool transpose_a = random.below(2), transpose_b = random.below(2);
        int32_t d_format = cases::plain_formats[random.below(3)];
        bool accumulate = d_format == MXQ_FORMAT_F32 && random.below(2);
        auto offset = static_cast<size_t>(random.below(3) == 0);
        bool a_swizzled = draw_swizzled(a_spec, random), b_swizzled = draw_swizzled(b_spec, random);
        Operand a = make_operand(device, a_spec, std::nullopt, m, k, transpose_a, a_swizzled, random, offset);
        Operand b = make_operand(device, b_spec, std::nullopt, n, k, !transpose_b, b_swizzled, random, offset);
        auto previous = cases::values(cases::Values::normal, static_cast<size_t>(m * n), static_cast<uint64_t>(ran));
        testing::Output d(device, d_format, {std::nullopt, m, n}, random.below(2) * 3, accumulate ? &previous : nullptr);
        auto options = testing::exact_gemm_options(transpose_a ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N, transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N, accumulate);
        auto promise = testing::run_product(device, mxq_gemm, mxq_gemm_query, options, a.tensor, b.tensor, d.tensor);
        auto expected = oracle::product(a.lines.data(), k, b.lines.data(), k, m, n, k, accumulate ? previous.data() : nullptr);
        ++ran;
        if (auto complaint = check(promise, {a_spec, b_spec}, expected, d.values(), d_format, k, accumulate); !complaint.empty())
            FAIL(text(a_spec, b_spec) << ", " << m << "x" << n << "x" << k << ", transposes " << transpose_a << transpose_b << ", swizzled " << a_swizzled
                                      << b_swizzled << ", D " << d_format << " accumulate " << accumulate << " offset " << offset << ": " << complaint);
    }
    CHECK(ran == pair_count(device));
}

MXQ_EACH_DEVICE("grouped gemm formats: the bound for every pair of formats, groups of rows") {
    int64_t ran = 0;
    for (auto& [a_base, b_base] : all_pairs(device)) {
        cases::Random random(static_cast<uint64_t>(ran) + 1000);
        oracle::Spec a_spec = draw(a_base, random), b_spec = draw(b_base, random);
        const int64_t depths[] = {1, 32, 64, 100, 160, 257}, widths[] = {1, 33, 64, 130};
        int64_t count = random.below(6), rows = 1 + random.below(200), k = depths[random.below(6)], n = widths[random.below(4)];
        bool transpose_b = random.below(2), accumulate = random.below(2);
        oracle::Groups groups = testing::draw_groups(random, is_plain(a_spec) ? oracle::Spec{} : a_spec, rows, count);
        testing::DeviceEnds ends(device, groups.ends, random.below(2));
        Operand a = make_grouped(device, a_spec, rows, k, groups, MXQ_PART_ROWWISE, draw_swizzled(a_spec, random), ends, random);
        Operand b = make_operand(device, b_spec, count, n, k, !transpose_b, draw_swizzled(b_spec, random), random, 0);
        int64_t d_alignment = random.below(3) ? 0 : 32;
        int32_t d_format = accumulate ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16;
        int64_t d_rows = d_alignment ? oracle::padded_bound(rows, count, d_alignment) : rows;
        auto previous = cases::values(cases::Values::normal, static_cast<size_t>(d_rows * n), static_cast<uint64_t>(ran));
        testing::Output d(device, d_format, {std::nullopt, d_rows, n}, 0, accumulate ? &previous : nullptr);
        testing::Tensor grouped_d = testing::make_tensor(d_format, {std::nullopt, rows, n});
        ok(mxq_tensor_set_data(grouped_d, d.data(), d.size()));
        if (d_alignment) ends.set(grouped_d, {{}, d_alignment});
        auto options = testing::exact_gemm_options(MXQ_TRANSPOSE_N, transpose_b ? MXQ_TRANSPOSE_T : MXQ_TRANSPOSE_N, accumulate);
        auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options, a.tensor, b.tensor, grouped_d);

        std::vector<bool> written(static_cast<size_t>(d_rows), false);
        std::vector<oracle::Element> expected;
        auto starts = oracle::padded_starts(groups.ends, d_alignment ? d_alignment : 1);
        for (size_t g = 0; g < groups.ends.size(); ++g) {
            int64_t m = oracle::group_rows(groups.ends, g), first = groups.ends[g] - m;
            auto one = oracle::product(a.lines.data() + first * k, k, b.lines.data() + static_cast<int64_t>(g) * n * k, k, m, n, k,
                                       accumulate ? previous.data() + starts[g] * n : nullptr);
            expected.insert(expected.end(), one.begin(), one.end());
            const int64_t padding = accumulate ? 0 : starts[g + 1] - starts[g] - m;  // padding rows of D become +0
            expected.insert(expected.end(), static_cast<size_t>(padding * n), oracle::Element{});
            std::fill(written.begin() + starts[g], written.begin() + starts[g] + m + padding, true);
        }
        oracle::Floats all = d.values(&written), values;
        for (size_t i = 0; i < written.size(); ++i)
            if (written[i]) values.insert(values.end(), all.begin() + static_cast<int64_t>(i) * n, all.begin() + static_cast<int64_t>(i + 1) * n);
        ++ran;
        if (auto complaint = check(promise, {a_spec, b_spec}, expected, values, d_format, k, accumulate); !complaint.empty())
            FAIL(text(a_spec, b_spec) << ", " << count << " groups of " << rows << ", n " << n << ", k " << k << ", transpose b " << transpose_b << ", alignments "
                                      << groups.rowwise << " in D " << d_alignment << " accumulate " << accumulate << ": " << complaint);
    }
    CHECK(ran == pair_count(device));
}

MXQ_EACH_DEVICE("grouped gemm formats: the bound for every pair of formats, groups along the contraction") {
    int64_t ran = 0;
    for (auto& [a_base, b_base] : all_pairs(device)) {
        cases::Random random(static_cast<uint64_t>(ran) + 2000);
        oracle::Spec a_spec = draw(a_base, random), b_spec = draw(b_base, random);
        const int64_t widths[] = {1, 33, 64, 130};
        int64_t count = random.below(6), rows = 1 + random.below(300), m = widths[random.below(4)], n = widths[random.below(4)];
        bool accumulate = random.below(2);
        const auto draw_groups = [&](const oracle::Spec& spec) {
            return testing::draw_groups(random, is_plain(spec) ? oracle::Spec{} : spec, rows, count);
        };
        oracle::Groups a_groups = draw_groups(a_spec), b_groups = draw_groups(b_spec);
        b_groups.ends = a_groups.ends;
        testing::DeviceEnds ends(device, a_groups.ends, random.below(2));
        bool a_swizzled = draw_swizzled(a_spec, random, true), b_swizzled = draw_swizzled(b_spec, random, true);
        Operand a = make_grouped(device, a_spec, rows, m, a_groups, MXQ_PART_COLUMNWISE, a_swizzled, ends, random);
        Operand b = make_grouped(device, b_spec, rows, n, b_groups, MXQ_PART_COLUMNWISE, b_swizzled, ends, random);
        auto previous = cases::values(cases::Values::normal, static_cast<size_t>(count * m * n), static_cast<uint64_t>(ran));
        testing::Output d(device, MXQ_FORMAT_F32, {count, m, n}, 0, accumulate ? &previous : nullptr);
        auto options = testing::exact_gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N, accumulate);
        auto promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options, a.tensor, b.tensor, d.tensor);
        oracle::Floats values = d.values();
        ++ran;
        for (size_t g = 0; g < a_groups.ends.size(); ++g) {
            int64_t k = oracle::group_rows(a_groups.ends, g), first = a_groups.ends[g] - k, at = static_cast<int64_t>(g) * m * n;
            auto a_lines = oracle::transposed(a.lines.data() + first * m, k, m), b_lines = oracle::transposed(b.lines.data() + first * n, k, n);
            auto expected = oracle::product(a_lines.data(), k, b_lines.data(), k, m, n, k, accumulate ? previous.data() + at : nullptr);
            oracle::Floats one(values.begin() + at, values.begin() + at + m * n);
            if (auto complaint = check(promise, {a_spec, b_spec}, expected, one, MXQ_FORMAT_F32, k, accumulate); !complaint.empty())
                FAIL(text(a_spec, b_spec) << ", group " << g << " of " << count << ", " << k << " rows, " << m << "x" << n << ", swizzled " << a_swizzled << b_swizzled
                                          << ", alignments " << a_groups.columnwise << " " << b_groups.columnwise << ": " << complaint);
        }
    }
    CHECK(ran == pair_count(device));
}

// The gradient of a layer's input through weights that were quantized along their rows alone.
MXQ_EACH_DEVICE("gemm formats: the bound for weights that are read across their rows, dense and in groups") {
    const int64_t sizes[] = {1, 17, 33, 64, 130}, depths[] = {0, 1, 31, 32, 100, 128, 257, 300};
    int64_t ran = 0, refused = 0;
    for (const auto& [a_base, b_base] : all_pairs(device)) {
        if (is_plain(b_base)) continue;
        if (!is_plain(a_base) && a_base.format != b_base.format) continue;
        cases::Random random(static_cast<uint64_t>(ran + refused) + 4000);
        const oracle::Spec a_spec = draw(a_base, random), b_spec = draw(b_base, random);
        const int64_t m = sizes[random.below(5)], n = sizes[random.below(5)], k = depths[random.below(8)], count = 1 + random.below(4);
        const bool grouped = random.below(2), b_swizzled = draw_swizzled(b_spec, random);
        const std::optional<int64_t> matrices = grouped ? std::optional(count) : std::nullopt;
        oracle::Groups groups = testing::draw_groups(random, is_plain(a_spec) ? oracle::Spec{} : a_spec, m, count);
        if (!grouped) groups.ends = {m};
        testing::DeviceEnds ends(device, groups.ends);
        Operand a = grouped ? make_grouped(device, a_spec, m, k, groups, MXQ_PART_ROWWISE, false, ends, random)
                            : make_operand(device, a_spec, std::nullopt, m, k, false, false, random, 0);
        Operand b = make_rows_of_weights(device, b_spec, matrices, n, k, b_swizzled, random);
        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
        auto options = testing::exact_gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_N, 0);
        const auto verb = grouped ? mxq_grouped_gemm : mxq_gemm;
        const auto query = grouped ? mxq_grouped_gemm_query : mxq_gemm_query;
        INFO(text(a_spec, b_spec) << ", " << m << "x" << n << "x" << k << ", groups " << (grouped ? count : 0) << ", swizzled " << b_swizzled);
        testing::Plan plan;
        if (!device.is_cpu() && has_scales_of_rows(b_spec)) {
            REQUIRE(query(device.context, options, a.tensor, b.tensor, d.tensor, plan.out()) == MXQ_STATUS_UNSUPPORTED);
            REQUIRE(std::string(mxq_last_error()).find("quantize a columnwise part") != std::string::npos);
            ++refused;
            continue;
        }
        ok(query(device.context, options, a.tensor, b.tensor, d.tensor, plan.out()));
        REQUIRE(std::string(mxq_plan_reason(plan)).find("reads b.rowwise") != std::string::npos);
        auto promise = testing::run_product(device, verb, query, options, a.tensor, b.tensor, d.tensor);
        std::vector<bool> written(static_cast<size_t>(m), false);
        for (size_t g = 0; g < groups.ends.size(); ++g)
            std::fill(written.begin() + groups.ends[g] - oracle::group_rows(groups.ends, g), written.begin() + groups.ends[g], true);
        const oracle::Floats values = d.values(&written);
        for (size_t g = 0; g < groups.ends.size(); ++g) {
            const int64_t rows = oracle::group_rows(groups.ends, g), first = groups.ends[g] - rows;
            auto expected = oracle::product(a.lines.data() + first * k, k, b.lines.data() + static_cast<int64_t>(g) * n * k, k, rows, n, k);
            const oracle::Floats one(values.begin() + first * n, values.begin() + (first + rows) * n);
            REQUIRE(check(promise, {a_spec, b_spec}, expected, one, MXQ_FORMAT_F32, k, false) == "");
        }
        ++ran;
    }
    const int64_t same_formats = 5 * 5 * 5 + 2 * 2 + 2 * (2 * 2 + 2 * 2), plain_activations = device.is_cpu() ? 3 : 2;
    CHECK(ran + refused == same_formats + plain_activations * 35);
    CHECK(refused == (device.is_cpu() ? 0 : 2 * 2 * 2 + 2 * 4));
}

// Covers mixed formats such as W4A16 with more than one tile of D in each direction, so that every loop repeats.
MXQ_EACH_DEVICE("gemm formats: the bound at a size of several tiles") {
    const std::pair<oracle::Spec, oracle::Spec> pairs[] = {
        {plain, testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32)},
        {testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32), testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32)},
        {testing::spec_of(MXQ_FORMAT_MXFP6_E3M2, MXQ_SCALING_1X32), testing::spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X128)},
        {testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16), testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_16X16)},
        {testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128)},
        {testing::spec_of(MXQ_FORMAT_FP8_E5M2, MXQ_SCALING_ROW), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_TENSOR)},
        {testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW), testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32)},
        {testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128), testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16)},
        {plain, plain},
        {plain_spec(MXQ_FORMAT_F16), plain_spec(MXQ_FORMAT_F16)},
        {plain_spec(MXQ_FORMAT_F16), testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32)},
        {plain_spec(MXQ_FORMAT_F16), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128)},
    };
    const int64_t m = 272, n = 528, k = 704;
    int ran = 0;
    for (auto& [a_spec, b_spec] : pairs) {
        cases::Random random(static_cast<uint64_t>(ran) + 3);
        Operand a = make_operand(device, a_spec, std::nullopt, m, k, false, false, random, 0);
        Operand b = make_operand(device, b_spec, std::nullopt, n, k, false, false, random, 0);
        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
        auto promise = testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, a.tensor, b.tensor, d.tensor);
        auto expected = oracle::product(a.lines.data(), k, b.lines.data(), k, m, n, k);
        ++ran;
        if (auto complaint = check(promise, {a_spec, b_spec}, expected, d.values(), MXQ_FORMAT_F32, k, false); !complaint.empty()) FAIL(text(a_spec, b_spec) << ": " << complaint);
    }
    CHECK(ran == 12);
}

// The CPU has other kernels for products of few rows. Contractions end in the middle of a block, of a byte's codes and of what
// a kernel takes at a time, and are longer than what it keeps of A.
TEST_CASE("gemm formats: the bound for 1 to 33 rows of plain numbers and every format", "[cpu]") {
    const int64_t depths[] = {1, 15, 31, 33, 100, 144, 257, 1056}, widths[] = {1, 3, 6, 37, 66};
    std::vector<oracle::Spec> weights = testing::all_formats();
    for (int32_t format : cases::plain_formats) weights.push_back(plain_spec(format));
    int64_t ran = 0;
    for (const oracle::Spec& base : weights)
        for (int32_t activations : cases::plain_formats)
            for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33}) {
                cases::Random random(static_cast<uint64_t>(ran) + 7000);
                const oracle::Spec spec = draw(base, random);
                const bool is_long = random.below(24) == 0;
                const int64_t k = is_long ? 4100 + random.below(300) : depths[random.below(8)],
                              n = is_long ? 9 : widths[random.below(5)];
                const bool swizzled = draw_swizzled(spec, random);
                const int32_t d_format = cases::plain_formats[random.below(3)];
                Operand a = make_operand(testing::cpu(), plain_spec(activations), std::nullopt, m, k, false, false, random, random.below(2));
                Operand b = make_operand(testing::cpu(), spec, std::nullopt, n, k, false, swizzled, random, random.below(2));
                testing::Output d(testing::cpu(), d_format, {std::nullopt, m, n}, random.below(2) * 3);
                auto promise = testing::run_product(testing::cpu(), mxq_gemm, mxq_gemm_query, nullptr, a.tensor, b.tensor, d.tensor);
                auto expected = oracle::product(a.lines.data(), k, b.lines.data(), k, m, n, k, nullptr);
                ++ran;
                if (auto complaint = check(promise, {plain_spec(activations), spec}, expected, d.values(), d_format, k, false); !complaint.empty())
                    FAIL(text(plain_spec(activations), spec) << ", " << m << "x" << n << "x" << k << ", swizzled " << swizzled << ", D " << d_format << ": " << complaint);
            }
    CHECK(ran == (35 + 3) * 3 * 20);
}

namespace {

// A CPU device with so many threads, and nothing better than `isa`.
struct OtherCpu : testing::Device {
    OtherCpu(const char* isa, int32_t threads) : Device(MXQ_DEVICE_CPU, open(isa, threads)) {}

    static mxq_context* open(const char* isa, int32_t threads) {
        mxq_context_options* options = nullptr;
        mxq_context* context = nullptr;
        ok(mxq_context_options_create(&options));
        ok(mxq_context_options_set_threads(options, threads));
        setenv("MXQ_CPU_ISA", isa, 1);
        const mxq_status status = mxq_context_create(MXQ_DEVICE_CPU, 0, options, &context);
        unsetenv("MXQ_CPU_ISA");
        mxq_context_options_destroy(options);
        ok(status);
        return context;
    }
};

}  // namespace

// Threads share tiles of D, and instruction sets differ in how many lines they decode at a time.
TEST_CASE("gemm formats: the same bits of operands that are read across for any number of threads and instruction set", "[cpu]") {
    OtherCpu reference("scalar", 1), others[] = {{"avx2", 1}, {"avx512bw", 1}, {"avx512bw", 2}, {"avx2", 5}, {"scalar", 3}};
    int ran = 0;
    for (int32_t a_format : cases::plain_formats)
        for (int32_t b_format : cases::plain_formats) {
            const uint64_t seed = static_cast<uint64_t>(ran) + 9500;
            cases::Random random(seed);
            const int64_t m = 1 + random.below(40), k = 240 + random.below(60), n = 2'200'000 / (m * k) + 1;
            const auto product_on = [&](testing::Device& device) {
                cases::Random same(seed);
                Operand a = make_operand(device, plain_spec(a_format), std::nullopt, m, k, true, false, same, 0);
                Operand b = make_operand(device, plain_spec(b_format), std::nullopt, n, k, true, false, same, 0);
                testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
                testing::run_product(device, mxq_gemm, mxq_gemm_query, testing::gemm_options(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N),
                                     a.tensor, b.tensor, d.tensor);
                return d.bytes();
            };
            const oracle::Bytes expected = product_on(reference);
            for (OtherCpu& other : others) {
                INFO(text(plain_spec(a_format), plain_spec(b_format)) << ", " << m << "x" << n << "x" << k << ", "
                                                                      << mxq_context_description(other.context));
                REQUIRE(testing::difference(product_on(other), expected) == "");
                ++ran;
            }
        }
    CHECK(ran == 9 * 5);
}

namespace {

// Returns the bytes of an F32 D: few rows of A, which `make_a` makes, times weights of this format, all of the same seed.
template <class MakeA>
oracle::Bytes few_rows_product(testing::Device& device, const MakeA& make_a, const oracle::Spec& spec, int64_t m, int64_t n,
                               int64_t k, uint64_t seed) {
    cases::Random random(seed);
    Operand a = make_a(device, random);
    Operand b = make_operand(device, spec, std::nullopt, n, k, false, false, random, 0);
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
    testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, a.tensor, b.tensor, d.tensor);
    return d.bytes();
}

}  // namespace

// Two million products of a call are worth a second thread.
TEST_CASE("gemm formats: the same bits of few rows for any number of threads and instruction set", "[cpu]") {
    OtherCpu reference("scalar", 1), others[] = {{"avx2", 1},       {"avx512bw", 1}, {"avx512", 1}, {"avx512bf16", 1},
                                                 {"avx512bf16", 2}, {"avx512bw", 2}, {"avx2", 5},   {"scalar", 3}};
    std::vector<oracle::Spec> weights = testing::all_formats();
    for (int32_t format : cases::plain_formats) weights.push_back(plain_spec(format));
    int ran = 0;
    for (const oracle::Spec& base : weights) {
        const uint64_t seed = static_cast<uint64_t>(ran) + 9000;
        cases::Random random(seed);
        const oracle::Spec spec = draw(base, random);
        const int64_t m = 1 + random.below(random.below(2) ? 100 : 32), k = 1056 - 16 * random.below(3), n = 2'200'000 / (m * k) + 1;
        const int32_t activations = cases::plain_formats[random.below(3)];
        const auto make_a = [&](testing::Device& device, cases::Random& same) {
            return make_operand(device, plain_spec(activations), std::nullopt, m, k, false, false, same, 0);
        };
        const oracle::Bytes expected = few_rows_product(reference, make_a, spec, m, n, k, seed);
        for (OtherCpu& other : others) {
            INFO(text(plain_spec(activations), spec) << ", " << m << "x" << n << "x" << k << ", " << mxq_context_description(other.context));
            REQUIRE(testing::difference(few_rows_product(other, make_a, spec, m, n, k, seed), expected) == "");
            ++ran;
        }
    }
    CHECK(ran == (35 + 3) * 8);
}

// Kernels pass over 16384 codes at most. A row whose values leave the range in one pass, the first or the last, is
// multiplied in another way there, and its sums go on to or from those of the other passes.
TEST_CASE("gemm formats: the same bits of few rows that are extreme in one pass over a long contraction", "[cpu]") {
    OtherCpu reference("scalar", 1), others[] = {{"avx2", 1}, {"avx512bw", 1}, {"avx512", 1}, {"avx512bf16", 1}};
    const int64_t n = 9, k = 2 * 16384 + 300;
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int64_t m : {1, 4})
            for (int64_t extreme : {int64_t(0), k - 1}) {
                const uint64_t seed = static_cast<uint64_t>(ran) + 9700;
                cases::Random random(seed);
                oracle::Floats x = draw_values(random, static_cast<size_t>(m * k));
                for (int64_t row = 0; row < m; ++row) x[static_cast<size_t>(row * k + extreme)] = std::ldexp(1.0f, -80);
                const auto make_a = [&](testing::Device& device, cases::Random&) {
                    return make_plain(device, MXQ_FORMAT_BF16, x, {std::nullopt, m, k}, 0);
                };
                const oracle::Bytes expected = few_rows_product(reference, make_a, spec, m, n, k, seed + 100);
                for (OtherCpu& other : others) {
                    INFO(testing::describe(spec)
                         << ", " << m << " rows, extreme at " << extreme << ", " << mxq_context_description(other.context));
                    REQUIRE(testing::difference(few_rows_product(other, make_a, spec, m, n, k, seed + 100), expected) == "");
                    ++ran;
                }
            }
    CHECK(ran == 35 * 2 * 2 * 4);
}

namespace {

// Weights, and rows of BF16 that products take some of.
struct RowsAndWeights {
    RowsAndWeights(const oracle::Spec& spec, std::optional<int64_t> experts, int64_t m, int64_t n, int64_t k, cases::Random& random)
        : n(n), k(k), values(draw_values(random, static_cast<size_t>(m * k))), rows(testing::cpu(), oracle::store(MXQ_FORMAT_BF16, values)),
          b(make_operand(testing::cpu(), spec, experts, n, k, false, draw_swizzled(spec, random), random, 0)) {}

    testing::Tensor tensor_of(int64_t first, int64_t count) const {
        testing::Tensor a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, count, k});
        ok(mxq_tensor_set_data(a, static_cast<uint8_t*>(rows.data()) + first * k * 2, static_cast<uint64_t>(count * k * 2)));
        return a;
    }

    // Returns the F32 bytes of rows [first, first + count) times the weights of one matrix.
    oracle::Bytes product(int64_t first, int64_t count) const {
        testing::Output d(testing::cpu(), MXQ_FORMAT_F32, {std::nullopt, count, n}, 0);
        testing::run_product(testing::cpu(), mxq_gemm, mxq_gemm_query, nullptr, tensor_of(first, count), b.tensor, d.tensor);
        return d.bytes();
    }

    int64_t n, k;
    oracle::Floats values;
    Buffer rows;
    Operand b;
};

void append(oracle::Bytes& to, const oracle::Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

}  // namespace

// Products of more than 32 rows are cut where that is faster, into passes of up to 16 rows, two at a time.
TEST_CASE("gemm formats: rows of a product that is cut have the bits of products of few rows", "[cpu]") {
    std::vector<oracle::Spec> weights = testing::all_formats();
    for (int32_t format : cases::plain_formats) weights.push_back(plain_spec(format));
    int ran = 0, cut = 0;
    for (const oracle::Spec& base : weights)
        for (int64_t m : {33, 64, 65, 97}) {
            cases::Random random(static_cast<uint64_t>(++ran) + 9900);
            const oracle::Spec spec = draw(base, random);
            const int64_t n = 5 + random.below(30), k = 512 + 16 * random.below(20);
            const RowsAndWeights of(spec, std::nullopt, m, n, k, random);
            const oracle::Bytes all = of.product(0, m);
            INFO(testing::describe(spec) << ", " << m << "x" << n << "x" << k);
            const auto a = oracle::load(MXQ_FORMAT_BF16, oracle::store(MXQ_FORMAT_BF16, of.values).data(), of.values.size());
            CHECK(check({"cpu", MXQ_BOUND_EXACT_PRODUCTS}, {plain, spec}, oracle::product(a.data(), k, of.b.lines.data(), k, m, n, k),
                        oracle::load(MXQ_FORMAT_F32, all.data(), static_cast<size_t>(m * n)), MXQ_FORMAT_F32, k, false) == "");

            const bool is_fast = is_plain(spec) ? spec.format == MXQ_FORMAT_BF16 : spec.format == MXQ_FORMAT_MXFP4 || !oracle::is_mx(spec.format);
            if (m > 64 && !is_fast) continue;
            oracle::Bytes parts;
            const int64_t count = 2 * oracle::ceil_div(m, oracle::ceil_div(m, 16));
            for (int64_t first = 0; first < m; first += count) append(parts, of.product(first, std::min(count, m - first)));
            CHECK(testing::difference(all, parts) == "");
            ++cut;
        }
    CHECK(ran == (35 + 3) * 4);
    CHECK(cut == (35 + 3) * 2 + (5 + 2 + 8 + 1) * 2);
}

TEST_CASE("grouped gemm formats: the bound for groups whose rows are cut", "[cpu]") {
    const oracle::Ends ends{40, 40, 73, 90, 187, 187};
    const int64_t m = ends.back(), count = static_cast<int64_t>(ends.size());
    int ran = 0;
    for (const oracle::Spec& base : testing::all_formats()) {
        cases::Random random(static_cast<uint64_t>(++ran) + 9950);
        oracle::Spec spec = draw(base, random);
        spec.per_matrix = false;
        const int64_t n = 5 + random.below(30), k = 512 + 16 * random.below(20);
        const RowsAndWeights of(spec, count, m, n, k, random);
        const testing::DeviceEnds of_groups(testing::cpu(), ends, random.below(2));
        const testing::Tensor a = of.tensor_of(0, m);
        of_groups.set(a, {ends, 1});
        testing::Output d(testing::cpu(), MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
        testing::run_product(testing::cpu(), mxq_grouped_gemm, mxq_grouped_gemm_query, nullptr, a, of.b.tensor, d.tensor);
        const auto rows = oracle::load(MXQ_FORMAT_BF16, oracle::store(MXQ_FORMAT_BF16, of.values).data(), of.values.size());
        std::vector<oracle::Element> expected;
        for (size_t g = 0; g < ends.size(); ++g) {
            const int64_t of_group = oracle::group_rows(ends, g), first = ends[g] - of_group;
            const auto one = oracle::product(rows.data() + first * k, k, of.b.lines.data() + static_cast<int64_t>(g) * n * k, k, of_group, n, k);
            expected.insert(expected.end(), one.begin(), one.end());
        }
        INFO(testing::describe(spec) << ", " << n << "x" << k);
        CHECK(check({"cpu", MXQ_BOUND_EXACT_PRODUCTS}, {plain, spec}, expected, d.values(), MXQ_FORMAT_F32, k, false) == "");
    }
    CHECK(ran == 35);
}
