// A patch of quantized values, kept as codes of a byte each and decoded at each use: 32 registers hold 128 values, which
// leaves room for many warps.
//
// A thread has 16 K-major rows of the source by 8 positions in them, where other kernels have rows and columns
// (tile/patch.cuh). The K-major rows of a columnwise source are columns.
//
//     codes --decode--> elements --scales--> values --maxima--> tables of both parts              (tile/scales.cuh)
//                                               \----factors--> K-major codes, transposed codes   (tile/codes.cuh)
//
// 4-bit codes become E4M3 codes, which have all of their values.
#pragma once
#include "core/error.h"
#include "cuda/memory/decode.cuh"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/source_scales.cuh"
#include "dispatch/reason.h"
#include "numerics/f16_pairs.h"
#include "numerics/rebase.h"

namespace mxq::cuda {

using CodePatch = Patch<Bf16>;
constexpr int kPatchLines = CodePatch::rows, kPatchPositions = CodePatch::columns;

struct PatchCodes {
    uint32_t words[kPatchLines][kPatchPositions / 4];
};

// Stored codes: the type of their bytes in registers, the bits of a code in memory, and whether there is a global scale.
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

// Loads the thread's codes of a K-major row, `bits` bytes: all or none.
template <int bits>
__device__ __forceinline__ void load_line_codes(const uint8_t* from, bool exists, uint32_t (&words)[kPatchPositions / 4]) {
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
#pragma unroll
    for (int i = 0; i < kPatchLines; i++, at += from.line_bytes) load_line_codes<bits>(at, patch.exists(i), codes.words[i]);
}

template <class S>
__device__ __forceinline__ void unpack_patch(PatchCodes& codes) {
    if constexpr (S::bits == 4)
#pragma unroll
        for (uint32_t(&words)[2] : codes.words) {
            words[1] = e2m1_to_e4m3(words[0] >> 16);
            words[0] = e2m1_to_e4m3(words[0]);
        }
}

// Keeps the codes, but nothing computed from them. Otherwise the compiler keeps all values from one use to the next.
__device__ __forceinline__ void forget_values(PatchCodes& codes) {
#pragma unroll
    for (uint32_t(&words)[2] : codes.words)
#pragma unroll
        for (uint32_t& word : words) asm volatile("" : "+r"(word));
}

// Loads the codes of a tile to registers and its scales to shared memory. All threads of the block call it.
template <class S>
__device__ __forceinline__ CodePatch load_code_patch(const QuantizeProblem& p, const TileCoord& coord, const Group& group,
                                                     bool exists, SourceScales& source, PatchCodes& codes) {
    if (!exists) return CodePatch(0, 0);
    const QuantizedPart& part = p.source.quantized;
    const GroupStart start = group_start(p.grouped, group, kSourcePart);
    const CodeTile from(part, coord, start, p.source.cols);
    const int rows = int(min(coord.rows - coord.row, int64_t(kTile))), length = part.columnwise ? rows : from.length;
    const CodePatch patch(part.columnwise ? from.lines : rows, length);
    load_patch_codes<S::bits>(from, patch, codes);
    ScaleTile scales(part, coord, start, p.source.cols, p.grouped.groups.set);
    if (!part.columnwise) scales.lines = min(scales.lines, rows);  // swizzled square tiles have NaN for a group's padding, too
    load_source_scales(part, scales, length, source.table);
    source.table[SourceScales::nothing][threadIdx.x] = 0;
    if (threadIdx.x == 0) source.global = global_scale(part, coord.scope);
    unpack_patch<S>(codes);
    __syncthreads();
    return patch;
}

// ---- Values ----------------------------------------------------------------------------------------------------------

// A thread's values: its codes, and the scale of each of its K-major rows.
template <class S>
struct PatchValues {
    const PatchCodes& codes;
    float scales[kPatchLines];
    float global;

