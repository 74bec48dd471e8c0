// The roundings of quantize_fp4, as policies for a chunk of 16 fp32 values:
//
//     policy             codes                               scale of a block, or of a square of 16 x 16
//     RoundNearest       nearest, ties to even               from the maximum
//     RoundStochastic    up or down, by 16 random bytes      from the maximum
//     RoundFourOverSix   nearest, ties to even               NVFP4: the one of two candidates with the smaller error
//
// RoundFourOverSix first compares estimates of both errors (numerics/four_over_six.h), which also give its codes.
#pragma once
#include "cuda/quantize/fp4_chunks.cuh"
#include "numerics/four_over_six.h"
#include "numerics/philox.h"

namespace mxq::cuda {

// The scale byte of a chunk, and its codes without a mask.
struct ChunkCodes {
    uint32_t scale;
    uint2 codes;
};

enum class Fp4Rounding { Nearest, Stochastic, LessError, LessSquaredError };

struct RoundNearest {
    static constexpr Fp4Rounding value = Fp4Rounding::Nearest;
    static constexpr bool chooses = false;  // between two scales
    static constexpr int most_blocks = 4;   // of an SM, without spills

    template <class Draw>
    static __device__ __forceinline__ uint2 codes(const float (&values)[kChunk], float multiplier, const Draw&) {
        return {nearest_codes(values, multiplier), nearest_codes(values + 8, multiplier)};
    }
};

// Makes the keys of random numbers if there is a seed. A barrier must follow.
__device__ __forceinline__ void put_keys(const QuantizeProblem& p, PhiloxKeys& keys) {
    if (!p.seed_offset || threadIdx.x >= 2 * PhiloxKeys::rounds) return;
    const PhiloxKey key = philox_key(p.seed_offset[0]);
    keys.words[threadIdx.x] = PhiloxKeys::word(threadIdx.x % 2 == 0 ? key.words[0] : key.words[1], threadIdx.x);
}

struct RoundStochastic {
    static constexpr Fp4Rounding value = Fp4Rounding::Stochastic;
    static constexpr bool chooses = false;
    static constexpr int most_blocks = 4;

    // `draw` returns the random words of the chunk.
    template <class Draw>
    static __device__ __forceinline__ uint2 codes(const float (&values)[kChunk], float multiplier, const Draw& draw) {
        const PhiloxWords random = draw();
        return {stochastic_e2m1_codes(values, multiplier, random.words),
                stochastic_e2m1_codes(values + kChunk / 2, multiplier, random.words + 2)};
    }
};

// The errors of a chunk or more under both candidates.
struct Errors {
    float four, six;
};

struct ChunkValues {
    float at[kChunk];

    __device__ __forceinline__ explicit ChunkValues(const float (&values)[kChunk]) {
#pragma unroll
        for (int i = 0; i < kChunk; i++) at[i] = values[i];
    }
};

// Returns the errors that docs/numerics.md defines, of values in memory. Out of line: few chunks need them, and they need
// all registers.
template <bool squared>
__device__ __noinline__ Errors exact_errors(const ChunkValues& values, Nvfp4Candidates candidates, Nvfp4Global global) {
    if (ErrorDivisor::serves(global.amax))
        return {nvfp4_errors_16<squared, true>(values.at, candidates.four, global),
                nvfp4_errors_16<squared, true>(values.at, candidates.six, global)};
    return {nvfp4_errors_16<squared, false>(values.at, candidates.four, global),
            nvfp4_errors_16<squared, false>(values.at, candidates.six, global)};
}

// Adds errors over the lanes of a 16 x 16. Each of them reads rows lane / 8 + 4 i.
__device__ __forceinline__ void add_across_square(Errors& errors) {
#pragma unroll
    for (int distance = 16; distance >= 8; distance /= 2) {
        errors.four = add_rn(errors.four, __shfl_xor_sync(kAllLanes, errors.four, distance));
        errors.six = add_rn(errors.six, __shfl_xor_sync(kAllLanes, errors.six, distance));
    }
}

template <bool squared>
struct RoundFourOverSix : RoundNearest {
    static constexpr Fp4Rounding value = squared ? Fp4Rounding::LessSquaredError : Fp4Rounding::LessError;
    static constexpr bool chooses = true;
    static constexpr int most_blocks = 3;

