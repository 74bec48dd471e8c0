// Computes on the host, in the plainest way, what the kernels of examples/expert_parallel do on a device.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "kernels.hpp"

void find_ranks(const int32_t* experts, int64_t tokens, int32_t top, int32_t own, int32_t most, int32_t* ranks,
                cudaStream_t) {
    std::fill(ranks, ranks + tokens * most, -1);
    for (int64_t token = 0; token < tokens; ++token) {
        std::set<int32_t> found;
        for (int32_t j = 0; j < top; ++j)
            if (experts[token * top + j] >= 0) found.insert(experts[token * top + j] / own);
        std::copy(found.begin(), found.end(), ranks + token * most);
    }
}

void find_places(const int32_t* ranks, const int32_t*, const int32_t*, int64_t tokens, int32_t most, int32_t rank_count,
                 int32_t capacity, const Places& places, cudaStream_t) {
    std::fill(places.token_of_place, places.token_of_place + int64_t(rank_count) * capacity, -1);
    std::vector<int32_t> taken(static_cast<size_t>(rank_count));
    for (int64_t pair = 0; pair < tokens * most; ++pair) {
        places.place_of_row[pair] = -1;
        if (ranks[pair] < 0 || taken[size_t(ranks[pair])] == capacity) continue;
        const int32_t place = ranks[pair] * capacity + taken[size_t(ranks[pair])]++;
        places.place_of_row[pair] = place;
        places.token_of_place[place] = int32_t(pair / most);
    }
}

void copy_fields(const std::vector<Field>& fields, const int32_t* index, int64_t rows, cudaStream_t) {
    for (const Field& field : fields)
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t from = index ? index[row] : row;
            if (from >= 0)
                std::memcpy(static_cast<std::byte*>(field.to) + row * field.to_stride,
                            static_cast<const std::byte*>(field.from) + from * field.from_stride, size_t(field.bytes));
        }
}

void activate_backward(const bf16* z, const bf16* dh, const float* weights, int64_t rows, int64_t cols, bf16* dz, bf16* h,
                       float* weight_gradients, cudaStream_t) {
    std::fill(weight_gradients, weight_gradients + rows, 0.0f);
    for (int64_t i = 0; i < rows * cols; ++i) {
        const float value = __bfloat162float(z[i]), gradient = __bfloat162float(dh[i]), s = 1 / (1 + std::exp(-value));
        weight_gradients[i / cols] += gradient * value * s;
        dz[i] = __float2bfloat16_rn(weights[i / cols] * gradient * (s * (1 + value * (1 - s))));
        h[i] = __float2bfloat16_rn(weights[i / cols] * (value * s));
    }
}

void number_choices(const float* of_rows, const int32_t* choice_rows, int64_t tokens, int32_t top, void* out,
                    int64_t out_stride, cudaStream_t) {
    for (int64_t choice = 0; choice < tokens * top; ++choice) {
        auto* to = reinterpret_cast<float*>(static_cast<std::byte*>(out) + choice / top * out_stride);
        to[choice % top] = choice_rows[choice] < 0 ? 0 : of_rows[choice_rows[choice]];
    }
}

void fill(Numbers numbers, uint64_t first, int64_t count, bf16* out, cudaStream_t) {
    for (int64_t i = 0; i < count; ++i) out[i] = __float2bfloat16_rn(numbers(first + uint64_t(i)));
}
