// Bare passes over device memory, and a kernel that does nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "device.h"

// Reads mix.reads streams of stream_bytes that follow one another in `from`, and writes mix.writes of them into `to`.
// stream_bytes is a multiple of 8 KiB.
cudaError_t enqueue_stream_pass(Mix mix, const void* from, void* to, size_t stream_bytes, cudaStream_t stream);

cudaError_t enqueue_nothing(cudaStream_t stream);
