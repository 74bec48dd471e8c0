// How a warp stores rows that are not aligned: in aligned vectors, by way of shared memory. Where each lane stores its own
// elements, the 32 stores of an instruction lie a vector apart, and each sector of 32 bytes is written by as many
// instructions as the vector has elements.
//
//     lane      0               1               2                              0               1
//     has       e0 .. e7        e8 .. e15       e16 .. e23      stores         e5 .. e12       e13 .. e20      ..
//                                                               then, alone    e0 .. e4, and those behind the last vector
#pragma once
#include "cuda/memory/elements.cuh"

namespace mxq::cuda {

// One for each warp, in shared memory. A lane has a vector of a row.
template <class T>
struct SpreadStore {
    using Bits = StoredBits<T>;
    static constexpr int count = Vector<T>::count;
    alignas(16) Bits elements[32 * count];
    uint32_t beyond;  // read with the last elements, never stored

    // Stores what `row_lanes` neighbouring lanes, a power of two, have of a row. `to` is where the lane's first element
    // goes, `left` how many the row has from the first of the first lane on. All lanes of the warp call it.
    template <int row_lanes>
    __device__ __forceinline__ void store_rows(const Vector<T>& vector, T* to, int left) {
        const int lane = threadIdx.x % 32, in_row = lane % row_lanes;
        put(vector);
        const Bits* const from = elements + (lane - in_row) * count;
        auto* const row = reinterpret_cast<Bits*>(to) - in_row * count;
        const int end = min(left, row_lanes * count);
        const int before = -int(reinterpret_cast<uintptr_t>(row) / sizeof(T)) & (count - 1);
        const int first = before + in_row * count;
        if (first + count <= end) {
            const auto* const words = reinterpret_cast<const uint32_t*>(from) + first / vector.in_word;
            const uint32_t shift = uint32_t(first % vector.in_word) * 16;
            uint32_t whole[4];
#pragma unroll
            for (int w = 0; w < 4; w++)
                whole[w] = sizeof(T) == 4 ? words[w] : __funnelshift_r(words[w], words[w + 1], shift);
            __stwb(reinterpret_cast<uint4*>(row + first), make_uint4(whole[0], whole[1], whole[2], whole[3]));
        }
        if (in_row < min(before, end)) row[in_row] = from[in_row];
        const int behind = before + max(end - before, 0) / count * count + in_row;
        if (behind < end) row[behind] = from[behind];
        __syncwarp();
    }

private:
    __device__ __forceinline__ void put(const Vector<T>& vector) {
        auto* const mine = reinterpret_cast<uint32_t*>(elements + threadIdx.x % 32 * count);
#pragma unroll
        for (int w = 0; w < 4; w++) mine[w] = vector.words[w];
        __syncwarp();
    }
};

}  // namespace mxq::cuda
