// dequantize_rowwise: a rowwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A warp writes four requests of 16 bytes a lane: four vectors of 8 or 4 (F32) elements. They lie
//
//     along  one row, side by side: 2 KB of it
//     down   one tile of 128 rows x 128 columns, requests 32 rows apart, so that the warp's scales are neighbours in the
//            swizzled tiles and all rows of the tile use them up
//
//     lane (16 bits)   0  1  2  3 | 4  5  6  7 | 8 .. 15 | 16 ...
//                      block 0    | block 1    | 2, 3    | along: blocks 4 .. 7; down: the next row
//
// A lane reads the codes of its four vectors, all before the first use: 8, 6 or 4 bytes each, a word or two where codes are
// packed. Packed ones are decoded where they are (numerics/packed_pairs.h), to BF16 under E8M0 scales in packed products. The
// lanes of a block of 32 (16 where codes have four bits) load its scales of the four requests between them and exchange them
// by shuffles; a longer block loads its scale once for each 32 or 16. Rows that are not aligned are stored by whole warps
// (memory/spread_store.cuh).
//
// A block of threads takes 8 rows along, or a share of a tile down. With groups these are of one group
// (memory/row_tiles.cuh); the rows that pad the output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written, in 16-byte stores that are contiguous across a request; bound by
// memory as long as addresses cost little: from request to request everything is a constant step away, and only experts take
// a division.
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/memory/row_tiles.cuh"
#include "cuda/memory/spread_store.cuh"
#include "numerics/packed_pairs.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRequests = 4;
constexpr int kSegment = 128;  // columns of a tile

struct Arguments {
    DequantizeProblem problem;
    uint32_t lines, matrix_lines;   // tiles of rows: all, with groups as many as any ends need, and those of a matrix
    int64_t code_step, scale_step;  // from a request to the next, in bytes and in scales
    int32_t block_log2;             // codes of a scale's block
    bool whole_words_in;            // a lane reads its codes of a request in words
    bool whole_vectors_out;         // every row of the output is written in whole vectors
    RowUnits units;
};

// The four vectors of a lane, `count` elements each; says which of its accesses exist (memory/elements.cuh).
template <int count, bool down>
struct Requests {
    static constexpr int segment_lanes = kSegment / count;
    static constexpr int parallel = 32 / segment_lanes;    // segments of a request
    static constexpr int tile_tasks = 32 / parallel;       // down: warps of a tile
    static constexpr int row_columns = kRequests * parallel * kSegment;  // along: columns of a warp
    static constexpr int row_step = down ? 32 : 0, column_step = down ? 0 : parallel * kSegment;

    static constexpr int row_lanes = down ? segment_lanes : 32;  // that have one row

    int row, column;          // of request 0
    int filled, existing;     // requests that have codes; that are written
    int cols, out_rows;
    int64_t first, step;      // in the output, in elements

    // Along: the warp's columns begin at `first_column` of one row. Down: it is warp `task` of the tile there.
    __device__ __forceinline__ Requests(const PlainMatrix& out, const DequantizeScope& scope, int first_row,
                                        int first_column, int task)
        : cols(int(out.cols)), out_rows(scope.out_rows) {
        const int lane = threadIdx.x % 32, segment = lane / segment_lanes;
        row = first_row + (down ? task * parallel + segment : 0);
        column = first_column + (down ? 0 : segment * kSegment) + lane % segment_lanes * count;
        filled = requests_before(scope.rows);
        existing = requests_before(scope.out_rows);
        first = row * out.row_stride + column;
        step = down ? row_step * out.row_stride : column_step;
    }
    // Returns how many requests begin inside of the first `rows` rows.
    __device__ __forceinline__ int requests_before(int rows) const {
        const uint32_t left = uint32_t(down ? rows - row : cols - column);
        constexpr uint32_t each = down ? row_step : column_step;
        return row >= rows || column >= cols ? 0 : int(min((left + each - 1) / each, uint32_t(kRequests)));
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int valid(int i) const { return exists(i) ? min(cols - column - i * column_step, count) : 0; }
    // Returns how many elements the lane's row has from request i on, if that is written.
    __device__ __forceinline__ int left_of_row(int i) const {
        const int first = column - int(threadIdx.x) % row_lanes * count + i * column_step;
        return row + i * row_step < out_rows ? cols - first : 0;
    }
};

// Loads the scale of a block as an fp32 number; ScaleByte as the byte that is stored.
template <class E>
struct ScaleNumber {
    using Value = float;
    static __device__ __forceinline__ float load(const uint8_t* scales, ScaleType type, int64_t at) {
        return load_scale<E>(scales, type, at);
    }
};
struct ScaleByte {
    using Value = uint32_t;
    static __device__ __forceinline__ uint32_t load(const uint8_t* scales, ScaleType, int64_t at) { return scales[at]; }
};

// The scales of a lane's vectors: of the `sharers` lanes of a block, lane q loads those of requests q, q + sharers, ...
template <class E, int count, class As>
struct Scales {
    static constexpr int block = E::bits == 4 ? 16 : 32;
    static constexpr int sharers = block / count < kRequests ? block / count : kRequests;
    typename As::Value values[kRequests / sharers];

