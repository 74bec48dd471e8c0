// amax: the largest magnitudes of F32, F16 or BF16, for NVFP4, FP8, and ROW scales of MX. quantize runs it as a first pass,
// too.
//
// A thread block takes a region, and a thread eight 16-byte vectors at a time, all loaded before the first use:
//
//     long row   32 KB of a row; contiguous rows, and experts that share a maximum, count as one row
//     strip      up to 256 vectors of eight rows or more; with groups up to 128 rows of one group
//
//     amax_kernel         one maximum for an expert, a group or all: thread, warp, thread block, then one atomic
//     amax_lines_kernel   one for each row (warp, then shared memory) and column (thread): one atomic each
//     amax_tile_kernel    of transformed parts and quantized inputs, from a tile in shared memory (tile/shared_tile.cuh)
//     amax_codes_kernel   of aligned E4M3 and E2M1 codes (requantize/amax_codes.cu)
//
// Maxima stay packed as loaded. Atomics compare the bits of non-negative floats, so their order does not matter. Bytes an
// element: 2 or 4 read. Bound by memory.
#include "cuda/quantize/amax.h"

#include <bit>

#include "cuda/device.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/tile/tile_source.cuh"
#include "cuda/kernel_lists.h"
#include "cuda/implementations.h"
#include "numerics/hadamard.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 8;

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Returns the maximum over the thread block, to all of its threads, which all call it.
__device__ __forceinline__ uint32_t block_maximum(uint32_t bits) {
    __shared__ uint32_t maxima[kThreads / 32];
    bits = __reduce_max_sync(kAllLanes, bits);
    __syncthreads();
    if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = bits;
    __syncthreads();
    return __reduce_max_sync(kAllLanes, maxima[threadIdx.x % (kThreads / 32)]);
}

// ---- Regions ---------------------------------------------------------------------------------------------------------

// How thread blocks divide the input into regions, and threads a region: `lanes` of them in a row, the others in the rows
// below.
struct Regions {
    PlainMatrix in;  // contiguous rows and experts merged where possible
    GroupedRows grouped;
    int span;               // elements of a row of a region
    int height;             // rows of a region
    int64_t down, across;   // regions of a matrix, or group tiles; regions of a row
    int lanes;
    int row_step, col_step;  // from a load of a thread to its next, in rows and in vectors
    GroupUnits in_units, line_units;  // of groups: of the input, and of a rowwise part
    bool wide;

    MXQ_HD int64_t count() const { return in.matrices * down * across; }
};

struct Arguments {
    Regions regions;
    float *rowwise, *columnwise;  // NULL: not wanted
    int scope_stride;             // amax_kernel: from an expert's or group's maximum to the next
    int64_t columnwise_lines;     // amax_lines_kernel: from an expert's or group's maxima of columns to the next
};

// The position of a region.
struct Region {
    int64_t scope;       // expert or group
    int64_t row;         // first row in the input
    int64_t line;        // and in the rowwise part
    int64_t col;
    int rows, cols;
};

__device__ __forceinline__ bool find_region(const Regions& r, int64_t index, Region& region) {
    if (index >= r.count()) return false;
    const int64_t group_tile = index / r.across;
    region.col = (index - group_tile * r.across) * r.span;
    region.cols = int(min(r.in.cols - region.col, int64_t(r.span)));
    if (r.grouped.groups.set) {
        const Group group = find_group<GroupBy::Tile>(r.grouped, r.in_units, r.line_units, group_tile);
        if (!group.exists()) return false;
        const uint32_t row = (uint32_t(group_tile) - group.first_group_tile) * uint32_t(kSwizzleRows);
        region.scope = group.index;
        region.row = group.first().codes + row, region.line = group.second().codes + row;
        region.rows = int(min(group.rows - row, uint32_t(kSwizzleRows)));
    } else {
        const int64_t row = group_tile % r.down * r.height;
        region.scope = group_tile / r.down;
        region.row = region.line = region.scope * r.in.rows + row;
        region.rows = int(min(r.in.rows - row, int64_t(r.height)));
    }
    return true;
}

// The loads of a thread from row `row` of the region on, as Accesses (memory/elements.cuh).
template <class T>
struct Loads {
    static constexpr int count = Vector<T>::count;
    int rows, cols;  // left
    int64_t first;   // element
    int row_step, col_step;

