// The scales of a tile kernel: from a thread's patch to the factor that each of its elements is multiplied by.
//
//     chunks --maxima--> table --rule--> table --> emission        the table of a part: one word for each line and block
//                                  \---> words --> memory          stored scales: a byte for each line and block
//
//     block of    table's blocks   who meets whom
//     16, 32      16 or 32 codes   a warp holds whole blocks in both directions: no barrier of the block of threads
//     128         32 codes, then   all warps meet, before the rule and after
//                 the first alone
//     ROW, TENSOR the first alone  the maxima come from memory
//
// A square tile's maximum stands at each of its lines.
#pragma once
#include "cuda/memory/magnitudes.cuh"
#include "cuda/tile/location.cuh"
#include "cuda/tile/store_scale_words.cuh"
#include "cuda/types.cuh"
#include "numerics/fp8_scale.h"
#include "numerics/nvfp4.h"

namespace mxq::cuda {

constexpr int kTableLines = kTile + 4;  // of other banks for each block

// Element types of four bits alone have blocks of 16.
template <class E>
constexpr int kTableBlocks = E::bits == 4 ? kTile / kNvBlock : kTile / kMxBlock;

template <class E>
struct alignas(16) PartScales {
    uint32_t table[kTableBlocks<E>][kTableLines];     // maxima's bits, then factors' bits
    uint32_t words[kTableBlocks<E> / 4][kTile];       // four stored bytes, by line
};

template <class E>
struct TileScales {
    PartScales<E> parts[2];       // rowwise, columnwise
    uint32_t warp_maxima[8];
};

// What decides scales beside the problem.
struct ScaleRule {
    int32_t shift;        // a block has 1 << shift codes: 4, 5 or 7, which stands for longer ones too
    bool whole;           // ROW, TENSOR
    bool saturates;       // a maximum ignores NaN
    bool records;         // TENSOR, delayed: the maximum is not used, but wanted
    const float* maxima[2];   // ROW, TENSOR: of each part
    int64_t whole_counts[2];  // scales that are stored one after another, whatever the tiles are
};

__device__ __forceinline__ Fp8Rule fp8_rule(const QuantizeProblem& problem, float max) {
    return {max, problem.epsilon, problem.power_of_two};
}

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Whether maxima of columns are of 32 rows, which two threads of a warp have, or of one thread's 16.
template <class E>
__device__ __forceinline__ bool is_of_pairs(int shift) {
    return E::bits != 4 || shift > 4;
}

// Stores the maxima of a thread's columns, as bits, in a part's table.
template <class E, class Place, int columns>
__device__ __forceinline__ void store_column_maxima(const uint32_t (&maxima)[columns], const Place& patch, int shift,
                                                    PartScales<E>& scales) {
    const bool pairs = is_of_pairs<E>(shift);
    if (pairs && threadIdx.x % 32 >= 16) return;
    uint32_t* to = &scales.table[patch.row >> (pairs ? 5 : 4)][patch.column];
#pragma unroll
    for (int v = 0; v < columns; v += 4)
        *reinterpret_cast<uint4*>(to + v) = {maxima[v], maxima[v + 1], maxima[v + 2], maxima[v + 3]};
}

// Puts the maxima of a thread's columns over its 16 rows, as bits, into a part's table.
template <class E, class Place, int columns>
__device__ __forceinline__ void put_column_maxima(uint32_t (&maxima)[columns], const Place& patch, int shift,
                                                  PartScales<E>& scales) {
    if (is_of_pairs<E>(shift))
#pragma unroll
        for (uint32_t& maximum : maxima) maximum = max(maximum, __shfl_xor_sync(kAllLanes, maximum, 16));
    store_column_maxima<E>(maxima, patch, shift, scales);
}

template <class E, Nonfinite policy>
__device__ __forceinline__ void put_column_maxima(const PatchChunks<float>& chunks, const Patch<float>& patch, int shift,
                                                  PartScales<E>& scales) {
    uint32_t maxima[4] = {};
#pragma unroll
    for (int w = 0; w < 4; w++)
#pragma unroll
        for (int i = 0; i < Patch<float>::rows; i++)
            maxima[w] = larger_magnitudes<float, policy>(maxima[w], chunks[i].words[w]);
    put_column_maxima<E>(maxima, patch, shift, scales);
}

// Two columns stay in a word until the threads have met. (BF16 to types with blocks of 16 is quantize_fp4_pairs'.)
template <class E, Nonfinite policy>
__device__ __forceinline__ void put_column_maxima(const PatchChunks<Bf16>& chunks, const Patch<Bf16>& patch, int shift,
                                                  PartScales<E>& scales) {
    uint32_t maxima[8];
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < Patch<Bf16>::rows; i++) largest = larger_magnitudes<Bf16, policy>(largest, chunks[i].words[w]);
        largest = larger<Bf16>(largest, __shfl_xor_sync(kAllLanes, largest, 16));
#pragma unroll
        for (int i = 0; i < 2; i++) maxima[w * 2 + i] = magnitude_bits<Bf16>(largest, i);
    }
    store_column_maxima<E>(maxima, patch, shift, scales);
}