    template <bool down>
    __device__ __forceinline__ Scales(const Arguments& a, const DequantizeScope& scope,
                                      const Requests<count, down>& requests) {
        const QuantizedPart& in = a.problem.in;
        // Where the matrix cuts a block, its first lane has codes: what that one loads is all that any lane needs.
        const int filled = __shfl_sync(kAllLanes, requests.filled, threadIdx.x % 32 / sharers * sharers);
        const int64_t first = in.layout.offset(0, requests.row, requests.column >> a.block_log2);
#pragma unroll
        for (int k = 0; k < kRequests / sharers; k++) {
            const int i = k * sharers + threadIdx.x % sharers;
            values[k] = i < filled ? As::load(scope.scales, in.scale_type, first + i * a.scale_step) : 0;
        }
    }
    // Returns the scale of vector i. All lanes of the warp call it.
    __device__ __forceinline__ typename As::Value of_request(int i) const {
        return __shfl_sync(kAllLanes, values[i / sharers], threadIdx.x % 32 / sharers * sharers + i % sharers);
    }
};

// Returns a vector's values under a scale, and under what stands above it.
template <class T, class E>
__device__ __forceinline__ Vector<T> decode_vector(const Packed<E::bits, Vector<T>::count>& packed, float scale,
                                                   float global) {
    constexpr int count = Vector<T>::count;
    float values[count];
    if constexpr (E::bits < 8 && count == 8) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = decode_window<E>(window_of_line<E::bits>(packed.words, j), bit_in_window<E::bits>(j));
            values[j] = multiply_rn(pair.x, scale), values[j + 4] = multiply_rn(pair.y, scale);
            if constexpr (E::bits == 4)
                values[j] = multiply_rn(values[j], global), values[j + 4] = multiply_rn(values[j + 4], global);
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

// Returns eight codes under an E8M0 scale as BF16: by one factor for all, unless the scale is special.
template <class E>
__device__ __forceinline__ Vector<Bf16> decode_by_factor(const Packed<E::bits, 8>& packed, uint32_t scale) {
    constexpr Bf16DecodeRule rule = bf16_decode_rule<E>();
    if (is_special_scale(rule, scale)) return decode_vector<Bf16, E>(packed, scale_value(scale), 1);
    const uint32_t factor = bf16_e8m0_factor(rule, scale);
    uint32_t pairs[4];  // codes j and j + 4
#pragma unroll
    for (int j = 0; j < 4; j++)
        pairs[j] = decode_window_to_bf16<E>(window_of_line<E::bits>(packed.words, j), bit_in_window<E::bits>(j), factor);
    return {{permute_bytes(pairs[0], pairs[1], 0x5410), permute_bytes(pairs[2], pairs[3], 0x5410),
             permute_bytes(pairs[0], pairs[1], 0x7632), permute_bytes(pairs[2], pairs[3], 0x7632)}};
}

// The codes of a lane's vectors as they were loaded, all before the first is needed; what is missing is zero.
template <class E, int count>
struct LoadedCodes {
    Packed<E::bits, 8> words[kRequests] = {};
    uint32_t bit = 0;  // where those of a request begin

    template <bool down>
    __device__ __forceinline__ LoadedCodes(const Arguments& a, const DequantizeScope& scope,
                                           const Requests<count, down>& requests) {
        const uint8_t* const line = scope.codes + requests.row * a.problem.in.line_bytes;
        if (a.whole_words_in) {
            bit = first_packed_bit<E::bits>(requests.column);
#pragma unroll
            for (int i = 0; i < kRequests; i++)
                if (i < requests.filled)
                    words[i] = load_packed_words<E::bits, count>(line + i * a.code_step, requests.column);
            return;
        }
#pragma unroll
        for (int i = 0; i < kRequests; i++) {
            if (i >= requests.filled) continue;
            const auto packed =
                load_packed_narrow<E::bits, count>(line + i * a.code_step, requests.column, requests.valid(i));
            words[i].words[0] = packed.words[0];
            if constexpr (packed.bytes > 4) words[i].words[1] = packed.words[1];
        }
    }
    __device__ __forceinline__ Packed<E::bits, count> of_request(int i) const {
        return align_packed<E::bits, count>(words[i], bit);
    }
};

// Stores the vector of request i. F32 that is not aligned stays with its lanes: by the other way an H100 took 5% longer. All
// lanes of the warp call it.
template <class T, bool down>
__device__ __forceinline__ void store_request(const Arguments& a, const Requests<Vector<T>::count, down>& requests, int i,
                                              const Vector<T>& vector, T* out, SpreadStore<T>& spread) {
    if (a.whole_vectors_out) store_vector_wide(vector, out, requests.exists(i));
    else if constexpr (sizeof(T) == 4) store_vector_narrow(vector, out, requests.valid(i));
    else spread.store(vector, out, requests.left_of_row(i), requests.row_lanes);
}

// Reads, decodes and writes the vectors of a lane. All lanes of the warp call it.
template <class T, class E, class As, bool down>
__device__ __forceinline__ void dequantize_requests(const Arguments& a, const DequantizeScope& scope,
                                                    const Requests<Vector<T>::count, down>& requests, SpreadStore<T>& spread) {
    constexpr int count = Vector<T>::count;
    const LoadedCodes<E, count> codes(a, scope, requests);
    const Scales<E, count, As> scales(a, scope, requests);
    T* out = reinterpret_cast<T*>(scope.out) + requests.first;
#pragma unroll
    for (int i = 0; i < kRequests; i++, out += requests.step) {
        const auto scale = scales.of_request(i);
        Vector<T> vector;
        if constexpr (std::is_same_v<As, ScaleByte>)
            vector = decode_by_factor<E>(codes.of_request(i), scale);
        else
            vector = decode_vector<T, E>(codes.of_request(i), scale, i < requests.filled ? scope.global : 0);
        store_request(a, requests, i, vector, out, spread);
    }
}

// Dequantizes the requests by way of packed factors where the types allow it, else by fp32 numbers.
template <class T, class E, bool down>
__device__ __forceinline__ void dequantize_requests(const Arguments& a, const DequantizeScope& scope,
                                                    const Requests<Vector<T>::count, down>& requests) {
    __shared__ SpreadStore<T> spreads[kWarps];
    SpreadStore<T>& spread = spreads[threadIdx.x / 32];
    if constexpr (E::bits < 8 && std::is_same_v<T, Bf16>)
        if (E::bits == 6 || a.problem.in.scale_type == ScaleType::E8M0)
            return dequantize_requests<T, E, ScaleByte>(a, scope, requests, spread);
    dequantize_requests<T, E, ScaleNumber<E>>(a, scope, requests, spread);
}

// Finds the expert or the group of a line of blocks of threads, and its first row there; false: there is none. All threads
// of the block call it.
template <int tile_rows>
__device__ __forceinline__ bool find_scope(const Arguments& a, uint32_t line, int64_t element_bytes, DequantizeScope& scope,
                                           int32_t& row) {
    const DequantizeProblem& p = a.problem;
    if (line >= a.lines) return false;
    if (!p.grouped.groups.set) {
        const uint32_t matrix = p.out.matrices == 1 ? 0 : line / a.matrix_lines;
        scope = scope_of_expert(p, matrix, element_bytes);
        row = int32_t(line - matrix * a.matrix_lines) * tile_rows;
        return true;
    }
    __shared__ Group group;
    if (!find_group_of_rows(p.grouped, a.units, line, group)) return false;
    scope = scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes);
    row = int32_t(line - group.first_group_tile) * tile_rows;
    return true;
}

// Blocks of threads that share an SM. Codes below 8 bits take more instructions to decode: as many blocks as the SM has room
// for hide them, by 4 to 5 points of a copy.
#if defined(__CUDA_ARCH__) && ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200)
constexpr int kSmThreads = 1536;
#else
constexpr int kSmThreads = 2048;
#endif
template <class E>
constexpr int kSmBlocks = E::bits == 8 ? 6 : kSmThreads / kThreads;

template <bool down>
constexpr int kTileRows = down ? kSwizzleRows : kWarps;

// A block of threads takes some columns of kWarps rows (along), or one of the tile_blocks shares of a tile (down).
template <class T, class E, bool down>
__global__ void __launch_bounds__(kThreads, kSmBlocks<E>) dequantize_rowwise_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<Vector<T>::count, down>;
    constexpr int tile_blocks = R::tile_tasks / kWarps;
    const int warp = int(threadIdx.x / 32);
    DequantizeScope scope;
    int32_t row;
    if (!find_scope<kTileRows<down>>(a, row_of_blocks(), sizeof(T), scope, row)) return;
    if constexpr (down) {
        const int segment = int(blockIdx.x / tile_blocks), task = int(blockIdx.x % tile_blocks) * kWarps + warp;
        dequantize_requests<T, E>(a, scope, R(a.problem.out, scope, row, segment * kSegment, task));
    } else {
        dequantize_requests<T, E>(a, scope, R(a.problem.out, scope, row + warp, int(blockIdx.x * R::row_columns), 0));
    }
}

