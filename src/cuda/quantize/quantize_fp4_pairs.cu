// quantize_fp4_pairs: BF16 to NVFP4 or MXFP4, rounded to nearest or stochastically, four over six among it, in any of their
// scalings and layouts.
//
// A block of threads takes a tile of 128 x 128 through shared memory; who reads what: tile/shared_tile.cuh. Elements stay packed in
// pairs, as they lie in memory, all the way to their codes:
//
//     rowwise      8 words of a row              -> maximum -> scale  -> 16 codes -> 8 bytes, eight lanes 64 in a row
//     columnwise   16 words of two columns       -> 2 maxima -> 2 scales -> 16 codes of each, the same way
//     square       before both: the maximum of every 16 x 16, by the warp that holds its 16 rows
//     scales       as bytes through shared memory, then as words in the layout's order
//
// What is mostly so makes codes cheaper, and is asked of a warp's blocks together ("plain"): no element is NaN or comes out at
// 7 or above; NVFP4's products may be cut (CutMultiplier, which stands in a table of all scales); four over six can be told
// by estimates, out of which the codes come too: few blocks then need the errors themselves. Of 16x16 the estimates come first.
//
// Bytes an element: 2 read once, 0.53 or 0.56 written for each part. Bound by arithmetic: in the loops, as machine code for sm_90a
// counts them, 8 operations an element and part for MXFP4, 10 for NVFP4, 19 for stochastic rounding, 21 for four over six; half
// are integers, bits, minima and maxima, which issue at half the rate. And by the latency of what comes before the first code. The
// loops are short on purpose: the same from registers, unrolled, waits for instructions (a quarter slower). Blocks that take tile
// after tile, the next one on its way while scales leave, are a tenth slower; so is a fifth block on an SM, 48 registers a thread,
// for NVFP4.
#include "cuda/quantize/amax.h"
#include "cuda/device.h"
#include "cuda/quantize/fp4_chunks.cuh"
#include "cuda/implementations.h"
#include "cuda/tile/pair_factors.cuh"

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

// A multiplier, and the way in which it is cut.
struct Cut {
    float multiplier;
    CutWay way;
};

struct Shared {
    ChunkTile<Bf16> tile;
    ChunkPlace place;
    Nvfp4Tables tables;  // multipliers: CutMultipliers, but for stochastic rounding; none where `errors` serve instead
    Cut cuts[2][8];
    ErrorScale errors[2][kScaleBytes];  // of four over six, by scale bytes
    alignas(16) PhiloxKeys keys;
    uint32_t maxima[kCells];       // of square tiles, as bits
    uint8_t cells[2][kCells];      // their scales, for each part
    uint32_t scales[2][kTile][2];  // scale words of each part by line
};

// What holds for all chunks of a part.
struct Rule {
    Nvfp4Global global;
    const float* multipliers;
    const ErrorScale* errors;
    uint32_t chunk, row;      // the lane's chunk of line 0, for counters
    uint64_t random_offset;
    uint8_t* codes;  // of the lane's chunk of line 0, so many bytes
    uint32_t line_bytes;
    int lines, bytes;
    int scale_byte;
    int which;
    bool wide;

