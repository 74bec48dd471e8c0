// NVFP4: E2M1 codes, an E4M3 scale S per block, and one fp32 global maximum g for a tensor, an expert or a group.
//
//     g, T ------------> Nvfp4Global -----+--------------------+
//     block maximum a -------------> nvfp4_scale ----> nvfp4_multiplier ----> nvfp4_code (each element)
//
// Maxima ignore NaN (amax_bits<Nonfinite::Saturate>), so that neither a nor g is NaN. T, the largest block scale that may be
// used, is 448 or 256.
#pragma once
#include "numerics/bits.h"
#include "numerics/convert.h"
#include "numerics/element.h"

namespace mxq {

// The numbers that follow from the global maximum, computed once for all of its blocks.
struct Nvfp4Global {
    float amax;             // g
    float largest;          // T * 6
    float encode;           // S_enc
    float encode_sixth;     // fl(S_enc * fl(1/6))
    float encode_inverse;   // fl(1/S_enc)
    float decode;           // S_dec
};

// Returns whether the global scales are made from the global maximum; they are 1 otherwise.
MXQ_HD bool has_nvfp4_range(float amax) { return amax != 0 && amax != bits_float(kInfinityBits); }

// Returns S_dec, by which the product of a code's value and its block scale is multiplied.
MXQ_HD float nvfp4_decode_scale(float amax, int scale_max) {
    const float largest = float(scale_max * 6);
    return has_nvfp4_range(amax) ? multiply_rn(amax, reciprocal_rn(largest)) : 1.0f;
}

// Returns the numbers that follow from the global maximum and T.
MXQ_HD Nvfp4Global nvfp4_global(float amax, int scale_max) {
    const float largest = float(scale_max * 6);
    const float encode = has_nvfp4_range(amax) ? at_most_float_max(divide_rn(largest, amax)) : 1.0f;
    return {amax,   largest, encode, multiply_rn(encode, 1.0f / 6.0f), reciprocal_rn(encode),
            nvfp4_decode_scale(amax, scale_max)};
}

// Rounds a block scale to its byte: to nearest even, Inf to 448. `value` is neither NaN nor negative.
MXQ_HD uint32_t encode_nvfp4_scale(float value) {
#if defined(__CUDA_ARCH__)
    return encode_pair<E4M3>(value, 0.0f);
#else
    return encode<E4M3>(value);
#endif
}

// Returns the scale byte of a block.
MXQ_HD uint32_t nvfp4_scale(float block_amax, const Nvfp4Global& global) {
    return encode_nvfp4_scale(multiply_rn(block_amax, global.encode_sixth));
}

// Returns what the elements of a block are multiplied by. It is 0 under scale 0, where no element is Inf.
MXQ_HD float nvfp4_multiplier(uint32_t scale, const Nvfp4Global& global) {
    const float multiplier = at_most_float_max(reciprocal_rn(multiply_rn(decode<E4M3>(scale), global.encode_inverse)));
    return scale == 0 ? 0.0f : multiplier;
}

// A block scale's byte and the byte's value.
struct Nvfp4BlockScale {
    uint32_t byte;
    float value;
};

// Returns the byte of nvfp4_scale and its value from the same rounding, without decoding the byte.
MXQ_HD Nvfp4BlockScale nvfp4_block_scale(float block_amax, const Nvfp4Global& global) {
    constexpr uint32_t min_normal = uint32_t(127 - E4M3::bias + 1) << 23;
    const float unrounded = multiply_rn(block_amax, global.encode_sixth);
    const float limited = unrounded < E4M3::max ? unrounded : E4M3::max;
    const uint32_t field = float_bits(limited) & kInfinityBits, exponent = field > min_normal ? field : min_normal;
    const float magic = bits_float(exponent + (uint32_t(ElementBits<E4M3>::shift) << 23));  // as in round_magnitude
    const float sum = add_rn(limited, magic);
    const uint32_t byte = float_bits(sum) - float_bits(magic) + ((exponent - min_normal) >> ElementBits<E4M3>::shift);
    return {byte, add_rn(sum, -magic)};
}

// Returns nvfp4_multiplier of the scale byte that has this value.
MXQ_HD float nvfp4_multiplier_of_value(float value, const Nvfp4Global& global) {
    const float multiplier = at_most_float_max(reciprocal_rn(multiply_rn(value, global.encode_inverse)));
    return value == 0 ? 0.0f : multiplier;
}

// Returns the bits that codes of a block may have, the same for each byte and for stored codes: under scale 0 a NaN becomes +0.
// Whoever calls encode<E2M1> or encode_pair<E2M1> applies this mask to the codes.
MXQ_HD uint32_t nvfp4_code_mask(uint32_t scale) { return scale == 0 ? 0x88888888u : ~0u; }

// Returns the code of an element, masked already.
MXQ_HD uint32_t nvfp4_code(float value, float multiplier) {
    const uint32_t code = encode<E2M1>(multiply_rn(value, multiplier));
    return multiplier == 0 ? code & ElementBits<E2M1>::sign : code;
}

// E2M1 codes of BF16 words. Other values are rounded to odd first: what is cut off is ORed into the last bit, so that a
// word is on the same side of every tie as its value. From 1 on, the code is the word rounded to two significant bits, less
// a constant. Below 1 it counts which of `first` and `second` the magnitude reaches.
struct E2m1FromOddBf16 {
    static constexpr int shift = 6;          // from BF16's last bit to the code's
    static constexpr int16_t one = 0x3F80;   // has code 2
    static constexpr int16_t below_half = (1 << (shift - 1)) - 1 - one;  // the last bit that stays is added too: ties to even
    static constexpr int16_t first = 0x3E81, second = 0x3F40;            // least words of codes 1 and 2: past 1/4, from 3/4 on
    static constexpr int16_t most_above = E2M1::nan_code - 2;            // how far codes reach above code 2

