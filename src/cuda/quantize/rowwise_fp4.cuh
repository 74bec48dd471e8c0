// The kernel of quantize_rowwise for MXFP4 and NVFP4: the rowwise part alone of aligned BF16, rounded to nearest. A request
// of a warp is 256 elements of a row, so that codes leave as 128 contiguous bytes.
//
// A warp makes four requests of 16 bytes a lane, 256 neighbouring elements each. They lie
//
//     flat   one after another, where the tensor and its compact scales are contiguous: the tensor is one row
//     tiles  in the same 256 columns, one row each, 32 rows apart: the scale words of a warp are neighbours in a swizzled tile.
//            A thread block has neighbouring rows of one matrix or group
//
//                           256 columns            swizzled tile of the first 128 (MX) or 64 (NVFP4), 4 bytes a row
//              row r          [request 0]            ... | r    r + 32    r + 64    r + 96 | r + 1    r + 33 ...
//              row r + 32     [request 1]
//
//     maxima   two requests to a word. The lanes of a block exchange them so that each has the maxima of one request
//              (blocks of 16: of two), and makes its scale
//     codes    a vector's eight are a word
//
// The thread block makes a table of NVFP4 multipliers while loads are in flight. A warp whose blocks are not all plain
// (fp4_pairs.cuh) takes a slower path. Rows that pad a group are zeros that are not loaded. Bytes an element: 2 read, 0.53
// or 0.56 written. Bound by memory.
#pragma once
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/row_tiles.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/quantize/fp4_pair_codes.cuh"

namespace mxq::cuda::rowwise_fp4 {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRequests = 4;
constexpr int kCount = Vector<Bf16>::count, kRequest = 32 * kCount, kWarpElements = kRequests * kRequest;
constexpr int kRowStep = kSwizzleRows / kRequests;  // tiles: from request to request
constexpr int kTileShares = kRowStep / kWarps;      // tiles: thread blocks of 128 rows

struct Arguments {
    const Bf16* in;
    uint8_t *codes, *scales;
    int64_t elements;                              // of all rows
    int64_t row_stride, line_bytes, scale_stride;  // from a row to the next
    uint32_t cols, tile_words;                     // of swizzled tiles, in 128 rows
    bool swizzled;
    bool saturates;     // MX: a maximum ignores NaN
    bool plain;         // MXFP4: codes need no clamping
    int32_t scale_max;  // NVFP4
    ScaleSteps steps;   // MX
    const float* amax;  // NVFP4
    int32_t scope_stride;
    RowTiles tiles;  // of 128 rows
};

// The four vectors of a lane, where their codes go, and the scale word that the lane stores: of the lanes of a word each of
// the first four stores that of one request.
template <int block, bool flat>
struct Requests {
    static constexpr int block_lanes = block / kCount, word_lanes = 4 * block_lanes;

    const Bf16* in;
    uint8_t *codes, *scale_word;
    int64_t in_step, code_step;  // from a request to the next
    int existing, stored;        // requests with elements; with codes, padding included
    int scale_bytes;             // of the word

