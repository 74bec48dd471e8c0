// quantize_fp4: any source to NVFP4 or MXFP4, in any of their scalings, roundings and layouts, with a Hadamard transform.
//
// This is the general kernel of both formats; quantize_fp4_pairs and quantize_fp4_groups take aligned BF16 rounded to
// nearest. A thread block takes a tile of 128 x 128 through shared memory (tile/shared_tile.cuh). A thread holds one chunk
// of 16 fp32 elements at a time: the unit of a transform, a Philox counter and an NVFP4 block.
//
//     rowwise      16 elements of a row     -> transform -> maximum -> scale -> 16 codes -> 8 bytes; eight lanes 64 of a row
//     columnwise   16 elements of a column  -> the same, from the same tile
//     square       before both: maximum (and better scale) of every 16 x 16, by the warp with its 16 rows
//     scales       bytes through shared memory, then words in the order of the layout
//
// Roundings are policies (fp4_rounding.cuh). Bytes an element: 2 or 4 read, 0.56 written for each part. Arithmetic bounds
// it: about 20 instructions an element for stochastic rounding or a transform, 25 for four over six.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/quantize/fp4_rounding.cuh"
#include "cuda/tile/tile_source.cuh"
#include "numerics/hadamard.h"

namespace mxq::cuda {
namespace {

constexpr int kCells = kSideChunks * kSideChunks;  // 16 x 16 squares of a tile

struct Arguments {
    QuantizeProblem problem;
    Tiles tiles;
    HadamardSigns signs[2];  // signs that the transform flips: rowwise, columnwise
    ScaleSteps steps;
    bool wide_in, wide[2];
};

template <class T>
struct Shared {
    ChunkTile<T> tile;
    TileInfo info;
    Nvfp4Tables tables;
    alignas(16) PhiloxKeys keys;
    uint32_t maxima[kCells];              // of square tiles, as bits
    uint8_t cells[2][kCells];             // their scales, for each part
    uint32_t scales[2][kTile][2];         // scale words of each part by row
};

struct Rule : PartRule {
    bool hadamard;
    int rows;    // of columns: from the first row of the lane's block on
    float unit;  // of estimates, NaN where there can be none
    uint64_t offset;
    uint32_t first_line, chunk;  // for the random counter: first row, and number of the lane's chunk
};

template <class Rounding, class T>
__device__ __forceinline__ Rule load_rule(const Arguments& a, bool columnwise, Shared<T>& shared) {
    const QuantizeProblem& p = a.problem;
    const PartTile& to = shared.info.parts[kRowwisePart + columnwise];
    Rule rule{{p, columnwise, shared.tables, to.codes}, part_of(p, columnwise).transformed, shared.info.source.rows};
    if (columnwise) rule.rows -= chunk_of_lane() * kChunk & -p.tile.length;
    if constexpr (Rounding::chooses) rule.unit = can_estimate(rule.global) ? error_unit(rule.global) : bits_float(kNanBits);
    if constexpr (std::is_same_v<Rounding, RoundStochastic>) {
        rule.offset = p.seed_offset[1];
        rule.first_line = uint32_t(to.line);
        rule.chunk = uint32_t(to.position / kChunk) + chunk_of_lane();
    }
    return rule;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Makes the tables of NVFP4's parts. A barrier must follow.
__device__ __forceinline__ void put_tables(const QuantizeProblem& p, float amax, Nvfp4Tables& tables) {
    const int part = threadIdx.x / kScaleBytes, scale = threadIdx.x % kScaleBytes;
    const Nvfp4Global global = nvfp4_global(amax, part_of(p, part).scale_max);
    tables.multipliers[part][scale] = nvfp4_multiplier(uint32_t(scale), global);
    if (scale == 0) tables.globals[part] = global;
}

// Returns the bits of the largest magnitude of a chunk. Under PROPAGATE NaN is the largest of all.
template <bool nvfp4>
__device__ __forceinline__ uint32_t chunk_amax(Nonfinite policy, const float (&values)[kChunk]) {
    if (nvfp4 || policy == Nonfinite::Saturate) return float_bits(larger_magnitude(0.0f, values));
    return largest_magnitude_bits(values);
}

// Returns the maximum over the chunks of a block, which neighbouring lanes hold.
__device__ __forceinline__ uint32_t block_amax(uint32_t largest, int length) {
    for (int distance = 1; distance * kChunk < length; distance *= 2)
        largest = max(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    return largest;
}

// ---- Square tiles ----------------------------------------------------------------------------------------------------

// Makes the NVFP4 scale of every 16 x 16; `amax` is that of the lane's cell in the warp's 16 rows. Parts with the same
// global maximum have the same scales. A barrier must follow.
template <class Rounding, class T>
__device__ __forceinline__ void put_nvfp4_cells(const QuantizeProblem& p, uint32_t amax, Shared<T>& shared) {
    const int cell = threadIdx.x / 32 * kSideChunks + chunk_of_lane();
    uint32_t scale = 0;
    float done_amax = 0;
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
        if (!has_part(p, part)) continue;
        const Nvfp4Global& global = shared.tables.globals[part];
        const bool done = part == 1 && p.has_rowwise && global.amax == done_amax;
        if constexpr (!Rounding::chooses) scale = nvfp4_scale(bits_float(amax), global);
        else if (!done) scale = Rounding::square(shared.tile, bits_float(amax), global);
        done_amax = global.amax;
        if (threadIdx.x % 32 < kSideChunks) shared.cells[part][cell] = uint8_t(scale);
    }
}

// Makes the MX scale of every 16 x 16 from the maximum of its square tile, `length` a side. `amax` is that of the lane's
// cell in the warp's 16 rows. A barrier must follow.
template <class T>
__device__ __forceinline__ void put_mx_cells(const Arguments& a, uint32_t amax, Shared<T>& shared) {
    const int row_chunk = threadIdx.x / 32, chunk = chunk_of_lane(), side = a.problem.tile.length / kChunk;
    if (threadIdx.x % 32 < kSideChunks) shared.maxima[row_chunk * kSideChunks + chunk] = amax;
    __syncthreads();
    uint32_t largest = 0;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++)
            largest = max(largest, shared.maxima[(row_chunk / side * side + i) * kSideChunks + chunk / side * side + j]);
    const uint32_t scale = scale_of(largest, a.steps);
    if (threadIdx.x % 32 < kSideChunks)
        shared.cells[0][row_chunk * kSideChunks + chunk] = shared.cells[1][row_chunk * kSideChunks + chunk] = uint8_t(scale);
}

// Makes the scale of every 16 x 16. Ends with a barrier.
template <class Rounding, bool nvfp4, class T>
__device__ __forceinline__ void square_scales(const Arguments& a, Shared<T>& shared) {
    const RowReader<T> rows(shared.tile, row_of_step(0), chunk_of_lane());
    uint32_t amax = 0;
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        float values[kChunk];
        rows.read(row_of_step(i) - row_of_step(0), values);
        amax = max(amax, chunk_amax<nvfp4>(a.problem.nonfinite, values));
    }
    amax = max(amax, __shfl_xor_sync(kAllLanes, amax, 8));
    amax = max(amax, __shfl_xor_sync(kAllLanes, amax, 16));
    if constexpr (nvfp4) put_nvfp4_cells<Rounding>(a.problem, amax, shared);
    else put_mx_cells(a, amax, shared);
    __syncthreads();
}

// ---- Chunks ----------------------------------------------------------------------------------------------------------

// Makes the scale and codes of the lane's chunk of row `line`, which lies in square `cell`. All lanes of a warp call it.
template <class Rounding, bool nvfp4, class T>
__device__ __forceinline__ ChunkCodes quantize_chunk(const Arguments& a, const Rule& rule, float (&values)[kChunk], int line,
                                                     int cell, const Shared<T>& shared) {
    const QuantizeProblem& p = a.problem;
    const auto draw = [&] {
        return philox(shared.keys, philox_counter(rule.chunk, rule.first_line + line, rule.columnwise, rule.offset));
    };
    if (rule.hadamard) hadamard_16(values, a.signs[rule.columnwise]);
    uint32_t scale;
    if (p.square_tiles) {
        scale = shared.cells[rule.columnwise][cell];
    } else {
        const uint32_t amax = block_amax(chunk_amax<nvfp4>(p.nonfinite, values), p.tile.length);
        if constexpr (Rounding::chooses)
            return Rounding::chunk(values, bits_float(amax), rule.global, rule.unit, rule.multipliers);
        scale = nvfp4 ? nvfp4_scale(bits_float(amax), rule.global) : scale_of(amax, a.steps);
    }
    const float multiplier = nvfp4 ? rule.multipliers[scale % kScaleBytes] : scale_reciprocal(scale);
    return {scale, Rounding::codes(values, multiplier, draw)};
}

// Makes scales and codes of a part.
template <class Rounding, bool nvfp4, bool columnwise, class T>
__device__ __forceinline__ void emit_part(const Arguments& a, Shared<T>& shared) {
    const Rule rule = load_rule<Rounding>(a, columnwise, shared);
    const int chunk = chunk_of_lane(), warp = threadIdx.x / 32;
    const int cell = columnwise ? chunk * kSideChunks + warp : warp * kSideChunks + chunk;
    const RowReader<T> rows(shared.tile, row_of_step(0), chunk);
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = columnwise ? column_of_step<T>(i) : row_of_step(i);
        float values[kChunk];
        if constexpr (columnwise) shared.tile.read_column(line, chunk, values);
        else rows.read(line - row_of_step(0), values);
        const auto [scale, codes] = quantize_chunk<Rounding, nvfp4>(a, rule, values, line, cell, shared);
        put_scale(shared.scales[columnwise], line, rule.scale_byte, scale);
        // Transformed padding may be -0, but blocks that are all padding are zero.
        const int row = columnwise ? 0 : line;
        const uint32_t mask = row >= rule.rows ? 0 : nvfp4 ? nvfp4_code_mask(scale) : code_mask<E2M1>(scale);
        if (line < rule.lines)
            store_chunk_codes(rule.codes_of(line), {codes.x & mask, codes.y & mask}, rule.bytes, a.wide[columnwise]);
    }
}

