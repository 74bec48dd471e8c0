// quantize_fp4_pairs: BF16 to NVFP4 or MXFP4, rounded to nearest, in any of their scalings and layouts.
//
// A block of threads takes a tile of 128 x 128 through shared memory; who reads what: chunk_tile.cuh. Elements stay packed in
// pairs, as they lie in memory, all the way to their codes:
//
//     rowwise      8 words of a row              -> maximum -> scale  -> 16 codes -> 8 bytes, eight lanes 64 in a row
//     columnwise   16 words of two columns       -> 2 maxima -> 2 scales -> 16 codes of each, the same way
//     square       before both: the maximum of every 16 x 16, by the warp that holds its 16 rows
//     scales       as bytes through shared memory, then as words in the layout's order
//
// What is mostly so makes codes cheaper, and is asked of a warp's blocks together ("plain"): no element is NaN or comes out at
// 7 or above, so that none is clamped; and NVFP4's products may be cut (CutMultiplier, which stands in a table of all scales).
//
// Bytes an element: 2 read once, 0.53 or 0.56 written for each part. Bound by arithmetic: 8 operations an element and part for
// MXFP4, 9 for NVFP4, and the latency of what comes before the first code. The loops are short on purpose: the same from
// registers, unrolled, waits for instructions (a quarter slower). Blocks that take tile after tile, the next one on its way
// while scales leave, are a tenth slower; so is a fifth block on an SM, 48 registers a thread, for NVFP4.
#include "cuda/amax.h"
#include "cuda/device.h"
#include "cuda/fp4_chunks.cuh"
#include "cuda/implementations.h"
#include "cuda/pair_factors.cuh"

namespace mxq::cuda {
namespace {

constexpr int kPairs = kChunk / 2;

struct Arguments {
    QuantizeProblem problem;
    ChunkTiles tiles;
    ScaleSteps steps;  // MXFP4
    bool plain;        // of it, too: codes need no clamping, or are masked
    bool wide_in, wide[2];  // parts: rowwise, columnwise
};

struct Shared {
    ChunkTile<Bf16> tile;
    ChunkPlace place;
    Nvfp4Tables tables;
    CutWay ways[2][8];
    uint32_t maxima[kCells];       // of square tiles, as bits
    uint8_t cells[2][kCells];      // their scales, for each part
    uint32_t scales[2][kTile][2];  // scale words of each part by line
};

// What holds for all chunks of a part.
struct Rule {
    float encode_sixth;
    const float* multipliers;
    uint8_t* codes;  // of the lane's chunk of line 0, so many bytes
    uint32_t line_bytes;
    int lines, bytes;
    uint8_t* scales;  // where the lane's go, for line 0; NULL where another's stand for them
    int which;
    bool wide;

    __device__ __forceinline__ Rule(const Arguments& a, const QuantizedPart& part, Shared& shared)
        : encode_sixth(shared.tables.globals[part.columnwise].encode_sixth),
          multipliers(shared.tables.multipliers[part.columnwise]), which(part.columnwise), wide(a.wide[part.columnwise]) {
        const CodeTile& to = shared.place.parts[which].codes;
        const int byte = chunk_of_lane() * (kChunk / 2);
        codes = to.codes + byte;
        line_bytes = uint32_t(to.line_bytes);
        lines = to.lines;
        bytes = (to.length + 1) / 2 - byte;
        scales = scale_place(part, shared.scales[which]);
    }
};

// A block's stored scale, and what its elements are multiplied by.
struct Block {
    uint32_t scale;
    float multiplier;
};

// ---- Scales ----------------------------------------------------------------------------------------------------------

// The number of the larger magnitude, of either sign, in both halves. By PROPAGATE a NaN is handed on.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t farther_pair(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
    uint32_t max;
    if constexpr (policy == Nonfinite::Saturate)
        asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    else
        asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    return max;
#else
    return larger_magnitudes<Bf16, policy>(abs_bf16_pairs(a), b);
#endif
}

// The numbers of the largest magnitudes of both halves; by SATURATE 0 where all are NaN.
template <Nonfinite policy, int count>
__device__ __forceinline__ uint32_t farthest_pair(const uint32_t (&words)[count]) {
    constexpr bool ignores = policy == Nonfinite::Saturate;
    uint32_t farthest[2] = {ignores ? 0 : words[0], ignores ? 0 : words[1]};
#pragma unroll
    for (int i = ignores ? 0 : 2; i < count; i++) farthest[i % 2] = farther_pair<policy>(farthest[i % 2], words[i]);
    return farther_pair<policy>(farthest[0], farthest[1]);
}

// Those magnitudes.
template <Nonfinite policy, int count>
__device__ __forceinline__ uint32_t largest_pair(const uint32_t (&words)[count]) {
    return farthest_pair<policy>(words) & ~kSigns;
}

// The largest magnitude of all, as bits of an fp32 value.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_row(const uint32_t (&words)[kPairs]) {
    const uint32_t pair = farthest_pair<policy>(words);
    return farther_pair<policy>(pair, __byte_perm(pair, 0, 0x1032)) << 16 & kMagnitudeMask;
}

