// quantize_fp4: F32, F16, BF16, or a quantized part's values, to NVFP4 or MXFP4 with a random Hadamard transform, stochastic
// rounding or four over six, in any of their scalings and layouts.
//
// A block of threads takes a tile of 128 x 128 through shared memory; who reads what: tile/shared_tile.cuh. A thread holds one
// chunk of 16 elements at a time, in fp32, since that is what a transform, a Philox counter and an NVFP4 block are:
//
//     rowwise      16 elements of a row     -> transform -> maximum -> scale -> 16 codes -> 8 bytes, eight lanes 64 in a row
//     columnwise   16 elements of a column  -> the same, from the same tile (of 16-bit types, two columns at once)
//     square       before both: the maximum (and the better scale) of every 16 x 16, by the warp that holds its 16 rows
//     scales       as bytes through shared memory, then as words in the layout's order
//
// Bytes an element: 2 or 4 read once, 0.56 written for each part; bound by arithmetic: about 20 operations an element for
// stochastic rounding or a transform, 30 for four over six, whose scales are chosen by estimates where those are enough.
#include "cuda/quantize/amax.h"
#include "cuda/launch.h"
#include "cuda/quantize/fp4_chunks.cuh"
#include "cuda/implementations.h"
#include "cuda/tile/pair_factors.cuh"
#include "cuda/tile/tile_source.cuh"
#include "numerics/encode_sub_byte.h"
#include "numerics/four_over_six.h"
#include "numerics/hadamard.h"
#include "numerics/nvfp4.h"
#include "numerics/packing.h"
#include "numerics/philox.h"