// Makes one step of reduce_lanes with maxima in both halves of a word: of the first n words half as many are left.
template <int distance, int n, int size>
__device__ __forceinline__ void halve_pairs(uint32_t (&pairs)[size]) {
    const bool odd = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < n / 2; i++) {
        const uint32_t mine = odd ? pairs[2 * i + 1] : pairs[2 * i], other = odd ? pairs[2 * i] : pairs[2 * i + 1];
        pairs[i] = __vmaxu2(mine, __shfl_xor_sync(kAllLanes, other, distance));
    }
}

// Puts the maxima of the patch's rows over blocks of 32 columns into a part's table, two rows to a word on the way; each lane
// of a block gets a share of the rows.
template <class E, Nonfinite policy>
__device__ __forceinline__ void put_row_maxima(const PatchChunks<Bf16>& chunks, const Patch<Bf16>& patch, int,
                                               PartScales<E>& scales) {
    constexpr int count = Patch<Bf16>::rows / 2;
    uint32_t pairs[count];
#pragma unroll
    for (int i = 0; i < count; i++) {
        const uint32_t first = chunk_magnitudes<Bf16, policy>(chunks[2 * i]);
        const uint32_t second = chunk_magnitudes<Bf16, policy>(chunks[2 * i + 1]);
        pairs[i] = larger<Bf16>(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
    }
    const auto put = [&](uint32_t* to, uint32_t pair) {
        *reinterpret_cast<uint2*>(to) = {magnitude_bits<Bf16>(pair, 0), magnitude_bits<Bf16>(pair, 1)};
    };
    halve_pairs<1, count>(pairs);
    halve_pairs<2, count / 2>(pairs);
    uint32_t* to = &scales.table[patch.column >> 5][patch.row + threadIdx.x % 4 * 2];
#pragma unroll
    for (int i = 0; i < count / 4; i++) put(to + 8 * i, pairs[i]);
}

// Puts the maxima of a thread's 16 rows over blocks of 16 or 32 of their columns, as bits, into a part's table; each lane of a
// block gets a share of the rows.
template <class E, class Place, int rows>
__device__ __forceinline__ void put_row_maxima(uint32_t (&maxima)[rows], const Place& patch, int shift,
                                               PartScales<E>& scales) {
    constexpr int lanes = kNvBlock / Place::columns, count = rows / lanes;
    const int lane = threadIdx.x;
    uint32_t kept[count];
    reduce_lanes<lanes>(maxima);
#pragma unroll
    for (int i = 0; i < count; i++) kept[i] = maxima[i];
    if (E::bits == 4 && shift == 4) {
        uint32_t* to = &scales.table[patch.column >> 4][patch.row + lane % lanes];
#pragma unroll
        for (int i = 0; i < count; i++) to[i * lanes] = kept[i];
    } else {
        reduce_lanes<2 * lanes, count, lanes>(kept);
        uint32_t* to = &scales.table[patch.column >> 5][patch.row + lane % (2 * lanes)];
#pragma unroll
        for (int i = 0; i < count / 2; i++) to[i * 2 * lanes] = kept[i];
    }
}

template <class E, Nonfinite policy>
__device__ __forceinline__ void put_row_maxima(const PatchChunks<float>& chunks, const Patch<float>& patch, int shift,
                                               PartScales<E>& scales) {
    uint32_t maxima[Patch<float>::rows];
#pragma unroll
    for (int i = 0; i < Patch<float>::rows; i++) maxima[i] = chunk_magnitudes<float, policy>(chunks[i]);
    put_row_maxima<E>(maxima, patch, shift, scales);
}

// Returns the largest magnitude of a patch, as bits.
template <class T, Nonfinite policy>
__device__ __forceinline__ uint32_t patch_maximum(const PatchChunks<T>& chunks) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i++) largest = chunk_magnitudes<T, policy>(chunks[i], largest);
    return largest_bits<T>(largest);
}

