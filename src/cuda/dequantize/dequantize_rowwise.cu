// dequantize_rowwise: a rowwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A warp writes requests of one 16-byte vector a lane, and loads the codes of all of them before the first use:
//
//     by row    adjacent requests of one row, two (F32, groups: four): 1 or 2 KB
//     by tile   four requests 32 rows apart in a tile of 128 x 128, for rows that are shorter than a warp's requests
//
//     lane (16 bits)   0  1  2  3 | 4  5  6  7 | 8 .. 15 | 16 ...
//                      block 0    | block 1    | 2, 3    | by row: blocks 4 .. 7; by tile: the next row
//
// 4-bit codes are decoded by tables (numerics/e2m1_tables.h), under E4M3 scales in packed products. The lanes of a block
// share its scale loads by shuffles. Where scales are swizzled, a thread block that goes by row takes 8 rows with adjacent
// scale words:
//
//     warp      0   1   2     3     4     5     6     7        of one of the 16 thread blocks that share 128 rows
//     row       r  r+1  r+32  r+33  r+64  r+65  r+96  r+97     r = 0, 2, 4 .. 30 for these
//
// With groups these rows are of one group (memory/row_tiles.cuh). Rows that pad the output are +0. Bytes an element: 0.5 to
// 1.06 read, 2 or 4 written. Bound by memory as long as address arithmetic is cheap: offsets are 32 bits where possible,
// requests are a constant step apart, and only experts need a division.
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/memory/row_tiles.cuh"
#include "numerics/e2m1_tables.h"
#include "numerics/f16_pairs.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSegment = 128;  // columns of a tile

// The variants of the kernel. Whole (matrices) and Groups go by row, read whole words and write whole vectors. ByRow and
// ByTile take any alignment.
enum class Variant { Whole, Groups, ByRow, ByTile };

template <Variant variant>
constexpr bool kIsWhole = variant == Variant::Whole || variant == Variant::Groups;

// How the requests of a warp lie, `number` of them, each of `vector_elements` elements a lane. How the grid divides the
// columns: `blocks` thread blocks for every `columns`.
struct Shape {
    int32_t vector_elements, number, row_step, column_step, columns, blocks;
};

constexpr Shape shape_of(int32_t count, Variant variant) {
    const int32_t request = 32 * count, number = variant != Variant::Whole || count == 4 ? 4 : 2;
    if (variant == Variant::ByTile) return {count, number, 32, 0, kSegment, kSegment / count / kWarps};
    return {count, number, 0, request, number * request, 1};
}

struct Arguments {
    DequantizeProblem problem;
    uint32_t tiles, matrix_tiles;   // of rows: all (with groups an upper bound), and of a matrix
    uint32_t shares_log2;           // log2 of the thread blocks that share a tile
    int64_t code_step, scale_step;  // from a request to the next, in bytes (by tile) and in scales
    int32_t block_log2;             // log2 of the codes of a block
    bool whole_words_in;            // a lane reads its codes of a request in words
    bool whole_vectors_out;         // every row of the output is written in whole vectors
    RowUnits units;
};

// The vectors of a lane, `count` elements each, as Accesses (memory/elements.cuh).
template <int count, Variant variant>
struct Requests {
    static constexpr Shape shape = shape_of(count, variant);
    static constexpr bool by_tile = variant == Variant::ByTile;
    static constexpr int number = shape.number, row_step = shape.row_step, column_step = shape.column_step;
    static constexpr int segment_lanes = kSegment / count, row_lanes = by_tile ? segment_lanes : 32;  // lanes of one row
    static constexpr int parallel = 32 / segment_lanes;  // segments of a request

    int row, column;          // of request 0
    int filled, existing;     // requests with codes; requests that are written
    int cols, out_rows;
    int64_t first, step;      // in the output, in elements

