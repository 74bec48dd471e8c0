// Compiled alone, since it needs a GPU: an engine on a GPU around the fragments of docs/embedding.md.
#include <cuda_runtime_api.h>
#include <mxq/mxq.h>
#include <stdio.h>
#include <stdlib.h>

static void check(mxq_status status) {
    if (status) fprintf(stderr, "%s: %s\n", mxq_status_name(status), mxq_last_error()), exit(1);
}
static void cuda_check(cudaError_t error) {
    if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error)), exit(1);
}

void engine_layer(mxq_context* context, mxq_tensor* x, mxq_tensor* xq, mxq_tensor* w, mxq_tensor* y, int32_t* device_ends,
                  const int32_t* host_ends, int32_t experts, cudaStream_t stream, cudaStream_t other) {
    // page
}
