// Bit-level helpers that host and device share. Everything in src/numerics is forced inline: the CPU kernels are compiled
// once per instruction set, and an out-of-line copy made for AVX-512 must never be the one that an older CPU calls.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define MXQ_HD __host__ __device__ __forceinline__
#else
#define MXQ_HD inline __attribute__((always_inline))
#endif
#define MXQ_HOST inline __attribute__((always_inline))

// Whether the toolkit's conversions of codes below a byte and of E8M0 (cuda_fp4.h, cuda_fp6.h, cuda_fp8.h) are instructions: on
// Blackwell's family-specific targets, such as sm_100f and sm_120f. They are taken where they give the contract's bits for all
// that comes to them, so that they change nothing but speed. On other devices they are long programs with the same results: a
// test has them there, to run what stands around the instructions (tests/cuda/device_numerics.cu).
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000 || (defined(MXQ_TEST_SMALL_FLOATS) && __CUDA_ARCH__ >= 890))
#define MXQ_SMALL_FLOATS 1
#else
#define MXQ_SMALL_FLOATS 0
#endif

namespace mxq {

MXQ_HD uint32_t float_bits(float value) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(value);
#else
    return __builtin_bit_cast(uint32_t, value);
#endif
}

MXQ_HD float bits_float(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    return __builtin_bit_cast(float, bits);
#endif
}

// One rounding each, never fused with a neighbour (the host side is compiled with -ffp-contract=off).
MXQ_HD float multiply_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

MXQ_HD float add_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

MXQ_HD float divide_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

MXQ_HD float reciprocal_rn(float a) {
#if defined(__CUDA_ARCH__)
    return __frcp_rn(a);  // the bits of 1 / a
#else
    return 1.0f / a;
#endif
}

constexpr float kFloatMax = 0x1.fffffep+127f;

// min(value, FLT_MAX), where the minimum of NaN and y is y.
MXQ_HD float at_most_float_max(float value) { return value < kFloatMax ? value : kFloatMax; }

constexpr uint32_t kMagnitudeMask = 0x7FFFFFFFu;
constexpr uint32_t kInfinityBits = 0x7F800000u;
constexpr uint32_t kNanBits = 0x7FFFFFFFu;  // the one NaN that the library writes

MXQ_HD bool is_nan(float value) { return value != value; }
MXQ_HD bool is_nan_bits(uint32_t bits) { return (bits & kMagnitudeMask) > kInfinityBits; }

#if defined(__CUDACC__)
// Each nibble of the selector names a byte, of `high` from 4 on; its top bit takes that byte's sign instead, eight times.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}
#endif

// Of a power of two.
MXQ_HD int log2_of(uint32_t power) {
#if defined(__CUDA_ARCH__)
    return 31 - __clz(int(power));
#else
    return 31 - __builtin_clz(power);
#endif
}

// Bits of `ones` where the mask has a one, of `zeros` elsewhere. (As one instruction: compilers narrow masks and use two.)
MXQ_HD uint32_t select_bits(uint32_t mask, uint32_t ones, uint32_t zeros) {
#if defined(__CUDA_ARCH__)
    uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(bits) : "r"(mask), "r"(ones), "r"(zeros));
    return bits;
#else
    return (mask & ones) | (~mask & zeros);
#endif
}

// Code without sign, to nearest even, of an fp32 magnitude no larger than the type's largest (or the power of two after it).
template <int mantissa_bits, int bias>
MXQ_HD uint32_t round_magnitude(uint32_t magnitude) {
    constexpr int shift = 23 - mantissa_bits;
    constexpr uint32_t min_normal = uint32_t(127 - bias + 1) << 23;
    const uint32_t field = magnitude & kInfinityBits;
    const uint32_t exponent = field > min_normal ? field : min_normal;
    // The last place of a float of this exponent is that of the code: the addition rounds.
    const uint32_t magic = exponent + (uint32_t(shift) << 23);
    const uint32_t significand = float_bits(add_rn(bits_float(magnitude), bits_float(magic))) - magic;
    return significand + ((exponent - min_normal) >> shift);
}

}  // namespace mxq
