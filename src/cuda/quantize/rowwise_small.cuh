// The rowwise part of MXFP4, NVFP4 and MXFP6 alone from BF16, as quantize_rowwise streams it: scales of 1x32 and 1x16,
// rounded to nearest, four bits also stochastically. 256 elements of a row move at once, so that codes of four bits leave as
// whole lines of 128 bytes, and places are worked out without 64-bit divisions. memory/segments.cuh takes 128, and divides.
//
// A warp makes four requests of 16 bytes a lane, 256 neighbouring elements each. They lie
//
//     along  one after another, where all of the tensor is one line without a gap, and so are its scales; with groups each
//            warp has a row, a block of threads eight rows of one group. Where rows or lines of codes begin anywhere, each
//            warp has a row, too: vectors are taken out of two aligned pieces each (memory/shifted_pieces.cuh), and codes
//            meet in shared memory, from where the warp stores aligned eight bytes (memory/shifted_codes.cuh)
//     down   in 256 columns of a row each, 32 rows apart, so that the words of a warp are neighbours in a swizzled tile; a
//            block of threads has neighbouring rows, with groups of one of them
//
//                           256 columns            swizzled tile of the first 128 (MX) or 64 (NVFP4), 4 bytes a row
//              row r          [request 0]            ... | r    r + 32    r + 64    r + 96 | r + 1    r + 33 ...
//              row r + 32     [request 1]
//              ...
//
//     maxima   two requests to a word. The lanes of a block exchange them so that each has the maxima of one request (in
//              blocks of 16: of two), and makes its scale
//     codes    four bits: a vector's eight are a word, along a request's are one line of 128 bytes
//              six bits: a vector's six bytes go through shared memory, from where the warp stores them 16 at a time
//
// NVFP4 has a table of multipliers for the block of threads, made while the elements are on their way. What is not plain
// (fp4_pairs.cuh) takes a slower way, a warp at a time. Rows that pad a group are zeros that are not loaded.
// Rows of groups with one amax or none are taken as if there were no groups, and a block of threads may take several places
// side by side, each of 256 columns down or 1024 along: it searches for the groups of its rows, and makes its table, once.
#pragma once
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/row_places.cuh"
#include "cuda/memory/row_tiles.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/memory/shifted_codes.cuh"
#include "cuda/memory/shifted_pieces.cuh"
#include "cuda/quantize/fp4_pair_codes.cuh"
#include "cuda/tile/codes.cuh"
#include "numerics/philox.h"

namespace mxq::cuda::rowwise_small {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRequests = 4;
constexpr int kCount = Vector<Bf16>::count, kRequest = 32 * kCount, kAlong = kRequests * kRequest;
constexpr int kRowStep = kSwizzleRows / kRequests;  // down: from request to request
constexpr int kTileShares = kRowStep / kWarps;      // down: blocks of threads of 128 rows

struct Arguments {
    const Bf16* in;
    uint8_t *codes, *scales;
    int64_t elements;  // along without groups: all of them; then no more is needed of what follows
    int64_t row_stride, line_bytes, scale_stride;  // from a row to the next
    uint32_t cols, tile_words;                     // of swizzled tiles, in 128 rows
    bool swizzled;
    bool saturates;       // MX: a maximum ignores NaN
    bool plain;           // MXFP4: codes need no clamping
    int32_t scale_max;    // NVFP4
    ScaleSteps steps;     // MX
    const float* amax;    // NVFP4; from an expert or group to the next
    int32_t scope_stride;
    const uint64_t* seed_offset;  // stochastic rounding
    RowTiles tiles;               // of 128 rows down, of kWarps along
};

// The arguments of a kernel for groups that share what stands above their scales.
struct GroupArguments : Arguments {
    PlacedRows placed;
    QuantizedPart part;
    uint32_t steps;  // places side by side that a block of threads takes one after another
};

// The four vectors of a lane, where their codes go, and the scale word that the lane stores: of the lanes of a word each of
// the first four stores that of one request.
template <int bits, int block, bool down>
struct Requests {
    static constexpr int block_lanes = block / kCount, word_lanes = 4 * block_lanes;