    // Quantizes a chunk that is a block with this maximum. `unit` is NaN where nothing can be estimated. All lanes of a warp
    // call it.
    static __device__ __forceinline__ ChunkCodes chunk(const float (&values)[kChunk], float amax, const Nvfp4Global& global,
                                                       float unit, const float* multipliers) {
        const Nvfp4Candidates candidates = fast_nvfp4_candidates(amax, global);
        const ErrorScale four = error_scale(candidates.four, multipliers[candidates.four], unit);
        const ErrorScale six = error_scale(candidates.six, multipliers[candidates.six], unit);
        uint32_t fours[4], sixes[4];
        Errors errors{error_estimate_16<squared>(values, four, fours), error_estimate_16<squared>(values, six, sixes)};
        const bool serves = can_estimate(amax, four, six) && !is_nan(errors.six);  // no element is NaN
        if (!serves || (amax != 0 && !estimates_decide<squared>(errors.four, errors.six, amax, 1)))
            errors = exact_errors<squared>(ChunkValues(values), candidates, global);
        const bool is_four = errors.four < errors.six;
        const uint32_t scale = is_four ? candidates.four : candidates.six;
        if (!__all_sync(kAllLanes, serves)) return {scale, codes(values, multipliers[scale], 0)};
        const auto eight = [&](int i) {
            uint32_t signs[4];  // as pairs of 16-bit numbers have them
#pragma unroll
            for (int j = 0; j < 4; j++)
                signs[j] = permute_bytes(float_bits(values[4 * i + 2 * j]), float_bits(values[4 * i + 2 * j + 1]), 0x7632);
            return pack_shifted_codes(is_four ? fours[i] : sixes[i], is_four ? fours[i + 1] : sixes[i + 1], signs);
        };
        return {scale, {eight(0), eight(2)}};
    }

    // Returns the exact errors of the lane's 16 x 16, added as a tree: i with i + 2 and then i + 1 in the lane, the rest
    // over the lanes.
    template <class T>
    static __device__ __forceinline__ Errors square_errors(const RowReader<T>& rows, const Nvfp4Candidates& candidates,
                                                           const Nvfp4Global& global) {
        Errors sum{0, 0}, first{0, 0};
#pragma unroll 1
        for (int k = 0; k < kChunkSteps; k++) {
            float values[kChunk];
            rows.read(row_of_step(k % 2 * 2 + k / 2) - row_of_step(0), values);
            const Errors errors = exact_errors<squared>(ChunkValues(values), candidates, global);
            if (k % 2 == 0) {
                first = errors;
            } else {
                sum.four = add_rn(sum.four, add_rn(first.four, errors.four));
                sum.six = add_rn(sum.six, add_rn(first.six, errors.six));
            }
        }
        add_across_square(sum);
        return sum;
    }

    // Returns the better scale of the lane's 16 x 16 of the warp's 16 rows, which has this maximum.
    template <class T>
    static __device__ __forceinline__ uint32_t square(const ChunkTile<T>& tile, float amax, const Nvfp4Global& global) {
        const Nvfp4Candidates candidates = fast_nvfp4_candidates(amax, global);
        const float unit = error_unit(global);
        const ErrorScale four = error_scale(candidates.four, nvfp4_multiplier(candidates.four, global), unit);
        const ErrorScale six = error_scale(candidates.six, nvfp4_multiplier(candidates.six, global), unit);
        const RowReader<T> rows(tile, row_of_step(0), chunk_of_lane());
        Errors sum{0, 0};
#pragma unroll 1
        for (int i = 0; i < kChunkSteps; i++) {
            float values[kChunk];
            rows.read(row_of_step(i) - row_of_step(0), values);
            uint32_t ignored[4];
            sum.four = add_rn(sum.four, error_estimate_16<squared>(values, four, ignored));
            sum.six = add_rn(sum.six, error_estimate_16<squared>(values, six, ignored));
        }
        add_across_square(sum);
        const bool clear = can_estimate(global) && can_estimate(amax, four, six) &&
                           estimates_decide<squared>(sum.four, sum.six, amax, kChunk);
        if (!__all_sync(kAllLanes, clear || amax == 0)) sum = square_errors(rows, candidates, global);
        return nvfp4_choice(candidates, sum.four, sum.six);
    }
};

}  // namespace mxq::cuda
