// The way of requantize_wide for MXFP8 to MXFP8 and FP8 with one scale for a line of the output, across the source's
// lines: the maxima of all lines come from a kernel before (quantize/amax_codes.cu), beside whose last blocks these start.
// Fewer lines of the source take one kernel: wide_columns.cuh.
//
//     maxima --a line of the output, a thread each--> scales --> what values are multiplied by --> codes   (wide_given.cuh)
//
// Zeros, whose line has scale 0 if there is nothing else, are taken times 0.
// Bytes an element: 2.06 read, half of them by the kernel before, and 1 written.
#pragma once
#include "cuda/memory/beside.cuh"
#include "cuda/requantize/wide_given.cuh"

namespace mxq::cuda {

struct WideRowShared : WideGivenTile {
    alignas(8) uint32_t to_scales[kWide][2];  // of MX: the scale of a line, in each byte; of FP8 its bits
    alignas(16) float multipliers[kWide];     // of a line's values
    alignas(16) float given[kWide];           // multipliers, but 0 of a line of zeros, NaN of one that F16 does not serve
};

// Makes the scale of the thread's line of the output from its maximum. A barrier must follow.
template <class Scales>
__device__ __forceinline__ void make_row_scale(const WideArguments& a, uint32_t largest, WideRowShared& shared) {
    const int line = threadIdx.x;
    float multiplier;
    const uint32_t scale = Scales::scale(a, largest, multiplier);
    shared.to_scales[line][0] = shared.to_scales[line][1] = Scales::is_byte ? scale * 0x01010101u : scale;
    shared.multipliers[line] = multiplier;
    const float number = largest < kInfinityBits ? multiplier : bits_float(kNanBits);
    shared.given[line] = largest == 0 ? 0.0f : number;
}

// Stores the scales of the output's lines: swizzled those at the columns of the tile, compact by the first tile of each line.
template <class Scales>
__device__ __forceinline__ void store_row_scales(const WideArguments& a, const WidePlace& place,
                                                 const WideRowShared& shared) {
    if (a.to.layout.swizzled) return store_wide_scales(a, place, shared);
    const int line = threadIdx.x;
    if (place.line != 0 || line >= place.length) return;
    Scales::store(a.to, a.to.layout.offset(place.matrix, place.position + line, 0), false, shared.to_scales[line][0]);
}

// Makes and stores codes and scales once all threads see what these are made of.
template <class Scales>
__device__ __forceinline__ void emit_wide_row(const WideArguments& a, const WidePlace& place, const WideRowShared& shared) {
    const auto given = [&](int, int first) { return *reinterpret_cast<const float4*>(&shared.given[first]); };
    const auto exact = [&](int, int first) { return *reinterpret_cast<const float4*>(&shared.multipliers[first]); };
    emit_wide_given<Scales>(a, place, shared, given, exact);
    store_row_scales<Scales>(a, place, shared);
}

template <class Scales>
__global__ void __launch_bounds__(kWideThreads, kWideBlocks)
    requantize_wide_row_kernel(const __grid_constant__ WideArguments a) {
    alignas(128) extern __shared__ uint4 wide_memory[];
    auto& shared = *reinterpret_cast<WideRowShared*>(wide_memory);
    const WidePlace place = given_tile(a, shared);
    if (!place.exists(a)) return wait_for_previous_kernel();
    copy_wide_codes(a, place, shared);
    put_wide_units<typename Scales::From>(place, load_scales_of_line(a, place), shared);
    wait_for_previous_kernel();  // which makes the maxima
    const float* const maxima = a.maxima + place.matrix * a.to.lines + place.position;
    make_row_scale<Scales>(a, int(threadIdx.x) < place.length ? float_bits(maxima[threadIdx.x]) : 0, shared);
    wait_for_pieces();
    __syncthreads();
    emit_wide_row<Scales>(a, place, shared);
}

}  // namespace mxq::cuda