    __device__ __forceinline__ Rule(const Arguments& a, const QuantizedPart& part, Shared& shared)
        : global(shared.tables.globals[part.columnwise]), multipliers(shared.tables.multipliers[part.columnwise]),
          errors(shared.errors[part.columnwise]), which(part.columnwise), wide(a.wide[part.columnwise]) {
        const PartPlace& place = shared.place.parts[which];
        chunk = uint32_t(place.position / kChunk) + chunk_of_lane();
        row = uint32_t(place.line);
        random_offset = a.problem.seed_offset ? a.problem.seed_offset[1] : 0;
        const CodeTile& to = shared.place.parts[which].codes;
        const int byte = chunk_of_lane() * (kChunk / 2);
        codes = to.codes + byte;
        line_bytes = uint32_t(to.line_bytes);
        lines = to.lines;
        bytes = (to.length + 1) / 2 - byte;
        scale_byte = mxq::cuda::scale_byte(part);
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

// put_tables with CutMultipliers, negative where those are not odd. Scales of one significand have multipliers of one, and are
// cut alike: eight threads look for all. A barrier must follow.
__device__ __forceinline__ void put_cut_tables(const QuantizeProblem& p, float amax, Shared& shared) {
    const int which = threadIdx.x / kScaleBytes, scale = threadIdx.x % kScaleBytes;
    const bool exists = which == 0 ? p.has_rowwise : p.has_columnwise;
    constexpr int one = 56;  // the scale 1
    const Nvfp4Global global = nvfp4_global(amax, (which == 0 ? p.rowwise : p.columnwise).scale_max);
    const float multiplier = nvfp4_multiplier(uint32_t(scale), global);
    if (exists && scale >= one && scale < one + 8) shared.cuts[which][scale - one] = {multiplier, cut_way(multiplier)};
    if (scale == 0) shared.tables.globals[which] = global;
    __syncthreads();
    if (!exists) return;
    const int normal = scale >= 8 ? scale : scale << max(__clz(scale) - 28, 0);
    const Cut same = shared.cuts[which][normal % 8];
    const bool alike = ((float_bits(multiplier) ^ float_bits(same.multiplier)) & 0x7FFFFF) == 0;
    const CutMultiplier cut = cut_multiplier(multiplier, alike ? same.way : CutWay::None);
    shared.tables.multipliers[which][scale] = cut.odd ? cut.factor : -cut.factor;
}

// What four over six needs instead; multipliers are NaN where there are no estimates. A barrier must follow.
__device__ __forceinline__ void put_errors(const QuantizeProblem& p, float amax, Shared& shared) {
    const int which = threadIdx.x / kScaleBytes, scale = threadIdx.x % kScaleBytes;
    const Nvfp4Global global = nvfp4_global(amax, (which == 0 ? p.rowwise : p.columnwise).scale_max);
    const float multiplier = can_estimate(global) ? nvfp4_multiplier(uint32_t(scale), global) : bits_float(kNanBits);
    shared.errors[which][scale] = error_scale(uint32_t(scale), multiplier, error_unit(global));
    if (scale == 0) shared.tables.globals[which] = global;
}

__device__ __forceinline__ uint32_t odd_halves(float stored) { return float_bits(stored) >> 31 ? 0 : kBothHalves; }

// With the stored CutMultiplier.
__device__ __forceinline__ Block nvfp4_block(const Rule& rule, uint32_t amax) {
    const uint32_t scale = encode_nvfp4_scale(multiply_rn(bits_float(amax), rule.global.encode_sixth));
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

// ---- Four over six ---------------------------------------------------------------------------------------------------

// A block's candidates, and what estimates multiply by under each.
struct Choice {
    float amax;
    uint32_t candidates;  // six, four: a byte each
    ErrorScale four, six;

    __device__ __forceinline__ Choice(const Rule& rule, uint32_t bits) : amax(bits_float(bits)) {
        const float sixth = ErrorDivisor{6, 1.0f / 6}.divide(amax), base = multiply_rn(sixth, rule.global.encode);
        candidates = encode_pair<E4M3>(base, multiply_rn(base, 1.5f));
        four = rule.errors[candidates >> 8 & 0x7F];
        six = rule.errors[candidates & 0x7F];
    }
    // (Where there are estimates multipliers are above 2^-42, so that ErrorDivisor divides what is not too large.)
    __device__ __forceinline__ bool can_estimate() const { return mxq::can_estimate(amax, four, six); }
};

// The scale and codes of the lane's chunk of a line. False where an element may not be plain.
template <bool squared>
__device__ __forceinline__ bool better_codes(const Rule& rule, const Shared& shared, const uint32_t (&words)[kPairs], int line,
                                             uint32_t& scale, uint2& codes) {
    const Choice choice(rule, largest_of_row<Nonfinite::Propagate>(words));
    if (!__all_sync(kAllLanes, choice.can_estimate())) return false;
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
        values[2 * i] = low_value(words[i]);
        values[2 * i + 1] = high_value(words[i]);
    }
    uint32_t fours[4], sixes[4];
    Errors errors{error_estimate_16<squared>(values, choice.four, fours), error_estimate_16<squared>(values, choice.six, sixes)};
    if (choice.amax != 0 && !is_clear<squared>(errors.four, errors.six, choice.amax, 1))
        errors = tile_errors<squared>(shared.tile, rule.which, line, {choice.candidates >> 8, choice.candidates & 0xFF},
                                      shared.tables.globals[rule.which]);
    const bool is_four = errors.four < errors.six;
    scale = is_four ? choice.candidates >> 8 : choice.candidates & 0xFF;
    const auto eight = [&](int i) {
        return pack_code_bytes(is_four ? fours[i] : sixes[i], is_four ? fours[i + 1] : sixes[i + 1], words + 2 * i);
    };
    codes = {eight(0), eight(2)};
    return true;
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
template <Way way>
__device__ __forceinline__ bool nvfp4_cells(const QuantizeProblem& p, Shared& shared) {
    const int cell = threadIdx.x / 32 * kSideChunks + chunk_of_lane();
    uint32_t amax = cell_amax(shared, Nonfinite::Propagate);
    bool plain = !is_nan(bits_float(amax));
    if (__any_sync(kAllLanes, !plain)) amax = cell_amax(shared, Nonfinite::Saturate);
    uint32_t scale = 0;
    float done_amax = 0;
#pragma unroll 1
    for (int which = 0; which < 2; which++) {
        if (!(which == 0 ? p.has_rowwise : p.has_columnwise)) continue;
        const Nvfp4Global& global = shared.tables.globals[which];
        if constexpr (!is_four_over_six(way)) scale = nvfp4_scale(bits_float(amax), global);
        else if (which == 0 || !p.has_rowwise || global.amax != done_amax)
            scale = square_choice<way == Way::FourOverSixMse>(shared.tile, bits_float(amax), global);
        done_amax = global.amax;
        plain = plain && is_plain(amax, {scale, shared.tables.multipliers[which][scale]});
        if (threadIdx.x % 32 < kSideChunks) shared.cells[which][cell] = uint8_t(scale);
    }
    return plain;
}

// The scale of every 16 x 16. Ends with a barrier; false where an element may not be plain.
template <bool nvfp4, Way way>
__device__ __forceinline__ bool square_scales(const Arguments& a, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    if constexpr (nvfp4) return __syncthreads_and(nvfp4_cells<way>(p, shared));
    put_mx_cells(a.steps, p.tile.length, cell_amax(shared, p.nonfinite), shared.maxima, shared.cells);
    __syncthreads();
    return a.plain;
}

// The square that the lane's chunk of a line lies in.
__device__ __forceinline__ int cell_of(bool columnwise, int line) {
    return columnwise ? chunk_of_lane() * kSideChunks + line / kChunk : line / kChunk * kSideChunks + chunk_of_lane();
}

// Of plain elements, if NVFP4's.
template <bool nvfp4>
__device__ __forceinline__ Block square_block(const Rule& rule, const Shared& shared, int line) {
    const uint32_t scale = shared.cells[rule.which][cell_of(rule.which, line)];
    return {scale, nvfp4 ? rule.multipliers[scale] : scale_reciprocal(scale)};
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Of a factor for each half, and what makes their cut products odd.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void four_pairs(const uint32_t* words, const PairFactors& factors, uint32_t odd,
                                           uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = plain ? round_e2m1_pair<!nvfp4>(words[i], factors, odd) : quantize_e2m1_pair(words[i], factors);
}

// Plain NVFP4 codes under scale 0 are zeros with signs by themselves.
template <bool nvfp4>
__device__ __forceinline__ uint32_t masked(uint32_t codes, float multiplier) {
    return nvfp4 ? codes : mask_nibbles(codes, multiplier);
}

template <bool nvfp4, bool plain>
__device__ __forceinline__ uint2 row_codes(const uint32_t (&words)[kPairs], float multiplier) {
    const float factor = nvfp4 ? fabsf(multiplier) : multiplier;
    const auto eight = [&](const uint32_t* from) {
        uint32_t pairs[4];
        four_pairs<nvfp4, plain>(from, pair_factors(factor, factor), odd_halves(multiplier), pairs);
        return masked<nvfp4>(plain ? pack_nibble_pairs(pairs, from) : pack_nibble_pairs(pairs), factor);
    };
    return {eight(words), eight(words + 4)};
}

// A column's 16 codes, from four of each in the halves of words.
template <bool nvfp4>
__device__ __forceinline__ uint2 column_line(const uint32_t (&lines)[4], uint32_t halves, float factor) {
    return {masked<nvfp4>(__byte_perm(lines[0], lines[1], halves), factor),
            masked<nvfp4>(__byte_perm(lines[2], lines[3], halves), factor)};
}

// Of two columns.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void column_codes(const uint32_t (&words)[kChunk], float low, float high, uint2 (&codes)[2]) {
    const float first = nvfp4 ? fabsf(low) : low, second = nvfp4 ? fabsf(high) : high;
    const uint32_t odd = select_bits(0xFFFF, odd_halves(low), odd_halves(high));
    uint32_t lines[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        uint32_t pairs[4];
        four_pairs<nvfp4, plain>(words + 4 * g, pair_factors(first, second), odd, pairs);
        lines[g] = plain ? pack_nibble_lines(pairs, words + 4 * g) : pack_nibble_lines(pairs);
    }
    codes[0] = column_line<nvfp4>(lines, 0x5410, first);
    codes[1] = column_line<nvfp4>(lines, 0x7632, second);
}

// ---- Stochastic codes ------------------------------------------------------------------------------------------------

// The codes of two words' elements, signs among them, in the low nibbles of the bytes: the lower half of each, then the upper
// ones. What is added to them are bytes `low` and low + 2 of one random word, `high` and high + 2 of another.
template <bool plain>
__device__ __forceinline__ uint32_t stochastic_bytes(uint32_t first, uint32_t second, float low_factor, float high_factor,
                                                     uint32_t low_random, int low, uint32_t high_random, int high) {
    const auto code = [](float value, float factor, uint32_t random, int i) {
        const uint32_t key = stochastic_key(~random, i);
        return plain ? (e2m1_place(multiply_rn(fabsf(value), factor)) << 2) + key
                     : stochastic_e2m1_byte(multiply_rn(value, factor), key);
    };
    const uint32_t lows = __byte_perm(code(low_value(first), low_factor, low_random, low),
                                      code(low_value(second), low_factor, low_random, low + 2), 0x0073);
    const uint32_t highs = __byte_perm(code(high_value(first), high_factor, high_random, high),
                                       code(high_value(second), high_factor, high_random, high + 2), 0x0073);
    const uint32_t bytes = __byte_perm(lows, highs, 0x5410);
    if constexpr (!plain) return (bytes | bytes >> 4) & 0x0F0F0F0Fu;
    // Of what lies between 6 and 8, 8 counts as 6.
    return (bytes - (bytes >> 3 & 0x01010101u)) | (sign_bytes(first, second) & 0x08080808u);
}

template <bool nvfp4, bool plain>
__device__ __forceinline__ uint2 stochastic_row_codes(const uint32_t (&words)[kPairs], float multiplier,
                                                      const PhiloxWords& random) {
    uint32_t codes[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const auto four = [&](int word) {
            const uint32_t bytes = random.words[word / 2];
            return stochastic_bytes<plain>(words[word], words[word + 1], multiplier, multiplier, bytes, 0, bytes, 1);
        };
        codes[i] = masked<nvfp4>(pack_nibble_bytes(four(4 * i), four(4 * i + 2)), multiplier);
    }
    return {codes[0], codes[1]};
}

// Of two columns; `random` is theirs.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void stochastic_column_codes(const uint32_t (&words)[kChunk], float low, float high,
                                                        const PhiloxWords (&random)[2], uint2 (&codes)[2]) {
    uint32_t lines[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const auto rows = [&](int i) {
            return stochastic_bytes<plain>(words[4 * g + i], words[4 * g + i + 2], low, high, random[0].words[g], i,
                                           random[1].words[g], i);
        };
        lines[g] = join_nibbles(rows(0), rows(1));
    }
    codes[0] = column_line<nvfp4>(lines, 0x5410, low);
    codes[1] = column_line<nvfp4>(lines, 0x7632, high);
}

// ---- Parts -----------------------------------------------------------------------------------------------------------

// The lane's chunk of a line to memory, its scale to its word.
__device__ __forceinline__ void put_chunk(const Rule& rule, Shared& shared, int line, uint32_t scale, uint2 codes) {
    put_scale(shared.scales[rule.which], line, rule.scale_byte, scale);
    if (line < rule.lines)
        store_chunk_codes(rule.codes + uint64_t(uint32_t(line)) * rule.line_bytes, codes, rule.bytes, rule.wide);
}

__device__ __forceinline__ PhiloxWords line_random(const Rule& rule, const Shared& shared, int line) {
    return philox(shared.keys, philox_counter(rule.chunk, rule.row + uint32_t(line), rule.which, rule.random_offset));
}

// Any NVFP4 chunk of a line, plain or not.
template <Way way>
__device__ __noinline__ void emit_any(const Arguments& a, bool columnwise, int line, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const Rule rule(a, columnwise ? p.columnwise : p.rowwise, shared);
    float values[kChunk];
    read_chunk(shared.tile, columnwise, line, values);
    const float amax = larger_magnitude(0, values);
    uint32_t scale = 0;
    if (p.square_tiles) {
        scale = shared.cells[columnwise][cell_of(columnwise, line)];
    } else if constexpr (is_four_over_six(way)) {
        const Nvfp4Candidates candidates = nvfp4_candidates(amax, rule.global);
        const Errors errors = chunk_errors<way == Way::FourOverSixMse>(values, candidates, rule.global);
        scale = nvfp4_choice(candidates, errors.four, errors.six);
    } else {
        scale = nvfp4_scale(amax, rule.global);
    }
    const float multiplier = nvfp4_multiplier(scale, rule.global);
    uint2 codes;
    if constexpr (way == Way::Stochastic) {
        const PhiloxWords random = line_random(rule, shared, line);
        codes = {stochastic_codes(values, multiplier, random.words),
                 stochastic_codes(values + kPairs, multiplier, random.words + 2)};
    } else {
        codes = {nearest_codes(values, multiplier), nearest_codes(values + kPairs, multiplier)};
    }
    const uint32_t mask = nvfp4_code_mask(scale);
    put_chunk(rule, shared, line, scale, {codes.x & mask, codes.y & mask});
}

// The block that the lane's chunk of a row lies in. False where an element of NVFP4 may not be plain.
template <bool nvfp4>
__device__ __forceinline__ bool row_block(const Arguments& a, const Rule& rule, const Shared& shared,
                                          const uint32_t (&words)[kPairs], int line, Block& block) {
    const QuantizeProblem& p = a.problem;
    if (p.square_tiles) {
        block = square_block<nvfp4>(rule, shared, line);
        return true;
    } else if constexpr (nvfp4) {
        const uint32_t amax = largest_of_row<Nonfinite::Propagate>(words);
        block = nvfp4_block(rule, amax);
        return __all_sync(kAllLanes, is_plain(amax, block));
    } else {
        block = mx_block(a, p.nonfinite == Nonfinite::Saturate ? largest_of_row<Nonfinite::Saturate>(words)
                                                               : largest_of_row<Nonfinite::Propagate>(words));
        return true;
    }
}

template <bool nvfp4, bool plain, Way way>
__device__ __forceinline__ uint2 any_row_codes(const Rule& rule, const Shared& shared, const uint32_t (&words)[kPairs],
                                               int line, float multiplier) {
    if constexpr (way == Way::Stochastic)
        return stochastic_row_codes<nvfp4, plain>(words, multiplier, line_random(rule, shared, line));
    return row_codes<nvfp4, plain>(words, multiplier);
}

template <bool nvfp4, Way way>
__device__ __forceinline__ void emit_rowwise(const Arguments& a, bool plain, Shared& shared) {
    const Rule rule(a, a.problem.rowwise, shared);
    const RowReader<Bf16> rows(shared.tile, row_of_step(0), chunk_of_lane());
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        const int line = row_of_step(i);
        uint32_t words[kPairs];
        rows.read_words(line - row_of_step(0), words);
        Block block;
        if (!row_block<nvfp4>(a, rule, shared, words, line, block) || (nvfp4 && !plain)) {
            emit_any<way>(a, false, line, shared);
            continue;
        }
        const uint2 codes = nvfp4 || plain ? any_row_codes<nvfp4, true, way>(rule, shared, words, line, block.multiplier)
                                           : any_row_codes<nvfp4, false, way>(rule, shared, words, line, block.multiplier);
        put_chunk(rule, shared, line, block.scale, codes);
    }
}

// The same of columns `line` and the next.
template <bool nvfp4>
__device__ __forceinline__ bool column_blocks(const Arguments& a, const Rule& rule, const Shared& shared,
                                              const uint32_t (&words)[kChunk], int line, Block (&blocks)[2]) {
    const QuantizeProblem& p = a.problem;
    if (p.square_tiles) {
        blocks[0] = blocks[1] = square_block<nvfp4>(rule, shared, line);
        return true;
    } else if constexpr (nvfp4) {
        const uint32_t largest = largest_pair<Nonfinite::Propagate>(words);
        const uint32_t first = magnitude_bits<Bf16>(largest, 0), second = magnitude_bits<Bf16>(largest, 1);
        blocks[0] = nvfp4_block(rule, first);
        blocks[1] = nvfp4_block(rule, second);
        return __all_sync(kAllLanes, is_plain(first, blocks[0]) && is_plain(second, blocks[1]));
    } else {
        const uint32_t largest = largest_pair(p.nonfinite, words);
        blocks[0] = mx_block(a, magnitude_bits<Bf16>(largest, 0));
        blocks[1] = mx_block(a, magnitude_bits<Bf16>(largest, 1));
        return true;
    }
}

template <bool nvfp4, bool plain, Way way>
__device__ __forceinline__ void any_column_codes(const Rule& rule, const Shared& shared, const uint32_t (&words)[kChunk],
                                                 int line, const Block (&blocks)[2], uint2 (&codes)[2]) {
    if constexpr (way == Way::Stochastic) {
        const PhiloxWords random[2] = {line_random(rule, shared, line), line_random(rule, shared, line + 1)};
        stochastic_column_codes<nvfp4, plain>(words, blocks[0].multiplier, blocks[1].multiplier, random, codes);
    } else {
        column_codes<nvfp4, plain>(words, blocks[0].multiplier, blocks[1].multiplier, codes);
    }
}

template <bool nvfp4, Way way>
__device__ __forceinline__ void emit_columnwise(const Arguments& a, bool plain, Shared& shared) {
    const Rule rule(a, a.problem.columnwise, shared);
    static_assert(kChunkSteps == 4);
    const int first = column_pair_place<Bf16>(column_of_step<Bf16>(0), chunk_of_lane());
    const int second = column_pair_place<Bf16>(column_of_step<Bf16>(2), chunk_of_lane());
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i += 2) {
        const int line = column_of_step<Bf16>(0) + i * 4;
        uint32_t words[kChunk];
        read_column_pair(shared.tile, i == 0 ? first : second, words);
        Block blocks[2];
        if (!column_blocks<nvfp4>(a, rule, shared, words, line, blocks) || (nvfp4 && !plain)) {
            emit_any<way>(a, true, line, shared);
            emit_any<way>(a, true, line + 1, shared);
            continue;
        }
        uint2 codes[2];
        if (nvfp4 || plain) any_column_codes<nvfp4, true, way>(rule, shared, words, line, blocks, codes);
        else any_column_codes<nvfp4, false, way>(rule, shared, words, line, blocks, codes);
        put_chunk(rule, shared, line, blocks[0].scale, codes[0]);
        put_chunk(rule, shared, line + 1, blocks[1].scale, codes[1]);
    }
}

