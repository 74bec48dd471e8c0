// quantize_fp4: F32, F16, BF16, or a quantized part's values, to NVFP4 or MXFP4 with a random Hadamard transform, stochastic
// rounding or four over six, in any of their scalings and layouts.
//
// A block of threads takes a tile of 128 x 128 through shared memory; who reads what: chunk_tile.cuh. A thread holds one
// chunk of 16 elements at a time, in fp32, since that is what a transform, a Philox counter and an NVFP4 block are:
//
//     rowwise      16 elements of a row     -> transform -> maximum -> scale -> 16 codes -> 8 bytes, eight lanes 64 in a row
//     columnwise   16 elements of a column  -> the same, from the same tile
//     square       before both: the maximum (and the better scale) of every 16 x 16, by the warp that holds its 16 rows
//     scales       as bytes through shared memory, then as words in the layout's order
//
// Bytes an element: 2 or 4 read once, 0.56 written for each part; bound by arithmetic: about 35 operations an element for
// four over six, 25 for stochastic rounding, 20 for a transform.
#include "cuda/amax.h"
#include "cuda/chunk_tile.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/quantize_fp4.h"
#include "cuda/types.cuh"
#include "numerics/four_over_six.h"
#include "numerics/hadamard.h"
#include "numerics/nvfp4.h"
#include "numerics/packing.h"
#include "numerics/philox.h"