    const Bf16* in;
    uint8_t *codes, *scale_word;
    int64_t in_step, code_step;  // from a request to the next
    int existing, stored;        // requests whose vector exists; whose codes do, which groups pad
    int left, rows;              // that the requests have at most: elements from request 0 on, and rows from its own on
    int scale_bytes;             // of the word

    // Along without groups: warp `task` of all.
    __device__ __forceinline__ Requests(const Arguments& a, int64_t task) requires(!down)
        : in_step(kRequest), code_step(kRequest / 8 * bits), rows(1) {
        const int lane = threadIdx.x % 32;
        in = a.in + task * kAlong + lane * kCount;
        codes = a.codes + task * (kAlong / 8 * bits) + lane * bits;
        left = int(max(min(a.elements - task * kAlong, int64_t(kAlong)), int64_t(0)));
        existing = stored = requests_before(left);
        put_scale_word(a.scales + task * (kAlong / block) + lane / word_lanes * 4, kRequest / block, false);
    }
    // Along with groups: the columns from those of request `request` on, of row `in_tile` of a tile.
    __device__ __forceinline__ Requests(const Arguments& a, const RowTile& tile, uint32_t request,
                                        uint32_t in_tile) requires(!down)
        : in_step(kRequest), code_step(kRequest / 8 * bits), rows(1) {
        left = int(in_tile) < tile.padded ? min(int(a.cols) - int(request * kRequest), kAlong) : 0;
        stored = requests_before(left);
        existing = int(in_tile) < tile.rows ? stored : 0;
        start_at(a, tile, request, in_tile, kRequest / block);
    }
    // Down: row `in_tile` of a tile's first 32.
    __device__ __forceinline__ Requests(const Arguments& a, const RowTile& tile, uint32_t request,
                                        uint32_t in_tile) requires(down)
        : in_step(kRowStep * a.row_stride), code_step(kRowStep * a.line_bytes) {
        rows = min(tile.padded - int(in_tile), kRequests * kRowStep);
        left = min(int(a.cols) - int(request * kRequest), kAlong);
        const bool has_column = int(threadIdx.x % 32 * kCount) < left;
        existing = has_column ? (min(tile.rows - int(in_tile), kRequests * kRowStep) + kRowStep - 1) / kRowStep : 0;
        stored = has_column ? (rows + kRowStep - 1) / kRowStep : 0;
        start_at(a, tile, request, in_tile, a.swizzled ? 4 : kRowStep * a.scale_stride);
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ bool stores(int i) const { return i < stored; }
    __device__ __forceinline__ uint8_t* codes_of(int i) const { return codes + i * code_step; }

    // Returns the request whose scale word the lane stores.
    static __device__ __forceinline__ int word_request() {
        return block == kNvBlock ? threadIdx.x % 2 * 2 + threadIdx.x / 2 % 2 : threadIdx.x % kRequests;
    }
    __device__ __forceinline__ void store_word(uint32_t word) const { store_scale_word(scale_word, word, scale_bytes); }

private:
    __device__ __forceinline__ void start_at(const Arguments& a, const RowTile& tile, uint32_t request, uint32_t in_tile,
                                             int64_t scale_step) {
        const uint32_t lane = threadIdx.x % 32, column = request * kRequest + lane * kCount, row = tile.row + in_tile;
        const uint32_t word = request * (kRequest / block / 4) + lane / word_lanes;
        in = a.in + (tile.in_row + in_tile) * a.row_stride + column;
        codes = a.codes + (tile.code_row + in_tile) * a.line_bytes + column / 8 * bits;
        const int64_t in_swizzled = (int64_t(row / kSwizzleRows) * a.tile_words + word) * kSwizzleBytes + in_tile * 16;
        const bool swizzled = down && a.swizzled;
        put_scale_word(a.scales + tile.scale_byte + (swizzled ? in_swizzled : int64_t(row) * a.scale_stride + word * 4),
                       scale_step, swizzled);
    }
    // Finds the lane's word; `first` is that of request 0.
    __device__ __forceinline__ void put_scale_word(uint8_t* first, int64_t scale_step, bool swizzled) {
        const int request = word_request();
        const int elements = left - (down ? 0 : request * kRequest) - int(threadIdx.x) % 32 / word_lanes * (4 * block);
        int count = (elements + block - 1) / block;
        if (swizzled) count = count > 0 ? 4 : 0;
        else if (down && request * kRowStep >= rows) count = 0;
        scale_word = first + request * scale_step;
        scale_bytes = threadIdx.x % word_lanes < kRequests ? count : 0;
    }
    // Along: returns how many requests of the lane begin before `end`, counted from the first element of request 0.
    static __device__ __forceinline__ int requests_before(int end) {
        return (end - int(threadIdx.x) % 32 * kCount + kRequest - 1) / kRequest;
    }
};

// The four vectors of a lane in rows of groups, whose lines are looked up; `row` is that of the tile.
template <int bits, int block, bool down>
struct PlacedRequests {
    using Unplaced = Requests<bits, block, down>;
    static constexpr int block_lanes = Unplaced::block_lanes, word_lanes = Unplaced::word_lanes;
    static constexpr int row_step = down ? kRowStep : 0, column_step = down ? 0 : kRequest;
    static constexpr int columns = down ? kRequest : kAlong;  // of all requests