    __device__ __forceinline__ PatchValues(const PatchCodes& of, const CodePatch& patch, int shift, const SourceScales& source)
        : codes(of), global(patch.existing == 0 ? 0.0f : source.global) {
        const int block = patch.existing_columns == 0 ? SourceScales::nothing : patch.column >> shift;
        const auto* from = reinterpret_cast<const float4*>(&source.table[block][patch.row]);
#pragma unroll
        for (int i = 0; i < kPatchLines; i += 4) {
            const float4 four = from[i / 4];
            scales[i] = four.x, scales[i + 1] = four.y, scales[i + 2] = four.z, scales[i + 3] = four.w;
        }
    }
    // Returns the value of an element of row i.
    __device__ __forceinline__ float value(float element, int i) const {
        const float scaled = multiply_rn(element, scales[i]);
        return S::has_global ? multiply_rn(scaled, global) : scaled;
    }
    // Calls take(p, value) for four positions from 4 * word on.
    template <class Take>
    __device__ __forceinline__ void each(int i, int word, const Take& take) const {
        uint32_t pairs[2];
        decode_word_to_f16<typename S::Bytes>(codes.words[i][word], pairs[0], pairs[1]);
#pragma unroll
        for (int p = 0; p < 4; p++) take(4 * word + p, value(to_float(F16{uint16_t(pairs[p / 2] >> (p % 2 * 16))}), i));
    }
};

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Returns the larger of `largest` and of the magnitudes of row i, value by value.
template <class S, Nonfinite policy>
__device__ __forceinline__ uint32_t larger_of_values(const PatchValues<S>& values, int i, uint32_t largest) {
#pragma unroll
    for (int word = 0; word < kPatchPositions / 4; word++)
        values.each(i, word, [&](int, float value) { largest = larger_magnitudes<float, policy>(largest, float_bits(value)); });
    return largest;
}

// Returns the larger of `largest` and of the magnitudes of row i, as bits. A row has one scale, so that its largest element
// has the largest value. Only a scale of Inf makes NaN of zeros, which PROPAGATE must see.
template <class S, Nonfinite policy>
__device__ __forceinline__ uint32_t larger_of_line(const PatchValues<S>& values, int i, uint32_t largest) {
    uint32_t packed = 0;
#pragma unroll
    for (const uint32_t word : values.codes.words[i]) {
        uint32_t low, high;
        decode_word_to_f16<typename S::Bytes>(word, low, high);
        packed = larger_magnitudes<F16, policy>(larger_magnitudes<F16, policy>(packed, low), high);
    }
    const float value = values.value(bits_float(largest_bits<F16>(packed)), i);
    if (policy == Nonfinite::Propagate && isinf(value)) return larger_of_values<S, policy>(values, i, largest);
    return larger_magnitudes<float, policy>(largest, float_bits(value));
}

// Stores the maxima of every position over 16 or, by pairs of threads, 32 rows in the table of the transposed part.
template <class E, class S, Nonfinite policy>
__device__ __forceinline__ void put_position_maxima(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                                    PartScales<E>& scales) {
    uint32_t maxima[kPatchPositions] = {};
#pragma unroll
    for (int i = 0; i < kPatchLines; i++)
#pragma unroll
        for (int word = 0; word < kPatchPositions / 4; word++)
            values.each(i, word, [&](int p, float value) {
                maxima[p] = larger_magnitudes<float, policy>(maxima[p], float_bits(value));
            });
    put_column_maxima<E>(maxima, patch, shift, scales);
}

// Stores the maxima of every row over blocks of 16 or 32 positions in the table of the source's part.
template <class E, class S, Nonfinite policy>
__device__ __forceinline__ void put_line_maxima(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                                PartScales<E>& scales) {
    uint32_t maxima[kPatchLines];
#pragma unroll
    for (int i = 0; i < kPatchLines; i++) maxima[i] = larger_of_line<S, policy>(values, i, 0);
    put_row_maxima<E>(maxima, patch, shift, scales);
}

template <class S, Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_patch(const PatchValues<S>& values) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kPatchLines; i++) largest = larger_of_line<S, policy>(values, i, largest);
    return largest;
}

// ---- Codes of the outputs --------------------------------------------------------------------------------------------

// Makes a row's eight codes, a byte each.
template <class E, class S>
__device__ __forceinline__ void requantize_line(const PatchValues<S>& values, int i, float factor, uint32_t* words) {
    const uint32_t mask = factor_mask<E>(factor);
#pragma unroll
    for (int word = 0; word < kPatchPositions / 4; word++) {
        float products[4];
        values.each(i, word, [&](int p, float value) { products[p % 4] = multiply_rn(value, factor); });
        words[word] = (encode_pair<E>(products[0], products[1]) | encode_pair<E>(products[2], products[3]) << 16) & mask;
    }
}

