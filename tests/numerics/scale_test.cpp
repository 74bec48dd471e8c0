// E8M0 scales: the byte of a maximum, and the values of bytes.
#include "../catch.h"
#include "../oracle.h"
#include "formats.h"
#include "one_element.h"
#include "numerics/e8m0.h"

namespace {

using mxq::Nonfinite;
using mxq::ScaleRounding;

template <class E, ScaleRounding rounding>
bool gives_oracle_scale(uint32_t bits) {
    int propagate = 255, saturate = 254;
    if (bits < 0x7F800000u) {
        propagate = oracle::scale_byte(format_of<E>, static_cast<int32_t>(rounding), oracle::float_of(bits));
        saturate = std::min(propagate, 254);
    }
    return mxq::scale_of<E, rounding, Nonfinite::Propagate>(bits) == static_cast<uint32_t>(propagate) &&
           mxq::scale_of<E, rounding, Nonfinite::Saturate>(bits) == static_cast<uint32_t>(saturate);
}

template <class E>
bool gives_oracle_scales(uint32_t bits) {
    return gives_oracle_scale<E, ScaleRounding::Floor>(bits) && gives_oracle_scale<E, ScaleRounding::Ceil>(bits) &&
           gives_oracle_scale<E, ScaleRounding::Even>(bits) && gives_oracle_scale<E, ScaleRounding::Rceil>(bits);
}

}  // namespace

TEST_CASE("scale: a stride of maxima and every exponent's edges, in each rounding") {
    int64_t ran = 0;
    auto check = [&](uint32_t bits) {
        ++ran;
        for_each_element([&](auto e) {
            using E = decltype(e);
            if (!gives_oracle_scales<E>(bits)) FAIL("maximum " << std::hex << bits << ", format " << format_of<E>);
        });
    };
    for (uint32_t exponent = 0; exponent < 255; ++exponent)  // and around 1.75 and 2 - half a unit, where a byte changes
        for (uint32_t mantissa : {0u, 0x400000u, 0x600000u, 0x700000u, 0x780000u, 0x7FFFFEu})
            for (uint32_t add : {0u, 1u}) {
                check(exponent << 23 | mantissa | add);
                if (exponent | mantissa) check((exponent << 23 | mantissa) - 1);
            }
    for (uint64_t bits = 0; bits <= 0x7F800000u; bits += 1021) check(static_cast<uint32_t>(bits));
    CHECK(ran == 255 * 24 - 2 + 0x7F800000 / 1021 + 1);
}

TEST_CASE("scale: the values of all bytes") {
    int ran = 0;
    for (uint32_t byte = 0; byte < 255; ++byte, ++ran) {
        CHECK(mxq::scale_value(byte) == std::ldexp(1.0f, static_cast<int>(byte) - 127));
        CHECK(mxq::scale_reciprocal(byte) == std::ldexp(1.0f, 127 - static_cast<int>(byte)));
    }
    CHECK(std::isnan(mxq::scale_value(255)));
    CHECK(std::isnan(mxq::scale_reciprocal(255)));
    CHECK(ran == 255);
}

TEST_CASE("scale: under the scale NaN every code is NaN, or 0 where the type has none") {
    const float inf = std::numeric_limits<float>::infinity(), nan_scale = mxq::scale_reciprocal(255);
    int ran = 0;
    for_each_element([&](auto e) {
        using E = decltype(e);
        const uint32_t expected = E::bits == 8 ? 0x7F : 0;
        for (float x : {0.0f, -0.0f, 1.0f, -1.0f, inf, -inf, NAN, -NAN}) {
            CHECK(quantize_element<E>(x, nan_scale) == expected);
            CHECK((mxq::encode<E>(mxq::multiply_rn(x, nan_scale)) & mxq::code_mask<E>(255)) == expected);
            ++ran;
        }
        for (uint32_t scale = 0; scale < 255; ++scale) {
            CHECK(mxq::code_mask<E>(scale) == 0xFFFFFFFFu);
            CHECK(quantize_element<E>(NAN, mxq::scale_reciprocal(scale)) == E::nan_code);
            ++ran;
        }
    });
    CHECK(ran == 5 * (8 + 255));
}
