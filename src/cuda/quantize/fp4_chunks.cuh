// Holds what the kernels that quantize chunks of a tile in shared memory to E2M1 share: scales over more than a chunk, the
// errors of four over six and its choice for squares, and the way of codes and scales to memory.
//
//     tile in shared memory --a chunk of 16 a lane, eight lanes a line--> maximum --> scale byte --> words --> layout
//             |                                                              |
//             +--------------------> values x multiplier --> 16 codes, 8 bytes --> eight lanes store 64 bytes of a line
//
// NVFP4 scales are bytes without a sign: what each stands for comes from tables of 128 entries for each part.
#pragma once
#include "cuda/memory/beside.cuh"
#include "cuda/tile/shared_tile.cuh"
#include "cuda/tile/store_scale_words.cuh"
#include "cuda/types.cuh"
#include "numerics/encode_sub_byte.h"
#include "numerics/four_over_six.h"
#include "numerics/nvfp4.h"
#include "numerics/packing.h"
#include "numerics/philox.h"

namespace mxq::cuda {

constexpr int kCells = kSideChunks * kSideChunks;  // 16 x 16 squares of a tile
constexpr int kScaleBytes = 128;                   // E4M3, without a sign

// How codes are rounded, which a kernel is compiled for. Four over six rounds to nearest, too.
enum class Rounding { Nearest, Stochastic, FourOverSixMae, FourOverSixMse };

MXQ_HD constexpr bool is_four_over_six(Rounding rounding) {
    return rounding == Rounding::FourOverSixMae || rounding == Rounding::FourOverSixMse;
}

// Returns, on the host, what the problem asks for.
inline Rounding rounding_of(const QuantizeProblem& problem) {
    if (problem.four_over_six == FourOverSix::Mae) return Rounding::FourOverSixMae;
    if (problem.four_over_six == FourOverSix::Mse) return Rounding::FourOverSixMse;
    return problem.seed_offset ? Rounding::Stochastic : Rounding::Nearest;
}

// Holds what NVFP4 scales stand for in each part, by their bytes: a division each for every block would be a tenth of all work.
struct Nvfp4Tables {
    Nvfp4Global globals[2];
    float multipliers[2][kScaleBytes];
};

// Returns the global maximum of the part whose table the thread has a share in; asked for early, since it takes a while to
// come.
__device__ __forceinline__ float table_amax(const QuantizeProblem& p, int64_t scope) {
    static_assert(kChunkThreads == 2 * kScaleBytes);
    const bool columnwise = threadIdx.x >= kScaleBytes, exists = columnwise ? p.has_columnwise : p.has_rowwise;
    const QuantizedPart& part = columnwise ? p.columnwise : p.rowwise;
    return exists ? part.amax[scope * part.scope_stride] : 0;
}

// Returns the same where this call computes it: after all else that does not need it.
__device__ __forceinline__ float computed_table_amax(const QuantizeProblem& p, int64_t scope) {
    wait_for_previous_kernel();  // which computes it
    return table_amax(p, scope);
}

// Makes the tables of the parts that there are. A barrier must follow.
__device__ __forceinline__ void put_tables(const QuantizeProblem& p, float amax, Nvfp4Tables& tables) {
    const int part = threadIdx.x / kScaleBytes, scale = threadIdx.x % kScaleBytes;
    const Nvfp4Global global = nvfp4_global(amax, part_of(p, part).scale_max);
    tables.multipliers[part][scale] = nvfp4_multiplier(uint32_t(scale), global);
    if (scale == 0) tables.globals[part] = global;
}

// Makes the keys of random numbers where there is a seed. A barrier must follow.
__device__ __forceinline__ void put_keys(const QuantizeProblem& p, PhiloxKeys& keys) {
    if (!p.seed_offset || threadIdx.x >= 2 * PhiloxKeys::rounds) return;
    const PhiloxKey key = philox_key(p.seed_offset[0]);
    keys.words[threadIdx.x] = PhiloxKeys::word(threadIdx.x % 2 == 0 ? key.words[0] : key.words[1], threadIdx.x);
}

// Returns the maximum over the chunks of a block, which neighbouring lanes hold.
__device__ __forceinline__ uint32_t block_amax(uint32_t largest, int length) {
    for (int distance = 1; distance * kChunk < length; distance *= 2)
        largest = max(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    return largest;
}

// Errors of a chunk or more under both candidates.
struct Errors {
    float four, six;
};

template <bool squared>
__device__ __forceinline__ Errors chunk_errors(const float (&values)[kChunk], const Nvfp4Candidates& candidates,
                                               const Nvfp4Global& global) {
    if (ErrorDivisor::serves(global.amax))
        return {nvfp4_errors_16<squared, true>(values, candidates.four, global),
                nvfp4_errors_16<squared, true>(values, candidates.six, global)};
    return {nvfp4_errors_16<squared, false>(values, candidates.four, global),
            nvfp4_errors_16<squared, false>(values, candidates.six, global)};
}

// Reads the elements of the lane's chunk of a row or column.
template <class T>
__device__ __forceinline__ void read_chunk(const ChunkTile<T>& tile, bool columnwise, int line, float (&values)[kChunk]) {
    if (columnwise) tile.read_column(line, chunk_of_lane(), values);
    else RowReader<T>(tile, line, chunk_of_lane()).read(0, values);
}

// Returns the errors of the lane's chunk of a row or column. Out of line: few chunks need them.
template <bool squared, class T>
__device__ __noinline__ Errors tile_errors(const ChunkTile<T>& tile, bool columnwise, int line, Nvfp4Candidates candidates,
                                           const Nvfp4Global& global) {
    float values[kChunk];
    read_chunk(tile, columnwise, line, values);
    return chunk_errors<squared>(values, candidates, global);
}

// Adds errors over the lanes of a 16 x 16, of which each reads rows lane / 8 + 4 i.
__device__ __forceinline__ void add_across_square(Errors& errors) {
#pragma unroll
    for (int distance = 16; distance >= 8; distance /= 2) {
        errors.four = add_rn(errors.four, __shfl_xor_sync(kAllLanes, errors.four, distance));
        errors.six = add_rn(errors.six, __shfl_xor_sync(kAllLanes, errors.six, distance));
    }
}

// Returns the errors of a 16 x 16, added as a tree: i with i + 2 and then i + 1 in the lane, the rest across lanes.
template <bool squared, class T>
__device__ __forceinline__ Errors square_errors(const ChunkTile<T>& tile, const Nvfp4Candidates& candidates,
                                                const Nvfp4Global& global) {
    Errors sum{0, 0}, first{0, 0};
#pragma unroll 1
    for (int k = 0; k < kChunkSteps; k++) {
        const Errors errors = tile_errors<squared>(tile, false, row_of_step(k % 2 * 2 + k / 2), candidates, global);
        if (k % 2 == 0) {
            first = errors;
        } else {
            sum.four = add_rn(sum.four, add_rn(first.four, errors.four));
            sum.six = add_rn(sum.six, add_rn(first.six, errors.six));
        }
    }
    add_across_square(sum);
    return sum;
}

// Returns the better scale of the 16 x 16 that has this maximum.
template <bool squared, class T>
__device__ __forceinline__ uint32_t square_choice(const ChunkTile<T>& tile, float amax, const Nvfp4Global& global) {
    const Nvfp4Candidates candidates = fast_nvfp4_candidates(amax, global);
    const float unit = error_unit(global);
    const ErrorScale four = error_scale(candidates.four, nvfp4_multiplier(candidates.four, global), unit);
    const ErrorScale six = error_scale(candidates.six, nvfp4_multiplier(candidates.six, global), unit);
    const RowReader<T> rows(tile, row_of_step(0), chunk_of_lane());
    Errors sum{0, 0};
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        float values[kChunk];
        rows.read(row_of_step(i) - row_of_step(0), values);
        uint32_t codes[4];
        sum.four = add_rn(sum.four, error_estimate_16<squared>(values, four, codes));
        sum.six = add_rn(sum.six, error_estimate_16<squared>(values, six, codes));
    }
    add_across_square(sum);
    const bool clear = can_estimate(global) && can_estimate(amax, four, six) &&
                       estimates_decide<squared>(sum.four, sum.six, amax, kChunk);
    if (!__all_sync(kAllLanes, clear || amax == 0)) sum = square_errors<squared>(tile, candidates, global);
    return nvfp4_choice(candidates, sum.four, sum.six);
}

// Makes the NVFP4 scale of every 16 x 16, of which `amax` is the lane's: of its own cell of the warp's band. Parts with the
// same global maximum have the same scales. Calls look(part, scale) for every part. A barrier must follow.
template <Rounding rounding, class T, class Look>
__device__ __forceinline__ void put_nvfp4_cells(const QuantizeProblem& p, const ChunkTile<T>& tile, uint32_t amax,
                                                const Nvfp4Global (&globals)[2], uint8_t (&cells)[2][kCells],
                                                const Look& look) {
    const int cell = threadIdx.x / 32 * kSideChunks + chunk_of_lane();
    uint32_t scale = 0;
    float done_amax = 0;
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
        if (!has_part(p, part)) continue;
        const Nvfp4Global& global = globals[part];
        const bool done = part == 1 && p.has_rowwise && global.amax == done_amax;
        if (!is_four_over_six(rounding)) scale = nvfp4_scale(bits_float(amax), global);
        else if (!done) scale = square_choice<rounding == Rounding::FourOverSixMse>(tile, bits_float(amax), global);
        done_amax = global.amax;
        look(part, scale);
        if (threadIdx.x % 32 < kSideChunks) cells[part][cell] = uint8_t(scale);
    }
}

