// The loops of quantize_fp4_pairs and quantize_fp4_groups over a tile of BF16 in shared memory, rounded to nearest.
//
// tile/shared_tile.cuh says which lane reads which chunk. Elements stay packed in pairs, as in memory, until they are codes:
//
//     rowwise      8 words of a row          -> maximum  -> scale    -> 16 codes -> 8 bytes; eight lanes store 64 of a row
//     columnwise   16 words of two columns   -> 2 maxima -> 2 scales -> 16 codes of each, the same way
//     scales       bytes through shared memory, then words in the order of the layout
//
// A warp votes whether its NVFP4 blocks are plain: no element is NaN or 7 and above after scaling, and products may be cut
// (CuttingMultiplier). Other blocks are quantized out of line, in fp32.
//
// A kernel's Shared is a PairShared with code_tile(problem, columnwise), the destination of a part's codes.
#pragma once
#include "cuda/quantize/fp4_pair_codes.cuh"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/tile/tile_source.cuh"

namespace mxq::cuda::fp4_pairs {

struct Arguments {
    QuantizeProblem problem;
    Tiles tiles;
    ScaleSteps steps;  // MXFP4
    bool plain;        // MXFP4: codes need no clamping, or are masked
};

// Returns, on the host, what kernels are launched with.
inline Arguments arguments_of(const QuantizeProblem& p) {
    return {p, Tiles(p), scale_steps<E2M1>(p.scale_rounding, p.nonfinite), is_plain_mxfp4(p)};
}

struct PairShared {
    ChunkTile<Bf16> tile;
    Nvfp4Tables tables;  // CuttingMultipliers
    float of_significands[2][8];               // of the scales 1 to 1.875
    alignas(16) uint32_t scales[2][kTile][2];  // scale words of each part by row
};

// Thread blocks of an SM that kernels are compiled for. NVFP4 needs the registers of a fifth one.
template <bool nvfp4>
constexpr int kPairBlocks = kChunkBlocks<Bf16> + !nvfp4;

// Returns whether so many thread blocks fit on an SM. Each takes 1 KiB more than it asks for.
template <class Shared>
constexpr bool kFitsBlocks = 5 * (sizeof(Shared) + 1024) <= 228 * 1024 && 4 * (sizeof(Shared) + 1024) <= 164 * 1024;

template <class Shared>
__device__ __forceinline__ PartRule rule_of(const QuantizeProblem& p, bool columnwise, const Shared& shared) {
    return PartRule(p, columnwise, shared.tables, shared.code_tile(p, columnwise));
}

// Makes the tables of NVFP4's parts. A barrier must follow. Returns whether some ties go to even.
__device__ __forceinline__ bool put_cut_tables(const QuantizeProblem& p, float amax, PairShared& shared) {
    const int part = threadIdx.x / kScaleBytes;
    return put_cut_table(amax, part_of(p, part).scale_max, has_part(p, part), shared.tables.globals[part],
                         shared.of_significands[part], shared.tables.multipliers[part]);
}

// Stores the lane's chunk of a row, and its scale in the scale word.
__device__ __forceinline__ void put_chunk(const PartRule& rule, PairShared& shared, int line, uint32_t scale, uint2 codes) {
    put_scale(shared.scales[rule.columnwise], line, rule.scale_byte, scale);
    if (line < rule.lines) __stwb(reinterpret_cast<uint2*>(rule.codes_of(line)), codes);
}

// Quantizes and stores any NVFP4 chunk of a row, plain or not. Out of line: few are not plain.
template <class Shared>
__device__ __noinline__ void emit_any(const QuantizeProblem& p, bool columnwise, int line, Shared& shared) {
    const PartRule rule = rule_of(p, columnwise, shared);
    float values[kChunk];
    if (columnwise) shared.tile.read_column(line, chunk_of_lane(), values);
    else RowReader<Bf16>(shared.tile, line, chunk_of_lane()).read(0, values);
    const uint32_t scale = nvfp4_scale(larger_magnitude(0, values), rule.global);
    put_chunk(rule, shared, line, scale,
              {nearest_nvfp4_codes(values, scale, rule.global), nearest_nvfp4_codes(values + kPairs, scale, rule.global)});
}

// ---- Blocks ----------------------------------------------------------------------------------------------------------

// Returns an NVFP4 block with the stored CuttingMultiplier.
__device__ __forceinline__ Block nvfp4_block(const PartRule& rule, uint32_t amax) {
    const uint32_t scale = encode_nvfp4_scale(multiply_rn(bits_float(amax), rule.global.encode_sixth));
    return {scale, rule.multipliers[scale]};  // a byte without a sign
}

// Describes the block of the lane's chunk of a row. Returns false where an element of NVFP4 may not be plain.
template <bool nvfp4>
__device__ __forceinline__ bool row_block(const Arguments& a, const PartRule& rule, const uint32_t (&words)[kPairs],
                                          Block& block) {
    if constexpr (nvfp4) {
        const uint32_t amax = largest_of_row<Nonfinite::Propagate>(words);
        block = nvfp4_block(rule, amax);
        return __all_sync(kAllLanes, is_plain(amax, block));
    } else {
        const uint32_t largest = block_maxima(largest_pair(a.problem.nonfinite, words), a.problem.tile.length);
        block = mx_block(a.steps, larger<Bf16>(largest, largest >> 16), 0);
        return true;
    }
}

// Describes the blocks of the lane's chunks of two neighbouring columns. Returns false where an element of NVFP4 may not be
// plain.
template <bool nvfp4>
__device__ __forceinline__ bool column_blocks(const Arguments& a, const PartRule& rule, const uint32_t (&words)[kChunk],
                                              Block (&blocks)[2]) {
    if constexpr (nvfp4) {
        const uint32_t largest = largest_pair<Nonfinite::Propagate>(words);
        const uint32_t first = magnitude_bits<Bf16>(largest, 0), second = magnitude_bits<Bf16>(largest, 1);
        blocks[0] = nvfp4_block(rule, first);
        blocks[1] = nvfp4_block(rule, second);
        return __all_sync(kAllLanes, is_plain(first, blocks[0]) && is_plain(second, blocks[1]));
    } else {
        const uint32_t largest = block_maxima(largest_pair(a.problem.nonfinite, words), a.problem.tile.length);
        blocks[0] = mx_block(a.steps, largest, 0);
        blocks[1] = mx_block(a.steps, largest, 1);
        return true;
    }
}

// ---- Parts -----------------------------------------------------------------------------------------------------------

// Makes the rowwise part. `fast` selects the faster form of row_codes.
template <bool nvfp4, class Shared>
__device__ __forceinline__ void emit_rowwise(const Arguments& a, bool fast, Shared& shared) {
    const PartRule rule = rule_of(a.problem, false, shared);
    const RowReader<Bf16> rows(shared.tile, row_of_step(0), chunk_of_lane());
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = row_of_step(i);
        uint32_t words[kPairs];
        rows.read_words(line - row_of_step(0), words);
        Block block;
        if (!row_block<nvfp4>(a, rule, words, block)) {
            emit_any(a.problem, false, line, shared);
            continue;
        }
        const uint2 codes = fast ? row_codes<nvfp4, true>(words, block.multiplier)
                                 : row_codes<nvfp4, false>(words, block.multiplier);
        put_chunk(rule, shared, line, block.scale, codes);
    }
}