template <int count>
__device__ __forceinline__ uint32_t largest_pair(Nonfinite policy, const uint32_t (&words)[count]) {
    return policy == Nonfinite::Saturate ? largest_pair<Nonfinite::Saturate>(words)
                                         : largest_pair<Nonfinite::Propagate>(words);
}

// NVFP4's multipliers in the tables become their CutMultipliers, negative where those are not odd. Scales of one significand
// have multipliers of one, and are cut alike: eight threads look for all. A barrier must follow.
__device__ __forceinline__ void cut_tables(const QuantizeProblem& p, Shared& shared) {
    const int which = threadIdx.x / kScaleBytes, scale = threadIdx.x % kScaleBytes;
    const bool exists = which == 0 ? p.has_rowwise : p.has_columnwise;
    constexpr int one = 56;  // the scale 1
    __syncthreads();
    const float multiplier = shared.tables.multipliers[which][scale];
    if (exists && scale >= one && scale < one + 8) shared.ways[which][scale - one] = cut_way(multiplier);
    const int normal = scale >= 8 ? scale : scale << max(__clz(scale) - 28, 0);
    const float same = shared.tables.multipliers[which][one + normal % 8];
    __syncthreads();
    if (!exists) return;
    const bool alike = ((float_bits(multiplier) ^ float_bits(same)) & 0x7FFFFF) == 0;
    const CutMultiplier cut = cut_multiplier(multiplier, alike ? shared.ways[which][normal % 8] : CutWay::None);
    shared.tables.multipliers[which][scale] = cut.odd ? cut.factor : -cut.factor;
}

__device__ __forceinline__ uint32_t odd_halves(float stored) { return float_bits(stored) >> 31 ? 0 : kBothHalves; }

// With the stored CutMultiplier.
__device__ __forceinline__ Block nvfp4_block(const Rule& rule, uint32_t amax) {
    const uint32_t scale = encode_nvfp4_scale(multiply_rn(bits_float(amax), rule.encode_sixth));
    return {scale, rule.multipliers[scale % kScaleBytes]};
}

__device__ __forceinline__ Block mx_block(const Arguments& a, uint32_t amax) {
    const uint32_t scale = scale_of(block_amax(amax, a.problem.tile.length), a.steps);
    return {scale, scale_reciprocal(scale)};
}

// Whether the elements of an NVFP4 block are plain: a CutMultiplier serves, it leaves all of them below 7, none is NaN.
__device__ __forceinline__ bool is_plain(uint32_t amax, const Block& block) {
    return fabsf(multiply_rn(bits_float(amax), block.multiplier)) < 7;
}

// Where they are not: with the multiplier itself.
__device__ __forceinline__ Block nvfp4_exact_block(const Rule& rule, const Nvfp4Global& global, uint32_t amax) {
    const uint32_t scale = encode_nvfp4_scale(multiply_rn(bits_float(amax), rule.encode_sixth));
    return {scale, nvfp4_multiplier(scale, global)};
}

// ---- Square tiles ----------------------------------------------------------------------------------------------------

