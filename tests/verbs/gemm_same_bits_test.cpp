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

// Few rows of A, which `make_a` makes, and weights of this format, all of the same seed and in the host's memory.
class FewRows {
public:
    template <class MakeA>
    FewRows(testing::Device& maker, const MakeA& make_a, const oracle::Spec& spec, int64_t m, int64_t n, int64_t k,
            uint64_t seed)
        : m_(m), n_(n), random_(seed), a_(make_a(maker, random_)),
          b_(make_operand(maker, spec, std::nullopt, n, k, false, false, random_, 0)) {}

    // Returns the bytes of an F32 D.
    oracle::Bytes product_on(testing::Device& device) const {
        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m_, n_}, 0);
        testing::run_product(device, mxq_gemm, mxq_gemm_query, nullptr, a_.tensor, b_.tensor, d.tensor);
        return d.bytes();
    }

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
