#include "kernels.hpp"

#include <algorithm>

#include "../common/cuda.hpp"

namespace {

constexpr int kThreads = 256, kMostFields = 4;

int64_t blocks_for(int64_t threads) { return (threads + kThreads - 1) / kThreads; }

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, cudaStream_t stream, Arguments... arguments) {
    if (blocks == 0) return;
    kernel<<<unsigned(blocks), unsigned(threads), 0, stream>>>(arguments...);
    check(cudaGetLastError());
}

__global__ void find_ranks_kernel(const int32_t* experts, int64_t tokens, int32_t top, int32_t own, int32_t most,
                                  int32_t* ranks) {
    const int64_t token = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (token >= tokens) return;
    for (int32_t found = 0, last = -1; found < most; ++found) {
        int32_t next = INT32_MAX;
        for (int32_t j = 0; j < top; ++j) {
            const int32_t expert = experts[token * top + j];
            if (expert >= 0 && expert / own > last) next = min(next, expert / own);
        }
        ranks[token * most + found] = next == INT32_MAX ? -1 : next;
        last = next;
    }
}

__global__ void find_places_kernel(const int32_t* ranks, const int32_t* rows, const int32_t* ends, int64_t pairs,
                                   int32_t most, int32_t capacity, Places places) {
    const int64_t pair = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (pair >= pairs) return;
    const int32_t rank = ranks[pair];
    const int32_t before = rank < 0 ? capacity : rows[pair] - (rank > 0 ? ends[rank - 1] : 0);
    const int32_t place = before < capacity ? rank * capacity + before : -1;
    places.place_of_row[pair] = place;
    if (place >= 0) places.token_of_place[place] = int32_t(pair / most);
}

struct Fields {
    Field field[kMostFields];
    int32_t count;
};

template <class Word>
__device__ void copy_words(const Field& field, int64_t from_row, int64_t to_row) {
    const auto* __restrict__ from =
        reinterpret_cast<const Word*>(static_cast<const char*>(field.from) + from_row * field.from_stride);
    auto* __restrict__ to = reinterpret_cast<Word*>(static_cast<char*>(field.to) + to_row * field.to_stride);
    const int words = int(field.bytes / int64_t(sizeof(Word)));
#pragma unroll 4
    for (int i = int(threadIdx.x); i < words; i += kThreads) to[i] = from[i];
}

__global__ void copy_fields_kernel(Fields fields, const int32_t* index) {
    const int64_t row = blockIdx.x, from_row = index ? index[row] : row;
    if (from_row < 0) return;
    for (int32_t f = 0; f < fields.count; ++f) {
        const Field& field = fields.field[f];
        const uint64_t all = reinterpret_cast<uint64_t>(field.from) | reinterpret_cast<uint64_t>(field.to) |
                             uint64_t(field.from_stride | field.to_stride | field.bytes);
        if (all % sizeof(uint4) == 0)
            copy_words<uint4>(field, from_row, row);
        else if (all % sizeof(uint32_t) == 0)
            copy_words<uint32_t>(field, from_row, row);
        else
            copy_words<uint8_t>(field, from_row, row);
    }
}

__device__ float sigmoid(float z) { return 1 / (1 + expf(-z)); }

// Eight numbers of a row, which a thread loads at once.
constexpr int kNumbers = 8;
union Vector {
    uint4 all;
    __nv_bfloat162 pairs[kNumbers / 2];
};

