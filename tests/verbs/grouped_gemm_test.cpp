// mxq_grouped_gemm keeps the contract's bound for any ends, and neither reads nor writes rows that belong to no group, on
// every device.
#include "../oracle_groups.h"
#include "product.h"

using testing::ok;

namespace {

struct Case {
    std::vector<int64_t> sizes;  // rows of each group
    int64_t rows_past_end = 0;
    int64_t k, n;
    oracle::Spec a, b;
    bool a_swizzled = false, b_swizzled = false;
    testing::Transposes transposes{MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T};
    int32_t d_format = MXQ_FORMAT_F32, ends_type = MXQ_TYPE_INT32;
    bool accumulate = false;
    int64_t gap = 0;
    size_t offset = 0;
    cases::Values kind = cases::Values::normal;
    const char* implementation = nullptr;

    oracle::Ends ends() const {
        oracle::Ends out;
        for (int64_t size : sizes) out.push_back((out.empty() ? 0 : out.back()) + size);
        return out;
    }
    int64_t groups() const { return static_cast<int64_t>(sizes.size()); }
    int64_t rows() const { return (sizes.empty() ? 0 : ends().back()) + rows_past_end; }
};

oracle::Bytes ends_bytes(const oracle::Ends& ends, int32_t type) {
    oracle::Bytes out;
    for (int64_t end : ends) {
        auto* bytes = reinterpret_cast<const uint8_t*>(&end);  // little-endian
        out.insert(out.end(), bytes, bytes + (type == MXQ_TYPE_INT32 ? 4 : 8));
    }
    return out;
}

// Draws values with a few NaNs. Under SATURATE each becomes one NaN code, under PROPAGATE a whole block of NaN.
oracle::Floats operand_values(cases::Values kind, size_t count, uint64_t seed) {
    oracle::Floats x = cases::values(cases::Values::normal, count, seed);
    cases::Random random(seed);
    if (kind == cases::Values::specials)
        for (size_t i = 0; i < count; i += 1 + static_cast<size_t>(random.below(3000))) x[i] = NAN;
    if (kind == cases::Values::wide)
        for (float& value : x) value = std::ldexp(value, static_cast<int>(random.below(50)) - 25);
    return x;
}

// Returns the values of a quantized group, rows [first, first + m): as (m, cols) if its blocks are rowwise, else (cols, m).
oracle::Floats group_values(const oracle::Spec& spec, const oracle::Floats& x, int64_t first, int64_t m, int64_t cols, bool rowwise) {
    oracle::Floats rows(x.begin() + first * cols, x.begin() + (first + m) * cols);
    if (!rowwise) rows = oracle::transposed(rows.data(), m, cols);
    int64_t outer = rowwise ? m : cols, inner = rowwise ? cols : m;
    oracle::Part part = oracle::quantize_rowwise(spec, rows.data(), outer, inner);
    return oracle::dequantize_rowwise(spec.format, spec.scaling, part.codes.data(), part.scales.data(), outer, inner);
}

struct Run {
    std::string complaint;
    oracle::Promise promise;
    testing::Bytes d;
};

Run finish(testing::Device& device, const Case& c, mxq_tensor* a, mxq_tensor* b, const testing::Output& d,
           const std::vector<oracle::Element>& expected, const std::vector<bool>& written, int64_t k) {
    auto options = testing::exact_gemm_options(c.transposes.a, c.transposes.b, c.accumulate, c.implementation);
    Run out;
    out.promise = testing::run_product(device, mxq_grouped_gemm, mxq_grouped_gemm_query, options, a, b, d.tensor);
    double factor = oracle::bound_factor(out.promise, k) + c.accumulate;
    oracle::Floats values = d.values(&written), in_groups;
    for (size_t i = 0; i < written.size(); ++i)
        if (written[i]) in_groups.insert(in_groups.end(), values.begin() + static_cast<int64_t>(i) * c.n, values.begin() + static_cast<int64_t>(i + 1) * c.n);
    out.complaint = factor < 0                            ? "no class of bound from " + out.promise.implementation
                    : in_groups.size() != expected.size() ? "the test lost elements"
                                                                   : oracle::check_product(expected, in_groups, c.d_format, factor);
    out.d = d.bytes();
    return out;
}

// Runs (N,T) or (N,N): groups divide the rows of A and D, and B has a matrix for each group.
Run run_rows(testing::Device& device, const Case& c, uint64_t seed) {
    bool b_rowwise = c.transposes.b == MXQ_TRANSPOSE_T;
    int64_t rows = c.rows(), k = c.k, n = c.n;
    oracle::Ends ends = c.ends();
    auto x = operand_values(c.kind, static_cast<size_t>(rows * k), seed), w = operand_values(c.kind, static_cast<size_t>(c.groups() * n * k), seed + 1);

    auto a = testing::make_quantized(c.a, {std::nullopt, rows, k}, c.a_swizzled);
    auto b = testing::make_quantized(c.b, b_rowwise ? testing::Dims{c.groups(), n, k} : testing::Dims{c.groups(), k, n}, c.b_swizzled);
    testing::Buffer ends_buffer(device, ends_bytes(ends, c.ends_type));
    ok(testing::set_ends(a, ends_buffer.data(), c.ends_type, static_cast<int32_t>(c.groups())));
    testing::PartBuffers a_part(device, a, MXQ_PART_ROWWISE, oracle::quantize_groups_rowwise(c.a, x, rows, k, ends, c.a_swizzled), c.offset);
    // The lines of B, (G, n, k), run along the contraction. Columnwise codes are stored in this order too.
    testing::PartBuffers b_part(device, b, b_rowwise ? MXQ_PART_ROWWISE : MXQ_PART_COLUMNWISE,
                                oracle::quantize(c.b, w, {c.groups(), n, k}, MXQ_PART_ROWWISE, c.b_swizzled), c.offset);
    auto previous = cases::values(cases::Values::normal, static_cast<size_t>(rows * n), seed + 2);
    testing::Output d(device, c.d_format, {std::nullopt, rows, n}, c.gap, c.accumulate ? &previous : nullptr, c.offset);

    std::vector<oracle::Element> expected;
    std::vector<bool> written(static_cast<size_t>(rows), false);
    for (size_t g = 0; g < ends.size(); ++g) {
        int64_t m = oracle::group_rows(ends, g), first = ends[g] - m;
        auto a_values = group_values(c.a, x, first, m, k, true), b_values = group_values(c.b, w, static_cast<int64_t>(g) * n, n, k, true);
        auto one = oracle::product(a_values.data(), k, b_values.data(), k, m, n, k, c.accumulate ? previous.data() + first * n : nullptr);
        expected.insert(expected.end(), one.begin(), one.end());
        std::fill(written.begin() + first, written.begin() + ends[g], true);
    }
    return finish(device, c, a, b, d, expected, written, k);
}

// Runs (T,N): groups divide the contraction, and D has one (K, N) matrix for each group.
Run run_contraction(testing::Device& device, const Case& c, uint64_t seed) {
    int64_t rows = c.rows(), k = c.k, n = c.n;
    oracle::Ends ends = c.ends();
    auto x = operand_values(c.kind, static_cast<size_t>(rows * k), seed), y = operand_values(c.kind, static_cast<size_t>(rows * n), seed + 1);

    auto a = testing::make_quantized(c.a, {std::nullopt, rows, k}, c.a_swizzled), b = testing::make_quantized(c.b, {std::nullopt, rows, n}, c.b_swizzled);
    testing::Buffer ends_buffer(device, ends_bytes(ends, c.ends_type));
    ok(testing::set_ends(a, ends_buffer.data(), c.ends_type, static_cast<int32_t>(c.groups())));
    ok(testing::set_ends(b, ends_buffer.data(), c.ends_type, static_cast<int32_t>(c.groups())));
    testing::PartBuffers a_part(device, a, MXQ_PART_COLUMNWISE, oracle::quantize_groups_columnwise(c.a, x, rows, k, ends, c.a_swizzled), c.offset);
    testing::PartBuffers b_part(device, b, MXQ_PART_COLUMNWISE, oracle::quantize_groups_columnwise(c.b, y, rows, n, ends, c.b_swizzled), c.offset);
    auto previous = cases::values(cases::Values::normal, static_cast<size_t>(c.groups() * k * n), seed + 2);
    testing::Output d(device, c.d_format, {c.groups(), k, n}, c.gap, c.accumulate ? &previous : nullptr, c.offset);

    std::vector<oracle::Element> expected;
    int64_t longest = 0;
    for (size_t g = 0; g < ends.size(); ++g) {
        int64_t m = oracle::group_rows(ends, g), first = ends[g] - m;
        auto a_values = group_values(c.a, x, first, m, k, false), b_values = group_values(c.b, y, first, m, n, false);
        auto one = oracle::product(a_values.data(), m, b_values.data(), m, k, n, m, c.accumulate ? previous.data() + static_cast<int64_t>(g) * k * n : nullptr);
        expected.insert(expected.end(), one.begin(), one.end());
        longest = std::max(longest, m);
    }
    return finish(device, c, a, b, d, expected, std::vector<bool>(static_cast<size_t>(c.groups() * k), true), longest);
}

Run run(testing::Device& device, const Case& c, uint64_t seed) {
    return c.transposes.a == MXQ_TRANSPOSE_T ? run_contraction(device, c, seed) : run_rows(device, c, seed);
}

const std::vector<int64_t> group_sizes[] = {
    {},
    {0},
    {1},
    {40},
    {0, 0, 0},
    {31, 0, 33, 1},
    {32, 64, 32},
    {0, 129, 0, 0, 7, 0},
    {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5},
    {61, 203, 33, 0, 128},
};

constexpr int64_t combinations = 3 * 2 * 2 * 2 * 2 * 2 * 2 * 3 * 2 * 2 * 2 * 2 * 3 * 3;

Case combination(int64_t number, const std::vector<int64_t>& sizes, int64_t k, int64_t n) {
    cases::Digits digits(number);
    Case c;
    c.sizes = sizes, c.k = k, c.n = n;
    c.transposes = testing::all_transposes[digits.next(3)];
    c.a.format = digits.pick(cases::formats);
    c.b.format = digits.pick(cases::formats);
    c.a_swizzled = digits.flag();
    c.b_swizzled = digits.flag();
    c.a.scaling = digits.pick(cases::scalings);
    c.b.scaling = digits.pick(cases::scalings);
    c.d_format = digits.pick(cases::plain_formats);
    c.accumulate = digits.flag() && c.d_format == MXQ_FORMAT_F32;
    c.ends_type = digits.flag() ? MXQ_TYPE_INT64 : MXQ_TYPE_INT32;
    c.a.nonfinite = c.b.nonfinite = digits.pick(cases::policies);
    const bool whole_pieces = n % 8 == 0;  // of 16 bytes, which some implementations need of D's rows
    c.gap = digits.next(2) * (whole_pieces ? 8 : 3);
    const int64_t past[] = {0, 1, 35};
    c.rows_past_end = digits.pick(past);
    const cases::Values kinds[] = {cases::Values::normal, cases::Values::wide, cases::Values::specials};
    c.kind = digits.pick(kinds);
    c.offset = whole_pieces ? 0 : static_cast<size_t>(number % 2);
    return c;
}

std::string text(const Case& c, int64_t number) {
    return std::to_string(c.groups()) + " groups, " + std::to_string(c.rows()) + " rows, k " + std::to_string(c.k) + ", n " +
           std::to_string(c.n) + ", combination " + std::to_string(number);
}

}  // namespace

