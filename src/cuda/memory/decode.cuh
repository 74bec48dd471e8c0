// Reads quantized parts: packed codes as words, scales of every type as fp32, and their products.
//
//     K-major row of codes --load_packed--> packed words --unpack--> a byte per code --decode_scaled_pair--> fp32
//     scales --load_scale--> fp32, one for a block
//     amax or decode scale --global_scale (core/group_view.h)--> fp32, one above them
//
// The element is a compile-time type. The scale type and the layout are branches that all threads take alike.
#pragma once
#include "core/group_view.h"
#include "cuda/memory/codes.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/types.cuh"
#include "numerics/packing.h"

namespace mxq::cuda {

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Holds 4 or 8 codes as stored, the first in the lowest bits. Bits past the last code are undefined.
template <int bits, int count>
struct Packed {
    static constexpr int bytes = bits * count / 8;
    uint32_t words[(bytes + 3) / 4];
};

// Returns whether every K-major row of a part can be read 16 codes (bits / 2 words) at a time.
inline bool is_word_wise(const QuantizedPart& part) {
    const int64_t unit = part.bits == 8 ? 16 : part.bits == 4 ? 8 : 4;  // bytes
    return is_aligned(part.codes, unit) && part.line_bytes % unit == 0 && part.length % 16 == 0;
}

// Loads the words that hold the codes at `column`, a multiple of `count`, of a K-major row. Six-bit codes may start inside
// of a word: align_packed shifts them after the loads, so that several loads are in flight. 16 six-bit codes are three
// words, of which a lane reads the two that hold its own.
template <int bits, int count>
__device__ __forceinline__ Packed<bits, 8> load_packed_words(const uint8_t* line, int64_t column) {
    Packed<bits, 8> packed{};
    const uint8_t* const from = line + column * bits / 8;
    if constexpr (bits == 6) {
        const uint32_t byte = uint32_t(column) / 4 * 3 % 4;  // of the first word
        const auto* words = reinterpret_cast<const uint32_t*>(from - byte);
        packed.words[0] = words[0];
        packed.words[1] = words[count == 8 || byte >= 2];  // four codes may fit in one word, which may be the last
    } else if constexpr (bits * count == 64) {
        const uint2 v = *reinterpret_cast<const uint2*>(from);
        packed.words[0] = v.x, packed.words[1] = v.y;
    } else if constexpr (bits * count == 32) {
        packed.words[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
        packed.words[0] = *reinterpret_cast<const uint16_t*>(from);
    }
    return packed;
}

// Returns the bit of these words at which the codes at `column` start.
template <int bits>
__device__ __forceinline__ uint32_t first_packed_bit(int64_t column) {
    return bits == 6 ? uint32_t(column) / 4 * 3 % 4 * 8 : 0;
}

// Returns the codes that start at a bit of the words.
template <int bits, int count>
__device__ __forceinline__ Packed<bits, count> align_packed(const Packed<bits, 8>& words, uint32_t bit) {
    Packed<bits, count> packed;
    packed.words[0] = bits == 6 ? __funnelshift_r(words.words[0], words.words[1], bit) : words.words[0];
    if constexpr (packed.bytes > 4) packed.words[1] = bits == 6 ? words.words[1] >> bit : words.words[1];
    return packed;
}

// Loads the codes at `column`, a multiple of `count`, of a K-major row.
template <int bits, int count>
__device__ __forceinline__ Packed<bits, count> load_packed_wide(const uint8_t* line, int64_t column) {
    return align_packed<bits, count>(load_packed_words<bits, count>(line, column), first_packed_bit<bits>(column));
}

// Loads the first `valid` of the codes at `column`, byte by byte. Missing codes are zero.
template <int bits, int count>
__device__ __forceinline__ Packed<bits, count> load_packed_narrow(const uint8_t* line, int64_t column, int valid) {
    Packed<bits, count> packed{};
    const uint8_t* from = line + column * bits / 8;
    const int bytes = (valid * bits + 7) / 8;
#pragma unroll
    for (int i = 0; i < packed.bytes; i++)
        if (i < bytes) packed.words[i / 4] |= uint32_t(from[i]) << (i % 4 * 8);
    return packed;
}

// Returns a byte for each code, four to a word.
template <int bits, int count>
__device__ __forceinline__ Codes<count> unpack(const Packed<bits, count>& packed) {
    if constexpr (count == 4) {
        return {{unpack_4<bits>(packed.words[0])}};
    } else if constexpr (bits == 8) {
        return {{packed.words[0], packed.words[1]}};
    } else if constexpr (bits == 6) {
        return {{unpack_4<6>(packed.words[0]), unpack_4<6>(__funnelshift_r(packed.words[0], packed.words[1], 24))}};
    } else {
        Codes<count> codes;
        unpack_nibbles(packed.words[0], codes.words[0], codes.words[1]);
        return codes;
    }
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns the value of a byte that is a block's scale.
__device__ __forceinline__ float scale_of_byte(ScaleType type, uint32_t byte) {
    return type == ScaleType::E8M0 ? scale_value(byte) : decode_pair<E4M3>(byte).x;
}

// Returns scale number `at` of codes of E.
template <class E>
__device__ __forceinline__ float load_scale(const uint8_t* scales, ScaleType type, int64_t at) {
    if (E::bits == 8 && type == ScaleType::F32) return reinterpret_cast<const float*>(scales)[at];
    return scale_of_byte(E::bits == 4 ? type : ScaleType::E8M0, scales[at]);
}

// ---- Values ----------------------------------------------------------------------------------------------------------

// Returns the values of two codes times their scales, the first code in the low byte. The rounding to the output type gives
// NaN the library's bits. Only 4-bit codes have a scale above their block scales.
template <class E>
__device__ __forceinline__ float2 decode_scaled_pair(uint32_t codes, float first_scale, float second_scale, float global) {
    const float2 pair = dequantize_pair<E>(codes, first_scale, second_scale);
    if constexpr (E::bits != 4) return pair;
    else return make_float2(multiply_rn(pair.x, global), multiply_rn(pair.y, global));
}

}  // namespace mxq::cuda