    __device__ __forceinline__ Loads(const Regions& r, const Region& region, int row, int column)
        : rows(region.rows - row), cols(region.cols - column),
          first((region.row + row) * r.in.row_stride + region.col + column), row_step(r.row_step),
          col_step(r.col_step * count) {}
    __device__ __forceinline__ bool exists(int i) const { return i * row_step < rows && i * col_step + count <= cols; }
    __device__ __forceinline__ int valid(int i) const {
        return i * row_step < rows ? min(max(cols - i * col_step, 0), count) : 0;
    }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const {
        return first + i * row_step * stride + i * col_step;
    }
};

// Calls take(i, vector) for every load. Loads are wide where the rows of the region are whole vectors.
template <class T, class Take>
__device__ __forceinline__ void take_vectors(const Regions& r, const Region& region, const Loads<T>& loads, const Take& take) {
    const T* from = static_cast<const T*>(r.in.data);
    if (r.wide && region.cols % Vector<T>::count == 0) {
        Vector<T> vectors[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            vectors[i] = load_vector_wide(from + loads.offset(i, r.in.row_stride), loads.exists(i));
#pragma unroll
        for (int i = 0; i < kLoads; i++) take(i, vectors[i]);
    } else {
#pragma unroll 2
        for (int i = 0; i < kLoads; i++)
            take(i, load_vector_narrow(from + loads.offset(i, r.in.row_stride), loads.valid(i)));
    }
}

// ---- One maximum -----------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads, 4) amax_kernel(const __grid_constant__ Arguments a) {
    const Regions& r = a.regions;
    start_next_kernel();
    Region region;
    if (!find_region(r, block_index(), region)) return wait_for_previous_kernel();
    const int column = int(threadIdx.x) % r.lanes * Vector<T>::count;
    const int step = r.row_step == 0 ? 1 : r.row_step * kLoads;
    uint32_t largest = 0;
#pragma unroll 1
    for (int row = int(threadIdx.x) / r.lanes; row < region.rows; row += step) {
        take_vectors(r, region, Loads<T>(r, region, row, column), [&](int, const Vector<T>& vector) {
#pragma unroll
            for (const uint32_t word : vector.words) largest = larger_magnitudes<T, Nonfinite::Saturate>(largest, word);
        });
    }
    const uint32_t bits = block_maximum(largest_bits<T>(largest));
    wait_for_previous_kernel();  // which zeroes
    if (threadIdx.x != 0) return;
    const int64_t at = region.scope * a.scope_stride;
    if (a.rowwise) take_larger(a.rowwise + at, bits);
    if (a.columnwise) take_larger(a.columnwise + at, bits);
}

// ---- One a row or column --------------------------------------------------------------------------------------------

// Raises the maxima of a region's columns. A thread holds the columns of a vector. Shared memory exchanges them, so that
// neighbouring lanes raise neighbouring columns.
template <class T>
__device__ __forceinline__ void raise_columns(const Regions& r, const Region& region, const uint32_t (&packed)[4], float* to) {
    constexpr int count = Vector<T>::count, step = kThreads + 32 / count;  // no bank conflicts
    __shared__ uint32_t maxima[count * step];
#pragma unroll
    for (int i = 0; i < count; i++)
        maxima[i * step + threadIdx.x] = magnitude_bits<T>(packed[i / Vector<T>::in_word], i % Vector<T>::in_word);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < count; i++) {
        const int number = i * kThreads + int(threadIdx.x), holder = number / count, column = number % (r.lanes * count);
        if (column < region.cols) take_larger(to + column, maxima[number % count * step + holder]);
    }
}

template <class T, Nonfinite policy>
__global__ void __launch_bounds__(kThreads, 4) amax_lines_kernel(const __grid_constant__ Arguments a) {
    __shared__ uint32_t of_rows[kSwizzleRows];
    const Regions& r = a.regions;
    start_next_kernel();
    Region region;
    if (!find_region(r, block_index(), region)) return wait_for_previous_kernel();
    for (int i = threadIdx.x; i < kSwizzleRows; i += kThreads) of_rows[i] = 0;
    __syncthreads();
    const int column = int(threadIdx.x) % r.lanes * Vector<T>::count;
    uint32_t of_columns[4] = {};
#pragma unroll 1
    for (int row = int(threadIdx.x) / r.lanes; row < region.rows; row += r.row_step * kLoads) {
        take_vectors(r, region, Loads<T>(r, region, row, column), [&](int i, const Vector<T>& vector) {
            uint32_t of_row = 0;
#pragma unroll
            for (int w = 0; w < 4; w++) {
                of_row = larger_magnitudes<T, policy>(of_row, vector.words[w]);
                of_columns[w] = larger_magnitudes<T, policy>(of_columns[w], vector.words[w]);
            }
            const uint32_t bits = __reduce_max_sync(kAllLanes, largest_bits<T>(of_row));
            if (threadIdx.x % 32 == 0 && bits != 0) atomicMax(&of_rows[row + i * r.row_step], bits);
        });
    }
    __syncthreads();
    wait_for_previous_kernel();  // which zeroes
    if (a.rowwise)
        for (int i = threadIdx.x; i < region.rows; i += kThreads) take_larger(a.rowwise + region.line + i, of_rows[i]);
    if (!a.columnwise) return;
    float* to = a.columnwise + region.scope * a.columnwise_lines + region.col;
    raise_columns<T>(r, region, of_columns, to);
}

