// mxq_gemm has the same bits on the CPU for any number of threads and any instruction set.
#include "gemm_operands.h"

using namespace products;
using testing::ok;

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

// Returns the bytes of an F32 D of m rows and n columns.
oracle::Bytes product(testing::Device& device, const Operand& a, const Operand& b, int64_t m, int64_t n) {
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
    testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, a.tensor, b.tensor, d.tensor);
    return d.bytes();
}

// Few rows of A, which `make_a` makes, and weights of this format, all of the same seed and in the host's memory.
class FewRows {
public:
    template <class MakeA>
    FewRows(testing::Device& maker, const MakeA& make_a, const oracle::Spec& spec, int64_t m, int64_t n, int64_t k,
            uint64_t seed)
        : m_(m), n_(n), random_(seed), a_(make_a(maker, random_)),
          b_(make_operand(maker, spec, std::nullopt, n, k, false, false, random_, 0)) {}

    // Returns the bytes of an F32 D.
    oracle::Bytes product_on(testing::Device& device) const { return product(device, a_, b_, m_, n_); }

private:
    const int64_t m_, n_;
    cases::Random random_;
    const Operand a_, b_;
};

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
        const FewRows operands(reference, make_a, spec, m, n, k, seed);
        const oracle::Bytes expected = operands.product_on(reference);
        for (OtherCpu& other : others) {
            INFO(text(plain_spec(activations), spec) << ", " << m << "x" << n << "x" << k << ", " << mxq_context_description(other.context));
            REQUIRE(testing::difference(operands.product_on(other), expected) == "");
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
                const FewRows operands(reference, make_a, spec, m, n, k, seed + 100);
                const oracle::Bytes expected = operands.product_on(reference);
                for (OtherCpu& other : others) {
                    INFO(testing::describe(spec)
                         << ", " << m << " rows, extreme at " << extreme << ", " << mxq_context_description(other.context));
                    REQUIRE(testing::difference(operands.product_on(other), expected) == "");
                    ++ran;
                }
            }
    CHECK(ran == 35 * 2 * 2 * 4);
}

namespace {

// Returns rows [first, first + count) of x.
oracle::Floats rows_of(const oracle::Floats& x, int64_t first, int64_t count, int64_t k) {
    return {x.begin() + first * k, x.begin() + (first + count) * k};
}

}  // namespace

// Rows of which a few are extreme, by themselves and with others, for every kind of weights. With 16 codes FP8 and NVFP4 are
// multiplied by values.
TEST_CASE("gemm formats: the bits of a row do not depend on the number of rows", "[cpu]") {
    OtherCpu devices[] = {{"scalar", 1}, {"avx2", 1}, {"avx2", 3}, {"avx512bw", 1}, {"avx512", 1}, {"avx512bf16", 1}};
    constexpr int64_t m = 70, n = 41, windows[][2] = {{0, 1}, {3, 2}, {8, 5}, {4, 17}, {20, 33}, {2, 66}};
    std::vector<oracle::Spec> weights = testing::all_formats();
    for (int32_t format : cases::plain_formats) weights.push_back(plain_spec(format));
    int ran = 0;
    for (const oracle::Spec& base : weights)
        for (int64_t k : {int64_t(16), int64_t(1056), int64_t(4384)}) {
            const uint64_t seed = static_cast<uint64_t>(ran) + 9900;
            cases::Random random(seed);
            const oracle::Spec spec = draw(base, random);
            const int32_t activations = cases::plain_formats[random.below(3)];
            oracle::Floats x = draw_values(random, static_cast<size_t>(m * k));
            for (int64_t row : {0, 9, 30}) x[static_cast<size_t>(row * k + random.below(k))] = std::ldexp(1.0f, row == 9 ? 70 : -100);
            OtherCpu& device = devices[static_cast<size_t>(ran) % std::size(devices)];
            const auto product_of = [&](int64_t first, int64_t count) {
                cases::Random same(seed);
                const Operand a = make_plain(device, activations, rows_of(x, first, count, k), {std::nullopt, count, k}, 0);
                const Operand b = make_operand(device, spec, std::nullopt, n, k, false, false, same, 0);
                testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, count, n}, 0);
                testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, a.tensor, b.tensor, d.tensor);
                return d.bytes();
            };
            const oracle::Bytes all = product_of(0, m);
            for (const auto& [first, count] : windows) {
                INFO(text(plain_spec(activations), spec) << ", k " << k << ", rows from " << first << ": " << count << ", "
                                                         << mxq_context_description(device.context));
                const size_t row_bytes = static_cast<size_t>(n) * sizeof(float), begin = static_cast<size_t>(first) * row_bytes;
                const oracle::Bytes expected(all.begin() + static_cast<ptrdiff_t>(begin),
                                             all.begin() + static_cast<ptrdiff_t>(begin + static_cast<size_t>(count) * row_bytes));
                REQUIRE(testing::difference(product_of(first, count), expected) == "");
            }
            ++ran;
        }
    CHECK(ran == (35 + 3) * 3);
}

