// Bit-level helpers that host and device share.
//
// MXQ_HD marks functions of both, MXQ_HOST those of the host alone. All are forced inline: the CPU kernels are compiled once
// per instruction set, and an out-of-line copy made for AVX-512 must never be the one that an older CPU calls.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define MXQ_HD __host__ __device__ __forceinline__
#else
#define MXQ_HD inline __attribute__((always_inline))
#endif
#define MXQ_HOST inline __attribute__((always_inline))

// Whether the host has a multiply-add with one rounding. Clang says so of x86 by another macro than GCC.
#if defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__aarch64__)
#define MXQ_HOST_FUSES 1
#else
#define MXQ_HOST_FUSES 0
#endif

// Whether the toolkit's conversions of codes below a byte and of E8M0 (cuda_fp4.h, cuda_fp6.h, cuda_fp8.h) are instructions: on
// Blackwell's family-specific targets, such as sm_100f and sm_120f. They are used only where they give the contract's bits for
// every input that can occur, so that they change nothing but speed. On other devices these conversions are long programs with
// the same results; tests/cuda/device_numerics.cu runs them there, to test the code around the instructions.
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

// multiply_rn, add_rn, divide_rn and reciprocal_rn round once, to nearest even, and are never fused with each other. (The host
// side is compiled with -ffp-contract=off.)
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
    return __frcp_rn(a);  // has the bits of 1 / a
#else
    return 1.0f / a;
#endif
}

// Returns a * b + c with one rounding. Hosts without an instruction for it add in double, where the product is exact, and
// round an inexact sum to odd: its last bit then tells fp32's rounding that it is no tie.
MXQ_HD float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#elif MXQ_HOST_FUSES
    return __builtin_fmaf(a, b, c);
#else
    const double product = double(a) * double(b), sum = product + double(c), of_c = sum - product;
    const double lost = (product - (sum - of_c)) + (double(c) - of_c);  // exact, or NaN where the sum is infinite or NaN
    const int64_t bits = __builtin_bit_cast(int64_t, sum);
    const int64_t to_lost = ((__builtin_bit_cast(int64_t, lost) ^ bits) >> 63) | 1, if_even = (bits & 1) - 1;
    return float(__builtin_fabs(lost) > 0 ? __builtin_bit_cast(double, bits + (to_lost & if_even)) : sum);
#endif
}

constexpr float kFloatMax = 0x1.fffffep+127f;

// Returns min(value, FLT_MAX), where the minimum of NaN and y is y.
MXQ_HD float at_most_float_max(float value) { return value < kFloatMax ? value : kFloatMax; }

constexpr uint32_t kMagnitudeMask = 0x7FFFFFFFu;
constexpr uint32_t kInfinityBits = 0x7F800000u;
constexpr uint32_t kNanBits = 0x7FFFFFFFu;  // the one NaN that the library writes

MXQ_HD bool is_nan(float value) { return value != value; }

// Tells whether the number is +0 or -0. Looks at its bits, since a thread of the caller may take subnormals for 0.
MXQ_HD bool is_zero(float value) { return (float_bits(value) & kMagnitudeMask) == 0; }

// Returns the magnitude of a value. (On the device an operand's sign is dropped for free; a mask costs an instruction.)
MXQ_HD float magnitude_of(float value) {
#if defined(__CUDA_ARCH__)
    return fabsf(value);
#else
    return bits_float(float_bits(value) & kMagnitudeMask);
#endif
}

#if defined(__CUDACC__)
// Returns four bytes picked by the nibbles of the selector: 0 to 3 name the bytes of `low`, 4 to 7 those of `high`. A nibble
// with its top bit set copies the sign bit of that byte to all eight bits.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}
#endif

// Returns the exponent of a power of two.
MXQ_HD int log2_of(uint32_t power) {
#if defined(__CUDA_ARCH__)
    return 31 - __clz(int(power));
#else
    return 31 - __builtin_clz(power);
#endif
}

// Returns the bits of `ones` where the mask has a one, those of `zeros` elsewhere. On the device it is written as one
// instruction, because the compiler narrows masks and makes two.
MXQ_HD uint32_t select_bits(uint32_t mask, uint32_t ones, uint32_t zeros) {
#if defined(__CUDA_ARCH__)
    uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(bits) : "r"(mask), "r"(ones), "r"(zeros));
    return bits;
#else
    return (mask & ones) | (~mask & zeros);
#endif
}

// Returns what `half` makes of the low halves of words and what it makes of their high halves, in the two halves of a word.
template <class Half, class... Words>
MXQ_HD uint32_t by_halves(const Half& half, Words... words) {
    return uint32_t(half((words & 0xFFFF)...)) | uint32_t(half((words >> 16)...)) << 16;
}

// Rounds an fp32 magnitude to the code of a type, without a sign, to nearest even. The magnitude must not be above the type's
// largest value or, if that is all ones, the power of two after it.
template <int mantissa_bits, int bias>
MXQ_HD uint32_t round_magnitude(uint32_t magnitude) {
    constexpr int shift = 23 - mantissa_bits;
    constexpr uint32_t min_normal = uint32_t(127 - bias + 1) << 23;
    const uint32_t field = magnitude & kInfinityBits;
    const uint32_t exponent = field > min_normal ? field : min_normal;
    // A float of this exponent has its last place where the code has it, so that the addition rounds.
    const uint32_t magic = exponent + (uint32_t(shift) << 23);
    const uint32_t significand = float_bits(add_rn(bits_float(magnitude), bits_float(magic))) - magic;
    return significand + ((exponent - min_normal) >> shift);
}

}  // namespace mxq