// Puts the maximum of the square tile of 16 or 32 that a patch lies in into the tables, for all of the tile's lines. `along`
// is the part whose lines are the patch's rows.
template <class E, class Place>
__device__ __forceinline__ void put_square_maximum(uint32_t maximum, const Place& patch, int shift, PartScales<E>* along,
                                                   PartScales<E>* across) {
    const int lanes = (1 << shift) / Place::columns;
    for (int distance = 1; distance < lanes; distance *= 2)
        maximum = max(maximum, __shfl_xor_sync(kAllLanes, maximum, distance));
    if (shift > 4) maximum = max(maximum, __shfl_xor_sync(kAllLanes, maximum, 16));
    if (along)
        for (int i = threadIdx.x % lanes; i < Place::rows; i += lanes)
            along->table[patch.column >> shift][patch.row + i] = maximum;
    if (across)
        for (int i = 0; i < Place::columns; i += 4)
            *reinterpret_cast<uint4*>(&across->table[patch.row >> shift][patch.column + i]) = {maximum, maximum, maximum,
                                                                                               maximum};
}

// Puts the maximum of a patch where its scales come from: the tables, or for longer blocks one place for each warp.
template <class E, class Place>
__device__ __forceinline__ void put_patch_maximum(uint32_t maximum, const Place& patch, int shift, TileScales<E>& scales,
                                                  PartScales<E>* along, PartScales<E>* across) {
    if (shift < 7) return put_square_maximum<E>(maximum, patch, shift, along, across);
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, maximum);
    if (threadIdx.x % 32 == 0) scales.warp_maxima[threadIdx.x / 32] = of_warp;
}

// Puts all maxima that the tile's scales need.
template <class E, class T, Nonfinite policy>
__device__ __forceinline__ void put_maxima(const QuantizeProblem& problem, const ScaleRule& rule,
                                           const PatchChunks<T>& chunks, const Patch<T>& patch, TileScales<E>& scales) {
    if (problem.square_tiles || rule.whole) {
        if (rule.whole && !rule.records) return;
        return put_patch_maximum<E>(patch_maximum<T, policy>(chunks), patch, rule.shift, scales,
                                    problem.has_rowwise ? &scales.parts[0] : nullptr,
                                    problem.has_columnwise ? &scales.parts[1] : nullptr);
    }
    if (problem.has_columnwise) put_column_maxima<E, policy>(chunks, patch, rule.shift, scales.parts[1]);
    if (problem.has_rowwise) put_row_maxima<E, policy>(chunks, patch, rule.shift, scales.parts[0]);
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns what stands above a part's block scales.
template <class E>
__device__ __forceinline__ Nvfp4Global part_global(const QuantizedPart& part, int64_t scope) {
    if (E::bits != 4 || part.scale_type != ScaleType::E4M3) return {};
    return nvfp4_global(part.amax[scope * part.scope_stride], part.scale_max);
}

// Turns maxima into stored bytes, and gives what elements are multiplied by.
template <class E, int count>
__device__ __forceinline__ void byte_scales(const QuantizeProblem& problem, ScaleType type, const Nvfp4Global& global,
                                            uint32_t (&values)[count], float (&factors)[count]) {
    if (E::bits == 4 && type == ScaleType::E4M3) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            values[i] = nvfp4_scale(bits_float(values[i]), global);
            factors[i] = nvfp4_multiplier(values[i], global);
        }
        return;
    }
    scales_of<E>(values, problem.scale_rounding, problem.nonfinite);
#pragma unroll
    for (int i = 0; i < count; i++) factors[i] = scale_reciprocal(values[i]);
}