namespace {

// Returns weights of these codes and scales. NVFP4's amax is 1.
Operand make_stored(testing::Device& device, const oracle::Spec& spec, int64_t n, int64_t k, oracle::Bytes codes,
                    oracle::Bytes scales) {
    Operand out;
    out.tensor = testing::make_tensor(spec, {std::nullopt, n, k}, false);
    out.part = std::make_unique<testing::InputPart>(device, out.tensor, spec, MXQ_PART_ROWWISE,
                                                    oracle::Part{std::move(codes), std::move(scales), {1.0f}});
    return out;
}

const oracle::Spec mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32),
                   nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);

// Returns MXFP4 weights of `n` equal rows with one scale. Each byte has two codes, the first one in its lower half.
Operand make_mxfp4(testing::Device& device, int64_t n, const oracle::Bytes& row, uint8_t scale) {
    oracle::Bytes codes;
    for (int64_t i = 0; i < n; ++i) codes.insert(codes.end(), row.begin(), row.end());
    const int64_t k = 2 * static_cast<int64_t>(row.size());
    return make_stored(device, mxfp4, n, k, codes, oracle::Bytes(static_cast<size_t>(n * oracle::ceil_div(k, 32)), scale));
}

// Returns numbers as `m` equal rows.
Operand make_rows(testing::Device& device, int32_t format, int64_t m, const oracle::Floats& row) {
    oracle::Floats all;
    for (int64_t i = 0; i < m; ++i) all.insert(all.end(), row.begin(), row.end());
    return make_plain(device, format, all, {std::nullopt, m, static_cast<int64_t>(row.size())}, 0);
}

oracle::Floats with_first(size_t count, float first) {
    oracle::Floats out(count);
    out[0] = first;
    return out;
}

}  // namespace

// AVX2 multiplies one row with 128 rows of 4-bit codes and more in integers, in passes over 16384 codes, but not rows of
// F32.
TEST_CASE("gemm formats: the same bits of one row and many of 4-bit codes for any instruction set", "[cpu]") {
    OtherCpu reference("scalar", 1), others[] = {{"avx2", 1}, {"avx512bw", 1}, {"avx512", 1}, {"avx512bf16", 1}};
    constexpr int64_t n = 133;
    int ran = 0;
    for (const oracle::Spec& spec : {mxfp4, nvfp4})
        for (const int64_t k : {304, 16384 + 304}) {
            cases::Random random(static_cast<uint64_t>(k));
            const bool is_nvfp4 = testing::is_nvfp4(spec);
            oracle::Bytes codes(static_cast<size_t>(n * k / 2));
            oracle::Bytes scales(static_cast<size_t>(n * oracle::ceil_div(k, is_nvfp4 ? 16 : 32)));
            for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random.bits());
            for (uint8_t& scale : scales)
                scale = static_cast<uint8_t>(is_nvfp4 ? 40 + random.below(32) : 120 + random.below(16));
            const oracle::Floats x = cases::values(cases::Values::normal, static_cast<size_t>(k), 3);
            const Operand a = make_rows(reference, MXQ_FORMAT_BF16, 1, x);
            const Operand same = make_rows(reference, MXQ_FORMAT_F32, 1, a.lines);
            const Operand b = make_stored(reference, spec, n, k, codes, scales);
            const oracle::Bytes expected = product(reference, a, b, 1, n);
            for (OtherCpu& other : others) {
                INFO(testing::describe(spec) << ", k " << k << ", " << mxq_context_description(other.context));
                CHECK(testing::difference(product(other, a, b, 1, n), expected) == "");
                CHECK(testing::difference(product(other, same, b, 1, n), expected) == "");
                ++ran;
            }
        }
    CHECK(ran == 2 * 2 * 4);
}

// Sums of the first 16384 codes wait. They do not fit in the units of the integers that the next codes are multiplied in.
TEST_CASE("gemm formats: one row's sums keep their bits beside values far from them", "[cpu]") {
    constexpr int64_t n = 128, k = 16384 + 32;
    struct {
        float first, second;
        uint8_t scale, second_code;
        float sum;
    } const rows[] = {{0x1p30f, 0x1p-45f, 127 + 60, 2, 0x1p90f}, {0x1.fep-63f, 0x1p35f, 127 - 73, 0, 0x1.fep-136f}};
    int ran = 0;
    for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"}) {
        OtherCpu device(isa, 1);
        for (const auto& row : rows) {
            oracle::Floats x = with_first(k, row.first);
            x[16384] = row.second;
            oracle::Bytes codes(k / 2);
            codes[0] = 2, codes[16384 / 2] = row.second_code;
            INFO(mxq_context_description(device.context) << ", " << row.sum);
            const Operand a = make_rows(device, MXQ_FORMAT_BF16, 1, x), b = make_mxfp4(device, n, codes, row.scale);
            const oracle::Bytes d = product(device, a, b, 1, n);
            CHECK(oracle::load(MXQ_FORMAT_F32, d.data(), n) == oracle::Floats(n, row.sum));
            ++ran;
        }
    }
    CHECK(ran == 5 * 2);
}