// Up to two runs of numbers.
struct Runs {
    float* first[2];
    int64_t count[2];
};

constexpr int kZeroThreads = 1024;

// Zeroes all numbers by one thread block.
__global__ void __launch_bounds__(kZeroThreads) zero_kernel(const __grid_constant__ Runs runs) {
    start_next_kernel();
    for (int run = 0; run < 2; run++)
        for (int64_t i = threadIdx.x; i < runs.count[run]; i += kZeroThreads) runs.first[run][i] = 0;
}

struct ZeroArguments {
    GroupedRows grouped;
    GroupUnits units;
    float* rowwise;
};

// Zeroes the rowwise maxima of all groups, padding included. What follows them is not written.
__global__ void __launch_bounds__(kSwizzleRows) zero_lines_kernel(const __grid_constant__ ZeroArguments a) {
    const Group group = find_group<GroupBy::Tile>(a.grouped, a.units, {}, block_index());
    if (!group.exists()) return;
    const int64_t row = (block_index() - group.first_group_tile) * kSwizzleRows + threadIdx.x;
    if (row < round_up(group.rows, a.units.codes)) a.rowwise[group.first().codes + row] = 0;
}

// ---- From tiles ------------------------------------------------------------------------------------------------------

struct TileArguments {
    QuantizeProblem problem;
    Tiles tiles;
    float* out[2];  // rowwise, columnwise; NULL: not wanted
    int scope_stride;
    bool lines, wide;
    bool propagates;  // a NaN is a maximum
};

template <class T>
struct TileShared {
    ChunkTile<T> tile;
    TileInfo info;
};

// Raises the maxima of a part's K-major rows, or returns the maximum of the thread's elements.
template <bool columnwise, class T>
__device__ __forceinline__ float tile_maximum(const TileArguments& a, const TileShared<T>& shared) {
    const QuantizedPart& part = columnwise ? a.problem.columnwise : a.problem.rowwise;
    const PartTile& tile = shared.info.parts[kRowwisePart + columnwise];
    const int64_t first = columnwise ? shared.info.scope * a.problem.columnwise.lines + shared.info.source.col : tile.line;
    float largest = 0;
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = columnwise ? column_of_step<T>(i) : row_of_step(i);
        float values[kChunk];
        if constexpr (columnwise) shared.tile.read_column(line, chunk_of_lane(), values);
        else RowReader<T>(shared.tile, line, chunk_of_lane()).read(0, values);
        if (part.transformed) hadamard_16(values, part.hadamard_mask);
        if (!a.lines) {
            largest = larger_magnitude(largest, values);
            continue;
        }
        uint32_t of_line[1] = {a.propagates ? largest_magnitude_bits(values) : float_bits(larger_magnitude(0.0f, values))};
        reduce_lanes<kSideChunks>(of_line);
        if (chunk_of_lane() == 0 && line < tile.codes.lines) take_larger(a.out[columnwise] + first + line, of_line[0]);
    }
    return largest;
}

template <class Source>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<typename Source::Element>)
    amax_tile_kernel(const __grid_constant__ TileArguments a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<TileShared<typename Source::Element>*>(memory);
    const QuantizeProblem& p = a.problem;
    start_next_kernel();
    TileCoord coord;
    if (!find_tile(a.tiles, p.grouped, shared.info.group, coord)) return wait_for_previous_kernel();
    const bool copies = start_copy(Source{}, shared.tile, p, SourceTile(p, coord, shared.info.group), a.wide);
    describe_tile(p, coord, shared.info);
    __syncthreads();
    if (!copies) fill_tile(Source{}, shared.tile, p, shared.info, a.wide);
    wait_for_copies();
    __syncthreads();
    wait_for_previous_kernel();  // which zeroes
    const float rowwise = a.out[0] ? tile_maximum<false>(a, shared) : 0.0f;
    const float columnwise = a.out[1] ? tile_maximum<true>(a, shared) : 0.0f;
    if (a.lines) return;
    const uint32_t bits[2] = {block_maximum(float_bits(rowwise)), block_maximum(float_bits(columnwise))};
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int part = 0; part < 2; part++)
        if (a.out[part]) take_larger(a.out[part] + shared.info.scope * a.scope_stride, bits[part]);
}

