// The way of requantize_wide for MXFP8 E4M3 to MXFP8 and FP8 with one scale for a line of the output, across the source's
// lines, in one kernel. A line of the output goes through all tiles above each other, a column. Each stays in shared memory
// until all of its column have raised the maxima of their lines, which are in global memory:
//
//     codes --a warp 32 lines--> F16 pairs over their units --> maxima of the tile --> maxima of the column
//     wait for the column --> scales --> what values are multiplied by --> codes               (wide_given.cuh)
//
// All blocks of threads run at once, and each takes the next tile, column after column, when it has the maxima of its last
// one. No column has more tiles than there are blocks: then those of the first column that still waits are all held, or some
// block does not wait and takes one, so that no block waits in vain.
//
// Bytes an element: 1.03 read, 1 written. Bound by memory, and by what columns wait (docs/performance.md).
#pragma once
#include "cuda/memory/magnitudes.cuh"
#include "cuda/requantize/wide_row.cuh"

namespace mxq::cuda {

struct WideColumnShared : WideRowShared {
    uint32_t next;  // which tile the block takes next

    // Returns where the maximum of a position is kept until there are multipliers: a lane has those of eight neighbours.
    __device__ __forceinline__ uint32_t& maximum(int position) {
        return reinterpret_cast<uint32_t*>(given)[position % 8 * 32 + position / 8];
    }
};

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Raises the maxima of the tile's positions by those of the warp's 32 lines, of which a lane has 16, and 16 positions;
// false: one of them may differ from what fp32 gives.
__device__ __forceinline__ bool raise_position_maxima(WideColumnShared& shared) {
    const int lane = threadIdx.x % 32, piece = lane % 16, upper = lane / 16, warp = threadIdx.x / 32,
              chunk = 2 * warp + upper;
    const uint4* const codes = &shared.codes[shared.slot(chunk * kChunk, piece)];
    const auto* const of_lines = reinterpret_cast<const uint4*>(shared.factors[piece / 2][chunk]);
    uint32_t maxima[kChunk / 2];  // of two neighbouring positions
#pragma unroll
    for (int eight = 0; eight < 2; eight++) {
        const uint4 of = of_lines[eight];
        const uint32_t factors[] = {of.x, of.y, of.z, of.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint4 four = codes[(eight * 8 + i) * shared.pieces];
            const uint32_t words[] = {four.x, four.y, four.z, four.w};
            const uint32_t factor = __byte_perm(factors[i / 2], 0, i % 2 == 0 ? 0x1010 : 0x3232);
#pragma unroll
            for (int w = 0; w < 4; w++) {
                uint32_t low, high;
                decode_word_to_f16<E4M3>(words[w], low, high);
                low = multiply_f16_pairs(low, factor), high = multiply_f16_pairs(high, factor);
                maxima[2 * w] = eight + i == 0 ? low : max_abs_f16_pairs(maxima[2 * w], low);
                maxima[2 * w + 1] = eight + i == 0 ? high : max_abs_f16_pairs(maxima[2 * w + 1], high);
            }
        }
    }
    // Two lanes have the 32 lines of a unit: each goes on with half of the positions.
    const WideUnit unit = shared.units[piece / 2][warp];
    bool sure = true;
#pragma unroll
    for (int i = 0; i < kChunk / 4; i++) {
        const uint32_t mine = upper ? maxima[i + 4] : maxima[i], others = upper ? maxima[i] : maxima[i + 4];
        const uint32_t pair = max_abs_f16_pairs(mine, __shfl_xor_sync(kAllLanes, others, 16));
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float over_unit = to_float(F16{uint16_t(pair >> (16 * k) & 0x7FFF)});
            const uint32_t largest = float_bits(multiply_rn(over_unit, unit.value));
            sure = sure && (unit.whole || over_unit >= WideSource<E4M3>::sure) && largest < kInfinityBits;
            atomicMax(&shared.maximum(piece * kChunk + upper * 8 + 2 * i + k), largest);
        }
    }
    return sure;
}

