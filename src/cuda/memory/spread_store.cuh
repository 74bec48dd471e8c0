// How a warp stores rows that are not aligned, element by element: neighbouring lanes neighbouring elements, by way of shared
// memory. Where each lane stores its own vector, the 32 stores of an instruction lie a vector apart, and each sector of 32
// bytes is written by as many instructions as the vector has elements.
//
//     lane      0               1               2                           0   1   2   3
//     has       e0 .. e7        e8 .. e15       e16 ..        stores  e0  e1  e2  e3 ..     then  e32 e33 e34 ..
#pragma once
#include "cuda/memory/elements.cuh"

namespace mxq::cuda {

// One for each warp, in shared memory. A lane has a vector of a row.
template <class T>
struct SpreadStore {
    static constexpr int count = Vector<T>::count;
    alignas(16) StoredBits<T> elements[32 * count];

    // Stores what `row_lanes` neighbouring lanes, a power of two, have of a row. `to` is where the lane's first element goes,
    // `left` how many the row has from the first of the first lane on. All lanes of the warp call it.
    __device__ __forceinline__ void store(const Vector<T>& vector, T* to, int left, int row_lanes) {
        const int lane = threadIdx.x % 32, in_row = lane & (row_lanes - 1);
        auto* const mine = reinterpret_cast<uint32_t*>(elements + lane * count);
#pragma unroll
        for (int w = 0; w < 4; w++) mine[w] = vector.words[w];
        __syncwarp();
        const StoredBits<T>* const from = elements + (lane - in_row) * count;
        auto* const row = reinterpret_cast<StoredBits<T>*>(to) - in_row * count;
#pragma unroll
        for (int j = 0; j < count; j++) {
            const int element = j * row_lanes + in_row;
            if (element < left) row[element] = from[element];
        }
        __syncwarp();
    }
};

}  // namespace mxq::cuda
