// Rows by index: where a row of a plain matrix is stored.
#pragma once
#include "core/problem.h"

namespace mxq::cuda {

// Returns the stored row of a row by index, or -1 for a row of zeros.
__device__ __forceinline__ int64_t source_row(const RowIndices& by, int64_t row) {
    const int64_t index = by.type == MXQ_TYPE_INT32 ? __ldg(static_cast<const int32_t*>(by.indices) + row)
                                                    : __ldg(static_cast<const int64_t*>(by.indices) + row);
    return index >= 0 && index < by.source_rows ? index : -1;
}

// The accesses of a lane (memory/segments.cuh) in rows by index. Those in a row of zeros do not exist.
template <class R, int n>
struct IndexedRequests {
    const R& requests;
    int64_t sources[n];  // of each request

    __device__ __forceinline__ IndexedRequests(const R& requests, const RowIndices& by) : requests(requests) {
#pragma unroll
        for (int i = 0; i < n; i++) {
            const bool is_new = i == 0 || requests.row_step != 0;
            sources[i] = !is_new              ? sources[0]
                         : requests.exists(i) ? source_row(by, requests.line + i * requests.row_step)
                                              : -1;
        }
    }
    __device__ __forceinline__ bool exists(int i) const { return requests.exists(i) && sources[i] >= 0; }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const {
        return sources[i] * stride + requests.column + i * requests.column_step;
    }
};

}  // namespace mxq::cuda