namespace mxq::cuda {
namespace {

constexpr int kCells = kSideChunks * kSideChunks;  // 16 x 16 squares of a tile

struct Arguments {
    QuantizeProblem problem;
    ChunkTiles tiles;
    bool nvfp4;
    bool wide_in, wide[2];  // parts: rowwise, columnwise
};

template <class T>
struct Shared {
    ChunkTile<T> tile;
    ChunkPlace place;
    uint32_t maxima[kCells];              // of square tiles, as bits
    uint8_t cells[2][kCells];             // their scales, for each part
    uint32_t scales[2][kTile][2];         // scale words of each part by line
};

// What holds for all chunks of a part.
struct Rule {
    Nvfp4Global global;
    PhiloxKey key;
    uint64_t offset;
    uint32_t hadamard_mask;
    bool hadamard, columnwise;
};

__device__ __forceinline__ Nvfp4Global load_global(const Arguments& a, const QuantizedPart& part, const ChunkPlace& place) {
    return a.nvfp4 ? nvfp4_global(part.amax[place.scope * part.scope_stride], part.scale_max) : Nvfp4Global{};
}

__device__ __forceinline__ Rule load_rule(const Arguments& a, const QuantizedPart& part, const ChunkPlace& place) {
    const QuantizeProblem& p = a.problem;
    const uint64_t seed = p.seed_offset ? p.seed_offset[0] : 0, offset = p.seed_offset ? p.seed_offset[1] : 0;
    const bool hadamard = part.columnwise ? p.hadamard.columnwise : p.hadamard.rowwise;
    return {load_global(a, part, place), philox_key(seed), offset, p.hadamard.mask, hadamard, part.columnwise};
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Bits of a chunk's largest magnitude. Under PROPAGATE NaN is the largest of all.
__device__ __forceinline__ uint32_t chunk_amax(const Arguments& a, const float (&values)[kChunk]) {
    if (a.nvfp4 || a.problem.nonfinite == Nonfinite::Saturate) return float_bits(larger_magnitude(0.0f, values));
    uint32_t largest = 0;
#pragma unroll
    for (const float value : values) largest = max(largest, amax_bits<Nonfinite::Propagate>(value));
    return largest;
}

// Over the chunks of a block, which neighbouring lanes hold.
__device__ __forceinline__ uint32_t block_amax(uint32_t largest, int length) {
    for (int distance = 1; distance * kChunk < length; distance *= 2)
        largest = max(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    return largest;
}

__device__ __forceinline__ uint32_t mx_scale(const QuantizeProblem& p, uint32_t amax) {
    uint32_t scale[1] = {amax};
    scales_of<E2M1>(scale, p.scale_rounding, p.nonfinite);
    return scale[0];
}

// Errors of a chunk under both candidates.
struct Errors {
    float four, six;
};

template <bool squared, bool corrects>
__device__ __forceinline__ Errors errors_of(const float (&values)[kChunk], const Nvfp4Candidates& candidates,
                                            const Nvfp4Global& global) {
    return {nvfp4_errors_16<squared, corrects>(values, candidates.four, global),
            nvfp4_errors_16<squared, corrects>(values, candidates.six, global)};
}

__device__ __forceinline__ Errors chunk_errors(FourOverSix mode, const float (&values)[kChunk],
                                               const Nvfp4Candidates& candidates, const Nvfp4Global& global) {
    const bool squared = mode == FourOverSix::Mse;
    if (ErrorDivisor::serves(global.amax))
        return squared ? errors_of<true, true>(values, candidates, global) : errors_of<false, true>(values, candidates, global);
    return squared ? errors_of<true, false>(values, candidates, global) : errors_of<false, false>(values, candidates, global);
}

// The scale of the block of one line that the chunk lies in.
__device__ __forceinline__ uint32_t line_scale(const Arguments& a, const Rule& rule, const float (&values)[kChunk]) {
    const QuantizeProblem& p = a.problem;
    const uint32_t amax = block_amax(chunk_amax(a, values), p.tile.length);
    if (!a.nvfp4) return mx_scale(p, amax);
    if (p.four_over_six == FourOverSix::None) return nvfp4_scale(bits_float(amax), rule.global);
    const Nvfp4Candidates candidates = nvfp4_candidates(bits_float(amax), rule.global);
    const Errors errors = chunk_errors(p.four_over_six, values, candidates, rule.global);
    return nvfp4_choice(candidates, errors.four, errors.six);
}

// ---- Square tiles ----------------------------------------------------------------------------------------------------

// The better scale of the 16 x 16 of which a lane reads rows lane / 8 + 4 i: their errors are added as a tree, i with i + 2
// and then i + 1 in the lane, the rest across lanes.
template <class T>
__device__ uint32_t square_choice(const Shared<T>& shared, FourOverSix mode, float amax, const Nvfp4Global& global) {
    const Nvfp4Candidates candidates = nvfp4_candidates(amax, global);
    Errors sum{0, 0}, first{0, 0};
#pragma unroll 1
    for (int k = 0; k < kChunkSteps; k++) {
        float values[kChunk];
        shared.tile.read_row(row_of_step(k % 2 * 2 + k / 2), chunk_of_lane(), values);
        const Errors errors = chunk_errors(mode, values, candidates, global);
        if (k % 2 == 0) {
            first = errors;
        } else {
            sum.four = add_rn(sum.four, add_rn(first.four, errors.four));
            sum.six = add_rn(sum.six, add_rn(first.six, errors.six));
        }
    }
#pragma unroll
    for (int distance = 16; distance >= 8; distance /= 2) {
        sum.four = add_rn(sum.four, __shfl_xor_sync(kAllLanes, sum.four, distance));
        sum.six = add_rn(sum.six, __shfl_xor_sync(kAllLanes, sum.six, distance));
    }
    return nvfp4_choice(candidates, sum.four, sum.six);
}

template <class T>
__device__ __forceinline__ void nvfp4_cells(const Arguments& a, uint32_t amax, Shared<T>& shared) {
    const QuantizeProblem& p = a.problem;
    const int cell = threadIdx.x / 32 * kSideChunks + chunk_of_lane();
    float done_amax = 0;
    uint32_t scale = 0;
#pragma unroll 1
    for (int which = 0; which < 2; which++) {
        if (!(which == 0 ? p.has_rowwise : p.has_columnwise)) continue;
        const Nvfp4Global global = load_global(a, which == 0 ? p.rowwise : p.columnwise, shared.place);
        const bool done = which == 1 && p.has_rowwise && global.amax == done_amax;
        if (!done) scale = p.four_over_six == FourOverSix::None
                               ? nvfp4_scale(bits_float(amax), global)
                               : square_choice(shared, p.four_over_six, bits_float(amax), global);
        done_amax = global.amax;
        if (threadIdx.x % 32 < kSideChunks) shared.cells[which][cell] = uint8_t(scale);
    }
}

template <class T>
__device__ __forceinline__ void mx_cells(const QuantizeProblem& p, uint32_t amax, Shared<T>& shared) {
    const int band = threadIdx.x / 32, chunk = chunk_of_lane(), side = p.tile.length / kChunk;
    if (threadIdx.x % 32 < kSideChunks) shared.maxima[band * kSideChunks + chunk] = amax;
    __syncthreads();
    uint32_t largest = 0;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++)
            largest = max(largest, shared.maxima[(band / side * side + i) * kSideChunks + chunk / side * side + j]);
    const uint32_t scale = mx_scale(p, largest);
    if (threadIdx.x % 32 < kSideChunks)
        shared.cells[0][band * kSideChunks + chunk] = shared.cells[1][band * kSideChunks + chunk] = uint8_t(scale);
}

// The scale of every 16 x 16. Ends with a barrier.
template <class T>
__device__ __forceinline__ void square_scales(const Arguments& a, Shared<T>& shared) {
    uint32_t amax = 0;
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        float values[kChunk];
        shared.tile.read_row(row_of_step(i), chunk_of_lane(), values);
        amax = max(amax, chunk_amax(a, values));
    }
    amax = max(amax, __shfl_xor_sync(kAllLanes, amax, 8));
    amax = max(amax, __shfl_xor_sync(kAllLanes, amax, 16));
    if (a.nvfp4) nvfp4_cells(a, amax, shared);
    else mx_cells(a.problem, amax, shared);
    __syncthreads();
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Sixteen codes, packed, before any is masked.
__device__ __forceinline__ uint2 nearest_codes(const float (&values)[kChunk], float multiplier) {
    uint32_t codes[4], packed[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const auto pair = [&](int k) {
            return encode_pair<E2M1>(multiply_rn(values[k], multiplier), multiply_rn(values[k + 1], multiplier));
        };
        codes[i] = pair(4 * i) | pair(4 * i + 2) << 16;
    }
    pack_16<4>(codes, packed);
    return {packed[0], packed[1]};
}

__device__ __forceinline__ uint2 stochastic_codes(const float (&values)[kChunk], float multiplier, const Rule& rule,
                                                  int64_t line, int64_t position) {
    const PhiloxCounter counter =
        philox_counter(uint32_t(position / kChunk), uint32_t(line), rule.columnwise, rule.offset);
    const PhiloxWords random = philox(rule.key, counter);
    uint32_t packed[2] = {};
#pragma unroll
    for (int i = 0; i < kChunk; i++)
        packed[i / 8] |= stochastic_e2m1(multiply_rn(values[i], multiplier), philox_byte(random, i)) << (i % 8 * 4);
    return {packed[0], packed[1]};
}

// The first `bytes` of a chunk's eight.
__device__ __forceinline__ void store_chunk_codes(uint8_t* to, uint2 codes, int bytes, bool wide) {
    if (wide && bytes >= 8) {
        *reinterpret_cast<uint2*>(to) = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < bytes) to[i] = uint8_t((i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
}

// ---- Parts -----------------------------------------------------------------------------------------------------------

// Chunk `chunk` of `line` of the tile as the part has it; all lanes of a warp call it. `cell` is the square that it lies in.
template <class T>
__device__ __forceinline__ void emit_chunk(const Arguments& a, const QuantizedPart& part, const Rule& rule,
                                           float (&values)[kChunk], int line, int chunk, int cell, Shared<T>& shared) {
    const QuantizeProblem& p = a.problem;
    const PartPlace& place = shared.place.parts[rule.columnwise];
    if (rule.hadamard) hadamard_16(values, rule.hadamard_mask);
    const uint32_t scale = p.square_tiles ? shared.cells[rule.columnwise][cell] : line_scale(a, rule, values);
    const float multiplier = a.nvfp4 ? nvfp4_multiplier(scale, rule.global) : scale_reciprocal(scale);
    const uint2 codes = p.seed_offset ? stochastic_codes(values, multiplier, rule, place.line + line,
                                                         place.position + chunk * kChunk)
                                      : nearest_codes(values, multiplier);

    // Transformed padding may be -0, but blocks of padding alone are zero.
    const int first = rule.columnwise ? chunk * kChunk / p.tile.length * p.tile.length : line;
    const uint32_t mask = first >= shared.place.rows ? 0 : a.nvfp4 ? nvfp4_code_mask(scale) : code_mask<E2M1>(scale);
    const int in_column = part.layout.block / kChunk;  // chunks that share a stored scale
    if (chunk % in_column == 0)
        reinterpret_cast<uint8_t*>(shared.scales[rule.columnwise][line])[chunk / in_column] = uint8_t(scale);
    if (line < place.codes.lines)
        store_chunk_codes(place.codes.codes + line * place.codes.line_bytes + chunk * kChunk / 2,
                          {codes.x & mask, codes.y & mask}, (place.codes.length + 1) / 2 - chunk * kChunk / 2,
                          a.wide[rule.columnwise]);
}

template <class T>
__device__ __forceinline__ void emit_rowwise(const Arguments& a, Shared<T>& shared) {
    const Rule rule = load_rule(a, a.problem.rowwise, shared.place);
    const int chunk = chunk_of_lane();
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = row_of_step(i);
        float values[kChunk];
        shared.tile.read_row(line, chunk, values);
        emit_chunk(a, a.problem.rowwise, rule, values, line, chunk, line / kChunk * kSideChunks + chunk, shared);
    }
}

template <class T>
__device__ __forceinline__ void emit_columnwise(const Arguments& a, Shared<T>& shared) {
    const Rule rule = load_rule(a, a.problem.columnwise, shared.place);
    const int chunk = chunk_of_lane();
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = column_of_step<T>(i);
        float values[kChunk];
        shared.tile.read_column(line, chunk, values);
        emit_chunk(a, a.problem.columnwise, rule, values, line, chunk, chunk * kSideChunks + line / kChunk, shared);
    }
}

// The tile's scale words. What a swizzled layout has no scale for is zero.
__device__ __forceinline__ void store_scales(const QuantizedPart& part, const ScaleTile& place,
                                             const uint32_t (&words)[kTile][2]) {
    const ScaleLayout& layout = place.layout;
    const int tile_columns = kTile / layout.block, most = min(tile_columns, int(kSwizzleColumns));
    const int line_words = tile_columns / most;
    for (int i = threadIdx.x; i < kTile * line_words; i += kChunkThreads) {
        const int w = layout.swizzled ? i / kTile : i % line_words;
        const int line = layout.swizzled ? i % 4 * 32 + i % kTile / 4 : i / line_words;
        const int64_t column = place.column + w * most;
        const int left = int(max(min(layout.columns - column, int64_t(most)), int64_t(0)));
        uint32_t word = words[line][w];
        int stored = left;
        if (layout.swizzled) {
            const uint32_t inside = left == 4 ? ~0u : (1u << left * 8) - 1;
            word = line < place.lines ? word & inside : 0;
            stored = left > 0 ? 4 : 0;
        } else if (!place.stores(line)) {
            stored = 0;
        }
        if (stored > 0) store_scale_word(part.scales + place.offset(line, uint32_t(column)), word, stored);
    }
}

template <class Source>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<TileElement<Source>>)
    quantize_fp4_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ uint4 memory[];
    auto& shared = *reinterpret_cast<Shared<TileElement<Source>>*>(memory);
    const QuantizeProblem& p = a.problem;
    if (!find_chunk_tile(p, a.tiles, shared.place)) return;
    __syncthreads();
    fill_tile<Source>(shared.tile, p, shared.place, a.wide_in);
    __syncthreads();
    if (p.square_tiles) square_scales(a, shared);
    if (p.has_rowwise) emit_rowwise(a, shared);
    if (p.has_columnwise) emit_columnwise(a, shared);
    __syncthreads();
    if (p.has_rowwise) store_scales(p.rowwise, shared.place.parts[0].scales, shared.scales[0]);
    if (p.has_columnwise) store_scales(p.columnwise, shared.place.parts[1].scales, shared.scales[1]);
}

std::string declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.format->element != Element::E2M1)
        return std::string("needs nvfp4 or mxfp4, found ") + problem.format->name;
    return needs_cuda(context);
}

