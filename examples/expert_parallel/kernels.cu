#include "kernels.hpp"

#include <algorithm>

#include "../common/cuda.hpp"

namespace {

constexpr int kThreads = 256, kSlotThreads = 1024;

int64_t blocks_for(int64_t threads) { return (threads + kThreads - 1) / kThreads; }

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, cudaStream_t stream, Arguments... arguments) {
    if (blocks == 0) return;
    kernel<<<unsigned(blocks), unsigned(threads), 0, stream>>>(arguments...);
    check(cudaGetLastError());
}

// Returns how many threads of the block before this one have `mine`, and in *all how many there are. All threads call it.
__device__ int32_t rank_in_block(bool mine, int32_t* all) {
    constexpr unsigned warps = kSlotThreads / 32;
    __shared__ int32_t counts[warps];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, votes = __ballot_sync(~0u, mine);
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    int32_t before = __popc(votes & ((1u << lane) - 1)), sum = 0;
    for (unsigned w = 0; w < warps; ++w) {
        if (w < warp) before += counts[w];
        sum += counts[w];
    }
    __syncthreads();
    *all = sum;
    return before;
}

// Goes through all slots, a block for each expert, and calls found(slot, how many of the expert's came before).
template <class Found>
__device__ int32_t each_slot(const Choices& choices, Found found) {
    int32_t total = 0;
    for (int64_t first = 0; first < choices.tokens * choices.top; first += kSlotThreads) {
        const int64_t slot = first + threadIdx.x;
        const bool mine = slot < choices.tokens * choices.top && choices.experts[slot] == int32_t(blockIdx.x);
        int32_t all = 0;
        const int32_t before = rank_in_block(mine, &all);
        if (mine) found(slot, total + before);
        total += all;
    }
    return total;
}

__global__ void count_kernel(Choices choices, int32_t* counts) {
    const int32_t total = each_slot(choices, [](int64_t, int32_t) {});
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

__global__ void place_kernel(Choices choices, const int32_t* counts, int32_t capacity, int32_t* row_of_slot,
                             int32_t* slot_of_row) {
    int32_t first_row = int32_t(blockIdx.x) * capacity;
    if (capacity == 0)
        for (unsigned e = 0; e < blockIdx.x; ++e) first_row += counts[e];
    each_slot(choices, [&](int64_t slot, int32_t before) {
        if (capacity > 0 && before >= capacity) return;
        row_of_slot[slot] = first_row + before;
        slot_of_row[first_row + before] = int32_t(slot);
    });
}

__global__ void ends_kernel(const int32_t* counts, int32_t ranks, int32_t expert_count, int32_t first, int32_t own,
                            int32_t* ends) {
    int32_t end = 0;
    for (int32_t e = 0; e < own; ++e) {
        for (int32_t rank = 0; rank < ranks; ++rank) end += counts[rank * expert_count + first + e];
        ends[e] = end;
    }
}

template <class Word>
__global__ void order_kernel(const Word* from, const int32_t* slot_of_row, int32_t divisor, int64_t row_words, Word* to) {
    const int64_t row = blockIdx.x;
    const int32_t slot = slot_of_row[row];
    for (int64_t i = threadIdx.x; i < row_words; i += blockDim.x)
        to[row * row_words + i] = slot < 0 ? Word{} : from[slot / divisor * row_words + i];
}

template <class Word>
void order_words(const void* from, const int32_t* slot_of_row, int32_t divisor, int64_t rows, int64_t row_bytes, void* to,
                 cudaStream_t stream) {
    const int64_t words = row_bytes / int64_t(sizeof(Word));
    const auto threads = int(std::clamp<int64_t>((words + 31) / 32 * 32, 32, kThreads));
    launch(order_kernel<Word>, rows, threads, stream, static_cast<const Word*>(from), slot_of_row, divisor, words,
           static_cast<Word*>(to));
}

__device__ float sigmoid(float z) { return 1 / (1 + expf(-z)); }

__global__ void activate_kernel(const bf16* z, const float* weights, int64_t cols, bf16* h) {
    const int64_t row = blockIdx.x;
    for (int64_t i = row * cols + threadIdx.x; i < (row + 1) * cols; i += kThreads) {
        const float value = __bfloat162float(z[i]);
        h[i] = __float2bfloat16_rn(weights[row] * (value * sigmoid(value)));
    }
}

__global__ void activate_backward_kernel(const bf16* z, const bf16* dh, const float* weights, int64_t cols, bf16* dz,
                                         float* weight_gradients) {
    __shared__ float sums[kThreads];
    const int64_t row = blockIdx.x;
    float sum = 0;
    for (int64_t i = row * cols + threadIdx.x; i < (row + 1) * cols; i += kThreads) {
        const float value = __bfloat162float(z[i]), gradient = __bfloat162float(dh[i]), s = sigmoid(value);
        sum += gradient * (value * s);
        dz[i] = __float2bfloat16_rn(weights[row] * gradient * (s * (1 + value * (1 - s))));
    }
    sums[threadIdx.x] = sum;
    for (int step = kThreads / 2; step > 0; step /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    }
    if (threadIdx.x == 0) weight_gradients[row] = sums[0];
}

__global__ void combine_kernel(const __nv_bfloat162* rows, const int32_t* row_of_slot, int32_t top, int64_t pairs,
                               __nv_bfloat162* out) {
    const int64_t token = blockIdx.x;
    for (int64_t i = threadIdx.x; i < pairs; i += kThreads) {
        float2 sum{0, 0};
        for (int32_t j = 0; j < top; ++j) {
            const int32_t row = row_of_slot[token * top + j];
            if (row < 0) continue;
            const float2 value = __bfloat1622float2(rows[row * pairs + i]);
            sum.x += value.x;
            sum.y += value.y;
        }
        out[token * pairs + i] = __float22bfloat162_rn(sum);
    }
}

__global__ void return_kernel(const float* of_rows, const int32_t* row_of_slot, int64_t slots, float* of_slots) {
    const int64_t slot = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (slot < slots) of_slots[slot] = row_of_slot[slot] < 0 ? 0 : of_rows[row_of_slot[slot]];
}

__global__ void fill_kernel(Numbers numbers, uint64_t first, int64_t count, bf16* out) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += int64_t(gridDim.x) * kThreads)
        out[i] = __float2bfloat16_rn(numbers(first + uint64_t(i)));
}

}  // namespace