__global__ void activate_backward_kernel(const uint4* z, const uint4* dh, const float* weights, int64_t vectors, uint4* dz,
                                         uint4* h, float* weight_gradients) {
    __shared__ float sums[kThreads];
    const int64_t row = blockIdx.x;
    const float weight = weights[row];
    float sum = 0;
    const auto one = [&](float value, float gradient) {
        const float s = sigmoid(value), silu = value * s;
        sum += gradient * silu;
        return float2{weight * gradient * (s * (1 + value * (1 - s))), weight * silu};
    };
    for (int64_t i = row * vectors + threadIdx.x; i < (row + 1) * vectors; i += kThreads) {
        const Vector values{z[i]}, gradients{dh[i]};
        Vector of_z, of_h;
        for (int pair = 0; pair < kNumbers / 2; ++pair) {
            const float2 value = __bfloat1622float2(values.pairs[pair]),
                         gradient = __bfloat1622float2(gradients.pairs[pair]);
            const float2 first = one(value.x, gradient.x), second = one(value.y, gradient.y);
            of_z.pairs[pair] = __floats2bfloat162_rn(first.x, second.x);
            of_h.pairs[pair] = __floats2bfloat162_rn(first.y, second.y);
        }
        dz[i] = of_z.all, h[i] = of_h.all;
    }
    sums[threadIdx.x] = sum;
    for (int step = kThreads / 2; step > 0; step /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    }
    if (threadIdx.x == 0) weight_gradients[row] = sums[0];
}

__global__ void number_choices_kernel(const float* of_rows, const int32_t* choice_rows, int64_t choices, int32_t top,
                                      char* out, int64_t out_stride) {
    const int64_t choice = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (choice >= choices) return;
    const int32_t row = choice_rows[choice];
    reinterpret_cast<float*>(out + choice / top * out_stride)[choice % top] = row < 0 ? 0 : of_rows[row];
}

__global__ void fill_kernel(Numbers numbers, uint64_t first, int64_t count, bf16* out) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += int64_t(gridDim.x) * kThreads)
        out[i] = __float2bfloat16_rn(numbers(first + uint64_t(i)));
}

}  // namespace

void find_ranks(const int32_t* experts, int64_t tokens, int32_t top, int32_t own, int32_t most, int32_t* ranks,
                cudaStream_t stream) {
    launch(find_ranks_kernel, blocks_for(tokens), kThreads, stream, experts, tokens, top, own, most, ranks);
}

void find_places(const int32_t* ranks, const int32_t* rows, const int32_t* ends, int64_t tokens, int32_t most,
                 int32_t rank_count, int32_t capacity, const Places& places, cudaStream_t stream) {
    check(cudaMemsetAsync(places.token_of_place, 0xFF, size_t(rank_count) * size_t(capacity) * sizeof(int32_t), stream));
    launch(find_places_kernel, blocks_for(tokens * most), kThreads, stream, ranks, rows, ends, tokens * most, most, capacity,
           places);
}

void copy_fields(const std::vector<Field>& fields, const int32_t* index, int64_t rows, cudaStream_t stream) {
    Fields given{{}, int32_t(fields.size())};
    std::copy(fields.begin(), fields.end(), given.field);
    launch(copy_fields_kernel, rows, kThreads, stream, given, index);
}

void activate_backward(const bf16* z, const bf16* dh, const float* weights, int64_t rows, int64_t cols, bf16* dz, bf16* h,
                       float* weight_gradients, cudaStream_t stream) {
    launch(activate_backward_kernel, rows, kThreads, stream, reinterpret_cast<const uint4*>(z),
           reinterpret_cast<const uint4*>(dh), weights, cols / kNumbers, reinterpret_cast<uint4*>(dz),
           reinterpret_cast<uint4*>(h), weight_gradients);
}

void number_choices(const float* of_rows, const int32_t* choice_rows, int64_t tokens, int32_t top, void* out,
                    int64_t out_stride, cudaStream_t stream) {
    launch(number_choices_kernel, blocks_for(tokens * top), kThreads, stream, of_rows, choice_rows, tokens * top, top,
           static_cast<char*>(out), out_stride);
}

void fill(Numbers numbers, uint64_t first, int64_t count, bf16* out, cudaStream_t stream) {
    launch(fill_kernel, std::min<int64_t>(blocks_for(count), 8192), kThreads, stream, numbers, first, count, out);
}
