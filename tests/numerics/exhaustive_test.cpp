// The long tier: every fp32 there is. Run with --long.
#include "../catch.h"
#include "../oracle.h"
#include "formats.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"
#include "numerics/philox.h"

#include <atomic>
#include <thread>

#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#define MXQ_HAVE_CUDA_FP8 1
#endif
#if __has_include(<cuda_fp4.h>)
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#define MXQ_HAVE_CUDA_FP4 1
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

// Clang 14 finds no template with arguments of its own inside of a lambda of a generic one.
uint32_t propagated(float value) { return mxq::amax_bits<mxq::Nonfinite::Propagate>(value); }
uint32_t saturated(float value) { return mxq::amax_bits<mxq::Nonfinite::Saturate>(value); }

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
            return mxq::scale_of<E, r, Nonfinite::Propagate>(propagated(value)) != 255 ||
                   mxq::scale_of<E, r, Nonfinite::Saturate>(saturated(value)) != (nan ? 0 : 0xFE);
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

TEST_CASE("exhaustive: every maximum into E4M3's scale, in each rounding and policy", "[.long]") { check_scales<mxq::E4M3>(); }
TEST_CASE("exhaustive: every maximum into E5M2's scale, in each rounding and policy", "[.long]") { check_scales<mxq::E5M2>(); }
TEST_CASE("exhaustive: every maximum into E3M2's scale, in each rounding and policy", "[.long]") { check_scales<mxq::E3M2>(); }
TEST_CASE("exhaustive: every maximum into E2M3's scale, in each rounding and policy", "[.long]") { check_scales<mxq::E2M3>(); }
TEST_CASE("exhaustive: every maximum into E2M1's scale, in each rounding and policy", "[.long]") { check_scales<mxq::E2M1>(); }

namespace {
// The magnitudes of each code are those from the tie below it to the tie above it; a tie is the even code's.
template <class E>
void check_small_encode() {
    const auto& values = oracle::table(oracle::element_type(format_of<E>));
    uint64_t ran = 0, first = 0;
    auto check = [&](uint64_t end, uint32_t code, uint32_t negative_code) {
        const auto start = static_cast<uint32_t>(first);
        Outcome outcome = for_all_bits(end - first, [=](uint32_t offset) {
            return mxq::encode<E>(oracle::float_of(start + offset)) != code ||
                   mxq::encode<E>(oracle::float_of((start + offset) | 0x80000000u)) != negative_code;
        });
        CHECK(outcome.first_wrong == ~0ull);
        ran += 2 * outcome.ran;
        first = end;
    };
    for (uint32_t code = 0; code < values.size(); ++code) {
        const bool is_last = code + 1 == values.size();  // with Inf
        const double tie = is_last ? 0 : (values[code] + values[code + 1]) / 2;
        const uint64_t end = is_last ? 0x7F800001u : oracle::bits_of(static_cast<float>(tie)) + (code % 2 == 0);
        check(end, code, code | mxq::ElementBits<E>::sign);
    }
    check(0x80000000u, E::nan_code, E::nan_code);
    CHECK(ran == 0x100000000u);
}
}  // namespace
TEST_CASE("exhaustive: all 2^32 fp32 into E3M2", "[.long]") { check_small_encode<mxq::E3M2>(); }
TEST_CASE("exhaustive: all 2^32 fp32 into E2M3", "[.long]") { check_small_encode<mxq::E2M3>(); }
TEST_CASE("exhaustive: all 2^32 fp32 into E2M1", "[.long]") { check_small_encode<mxq::E2M1>(); }

TEST_CASE("exhaustive: every fp32 up to 8 stochastically into E2M1, for three bytes", "[.long]") {
    for (uint32_t r : {0u, 128u, 255u}) {
        Outcome outcome = for_all_bits(0x41000001u, [=](uint32_t bits) {
            const float x = oracle::float_of(bits);
            const float step = x < 2 ? 0.5f : x < 4 ? 1.0f : 2.0f, place = x / step;  // exact
            const auto low = static_cast<uint32_t>(place);
            const uint32_t up = 256 * static_cast<double>(place - static_cast<float>(low)) > r + 0.5;
            const uint32_t expected = x < 6 ? low + up + (x < 2 ? 0 : x < 4 ? 2 : 4) : 7;
            return mxq::stochastic_e2m1(x, r) != expected || mxq::stochastic_e2m1(-x, r) != (expected | 8);
        });
        CHECK(outcome.first_wrong == ~0ull);
        CHECK(outcome.ran == 0x41000001u);
    }
}

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

// What Blackwell's instructions do, by the toolkit's programs for the host.
#ifdef MXQ_HAVE_CUDA_FP4
namespace {
template <class E, class Convert>
void check_small_conversion(Convert convert) {
    Outcome outcome = for_all_bits(0x100000000u, [=](uint32_t bits) {
        const float x = oracle::float_of(bits);
        return mxq::encode<E>(x) != convert(x);
    });
    CHECK(outcome.first_wrong == ~0ull);
    CHECK(outcome.ran == 0x100000000u);
}
template <class E>
void check_scale_conversion() {
    Outcome outcome = for_all_bits(0x80000000u, [](uint32_t bits) {
        const float d = mxq::multiply_rn(oracle::float_of(bits), 1.0f / E::max);
        const uint32_t scale = mxq::scale_of<E, mxq::ScaleRounding::Rceil, mxq::Nonfinite::Propagate>(bits);
        return scale != __nv_cvt_float_to_e8m0(d, __NV_NOSAT, cudaRoundPosInf);
    });
    CHECK(outcome.first_wrong == ~0ull);
    CHECK(outcome.ran == 0x80000000u);
}
}  // namespace
TEST_CASE("exhaustive: all 2^32 fp32 into E2M1 as cuda_fp4.h", "[.long]") {
    check_small_conversion<mxq::E2M1>([](float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); });
}
TEST_CASE("exhaustive: all 2^32 fp32 into E3M2 as cuda_fp6.h", "[.long]") {
    check_small_conversion<mxq::E3M2>([](float x) { return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest); });
}
TEST_CASE("exhaustive: all 2^32 fp32 into E2M3 as cuda_fp6.h", "[.long]") {
    check_small_conversion<mxq::E2M3>([](float x) { return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest); });
}
TEST_CASE("exhaustive: every maximum into E4M3's scale as cuda_fp8.h", "[.long]") { check_scale_conversion<mxq::E4M3>(); }
TEST_CASE("exhaustive: every maximum into E2M1's scale as cuda_fp8.h", "[.long]") { check_scale_conversion<mxq::E2M1>(); }
#else
TEST_CASE("exhaustive: small codes and scales as cuda_fp4.h", "[.long]") { MXQ_SKIP("cuda_fp4.h is not here"); }
#endif
