// How a warp stores rows that are not aligned: neighbouring lanes neighbouring elements, by way of shared memory. Where each
// lane stores its own vector, the 32 stores of an instruction lie a vector apart, and each sector of 32 bytes is written by as
// many instructions as the vector has elements.
//
//     lane      0               1               2                           0   1   2   3
//     has       e0 .. e7        e8 .. e15       e16 ..        stores  e0  e1  e2  e3 ..     then  e32 e33 e34 ..
//                                                          or words   e0  e1 e2  e3 e4 ..   then  e65 e66 ..
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

    // Stores what `row_lanes` neighbouring lanes, a power of two, have of a row. `to` is where the lane's first element goes,
    // `left` how many the row has from the first of the first lane on. All lanes of the warp call it.
    __device__ __forceinline__ void store(const Vector<T>& vector, T* to, int left, int row_lanes) {
        const int lane = threadIdx.x % 32, in_row = lane & (row_lanes - 1);
        put(vector);
        const Bits* const from = elements + (lane - in_row) * count;
        auto* const row = reinterpret_cast<Bits*>(to) - in_row * count;
#pragma unroll
        for (int j = 0; j < count; j++) {
            const int element = j * row_lanes + in_row;
            if (element < left) row[element] = from[element];
        }
        __syncwarp();
    }

    // Stores the same row by row, all lanes together, and elements of 16 bits in aligned words: where the row begins between
    // two words, its first element leaves alone. Faster where a warp has two rows.
    template <int row_lanes>
    __device__ __forceinline__ void store_rows(const Vector<T>& vector, T* to, int left) {
        const int lane = threadIdx.x % 32;
        put(vector);
        const auto first = reinterpret_cast<uint64_t>(reinterpret_cast<Bits*>(to) - lane % row_lanes * count);
#pragma unroll
        for (int of = 0; of < 32; of += row_lanes) {
            auto* const row = reinterpret_cast<Bits*>(__shfl_sync(kAllLanes, first, of));
            store_row<row_lanes * count>(elements + of * count, row, min(__shfl_sync(kAllLanes, left, of), row_lanes * count));
        }
        __syncwarp();
    }

private:
    __device__ __forceinline__ void put(const Vector<T>& vector) {
        auto* const mine = reinterpret_cast<uint32_t*>(elements + threadIdx.x % 32 * count);
#pragma unroll
        for (int w = 0; w < 4; w++) mine[w] = vector.words[w];
        __syncwarp();
    }
    template <int most>
    static __device__ __forceinline__ void store_row(const Bits* from, Bits* row, int left) {
        const int lane = threadIdx.x % 32;
        if constexpr (sizeof(Bits) == 4) {
#pragma unroll
            for (int i = lane; i < most; i += 32)
                if (i < left) row[i] = from[i];
        } else {
            const int single = int(reinterpret_cast<uintptr_t>(row) % 4 / 2);  // elements before the first whole word
            const auto* const words = reinterpret_cast<const uint32_t*>(from);
            if (lane < single && left > 0) row[0] = from[0];
#pragma unroll
            for (int word = lane; word < most / 2; word += 32) {
                const int element = 2 * word + single;
                const uint32_t pair = __funnelshift_r(words[word], words[word + 1], single * 16);
                if (element + 1 < left) *reinterpret_cast<uint32_t*>(row + element) = pair;
                else if (element < left) row[element] = Bits(pair);
            }
        }
    }
};

}  // namespace mxq::cuda
