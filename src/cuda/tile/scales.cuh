// The scales of a kernel with tiles in registers: from a thread's patch to the factor of each element.
//
//     vectors --maxima--> table --rule--> table --> codes         table of a part: one word for each row and block
//                                  \---> words --> memory        stored scales: one byte for each row and block
//
//     block        blocks of the table     who exchanges maxima
//     16, 32       16 or 32 codes          one warp, which holds whole blocks in both directions: no block barrier
//     128          32 codes, then one      all warps, before the rule and after
//     ROW, TENSOR  one                     nobody: the maxima come from memory
//
// The maximum of a square tile stands in each of its rows.
#pragma once
#include "cuda/memory/kept_store.cuh"
#include "cuda/tile/maxima.cuh"
#include "cuda/tile/store_scale_words.cuh"
#include "cuda/types.cuh"
#include "numerics/fp8_scale.h"
#include "numerics/nvfp4.h"

namespace mxq::cuda {

__device__ __forceinline__ Fp8Rule fp8_rule(const QuantizeProblem& problem, float max) {
    return {max, problem.epsilon, problem.power_of_two};
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns the global scale above the block scales of a part.
template <class E>
__device__ __forceinline__ Nvfp4Global part_global(const QuantizedPart& part, int64_t scope) {
    if (E::bits != 4 || part.scale_type != ScaleType::E4M3) return {};
    return nvfp4_global(part.amax[scope * part.scope_stride], part.scale_max);
}

// Turns maxima into stored bytes, and returns the factors of elements.
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

// Makes the scales of blocks of 16 and 32. Each lane turns the maxima of its row's blocks, or of some columns, of the warp.
// The same code serves both parts.
template <class E, class T>
__device__ __forceinline__ void scale_warp_blocks(const QuantizeProblem& problem, const QuantizedPart& part, int64_t scope,
                                                  int shift, PartScales<E>& scales) {
    constexpr int count = Patch<T>::columns / 2;  // entries at a time
    const int lane = threadIdx.x % 32, row_block = threadIdx.x / 32 % kTileBlocks, half = threadIdx.x / kTile;
    const int steps = E::bits == 4 && shift == 4 ? 2 : 1;
    const Nvfp4Global global = part_global<E>(part, scope);
    const int line_step = part.columnwise ? 32 : 0, block_step = part.columnwise ? 0 : 1;
    auto* bytes = reinterpret_cast<uint8_t*>(scales.words);
#pragma unroll 1
    for (int s = 0; s < steps; s++) {
        const int line = part.columnwise ? lane + half * 32 * count : row_block * 32 + lane;
        const int block = part.columnwise ? row_block * steps + s : (half * steps + s) * count;
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

// Returns the maximum over the thread block, after put_maxima and a barrier.
template <class E, class T>
__device__ __forceinline__ uint32_t tile_maximum(const TileScales<E>& scales) {
    uint32_t largest = scales.warp_maxima[0];
#pragma unroll
    for (int i = 1; i < Patch<T>::threads / 32; i++) largest = max(largest, scales.warp_maxima[i]);
    return largest;
}

// Returns the maximum of a row of the tile in a part: over its 128 codes, its square tile, or all codes that share the
// scale.
template <class E, class T>
__device__ __forceinline__ uint32_t line_maximum(const QuantizeProblem& problem, const ScaleRule& rule,
                                                 const TileCoord& coord, const GroupStart& start, int columnwise, int line,
                                                 const TileScales<E>& scales) {
    const uint32_t(&table)[kTableBlocks<E>][kTableLines] = scales.parts[columnwise].table;
    if (!rule.whole)
        return problem.square_tiles ? tile_maximum<E, T>(scales)
                                    : max(max(table[0][line], table[1][line]), max(table[2][line], table[3][line]));
    const QuantizedPart& part = part_of(problem, columnwise);
    const uint32_t* maxima = reinterpret_cast<const uint32_t*>(rule.maxima[columnwise]);
    if (!rule.per_line) return maxima[coord.scope * part.scope_stride];
    const int64_t at = (!columnwise ? coord.row : coord.col) + line;
    if (at >= (!columnwise ? coord.rows : part.lines)) return 0;
    return maxima[(!columnwise ? coord.matrix : coord.scope) * part.lines + (!columnwise ? start.codes : 0) + at];
}

// Makes the scales of blocks of 128 and longer: a factor for each row of each part in block 0 of the table, the maximum in
// block 1.
template <class E, class T>
__device__ __forceinline__ void scale_lines(const QuantizeProblem& problem, const ScaleRule& rule, const TileCoord& coord,
                                            const Group& group, TileScales<E>& scales) {
    for (int i = threadIdx.x; i < 2 * kTile; i += Patch<T>::threads) {
        const int columnwise = i / kTile, line = i % kTile;
        if (!has_part(problem, columnwise)) continue;
        PartScales<E>& to = scales.parts[columnwise];
        const QuantizedPart& part = part_of(problem, columnwise);
        if (E::bits == 8 && problem.quantization_scale) {
            to.table[0][line] = float_bits(problem.quantization_scale[coord.scope * part.scope_stride]);
            continue;
        }
        const GroupStart start = group_start(problem.grouped, group, kRowwisePart + columnwise);
        uint32_t value[1] = {line_maximum<E, T>(problem, rule, coord, start, columnwise, line, scales)};
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

// Turns maxima into factors. All threads that use the table may read it afterwards.
template <class E, class T>
__device__ __forceinline__ void make_scales(const QuantizeProblem& problem, const ScaleRule& rule, const TileCoord& coord,
                                            const Group& group, TileScales<E>& scales) {
    if (rule.shift < 7) {
        __syncwarp();
#pragma unroll 1
        for (int columnwise = 0; columnwise < 2; columnwise++)
            if (has_part(problem, columnwise))
                scale_warp_blocks<E, T>(problem, part_of(problem, columnwise), coord.scope, rule.shift,
                                        scales.parts[columnwise]);
        __syncwarp();
    } else {
        __syncthreads();
        scale_lines<E, T>(problem, rule, coord, group, scales);
        __syncthreads();
    }
}

// ---- To memory -------------------------------------------------------------------------------------------------------

// Stores fp32 scales, one a row or square, and maxima where the caller wants them. Padding columns are +0, and so are rows
// from `padding` on, which only pad a group.
template <class E>
__device__ __forceinline__ void store_float_scales(const QuantizedPart& part, const ScaleTile& tile, int padding, float* amax,
                                                   const PartScales<E>& scales) {
    auto* to = reinterpret_cast<float*>(part.scales);
    for (int line = threadIdx.x; line < kTile; line += blockDim.x) {
        if (!tile.stores(line)) continue;
        const int64_t at = tile.offset(line, tile.column);
        const float scale = line < padding ? fp8_stored_scale(bits_float(scales.table[0][line])) : 0;
        store_kept(reinterpret_cast<uint32_t*>(to + at), float_bits(scale));
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
__device__ __forceinline__ void store_scales(const QuantizeProblem& problem, const ScaleRule& rule, const TileCoord& coord,
                                             const Group& group, int columnwise, const PartScales<E>& scales) {
    const QuantizedPart& part = part_of(problem, columnwise);
    const bool compact_rows = !columnwise && rule.per_line && coord.col == 0;
    if (rule.whole && !compact_rows && !part.layout.swizzled) return;
    const bool grouped = problem.grouped.groups.set;
    const ScaleTile tile(part, coord, group_start(problem.grouped, group, kRowwisePart + columnwise), problem.source.cols,
                         grouped);
    if (E::bits != 8 || part.scale_type != ScaleType::F32)
        store_scale_words<Patch<T>::threads, kLineWords<E>>(part.scales, tile,
                                                             [&](int line, int i) { return scales.words[i][line]; });
    else
        store_float_scales(part, tile, !columnwise ? int(min(coord.rows - coord.row, int64_t(kTile))) : kTile,
                           rule.whole ? nullptr : part.amax, scales);
}

// Stores one TENSOR or ROW scale.
template <class E>
__device__ __forceinline__ void store_whole_scale(const QuantizeProblem& problem, const ScaleRule& rule, int columnwise,
                                                  int64_t i) {
    const QuantizedPart& part = part_of(problem, columnwise);
    if (E::bits != 8 || part.scale_type != ScaleType::F32) {
        uint32_t scale[1] = {float_bits(rule.maxima[columnwise][i])};
        scales_of<E>(scale, problem.scale_rounding, problem.nonfinite);
        part.scales[i] = uint8_t(scale[0]);
        return;
    }
    reinterpret_cast<float*>(part.scales)[i] =
        fp8_stored_scale(problem.quantization_scale
                             ? problem.quantization_scale[i]
                             : fp8_quantization_scale(rule.maxima[columnwise][i], fp8_rule(problem, E::max)));
}

// Stores TENSOR scales and compact ROW scales of columns, by all threads of the grid: experts and groups without rows have
// some, too.
template <class E>
__device__ __forceinline__ void store_whole_scales(const QuantizeProblem& problem, const ScaleRule& rule) {
    const int64_t first = (int64_t(row_of_blocks()) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t step = int64_t(gridDim.x) * gridDim.y * gridDim.z * blockDim.x;
#pragma unroll 1
    for (int columnwise = 0; columnwise < 2; columnwise++)
        for (int64_t i = first; i < rule.whole_counts[columnwise]; i += step)
            store_whole_scale<E>(problem, rule, columnwise, i);
}

// Raises the maximum of the tile's scope, for delayed scaling. Magnitudes are ordered like their bits.
template <class E, class T>
__device__ __forceinline__ void record_maximum(const QuantizeProblem& problem, const TileCoord& coord,
                                               const TileScales<E>& scales) {
    if (threadIdx.x != 0) return;
    const uint32_t largest = tile_maximum<E, T>(scales);
    for (const QuantizedPart* part : {&problem.rowwise, &problem.columnwise})
        if (part->amax) atomicMax(reinterpret_cast<uint32_t*>(part->amax) + coord.scope * part->scope_stride, largest);
}

}  // namespace mxq::cuda