    // By row: the warp starts at `first_column` of one row. By tile: it is warp `task` of the tile there.
    __device__ __forceinline__ Requests(const PlainMatrix& out, const DequantizeScope& scope, int first_row,
                                        int first_column, int task)
        : cols(int(out.cols)), out_rows(scope.out_rows) {
        const int lane = threadIdx.x % 32, segment = lane / segment_lanes;
        row = first_row + (by_tile ? task * parallel + segment : 0);
        column = first_column + (by_tile ? 0 : segment * kSegment) + lane % segment_lanes * count;
        filled = requests_before(scope.rows);
        existing = requests_before(scope.out_rows);
        first = uint32_t(row) * out.row_stride + column;
        step = by_tile ? row_step * out.row_stride : column_step;
    }
    // Returns how many requests start inside of the first `rows` rows.
    __device__ __forceinline__ int requests_before(int rows) const {
        const uint32_t left = uint32_t(by_tile ? rows - row : cols - column);
        constexpr uint32_t each = by_tile ? row_step : column_step;
        return row >= rows || column >= cols ? 0 : int(min((left + each - 1) / each, uint32_t(number)));
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    // Returns how many elements of a written row exist from the vector of its first lane on, in request i.
    __device__ __forceinline__ int left_of_row(int i) const {
        const int first = column - int(threadIdx.x) % row_lanes * count + i * column_step;
        return row + i * row_step < out_rows ? cols - first : 0;
    }
    __device__ __forceinline__ int valid(int i) const { return exists(i) ? min(cols - column - i * column_step, count) : 0; }
};

// Loads a block's scale as fp32.
template <class E>
struct ScaleNumber {
    using Value = float;
    static __device__ __forceinline__ float load(const uint8_t* scales, ScaleType type, int64_t at) {
        return load_scale<E>(scales, type, at);
    }
};
// Loads an E4M3 scale as a factor of pairs of F16 numbers.
struct ScaleF16 {
    using Value = uint32_t;
    static __device__ __forceinline__ uint32_t load(const uint8_t* scales, ScaleType, int64_t at) {
        return decode_pair_to_f16<E4M3>(scales[at] * 0x0101u);
    }
};

// The scales of a lane's vectors. Of the `sharers` lanes of a block, lane q loads those of requests q, q + sharers, ...
template <class E, int count, int number, class As>
struct Scales {
    static constexpr int block = E::bits == 4 ? 16 : 32;
    static constexpr int sharers = block / count < number ? block / count : number;
    typename As::Value values[number / sharers];

    template <Variant variant>
    __device__ __forceinline__ Scales(const Arguments& a, const DequantizeScope& scope,
                                      const Requests<count, variant>& requests) {
        const QuantizedPart& in = a.problem.in;
        // Where the matrix ends inside of a block, its first lane has codes, and loads all scales that any lane needs.
        const int filled = __shfl_sync(kAllLanes, requests.filled, threadIdx.x % 32 / sharers * sharers);
        const int64_t first = in.layout.offset(0, uint32_t(requests.row), uint32_t(requests.column) >> a.block_log2);
#pragma unroll
        for (int k = 0; k < number / sharers; k++) {
            const int i = k * sharers + threadIdx.x % sharers;
            values[k] = i < filled ? As::load(scope.scales, in.scale_type, first + i * a.scale_step) : 0;
        }
    }
    // Returns the scale of vector i. All lanes of the warp call it.
    __device__ __forceinline__ typename As::Value of_request(int i) const {
        return __shfl_sync(kAllLanes, values[i / sharers], threadIdx.x % 32 / sharers * sharers + i % sharers);
    }
};

// Returns the values of a vector under its scale and the global scale.
template <class T, class E>
__device__ __forceinline__ Vector<T> decode_vector(const Packed<E::bits, Vector<T>::count>& packed, float scale,
                                                   float global) {
    constexpr int count = Vector<T>::count;
    float values[count];
    if constexpr (E::bits == 4 && count == 8) {
        uint32_t pairs[4];
        decode_e2m1_to_f16(packed.words[0], pairs);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = __half22float2(__half2(__builtin_bit_cast(__half2_raw, pairs[j])));
            values[2 * j] = multiply_rn(multiply_rn(pair.x, scale), global);
            values[2 * j + 1] = multiply_rn(multiply_rn(pair.y, scale), global);
        }
    } else {
        const Codes<count> codes = unpack(packed);
#pragma unroll
        for (int j = 0; j < count; j += 2) {
            const float2 pair = decode_scaled_pair<E>(codes.words[j / 4] >> (j % 4 * 8) & 0xFFFF, scale, scale, global);
            values[j] = pair.x, values[j + 1] = pair.y;
        }
    }
    return round_vector<T>(values);
}

// Returns eight E2M1 codes under an E4M3 scale, given as F16, and the global scale. A code times its scale has at most six
// significant bits, and is exact in F16.
template <class T>
__device__ __forceinline__ Vector<T> decode_e2m1(uint32_t word, uint32_t scale, float global) {
    uint32_t pairs[4];
    decode_e2m1_to_f16(word, pairs);
    float values[8];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t scaled = multiply_f16_pairs(pairs[j], scale);
        const float2 pair = __half22float2(__half2(__builtin_bit_cast(__half2_raw, scaled)));
        values[2 * j] = multiply_rn(pair.x, global), values[2 * j + 1] = multiply_rn(pair.y, global);
    }
    return round_vector<T>(values);
}

// The codes of a lane's vectors as stored, all loaded before the first use. Missing codes are zero.
template <class E, int count, Variant variant>
struct LoadedCodes {
    using R = Requests<count, variant>;
    Packed<E::bits, 8> words[R::number] = {};
    uint32_t bit = 0;  // at which the codes of a request start