// Makes the scales of blocks of 16 and 32: each lane turns the maxima of some lines of its warp's blocks, its row's blocks or
// some columns'. The code is there once for both parts.
template <class E, class T>
__device__ __forceinline__ void scale_warp_blocks(const QuantizeProblem& problem, const QuantizedPart& part, int64_t scope,
                                                  int shift, PartScales<E>& scales) {
    constexpr int count = Patch<T>::columns / 2;  // entries at a time
    const int lane = threadIdx.x % 32, band = threadIdx.x / 32 % kTileBlocks, half = threadIdx.x / kTile;
    const int steps = E::bits == 4 && shift == 4 ? 2 : 1;
    const Nvfp4Global global = part_global<E>(part, scope);
    const int line_step = part.columnwise ? 32 : 0, block_step = part.columnwise ? 0 : 1;
    auto* bytes = reinterpret_cast<uint8_t*>(scales.words);
#pragma unroll 1
    for (int s = 0; s < steps; s++) {
        const int line = part.columnwise ? lane + half * 32 * count : band * 32 + lane;
        const int block = part.columnwise ? band * steps + s : (half * steps + s) * count;
        uint32_t values[count];
        float factors[count];
#pragma unroll
        for (int i = 0; i < count; i++) values[i] = scales.table[block + i * block_step][line + i * line_step];
        byte_scales<E>(problem, part.scale_type, global, values, factors);
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int to_block = block + i * block_step, to_line = line + i * line_step;
            scales.table[to_block][to_line] = float_bits(factors[i]);
            bytes[to_block / 4 * (kTile * 4) + to_line * 4 + to_block % 4] = uint8_t(values[i]);
        }
    }
}

// Returns the largest over the block of threads, after put_maxima and a barrier.
template <class E, class T>
__device__ __forceinline__ uint32_t tile_maximum(const TileScales<E>& scales) {
    uint32_t largest = scales.warp_maxima[0];
#pragma unroll
    for (int i = 1; i < Patch<T>::threads / 32; i++) largest = max(largest, scales.warp_maxima[i]);
    return largest;
}

// Returns the maximum of a line of the tile in a part: of its 128 codes, of its square tile, or of all that shares the scale.
template <class E, class T>
__device__ __forceinline__ uint32_t line_maximum(const QuantizeProblem& problem, const ScaleRule& rule,
                                                 const TilePlace& place, const GroupStart& start, int which, int line,
                                                 const TileScales<E>& scales) {
    const uint32_t(&table)[kTableBlocks<E>][kTableLines] = scales.parts[which].table;
    if (!rule.whole)
        return problem.square_tiles ? tile_maximum<E, T>(scales)
                                    : max(max(table[0][line], table[1][line]), max(table[2][line], table[3][line]));
    const QuantizedPart& part = part_of(problem, which);
    const uint32_t* maxima = reinterpret_cast<const uint32_t*>(rule.maxima[which]);
    if (part.layout.line_stride == 0) return maxima[place.scope * part.scope_stride];
    const int64_t at = (which == 0 ? place.row : place.col) + line;
    if (at >= (which == 0 ? place.rows : part.lines)) return 0;
    return maxima[(which == 0 ? place.matrix : place.scope) * part.lines + (which == 0 ? start.codes : 0) + at];
}

// Makes the scales of blocks of 128 and longer ones: a factor for each line of each part, in the table's first block, the
// maximum in its second.
template <class E, class T>
__device__ __forceinline__ void scale_lines(const QuantizeProblem& problem, const ScaleRule& rule, const TilePlace& place,
                                            const TileGroup& group, TileScales<E>& scales) {
    for (int i = threadIdx.x; i < 2 * kTile; i += Patch<T>::threads) {
        const int which = i / kTile, line = i % kTile;
        if (!has_part(problem, which)) continue;
        PartScales<E>& to = scales.parts[which];
        const QuantizedPart& part = part_of(problem, which);
        if (E::bits == 8 && problem.quantization_scale) {
            to.table[0][line] = float_bits(problem.quantization_scale[place.scope * part.scope_stride]);
            continue;
        }
        const GroupStart start = group_start(problem.grouped, group, kRowwisePart + which);
        uint32_t value[1] = {line_maximum<E, T>(problem, rule, place, start, which, line, scales)};
        float factor[1];
        if (E::bits == 8 && part.scale_type == ScaleType::F32) {
            to.table[1][line] = value[0];
            factor[0] = fp8_quantization_scale(bits_float(value[0]), fp8_rule(problem, E::max));
        } else {
            byte_scales<E>(problem, ScaleType::E8M0, {}, value, factor);
            to.words[0][line] = value[0] * 0x01010101u;
        }
        to.table[0][line] = float_bits(factor[0]);
    }
}

