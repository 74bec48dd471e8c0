// Quantizes BF16 to 4 bits without unpacking it: maxima of packed pairs, and the scales and multipliers of blocks.
//
//     words of two elements --largest_by_magnitude--> maximum --> Block: scale byte, multiplier --> codes (fp4_pair_codes.cuh)
//                                                                  ^
//                  global scales, and multipliers of all scale bytes: tables in shared memory
#pragma once
#include "cuda/quantize/fp4_chunks.cuh"

namespace mxq::cuda::fp4_pairs {

constexpr int kPairs = kChunk / 2;

// The stored scale of a block, and the multiplier of its elements.
struct Block {
    uint32_t scale;
    float multiplier;
};

// Returns whether MXFP4 codes need no clamping, or are masked. FLOOR and EVEN give values up to 8, SATURATE keeps Inf and
// NaN.
inline bool is_plain_mxfp4(const QuantizeProblem& p) {
    const bool below_seven = p.scale_rounding == ScaleRounding::Rceil || p.scale_rounding == ScaleRounding::Ceil;
    return below_seven && p.nonfinite == Nonfinite::Propagate;
}

// ---- Maxima ----------------------------------------------------------------------------------------------------------

// Returns the numbers of larger magnitude, of either sign, in both halves. PROPAGATE passes a NaN on.
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

// Returns the numbers of the largest magnitudes of both halves; 0 under SATURATE where all are NaN.
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

template <int count>
__device__ __forceinline__ uint32_t largest_pair(Nonfinite policy, const uint32_t (&words)[count]) {
    return policy == Nonfinite::Saturate ? largest_pair<Nonfinite::Saturate>(words)
                                         : largest_pair<Nonfinite::Propagate>(words);
}

// Returns the largest magnitude of all elements of the words, as bits of an fp32 value.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_row(const uint32_t (&words)[kPairs]) {
    const uint32_t pair = largest_by_magnitude<policy>(words);
    return larger_by_magnitude<policy>(pair, __byte_perm(pair, 0, 0x1032)) << 16 & kMagnitudeMask;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// Returns the CuttingMultiplier of a scale from 1 to 1.875 as stored: negative where ties go to even. It is NaN where it, or
// that of another scale of the same significand, may not be a power of two times the same number.
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

// Makes the Nvfp4Global of a part, and a table of CuttingMultipliers by scale byte. Each part has 128 threads, one an entry.
// Scales with the same significand are cut alike, so eight threads divide for all. All threads of the block call it. A
// barrier must follow. Returns whether some ties go to even.
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

// Returns whether the elements of an NVFP4 block are plain: it has a CuttingMultiplier, which leaves all of them below 7,
// and none is NaN.
__device__ __forceinline__ bool is_plain(uint32_t amax, const Block& block) {
    return fabsf(multiply_rn(bits_float(amax), block.multiplier)) < 7 * kCutUnit;
}

// Returns the maxima over the chunks of MX blocks, which neighbouring lanes hold, two in a word.
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

}  // namespace mxq::cuda::fp4_pairs
