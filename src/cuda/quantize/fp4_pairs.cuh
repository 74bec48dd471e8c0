// Holds what the kernels of quantize_fp4_pairs share: maxima of packed pairs, tables of NVFP4's multipliers, the blocks'
// scales, and the chunk that has no faster way.
//
//     words of two elements --largest_by_magnitude--> maximum --> Block: scale byte, multiplier --> codes (fp4_pair_codes.cuh)
//                                                 ^              ^
//                                     global scales and multipliers of all scale bytes: tables in shared memory
#pragma once
#include "cuda/quantize/fp4_chunks.cuh"
#include "cuda/tile/pair_factors.cuh"
#include "cuda/tile/shared_bands.cuh"
#include "cuda/tile/tile_source.cuh"

namespace mxq::cuda::fp4_pairs {

constexpr int kPairs = kChunk / 2;

struct Arguments {
    EarlyTiles early;
    QuantizeProblem problem;
    Tiles tiles;
    ScaleSteps steps;  // MXFP4
    bool plain;        // of it, too: codes need no clamping, or are masked
    bool wide_in, wide[2];  // parts: rowwise, columnwise
};

// The rows of a band (tile/shared_bands.cuh): as many as a block of a column has codes.
template <bool nvfp4>
constexpr int kBandRows = nvfp4 ? kNvBlock : kMxBlock;

template <bool nvfp4>
struct BandArguments : Arguments {
    BandTiles<kBandRows<nvfp4>> bands;
};

// Returns whether MXFP4's codes need no clamping, or are masked: FLOOR and EVEN give values up to 8, SATURATE Inf and NaN.
inline bool is_plain_mxfp4(const QuantizeProblem& p) {
    const bool below_seven = p.scale_rounding == ScaleRounding::Rceil || p.scale_rounding == ScaleRounding::Ceil;
    return below_seven && p.nonfinite == Nonfinite::Propagate;
}

// Some members are those of quantize_fp4's. A struct for both would take as much shared memory as the larger of the two.
struct Shared {
    ChunkTile<Bf16> tile;
    union {
        SharedPlace place;
        TileBands<kBandRows<false>> mx_bands;
        TileBands<kBandRows<true>> nv_bands;
    };
    Nvfp4Tables tables;  // CuttingMultipliers, plain ones for stochastic rounding; none where `errors` serve instead
    float of_significands[2][8];        // of the scales 1 to 1.875
    ErrorScale errors[2][kScaleBytes];  // of four over six, by scale bytes
    alignas(16) PhiloxKeys keys;
    uint32_t maxima[kCells];       // of square tiles, as bits
    uint8_t cells[2][kCells];      // their scales, for each part
    alignas(16) uint32_t scales[2][kTile][2];  // scale words of each part by line
};

// Blocks on a multiprocessor, as kernels ask for: each takes 1 KiB more than it asks for.
static_assert(5 * (sizeof(Shared) + 1024) <= 228 * 1024 && 4 * (sizeof(Shared) + 1024) <= 164 * 1024);

template <bool nvfp4>
__device__ __forceinline__ auto& bands_of(Shared& shared) {
    if constexpr (nvfp4)
        return shared.nv_bands;
    else
        return shared.mx_bands;
}

// How chunks of codes are stored, which a kernel is compiled for: all lines begin where 8 bytes can be stored at once, of a
// tile or of bands of groups; or byte by byte.
enum class Stores { Wide, Bands, Bytes };

// Holds what is the same for all chunks of a part.
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
    int columnwise;
    bool wide;

    __device__ __forceinline__ Rule(const Arguments& a, const QuantizedPart& part, const Shared& shared, const CodeTile& to)
        : global(shared.tables.globals[part.columnwise]),
          multipliers(shared.tables.multipliers[part.columnwise]),
          errors(shared.errors[part.columnwise]),
          chunk(0),
          row(0),
          columnwise(part.columnwise),
          wide(a.wide[part.columnwise]) {
        random_offset = a.problem.seed_offset ? a.problem.seed_offset[1] : 0;
        const int byte = chunk_of_lane() * (kChunk / 2);
        codes = to.codes + byte;
        line_bytes = uint32_t(to.line_bytes);
        bytes = (to.length + 1) / 2 - byte;
        lines = bytes > 0 ? to.lines : 0;
        scale_byte = mxq::cuda::scale_byte(part);
    }
    __device__ __forceinline__ Rule(const Arguments& a, const QuantizedPart& part, const Shared& shared)
        : Rule(a, part, shared, shared.place.parts[kRowwisePart + part.columnwise].codes) {
        const PartPlace& place = shared.place.parts[kRowwisePart + columnwise];
        chunk = uint32_t(place.position / kChunk) + chunk_of_lane();
        row = uint32_t(place.line);
    }
};