namespace mxq::cuda {
namespace {

// The signs that a part's transform flips, by elements and as they lie in words of 16-bit pairs of a row and of two columns.
struct PartSigns {
    HadamardSigns elements;
    uint32_t row_words[kChunk / 2], column_words[kChunk];
};

struct Arguments {
    QuantizeProblem problem;
    Tiles tiles;
    PartSigns signs[2];  // of the parts: rowwise, columnwise
    ScaleSteps steps;
    bool nvfp4;
    bool wide_in, wide[2];  // parts: rowwise, columnwise
};

template <class T>
struct Shared {
    ChunkTile<T> tile;
    SharedPlace place;
    Nvfp4Tables tables;
    alignas(16) PhiloxKeys keys;
    uint32_t maxima[kCells];              // of square tiles, as bits
    uint8_t cells[2][kCells];             // their scales, for each part
    uint32_t scales[2][kTile][2];         // scale words of each part by line
};

// Holds what is the same for all chunks of a part.
struct Rule {
    Nvfp4Global global;
    const float* multipliers;  // of scale bytes
    float unit;  // of estimates, NaN where there can be none
    bool nvfp4, hadamard, columnwise;
    uint64_t offset;
    // Where the lane's chunk of line 0 goes, of so many bytes, and its place among all for the counter.
    uint8_t* codes;
    uint32_t line_bytes;
    int rows;  // of columns: from the first of the lane's block on
    int lines, bytes;
    int scale_byte;
    uint32_t first_line, chunk;
};

template <Rounding rounding, class T>
__device__ __forceinline__ Rule load_rule(const Arguments& a, bool columnwise, bool nvfp4, Shared<T>& shared) {
    const QuantizeProblem& p = a.problem;
    const QuantizedPart& part = part_of(p, columnwise);
    const PartPlace& to = shared.place.parts[kRowwisePart + columnwise];
    const int byte = chunk_of_lane() * (kChunk / 2);
    Rule rule{shared.tables.globals[columnwise], shared.tables.multipliers[columnwise]};
    rule.nvfp4 = nvfp4;
    rule.columnwise = columnwise;
    rule.hadamard = part.transformed;
    if constexpr (is_four_over_six(rounding))
        rule.unit = can_estimate(rule.global) ? error_unit(rule.global) : bits_float(kNanBits);
    if constexpr (rounding == Rounding::Stochastic) {
        rule.offset = p.seed_offset[1];
        rule.first_line = uint32_t(to.line);
        rule.chunk = uint32_t(to.position / kChunk) + chunk_of_lane();
    }
    rule.codes = to.codes.codes + byte;
    rule.line_bytes = uint32_t(to.codes.line_bytes);
    rule.rows = shared.place.source.rows;
    if (columnwise) rule.rows -= chunk_of_lane() * kChunk & -p.tile.length;
    rule.lines = to.codes.lines;
    rule.bytes = (to.codes.length + 1) / 2 - byte;
    rule.scale_byte = scale_byte(part);
    return rule;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns the bits of a chunk's largest magnitude. Under PROPAGATE NaN is the largest of all.
__device__ __forceinline__ uint32_t chunk_amax(const Arguments& a, const float (&values)[kChunk]) {
    if (a.nvfp4 || a.problem.nonfinite == Nonfinite::Saturate) return float_bits(larger_magnitude(0.0f, values));
    uint32_t largest = 0;
#pragma unroll
    for (const float value : values) largest = max(largest, amax_bits<Nonfinite::Propagate>(value));
    return largest;
}

struct ChunkValues {
    float at[kChunk];
};

// Returns errors of values in memory. Out of line: what calls it mostly needs no errors, but all of its registers.
template <bool squared>
__device__ __noinline__ Errors errors_of(const ChunkValues& values, Nvfp4Candidates candidates, Nvfp4Global global) {
    return chunk_errors<squared>(values.at, candidates, global);
}

template <bool squared>
__device__ __forceinline__ Errors exact_errors(const float (&values)[kChunk], const Nvfp4Candidates& candidates,
                                               const Nvfp4Global& global) {
    ChunkValues copy;
#pragma unroll
    for (int i = 0; i < kChunk; i++) copy.at[i] = values[i];
    return errors_of<squared>(copy, candidates, global);
}

// A scale, and what elements are multiplied by.
struct BlockScale {
    uint32_t scale;
    float multiplier;
};

template <bool squared>
__device__ __forceinline__ BlockScale better_scale(const float (&values)[kChunk], float amax, const Rule& rule) {
    const Nvfp4Global& global = rule.global;
    const Nvfp4Candidates candidates = fast_nvfp4_candidates(amax, global);
    const ErrorScale four = error_scale(candidates.four, rule.multipliers[candidates.four], rule.unit);
    const ErrorScale six = error_scale(candidates.six, rule.multipliers[candidates.six], rule.unit);
    uint32_t codes[4];
    Errors errors{error_estimate_16<squared>(values, four, codes), error_estimate_16<squared>(values, six, codes)};
    if (!can_estimate(amax, four, six) || !estimates_decide<squared>(errors.four, errors.six, amax, 1))
        errors = exact_errors<squared>(values, candidates, global);
    const uint32_t scale = nvfp4_choice(candidates, errors.four, errors.six);
    return {scale, rule.multipliers[scale]};
}

// Returns the scale of the block of one line that the chunk lies in.
template <Rounding rounding>
__device__ __forceinline__ BlockScale line_scale(const Arguments& a, const Rule& rule, const float (&values)[kChunk]) {
    const QuantizeProblem& p = a.problem;
    const uint32_t amax = block_amax(chunk_amax(a, values), p.tile.length);
    if constexpr (is_four_over_six(rounding))
        return better_scale<rounding == Rounding::FourOverSixMse>(values, bits_float(amax), rule);
    const uint32_t scale = rule.nvfp4 ? nvfp4_scale(bits_float(amax), rule.global) : scale_of(amax, a.steps);
    return {scale, rule.nvfp4 ? rule.multipliers[scale % kScaleBytes] : scale_reciprocal(scale)};
}

// ---- Square tiles ----------------------------------------------------------------------------------------------------

// Makes the scale of every 16 x 16. Ends with a barrier.
template <Rounding rounding, class T>
__device__ __forceinline__ void square_scales(const Arguments& a, Shared<T>& shared) {
    const RowReader<T> rows(shared.tile, row_of_step(0), chunk_of_lane());
    uint32_t amax = 0;
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        float values[kChunk];
        rows.read(row_of_step(i) - row_of_step(0), values);
        amax = max(amax, chunk_amax(a, values));
    }
    amax = max(amax, __shfl_xor_sync(kAllLanes, amax, 8));
    amax = max(amax, __shfl_xor_sync(kAllLanes, amax, 16));
    if (a.nvfp4) put_nvfp4_cells<rounding>(a.problem, shared.tile, amax, shared.tables.globals, shared.cells, [](int, uint32_t) {});
    else put_mx_cells(a.steps, a.problem.tile.length, amax, shared.maxima, shared.cells);
    __syncthreads();
}

// ---- Transformed chunks ----------------------------------------------------------------------------------------------

// Makes codes of eight magnitudes times a factor, which makes them 2^-14 times as large as their codes' values, and below 7
// of them, or 8 and more where they are to be clamped.
template <bool clamps>
__device__ __forceinline__ uint32_t small_codes(const float* values, float factor) {
    float elements[8];
    uint32_t signs[4];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float product = multiply_rn(fabsf(values[i]), factor);
        if (clamps) product = fminf(product, 6 * ErrorScale::one);
        elements[i] = round_small_to_e2m1(product);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) signs[i] = permute_bytes(float_bits(values[2 * i]), float_bits(values[2 * i + 1]), 0x7632);
    return pack_shifted_codes(shifted_codes(elements[0], elements[1], elements[2], elements[3]),
                              shifted_codes(elements[4], elements[5], elements[6], elements[7]), signs);
}

// Makes scale and codes of a chunk that holds four times the transformed values, a quarter being part of the factor. False,
// for all lanes of a warp, where a value is so large or small, or no number, that this would not have the contract's bits.
__device__ __forceinline__ bool transformed_codes(const Arguments& a, const Rule& rule, const float (&sums)[kChunk],
                                                  BlockScale& block, uint2& codes) {
    float largest[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kChunk; i++)
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest[i % 2]) : "f"(fabsf(sums[i])));
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest[0]) : "f"(largest[1]));
    const float most = bits_float(block_amax(float_bits(largest[0]), a.problem.tile.length));
    const float amax = multiply_rn(most, 0.25f);
    bool serves = most == 0 || (most >= 0x1p-80f && most <= 0x1p+80f);
    if (rule.nvfp4) {
        block.scale = nvfp4_scale(amax, rule.global);
        block.multiplier = rule.multipliers[block.scale % kScaleBytes];
        serves = serves && multiply_rn(amax, block.multiplier) < 7 && (block.multiplier == 0 || block.multiplier >= 0x1p-100f);
    } else {
        block.scale = scale_of(float_bits(amax), a.steps);
        block.multiplier = scale_reciprocal(block.scale);
    }
    if (!__all_sync(kAllLanes, serves)) return false;
    const float factor = multiply_rn(block.multiplier, 0.25f * ErrorScale::one);
    codes = rule.nvfp4 ? uint2{small_codes<false>(sums, factor), small_codes<false>(sums + 8, factor)}
                       : uint2{small_codes<true>(sums, factor), small_codes<true>(sums + 8, factor)};
    return true;
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

