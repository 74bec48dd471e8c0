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
// packed. The lanes of a block of 32 (16 where codes have four bits) load its scales of the four requests between them and
// exchange them by shuffles; a longer block loads its scale once for each 32 or 16.
//
// With groups, a block of threads takes one group tile, 128 rows of one group, down, and some columns; the rows that pad the
// output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written, in 16-byte stores that are contiguous across a request; bound by memory
// as long as addresses cost little: from request to request everything is a constant step away, and only experts take a
// division.
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRequests = 4;
constexpr int kSegment = 128;      // columns of a tile
constexpr int kGroupSegments = 4;  // of a group tile that a block of threads takes

struct Arguments {
    DequantizeProblem problem;
    uint32_t lines, matrix_lines;   // rows of blocks of threads: all, and those of a matrix; with groups, group tiles
    int64_t code_step, scale_step;  // from a request to the next, in bytes and in scales
    int32_t block_log2;             // codes of a scale's block
    bool whole_words_in;            // a lane reads its codes of a request in words
    bool whole_vectors_out;         // every row of the output is written in whole vectors
    GroupSumUnits units;
};

// The four vectors of a lane, `count` elements each; says which of its accesses exist (memory/elements.cuh).
template <int count, bool down>
struct Requests {
    static constexpr int segment_lanes = kSegment / count;
    static constexpr int parallel = 32 / segment_lanes;    // segments of a request
    static constexpr int tile_tasks = 32 / parallel;       // down: warps of a tile
    static constexpr int row_columns = kRequests * parallel * kSegment;  // along: columns of a warp
    static constexpr int row_step = down ? 32 : 0, column_step = down ? 0 : parallel * kSegment;

    int row, column;          // of request 0
    int filled, existing;     // requests that have codes; that are written
    int cols;
    int64_t first, step;      // in the output, in elements

    // Along: the warp's columns begin at `first_column` of one row. Down: it is warp `task` of the tile there.
    __device__ __forceinline__ Requests(const PlainMatrix& out, const DequantizeScope& scope, int first_row, int first_column,
                                        int task)
        : cols(int(out.cols)) {
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
    __device__ __forceinline__ int64_t offset(int i, int64_t) const { return first + i * step; }
};

// The scales of a lane's vectors: of the `sharers` lanes of a block, lane q loads those of requests q, q + sharers, ...
template <class E, int count>
struct Scales {
    static constexpr int block = E::bits == 4 ? 16 : 32;
    static constexpr int sharers = block / count < kRequests ? block / count : kRequests;
    float values[kRequests / sharers];

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
            values[k] = i < filled ? load_scale<E>(scope.scales, in.scale_type, first + i * a.scale_step) : 0;
        }
    }
    // Returns the scale of vector i. All lanes of the warp call it.
    __device__ __forceinline__ float of_request(int i) const {
        return __shfl_sync(kAllLanes, values[i / sharers], threadIdx.x % 32 / sharers * sharers + i % sharers);
    }
};

// Reads, decodes and writes the vectors of a lane. All lanes of the warp call it.
template <class T, class E, bool down>
__device__ __forceinline__ void dequantize_requests(const Arguments& a, const DequantizeScope& scope,
                                                    const Requests<Vector<T>::count, down>& requests) {
    constexpr int count = Vector<T>::count;
    const uint8_t* const line = scope.codes + requests.row * a.problem.in.line_bytes;
    Packed<E::bits, count> packed[kRequests] = {};
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        if (i >= requests.filled) continue;
        const uint8_t* const from = line + i * a.code_step;
        packed[i] = a.whole_words_in ? load_packed_wide<E::bits, count>(from, requests.column)
                                     : load_packed_narrow<E::bits, count>(from, requests.column, requests.valid(i));
    }
    const Scales<E, count> scales(a, scope, requests);
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float scale = scales.of_request(i), global = i < requests.filled ? scope.global : 0;
        const Codes<count> codes = unpack(packed[i]);
        float values[count];
#pragma unroll
        for (int j = 0; j < count; j += 2) {
            const float2 pair = decode_scaled_pair<E>(codes.words[j / 4] >> (j % 4 * 8) & 0xFFFF, scale, scale, global);
            values[j] = pair.x;
            values[j + 1] = pair.y;
        }
        T* out = reinterpret_cast<T*>(scope.out);
        store_vector(round_vector<T>(values), a.whole_vectors_out, out, a.problem.out.row_stride, requests, i);
    }
}

// A block of threads takes one group tile and kGroupSegments segments of it.
template <class T, class E>
__global__ void __launch_bounds__(kThreads, 4)
    dequantize_rowwise_groups_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<Vector<T>::count, true>;
    __shared__ Group group;
    const DequantizeProblem& p = a.problem;
    const uint32_t group_tile = row_of_blocks();
    if (group_tile >= a.lines) return;
    find_group_tile(p.grouped, a.units, group_tile, group);
    if (!group.exists()) return;
    const DequantizeScope scope = scope_of_group(p, group.first(), group.second().codes, group.rows, sizeof(T));
    const int row = int(group_tile - group.first_group_tile) * int(kSwizzleRows);
    const int column = int(blockIdx.x) * kGroupSegments * kSegment;