// Makes the maximum of the thread's position value by value. Out of line: few need it.
__device__ __noinline__ void make_any_position_maximum(const WideArguments& a, WideColumnShared& shared, Nonfinite policy) {
    const WidePlace place = shared.place;
    const int position = threadIdx.x;
    if (position >= place.length) return;
    const int64_t column = (place.position + position) / kMxBlock;
    uint32_t largest = 0;
#pragma unroll 1
    for (int line = 0; line < place.lines; line++) {
        const uint32_t code = *shared.byte(line, position);
        const uint32_t scale = a.from.scales[a.from.layout.offset(place.matrix, place.line + line, column)];
        const float value = multiply_rn(decode_pair<E4M3>(code).x, scale_value(scale));
        largest = max(largest, policy == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(value)
                                                             : amax_bits<Nonfinite::Propagate>(value));
    }
    shared.maximum(position) = largest;
}

// Makes the maxima of the tile's positions, for all threads.
__device__ __forceinline__ void make_position_maxima(const WideArguments& a, WideColumnShared& shared, Nonfinite policy) {
    if (!__syncthreads_or(!raise_position_maxima(shared))) return;
    make_any_position_maximum(a, shared, policy);
    __syncthreads();
}

// ---- Arrivals --------------------------------------------------------------------------------------------------------

// Counts the block of threads, whose threads have met, after all that they did in global memory.
__device__ __forceinline__ void arrive(uint32_t* arrivals) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
}

__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
    uint32_t word;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return word;
}

// Waits until so many blocks have arrived, and shows what they did before.
__device__ __forceinline__ void wait_for_arrivals(const uint32_t* arrivals, uint32_t count) {
    while (load_relaxed(arrivals) < count) {
    }
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// ---- Columns ---------------------------------------------------------------------------------------------------------

// Raises the maxima of a column by those of a tile, waits until all of its tiles have, and returns that of the thread's
// position.
__device__ __forceinline__ uint32_t maximum_of_column(const WideArguments& a, const WidePlace& place,
                                                      WideColumnShared& shared) {
    const int position = threadIdx.x;
    float* const maximum = a.maxima + place.matrix * a.to.lines + place.position + position;
    uint32_t* const arrivals = a.arrivals + place.matrix * a.across + place.position / kWide;
    const bool exists = position < place.length;
    if (exists) take_larger(maximum, shared.maximum(position));
    __syncthreads();
    if (position == 0) {  // alone: where all threads asked, the L2 was busy with their questions
        arrive(arrivals);
        wait_for_arrivals(arrivals, a.down);
    }
    __syncthreads();
    return exists ? load_relaxed(reinterpret_cast<const uint32_t*>(maximum)) : 0;
}

template <class Scales>
__global__ void __launch_bounds__(kWideThreads, kWideBlocks)
    requantize_wide_columns_kernel(const __grid_constant__ WideArguments a) {
    alignas(128) extern __shared__ uint4 wide_memory[];
    auto& shared = *reinterpret_cast<WideColumnShared*>(wide_memory);
    const uint32_t of_matrix = a.across * a.down, tiles = uint32_t(a.from.matrices) * of_matrix;
    uint32_t* const taken = a.arrivals + a.from.matrices * a.across;
#pragma unroll 1
    for (uint32_t number = blockIdx.x; number < tiles;) {
        const uint32_t matrix = number / of_matrix, in_matrix = number - matrix * of_matrix, before = in_matrix / a.down;
        const WidePlace place(a, WideIndex{matrix, in_matrix - before * a.down, before});  // column after column
        if (threadIdx.x == 0) shared.place = place;
        shared.maximum(threadIdx.x) = 0;
        copy_wide_codes(a, place, shared);
        put_wide_units<typename Scales::From>(place, load_scales_of_line(a, place), shared);
        wait_for_pieces();
        __syncthreads();
        make_position_maxima(a, shared, Scales::policy(a));
        make_row_scale<Scales>(a, maximum_of_column(a, place, shared), shared);
        if (threadIdx.x == 0) shared.next = gridDim.x + atomicAdd(taken, 1);
        __syncthreads();
        number = shared.next;
        emit_wide_row<Scales>(a, place, shared);
        __syncthreads();  // the tile is no longer read
    }
}

}  // namespace mxq::cuda
