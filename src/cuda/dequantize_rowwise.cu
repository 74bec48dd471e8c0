// dequantize_rowwise: a rowwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A warp writes four requests of 16 bytes a lane: four chunks of 8 or 4 (F32) elements. They lie
//
//     along  one row, side by side: 2 KB of it
//     down   one tile of 128 rows x 128 columns, requests 32 rows apart, so that the warp's scales are neighbours in the
//            swizzled tiles and all rows of the tile use them up
//
//     lane (16 bits)   0  1  2  3 | 4  5  6  7 | 8 .. 15 | 16 ...
//                      block 0    | block 1    | 2, 3    | along: blocks 4 .. 7; down: the next row
//
// A lane reads the codes of its four chunks, all before the first use: 8, 6 or 4 bytes each, a word or two where codes are
// packed. The lanes of a block divide its scales of the four requests among them and fetch them by shuffles. So it is with
// blocks of 16 for codes of four bits; other blocks repeat a scale.
//
// With groups, a block of threads takes 128 rows of one group, down, and some columns; the rows that pad the output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written, in 16-byte stores that are contiguous across a request; bound by memory.
#include "cuda/decode.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRequests = 4;
constexpr int kSegment = 128;       // columns of a tile
constexpr int kGroupSegments = 4;   // that a block of threads takes of a group

struct Arguments {
    DequantizeProblem problem;
    int64_t in_row;     // segments of a row
    int64_t row_tasks;  // along: warps of a row
    int64_t tasks;      // warps; with groups, blocks of threads
    bool down, wide_in, wide_out;
};

// A matrix, or a group of one: where its codes, scales and rows begin, and how many rows have codes and places.
struct Region {
    const uint8_t* codes;
    const uint8_t* scales;
    uint8_t* out;
    int64_t rows, out_rows;
    float global;
};

// The four chunks of a lane, `count` elements each; a place in the sense of access.cuh.
template <int count>
struct Requests {
    static constexpr int segment_lanes = kSegment / count;
    static constexpr int parallel = 32 / segment_lanes;    // segments of a request
    static constexpr int tile_tasks = 32 / parallel;       // down: warps of a tile
    static constexpr int row_columns = kRequests * parallel * kSegment;  // along: columns of a warp

    int row, column;          // of request 0
    int row_step, column_step;
    int filled, existing;     // requests that have codes, and places
    int cols;

    // Along: warp `task` of `row`. Down: of the tile at (row, segment).
    __device__ __forceinline__ Requests(const Arguments& a, const Region& region, int64_t first_row, int64_t first_column,
                                        int task)
        : cols(int(a.problem.out.cols)) {
        const int lane = threadIdx.x % 32, segment = lane / segment_lanes;
        row = int(first_row) + (a.down ? task * parallel + segment : 0);
        column = int(first_column) + (a.down ? 0 : segment * kSegment) + lane % segment_lanes * count;
        row_step = a.down ? 32 : 0;
        column_step = a.down ? 0 : parallel * kSegment;
        filled = steps(region.rows);
        existing = steps(region.out_rows);
    }
    __device__ __forceinline__ int steps(int64_t rows) const {
        const int64_t room = row_step ? (rows - row + 31) / 32 : (int64_t(cols) - column + column_step - 1) / column_step;
        return row >= rows || column >= cols ? 0 : int(min(room, int64_t(kRequests)));
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int valid(int i) const {
        return exists(i) ? int(min(cols - column_of(i), int64_t(count))) : 0;
    }
    __device__ __forceinline__ int64_t row_of(int i) const { return int64_t(row) + i * row_step; }
    __device__ __forceinline__ int64_t column_of(int i) const { return int64_t(column) + i * column_step; }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const { return row_of(i) * stride + column_of(i); }
};

template <int bits, int count>
__device__ __forceinline__ Packed<bits, count> load_request(const Arguments& a, const Region& region,
                                                            const Requests<count>& requests, int i) {
    if (i >= requests.filled) return {};
    const uint8_t* line = region.codes + requests.row_of(i) * a.problem.in.line_bytes;
    const int64_t column = requests.column_of(i);
    return a.wide_in ? load_packed_wide<bits, count>(line, column)
                     : load_packed_narrow<bits, count>(line, column, requests.valid(i));
}

// The scales of a lane's chunks: of the `sharers` lanes of a block, lane q loads those of requests q, q + sharers, ...
template <class E, int count>
struct Scales {
    static constexpr int block = E::bits == 4 ? 16 : 32;
    static constexpr int sharers = block / count < kRequests ? block / count : kRequests;
    float values[kRequests / sharers];