    // Describes the requests of warp `task` of all.
    __device__ __forceinline__ Requests(const Arguments& a, int64_t task) requires flat
        : in_step(kRequest), code_step(kRequest / 2) {
        const int lane = threadIdx.x % 32, request = word_request();
        const int left = int(max(min(a.elements - task * kWarpElements, int64_t(kWarpElements)), int64_t(0)));
        in = a.in + task * kWarpElements + lane * kCount;
        codes = a.codes + task * (kWarpElements / 2) + lane * (kCount / 2);
        existing = stored = (left - lane * kCount + kRequest - 1) / kRequest;
        scale_word = a.scales + task * (kWarpElements / block) + lane / word_lanes * 4 + request * (kRequest / block);
        scale_bytes = stores_word() ? scales_of_word(left - request * kRequest) : 0;
    }
    // Describes those from row `in_tile` of a tile and column `first` on.
    __device__ __forceinline__ Requests(const Arguments& a, const RowTile& tile, int in_tile, uint32_t first) requires(!flat)
        : in_step(kRowStep * a.row_stride), code_step(kRowStep * a.line_bytes) {
        const uint32_t column = first + threadIdx.x % 32 * kCount, row = tile.row + uint32_t(in_tile);
        const int left = int(min(a.cols - first, uint32_t(kRequest))), request = word_request();
        const bool has_column = column < a.cols;
        in = a.in + (tile.in_row + in_tile) * a.row_stride + column;
        codes = a.codes + (tile.code_row + in_tile) * a.line_bytes + column / 2;
        existing = has_column ? requests_of(tile.rows - in_tile) : 0;
        stored = has_column ? requests_of(tile.padded - in_tile) : 0;
        const uint32_t word = first / (4 * block) + threadIdx.x % 32 / word_lanes;
        int count = scales_of_word(left);
        scale_word = a.scales + tile.scale_byte;
        if (a.swizzled) {
            count = count > 0 ? 4 : 0;
            scale_word += (int64_t(row / kSwizzleRows) * a.tile_words + word) * kSwizzleBytes + in_tile * 16 + request * 4;
        } else {
            if (request * kRowStep >= tile.padded - in_tile) count = 0;
            scale_word += int64_t(row + request * kRowStep) * a.scale_stride + word * 4;
        }
        scale_bytes = stores_word() ? count : 0;
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ void store_codes(int i, uint32_t word) const {
        if (i < stored) *reinterpret_cast<uint32_t*>(codes + i * code_step) = word;
    }
    __device__ __forceinline__ void store_word(uint32_t word) const { store_scale_word(scale_word, word, scale_bytes); }

private:
    static __device__ __forceinline__ bool stores_word() { return threadIdx.x % word_lanes < kRequests; }
    // Returns the request whose scale word the lane stores.
    static __device__ __forceinline__ int word_request() {
        return block == kNvBlock ? threadIdx.x % 2 * 2 + threadIdx.x / 2 % 2 : threadIdx.x % kRequests;
    }
    // Returns how many scales the lane's word has where a request begins so many elements before the end of its row.
    static __device__ __forceinline__ int scales_of_word(int elements) {
        return (elements - int(threadIdx.x) % 32 / word_lanes * (4 * block) + block - 1) / block;
    }
    static __device__ __forceinline__ int requests_of(int rows) { return rows <= 0 ? 0 : (rows - 1) / kRowStep + 1; }
};

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Returns the largest magnitudes over the lanes of a block, of requests 2k and 2k + 1 in the halves of a word. Lanes with
// bit `distance`, the highest bit of a lane's index in its block, have k = 1. Signs are undefined.
template <int distance, Nonfinite policy>
__device__ __forceinline__ uint32_t request_maxima(const Vector<Bf16> (&vectors)[kRequests]) {
    using namespace fp4_pairs;
    uint32_t pairs[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const uint32_t first = largest_by_magnitude<policy>(vectors[2 * k].words);
        const uint32_t second = largest_by_magnitude<policy>(vectors[2 * k + 1].words);
        pairs[k] = larger_by_magnitude<policy>(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
    }
    const bool high = threadIdx.x & distance;
    const uint32_t mine = high ? pairs[1] : pairs[0], other = high ? pairs[0] : pairs[1];
    uint32_t largest = larger_by_magnitude<policy>(mine, __shfl_xor_sync(kAllLanes, other, distance));
#pragma unroll
    for (int d = distance / 2; d > 0; d /= 2)
        largest = larger_by_magnitude<policy>(largest, __shfl_xor_sync(kAllLanes, largest, d));
    return largest;
}

// Returns one of the two magnitudes of a word as bits of an fp32 value.
__device__ __forceinline__ uint32_t magnitude_of(uint32_t pair, bool high) {
    return (high ? pair : pair << 16) & 0x7FFF0000u;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns the scale word of request lane % 4 from its scales.
__device__ __forceinline__ uint32_t mx_word(uint32_t scale) {
    uint32_t word = scale << (threadIdx.x / 4 % 4 * 8);
    word |= __shfl_xor_sync(kAllLanes, word, 4);
    return word | __shfl_xor_sync(kAllLanes, word, 8);
}

// Returns the scale word of the lane's request (word_request) from those of two requests, 2 * (lane % 2) and the next.
__device__ __forceinline__ uint32_t nv_word(const uint32_t (&scales)[2]) {
    const int block = threadIdx.x / 2 % 4;
    const uint32_t mine = block % 2 == 0 ? scales[0] : scales[1], other = block % 2 == 0 ? scales[1] : scales[0];
    uint32_t word = mine << (block * 8) | __shfl_xor_sync(kAllLanes, other, 2) << ((block ^ 1) * 8);
    return word | __shfl_xor_sync(kAllLanes, word, 4);
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

template <bool plain, class R>
__device__ __forceinline__ void store_mxfp4(const Vector<Bf16> (&vectors)[kRequests], float reciprocal, const R& requests) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float of_request = __shfl_sync(kAllLanes, reciprocal, threadIdx.x % 32 / kRequests * kRequests + i);
        requests.store_codes(i, fp4_pairs::eight_mx_codes<plain>(vectors[i].words, of_request));
    }
}

// What a thread block knows of NVFP4's scales.
struct Nvfp4Table {
    Nvfp4Global global;
    float of_significands[8];
    float multipliers[kScaleBytes];
};

// Makes the table by half of the warps. A barrier must follow. Returns whether some ties go to even.
__device__ __forceinline__ bool put_table(const float* amax, int scale_max, Nvfp4Table& table) {
    wait_for_previous_kernel();  // may compute amax
    const bool makes = threadIdx.x < kScaleBytes;
    return fp4_pairs::put_cut_table(makes ? *amax : 0, scale_max, makes, table.global, table.of_significands,
                                    table.multipliers);
}

// Returns eight codes of any elements. Out of line: few need it.
__device__ __noinline__ uint32_t any_codes(Vector<Bf16> vector, uint32_t scale, const Nvfp4Global& global) {
    float values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; i++) values[i] = vector[i];
    return nearest_nvfp4_codes(values, scale, global);
}

template <class R>
__device__ __forceinline__ void store_any_nvfp4(const Vector<Bf16> (&vectors)[kRequests], const uint32_t (&scales)[2],
                                                const Nvfp4Global& global, const R& requests) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const uint32_t scale = __shfl_sync(kAllLanes, scales[i % 2], (threadIdx.x & 30) + i / 2);
        requests.store_codes(i, any_codes(vectors[i], scale, global));
    }
}

