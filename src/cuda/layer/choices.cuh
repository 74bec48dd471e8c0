// Eight columns of a row for each thread, of rows of choices, tokens and residuals, and the weights of choices.
#pragma once
#include "core/layer_problem.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/plain_elements.cuh"

namespace mxq::cuda {

constexpr int kNumbers = 8;  // of a thread

// Eight columns of a row, as they are stored.
template <class T>
struct Numbers {
    static constexpr int count = Vector<T>::count;
    Vector<T> vectors[kNumbers / count];

    __device__ __forceinline__ float operator[](int i) const { return vectors[i / count][i % count]; }
};

// Loads eight columns, `step` apart unless they are whole vectors ("wide"); none where the row does not exist. `left`
// columns exist from `from` on.
template <class T, int step>
__device__ __forceinline__ Numbers<T> load_numbers(const T* from, bool exists, bool wide, int64_t left) {
    constexpr int count = Vector<T>::count, in_word = Vector<T>::in_word;
    Numbers<T> numbers{};
#pragma unroll
    for (int v = 0; v < kNumbers / count; v++) {
        if (wide) {
            numbers.vectors[v] = load_vector_wide(from + v * count, exists && left > 0);
            continue;
        }
        const auto* const bits = reinterpret_cast<const StoredBits<T>*>(from);
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int64_t at = (v * count + i) * step;
            if (exists && at < left)
                numbers.vectors[v].words[i / in_word] |= uint32_t(bits[at]) << (i % in_word * Vector<T>::element_bits);
        }
    }
    return numbers;
}

template <class T, int step>
__device__ __forceinline__ void store_numbers(const float (&values)[kNumbers], T* to, bool wide, int64_t left) {
    if (wide) {
        if (left > 0) store_values(values, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < kNumbers; i++)
        if (i * step < left) to[i * step] = from_float<T>(values[i]);
}

template <class T>
__device__ __forceinline__ const T* row_of(const PlainMatrix& matrix, int64_t row, int64_t col) {
    return static_cast<const T*>(matrix.data) + row * matrix.row_stride + col;
}

// Returns the sum of the partial sums of a warp, as a tree: those of 128 columns apart, then of 64, ..., 1.
__device__ __forceinline__ float sum_tree(float (&sums)[kNumbers]) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
        for (float& sum : sums) sum = add_rn(sum, __shfl_down_sync(kAllLanes, sum, distance));
#pragma unroll
    for (int distance = kNumbers / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int i = 0; i < distance; i++) sums[i] = add_rn(sums[i], sums[i + distance]);
    return sums[0];
}

// Returns whether rows are read and written in whole vectors of eight columns.
inline bool has_whole_numbers(const PlainMatrix& matrix) { return matrix.cols % kNumbers == 0 && is_wide(matrix); }

// Returns the expert of this rank that an id names, or -1 where the choice is dropped.
__device__ __forceinline__ int32_t expert_of_id(int64_t id, int32_t first, int32_t count) {
    const uint64_t local = uint64_t(id) - uint64_t(int64_t(first));
    return local < uint64_t(count) ? int32_t(local) : -1;
}

__device__ __forceinline__ int64_t load_id(const void* ids, int32_t type, int64_t choice) {
    return type == MXQ_TYPE_INT32 ? int64_t(__ldg(static_cast<const int32_t*>(ids) + choice))
                                  : __ldg(static_cast<const int64_t*>(ids) + choice);
}

__device__ __forceinline__ float load_weight(const ChoiceWeights& weights, int64_t choice) {
    if (!weights.set()) return 1.0f;
    return weights.format == MXQ_FORMAT_F32 ? __ldg(static_cast<const float*>(weights.values) + choice)
                                            : to_float(static_cast<const Bf16*>(weights.values)[choice]);
}

}  // namespace mxq::cuda
