// mxq_gemm and mxq_grouped_gemm keep the bound for every pair of formats with the same blocks, for FP8 beside block scales, and
// for plain operands.
#include "gemm_operands.h"

using namespace products;
using testing::Buffer;
using testing::ok;

namespace {

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