    __device__ __forceinline__ Scales(const Arguments& a, const Region& region, const Requests<count>& requests) {
        const QuantizedPart& in = a.problem.in;
        // Of a cut block, the first lane has codes.
        const int filled = __shfl_sync(kAllLanes, requests.filled, threadIdx.x % 32 / sharers * sharers);
#pragma unroll
        for (int k = 0; k < kRequests / sharers; k++) {
            const int i = k * sharers + threadIdx.x % sharers;
            const int64_t row = requests.row_of(i), column = requests.column_of(i);
            values[k] = i < filled ? load_scale(region.scales, in.layout, in.scale_type, 0, row, column) : 0;
        }
    }
    __device__ __forceinline__ float of_request(int i) const {
        return __shfl_sync(kAllLanes, values[i / sharers], threadIdx.x % 32 / sharers * sharers + i % sharers);
    }
};

template <class T, class E>
__device__ __forceinline__ void dequantize_requests(const Arguments& a, const Region& region,
                                                    const Requests<Chunk<T>::count>& requests) {
    constexpr int count = Chunk<T>::count;
    Packed<E::bits, count> packed[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) packed[i] = load_request<E::bits>(a, region, requests, i);
    const Scales<E, count> scales(a, region, requests);
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float scale = scales.of_request(i), global = i < requests.filled ? region.global : 0;
        const Codes<count> codes = unpack(packed[i]);
        float values[count];
#pragma unroll
        for (int j = 0; j < count; j += 2) {
            const float2 pair = decode_scaled_pair<E>(codes.words[j / 4] >> (j % 4 * 8) & 0xFFFF, scale, scale, global);
            values[j] = pair.x;
            values[j + 1] = pair.y;
        }
        T* out = reinterpret_cast<T*>(region.out);
        store_chunk(round_chunk<T>(values), a.wide_out, out, a.problem.out.row_stride, requests, i);
    }
}

__device__ __forceinline__ Region region_of_matrix(const DequantizeProblem& p, int64_t matrix, int64_t element_bytes) {
    const ScaleLayout& layout = p.in.layout;
    return {p.in.line(matrix, 0), p.in.scales + matrix * layout.matrix_scales * layout.bytes,
            static_cast<uint8_t*>(p.out.data) + matrix * p.out.rows * p.out.row_stride * element_bytes, p.out.rows,
            p.out.rows, global_scale(p.in, matrix)};
}

__device__ __forceinline__ Region region_of_group(const DequantizeProblem& p, const Group& group, int64_t element_bytes) {
    return {group_codes(p.in, group.first), group_scales(p.in, group.first),
            static_cast<uint8_t*>(p.out.data) + group.second.codes * p.out.row_stride * element_bytes, group.rows,
            round_up(group.rows, p.out.group_unit), global_scale(p.in, group.first.index)};
}

// A block of threads takes 128 rows of a group and kGroupSegments segments.
template <class T, class E>
__global__ void __launch_bounds__(kThreads, 4)
    dequantize_rowwise_groups_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<Chunk<T>::count>;
    const DequantizeProblem& p = a.problem;
    const int64_t slab = block_index() / a.row_tasks, stretch = block_index() - slab * a.row_tasks;
    if (block_index() >= a.tasks) return;
    const Group group = group_of_slab(p.grouped, p.in.units, {p.out.group_unit, 1}, slab);
    if (!group.exists()) return;
    const Region region = region_of_group(p, group, sizeof(T));
    const int64_t first_row = (slab - group.slab) * kSwizzleRows;
    const int segments = int(min(a.in_row - stretch * kGroupSegments, int64_t(kGroupSegments)));