    const Arguments& a;
    uint32_t column;  // the lane's
    int row, existing;
    int left, rows;  // elements from request 0 on, up to 2^31 - 1; rows as in Requests

    // Makes the first requests of a block of threads that takes `steps` places.
    __device__ __forceinline__ PlacedRequests(const Arguments& a, uint32_t steps, int tile_rows) : a(a) {
        const uint32_t warp = threadIdx.x / 32, place = down ? blockIdx.x / kTileShares : blockIdx.x;
        row = int(down ? blockIdx.x % kTileShares * kWarps + warp : warp);
        rows = min(tile_rows - row, kRequests * kRowStep);
        const uint32_t first = place * steps * columns;
        column = first + threadIdx.x % 32 * kCount;
        left = rows > 0 ? int(a.cols - first) : 0;
        find_existing();
    }
    // Goes to the columns behind these; false: there are none.
    __device__ __forceinline__ bool advance() {
        column += columns;
        left -= columns;
        find_existing();
        return left > 0;
    }
    __device__ __forceinline__ void find_existing() {
        const int in_lane = left - int(threadIdx.x % 32 * kCount);
        existing = down ? (in_lane > 0 ? (rows + kRowStep - 1) / kRowStep : 0) : ((in_lane - 1) >> log2_of(kRequest)) + 1;
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ bool stores(int i) const { return i < existing; }
    __device__ __forceinline__ uint32_t line(RowLine of, int i) const { return row_places().lines[of][row][down ? i : 0]; }
    __device__ __forceinline__ const Bf16* in_of(int i, uint32_t line) const {
        return a.in + line * a.row_stride + column + i * column_step;
    }
    __device__ __forceinline__ uint8_t* codes_of(int i) const {
        return a.codes + uint64_t(line(kCodeLine, i)) * uint32_t(a.line_bytes) + (column + i * column_step) / 8 * bits;
    }
    __device__ __forceinline__ void store_word(uint32_t word) const {
        const int request = Unplaced::word_request(), in_request = threadIdx.x % 32 / word_lanes;
        const int elements = left - request * column_step - in_request * (4 * block);
        if (elements <= 0 || request * row_step >= rows || threadIdx.x % word_lanes >= kRequests) return;
        const uint32_t row = line(kScaleLine, request);
        const uint32_t first = (column - threadIdx.x % 32 * kCount + request * column_step) / (4 * block) + in_request;
        if (down && a.swizzled) {
            const uint64_t tile = uint64_t(row / uint32_t(kSwizzleRows)) * a.tile_words + first;
            store_shared_scale_word(a.scales + tile * kSwizzleBytes + row % 32 * 16 + row % 128 / 32 * 4, word, kSwizzleColumns);
        } else {
            store_scale_word(a.scales + row * a.scale_stride + first * 4, word, (elements - 1) / block + 1);
        }
    }
};

// The four vectors of a lane in a row whose elements and codes begin anywhere; the warp's codes meet in shared memory.
template <int bits, int block>
struct ShiftedRequests : Requests<bits, block, false> {
    static constexpr int most = kAlong / 8 * bits;  // bytes of codes