// Turns maxima into factors. The table is then for all threads that use it.
template <class E, class T>
__device__ __forceinline__ void make_scales(const QuantizeProblem& problem, const ScaleRule& rule, const TilePlace& place,
                                            const TileGroup& group, TileScales<E>& scales) {
    if (rule.shift < 7) {
        __syncwarp();
#pragma unroll 1
        for (int which = 0; which < 2; which++)
            if (has_part(problem, which))
                scale_warp_blocks<E, T>(problem, part_of(problem, which), place.scope, rule.shift, scales.parts[which]);
        __syncwarp();
    } else {
        __syncthreads();
        scale_lines<E, T>(problem, rule, place, group, scales);
        __syncthreads();
    }
}

// ---- To memory -------------------------------------------------------------------------------------------------------

// Stores fp32 scales, one a line or a square, and maxima beside them where there is a place. Padding columns are +0, and so are
// lines from `padding` on, which are rows that only fill up a group.
template <class E>
__device__ __forceinline__ void store_float_scales(const QuantizedPart& part, const ScaleTile& tile, int padding, float* amax,
                                                   const PartScales<E>& scales) {
    auto* to = reinterpret_cast<float*>(part.scales);
    for (int line = threadIdx.x; line < kTile; line += blockDim.x) {
        if (!tile.stores(line)) continue;
        const int64_t at = tile.offset(line, tile.column);
        to[at] = line < padding ? fp8_stored_scale(bits_float(scales.table[0][line])) : 0;
        if (amax) amax[at] = bits_float(scales.table[1][line]);
        const bool last = tile.layout.tile_rows > 1 && tile.column + 1 == part.layout.columns;
        for (int64_t i = 1; last && i <= part.layout.line_stride - part.layout.columns; i++) {
            to[at + i] = 0;
            if (amax) amax[at + i] = 0;
        }
    }
}

// Stores the scales of a part of the tile, by all threads of the block.
template <class E, class T>
__device__ __forceinline__ void store_scales(const QuantizeProblem& problem, const ScaleRule& rule, const TilePlace& place,
                                             const TileGroup& group, int which, const PartScales<E>& scales) {
    const QuantizedPart& part = part_of(problem, which);
    const bool row_scales = which == 0 && part.layout.line_stride != 0 && place.col == 0;
    if (rule.whole && !row_scales) return;
    const bool grouped = problem.grouped.groups.set;
    const ScaleTile tile(part, place, group_start(problem.grouped, group, kRowwisePart + which), problem.source.cols, grouped);
    if (E::bits != 8 || part.scale_type != ScaleType::F32)
        store_scale_words<Patch<T>::threads, kLineWords<E>>(part.scales, tile,
                                                             [&](int line, int i) { return scales.words[i][line]; });
    else store_float_scales(part, tile, which == 0 ? int(min(place.rows - place.row, int64_t(kTile))) : kTile,
                            rule.whole ? nullptr : part.amax, scales);
}

// Stores TENSOR scales, and ROW scales of columns: of all experts and groups, empty ones too, by all threads of the grid.
template <class E>
__device__ __forceinline__ void store_whole_scales(const QuantizeProblem& problem, const ScaleRule& rule) {
    if constexpr (E::bits == 8) {
        const int64_t first = (int64_t(row_of_blocks()) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
        const int64_t step = int64_t(gridDim.x) * gridDim.y * gridDim.z * blockDim.x;
        for (int which = 0; which < 2; which++) {
            auto* to = reinterpret_cast<float*>(part_of(problem, which).scales);
            for (int64_t i = first; i < rule.whole_counts[which]; i += step)
                to[i] = fp8_stored_scale(problem.quantization_scale
                                             ? problem.quantization_scale[i]
                                             : fp8_quantization_scale(rule.maxima[which][i], fp8_rule(problem, E::max)));
        }
    }
}

// Raises the maximum of the tile's scope, for delayed scaling. Magnitudes are ordered like their bits.
template <class E, class T>
__device__ __forceinline__ void record_maximum(const QuantizeProblem& problem, const TilePlace& place,
                                               const TileScales<E>& scales) {
    if (threadIdx.x != 0) return;
    const uint32_t largest = tile_maximum<E, T>(scales);
    for (const QuantizedPart* part : {&problem.rowwise, &problem.columnwise})
        if (part->amax) atomicMax(reinterpret_cast<uint32_t*>(part->amax) + place.scope * part->scope_stride, largest);
}

}  // namespace mxq::cuda