// Makes the scale of every 16 x 16 from its square tile's maximum, `length` a side: `amax` is that of the 16 x 16 of the
// warp's band and the lane's chunk. A barrier must follow.
__device__ __forceinline__ void put_mx_cells(const ScaleSteps& steps, int length, uint32_t amax,
                                             uint32_t (&maxima)[kCells], uint8_t (&cells)[2][kCells]) {
    const int band = threadIdx.x / 32, chunk = chunk_of_lane(), side = length / kChunk;
    if (threadIdx.x % 32 < kSideChunks) maxima[band * kSideChunks + chunk] = amax;
    __syncthreads();
    uint32_t largest = 0;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++)
            largest = max(largest, maxima[(band / side * side + i) * kSideChunks + chunk / side * side + j]);
    const uint32_t scale = scale_of(largest, steps);
    if (threadIdx.x % 32 < kSideChunks)
        cells[0][band * kSideChunks + chunk] = cells[1][band * kSideChunks + chunk] = uint8_t(scale);
}

// Returns eight codes of any values, packed, before any is masked.
__device__ __forceinline__ uint32_t nearest_codes(const float* values, float multiplier) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = encode_e2m1_floats(multiply_rn(values[2 * i], multiplier), multiply_rn(values[2 * i + 1], multiplier));
    return pack_nibble_pairs(pairs);
}