    int64_t first;  // the lane's element of request 0
    uint32_t* put;

    __device__ __forceinline__ ShiftedRequests(const Arguments& a, const RowTile& tile, uint32_t place, uint32_t in_tile)
        : Requests<bits, block, false>(a, tile, place * kRequests, in_tile), first(this->in - a.in) {
        __shared__ alignas(16) uint32_t words[kWarps][most / 4];
        put = words[threadIdx.x / 32];
    }
    __device__ __forceinline__ int valid(int i) const {
        return this->exists(i) ? min(this->left - int(threadIdx.x % 32 * kCount) - i * kRequest, kCount) : 0;
    }
    __device__ __forceinline__ int64_t offset(int i, int64_t) const { return first + i * kRequest; }
    __device__ __forceinline__ void store_put() const {
        __syncwarp();
        store_shifted_bytes<most>(put, this->codes - threadIdx.x % 32 * bits, (this->left * bits + 7) / 8);
    }
};

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Returns the largest magnitudes over the lanes of a block, of requests 2k and 2k + 1 in the halves of a word: k is 1 for
// lanes with bit `distance`, which is the highest of a lane's place in its block. Signs are any.
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

// Returns a magnitude of a word's two as bits of an fp32 value.
__device__ __forceinline__ uint32_t magnitude_of(uint32_t pair, bool high) {
    return (high ? pair : pair << 16) & 0x7FFF0000u;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns the scale word of request lane % 4 from scales of it.
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

// ---- Four bits -------------------------------------------------------------------------------------------------------

// Stores a request's codes of four bits, a word a lane.
template <class R>
__device__ __forceinline__ void store_codes(const R& requests, int i, uint32_t word) {
    if (requests.stores(i)) *reinterpret_cast<uint32_t*>(requests.codes_of(i)) = word;
}

// Puts them to shared memory, from where the warp stores those of all requests.
template <int block>
__device__ __forceinline__ void store_codes(const ShiftedRequests<4, block>& requests, int i, uint32_t word) {
    requests.put[i * 32 + threadIdx.x % 32] = word;
}

template <bool plain, class R>
__device__ __forceinline__ void store_mxfp4(const Vector<Bf16> (&vectors)[kRequests], float reciprocal, const R& requests) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float of_request = __shfl_sync(kAllLanes, reciprocal, threadIdx.x % 32 / kRequests * kRequests + i);
        store_codes(requests, i, fp4_pairs::eight_mx_codes<plain>(vectors[i].words, of_request));
    }
}

// Holds what all threads of a block know of NVFP4's scales.
struct Nvfp4Table {
    Nvfp4Global global;
    float of_significands[8];
    float multipliers[kScaleBytes];
};

// Makes the table by half of the warps. The block has it behind a barrier. Returns whether there are ties that go to even.
__device__ __forceinline__ bool put_table(const float* amax, int scale_max, Nvfp4Table& table) {
    wait_for_previous_kernel();  // which may compute it
    const bool makes = threadIdx.x < kScaleBytes;
    return fp4_pairs::put_cut_table(makes ? *amax : 0, scale_max, makes, table.global, table.of_significands,
                                    table.multipliers);
}

// Makes eight codes of any elements. Out of line: few need it.
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
        store_codes(requests, i, any_codes(vectors[i], scale, global));
    }
}

// Stores plain codes of NVFP4 under the multipliers of two requests, as lanes have made them.
template <bool to_even, class R>
__device__ __forceinline__ void store_plain_nvfp4(const Vector<Bf16> (&vectors)[kRequests], const float (&multipliers)[2],
                                                  const R& requests) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float multiplier = __shfl_sync(kAllLanes, multipliers[i % 2], (threadIdx.x & 30) + i / 2);
        store_codes(requests, i, fp4_pairs::eight_nv_codes<to_even>(vectors[i].words, multiplier));
    }
}