// A kernel, how its requests lie (`Requests`) and how its grid divides the columns: `blocks` blocks of threads for every
// `columns`.
struct Kernel {
    KernelTypes types;
    bool down;
    void (*function)(Arguments);
    bool (*writes_whole_vectors)(const PlainMatrix&);
    int32_t vector_elements;
    int32_t row_step, column_step, columns, blocks;
};

template <class T, class E>
constexpr std::array<Kernel, 2> kernels_of() {
    constexpr int count = Vector<T>::count;
    using Along = Requests<count, false>;
    using Down = Requests<count, true>;
    constexpr KernelTypes types = types_of<T, E>();
    return {{{types, false, dequantize_rowwise_kernel<T, E, false>, is_wide<T>, count, 0, Along::column_step,
              Along::row_columns, 1},
             {types, true, dequantize_rowwise_kernel<T, E, true>, is_wide<T>, count, Down::row_step, 0, kSegment,
              Down::tile_tasks / kWarps}}};
}

constexpr auto kernels = for_all_types([]<class T, class E>(T, E) { return kernels_of<T, E>(); });

// Returns whether warps go down tiles: where scales lie in tiles, or where rows are so short that it takes less than half of
// the warps (memory/segments.cuh).
template <int count>
bool goes_down(const DequantizeProblem& p) {
    using R = Requests<count, true>;
    const int64_t along = p.out.rows * ceil_div(p.out.cols, R::row_columns);
    const int64_t down = ceil_div(p.out.rows, kSwizzleRows) * ceil_div(p.out.cols, kSegment) * R::tile_tasks;
    return p.in.layout.swizzled || 2 * down < along;
}

