// numerics/mx_via_f16.h gives the bits of e8m0.h and element.h wherever it says that it may be used.
#include "../catch.h"
#include "formats.h"
#include "numerics/mx_via_f16.h"
#include "numerics/nvfp4.h"
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

// The code of a word, by the steps that cpu/ takes with vectors of words.
template <class E>
uint32_t encode_via_f16(uint32_t word, float factor) {
    using Rounding = F16ToCode<E>;
    const uint32_t half = from_float<F16>(multiply_rn(to_float(Bf16{uint16_t(word)}), factor)).bits;
    const uint32_t magnitude = half & 0x7FFF;
    const uint32_t code = (magnitude + Rounding::below_half + ((magnitude >> Rounding::shift) & 1)) >> Rounding::shift;
    return (code < Rounding::max_code ? code : Rounding::max_code) | ((half >> (16 - E::bits)) & ElementBits<E>::sign);
}

// Codes under one scale: every word that a block of that scale can hold, both signs. MXFP4's words are shifted, not made F16.
template <class E>
void check_codes(uint32_t scale) {
    const float reciprocal = scale_reciprocal(scale), factor = encode_via_f16_factor<E>(scale);
    const float beyond = float(2 << E::emax);
    int64_t values = 0, wrong = 0;
    for (uint32_t word = 0; word < kInfinityBits >> 16; word++) {
        const float value = to_float(Bf16{uint16_t(word)});
        if (!(multiply_rn(value, reciprocal) < beyond)) break;
        for (uint32_t sign : {0u, 0x8000u}) {
            values++;
            const uint32_t expected = quantize_element<E>(sign ? -value : value, reciprocal);
            wrong += encode_via_f16<E>(word | sign, factor) != expected;
            if constexpr (__is_same(E, E2M1)) {
                const int32_t shifted = int32_t(word) + (127 - int32_t(scale)) * 128;
                wrong += E2m1FromOddBf16::code(uint32_t(shifted < 0 ? 0 : shifted) | sign) != expected;
            }
        }
    }
    INFO("scale " << scale << ", format " << format_of<E>);
    CHECK(wrong == 0);
    CHECK(values > int64_t(scale) * 128);  // at least a binade for each step of the scale, twice
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

TEST_CASE("MX via F16: the codes of the exact way, every BF16 under every scale") {
    int scales = 0;
    for_each_encoded_element([&](auto e) {
        for (uint32_t scale = 0; scale < 256; scale++)
            if (can_encode_via_f16(scale)) check_codes<decltype(e)>(scale), scales++;
    });
    CHECK(scales == 5 * 207);
}

TEST_CASE("MX via F16: codes moved up and scaled are the values") {
    for_each_element([](auto e) { check_decoding<decltype(e)>(); });
}