// Stores the scales and codes of NVFP4.
template <class R>
__device__ __forceinline__ void store_nvfp4(const Arguments& a, const Vector<Bf16> (&vectors)[kRequests],
                                            const Nvfp4Table& table, bool to_even, const R& requests) {
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
__device__ __forceinline__ float put_mx_scales(const Arguments& a, const Vector<Bf16> (&vectors)[kRequests], const R& requests) {
    const uint32_t maxima = a.saturates ? request_maxima<2, Nonfinite::Saturate>(vectors)
                                        : request_maxima<2, Nonfinite::Propagate>(vectors);
    const uint32_t scale = scale_of(magnitude_of(maxima, threadIdx.x % 2), a.steps);
    requests.store_word(mx_word(scale));
    return scale_reciprocal(scale);
}

// ---- Stochastic codes ------------------------------------------------------------------------------------------------

// Makes the random words of all requests: lanes 2 k and 2 k + 1, whose vectors are one chunk, make those of two requests each
// and exchange them. `row` is that of request 0 among all, `chunk` the place in it.
__device__ __forceinline__ void random_words(const PhiloxKeys& keys, uint32_t chunk, uint32_t row, uint64_t offset,
                                             uint32_t (&words)[kRequests][2]) {
    const bool odd = threadIdx.x % 2;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const PhiloxWords mine = philox(keys, philox_counter(chunk, row + uint32_t((2 * odd + k) * kRowStep), false, offset));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t kept = mine.words[odd ? 2 + j : j];
            const uint32_t other = __shfl_xor_sync(kAllLanes, mine.words[odd ? j : 2 + j], 1);
            words[k][j] = odd ? other : kept;
            words[2 + k][j] = odd ? kept : other;
        }
    }
}

// Stores codes under the requests' multipliers; `multiplier_of` gives that of one.
template <bool nvfp4, class R, class MultiplierOf>
__device__ __forceinline__ void store_stochastic(const Vector<Bf16> (&vectors)[kRequests], const uint32_t (&random)[kRequests][2],
                                                 const R& requests, const MultiplierOf& multiplier_of) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float multiplier = multiplier_of(i);
        float values[kCount];
#pragma unroll
        for (int j = 0; j < kCount; j++) values[j] = vectors[i][j];
        // Under NVFP4's scale 0 codes are zeros with signs, under MX's NaN they are zeros.
        const uint32_t mask = nvfp4 ? (multiplier == 0 ? 0x88888888u : ~0u) : is_nan(multiplier) ? 0 : ~0u;
        store_codes(requests, i, stochastic_e2m1_codes(values, multiplier, random[i]) & mask);
    }
}

// Holds what all threads of a block know for stochastic rounding.
struct StochasticTable {
    alignas(16) PhiloxKeys keys;
    Nvfp4Global global;
    float multipliers[kScaleBytes];
};

// Makes the table. Ends with a barrier.
template <bool nvfp4>
__device__ __forceinline__ void put_stochastic_table(const Arguments& a, int32_t scope, StochasticTable& table) {
    wait_for_previous_kernel();  // which may compute the maximum
    if (threadIdx.x < 2 * PhiloxKeys::rounds) {
        const PhiloxKey key = philox_key(a.seed_offset[0]);
        table.keys.words[threadIdx.x] = PhiloxKeys::word(threadIdx.x % 2 == 0 ? key.words[0] : key.words[1], threadIdx.x);
    }
    if (nvfp4 && threadIdx.x >= kScaleBytes) {
        const uint32_t scale = threadIdx.x - kScaleBytes;
        const Nvfp4Global global = nvfp4_global(a.amax[scope * a.scope_stride], a.scale_max);
        table.multipliers[scale] = nvfp4_multiplier(scale, global);
        if (scale == 0) table.global = global;
    }
    __syncthreads();
}