    __device__ __forceinline__ LoadedCodes(const Arguments& a, const DequantizeScope& scope, const R& requests) {
        const uint8_t* const line = scope.codes + uint32_t(requests.row) * a.problem.in.line_bytes;
        const uint32_t column = uint32_t(requests.column);
        const int64_t step = R::by_tile ? a.code_step : R::column_step / 8 * E::bits;
        if (kIsWhole<variant> || a.whole_words_in) {
            bit = first_packed_bit<E::bits>(column);
#pragma unroll
            for (int i = 0; i < R::number; i++)
                if (i < requests.filled) words[i] = load_packed_words<E::bits, count>(line + i * step, column);
        } else {
#pragma unroll
            for (int i = 0; i < R::number; i++) {
                if (i >= requests.filled) continue;
                const auto packed = load_packed_narrow<E::bits, count>(line + i * step, column, requests.valid(i));
                words[i].words[0] = packed.words[0];
                if constexpr (packed.bytes > 4) words[i].words[1] = packed.words[1];
            }
        }
    }
    __device__ __forceinline__ Packed<E::bits, count> of_request(int i) const {
        return align_packed<E::bits, count>(words[i], bit);
    }
};

// Stores the vector of request i. All lanes of the warp call it.
template <class T, Variant variant>
__device__ __forceinline__ void store_request(const Arguments& a, const Requests<Vector<T>::count, variant>& requests, int i,
                                              const Vector<T>& vector, T* out) {
    if (!kIsWhole<variant> && !a.whole_vectors_out)
        store_vectors_unaligned<T, Requests<Vector<T>::count, variant>::row_lanes>(vector, out, requests.left_of_row(i));
    else if constexpr (kIsWhole<variant> && sizeof(T) == 2)
        store_vector_plain(vector, out, requests.exists(i));
    else
        store_vector_wide(vector, out, requests.exists(i));
}

// Reads, decodes and writes the vectors of a lane. All lanes of the warp call it.
template <class T, class E, class As, Variant variant>
__device__ __forceinline__ void dequantize_requests(const Arguments& a, const DequantizeScope& scope,
                                                    const Requests<Vector<T>::count, variant>& requests) {
    constexpr int count = Vector<T>::count, number = Requests<count, variant>::number;
    const LoadedCodes<E, count, variant> codes(a, scope, requests);
    const Scales<E, count, number, As> scales(a, scope, requests);
    T* out = reinterpret_cast<T*>(scope.out) + requests.first;
#pragma unroll
    for (int i = 0; i < number; i++, out += requests.step) {
        const auto scale = scales.of_request(i);
        Vector<T> vector;
        const float global = i < requests.filled ? scope.global : 0;
        if constexpr (std::is_same_v<As, ScaleF16>)
            vector = decode_e2m1<T>(codes.of_request(i).words[0], scale, global);
        else
            vector = decode_vector<T, E>(codes.of_request(i), scale, global);
        store_request<T, variant>(a, requests, i, vector, out);
    }
}

// Dequantizes the requests by packed products of NVFP4 where the output allows it, else by fp32 numbers.
template <class T, class E, Variant variant>
__device__ __forceinline__ void dequantize_requests(const Arguments& a, const DequantizeScope& scope,
                                                    const Requests<Vector<T>::count, variant>& requests) {
    if constexpr (E::bits == 4 && sizeof(T) == 2)
        if (a.problem.in.scale_type == ScaleType::E4M3) return dequantize_requests<T, E, ScaleF16>(a, scope, requests);
    dequantize_requests<T, E, ScaleNumber<E>>(a, scope, requests);
}

// The thread blocks of an SM. Codes below 8 bits take more instructions to decode, which as many thread blocks as fit hide:
// 4 to 5% of the copy rate.
#if defined(__CUDA_ARCH__) && ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200)
constexpr int kSmThreads = 1536;
#else
constexpr int kSmThreads = 2048;
#endif
template <class E, Variant variant>
constexpr int kSmBlocks = E::bits == 8 || variant == Variant::ByTile ? 6 : kSmThreads / kThreads;

// Returns a warp's row in a tile that thread blocks share: rows in order, or where scales lie in tiles those whose scale
// words are adjacent.
__device__ __forceinline__ int row_in_tile(uint32_t shares_log2, uint32_t share, int warp) {
    return shares_log2 == 0 ? warp : int(share) * 2 + warp % 2 + warp / 2 * 32;
}