// Returns eight codes of any values under NVFP4's scale, packed.
__device__ __forceinline__ uint32_t nearest_nvfp4_codes(const float* values, uint32_t scale, const Nvfp4Global& global) {
    return nearest_codes(values, nvfp4_multiplier(scale, global)) & nvfp4_code_mask(scale);
}

// Returns the chunk's stochastic codes.
__device__ __forceinline__ uint2 stochastic_codes(const float (&values)[kChunk], float multiplier, const PhiloxWords& random) {
    return {stochastic_e2m1_codes(values, multiplier, random.words),
            stochastic_e2m1_codes(values + kChunk / 2, multiplier, random.words + 2)};
}

// Stores the first `bytes` of a chunk's eight.
__device__ __forceinline__ void store_chunk_codes(uint8_t* to, uint2 codes, int bytes, bool wide) {
    if (wide && bytes >= 8) {
        __stwb(reinterpret_cast<uint2*>(to), codes);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < bytes) to[i] = uint8_t((i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
}

// Stores a part's scale words, two a line.
__device__ __forceinline__ void store_scales(const QuantizedPart& part, const PartPlace& place,
                                             const uint32_t (&words)[kTile][2]) {
    store_scale_words<kChunkThreads, 2>(part, place, [&](int line, int i) { return words[line][i]; });
}

// Returns which byte of a line's scale words is the lane's; below 0 where another lane's stands for it.
__device__ __forceinline__ int scale_byte(const QuantizedPart& part) {
    const int shift = log2_of(uint32_t(part.layout.block) / kChunk), chunk = chunk_of_lane(), column = chunk >> shift;
    return column << shift == chunk ? column : -1;
}

__device__ __forceinline__ void put_scale(uint32_t (&words)[kTile][2], int line, int byte, uint32_t scale) {
    if (byte >= 0) reinterpret_cast<uint8_t*>(words[line])[byte] = uint8_t(scale);
}

// Returns, on the host, whether every line of an output, whose lines have no gaps, has whole chunks, which begin where all 8
// bytes can be stored at once.
inline bool is_wide_part(const QuantizedPart& part) {
    return is_aligned(part.codes, 8) && part.length % kChunk == 0;
}

}  // namespace mxq::cuda