template <Rounding rounding>
__device__ __forceinline__ uint2 chunk_codes(const float (&values)[kChunk], float multiplier, const Rule& rule, int line,
                                             const PhiloxKeys& keys) {
    if constexpr (rounding == Rounding::Stochastic) {
        const PhiloxWords random =
            philox(keys, philox_counter(rule.chunk, rule.first_line + line, rule.columnwise, rule.offset));
        return stochastic_codes(values, multiplier, random);
    }
    return {nearest_codes(values, multiplier), nearest_codes(values + 8, multiplier)};
}

// ---- Parts -----------------------------------------------------------------------------------------------------------

// Makes scale and codes of the lane's chunk of `line`, which lies in square `cell`. A chunk to be transformed has its signs
// flipped already.
template <Rounding rounding>
__device__ __forceinline__ uint2 scaled_codes(const Arguments& a, const Rule& rule, float (&values)[kChunk], int line, int cell,
                                              const uint8_t (&cells)[2][kCells], const PhiloxKeys& keys, BlockScale& block) {
    if (rule.hadamard) {
        hadamard_sums(values);
        uint2 codes;
        if constexpr (rounding == Rounding::Nearest)
            if (transformed_codes(a, rule, values, block, codes)) return codes;
#pragma unroll
        for (float& value : values) value = multiply_rn(value, 0.25f);
    }
    if (a.problem.square_tiles) {
        block.scale = cells[rule.columnwise][cell];
        block.multiplier = rule.nvfp4 ? rule.multipliers[block.scale] : scale_reciprocal(block.scale);
    } else {
        block = line_scale<rounding>(a, rule, values);
    }
    return chunk_codes<rounding>(values, block.multiplier, rule, line, keys);
}