// Returns the rule of a part; of rows of bands, that of the warp's.
template <bool nvfp4, Stores stores>
__device__ __forceinline__ Rule rule_of(const Arguments& a, bool columnwise, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    if constexpr (stores != Stores::Bands)
        return Rule(a, part_of(p, columnwise), shared);
    else if (columnwise)
        return Rule(a, p.columnwise, shared, bands_of<nvfp4>(shared).columns);
    else
        return Rule(a, p.rowwise, shared, rows_of_band(p, bands_of<nvfp4>(shared)));
}

// A block's stored scale, and what its elements are multiplied by.
struct Block {
    uint32_t scale;
    float multiplier;
};

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns the number of the larger magnitude, of either sign, in both halves. By PROPAGATE a NaN is handed on.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t larger_by_magnitude(uint32_t a, uint32_t b) {
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

// Returns the numbers of the largest magnitudes of both halves; by SATURATE 0 where all are NaN.
template <Nonfinite policy, int count>
__device__ __forceinline__ uint32_t largest_by_magnitude(const uint32_t (&words)[count]) {
    constexpr bool ignores = policy == Nonfinite::Saturate;
    uint32_t largest[2] = {ignores ? 0 : words[0], ignores ? 0 : words[1]};
#pragma unroll
    for (int i = ignores ? 0 : 2; i < count; i++) largest[i % 2] = larger_by_magnitude<policy>(largest[i % 2], words[i]);
    return larger_by_magnitude<policy>(largest[0], largest[1]);
}

// Returns the largest magnitude of each half of the words, signs cleared.
template <Nonfinite policy, int count>
__device__ __forceinline__ uint32_t largest_pair(const uint32_t (&words)[count]) {
    return largest_by_magnitude<policy>(words) & ~kSignsOfBothHalves;
}

// Returns the largest magnitude of all elements of the words, as bits of an fp32 value.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_row(const uint32_t (&words)[kPairs]) {
    const uint32_t pair = largest_by_magnitude<policy>(words);
    return larger_by_magnitude<policy>(pair, __byte_perm(pair, 0, 0x1032)) << 16 & kMagnitudeMask;
}

template <int count>
__device__ __forceinline__ uint32_t largest_pair(Nonfinite policy, const uint32_t (&words)[count]) {
    return policy == Nonfinite::Saturate ? largest_pair<Nonfinite::Saturate>(words)
                                         : largest_pair<Nonfinite::Propagate>(words);
}

// Returns the CuttingMultiplier of a scale from 1 to 1.875 as it is stored, negative where ties go to even. It is NaN, too,
// where it or that of another scale of its significand may not be a power of two times the same number.
__device__ __forceinline__ float stored_cut(float multiplier, Cut way) {
    const CuttingMultiplier cut = cutting_multiplier(multiplier, way);
    if (!(multiplier > 0x1p-100f && multiplier < 0x1p114f)) return bits_float(kNanBits);
    return cut.up ? cut.factor : -cut.factor;
}

// Returns the stored multiplier of any scale, from those of the scales 1 to 1.875.
__device__ __forceinline__ float stored_cut_of(uint32_t scale, const float (&of_significands)[8]) {
    const uint32_t value = float_bits(decode<E4M3>(scale));
    const float same = of_significands[value >> 20 & 7];
    const float moved = bits_float(float_bits(same) + (127u << 23) - (value & kInfinityBits));
    if (scale == 0) return 0;
    return scale == kScaleBytes - 1 || is_nan(same) ? bits_float(kNanBits) : moved;
}

// Makes the numbers of a part's global maximum and a table of CuttingMultipliers by their scales, each of 128 threads for
// which there is one an entry. Scales of one significand are cut alike: eight threads divide and look for all. All threads
// of the block call it, and a barrier must follow. Returns whether there are ties that go to even.
__device__ __forceinline__ bool put_cut_table(float amax, int scale_max, bool exists, Nvfp4Global& global,
                                              float (&of_significands)[8], float (&multipliers)[kScaleBytes]) {
    const uint32_t scale = threadIdx.x % kScaleBytes;
    constexpr uint32_t one = 56;  // the scale 1
    bool to_even = false;
    if (exists && scale / 8 == one / 8) {
        const Nvfp4Global made = nvfp4_global(amax, scale_max);
        const float multiplier = nvfp4_multiplier(scale, made);
        const Cut way = cut_for(multiplier);
        of_significands[scale - one] = stored_cut(multiplier, way);
        if (scale == one) global = made;
        to_even = way == Cut::Even;
    }
    to_even = __syncthreads_or(to_even);
    if (exists) multipliers[scale] = stored_cut_of(scale, of_significands);
    return to_even;
}

// Makes such tables of the parts that there are. A barrier must follow. Returns whether there are ties that go to even.
__device__ __forceinline__ bool put_cut_tables(const QuantizeProblem& p, float amax, Shared& shared) {
    const int part = threadIdx.x / kScaleBytes;
    return put_cut_table(amax, part_of(p, part).scale_max, has_part(p, part), shared.tables.globals[part],
                         shared.of_significands[part], shared.tables.multipliers[part]);
}

