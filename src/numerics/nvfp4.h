// NVFP4: E2M1 codes, an E4M3 scale per block, one fp32 global maximum g (of a tensor, an expert or a group).
//
//     g, T ---------> Nvfp4Global -----+--------------------+
//     block's a ----------------> nvfp4_scale ----> nvfp4_multiplier ----> nvfp4_code (each element)
//
// Maxima ignore NaN (amax_bits<Nonfinite::Saturate>), so that neither a nor g is NaN. T, the largest block scale to be
// used, is 448 or 256.
#pragma once
#include "numerics/bits.h"
#include "numerics/convert.h"
#include "numerics/element.h"

namespace mxq {

// What the global maximum decides, once for all of its blocks.
struct Nvfp4Global {
    float amax;             // g
    float largest;          // T * 6
    float encode;           // S_enc
    float encode_sixth;     // fl(S_enc * fl(1/6))
    float encode_inverse;   // fl(1/S_enc)
    float decode;           // S_dec
};

MXQ_HD bool has_nvfp4_range(float amax) { return amax != 0 && amax != bits_float(kInfinityBits); }

// S_dec, what the values of codes times block scales are multiplied by.
MXQ_HD float nvfp4_decode_scale(float amax, int scale_max) {
    const float largest = float(scale_max * 6);
    return has_nvfp4_range(amax) ? multiply_rn(amax, reciprocal_rn(largest)) : 1.0f;
}

MXQ_HD Nvfp4Global nvfp4_global(float amax, int scale_max) {
    const float largest = float(scale_max * 6);
    const float encode = has_nvfp4_range(amax) ? at_most_float_max(divide_rn(largest, amax)) : 1.0f;
    return {amax,   largest, encode, multiply_rn(encode, 1.0f / 6.0f), reciprocal_rn(encode),
            nvfp4_decode_scale(amax, scale_max)};
}

// A block scale's byte: to nearest even, Inf to 448. No scale is NaN or negative.
MXQ_HD uint32_t encode_nvfp4_scale(float value) {
#if defined(__CUDA_ARCH__)
    return encode_pair<E4M3>(value, 0.0f);
#else
    return encode<E4M3>(value);
#endif
}

MXQ_HD uint32_t nvfp4_scale(float block_amax, const Nvfp4Global& global) {
    return encode_nvfp4_scale(multiply_rn(block_amax, global.encode_sixth));
}

// What elements are multiplied by. A block of scale 0 gets 0: all of its elements are finite or NaN.
MXQ_HD float nvfp4_multiplier(uint32_t scale, const Nvfp4Global& global) {
    const float multiplier = at_most_float_max(reciprocal_rn(multiply_rn(decode<E4M3>(scale), global.encode_inverse)));
    return scale == 0 ? 0.0f : multiplier;
}

// nvfp4_scale with its value, from one rounding: nothing is decoded.
struct Nvfp4BlockScale {
    uint32_t byte;
    float value;
};

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

// nvfp4_multiplier of its value.
MXQ_HD float nvfp4_multiplier_of_value(float value, const Nvfp4Global& global) {
    const float multiplier = at_most_float_max(reciprocal_rn(multiply_rn(value, global.encode_inverse)));
    return value == 0 ? 0.0f : multiplier;
}

// The bits that codes of a block may have, in every byte and for stored codes alike: a NaN of a block of scale 0 is +0.
// Kernels that build words of encode<E2M1> or encode_pair<E2M1> mask them.
MXQ_HD uint32_t nvfp4_code_mask(uint32_t scale) { return scale == 0 ? 0x88888888u : ~0u; }

// The code of one element, masked already.
MXQ_HD uint32_t nvfp4_code(float value, float multiplier) {
    const uint32_t code = encode<E2M1>(multiply_rn(value, multiplier));
    return multiplier == 0 ? code & ElementBits<E2M1>::sign : code;
}

// Codes from words of 16 bits: scaled values cut to BF16, the last bit set where anything was cut off (to_odd_bf16), which
// lie on the same side of every tie as the values. From 1 on a code is the word rounded to two bits, less a constant; the two
// steps below are counted.
struct OddE2m1 {
    static constexpr int shift = 6;          // from BF16's last place to the code's
    static constexpr int16_t one = 0x3F80;   // of code 2
    static constexpr int16_t below_half = (1 << (shift - 1)) - 1 - one;  // plus the last place kept: ties to even
    static constexpr int16_t first = 0x3E81, second = 0x3F40;            // least words of codes 1 and 2: past 1/4, from 3/4 on
    static constexpr int16_t most_above = E2M1::nan_code - 2;            // above code 2

    // Of a word that is no NaN.
    MXQ_HD static uint32_t code(uint32_t word) {
        const int32_t magnitude = word & 0x7FFF, normal = magnitude < one ? one : magnitude;
        const int32_t above = (normal + below_half + ((normal >> shift) & 1)) >> shift;
        const int32_t limited = above < most_above ? above : most_above;
        return uint32_t(limited + (magnitude >= first) + (magnitude >= second)) | (word >> 12 & ElementBits<E2M1>::sign);
    }
};

// The fp32 value of a code, given as decode<E2M1>'s or decode_pair's, under decode<E4M3> of its block's scale.
MXQ_HD float nvfp4_product(float element, float block_scale_value, float global_decode) {
    return multiply_rn(multiply_rn(element, block_scale_value), global_decode);
}

// Four over six: each block takes the one of two scales that leaves the smaller error, one that sends its maximum to 4 or
// one that sends it to 6.
struct Nvfp4Candidates {
    uint32_t four, six;  // E4M3 bytes
};

MXQ_HD Nvfp4Candidates nvfp4_candidates_of_sixth(float sixth, const Nvfp4Global& global) {
    const float base = multiply_rn(sixth, global.encode);
    return {encode_nvfp4_scale(multiply_rn(base, 1.5f)), encode_nvfp4_scale(base)};
}

MXQ_HD Nvfp4Candidates nvfp4_candidates(float block_amax, const Nvfp4Global& global) {
    return nvfp4_candidates_of_sixth(divide_rn(block_amax, 6.0f), global);
}

// Error of one element, squared or absolute, under decode<E4M3> of a candidate. Those of a row of a block are added in
// order, from +0.
template <bool squared>
MXQ_HD float nvfp4_error(float value, uint32_t code, float block_scale_value, const Nvfp4Global& global) {
    const float decoded = divide_rn(nvfp4_product(decode<E2M1>(code), block_scale_value, global.amax), global.largest);
    const float difference = add_rn(decoded, -value);
    return squared ? multiply_rn(difference, difference) : bits_float(float_bits(difference) & kMagnitudeMask);
}

// The errors of the 16 rows of a 16x16 block.
MXQ_HD float add_errors_16(const float (&rows)[16]) {
    float sums[8];
    for (int r = 0; r < 8; ++r) sums[r] = add_rn(rows[r], rows[r + 8]);
    for (int r = 0; r < 4; ++r) sums[r] = add_rn(sums[r], sums[r + 4]);
    for (int r = 0; r < 2; ++r) sums[r] = add_rn(sums[r], sums[r + 2]);
    return add_rn(sums[0], sums[1]);
}

// Six where an error is NaN.
MXQ_HD uint32_t nvfp4_choice(const Nvfp4Candidates& candidates, float error_of_four, float error_of_six) {
    return error_of_four < error_of_six ? candidates.four : candidates.six;
}

}  // namespace mxq