// ---- Launches --------------------------------------------------------------------------------------------------------

bool is_per_line(const QuantizeProblem& p) { return p.tile.is_row(); }

// Returns whether a NaN is a maximum: where MX asks for the maxima of rows.
bool propagates(const QuantizeProblem& p) { return p.format->is_mx() && p.nonfinite == Nonfinite::Propagate; }

const QuantizedPart& first_part(const QuantizeProblem& p) { return p.has_rowwise ? p.rowwise : p.columnwise; }

int scope_stride(const QuantizeProblem& p) { return first_part(p).scope_stride; }

// Returns the input with its contiguous rows and experts merged, where these share a maximum.
PlainMatrix taken_together(const QuantizeProblem& p) {
    PlainMatrix in = p.source.plain;
    if (p.grouped.set() || is_per_line(p)) return in;
    if (scope_stride(p) == 0) in.rows *= in.matrices, in.matrices = 1;
    if (in.row_stride == in.cols) in.cols *= in.rows, in.row_stride = in.cols, in.rows = 1;
    return in;
}

// Returns the rows of a region: fewer than 128 where SMs would be left without one.
int region_height(const Context& context, const QuantizeProblem& p, const Regions& r, bool long_row) {
    if (long_row) return 1;
    const int fewest = r.row_step * kLoads;
    if (!is_per_line(p)) return fewest;
    if (p.grouped.set()) return int(kSwizzleRows);
    const int64_t across = r.in.matrices * ceil_div(r.in.cols, int64_t(r.span)), wanted = 2 * context.cuda->multiprocessors;
    int height = int(kSwizzleRows);
    while (height > fewest && ceil_div(r.in.rows, int64_t(height)) * across < wanted) height /= 2;
    return height;
}

template <class T>
Regions divide(const Context& context, const QuantizeProblem& p) {
    constexpr int64_t count = Vector<T>::count;
    Regions r{};
    r.in = taken_together(p);
    r.grouped = p.grouped;
    r.in_units = p.source.group_units();
    r.line_units = p.rowwise.units;
    r.wide = is_aligned(r.in.data, 16) && (r.in.matrices * r.in.rows == 1 || r.in.row_stride % count == 0);
    const int64_t vectors = ceil_div(r.in.cols, count), fewest = is_per_line(p) ? 32 : 1;
    r.lanes = int(std::min(std::max(int64_t(std::bit_ceil(uint64_t(vectors))), fewest), int64_t(kThreads)));
    const bool long_row = !p.grouped.set() && !is_per_line(p) && vectors >= kThreads * kLoads;
    r.row_step = long_row ? 0 : kThreads / r.lanes;
    r.col_step = long_row ? r.lanes : 0;
    r.span = r.lanes * int(count) * (long_row ? kLoads : 1);
    r.height = region_height(context, p, r, long_row);
    r.down = p.grouped.set() ? group_tiles_bound(p.grouped) : ceil_div(r.in.rows, int64_t(r.height));
    r.across = ceil_div(r.in.cols, int64_t(r.span));
    return r;
}

// Zeroes maxima by a kernel, with which the next one overlaps, if they are few. Returns whether a kernel was enqueued.
bool zero(const Context& context, const Runs& runs, const Launch& call) {
    constexpr int64_t few = 64 * kZeroThreads;
    if (runs.count[0] + runs.count[1] == 0) return false;
    if (runs.count[0] + runs.count[1] <= few) {
        launch(context, zero_kernel, "amax", dim3(1), dim3(kZeroThreads), 0, call.stream, runs);
        return true;
    }
    for (int i = 0; i < 2; i++)
        if (runs.count[i] > 0)
            clear(context, runs.first[i], size_t(runs.count[i]) * sizeof(float), "zeroing maxima", call.stream);
    return false;
}

Runs runs_of(float* rowwise, int64_t rowwise_count, float* columnwise, int64_t columnwise_count) {
    return {{rowwise, columnwise},
            {rowwise ? rowwise_count : 0, columnwise && columnwise != rowwise ? columnwise_count : 0}};
}

// Zeroes the maxima of all rows and columns. Returns what `zero` does.
bool zero_lines(const Context& context, const QuantizeProblem& p, float* rowwise, float* columnwise, const Launch& call) {
    const bool grouped = p.grouped.set();
    const int64_t columns = (grouped ? p.grouped.groups.count : p.source.matrices) * p.columnwise.lines;
    const bool by_kernel =
        zero(context, runs_of(grouped ? nullptr : rowwise, p.source.matrices * p.rowwise.lines, columnwise, columns), call);
    const int64_t group_tiles = grouped ? group_tiles_bound(p.grouped) : 0;
    if (!rowwise || group_tiles == 0) return by_kernel;
    launch(context, zero_lines_kernel, "amax", grid_of(group_tiles), dim3(kSwizzleRows), 0, call.stream,
           ZeroArguments{p.grouped, p.rowwise.units, rowwise});
    return true;
}