// The lane's chunks of rows and of columns, two elements to a word: the one of step i.
struct LineReader {
    RowReader<Bf16> rows;
    int columns[2];

    __device__ __forceinline__ explicit LineReader(const ChunkTile<Bf16>& tile)
        : rows(tile, row_of_step(0), chunk_of_lane()),
          columns{column_pair_place<Bf16>(column_of_step<Bf16>(0), chunk_of_lane()),
                  column_pair_place<Bf16>(column_of_step<Bf16>(2), chunk_of_lane())} {}
    __device__ __forceinline__ void read(bool columnwise, int i, uint32_t (&words)[kPairs]) const {
        if (!columnwise) return rows.read_words(row_of_step(i) - row_of_step(0), words);
        uint32_t pairs[kChunk];
        read_column_pair(rows.tile, i < 2 ? columns[0] : columns[1], pairs);
        const uint32_t halves = i % 2 == 0 ? 0x5410 : 0x7632;
#pragma unroll
        for (int j = 0; j < kPairs; j++) words[j] = __byte_perm(pairs[2 * j], pairs[2 * j + 1], halves);
    }
};

// Four over six, of all parts: its loop is so long that a second one for columns would push it out of the instruction cache.
template <Way way>
__device__ __forceinline__ void emit_better(const Arguments& a, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const LineReader reader(shared.tile);
#pragma unroll 1
    for (int which = 0; which < 2; which++) {
        if (!(which == 0 ? p.has_rowwise : p.has_columnwise)) continue;
        const Rule rule(a, which == 0 ? p.rowwise : p.columnwise, shared);
        int line = which == 0 ? row_of_step(0) : column_of_step<Bf16>(0);
#pragma unroll 1
        for (int i = 0; i < kChunkSteps; line += which == 0 ? 4 : i % 2 == 0 ? 1 : 7, i++) {
            uint32_t words[kPairs];
            reader.read(which, i, words);
            uint32_t scale;
            uint2 codes;
            if (better_codes<way == Way::FourOverSixMse>(rule, shared, words, line, scale, codes))
                put_chunk(rule, shared, line, scale, codes);
            else
                emit_any<way>(a, which, line, shared);
        }
    }
}

