// numerics/requantize_via_f16.h against the way by fp32: every code under every pair of scales.
#include "../catch.h"
#include "numerics/e8m0.h"
#include "numerics/requantize_via_f16.h"

#include <algorithm>
#include <cmath>

namespace {

struct Count {
    int64_t wrong = 0, checked = 0;
};

// What a block of the new scale may hold: below twice the largest code, E2M1's below 8 with the limit and below 7 without.
template <class To>
bool may_hold(float product, bool clamps) {
    const float limit = To::bits == 4 ? (clamps ? 8.0f : 7.0f) : std::min(2 * To::max, 65504.0f);
    return std::fabs(product) < limit;
}

template <class From, class To>
uint32_t requantize(uint32_t code, float factor, bool clamps) {
    if constexpr (To::bits == 8) {
        const uint32_t product = mxq::multiply_f16_pairs(mxq::decode_pair_to_f16<From>(code), mxq::f16_pair_of(factor));
        return mxq::encode_pair_from_f16<To>(product) & 0xFF;
    } else {
        uint32_t magnitudes = mxq::decode_pair_to_f16<From>(code & 0x7F);
        if (clamps) magnitudes = mxq::min_f16_pairs(magnitudes, mxq::e2m1_limit(factor));
        return (mxq::encode_e2m1_from_f16(magnitudes, mxq::E2m1Factors(factor)) & 7) | code >> 7 << 3;
    }
}

template <class From, class To>
Count check_all() {
    Count count;
    for (uint32_t scale = 0; scale < 255; ++scale)
        for (uint32_t to_scale = 0; to_scale < 255; ++to_scale) {
            const float value = mxq::scale_value(scale), reciprocal = mxq::scale_reciprocal(to_scale);
            const float factor = mxq::multiply_rn(value, reciprocal);
            if (!mxq::can_requantize_via_f16<From, To>(factor)) continue;
            for (uint32_t code = 0; code < 256; ++code)
                for (bool clamps : {false, true}) {
                    const float element = mxq::multiply_rn(mxq::decode<From>(code), value);
                    const float product = mxq::multiply_rn(element, reciprocal);
                    if (!std::isfinite(element) || !may_hold<To>(product, clamps)) continue;
                    ++count.checked;
                    count.wrong += requantize<From, To>(code, factor, clamps) != mxq::encode<To>(product);
                }
        }
    return count;
}

template <class From, class To>
void check(int64_t least) {
    const Count count = check_all<From, To>();
    CHECK(count.wrong == 0);
    CHECK(count.checked > least);
}

}  // namespace

TEST_CASE("requantize in F16: every code under every pair of scales") {
    check<mxq::E4M3, mxq::E4M3>(16'000'000);
    check<mxq::E4M3, mxq::E5M2>(4'000'000);
    check<mxq::E4M3, mxq::E2M1>(16'000'000);
    check<mxq::E5M2, mxq::E4M3>(3'800'000);
    check<mxq::E5M2, mxq::E5M2>(4'000'000);
    check<mxq::E5M2, mxq::E2M1>(16'000'000);
}

TEST_CASE("requantize in F16: the larger magnitude, and what is made of NaN") {
    CHECK(mxq::max_abs_of_f16_pair(mxq::max_abs_f16_pairs(0xBC004000, 0x4200C000)) == 3.0f);
    CHECK(std::isnan(mxq::max_abs_of_f16_pair(mxq::max_abs_f16_pairs(0x7FFF0000, 0x3C003C00))));
    CHECK(mxq::max_abs_of_f16_pair(mxq::max_abs_f16_pairs<mxq::Nonfinite::Saturate>(0x7FFF0000, 0x3C003C00)) == 1.0f);
}

TEST_CASE("requantize in F16: a word decodes as its two pairs do") {
    int wrong = 0, checked = 0;
    const auto check_type = [&]<class E>(E) {
        for (uint32_t pair = 0; pair < 1 << 16; ++pair, ++checked) {
            const uint32_t other = pair ^ 0x5A3Cu;
            uint32_t low, high;
            mxq::decode_word_to_f16<E>(pair | other << 16, low, high);
            wrong += low != mxq::decode_pair_to_f16<E>(pair) || high != mxq::decode_pair_to_f16<E>(other);
        }
    };
    check_type(mxq::E4M3{});
    check_type(mxq::E5M2{});
    CHECK(wrong == 0);
    CHECK(checked == 2 << 16);
}