// ---- The kernel ------------------------------------------------------------------------------------------------------

// Loads the tile and its description, which is made while copies are in flight. Ends with a barrier.
template <class Source, bool nvfp4, class T>
__device__ __forceinline__ void load_tile(const Arguments& a, const TileCoord& coord, Shared<T>& shared) {
    const QuantizeProblem& p = a.problem;
    float amax = nvfp4 && !p.compute_amax ? table_amax(p, coord.scope) : 0;
    const bool copies = start_copy(Source{}, shared.tile, p, SourceTile(p, coord, shared.info.group), a.wide_in);
    describe_tile(p, coord, shared.info);
    if (nvfp4 && p.compute_amax) amax = computed_table_amax(p, coord.scope);
    if (nvfp4) put_tables(p, amax, shared.tables);
    put_keys(p, shared.keys);
    if (copies) {
        wait_for_copies();
    } else {
        __syncthreads();
        fill_tile(Source{}, shared.tile, p, shared.info, a.wide_in);
    }
    __syncthreads();
}

// Thread blocks that share an SM. Four-over-six would spill with four.
template <class Rounding, class T>
constexpr int kBlocks = Rounding::most_blocks < kChunkBlocks<T> ? Rounding::most_blocks : kChunkBlocks<T>;

template <class Source, class Rounding, bool nvfp4>
__global__ void __launch_bounds__(kChunkThreads, kBlocks<Rounding, typename Source::Element>)
    quantize_fp4_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared<typename Source::Element>*>(memory);
    const QuantizeProblem& p = a.problem;
    TileCoord coord;
    if (!find_tile(a.tiles, p.grouped, shared.info.group, coord)) return wait_for_previous_kernel();
    load_tile<Source, nvfp4>(a, coord, shared);
    if (p.square_tiles) square_scales<Rounding, nvfp4>(a, shared);
    if (p.has_rowwise) emit_part<Rounding, nvfp4, false>(a, shared);
    if (p.has_columnwise) emit_part<Rounding, nvfp4, true>(a, shared);
    __syncthreads();
    if (p.has_rowwise) store_scales(p.rowwise, shared.info.parts[kRowwisePart], shared.scales[0]);
    if (p.has_columnwise) store_scales(p.columnwise, shared.info.parts[kColumnwisePart], shared.scales[1]);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// The first values: the source is BF16, codes are NVFP4.
