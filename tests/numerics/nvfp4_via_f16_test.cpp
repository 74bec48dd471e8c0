// numerics/nvfp4_via_f16.h against the way by fp32: every code and block scale, under random scales above them and new
// scales.
#include "../catch.h"
#include "numerics/e8m0.h"
#include "numerics/nvfp4_via_f16.h"

#include <cmath>
#include <random>

namespace {

struct Count {
    int64_t wrong = 0, checked = 0;
};

template <class E>
bool serves(float g, int step) {
    for (int i = 0; i < mxq::kNvfp4Products; ++i)
        if (!mxq::nvfp4_product_serves_in_f16<E>(g, i, step)) return false;
    return true;
}

// Returns the code of a magnitude, which F16 has, under a factor.
template <class E>
uint32_t encode_in_f16(float magnitude, float factor, int step) {
    const uint32_t pair = mxq::f16_pair_of(magnitude), factors = mxq::step_f16_pairs(mxq::f16_pair_of(factor), step);
    if constexpr (E::bits == 8)
        return mxq::encode_pair_from_f16<E>(mxq::multiply_f16_pairs(pair, factors)) & 0xFF;
    else
        return mxq::encode_e2m1_from_f16(pair, mxq::E2m1Factors(mxq::to_float(mxq::F16{uint16_t(factors)}))) & 7;
}

// Checks all products of codes and block scales under one scale above them, whose new scale is 2^-exponent.
template <class E>
void check_products(float g, int exponent, int step, Count& count) {
    const float reciprocal = std::ldexp(1.0f, exponent), factor = mxq::multiply_rn(g, reciprocal);
    if (!mxq::is_nvfp4_factor_in_f16<E>(factor)) return;
    for (uint32_t scale = 0; scale < 0x7F; ++scale)
        for (uint32_t code = 0; code < 8; ++code) {
            const float value = mxq::multiply_rn(mxq::decode<mxq::E2M1>(code), mxq::decode<mxq::E4M3>(scale));
            const float product = mxq::multiply_rn(mxq::multiply_rn(value, g), reciprocal);
            if (E::bits == 4 && product >= 7) continue;
            ++count.checked;
            count.wrong += encode_in_f16<E>(value, factor, step) != mxq::encode<E>(product);
        }
}

// Returns how many of the scales above serve.
template <class E>
int check_all(int scales, Count& count) {
    std::mt19937 random(5);
    int served = 0;
    for (int i = 0; i < scales; ++i) {
        const float g = std::ldexp(1 + float(random() >> 9) * 0x1p-23f, int(random() % 40) - 30);
        bool any = false;
        for (const int step : {mxq::kNearest, mxq::kAboveNearest, mxq::kBelowNearest}) {
            if (!serves<E>(g, step)) continue;
            any = true;
            for (int exponent = -20; exponent < 44; ++exponent) check_products<E>(g, exponent, step, count);
        }
        served += any;
    }
    return served;
}

}  // namespace

TEST_CASE("nvfp4 via F16: the codes that fp32 gives, under most scales above the blocks'") {
    Count e2m1, e4m3;
    CHECK(check_all<mxq::E2M1>(300, e2m1) == 300);
    CHECK(check_all<mxq::E4M3>(300, e4m3) > 285);
    CHECK(e2m1.wrong == 0);
    CHECK(e4m3.wrong == 0);
    CHECK(e2m1.checked > 3'000'000);
    CHECK(e4m3.checked > 3'000'000);
}

TEST_CASE("nvfp4 via F16: scales above the blocks' under which a product would cross a number at which codes change") {
    // The nearest F16 number to 1 + 2^-12 is 1: 16 times it lies on a number at which codes change, 16 times g above.
    CHECK(serves<mxq::E2M1>(1.0f, mxq::kNearest));
    CHECK(serves<mxq::E4M3>(1.0f, mxq::kNearest));
    CHECK_FALSE(serves<mxq::E2M1>(1.0f + 0x1p-12f, mxq::kNearest));
    CHECK_FALSE(serves<mxq::E4M3>(1.0f + 0x1p-12f, mxq::kNearest));
    CHECK(serves<mxq::E2M1>(1.0f + 0x1p-12f, mxq::kAboveNearest));
}