// Stores the lane's chunk of `line` of the tile as the part has it; all lanes of a warp call it.
template <Rounding rounding, class T>
__device__ __forceinline__ void emit_chunk(const Arguments& a, const Rule& rule, float (&values)[kChunk], int line, int cell,
                                           Shared<T>& shared) {
    BlockScale block;
    const uint2 codes = scaled_codes<rounding>(a, rule, values, line, cell, shared.cells, shared.keys, block);

    // Transformed padding may be -0, but blocks of padding alone are zero.
    const int row = rule.columnwise ? 0 : line;
    const uint32_t mask = row >= rule.rows ? 0 : rule.nvfp4 ? nvfp4_code_mask(block.scale) : code_mask<E2M1>(block.scale);
    put_scale(shared.scales[rule.columnwise], line, rule.scale_byte, block.scale);
    if (line < rule.lines)
        store_chunk_codes(rule.codes + uint64_t(uint32_t(line)) * rule.line_bytes, {codes.x & mask, codes.y & mask}, rule.bytes,
                          a.wide[rule.columnwise]);
}

template <Rounding rounding, class T>
__device__ __forceinline__ void emit_rowwise(const Arguments& a, bool nvfp4, Shared<T>& shared) {
    const Rule rule = load_rule<rounding>(a, false, nvfp4, shared);
    const int cell = threadIdx.x / 32 * kSideChunks + chunk_of_lane();
    const RowReader<T> rows(shared.tile, row_of_step(0), chunk_of_lane());
    constexpr bool paired = std::is_same_v<T, Bf16>;
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        float values[kChunk];
        if constexpr (paired) {
            uint32_t words[kChunk / 2];
            rows.read_words(row_of_step(i) - row_of_step(0), words);
#pragma unroll
            for (int j = 0; j < kChunk / 2; j++) {
                words[j] ^= a.signs[0].row_words[j];
                values[2 * j] = low_value(words[j]), values[2 * j + 1] = high_value(words[j]);
            }
        } else {
            rows.read(row_of_step(i) - row_of_step(0), values);
            flip_signs(values, a.signs[0].elements);
        }
        emit_chunk<rounding>(a, rule, values, row_of_step(i), cell, shared);
    }
}

// Returns the lower or upper element of a word.
template <class T>
__device__ __forceinline__ float half_of(uint32_t pair, int upper) {
    if constexpr (std::is_same_v<T, Bf16>) return bits_float(__byte_perm(pair, 0, upper ? 0x3244 : 0x1044));
    else return to_float(T{uint16_t(pair >> (16 * upper))});
}

template <Rounding rounding, class T>
__device__ __forceinline__ void emit_columnwise(const Arguments& a, bool nvfp4, Shared<T>& shared) {
    const Rule rule = load_rule<rounding>(a, true, nvfp4, shared);
    const int chunk = chunk_of_lane();
    const auto emit = [&](float (&values)[kChunk], int line) {
        emit_chunk<rounding>(a, rule, values, line, chunk * kSideChunks + line / kChunk, shared);
    };
    constexpr int together = sizeof(T) == 4 || is_four_over_six(rounding) ? 1 : 2;  // as registers allow
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i += together) {
        const int line = column_of_step<T>(i);
        float values[kChunk];
        if constexpr (together == 1) {
            shared.tile.read_column(line, chunk, values);
            flip_signs(values, a.signs[1].elements);
            emit(values, line);
        } else {
            uint32_t pairs[kChunk];
            read_column_pair(shared.tile, column_pair_word<T>(line, chunk), pairs);
#pragma unroll
            for (int j = 0; j < kChunk; j++) pairs[j] ^= a.signs[1].column_words[j];
#pragma unroll 1
            for (int upper = 0; upper < 2; upper++) {
#pragma unroll
                for (int j = 0; j < kChunk; j++) values[j] = half_of<T>(pairs[j], upper);
                emit(values, line + upper);
            }
        }
    }
}

// Loads the tile, and what all threads know of it. Ends with a barrier. What is copied is on its way while places are found.
template <class Source, class T>
__device__ __forceinline__ void load_tile(const Arguments& a, const TilePlace& place, Shared<T>& shared) {
    const QuantizeProblem& p = a.problem;
    float amax = a.nvfp4 && !p.compute_amax ? table_amax(p, place.scope) : 0;
    const bool copies = start_copy(Source{}, shared.tile, p, SourcePlace(p, place, shared.place.group), a.wide_in);
    describe_tile(p, place, shared.place);
    if (a.nvfp4 && p.compute_amax) amax = computed_table_amax(p, place.scope);
    if (a.nvfp4) put_tables(p, amax, shared.tables);
    put_keys(p, shared.keys);
    if (copies) {
        wait_for_pieces();
    } else {
        __syncthreads();
        fill_tile(Source{}, shared.tile, p, shared.place, a.wide_in);
    }
    __syncthreads();
}