// Makes the columnwise part. `fast` selects the faster form of column_codes.
template <bool nvfp4, class Shared>
__device__ __forceinline__ void emit_columnwise(const Arguments& a, bool fast, Shared& shared) {
    const PartRule rule = rule_of(a.problem, true, shared);
    static_assert(kChunkSteps == 4);
    const int first = column_pair_word<Bf16>(column_of_step<Bf16>(0), chunk_of_lane());
    const int second = column_pair_word<Bf16>(column_of_step<Bf16>(2), chunk_of_lane());
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i += 2) {
        const int line = column_of_step<Bf16>(0) + i * 4;
        uint32_t words[kChunk];
        read_column_pair(shared.tile, i == 0 ? first : second, words);
        Block blocks[2];
        if (!column_blocks<nvfp4>(a, rule, words, blocks)) {
            emit_any(a.problem, true, line, shared);
            emit_any(a.problem, true, line + 1, shared);
            continue;
        }
        uint2 codes[2];
        if (fast)
            column_codes<nvfp4, true>(words, blocks[0].multiplier, blocks[1].multiplier, codes);
        else
            column_codes<nvfp4, false>(words, blocks[0].multiplier, blocks[1].multiplier, codes);
        put_chunk(rule, shared, line, blocks[0].scale, codes[0]);
        put_chunk(rule, shared, line + 1, blocks[1].scale, codes[1]);
    }
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns why these loops do not take a problem; empty where they do.
inline Reason declines_pairs(const QuantizeProblem& p) {
    if (p.format->element != Element::E2M1) return needs("nvfp4 or mxfp4", p.format->name);
    if (p.source.plain.format != MXQ_FORMAT_BF16) return needs_bf16(p.source.plain);
    if (Reason reason = declines_tile_options(p); !reason.empty()) return reason;
    if (p.tile.is_row()) return "needs scales of blocks, found row";
    if (p.square_tiles) return "needs scales of blocks of one row or column, found squares";
    if (!is_wide_tile_source(p)) return "needs rows at multiples of 16 bytes, found others";
    if ((p.has_rowwise && !is_wide_part(p.rowwise)) || (p.has_columnwise && !is_wide_part(p.columnwise)))
        return "needs codes in whole aligned chunks of 16, found others";
    return "";
}

}  // namespace mxq::cuda::fp4_pairs