bool is_wide_part(const QuantizedPart& part) { return is_aligned(part.codes, 8) && part.line_bytes % 8 == 0; }

template <class Source>
void run_source(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Arguments a{problem, ChunkTiles(problem), problem.format->is_nvfp4(), is_wide_source<Source>(problem),
                      {is_wide_part(problem.rowwise), is_wide_part(problem.columnwise)}};
    if (a.tiles.count() == 0) return;
    launch(context, quantize_fp4_kernel<Source>, "quantize_fp4", a.tiles.tiles.grid(), dim3(kChunkThreads),
           sizeof(Shared<TileElement<Source>>), call.stream, a);
}

}  // namespace

void launch_quantize_fp4(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    if (problem.compute_amax) launch_amax(context, problem, problem.rowwise.amax, problem.columnwise.amax, call);
    with_source(problem.requantizes, problem.in.format,
                [&]<class Source>(Source) { run_source<Source>(context, problem, call); });
}

const QuantizeImplementation quantize_fp4 = {"quantize_fp4", declines, nullptr, launch_quantize_fp4};

void load_quantize_fp4() {
    with_all_sources([]<class Source>(Source) {
        load_kernel(reinterpret_cast<const void*>(quantize_fp4_kernel<Source>), sizeof(Shared<TileElement<Source>>));
    });
}

}  // namespace mxq::cuda