void count_slots(const Choices& choices, int32_t* counts, cudaStream_t stream) {
    launch(count_kernel, choices.expert_count, kSlotThreads, stream, choices, counts);
}

void place_slots(const Choices& choices, const int32_t* counts, int32_t capacity, int64_t rows, int32_t* row_of_slot,
                 int32_t* slot_of_row, cudaStream_t stream) {
    check(cudaMemsetAsync(row_of_slot, 0xFF, size_t(choices.slots()) * sizeof(int32_t), stream));
    check(cudaMemsetAsync(slot_of_row, 0xFF, size_t(rows) * sizeof(int32_t), stream));
    launch(place_kernel, choices.expert_count, kSlotThreads, stream, choices, counts, capacity, row_of_slot, slot_of_row);
}

void group_ends(const int32_t* counts, int32_t ranks, int32_t expert_count, int32_t first, int32_t own, int32_t* ends,
                cudaStream_t stream) {
    launch(ends_kernel, 1, 1, stream, counts, ranks, expert_count, first, own, ends);
}

void order_rows(const void* from, const int32_t* slot_of_row, int32_t divisor, int64_t rows, int64_t row_bytes, void* to,
                cudaStream_t stream) {
    if (row_bytes % int64_t(sizeof(uint4)) == 0)
        order_words<uint4>(from, slot_of_row, divisor, rows, row_bytes, to, stream);
    else
        order_words<uint32_t>(from, slot_of_row, divisor, rows, row_bytes, to, stream);
}

void activate(const bf16* z, const float* weights, int64_t rows, int64_t cols, bf16* h, cudaStream_t stream) {
    launch(activate_kernel, rows, kThreads, stream, z, weights, cols, h);
}

void activate_backward(const bf16* z, const bf16* dh, const float* weights, int64_t rows, int64_t cols, bf16* dz,
                       float* weight_gradients, cudaStream_t stream) {
    launch(activate_backward_kernel, rows, kThreads, stream, z, dh, weights, cols, dz, weight_gradients);
}

void combine(const bf16* rows, const int32_t* row_of_slot, int64_t tokens, int32_t top, int64_t cols, bf16* out,
             cudaStream_t stream) {
    launch(combine_kernel, tokens, kThreads, stream, reinterpret_cast<const __nv_bfloat162*>(rows), row_of_slot, top,
           cols / 2, reinterpret_cast<__nv_bfloat162*>(out));
}

void return_numbers(const float* of_rows, const int32_t* row_of_slot, int64_t slots, float* of_slots, cudaStream_t stream) {
    launch(return_kernel, blocks_for(slots), kThreads, stream, of_rows, row_of_slot, slots, of_slots);
}

void fill(Numbers numbers, uint64_t first, int64_t count, bf16* out, cudaStream_t stream) {
    launch(fill_kernel, std::min<int64_t>(blocks_for(count), 8192), kThreads, stream, numbers, first, count, out);
}