// Quantizes what the lane's requests are, the first in line `row` of all that the part has, with stochastic rounding. All
// threads of the block call it.
template <int block>
__device__ __forceinline__ void quantize_stochastic(const Arguments& a, const Requests<E2M1::bits, block, true>& requests,
                                                    int32_t scope, uint32_t chunk, uint32_t row) {
    __shared__ StochasticTable table;
    Vector<Bf16> vectors[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) vectors[i] = load_vector_wide(requests.in + i * requests.in_step, requests.exists(i));
    const uint64_t offset = a.seed_offset[1];
    put_stochastic_table<block == kNvBlock>(a, scope, table);
    uint32_t random[kRequests][2];
    random_words(table.keys, chunk, row, offset, random);
    if constexpr (block == kNvBlock) {
        const uint32_t maxima = request_maxima<1, Nonfinite::Saturate>(vectors);
        uint32_t scales[2];
        float multipliers[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            scales[k] = nvfp4_scale(bits_float(magnitude_of(maxima, k == 1)), table.global);
            multipliers[k] = table.multipliers[scales[k] % kScaleBytes];
        }
        requests.store_word(nv_word(scales));
        store_stochastic<true>(vectors, random, requests, [&](int i) {
            return __shfl_sync(kAllLanes, multipliers[i % 2], (threadIdx.x & 30) + i / 2);
        });
    } else {
        const float reciprocal = put_mx_scales(a, vectors, requests);
        store_stochastic<false>(vectors, random, requests, [&](int i) {
            return __shfl_sync(kAllLanes, reciprocal, threadIdx.x % 32 / kRequests * kRequests + i);
        });
    }
}

// ---- Six bits --------------------------------------------------------------------------------------------------------

// A warp's codes of six bits: 192 bytes of each request.
struct alignas(16) StagedCodes {
    static constexpr int pieces = kRequest * 6 / 8 / 16;  // of a request
    uint8_t bytes[kRequests][pieces * 16];

    // Puts the lane's six bytes of a request: a word, and a half word on the side on which the word is not aligned.
    __device__ __forceinline__ void put(int request, uint32_t low, uint32_t high) {
        const bool odd = threadIdx.x % 2;
        uint8_t* const to = &bytes[request][threadIdx.x % 32 * 6];
        *reinterpret_cast<uint32_t*>(to + (odd ? 2 : 0)) = odd ? __funnelshift_r(low, high, 16) : low;
        *reinterpret_cast<uint16_t*>(to + (odd ? 0 : 4)) = uint16_t(odd ? low : high);
    }
};

// Returns where the warp puts its codes.
template <class R>
__device__ __forceinline__ StagedCodes& staged_codes(const R&) {
    __shared__ StagedCodes staged[kWarps];
    return staged[threadIdx.x / 32];
}

template <int block>
__device__ __forceinline__ StagedCodes& staged_codes(const ShiftedRequests<6, block>& requests) {
    return *reinterpret_cast<StagedCodes*>(requests.put);
}

// Stores what the lanes have put, 48 pieces of 16 bytes.
template <bool down, class R>
__device__ __forceinline__ void store_staged(const StagedCodes& staged, const R& requests) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int piece = lane; piece < kRequests * StagedCodes::pieces; piece += 32) {
        const int request = piece / StagedCodes::pieces, byte = piece % StagedCodes::pieces * 16;
        const int left = requests.left - (down ? 0 : request * kRequest);
        if (byte >= left / 8 * 6 || (down && request * kRowStep >= requests.rows)) continue;
        *reinterpret_cast<uint4*>(requests.codes_of(request) - lane * 6 + byte) =
            *reinterpret_cast<const uint4*>(&staged.bytes[request][byte]);
    }
}

// Leaves them there until the requests are stored.
template <bool down, int block>
__device__ __forceinline__ void store_staged(const StagedCodes&, const ShiftedRequests<6, block>&) {}

