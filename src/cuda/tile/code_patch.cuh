// A patch of quantized values, kept as codes of a byte each and decoded wherever values are needed: 32 registers for 128 of
// them leave room for many warps.
//
// A thread takes 16 lines of the source by 8 positions, where a tile kernel has rows and columns (tile/patch.cuh): the lines
// of a columnwise source are columns, so that all here speaks of what lies along the source's lines and what lies across.
//
//     codes --decode--> elements --scales--> values --maxima--> tables of both parts          (tile/scales.cuh from here)
//                                              \----factors---> codes along, codes across     (tile/codes.cuh from here)
//
// Codes of four bits become E4M3's, which has all of their values.
#pragma once
#include "cuda/memory/decode.cuh"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/source_scales.cuh"
#include "numerics/rebase.h"

namespace mxq::cuda {

using CodePatch = Patch<Bf16>;
constexpr int kPatchLines = CodePatch::rows, kPatchPositions = CodePatch::columns;

struct PatchCodes {
    uint32_t words[kPatchLines][kPatchPositions / 4];
};

// Stored codes as a kernel sees them: the type of their bytes in registers or shared memory, the bits of a code in memory, and
// whether a scale stands above the blocks'.
template <class E>
struct SourceCodes {
    using Bytes = E;
    static constexpr int bits = 8;
    static constexpr bool has_global = false;
};

template <>
struct SourceCodes<E2M1> {
    using Bytes = E4M3;
    static constexpr int bits = 4;
    static constexpr bool has_global = true;
};

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Loads a thread's share of a line, which is `bits` bytes: there in full or not at all.
template <int bits>
__device__ __forceinline__ void load_share(const uint8_t* from, bool exists, uint32_t (&words)[kPatchPositions / 4]) {
    if constexpr (bits == 8) {
        const uint2 v = exists ? *reinterpret_cast<const uint2*>(from) : uint2{};
        words[0] = v.x, words[1] = v.y;
    } else {
        words[0] = exists ? *reinterpret_cast<const uint32_t*>(from) : 0;
    }
}

template <int bits>
__device__ __forceinline__ void load_patch_codes(const CodeTile& from, const CodePatch& patch, PatchCodes& codes) {
    const uint8_t* at = from.codes + patch.row * from.line_bytes + patch.column * bits / 8;
    if (patch.existing == kPatchLines) {
#pragma unroll
        for (int i = 0; i < kPatchLines; i++, at += from.line_bytes) load_share<bits>(at, true, codes.words[i]);
    } else {
#pragma unroll
        for (int i = 0; i < kPatchLines; i++, at += from.line_bytes) load_share<bits>(at, patch.exists(i), codes.words[i]);
    }
}

template <class S>
__device__ __forceinline__ void unpack_patch(PatchCodes& codes) {
    if constexpr (S::bits == 4)
#pragma unroll
        for (int i = 0; i < kPatchLines; i++) {
            const uint32_t packed = codes.words[i][0];
            codes.words[i][0] = e2m1_to_e4m3(packed);
            codes.words[i][1] = e2m1_to_e4m3(packed >> 16);
        }
}

// Keeps the codes, but nothing that was computed from them: else the compiler keeps all values from one use to the next.
__device__ __forceinline__ void forget_values(PatchCodes& codes) {
#pragma unroll
    for (int i = 0; i < kPatchLines; i++)
#pragma unroll
        for (uint32_t& word : codes.words[i]) asm volatile("" : "+r"(word));
}

// ---- Values ----------------------------------------------------------------------------------------------------------

// A thread's values: its codes, and the scale of each of its lines.
template <class S>
struct PatchValues {
    const PatchCodes& codes;
    float scales[kPatchLines];
    float global;

    __device__ __forceinline__ PatchValues(const PatchCodes& of, const CodePatch& patch, int shift,
                                           const SourceScales& source)
        : codes(of), global(patch.existing == 0 ? 0.0f : source.global) {
        const int block = patch.existing_columns == 0 ? SourceScales::nothing : patch.column >> shift;
        const auto* from = reinterpret_cast<const float4*>(&source.table[block][patch.row]);
#pragma unroll
        for (int i = 0; i < kPatchLines; i += 4) {
            const float4 four = from[i / 4];
            scales[i] = four.x, scales[i + 1] = four.y, scales[i + 2] = four.z, scales[i + 3] = four.w;
        }
    }
    // Returns two neighbours of line i.
    __device__ __forceinline__ float2 pair(int i, int pair) const {
        const uint32_t two = codes.words[i][pair / 2] >> (pair % 2 * 16) & 0xFFFF;
        float2 values = dequantize_pair<typename S::Bytes>(two, scales[i], scales[i]);
        if constexpr (S::has_global) values.x = multiply_rn(values.x, global), values.y = multiply_rn(values.y, global);
        return values;
    }
};

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Puts the maxima of every position over 16 lines or, by pairs of threads, over 32 into the table of the part across the lines.
template <class E, class S, Nonfinite policy>
__device__ __forceinline__ void put_maxima_across(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                                  PartScales<E>& scales) {
    uint32_t maxima[kPatchPositions] = {};
#pragma unroll
    for (int i = 0; i < kPatchLines; i++)
#pragma unroll
        for (int p = 0; p < kPatchPositions / 2; p++) {
            const float2 v = values.pair(i, p);
            maxima[2 * p] = larger_magnitudes<float, policy>(maxima[2 * p], float_bits(v.x));
            maxima[2 * p + 1] = larger_magnitudes<float, policy>(maxima[2 * p + 1], float_bits(v.y));
        }
    put_column_maxima<E>(maxima, patch, shift, scales);
}

// Returns the larger of `largest` and of the magnitudes of line i, as bits.
template <class S, Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_line(const PatchValues<S>& values, int i, uint32_t largest) {
#pragma unroll
    for (int p = 0; p < kPatchPositions / 2; p++) {
        const float2 v = values.pair(i, p);
        largest = larger_magnitudes<float, policy>(largest, float_bits(v.x));
        largest = larger_magnitudes<float, policy>(largest, float_bits(v.y));
    }
    return largest;
}

// Puts the maxima of every line over blocks of 16 or 32 positions into the table of the part along the lines.
template <class E, class S, Nonfinite policy>
__device__ __forceinline__ void put_maxima_along(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                                 PartScales<E>& scales) {
    uint32_t maxima[kPatchLines];
#pragma unroll
    for (int i = 0; i < kPatchLines; i++) maxima[i] = largest_of_line<S, policy>(values, i, 0);
    put_row_maxima<E>(maxima, patch, shift, scales);
}

template <class S, Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_patch(const PatchValues<S>& values) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kPatchLines; i++) largest = largest_of_line<S, policy>(values, i, largest);
    return largest;
}

