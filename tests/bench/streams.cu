// What a kernel can reach that moves bytes and does nothing else: the peers that a verb's share is told of.
//
//     block b, thread t: words b * 512 + t + {0, 256} of 16 bytes of each stream, all loaded before one is stored
//
// Loads and stores are plain. On an H200 (2026-11-23) ld.cs took the 2:1 stream from 1.03 of a copy to 0.85 to 0.91.
// With two words a thread 2:2 reaches 0.96 and 1:1 0.97.
#include "streams.h"

namespace {

constexpr int kThreads = 256, kWords = 2;

__device__ uint4 mixed(uint4 a, uint4 b) { return {a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w}; }

template <int reads, int writes>
__global__ void __launch_bounds__(kThreads) stream_pass(const uint4* from, uint4* to, size_t stream_words) {
    const size_t first = size_t(blockIdx.x) * (kThreads * kWords) + threadIdx.x;
    uint4 words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = from[first + i * kThreads];
    if constexpr (reads > 1) {
        uint4 more[kWords];
#pragma unroll
        for (int i = 0; i < kWords; ++i) more[i] = from[stream_words + first + i * kThreads];
#pragma unroll
        for (int i = 0; i < kWords; ++i) words[i] = mixed(words[i], more[i]);
    }
    if constexpr (writes == 0) {
        const uint4 all = mixed(words[0], words[1]);
        if ((all.x & all.y & all.z & all.w) == 0xFFFFFFFF) *to = all;  // next to never, but the compiler cannot know
    }
    if constexpr (writes > 0) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) to[first + i * kThreads] = words[i];
    }
    if constexpr (writes > 1) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) to[stream_words + first + i * kThreads] = words[i];
    }
}

__global__ void nothing() {}

using Kernel = void (*)(const uint4*, uint4*, size_t);

Kernel kernel_of(Mix mix) {
    if (mix.writes == 0) return stream_pass<1, 0>;
    if (mix.reads == 1) return mix.writes == 1 ? stream_pass<1, 1> : stream_pass<1, 2>;
    return mix.writes == 1 ? stream_pass<2, 1> : stream_pass<2, 2>;
}

}  // namespace

cudaError_t enqueue_stream_pass(Mix mix, const void* from, void* to, size_t stream_bytes, cudaStream_t stream) {
    const size_t words = stream_bytes / sizeof(uint4);
    const unsigned blocks = unsigned(words / (kThreads * kWords));
    kernel_of(mix)<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from), static_cast<uint4*>(to), words);
    return cudaGetLastError();
}

cudaError_t enqueue_nothing(cudaStream_t stream) {
    nothing<<<1, 32, 0, stream>>>();
    return cudaGetLastError();
}