template <class E, bool down, class R>
__device__ __forceinline__ void store_six_bits(const Vector<Bf16> (&vectors)[kRequests], float reciprocal, const R& requests,
                                               StagedCodes& staged) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float of_request = __shfl_sync(kAllLanes, reciprocal, threadIdx.x % 32 / kRequests * kRequests + i);
        const auto of_vector = quantize_small_vector<E, Bf16>(vectors[i], of_request);
        const uint32_t mask = factor_mask<E>(of_request);
        const uint32_t low = pack_six_bits(of_vector.words[0] & mask), high = pack_six_bits(of_vector.words[1] & mask);
        staged.put(i, permute_bytes(low, high, 0x5321), high >> 16);
    }
    __syncwarp();
    store_staged<down>(staged, requests);
}

// ---- Kernels ---------------------------------------------------------------------------------------------------------

// Returns the block's table.
__device__ __forceinline__ Nvfp4Table& nvfp4_table() {
    __shared__ Nvfp4Table table;
    return table;
}

// Makes the table of NVFP4, which the block has behind a barrier. Returns whether there are ties that go to even.
template <int block>
__device__ __forceinline__ bool put_table_of(const Arguments& a, int32_t scope) {
    if constexpr (block == kNvBlock) return put_table(a.amax + scope * a.scope_stride, a.scale_max, nvfp4_table());
    return false;
}

// Quantizes vectors and stores what becomes of them. All lanes of a warp call it.
template <class E, int block, bool down, class R>
__device__ __forceinline__ void quantize_vectors(const Arguments& a, const Vector<Bf16> (&vectors)[kRequests], bool to_even,
                                                 const R& requests) {
    if constexpr (block == kNvBlock) {
        store_nvfp4(a, vectors, nvfp4_table(), to_even, requests);
    } else {
        const float reciprocal = put_mx_scales(a, vectors, requests);
        if constexpr (E::bits == 6) {
            store_six_bits<E, down>(vectors, reciprocal, requests, staged_codes(requests));
        } else if (a.plain) {
            store_mxfp4<true>(vectors, reciprocal, requests);
        } else {
            store_mxfp4<false>(vectors, reciprocal, requests);
        }
    }
}

// Quantizes what the lane's requests are. All threads of the block call it.
template <class E, int block, bool down>
__device__ __forceinline__ void quantize_requests(const Arguments& a, const Requests<E::bits, block, down>& requests,
                                                  int32_t scope) {
    Vector<Bf16> vectors[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) vectors[i] = load_vector_wide(requests.in + i * requests.in_step, requests.exists(i));
    const bool to_even = put_table_of<block>(a, scope);
    if (block == kNvBlock) __syncthreads();
    quantize_vectors<E, block, down>(a, vectors, to_even, requests);
}

// With groups only NVFP4 whose groups have an amax each.
template <class E, int block>
__global__ void __launch_bounds__(kThreads, 6) quantize_rowwise_small_along_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<E::bits, block, false>;
    const uint32_t warp = threadIdx.x / 32;
    const bool grouped = block == kNvBlock && a.tiles.in_groups;
    RowTile tile{};
    if (grouped && !find_row_tile(a.tiles, row_of_blocks(), tile)) return wait_for_previous_kernel();
    const R requests = grouped ? R(a, tile, blockIdx.x * kRequests, warp) : R(a, block_index() * kWarps + int(warp));
    quantize_requests<E, block, false>(a, requests, tile.scope);
}

// A block of threads takes neighbouring rows.
template <class E, int block>
__global__ void __launch_bounds__(kThreads, 6) quantize_rowwise_small_down_kernel(const __grid_constant__ Arguments a) {
    RowTile tile;
    if (!find_row_tile(a.tiles, row_of_blocks(), tile)) return wait_for_previous_kernel();
    const uint32_t in_tile = blockIdx.x % kTileShares * kWarps + threadIdx.x / 32;
    quantize_requests<E, block, true>(a, {a, tile, blockIdx.x / kTileShares, in_tile}, tile.scope);
}