// The tile, and what all threads know of it. Ends with a barrier.
template <bool nvfp4, Way way, bool by_line>
__device__ __forceinline__ void load_tile(const Arguments& a, const TilePlace& place, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const float amax = nvfp4 ? table_amax(p, place.scope) : 0;
    const PlainPlace plain(p, place, shared.place.group);
    if (a.wide_in) copy_plain(shared.tile, p.in, plain);
    else fill_plain(shared.tile, p.in, plain, false);
    describe_tile(p, place, shared.place);
    if constexpr (way == Way::Stochastic) put_keys(p, shared.keys);
    if constexpr (nvfp4 && way == Way::Stochastic) put_tables(p, amax, shared.tables);
    if constexpr (nvfp4 && way != Way::Stochastic && !by_line) put_cut_tables(p, amax, shared);
    if constexpr (by_line) put_errors(p, amax, shared);
    wait_for_pieces();
    __syncthreads();
}

// `by_line`: four over six of lines, not of squares, which are told apart here for their registers.
template <bool nvfp4, Way way, bool by_line>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocks<Bf16>)
    quantize_fp4_pairs_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ uint4 memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    TilePlace place;
    if (!find_tile(a.tiles.tiles, p.grouped, a.tiles.units, shared.place.group, place)) return;
    load_tile<nvfp4, way, by_line>(a, place, shared);
    if constexpr (by_line) {
        emit_better<way>(a, shared);
    } else {
        const bool plain = p.square_tiles ? square_scales<nvfp4, way>(a, shared) : nvfp4 || a.plain;
        if (p.has_rowwise) emit_rowwise<nvfp4, way>(a, plain, shared);
        if (p.has_columnwise) emit_columnwise<nvfp4, way>(a, plain, shared);
    }
    __syncthreads();
    if (p.has_rowwise) store_scales(p.rowwise, shared.place.parts[0], shared.scales[0]);
    if (p.has_columnwise) store_scales(p.columnwise, shared.place.parts[1], shared.scales[1]);
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.format->element != Element::E2M1)
        return [format = problem.format] { return std::string("needs nvfp4 or mxfp4, found ") + format->name; };
    if (problem.in.format != MXQ_FORMAT_BF16)
        return [format = problem.in.format] { return std::string("needs bf16, found ") + find_format(format)->name; };
    if (problem.hadamard.rowwise || problem.hadamard.columnwise) return "needs no transform, found a Hadamard transform";
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
    with_way(problem, [&](auto way) {
        const auto run_kernel = [&](auto kernel) {
            launch(context, kernel, "quantize_fp4_pairs", a.tiles.tiles.grid(), dim3(kChunkThreads), sizeof(Shared),
                   call.stream, a);
        };
        if constexpr (is_four_over_six(way))  // which only NVFP4 has
            run_kernel(problem.square_tiles ? quantize_fp4_pairs_kernel<true, way, false>
                                            : quantize_fp4_pairs_kernel<true, way, true>);
        else
            run_kernel(problem.format->is_nvfp4() ? quantize_fp4_pairs_kernel<true, way, false>
                                                  : quantize_fp4_pairs_kernel<false, way, false>);
    });
}

template <bool nvfp4, bool by_line, Way... ways>
void load_ways() {
    (load_kernel(reinterpret_cast<const void*>(quantize_fp4_pairs_kernel<nvfp4, ways, by_line>), sizeof(Shared)), ...);
}

void load(const Context&) {
    load_ways<true, false, Way::Nearest, Way::Stochastic, Way::FourOverSixMae, Way::FourOverSixMse>();
    load_ways<true, true, Way::FourOverSixMae, Way::FourOverSixMse>();
    load_ways<false, false, Way::Nearest, Way::Stochastic>();
}

}  // namespace

const QuantizeImplementation quantize_fp4_pairs = {"quantize_fp4_pairs", declines, nullptr, run, load};

}  // namespace mxq::cuda