const Kernel& kernel_for(const DequantizeProblem& p) {
    const bool down = p.out.format == MXQ_FORMAT_F32 ? goes_down<4>(p) : goes_down<8>(p);
    for (const auto& of_types : kernels)
        for (const Kernel& kernel : of_types)
            if (kernel.types == KernelTypes{p.out.format, p.in.element} && kernel.down == down) return kernel;
    return kernels[0][0];  // not reached: there is a kernel for every pair of types
}

// Returns whether lanes can read their `count` codes in words.
bool reads_whole_words(const QuantizedPart& in, int count) {
    const int64_t codes = in.bits == 6 ? 16 : count, bytes = in.bits == 6 ? 4 : in.bits * count / 8;
    const bool lines_aligned = in.matrices * in.lines == 1 || in.line_bytes % bytes == 0;
    return is_aligned(in.codes, bytes) && lines_aligned && in.length % codes == 0;
}

Arguments arguments_of(const DequantizeProblem& p, const Kernel& kernel) {
    const ScaleLayout& layout = p.in.layout;
    Arguments a{};
    a.problem = p;
    const int64_t tile_rows = kernel.down ? kTileRows<true> : kTileRows<false>;
    a.matrix_lines = uint32_t(ceil_div(p.out.rows, tile_rows));
    a.lines = p.grouped.set() ? row_tiles_bound(p.grouped, p.out.group_unit, tile_rows)
                              : uint32_t(p.out.matrices) * a.matrix_lines;
    a.block_log2 = layout.block == MXQ_MAX_DIM ? 31 : log2_of(uint32_t(layout.block));
    a.code_step = kernel.down ? kernel.row_step * p.in.line_bytes : kernel.column_step / 8 * p.in.bits;
    if (layout.swizzled) a.scale_step = swizzle_in_tile(kernel.row_step, 0);
    else if (kernel.down) a.scale_step = kernel.row_step / layout.tile_rows * layout.line_stride;
    else a.scale_step = kernel.column_step / layout.block * layout.column_stride;
    a.whole_words_in = reads_whole_words(p.in, kernel.vector_elements);
    a.whole_vectors_out = kernel.writes_whole_vectors(p.out);
    a.units = row_units(p.in.units, {p.out.group_unit, 1}, tile_rows);
    return a;
}

Reason declines(const Context& context, const DequantizeProblem& problem) {
    if (problem.columnwise) return "needs a rowwise part, found a columnwise one";
    if (problem.in.transformed) return "needs no transform, found a Hadamard transform";
    return needs_cuda(context);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const Kernel& kernel = kernel_for(problem);
    const Arguments a = arguments_of(problem, kernel);
    const int64_t across = ceil_div(problem.out.cols, kernel.columns) * kernel.blocks;
    launch(context, kernel.function, "dequantize_rowwise", grid_of_rows(across, a.lines), dim3(kThreads), 0, call.stream, a);
}

void load(const Context&) {
    for (const auto& of_types : kernels)
        for (const Kernel& kernel : of_types) load_kernel(kernel.function);
}

}  // namespace

const DequantizeImplementation dequantize_rowwise = {"dequantize_rowwise", declines, nullptr, run, load};

}  // namespace mxq::cuda