// The format that a kernel is compiled for. One for both asks at every chunk, which takes 4 to 8% longer.
enum class Known { Nothing, Nvfp4, Mxfp4 };

template <class Source, Rounding rounding, Known known>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<typename Source::Element>)
    quantize_fp4_kernel(const __grid_constant__ Arguments a) {
    const bool nvfp4 = known == Known::Nothing ? a.nvfp4 : known == Known::Nvfp4;
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared<typename Source::Element>*>(memory);
    const QuantizeProblem& p = a.problem;
    TilePlace place;
    if (!find_tile(a.tiles, p.grouped, shared.place.group, place)) return wait_for_previous_kernel();
    load_tile<Source>(a, place, shared);
    if (p.square_tiles) square_scales<rounding>(a, shared);
    if (p.has_rowwise) emit_rowwise<rounding>(a, nvfp4, shared);
    if (p.has_columnwise) emit_columnwise<rounding>(a, nvfp4, shared);
    __syncthreads();
    if (p.has_rowwise) store_scales(p.rowwise, shared.place.parts[kRowwisePart], shared.scales[0]);
    if (p.has_columnwise) store_scales(p.columnwise, shared.place.parts[kColumnwisePart], shared.scales[1]);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Names what a kernel is compiled for.
struct Key {
    bool bf16;
    Rounding rounding;
    Known known;
    bool operator==(const Key&) const = default;
};

template <class Source, Rounding rounding, Known known = Known::Nothing>
constexpr KernelEntry<Key, Arguments> entry() {
    using T = typename Source::Element;
    return {{std::is_same_v<T, Bf16>, rounding, known},
            quantize_fp4_kernel<Source, rounding, known>,
            kChunkThreads,
            sizeof(Shared<T>)};
}

// BF16 comes here for a Hadamard transform; with four over six, which is rare, as floats.
constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<Bf16Source, Rounding::Nearest, Known::Nvfp4>(),
    entry<Bf16Source, Rounding::Nearest, Known::Mxfp4>(),
    entry<Bf16Source, Rounding::Stochastic, Known::Nvfp4>(),
    entry<Bf16Source, Rounding::Stochastic, Known::Mxfp4>(),
    entry<FloatSource, Rounding::Nearest>(),
    entry<FloatSource, Rounding::Stochastic>(),
    entry<FloatSource, Rounding::FourOverSixMae>(),
    entry<FloatSource, Rounding::FourOverSixMse>(),
};

Key key_of(const QuantizeProblem& p) {
    const Rounding rounding = rounding_of(p);
    const bool bf16 = !p.source.is_quantized() && p.source.plain.format == MXQ_FORMAT_BF16;
    if (!bf16 || is_four_over_six(rounding)) return {false, rounding, Known::Nothing};
    return {true, rounding, p.format->is_nvfp4() ? Known::Nvfp4 : Known::Mxfp4};
}

// Returns the signs of a part; none are flipped where it is not transformed.
PartSigns part_signs(const QuantizedPart& part) {
    PartSigns signs{hadamard_signs(part.transformed ? part.hadamard_mask : 0), {}, {}};
    const auto& bits = signs.elements.bits;
    for (int i = 0; i < kChunk; i++) {
        signs.column_words[i] = bits[i] | bits[i] >> 16;
        signs.row_words[i / 2] |= i % 2 ? bits[i] : bits[i] >> 16;
    }
    return signs;
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.format->element != Element::E2M1)
        return [format = problem.format] { return std::string("needs nvfp4 or mxfp4, found ") + format->name; };
    if (problem.tile.is_row()) return "needs scales of blocks, found row";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Start start = problem.compute_amax
                            ? launch_amax(context, problem, problem.rowwise.amax, problem.columnwise.amax, call)
                            : Start::AfterAll;
    const Arguments a{problem, Tiles(problem),
                      {part_signs(problem.rowwise), part_signs(problem.columnwise)},
                      scale_steps<E2M1>(problem.scale_rounding, problem.nonfinite), problem.format->is_nvfp4(),
                      is_wide_tile_source(problem), {is_wide_part(problem.rowwise), is_wide_part(problem.columnwise)}};
    if (a.tiles.count() > 0) launch(context, kernels, key_of(problem), "quantize_fp4", a.tiles.grid(), call.stream, a, start);
}

void load(const Context&) { load_kernels(kernels); }

}  // namespace

const QuantizeImplementation quantize_fp4 = {"quantize_fp4", declines, nullptr, run, load};

}  // namespace mxq::cuda