MXQ_EACH_DEVICE("grouped_gemm: the bound holds for any groups and all choices") {
    int64_t ran = 0;
    for (const auto& sizes : group_sizes)
        for (int64_t k : {0, 1, 33, 128, 200})
            for (int64_t n : {0, 1, 67, 128, 130})
                for (int64_t number = ran % 4999; number < combinations; number += sizes.size() > 4 ? 14983 : 4999) {
                    Case c = combination(number, sizes, k, n);
                    Run result = run(device, c, static_cast<uint64_t>(ran++));
                    if (!result.complaint.empty()) FAIL(text(c, number) << ": " << result.complaint);
                }
    CHECK(ran == 3425);
}

MXQ_EACH_DEVICE("grouped_gemm: the most groups that are allowed") {
    std::vector<int64_t> sizes(MXQ_MAX_GROUPS);
    for (size_t g = 0; g < sizes.size(); ++g) sizes[g] = g % 7 == 3 ? 2 : 0;
    int ran = 0;
    for (int64_t number : {0, 1, 2}) {
        Case c = combination(number, sizes, 33, 3);
        Run result = run(device, c, 1);
        if (!result.complaint.empty()) FAIL(text(c, number) << ": " << result.complaint);
        ++ran;
    }
    CHECK(ran == 3);
}

MXQ_EACH_DEVICE("grouped_gemm: every implementation by name gives the bound, and the same bits each time") {
    int ran = 0;
    for (const std::string& name : testing::product_implementations(device))
        for (int64_t number = 0; number < combinations; number += 7993) {
            Case c = combination(number, group_sizes[9], 161, 99);
            c.implementation = name.c_str();
            Run first = run(device, c, 5), second = run(device, c, 5);
            CHECK(first.promise.implementation == name);
            CHECK(first.complaint == "");
            CHECK(first.d == second.d);
            ++ran;
        }
    CHECK(ran == (combinations + 7992) / 7993);
}

TEST_CASE("grouped_gemm: the same bits for any number of threads", "[cpu]") {
    int ran = 0;
    for (int64_t number : {0, 1, 2, 3000}) {
        testing::Bytes first;
        for (int32_t threads : {1, 2, 3}) {
            testing::Device device(MXQ_DEVICE_CPU, std::exchange(*testing::cpu_context(threads).out(), nullptr));
            Run result = run(device, combination(number, group_sizes[9], 200, 130), 9);
            CHECK(result.complaint == "");
            if (first.empty()) first = result.d;
            CHECK(result.d == first);
            ++ran;
        }
    }
    CHECK(ran == 12);
}