constexpr auto kernel_for = []<class Rounding>(auto bf16, auto nvfp4, Rounding) {
    using Source = std::conditional_t<bf16.value, Bf16Source, FloatSource>;
    return kernel(quantize_fp4_kernel<Source, Rounding, nvfp4.value>, kChunkThreads,
                  sizeof(Shared<typename Source::Element>));
};
constexpr auto kernels = join(
    kernels_of(kernel_for, Values<true, false>{}, Values<true, false>{}, Types<RoundNearest, RoundStochastic>{}),
    kernels_of(kernel_for, Values<true, false>{}, Values<true>{}, Types<RoundFourOverSix<false>, RoundFourOverSix<true>>{}));

Fp4Rounding rounding_of(const QuantizeProblem& p) {
    if (p.four_over_six == FourOverSix::Mae) return Fp4Rounding::LessError;
    if (p.four_over_six == FourOverSix::Mse) return Fp4Rounding::LessSquaredError;
    return p.seed_offset ? Fp4Rounding::Stochastic : Fp4Rounding::Nearest;
}

HadamardSigns signs_of_part(const QuantizedPart& part) { return hadamard_signs(part.transformed ? part.hadamard_mask : 0); }

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.format->element != Element::E2M1) return needs("nvfp4 or mxfp4", problem.format->name);
    if (problem.tile.is_row()) return "needs scales of blocks, found row";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Start start = start_with_amax(context, problem, call);
    const Arguments a{problem, Tiles(problem),
                      {signs_of_part(problem.rowwise), signs_of_part(problem.columnwise)},
                      scale_steps<E2M1>(problem.scale_rounding, problem.nonfinite),
                      is_wide_tile_source(problem), {is_wide_part(problem.rowwise), is_wide_part(problem.columnwise)}};
    if (a.tiles.count() > 0)
        launch(context, kernels, {is_bf16(problem), problem.format->is_nvfp4(), rounding_of(problem)}, "quantize_fp4",
               a.tiles.grid(), call.stream, a, start);
}

}  // namespace

const QuantizeImplementation quantize_fp4 = {"quantize_fp4", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