// ---- Codes of the outputs --------------------------------------------------------------------------------------------

// Returns a line's eight codes, a byte each.
template <class E, class S>
__device__ __forceinline__ uint2 requantize_line(const PatchValues<S>& values, int i, float factor) {
    uint32_t words[2] = {};
#pragma unroll
    for (int p = 0; p < kPatchPositions / 2; p++) {
        const float2 v = values.pair(i, p);
        words[p / 2] |= encode_pair<E>(multiply_rn(v.x, factor), multiply_rn(v.y, factor)) << (p % 2 * 16);
    }
    const uint32_t mask = factor_mask<E>(factor);
    return {words[0] & mask, words[1] & mask};
}

// Puts codes along the lines. Eight bits: a line's codes as they are made. Less: of two neighbouring lanes, each gets 16 codes
// of every other line.
template <class E, class S>
__device__ __forceinline__ void put_along(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                          const PartScales<E>& scales, const CodeTile& to, bool direct, TileCodes<E>& codes) {
    constexpr int lanes = E::bits == 8 ? 1 : kPieceCodes / kPatchPositions;
    const uint32_t* factors = &scales.table[patch.column >> shift][patch.row];
    const int unit = lanes * kPatchPositions;
    const RowPointers<E, Bf16> pointers(to, codes, direct, patch.row + int(threadIdx.x) % lanes,
                                        patch.column / unit * (unit * E::bits / 8));
#pragma unroll
    for (int i = 0; i < kPatchLines; i += lanes) {
        uint32_t words[4];
#pragma unroll
        for (int r = 0; r < lanes; r++) {
            const uint2 line = requantize_line<E>(values, i + r, bits_float(factors[i + r]));
            words[2 * r] = line.x, words[2 * r + 1] = line.y;
        }
        if constexpr (lanes == 2) exchange_rows<2>(words);
        if (!pointers.exists(i)) continue;
        if constexpr (lanes == 2) store_piece<E::bits>(pointers.at(i), words);
        else *reinterpret_cast<uint2*>(pointers.at(i)) = {words[0], words[1]};
    }
}

// Returns whether codes of 8 or 4 bits along the lines leave from registers, 8 bytes a lane.
inline bool stores_along_directly(CodeAccess access) { return access.bytes >= 8; }

// Makes the codes of two neighbouring positions over 16 lines.
template <class E, class S>
__device__ __forceinline__ void requantize_positions(const PatchValues<S>& values, int pair, float first_factor,
                                                     float second_factor, uint32_t (&first)[4], uint32_t (&second)[4]) {
#pragma unroll
    for (int w = 0; w < 4; w++) {
        first[w] = second[w] = 0;
#pragma unroll
        for (int i = 4 * w; i < 4 * w + 4; i += 2) {
            const float2 a = values.pair(i, pair), b = values.pair(i + 1, pair);
            first[w] |= encode_pair<E>(multiply_rn(a.x, first_factor), multiply_rn(b.x, first_factor)) << (i % 4 * 8);
            second[w] |= encode_pair<E>(multiply_rn(a.y, second_factor), multiply_rn(b.y, second_factor)) << (i % 4 * 8);
        }
        first[w] &= factor_mask<E>(first_factor);
        second[w] &= factor_mask<E>(second_factor);
    }
}

// Puts codes across the lines: pieces of 16, to the lines in shared memory.
template <class E, class S>
__device__ __forceinline__ void put_across(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                           const PartScales<E>& scales, TileCodes<E>& codes) {
    const uint32_t* factors = &scales.table[patch.row >> shift][patch.column];
    uint32_t* to = &codes.words[codes.template line<kPatchPositions>(patch.column) + patch.row / kPieceCodes * (E::bits / 2)];
#pragma unroll
    for (int p = 0; p < kPatchPositions / 2; p++) {
        uint32_t first[4], second[4];
        requantize_positions<E>(values, p, bits_float(factors[2 * p]), bits_float(factors[2 * p + 1]), first, second);
        store_piece<E::bits>(to + 2 * p * 4 * E::bits, first);
        store_piece<E::bits>(to + (2 * p + 1) * 4 * E::bits, second);
    }
}

}  // namespace mxq::cuda