// A pass over 16 rows takes 2048 codes, or 4096 as pairs of BF16. Of six rows of B four are multiplied together.
TEST_CASE("gemm formats: the same bits of 16 rows in three passes for any instruction set", "[cpu]") {
    OtherCpu reference("scalar", 1), others[] = {{"avx2", 1}, {"avx512bw", 1}, {"avx512", 1}, {"avx512bf16", 1}};
    constexpr int64_t m = 16, n = 6, k = 2 * 4096 + 96;
    const oracle::Spec weights[] = {mxfp4,
                                    nvfp4,
                                    testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32),
                                    testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW),
                                    plain,
                                    plain_spec(MXQ_FORMAT_F32)};
    const oracle::Floats x = cases::values(cases::Values::normal, m * k, 5);
    const oracle::Floats y = cases::values(cases::Values::normal, n * k, 6);
    const Operand a = make_plain(reference, MXQ_FORMAT_BF16, x, {std::nullopt, m, k}, 0);
    int ran = 0;
    for (const oracle::Spec& spec : weights) {
        Operand b;
        if (is_plain(spec)) {
            b = make_plain(reference, spec.format, y, {std::nullopt, n, k}, 0);
        } else {
            const oracle::Part part = oracle::quantize(spec, y, {1, n, k}, MXQ_PART_ROWWISE, false);
            b = make_stored(reference, spec, n, k, part.codes, part.scales);
        }
        const oracle::Bytes expected = product(reference, a, b, m, n);
        for (OtherCpu& other : others) {
            INFO(text(plain, spec) << ", " << mxq_context_description(other.context));
            CHECK(testing::difference(product(other, a, b, m, n), expected) == "");
            ++ran;
        }
    }
    CHECK(ran == 6 * 4);
}

// Products of two codes of the second unit, 0.75 each, are summed before the first unit's 2^24 is added, unless the row is
// extreme.
TEST_CASE("gemm formats: rows with values from 2^64 on are extreme for any instruction set, alone and among many", "[cpu]") {
    constexpr int64_t n = 3, k = 256;
    oracle::Bytes codes(k / 2);
    codes[0] = 2, codes[128 / 2] = 0x22;
    int ran = 0;
    for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"}) {
        OtherCpu device(isa, 1);
        const Operand b = make_mxfp4(device, n, codes, 127);
        for (const int64_t m : {1, 70})
            for (const int32_t format : {MXQ_FORMAT_F32, MXQ_FORMAT_BF16})
                for (const float last : {0x1p39f, 0x1p40f}) {
                    oracle::Floats x = with_first(k, 0x1p24f * last);
                    x[128] = x[129] = 0.75f * last;
                    const float sum = last < 0x1p40f ? (0x1p24f + 2) * last : 0x1p24f * last;
                    const oracle::Bytes d = product(device, make_rows(device, format, m, x), b, m, n);
                    INFO(mxq_format_name(format)
                         << ", " << m << " rows, " << sum << ", " << mxq_context_description(device.context));
                    CHECK(oracle::load(MXQ_FORMAT_F32, d.data(), static_cast<size_t>(m * n)) ==
                          oracle::Floats(static_cast<size_t>(m * n), sum));
                    ++ran;
                }
    }
    CHECK(ran == 5 * 2 * 2 * 2);
}

// Sums of values near the ends of fp32's range, which are exact. Products are below 2^-149 before they are summed or have
// their scale, or sums of values of B that share a scale are infinite where those of their codes are not.
TEST_CASE("gemm formats: sums of few and of many rows near the ends of the range", "[cpu]") {
    constexpr int64_t n = 3;
    oracle::Bytes half(32 / 2), cancelling;
    half[0] = 1;
    for (int i = 0; i < 4; ++i) cancelling.insert(cancelling.end(), {0x77, 0xFF, 0x77, 0xEF});  // 6 and -6, and one of -4
    int ran = 0;
    for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"}) {
        OtherCpu device(isa, 1);
        for (const int64_t m : {1, 70}) {
            const auto check_sums = [&](int32_t format, const oracle::Floats& row, const Operand& b, float sum) {
                const auto count = static_cast<size_t>(m * n);
                const oracle::Bytes d = product(device, make_rows(device, format, m, row), b, m, n);
                INFO(m << " rows, " << sum << ", " << mxq_context_description(device.context));
                CHECK(oracle::load(MXQ_FORMAT_F32, d.data(), count) == oracle::Floats(count, sum));
                ++ran;
            };
            const Operand small = make_rows(device, MXQ_FORMAT_F32, n, oracle::Floats(64, 0x1p-50f));
            check_sums(MXQ_FORMAT_F32, oracle::Floats(64, 0x1p-100f), small, 0x1p-144f);
            check_sums(MXQ_FORMAT_F32, with_first(32, 0x3p-149f), make_mxfp4(device, n, half, 127 + 60), 0x3p-90f);
            const Operand large = make_mxfp4(device, n, cancelling, 127 + 60);
            check_sums(MXQ_FORMAT_BF16, oracle::Floats(32, 0x1.fep63f), large, 0x1.fep126f);
        }
    }
    CHECK(ran == 5 * 2 * 3);
}