// The largest magnitude of the lane's 16 x 16 of the warp's band.
__device__ __forceinline__ uint32_t cell_amax(const Shared& shared, Nonfinite policy) {
    const RowReader<Bf16> rows(shared.tile, row_of_step(0), chunk_of_lane());
    uint32_t largest = 0;
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        uint32_t words[kPairs];
        rows.read_words(row_of_step(i) - row_of_step(0), words);
        largest = max(largest, largest_bits<Bf16>(largest_pair(policy, words)));
    }
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 8));
    return max(largest, __shfl_xor_sync(kAllLanes, largest, 16));
}

// False where an element may not be plain.
__device__ __forceinline__ bool nvfp4_cells(const QuantizeProblem& p, Shared& shared) {
    const int cell = threadIdx.x / 32 * kSideChunks + chunk_of_lane();
    uint32_t amax = cell_amax(shared, Nonfinite::Propagate);
    bool plain = !is_nan(bits_float(amax));
    if (__any_sync(kAllLanes, !plain)) amax = cell_amax(shared, Nonfinite::Saturate);
    for (int which = 0; which < 2; which++) {
        if (!(which == 0 ? p.has_rowwise : p.has_columnwise)) continue;
        const uint32_t scale = nvfp4_scale(bits_float(amax), shared.tables.globals[which]);
        plain = plain && is_plain(amax, {scale, shared.tables.multipliers[which][scale]});
        if (threadIdx.x % 32 < kSideChunks) shared.cells[which][cell] = uint8_t(scale);
    }
    return plain;
}

// The scale of every 16 x 16. Ends with a barrier; false where an element may not be plain.
template <bool nvfp4>
__device__ __forceinline__ bool square_scales(const Arguments& a, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    if constexpr (nvfp4) return __syncthreads_and(nvfp4_cells(p, shared));
    put_mx_cells(a.steps, p.tile.length, cell_amax(shared, p.nonfinite), shared.maxima, shared.cells);
    __syncthreads();
    return a.plain;
}

template <bool nvfp4>
__device__ __forceinline__ Block square_block(const Rule& rule, const Shared& shared, int cell, bool plain) {
    const uint32_t scale = shared.cells[rule.which][cell];
    if constexpr (!nvfp4) return {scale, scale_reciprocal(scale)};
    return {scale, plain ? rule.multipliers[scale] : nvfp4_multiplier(scale, shared.tables.globals[rule.which])};
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Of a factor for each half, and what makes their cut products odd.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void four_pairs(const uint32_t* words, const PairFactors& factors, uint32_t odd,
                                           uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = plain ? round_e2m1_pair<!nvfp4>(words[i], factors, odd) : quantize_e2m1_pair<!nvfp4>(words[i], factors);
}

// Whether codes need a mask: plain NVFP4 under scale 0 is zeros with signs by itself.
template <bool nvfp4, bool plain>
__device__ __forceinline__ uint32_t masked(uint32_t codes, float multiplier) {
    return nvfp4 && plain ? codes : mask_nibbles<!nvfp4>(codes, multiplier);
}

template <bool nvfp4, bool plain>
__device__ __forceinline__ uint2 row_codes(const uint32_t (&words)[kPairs], float multiplier) {
    const float factor = nvfp4 && plain ? fabsf(multiplier) : multiplier;
    const auto eight = [&](const uint32_t* from) {
        uint32_t pairs[4];
        four_pairs<nvfp4, plain>(from, pair_factors(factor, factor), odd_halves(multiplier), pairs);
        return masked<nvfp4, plain>(plain ? pack_nibble_pairs(pairs, from) : pack_nibble_pairs(pairs), factor);
    };
    return {eight(words), eight(words + 4)};
}

// Of two columns.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void column_codes(const uint32_t (&words)[kChunk], float low, float high, uint2 (&codes)[2]) {
    const float first = nvfp4 && plain ? fabsf(low) : low, second = nvfp4 && plain ? fabsf(high) : high;
    const uint32_t odd = select_bits(0xFFFF, odd_halves(low), odd_halves(high));
    uint32_t lines[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        uint32_t pairs[4];
        four_pairs<nvfp4, plain>(words + 4 * g, pair_factors(first, second), odd, pairs);
        lines[g] = plain ? pack_nibble_lines(pairs, words + 4 * g) : pack_nibble_lines(pairs);
    }
    const auto line = [&](uint32_t halves, float factor) {
        return uint2{masked<nvfp4, plain>(__byte_perm(lines[0], lines[1], halves), factor),
                     masked<nvfp4, plain>(__byte_perm(lines[2], lines[3], halves), factor)};
    };
    codes[0] = line(0x5410, first);
    codes[1] = line(0x7632, second);
}