// The kernels by input type, by whether every row has a maximum, and by whether a NaN is one.
constexpr auto kernels = join(
    kernels_of([]<class T>(T, auto, auto) { return kernel(amax_kernel<T>, kThreads); }, PlainTypes{}, Values<false>{},
               Values<false>{}),
    kernels_of(
        []<class T>(T, auto, auto propagates) {
            constexpr Nonfinite policy = propagates.value ? Nonfinite::Propagate : Nonfinite::Saturate;
            return kernel(amax_lines_kernel<T, policy>, kThreads);
        },
        PlainTypes{}, Values<true>{}, Values<false, true>{}));

// The kernels of tiles, by whether these hold BF16.
constexpr KernelEntry<bool, TileArguments> tile_kernels[] = {
    {true, amax_tile_kernel<Bf16Source>, kChunkThreads, sizeof(TileShared<Bf16>)},
    {false, amax_tile_kernel<FloatSource>, kChunkThreads, sizeof(TileShared<float>)},
};

// Launch a kernel over regions or over tiles; false: there is nothing to read, and no kernel.
bool run_regions(const Context& context, const QuantizeProblem& p, float* rowwise, float* columnwise, const Launch& call,
                 Start start) {
    const bool same = columnwise == rowwise;
    const Regions regions = p.source.plain.format == MXQ_FORMAT_F32 ? divide<float>(context, p) : divide<Bf16>(context, p);
    const Arguments a{regions, rowwise, same ? nullptr : columnwise, scope_stride(p), p.columnwise.lines};
    if (a.regions.count() == 0) return false;
    launch(context, kernels, {p.source.plain.format, is_per_line(p), propagates(p)}, "amax", grid_of(a.regions.count()),
           call.stream, a, start);
    return true;
}

bool run_tiles(const Context& context, const QuantizeProblem& p, float* rowwise, float* columnwise, const Launch& call,
               Start start) {
    const TileArguments a{p, Tiles(p), {rowwise, columnwise == rowwise ? nullptr : columnwise}, scope_stride(p),
                          is_per_line(p), is_wide_tile_source(p), propagates(p)};
    if (a.tiles.count() == 0) return false;
    launch(context, tile_kernels, is_bf16(p), "amax", a.tiles.grid(), call.stream, a, start);
    return true;
}

void run(const Context& context, const AmaxProblem& problem, const Launch& call) {
    const QuantizeProblem& p = problem.quantize;
    launch_amax(context, p, p.has_rowwise ? p.rowwise.amax : nullptr, p.has_columnwise ? p.columnwise.amax : nullptr, call);
}

void load(const Context& context) {
    load_kernels(kernels);
    load_kernels(tile_kernels);
    load_amax_codes();
    context.cuda->code_capability = load_kernel(zero_kernel);
    load_kernel(zero_lines_kernel);
}

}  // namespace

Start launch_amax(const Context& context, const QuantizeProblem& problem, float* rowwise_out, float* columnwise_out,
                  const Launch& call) {
    if (!rowwise_out && !columnwise_out) return Start::AfterAll;
    const bool transformed = (rowwise_out && problem.rowwise.transformed) || (columnwise_out && problem.columnwise.transformed);
    const int64_t scopes = scope_count(problem, first_part(problem));
    const bool zeroed = is_per_line(problem) ? zero_lines(context, problem, rowwise_out, columnwise_out, call)
                                             : zero(context, runs_of(rowwise_out, scopes, columnwise_out, scopes), call);
    const Start start = zeroed ? overlapped_start(context) : Start::AfterAll;
    bool read;
    if (!transformed && takes_amax_codes(problem))
        read = run_amax_codes(context, problem, rowwise_out, columnwise_out, scope_stride(problem), propagates(problem), call,
                              start);
    else if (transformed || problem.source.is_quantized())
        read = run_tiles(context, problem, rowwise_out, columnwise_out, call, start);
    else read = run_regions(context, problem, rowwise_out, columnwise_out, call, start);
    return read || zeroed ? overlapped_start(context) : Start::AfterAll;
}

const AmaxImplementation amax = {"amax", needs_cuda_alone, nullptr, run, load};

}  // namespace mxq::cuda