// Stores plain codes of NVFP4 under the multipliers of two requests of each lane.
template <bool to_even, class R>
__device__ __forceinline__ void store_plain_nvfp4(const Vector<Bf16> (&vectors)[kRequests], const float (&multipliers)[2],
                                                  const R& requests) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float multiplier = __shfl_sync(kAllLanes, multipliers[i % 2], (threadIdx.x & 30) + i / 2);
        requests.store_codes(i, fp4_pairs::eight_nv_codes<to_even>(vectors[i].words, multiplier));
    }
}

// Stores the scales and codes of NVFP4.
template <class R>
__device__ __forceinline__ void store_nvfp4(const Vector<Bf16> (&vectors)[kRequests], const Nvfp4Table& table, bool to_even,
                                            const R& requests) {
    uint32_t maxima = request_maxima<1, Nonfinite::Propagate>(vectors);
    bool plain = !is_nan(bits_float(magnitude_of(maxima, false))) && !is_nan(bits_float(magnitude_of(maxima, true)));
    if (__any_sync(kAllLanes, !plain)) maxima = request_maxima<1, Nonfinite::Saturate>(vectors);
    uint32_t scales[2];
    float multipliers[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const uint32_t amax = magnitude_of(maxima, k == 1);
        scales[k] = encode_nvfp4_scale(multiply_rn(bits_float(amax), table.global.encode_sixth));
        multipliers[k] = table.multipliers[scales[k] % kScaleBytes];
        plain = plain && fp4_pairs::is_plain(amax, {scales[k], multipliers[k]});
    }
    requests.store_word(nv_word(scales));
    if (!__all_sync(kAllLanes, plain)) return store_any_nvfp4(vectors, scales, table.global, requests);
    if (to_even)
        store_plain_nvfp4<true>(vectors, multipliers, requests);
    else
        store_plain_nvfp4<false>(vectors, multipliers, requests);
}

// Stores the scales of all requests; returns the reciprocal of the one that the lane made.
template <class R>
__device__ __forceinline__ float put_mx_scales(const Arguments& a, const Vector<Bf16> (&vectors)[kRequests],
                                               const R& requests) {
    const uint32_t maxima =
        a.saturates ? request_maxima<2, Nonfinite::Saturate>(vectors) : request_maxima<2, Nonfinite::Propagate>(vectors);
    const uint32_t scale = scale_of(magnitude_of(maxima, threadIdx.x % 2), a.steps);
    requests.store_word(mx_word(scale));
    return scale_reciprocal(scale);
}

// ---- The kernel ------------------------------------------------------------------------------------------------------

template <int block, bool flat>
__global__ void __launch_bounds__(kThreads, 6) quantize_rowwise_fp4_kernel(const __grid_constant__ Arguments a) {
    __shared__ Nvfp4Table table;
    const uint32_t warp = threadIdx.x / 32;
    RowTile tile{};
    if (!flat && !find_row_tile(a.tiles, row_of_blocks(), tile)) return wait_for_previous_kernel();
    const auto requests = [&] {
        if constexpr (flat) return Requests<block, true>(a, block_index() * kWarps + int(warp));
        const uint32_t in_tile = blockIdx.x % kTileShares * kWarps + warp, first = blockIdx.x / kTileShares * kRequest;
        if constexpr (!flat) return Requests<block, false>(a, tile, int(in_tile), first);
    }();
    Vector<Bf16> vectors[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++)
        vectors[i] = load_vector_wide(requests.in + i * requests.in_step, requests.exists(i));
    if constexpr (block == kNvBlock) {
        const bool to_even = put_table(a.amax + tile.scope * a.scope_stride, a.scale_max, table);
        __syncthreads();
        store_nvfp4(vectors, table, to_even, requests);
    } else {
        const float reciprocal = put_mx_scales(a, vectors, requests);
        if (a.plain)
            store_mxfp4<true>(vectors, reciprocal, requests);
        else
            store_mxfp4<false>(vectors, reciprocal, requests);
    }
}

}  // namespace mxq::cuda::rowwise_fp4