#pragma unroll 1
    for (int task = threadIdx.x / 32; task < kGroupSegments * R::tile_tasks; task += kWarps) {
        const int of_task = column + task / R::tile_tasks * kSegment;
        if (of_task >= p.out.cols) break;
        dequantize_requests<T, E>(a, scope, R(p.out, scope, row, of_task, task % R::tile_tasks));
    }
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

// A block of threads takes some columns of kWarps rows (along), or one of the tile_blocks shares of a tile (down).
template <class T, class E, bool down>
__global__ void __launch_bounds__(kThreads, kSmBlocks<E>) dequantize_rowwise_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<Vector<T>::count, down>;
    constexpr int tile_blocks = R::tile_tasks / kWarps;
    const PlainMatrix& out = a.problem.out;
    const uint32_t line = row_of_blocks(), warp = threadIdx.x / 32;
    if (line >= a.lines) return;
    const uint32_t matrix = out.matrices == 1 ? 0 : line / a.matrix_lines, in_matrix = line - matrix * a.matrix_lines;
    const DequantizeScope scope = scope_of_expert(a.problem, matrix, sizeof(T));
    if constexpr (down) {
        const uint32_t segment = blockIdx.x / tile_blocks, task = blockIdx.x % tile_blocks * kWarps + warp;
        dequantize_requests<T, E>(a, scope, R(out, scope, int(in_matrix * kSwizzleRows), int(segment * kSegment), int(task)));
    } else {
        dequantize_requests<T, E>(a, scope, R(out, scope, int(in_matrix * kWarps + warp), int(blockIdx.x * R::row_columns), 0));
    }
}

// A kernel, how its requests lie (`Requests`) and how its grid divides the columns: `blocks` blocks of threads for every
// `columns`.
struct Kernel {
    KernelTypes types;
    bool grouped, down;
    void (*function)(Arguments);
    bool (*writes_whole_vectors)(const PlainMatrix&);
    int32_t vector_elements;
    int32_t row_step, column_step, columns, blocks;
};

template <class T, class E>
constexpr std::array<Kernel, 3> kernels_of() {
    constexpr int count = Vector<T>::count;
    using Along = Requests<count, false>;
    using Down = Requests<count, true>;
    constexpr KernelTypes types = types_of<T, E>();
    return {{{types, false, false, dequantize_rowwise_kernel<T, E, false>, is_wide<T>, count, 0, Along::column_step,
              Along::row_columns, 1},
             {types, false, true, dequantize_rowwise_kernel<T, E, true>, is_wide<T>, count, Down::row_step, 0, kSegment,
              Down::tile_tasks / kWarps},
             {types, true, true, dequantize_rowwise_groups_kernel<T, E>, is_wide<T>, count, Down::row_step, 0,
              kGroupSegments * kSegment, 1}}};
}

constexpr auto kernels = for_all_types([]<class T, class E>(T, E) { return kernels_of<T, E>(); });

// Returns whether warps go down tiles: where scales lie in tiles, or where rows are so short that it takes less than half of
// the warps (memory/segments.cuh).
template <int count>
bool goes_down(const DequantizeProblem& p) {
    using R = Requests<count, true>;
    const int64_t along = p.out.rows * ceil_div(p.out.cols, R::row_columns);
    const int64_t down = ceil_div(p.out.rows, kSwizzleRows) * ceil_div(p.out.cols, kSegment) * R::tile_tasks;
    return p.grouped.set() || p.in.layout.swizzled || 2 * down < along;
}

const Kernel& kernel_for(const DequantizeProblem& p) {
    const bool down = p.out.format == MXQ_FORMAT_F32 ? goes_down<4>(p) : goes_down<8>(p);
    for (const auto& of_types : kernels)
        for (const Kernel& kernel : of_types)
            if (kernel.types == KernelTypes{p.out.format, p.in.element} && kernel.grouped == p.grouped.set() &&
                kernel.down == down)
                return kernel;
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
    a.matrix_lines = uint32_t(ceil_div(p.out.rows, kernel.down ? int64_t(kSwizzleRows) : kWarps));
    a.lines = uint32_t(p.grouped.set() ? group_tiles_bound(p.grouped) : p.out.matrices * a.matrix_lines);
    a.block_log2 = layout.block == MXQ_MAX_DIM ? 31 : log2_of(uint32_t(layout.block));
    a.code_step = kernel.down ? kernel.row_step * p.in.line_bytes : kernel.column_step / 8 * p.in.bits;
    if (layout.swizzled) a.scale_step = swizzle_in_tile(kernel.row_step, 0);
    else if (kernel.down) a.scale_step = kernel.row_step / layout.tile_rows * layout.line_stride;
    else a.scale_step = kernel.column_step / layout.block * layout.column_stride;
    a.whole_words_in = reads_whole_words(p.in, kernel.vector_elements);
    a.whole_vectors_out = kernel.writes_whole_vectors(p.out);
    a.units = group_sum_units(p.in.units, {p.out.group_unit, 1});
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