// Takes rows and lines that begin anywhere, to compact scales: a row a warp, eight rows of a matrix or group a block of
// threads.
template <class E, int block>
__global__ void __launch_bounds__(kThreads, 4) quantize_rowwise_small_shifted_kernel(const __grid_constant__ Arguments a) {
    RowTile tile;
    if (!find_row_tile(a.tiles, row_of_blocks(), tile)) return wait_for_previous_kernel();
    const ShiftedRequests<E::bits, block> requests(a, tile, blockIdx.x, threadIdx.x / 32);
    Vector<Bf16> vectors[kRequests];
    const Bf16* const end = a.in + (tile.in_row + tile.rows - 1) * a.row_stride + a.cols;  // of the matrix or group
    load_shifted_vectors(vectors, a.in, a.row_stride, requests, end);
    const bool to_even = put_table_of<block>(a, tile.scope);
    if (block == kNvBlock) __syncthreads();
    quantize_vectors<E, block, false>(a, vectors, to_even, requests);
    requests.store_put();
}

// Loads the vectors of requests whose lines have been found.
template <class R>
__device__ __forceinline__ void load_placed(Vector<Bf16> (&vectors)[kRequests], const R& requests) {
#pragma unroll
    for (int i = 0; i < kRequests; i++)
        vectors[i] = load_vector_wide(requests.in_of(i, requests.line(kSourceLine, i)), requests.exists(i));
}

// Takes rows of groups that have one amax or none, whose loads do not wait until their groups are found. `several`: a block
// of threads takes a.steps places side by side, so that it searches once for all of them.
template <class E, int block, bool down, bool several>
__global__ void __launch_bounds__(kThreads, block == kNvBlock && (down || several) ? 5 : 6)
    quantize_rowwise_small_groups_kernel(const __grid_constant__ GroupArguments a) {
    const uint32_t line = row_of_blocks(), first = (line - a.placed.padding) << a.placed.tile_rows_log2;
    const bool pads = line < a.placed.padding, exists = !pads && line - a.placed.padding < a.placed.tiles;
    if (!exists) {
        wait_for_previous_kernel();
        if (pads) store_row_padding(a.placed, a.part, line);
        return;
    }
    const PlacedEnds ends(a.placed, 0);
    const int rows = ends.rows_from(first);
    if (rows <= 0) return wait_for_previous_kernel();
    PlacedRequests<E::bits, block, down> requests(a, several ? a.steps : 1, rows);
    const bool waits = a.placed.units[kSourceLine] != 1;  // for where rows are
    Vector<Bf16> vectors[kRequests];
    if (!waits)
#pragma unroll
        for (int i = 0; i < kRequests; i++)
            vectors[i] = load_vector_wide(requests.in_of(i, first + requests.row + i * requests.row_step), requests.exists(i));
    const bool to_even = put_table_of<block>(a, 0);
    find_row_places(a.placed, ends, first);
    if constexpr (several) {
#pragma unroll 1
        for (uint32_t step = 0; step < a.steps; step++) {
            if (step > 0 || waits) load_placed(vectors, requests);
            quantize_vectors<E, block, down>(a, vectors, to_even, requests);
            if (!requests.advance()) return;
            if (E::bits == 6) __syncwarp();  // codes have left shared memory before the next come
        }
    } else {
        if (waits) load_placed(vectors, requests);
        quantize_vectors<E, block, down>(a, vectors, to_even, requests);
    }
}

template <int block>
__global__ void __launch_bounds__(kThreads, 4) quantize_rowwise_stochastic_kernel(const __grid_constant__ Arguments a) {
    RowTile tile;
    if (!find_row_tile(a.tiles, row_of_blocks(), tile)) return wait_for_previous_kernel();
    const uint32_t request = blockIdx.x / kTileShares, in_tile = blockIdx.x % kTileShares * kWarps + threadIdx.x / 32;
    quantize_stochastic<block>(a, {a, tile, request, in_tile}, tile.scope,
                               request * (kRequest / kChunk) + threadIdx.x % 32 / 2, uint32_t(tile.code_row) + in_tile);
}

}  // namespace mxq::cuda::rowwise_small