    // Returns the code of a word that is no NaN.
    MXQ_HD static uint32_t code(uint32_t word) {
        const int32_t magnitude = word & 0x7FFF, normal = magnitude < one ? one : magnitude;
        const int32_t above = (normal + below_half + ((normal >> shift) & 1)) >> shift;
        const int32_t limited = above < most_above ? above : most_above;
        return uint32_t(limited + (magnitude >= first) + (magnitude >= second)) | (word >> 12 & ElementBits<E2M1>::sign);
    }
};

// Returns the fp32 value of a code. `element` is the code's own value, `block_scale_value` that of its block's scale.
MXQ_HD float nvfp4_product(float element, float block_scale_value, float global_decode) {
    return multiply_rn(multiply_rn(element, block_scale_value), global_decode);
}

// The two scales between which four over six chooses: one sends the block's maximum to 4, the other to 6. The one that
// leaves the smaller error is taken.
struct Nvfp4Candidates {
    uint32_t four, six;  // E4M3 bytes
};

// Returns the candidates of a block of which `sixth` is a sixth of the maximum.
MXQ_HD Nvfp4Candidates nvfp4_candidates_of_sixth(float sixth, const Nvfp4Global& global) {
    const float base = multiply_rn(sixth, global.encode);
    return {encode_nvfp4_scale(multiply_rn(base, 1.5f)), encode_nvfp4_scale(base)};
}

// Returns the candidates of a block.
MXQ_HD Nvfp4Candidates nvfp4_candidates(float block_amax, const Nvfp4Global& global) {
    return nvfp4_candidates_of_sixth(divide_rn(block_amax, 6.0f), global);
}

// Returns the error of one element, squared or absolute, under a candidate's value. Errors of the elements of a row of a
// block are added in order, from +0.
template <bool squared>
MXQ_HD float nvfp4_error(float value, uint32_t code, float block_scale_value, const Nvfp4Global& global) {
    const float decoded = divide_rn(nvfp4_product(decode<E2M1>(code), block_scale_value, global.amax), global.largest);
    const float difference = add_rn(decoded, -value);
    return squared ? multiply_rn(difference, difference) : magnitude_of(difference);
}

// Returns the error of a 16x16 block, of whose rows the errors are given.
MXQ_HD float add_errors_16(const float (&rows)[16]) {
    float sums[8];
    for (int r = 0; r < 8; ++r) sums[r] = add_rn(rows[r], rows[r + 8]);
    for (int r = 0; r < 4; ++r) sums[r] = add_rn(sums[r], sums[r + 4]);
    for (int r = 0; r < 2; ++r) sums[r] = add_rn(sums[r], sums[r + 2]);
    return add_rn(sums[0], sums[1]);
}

// Returns the candidate of the smaller error, or six where an error is NaN.
MXQ_HD uint32_t nvfp4_choice(const Nvfp4Candidates& candidates, float error_of_four, float error_of_six) {
    return error_of_four < error_of_six ? candidates.four : candidates.six;
}

}  // namespace mxq
