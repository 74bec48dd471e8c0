// numerics/mx_via_f16.h gives the bits of e8m0.h and element.h wherever it says that it may be used.
#include "../catch.h"
#include "formats.h"
#include "numerics/mx_via_f16.h"
#include "one_element.h"

#include <cstdint>
#include <string>

using namespace mxq;

namespace {

// Calls f with an object of each type that is encoded by way of F16.
template <class F>
void for_each_encoded_element(F f) {
    for_each_element([&]<class E>(E element) {
        if constexpr (encodes_via_f16<E>) f(element);
    });
}

// Scales made from maxima rounded to odd, every `step`-th magnitude; returns how many may be used.
template <class E, ScaleRounding rounding, Nonfinite policy>
int64_t check_scales(uint64_t step) {
    int64_t usable = 0, wrong = 0;
    for (uint64_t bits = 0; bits < 0x80000000u; bits += step) {
        const uint32_t amax = amax_bits<policy>(bits_float(uint32_t(bits)));
        const uint32_t rounded = round_to_odd_bf16(bits_float(amax)) << 16;
        const uint32_t scale = scale_of<E, rounding, policy>(rounded);
        if (!can_encode_via_f16(scale)) continue;
        usable++;
        wrong += scale != scale_of<E, rounding, policy>(amax);
    }
    CHECK(wrong == 0);
    return usable;
}

template <class E, Nonfinite policy>
void check_all_scales(uint64_t step) {
    for (int64_t usable :
         {check_scales<E, ScaleRounding::Floor, policy>(step), check_scales<E, ScaleRounding::Ceil, policy>(step),
          check_scales<E, ScaleRounding::Even, policy>(step), check_scales<E, ScaleRounding::Rceil, policy>(step)})
        CHECK(usable > int64_t(207 * 0x00800000ull / step) - 0x01000000);  // 207 scales, a binade each
}

// The code of a word, by the steps that cpu/ takes with vectors of words.
template <class E>
uint32_t encode_via_f16(uint32_t word, float factor) {
    using Rounding = F16ToCode<E>;
    const uint32_t half = from_float<F16>(multiply_rn(to_float(Bf16{uint16_t(word)}), factor)).bits;
    const uint32_t magnitude = half & 0x7FFF;
    const uint32_t code = (magnitude + Rounding::below_half + ((magnitude >> Rounding::shift) & 1)) >> Rounding::shift;
    return (code < Rounding::max_code ? code : Rounding::max_code) | ((half >> (16 - E::bits)) & ElementBits<E>::sign);
}

// Codes under one scale: every `step`-th value that a block of that scale can hold, both signs.
template <class E>
void check_codes(uint32_t scale, uint64_t step) {
    const float reciprocal = scale_reciprocal(scale), factor = encode_via_f16_factor<E>(scale);
    const float beyond = float(2 << E::emax);
    int64_t values = 0, wrong = 0;
    for (uint64_t bits = 0; bits < kInfinityBits; bits += step) {
        const float value = bits_float(uint32_t(bits));
        if (!(multiply_rn(value, reciprocal) < beyond)) break;
        for (float signed_value : {value, -value}) {
            values++;
            const uint32_t code = encode_via_f16<E>(round_to_odd_bf16(signed_value), factor);
            wrong += code != quantize_element<E>(signed_value, reciprocal);
        }
    }
    INFO("scale " << scale << ", format " << format_of<E>);
    CHECK(wrong == 0);
    CHECK(values > int64_t(scale * 0x00800000ull / step));  // at least a binade for each step of the scale, twice
}

template <class E>
void check_every_scale(uint64_t step) {
    for (uint32_t scale = 0; scale < 256; scale++)
        if (can_encode_via_f16(scale)) check_codes<E>(scale, step);
}

// Products need no rounding to BF16.
template <class E>
void check_decoding() {
    int compared = 0, wrong = 0;
    for (uint32_t scale = 0; scale < 256; scale++) {
        if (!can_decode_via_f16(scale)) continue;
        for (uint32_t code = 0; code < 1u << E::bits; code++) {
            const uint32_t magnitude = code & (ElementBits<E>::sign - 1);
            if (magnitude >= E::first_special) continue;
            const uint16_t half = uint16_t((code ^ magnitude) << (16 - E::bits) | magnitude << (10 - E::mantissa_bits));
            const float product = multiply_rn(to_float(F16{half}), decode_via_f16_factor<E>(scale));
            const float value = dequantize_element<E>(code, scale_value(scale));
            compared++;
            wrong += float_bits(product) != float_bits(value) || float_bits(product) >> 16 != from_float<Bf16>(value).bits;
        }
    }
    CHECK(wrong == 0);
    CHECK(compared == 193 * 2 * int(E::first_special));
}

}  // namespace

TEST_CASE("MX via F16: the codes and scales of the exact way, by a stride") {
    for_each_encoded_element([](auto e) {  // odd strides, so that every last place is met
        check_all_scales<decltype(e), Nonfinite::Propagate>(4099);
        check_all_scales<decltype(e), Nonfinite::Saturate>(4099);
        check_every_scale<decltype(e)>(40961);
    });
}

TEST_CASE("MX via F16: codes moved up and scaled are the values") {
    for_each_element([](auto e) { check_decoding<decltype(e)>(); });
}

TEST_CASE("MX via F16: the codes and scales of the exact way, every fp32 value", "[.long]") {
    for_each_encoded_element([](auto e) {
        check_all_scales<decltype(e), Nonfinite::Propagate>(1);
        check_all_scales<decltype(e), Nonfinite::Saturate>(1);
        for (uint32_t scale : {24u, 127u, 230u}) check_codes<decltype(e)>(scale, 1);
    });
}