// ---- Parts -----------------------------------------------------------------------------------------------------------

// The lane's chunk of a line to memory, its scale to its word.
__device__ __forceinline__ void put_chunk(const Rule& rule, int line, uint32_t scale, uint2 codes) {
    if (rule.scales) rule.scales[line * int(sizeof(Shared::scales[0][0]))] = uint8_t(scale);
    if (line < rule.lines)
        store_chunk_codes(rule.codes + uint64_t(uint32_t(line)) * rule.line_bytes, codes, rule.bytes, rule.wide);
}

template <bool nvfp4>
__device__ __forceinline__ void emit_rowwise(const Arguments& a, bool plain, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const Rule rule(a, p.rowwise, shared);
    const RowReader<Bf16> rows(shared.tile, row_of_step(0), chunk_of_lane());
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = row_of_step(i);
        uint32_t words[kPairs];
        rows.read_words(line - row_of_step(0), words);
        Block block;
        if (p.square_tiles) {
            block = square_block<nvfp4>(rule, shared, line / kChunk * kSideChunks + chunk_of_lane(), plain);
        } else if constexpr (nvfp4) {
            const uint32_t amax = largest_of_row<Nonfinite::Propagate>(words);
            block = nvfp4_block(rule, amax);
            plain = __all_sync(kAllLanes, is_plain(amax, block));
            if (!plain)
                block = nvfp4_exact_block(rule, shared.tables.globals[0],
                                          largest_of_row<Nonfinite::Saturate>(words));
        } else {
            block = mx_block(a, p.nonfinite == Nonfinite::Saturate ? largest_of_row<Nonfinite::Saturate>(words)
                                                                   : largest_of_row<Nonfinite::Propagate>(words));
        }
        const uint2 codes =
            plain ? row_codes<nvfp4, true>(words, block.multiplier) : row_codes<nvfp4, false>(words, block.multiplier);
        put_chunk(rule, line, block.scale, codes);
    }
}

template <bool nvfp4>
__device__ __forceinline__ void emit_columnwise(const Arguments& a, bool plain, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const Rule rule(a, p.columnwise, shared);
    static_assert(kChunkSteps == 4);
    const int first = column_pair_place<Bf16>(column_of_step<Bf16>(0), chunk_of_lane());
    const int second = column_pair_place<Bf16>(column_of_step<Bf16>(2), chunk_of_lane());
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i += 2) {
        const int line = column_of_step<Bf16>(0) + i * 4;
        uint32_t words[kChunk];
        read_column_pair(shared.tile, i == 0 ? first : second, words);
        Block low, high;
        if (p.square_tiles) {
            low = high = square_block<nvfp4>(rule, shared, chunk_of_lane() * kSideChunks + line / kChunk, plain);
        } else if constexpr (nvfp4) {
            const uint32_t largest = largest_pair<Nonfinite::Propagate>(words);
            const uint32_t first = magnitude_bits<Bf16>(largest, 0), second = magnitude_bits<Bf16>(largest, 1);
            low = nvfp4_block(rule, first);
            high = nvfp4_block(rule, second);
            plain = __all_sync(kAllLanes, is_plain(first, low) && is_plain(second, high));
            if (!plain) {
                const uint32_t numbers = largest_pair<Nonfinite::Saturate>(words);
                low = nvfp4_exact_block(rule, shared.tables.globals[1], magnitude_bits<Bf16>(numbers, 0));
                high = nvfp4_exact_block(rule, shared.tables.globals[1], magnitude_bits<Bf16>(numbers, 1));
            }
        } else {
            const uint32_t largest = largest_pair(p.nonfinite, words);
            low = mx_block(a, magnitude_bits<Bf16>(largest, 0));
            high = mx_block(a, magnitude_bits<Bf16>(largest, 1));
        }
        uint2 codes[2];
        if (plain) column_codes<nvfp4, true>(words, low.multiplier, high.multiplier, codes);
        else column_codes<nvfp4, false>(words, low.multiplier, high.multiplier, codes);
        put_chunk(rule, line, low.scale, codes[0]);
        put_chunk(rule, line + 1, high.scale, codes[1]);
    }
}

