// The long tier: every fp32 there is. Run with --long.
#include "../catch.h"
#include "../oracle.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"

#include <atomic>
#include <thread>

#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#define MXQ_HAVE_CUDA_FP8 1
#endif

namespace {

// Calls wrong(bits) for all bits below `end` on every core; the number of calls and the first that said so.
struct Outcome {
    uint64_t ran, first_wrong;
};
template <class Wrong>
Outcome for_all_bits(uint64_t end, Wrong wrong) {
    std::atomic<uint64_t> next{0}, ran{0}, first_wrong{~0ull};
    auto work = [&] {
        const uint64_t chunk = 1 << 22;
        for (uint64_t first; (first = next.fetch_add(chunk)) < end;) {
            uint64_t last = std::min(end, first + chunk);
            for (uint64_t bits = first; bits < last; ++bits)
                if (wrong(static_cast<uint32_t>(bits))) {
                    uint64_t known = first_wrong;
                    while (bits < known && !first_wrong.compare_exchange_weak(known, bits)) {
                    }
                }
            ran += last - first;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
    for (auto& thread : threads) thread.join();
    return {ran, first_wrong};
}

// Another way to each byte than the contract's formulas: in double precision, with logarithms of exact powers of two.
// frexp gives a = f * 2^e with f in [1/2, 1).
template <class E>
int independent_scale(mxq::ScaleRounding rounding, uint32_t bits) {
    double a = oracle::float_of(bits);
    if (a == 0) return 0;
    int exponent;
    auto byte = [](int power) { return std::max(power + 127, 0); };
    switch (rounding) {
        case mxq::ScaleRounding::Floor:
            if (a < 0x1p-126) return 0;
            std::frexp(a, &exponent);
            return byte(exponent - 1 - E::emax);
        case mxq::ScaleRounding::Ceil:
            if (a < 0x1p-126) return 0;
            return byte(std::frexp(a, &exponent) == 0.5 ? exponent - 1 - E::emax : exponent - E::emax);
        case mxq::ScaleRounding::Even: {  // the mantissa rounded half away from zero
            if (a < 0x1p-126) return 0;
            double f = std::frexp(a, &exponent);
            if (std::floor(std::ldexp(f, E::mantissa_bits + 1) + 0.5) == std::ldexp(1.0, E::mantissa_bits + 1)) ++exponent;
            return exponent > 128 ? 255 : byte(exponent - 1 - E::emax);
        }
        case mxq::ScaleRounding::Rceil: {  // the smallest power of two that is not below a * (1 / max), rounded to fp32
            auto d = static_cast<float>(a * static_cast<double>(static_cast<float>(1.0 / static_cast<double>(E::max))));
            if (d == 0) return 0;
            double f = std::frexp(static_cast<double>(d), &exponent);
            return byte(f == 0.5 ? exponent - 1 : exponent);
        }
    }
    return -1;
}

template <class E>
void check_scales() {
    using mxq::Nonfinite, mxq::ScaleRounding;
    auto check = [](auto rounding) {
        constexpr ScaleRounding r = decltype(rounding)::value;
        Outcome outcome = for_all_bits(0x7F800000u, [](uint32_t bits) {
            const auto expected = static_cast<uint32_t>(independent_scale<E>(r, bits));
            return mxq::scale_of<E, r, Nonfinite::Propagate>(bits) != expected ||
                   mxq::scale_of<E, r, Nonfinite::Saturate>(bits) != std::min(expected, 0xFEu);
        });
        CHECK(outcome.first_wrong == ~0ull);
        CHECK(outcome.ran == 0x7F800000u);
        outcome = for_all_bits(0x800000u, [](uint32_t nan) {  // 0 stands for Inf; a NaN does not count where it saturates
            const float value = oracle::float_of(0x7F800000u + nan);
            return mxq::scale_of<E, r, Nonfinite::Propagate>(mxq::amax_bits<Nonfinite::Propagate>(value)) != 255 ||
                   mxq::scale_of<E, r, Nonfinite::Saturate>(mxq::amax_bits<Nonfinite::Saturate>(value)) != (nan ? 0 : 0xFE);
        });
        CHECK(outcome.first_wrong == ~0ull);
        CHECK(outcome.ran == 0x800000u);
    };
    check(std::integral_constant<ScaleRounding, ScaleRounding::Floor>());
    check(std::integral_constant<ScaleRounding, ScaleRounding::Ceil>());
    check(std::integral_constant<ScaleRounding, ScaleRounding::Even>());
    check(std::integral_constant<ScaleRounding, ScaleRounding::Rceil>());
}

}  // namespace

TEST_CASE("exhaustive: every non-negative fp32 into the scale of E4M3, in each rounding and policy", "[.long]") { check_scales<mxq::E4M3>(); }
TEST_CASE("exhaustive: every non-negative fp32 into the scale of E5M2, in each rounding and policy", "[.long]") { check_scales<mxq::E5M2>(); }

#ifdef MXQ_HAVE_CUDA_FP8
namespace {
// The toolkit keeps the sign of a NaN on the host; the contract drops it, as the hardware does.
template <class E>
void check_encode(__nv_fp8_interpretation_t interpretation) {
    Outcome outcome = for_all_bits(0x100000000u, [=](uint32_t bits) {
        float x = oracle::float_of(bits);
        uint32_t expected = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, interpretation);
        if (std::isnan(x)) expected = 0x7F;
        return mxq::encode<E>(x) != expected;
    });
    CHECK(outcome.first_wrong == ~0ull);
    CHECK(outcome.ran == 0x100000000u);
}
}  // namespace
TEST_CASE("exhaustive: all 2^32 fp32 into E4M3 as cuda_fp8.h", "[.long]") { check_encode<mxq::E4M3>(__NV_E4M3); }
TEST_CASE("exhaustive: all 2^32 fp32 into E5M2 as cuda_fp8.h", "[.long]") { check_encode<mxq::E5M2>(__NV_E5M2); }
#else
TEST_CASE("exhaustive: all 2^32 fp32 into E4M3 and E5M2 as cuda_fp8.h", "[.long]") { MXQ_SKIP("cuda_fp8.h is not here"); }
#endif