#pragma unroll 1
    for (int task = threadIdx.x / 32; task < segments * R::tile_tasks; task += kWarps) {
        const int64_t segment = stretch * kGroupSegments + task / R::tile_tasks;
        dequantize_requests<T, E>(a, region, R(a, region, first_row, segment * kSegment, task % R::tile_tasks));
    }
}

template <class T, class E>
__global__ void __launch_bounds__(kThreads, 6) dequantize_rowwise_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<Chunk<T>::count>;
    const PlainMatrix& out = a.problem.out;
    const int64_t task = block_index() * kWarps + threadIdx.x / 32;
    if (task >= a.tasks) return;
    const int64_t unit = a.down ? task / R::tile_tasks : task, in_row = a.down ? a.in_row : a.row_tasks;
    const int64_t line = unit / in_row, lines = a.down ? ceil_div(out.rows, kSwizzleRows) : out.rows;  // of tiles or rows
    const int64_t matrix = out.matrices == 1 ? 0 : line / lines;
    const Region region = region_of_matrix(a.problem, matrix, sizeof(T));
    const int64_t row = (line - matrix * lines) * (a.down ? kSwizzleRows : 1);
    const int64_t column = (unit - line * in_row) * (a.down ? kSegment : R::row_columns);
    dequantize_requests<T, E>(a, region, R(a, region, row, column, int(task % R::tile_tasks)));
}

std::string declines(const Context& context, const DequantizeProblem& problem) {
    if (problem.columnwise) return "needs a rowwise part, found a columnwise one";
    return needs_cuda(context);
}

// Fills in how the matrix is divided; the number of thread blocks.
template <int count>
int64_t divide(Arguments& a) {
    using R = Requests<count>;
    const PlainMatrix& out = a.problem.out;
    a.in_row = ceil_div(out.cols, kSegment);
    if (a.problem.grouped.set()) {
        a.down = true;
        a.row_tasks = ceil_div(a.in_row, kGroupSegments);
        a.tasks = slabs_bound(a.problem.grouped) * a.row_tasks;
        return a.tasks;
    }
    a.row_tasks = ceil_div(out.cols, R::row_columns);
    const int64_t along = out.matrices * out.rows * a.row_tasks;
    const int64_t down = out.matrices * ceil_div(out.rows, kSwizzleRows) * a.in_row * R::tile_tasks;
    a.down = a.problem.in.layout.swizzled || down < along;
    a.tasks = a.down ? down : along;
    return ceil_div(a.tasks, kWarps);
}

// Whether lanes can read their `count` codes in words.
bool is_wide_at(const QuantizedPart& in, int count) {
    const int64_t codes = in.bits == 6 ? 16 : count, bytes = in.bits == 6 ? 4 : in.bits * count / 8;
    const bool lines_aligned = in.matrices * in.lines == 1 || in.line_bytes % bytes == 0;
    return is_aligned(in.codes, bytes) && lines_aligned && in.length % codes == 0;
}

template <class T, class E>
void run_types(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    Arguments a{problem, 0, 0, 0, false, is_wide_at(problem.in, Chunk<T>::count), is_wide<T>(problem.out)};
    const int64_t blocks = divide<Chunk<T>::count>(a);
    const auto kernel = problem.grouped.set() ? dequantize_rowwise_groups_kernel<T, E> : dequantize_rowwise_kernel<T, E>;
    launch(context, kernel, "dequantize_rowwise", grid_of(blocks), dim3(kThreads), 0, call.stream, a);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    with_types(problem.out.format, problem.in.element,
                       [&]<class T, class E>(T, E) { run_types<T, E>(context, problem, call); });
}

}  // namespace

const DequantizeImplementation dequantize_rowwise = {"dequantize_rowwise", declines, nullptr, run};

void load_dequantize_rowwise() {
    with_all_types([]<class T, class E>(T, E) {
        load_kernel(reinterpret_cast<const void*>(dequantize_rowwise_kernel<T, E>), 0);
        load_kernel(reinterpret_cast<const void*>(dequantize_rowwise_groups_kernel<T, E>), 0);
    });
}

}  // namespace mxq::cuda