// The tile, and what all threads know of it. Ends with a barrier.
template <bool nvfp4>
__device__ __forceinline__ void load_tile(const Arguments& a, const TilePlace& place, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const float amax = nvfp4 ? table_amax(p, place.scope) : 0;
    const PlainPlace plain(p, place, shared.place.group);
    if (a.wide_in) copy_plain(shared.tile, p.in, plain);
    else fill_plain(shared.tile, p.in, plain, false);
    describe_tile(p, place, shared.place);
    if constexpr (nvfp4) {
        put_tables(p, amax, shared.tables);
        cut_tables(p, shared);
    }
    wait_for_pieces();
    __syncthreads();
}

template <bool nvfp4>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<Bf16>)
    quantize_fp4_pairs_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ uint4 memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    TilePlace place;
    if (!find_tile(a.tiles.tiles, p.grouped, a.tiles.units, shared.place.group, place)) return;
    load_tile<nvfp4>(a, place, shared);
    const bool plain = p.square_tiles ? square_scales<nvfp4>(a, shared) : a.plain;
    if (p.has_rowwise) emit_rowwise<nvfp4>(a, plain, shared);
    if (p.has_columnwise) emit_columnwise<nvfp4>(a, plain, shared);
    __syncthreads();
    if (p.has_rowwise) store_scales(p.rowwise, shared.place.parts[0], shared.scales[0]);
    if (p.has_columnwise) store_scales(p.columnwise, shared.place.parts[1], shared.scales[1]);
}

std::string declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.format->element != Element::E2M1)
        return std::string("needs nvfp4 or mxfp4, found ") + problem.format->name;
    if (problem.in.format != MXQ_FORMAT_BF16)
        return std::string("needs bf16, found ") + find_format(problem.in.format)->name;
    if (problem.hadamard.rowwise || problem.hadamard.columnwise) return "needs no transform, found a Hadamard transform";
    if (problem.seed_offset) return "needs rounding to nearest, found stochastic rounding";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    if (problem.compute_amax) launch_amax(context, problem, problem.rowwise.amax, problem.columnwise.amax, call);
    // FLOOR and EVEN give values up to 8, SATURATE Inf and NaN.
    const bool below_seven = problem.scale_rounding == ScaleRounding::Rceil || problem.scale_rounding == ScaleRounding::Ceil;
    const Arguments a{problem, ChunkTiles(problem), scale_steps<E2M1>(problem.scale_rounding, problem.nonfinite),
                      below_seven && problem.nonfinite == Nonfinite::Propagate, is_wide<Bf16>(problem.in),
                      {is_wide_part(problem.rowwise), is_wide_part(problem.columnwise)}};
    if (a.tiles.count() == 0) return;
    const auto kernel = problem.format->is_nvfp4() ? quantize_fp4_pairs_kernel<true> : quantize_fp4_pairs_kernel<false>;
    launch(context, kernel, "quantize_fp4_pairs", a.tiles.tiles.grid(), dim3(kChunkThreads), sizeof(Shared), call.stream, a);
}

}  // namespace

const QuantizeImplementation quantize_fp4_pairs = {"quantize_fp4_pairs", declines, nullptr, run};

void load_quantize_fp4_pairs() {
    load_kernel(reinterpret_cast<const void*>(quantize_fp4_pairs_kernel<true>), sizeof(Shared));
    load_kernel(reinterpret_cast<const void*>(quantize_fp4_pairs_kernel<false>), sizeof(Shared));
}

}  // namespace mxq::cuda