template <class T, class E, Variant variant>
__global__ void __launch_bounds__(kThreads, kSmBlocks<E, variant>)
    dequantize_rowwise_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<Vector<T>::count, variant>;
    const int warp = int(threadIdx.x / 32);
    const uint32_t share = row_of_blocks() & ((1u << a.shares_log2) - 1);
    __shared__ Group group;
    DequantizeScope scope;
    int32_t row;
    const bool grouped = variant != Variant::Whole && (variant == Variant::Groups || a.problem.grouped.groups.set);
    if (!find_scope(a, grouped, row_of_blocks() >> a.shares_log2, sizeof(T), group, scope, row)) return;
    if constexpr (variant == Variant::ByTile) {
        constexpr int tile_blocks = R::shape.blocks;
        const int segment = int(blockIdx.x / tile_blocks), task = int(blockIdx.x % tile_blocks) * kWarps + warp;
        dequantize_requests<T, E>(a, scope, R(a.problem.out, scope, row, segment * kSegment, task));
    } else {
        constexpr int columns = R::shape.columns;
        row += row_in_tile(a.shares_log2, share, warp);
        dequantize_requests<T, E>(a, scope, R(a.problem.out, scope, row, int(blockIdx.x * columns), 0));
    }
}

constexpr auto kernels = kernels_of(
    []<class T, class E>(T, E, auto variant) { return kernel(dequantize_rowwise_kernel<T, E, variant.value>, kThreads); },
    PlainTypes{}, AllElements{}, Values<Variant::Whole, Variant::Groups, Variant::ByRow, Variant::ByTile>{});

// Returns whether warps go by tile: where short rows would take more than twice the requests (memory/segments.cuh).
bool goes_by_tile(const DequantizeProblem& p, int32_t count) {
    const auto requests = [&](Variant variant, int64_t rows) {
        const Shape shape = shape_of(count, variant);
        return rows * ceil_div(p.out.cols, shape.columns) * shape.number;
    };
    const int64_t tile_warps = ceil_div(p.out.rows, kSwizzleRows) * (kSegment / count);
    return 2 * requests(Variant::ByTile, tile_warps) < requests(Variant::ByRow, p.out.rows);
}

// Returns whether lanes can read their `count` codes in words.
bool reads_whole_words(const QuantizedPart& in, int count) {
    const int64_t codes = in.bits == 6 ? 16 : count, bytes = in.bits == 6 ? 4 : in.bits * count / 8;
    const bool lines_aligned = in.matrices * in.lines == 1 || in.line_bytes % bytes == 0;
    return is_aligned(in.codes, bytes) && lines_aligned && in.length % codes == 0;
}

int32_t vector_elements(const DequantizeProblem& p) {
    return p.out.format == MXQ_FORMAT_F32 ? Vector<float>::count : Vector<Bf16>::count;
}

Variant variant_of(const DequantizeProblem& p) {
    if (goes_by_tile(p, vector_elements(p))) return Variant::ByTile;
    if (!is_wide(p.out) || !reads_whole_words(p.in, vector_elements(p))) return Variant::ByRow;
    return p.grouped.set() ? Variant::Groups : Variant::Whole;
}

Arguments arguments_of(const DequantizeProblem& p, Variant variant, const Shape& shape) {
    const ScaleLayout& layout = p.in.layout;
    const bool by_tile = variant == Variant::ByTile;
    Arguments a{};
    a.problem = p;
    const int64_t tile_rows = by_tile || layout.swizzled ? kSwizzleRows : kWarps;
    a.shares_log2 = by_tile ? 0 : log2_of(uint32_t(tile_rows / kWarps));
    a.matrix_tiles = uint32_t(ceil_div(p.out.rows, tile_rows));
    a.tiles = p.grouped.set() ? row_tiles_bound(p.grouped, p.out.group_unit, tile_rows)
                              : uint32_t(p.out.matrices) * a.matrix_tiles;
    a.block_log2 = layout.block == MXQ_MAX_DIM ? 31 : log2_of(uint32_t(layout.block));
    a.code_step = shape.row_step * p.in.line_bytes;
    a.scale_step = layout.offset(0, shape.row_step, shape.column_step >> a.block_log2) - layout.offset(0, 0, 0);
    a.whole_words_in = reads_whole_words(p.in, shape.vector_elements);
    a.whole_vectors_out = is_wide(p.out);
    a.units = row_units(p.in.units, {p.out.group_unit, 1}, tile_rows);
    return a;
}

Reason declines(const Context& context, const DequantizeProblem& problem) {
    if (problem.columnwise) return "needs a rowwise part, found a columnwise one";
    if (problem.in.transformed) return "needs no transform, found a Hadamard transform";
    return needs_cuda(context);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const Variant variant = variant_of(problem);
    const Shape shape = shape_of(vector_elements(problem), variant);
    const Arguments a = arguments_of(problem, variant, shape);
    const int64_t across = ceil_div(problem.out.cols, shape.columns) * shape.blocks;
    const int64_t lines = int64_t(a.tiles) << a.shares_log2;
    launch(context, kernels, {problem.out.format, problem.in.element, variant}, "dequantize_rowwise", grid_of_rows(across, lines),
           call.stream, a);
}

}  // namespace

const DequantizeImplementation dequantize_rowwise = {"dequantize_rowwise", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