// Makes the tables that four over six has instead; multipliers are NaN where there are no estimates. A barrier must follow.
__device__ __forceinline__ void put_errors(const QuantizeProblem& p, float amax, Shared& shared) {
    const int part = threadIdx.x / kScaleBytes, scale = threadIdx.x % kScaleBytes;
    const Nvfp4Global global = nvfp4_global(amax, part_of(p, part).scale_max);
    const float multiplier = can_estimate(global) ? nvfp4_multiplier(uint32_t(scale), global) : bits_float(kNanBits);
    shared.errors[part][scale] = error_scale(uint32_t(scale), multiplier, error_unit(global));
    if (scale == 0) shared.tables.globals[part] = global;
}

// Returns an NVFP4 block with the stored CuttingMultiplier.
__device__ __forceinline__ Block nvfp4_block(const Rule& rule, uint32_t amax) {
    const uint32_t scale = encode_nvfp4_scale(multiply_rn(bits_float(amax), rule.global.encode_sixth));
    return {scale, rule.multipliers[scale]};  // a byte without a sign
}

// Returns the maxima over the chunks of MX blocks, which neighbouring lanes hold: two in the halves of a word.
__device__ __forceinline__ uint32_t block_maxima(uint32_t largest, int length) {
    largest = larger<Bf16>(largest, __shfl_xor_sync(kAllLanes, largest, 1));
#pragma unroll 1
    for (int distance = 2; distance * kChunk < length; distance *= 2)
        largest = larger<Bf16>(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    return largest;
}

// Returns the block of a maximum, either half of the word.
__device__ __forceinline__ Block mx_block(const ScaleSteps& steps, uint32_t maxima, int half) {
    const uint32_t scale = scale_of(magnitude_bits<Bf16>(maxima, half), steps);
    return {scale, scale_reciprocal(scale)};
}

// Returns whether the elements of an NVFP4 block are plain: a CuttingMultiplier serves (of stochastic rounding the plain one
// does), it leaves all of them below 7, none is NaN.
template <Rounding rounding>
__device__ __forceinline__ bool is_plain(uint32_t amax, const Block& block) {
    constexpr float unit = rounding == Rounding::Stochastic ? 1 : kCutUnit;
    return fabsf(multiply_rn(bits_float(amax), block.multiplier)) < 7 * unit;
}

// ---- Chunks of any elements ------------------------------------------------------------------------------------------

// Returns the square that the lane's chunk of a line lies in.
__device__ __forceinline__ int cell_of(bool columnwise, int line) {
    return columnwise ? chunk_of_lane() * kSideChunks + line / kChunk : line / kChunk * kSideChunks + chunk_of_lane();
}

// Stores the lane's chunk of a line, and puts its scale into its word. All lanes of a warp call it.
template <Stores stores>
__device__ __forceinline__ void put_chunk(const Rule& rule, Shared& shared, int line, uint32_t scale, uint2 codes) {
    put_scale(shared.scales[rule.columnwise], line, rule.scale_byte, scale);
    uint8_t* const to = rule.codes + uint64_t(uint32_t(line)) * rule.line_bytes;
    if (line < rule.lines) {
        if (stores == Stores::Bytes)
            store_chunk_codes(to, codes, rule.bytes, rule.wide);
        else
            __stwb(reinterpret_cast<uint2*>(to), codes);
    }
}

__device__ __forceinline__ PhiloxWords line_random(const Rule& rule, const Shared& shared, int line) {
    return philox(shared.keys, philox_counter(rule.chunk, rule.row + uint32_t(line), rule.columnwise, rule.random_offset));
}

// Makes and stores any NVFP4 chunk of a line, plain or not. Out of line: few are not.
template <Rounding rounding, Stores stores>
__device__ __noinline__ void emit_any(const Arguments& a, bool columnwise, int line, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const Rule rule = rule_of<true, stores>(a, columnwise, shared);
    float values[kChunk];
    read_chunk(shared.tile, columnwise, line, values);
    const float amax = larger_magnitude(0, values);
    uint32_t scale = 0;
    if (p.square_tiles) {
        scale = shared.cells[columnwise][cell_of(columnwise, line)];
    } else if constexpr (is_four_over_six(rounding)) {
        const Nvfp4Candidates candidates = nvfp4_candidates(amax, rule.global);
        const Errors errors = chunk_errors<rounding == Rounding::FourOverSixMse>(values, candidates, rule.global);
        scale = nvfp4_choice(candidates, errors.four, errors.six);
    } else {
        scale = nvfp4_scale(amax, rule.global);
    }
    uint2 codes;
    if constexpr (rounding == Rounding::Stochastic) {
        codes = stochastic_codes(values, nvfp4_multiplier(scale, rule.global), line_random(rule, shared, line));
        const uint32_t mask = nvfp4_code_mask(scale);
        codes = {codes.x & mask, codes.y & mask};
    } else {
        codes = {nearest_nvfp4_codes(values, scale, rule.global), nearest_nvfp4_codes(values + kPairs, scale, rule.global)};
    }
    put_chunk<stores>(rule, shared, line, scale, codes);
}

}  // namespace mxq::cuda::fp4_pairs