// Stores codes K-major as in the source. Of 4-bit codes, each of two neighbouring lanes gets 16 codes of every other row.
template <class E, class S>
__device__ __forceinline__ void put_lines(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                          const PartScales<E>& scales, const CodeTile& to, bool direct, TileCodes<E>& codes) {
    constexpr int lanes = E::bits == 8 ? 1 : kChunk / kPatchPositions, unit = lanes * kPatchPositions;
    const uint32_t* factors = &scales.table[patch.column >> shift][patch.row];
    const RowPointers<E, Bf16> pointers(to, codes, direct, patch.row + int(threadIdx.x) % lanes,
                                        patch.column / unit * (unit * E::bits / 8));
#pragma unroll
    for (int i = 0; i < kPatchLines; i += lanes) {
        uint32_t words[4];
#pragma unroll
        for (int r = 0; r < lanes; r++) requantize_line<E>(values, i + r, bits_float(factors[i + r]), words + 2 * r);
        if constexpr (lanes == 2) exchange_rows<2>(words);
        if (!pointers.exists(i)) continue;
        if constexpr (lanes == 2) store_chunk<E::bits>(pointers.at(i), words);
        else *reinterpret_cast<uint2*>(pointers.at(i)) = {words[0], words[1]};
    }
}

// Stores transposed codes, chunks of 16, in shared memory: four positions at a time.
template <class E, class S>
__device__ __forceinline__ void put_positions(const PatchValues<S>& values, const CodePatch& patch, int shift,
                                              const PartScales<E>& scales, TileCodes<E>& codes) {
    const auto* factors = reinterpret_cast<const float4*>(&scales.table[patch.row >> shift][patch.column]);
    uint32_t* to = &codes.words[codes.template line<kPatchPositions>(patch.column) + patch.row / kChunk * (E::bits / 2)];
#pragma unroll
    for (int word = 0; word < kPatchPositions / 4; word++) {
        const float4 four = factors[word];
        const float of_position[4] = {four.x, four.y, four.z, four.w};
        uint32_t chunks[4][4] = {};
#pragma unroll
        for (int i = 0; i < kPatchLines; i += 2) {
            float first[4], second[4];
            values.each(i, word, [&](int p, float value) { first[p % 4] = multiply_rn(value, of_position[p % 4]); });
            values.each(i + 1, word, [&](int p, float value) { second[p % 4] = multiply_rn(value, of_position[p % 4]); });
#pragma unroll
            for (int p = 0; p < 4; p++) chunks[p][i / 4] |= encode_pair<E>(first[p], second[p]) << (i % 4 * 8);
        }
#pragma unroll
        for (int p = 0; p < 4; p++) {
#pragma unroll
            for (uint32_t& codes_of_four : chunks[p]) codes_of_four &= factor_mask<E>(of_position[p]);
            store_chunk<E::bits>(to + (4 * word + p) * 4 * E::bits, chunks[p]);
        }
    }
}

// ---- On the host -----------------------------------------------------------------------------------------------------

inline bool is_e4m3_or_e2m1(Element element) { return element == Element::E4M3 || element == Element::E2M1; }

// Returns why the rows of the source do not serve; empty if they do. A decode scale may be NaN: then no thread may mix valid
// and out-of-range rows.
inline Reason declines_code_source(const QuantizeProblem& problem) {
    const Source& source = problem.source;
    const QuantizedPart& from = source.quantized;
    const bool grouped = problem.grouped.set();
    if (!is_e4m3_or_e2m1(from.element)) return "needs e4m3 or e2m1 codes in the source, found others";
    if (from.columnwise && grouped) return "needs a rowwise source with groups, found a columnwise one";
    const int64_t length = from.columnwise ? source.rows : source.cols, lines = from.columnwise ? source.cols : source.rows;
    if (length % kPatchPositions != 0)
        return [length] {
            return format_text("needs rows of a multiple of %d codes in the source, found %lld", kPatchPositions,
                               (long long)length);
        };
    if (from.decode_scale && (grouped || lines % kPatchLines != 0))
        return [] {
            return format_text("needs an amax, or a multiple of %d rows without groups, found a decode scale", kPatchLines);
        };
    const int bytes = code_access(from, grouped);
    if (bytes < from.bits)
        return [bits = from.bits, bytes] {
            return format_text("needs rows of the source aligned to %d bytes, found %d", bits, bytes);
        };
    return "";
}

}  // namespace mxq::cuda
