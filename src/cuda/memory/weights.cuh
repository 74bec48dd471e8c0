// Quantized weights in registers: from codes and scale bytes to BF16, two at a time, for exact products.
//
// Logic operations bound decoding: they run at half the rate of others. So a mask leaves a 4-bit code in each half of a
// word, and one multiplication moves signs and magnitudes to where BF16 has them:
//
//     word           c7 c6 c5 c4   c3 c2 c1 c0
//     masked               s e e m         s e e m          times 2^12 + 2^6, and masked again:
//     pair 0         s0000000.eem.....   s0000000.eem.....  BF16 numbers, code * 2^-126
//
// Inf, NaN and scales far above 1 need two factors. They are rare: a warp that meets one takes the slower path.
#pragma once
#include "cuda/memory/operand.cuh"

namespace mxq::cuda {

// Kinds of weights whose loads and decoding differ.
enum class Weights { Bits4, Nvfp4, Bits6, Bits8, Fp8Blocks };  // Fp8Blocks: with an fp32 scale for 128 codes

template <Weights kind>
constexpr int weight_bits = kind == Weights::Bits8 || kind == Weights::Fp8Blocks ? 8
                            : kind == Weights::Bits6                             ? 6
                                                                                 : 4;

// E2M1 codes become BF16 numbers 2^126 too small. Up to this scale one factor compensates for both.
constexpr int kE2m1Missing = 127 - E2M1::bias;
constexpr uint32_t kMostE2m1Scale = 254 - kE2m1Missing;

// One factor for both would overflow under NVFP4 scales. Their products stay 2^7 too small, and sums make up for it.
constexpr int kNvfp4Below = 7;
template <Weights kind>
constexpr float unit_of_sums = kind == Weights::Nvfp4 ? float(1 << kNvfp4Below) : 1.0f;

// Returns the single factor of the codes of a scale, in both halves.
template <Weights kind>
__device__ __forceinline__ uint32_t scale_factor(const Bf16DecodeRule& rule, uint32_t scale) {
    if constexpr (kind == Weights::Nvfp4)
        return multiply_bf16_pairs(bf16_e4m3_factor(scale), bf16_power_pair(kE2m1Missing - kNvfp4Below));
    if constexpr (kind == Weights::Bits4) return scale * 0x00800080u + uint32_t(kE2m1Missing) * 0x00800080u;
    return bf16_e8m0_factor(rule, scale);
}

// Returns whether a scale needs two factors.
template <Weights kind>
__device__ __forceinline__ bool needs_two_factors(const Bf16DecodeRule& rule, uint32_t scale) {
    return kind == Weights::Bits4 ? scale > kMostE2m1Scale : is_special_scale(rule, scale);
}

// Returns the value of any scale as BF16, in both halves.
template <Weights kind>
__device__ __forceinline__ uint32_t any_scale(uint32_t scale) {
    constexpr uint32_t nan = 0x7FFF7FFF;
    if constexpr (kind == Weights::Nvfp4) {
        const uint32_t value = multiply_bf16_pairs(bf16_e4m3_factor(scale), bf16_power_pair(-kNvfp4Below));
        return (scale & 0x7F) == E4M3::nan_code ? nan : value;
    }
    return scale == kScaleNan ? nan : scale == 0 ? 0x00400040u : scale * 0x00800080u;
}

// Moves two 4-bit codes, alone in their halves and `shift` bits up, to where BF16 has them.
__device__ __forceinline__ uint32_t move_pair(uint32_t codes, int shift = 0) {
    return codes * ((1u << (12 - shift)) + (1u << (6 - shift))) & 0x81C081C0u;
}

// Moves codes pair and pair + 4 of the eight in a word.
__device__ __forceinline__ uint32_t move_pair_of_word(uint32_t word, int pair) {
    const int shift = pair % 2 * 4;
    return move_pair((pair < 2 ? word : word >> 8) & (0x000F000Fu << shift), shift);
}

// Multiplies four moved codes by the single factor of their scale.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 scale_four(const Bf16DecodeRule& rule, const EvenOddBf16& moved, uint32_t factor) {
    if constexpr (kind == Weights::Bits6) return multiply_twice(moved, rule.first_factor, factor);
    return {multiply_bf16_pairs(moved.even, factor), multiply_bf16_pairs(moved.odd, factor)};
}

// Multiplies four moved codes by two factors, which serve any scale. Inf and NaN of 8-bit `codes` get BF16's exponent of all
// ones.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 scale_any_four(const Bf16DecodeRule& rule, uint32_t missing, const EvenOddBf16& moved,
                                                      uint32_t codes, uint32_t scale) {
    uint32_t even = multiply_bf16_pairs(moved.even, missing), odd = multiply_bf16_pairs(moved.odd, missing);
    if constexpr (kind == Weights::Bits8) {
        const uint32_t special = (mark_special_codes(rule, codes) & kSpecialMarks) >> 7;  // a bit for each byte
        even |= (special & kOneInBothHalves) * 0x7F80u;
        odd |= (special >> 8 & kOneInBothHalves) * 0x7F80u;
    }
    const uint32_t factor = any_scale<kind>(scale);
    return {multiply_bf16_pairs(even, factor), multiply_bf16_pairs(odd, factor)};
}

// Returns a word whose first bytes, 0 to 4 of them, have all bits set. A comparison with 4 in place of the clamped shift lost
// the mask where `count` was a minimum with 4 (CUDA 13.0, sm_90a).
__device__ __forceinline__ uint32_t first_bytes(int32_t count) { return __funnelshift_rc(~0u, 0, 8 * (4 - count)); }

// ---- 32 codes of two rows -------------------------------------------------------------------------------------------------

// Holds 32 codes of each of two K-major rows, and their scales.
template <Weights kind>
struct Fragment {
    static constexpr int words_of_line = weight_bits<kind>, kScales = kind == Weights::Nvfp4 ? 2 : 1;
    uint32_t words[2][words_of_line];
    uint32_t scales[2][kScales];
};

// Returns codes 4 four .. 4 four + 3 of a row as they lie in its words; 4-bit codes in the low half.
template <Weights kind>
__device__ __forceinline__ uint32_t four_codes(const Fragment<kind>& fragment, int l, int four) {
    const auto& words = fragment.words[l];
    if constexpr (kind == Weights::Bits8) return words[four];
    if constexpr (kind == Weights::Bits6) {
        const int bit = four * 24, word = bit / 32;
        return unpack_4<6>(bit % 32 <= 8 ? words[word] >> bit % 32
                                         : __funnelshift_r(words[word], words[word + 1], bit % 32));
    }
    return words[four / 2];
}

// Returns whether some of four words of either row have codes that are Inf or NaN.
__device__ __forceinline__ bool any_special(const Bf16DecodeRule& rule, const Fragment<Weights::Bits8>& fragment, int four) {
    uint32_t marks = 0;
#pragma unroll
    for (int l = 0; l < 2; l++)
#pragma unroll
        for (int i = 0; i < 4; i++) marks |= mark_special_codes(rule, fragment.words[l][4 * four + i]);
    return marks & kSpecialMarks;
}

// Returns whether some codes are Inf or NaN.
template <Weights kind>
__device__ __forceinline__ bool any_special(const Bf16DecodeRule& rule, const Fragment<kind>& fragment) {
    uint32_t marks = 0;
#pragma unroll
    for (int l = 0; l < 2; l++)
        for (uint32_t word : fragment.words[l]) marks |= mark_special_codes(rule, word);
    return marks & kSpecialMarks;
}

// Moves four codes of a row to where BF16 has them.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 move_four(const Bf16DecodeRule& rule, uint32_t codes, int four) {
    if constexpr (kind == Weights::Bits8) return move_codes_to_bf16(rule, codes);
    if constexpr (kind == Weights::Bits6) return move_codes_to_bf16(rule, codes + 3 * (codes & 0x20202020u));
    const int pair = four % 2 * 2;
    return {move_pair_of_word(codes, pair), move_pair_of_word(codes, pair + 1)};
}

// Decodes four codes of a row by the single factor of their scale.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 decode_four(const Bf16DecodeRule& rule, uint32_t codes, int four, uint32_t factor) {
    return scale_four<kind>(rule, move_four<kind>(rule, codes, four), factor);
}

// Decodes four codes of a row, whatever codes and scale are.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 decode_any_four(const Bf16DecodeRule& rule, uint32_t missing, uint32_t codes,
                                                       int four, uint32_t scale) {
    return scale_any_four<kind>(rule, missing, move_four<kind>(rule, codes, four), codes, scale);
}

// Returns eight consecutive numbers of the other operand as pairs, in the order in which codes of weights are decoded.
template <Weights kind>
__device__ __forceinline__ uint4 pair_eight(const uint4& of) {
    constexpr uint32_t low = 0x5410, high = 0x7632;
    if constexpr (weight_bits<kind> == 4)
        return {permute_bytes(of.x, of.z, low), permute_bytes(of.x, of.z, high), permute_bytes(of.y, of.w, low),
                permute_bytes(of.y, of.w, high)};
    return {permute_bytes(of.x, of.y, low), permute_bytes(of.x, of.y, high), permute_bytes(of.z, of.w, low),
            permute_bytes(of.z, of.w, high)};
}

// ---- On the host ---------------------------------------------------------------------------------------------------------

inline bool is_block_scaled(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::E8M0 || operand.scale_type == ScaleType::E4M3;
}

inline bool has_line_scales(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::F32 && operand.layout.block == MXQ_MAX_DIM;
}

struct WeightRule {
    Weights kind;
    Bf16DecodeRule rule;
    uint32_t missing;  // 2^(127 - bias of the codes) as BF16, in both halves
};

template <class E>
WeightRule weight_rule_of(Weights kind) {
    return {kind, kind == Weights::Nvfp4 ? bf16_decode_rule_nvfp4() : bf16_decode_rule<E>(), bf16_power_pair(127 - E::bias)};
}

inline WeightRule weight_rule(const GemmOperand& b) {
    switch (b.element) {
        case Element::E4M3: return weight_rule_of<E4M3>(Weights::Bits8);
        case Element::E5M2: return weight_rule_of<E5M2>(Weights::Bits8);
        case Element::E2M3: return weight_rule_of<E2M3>(Weights::Bits6);
        case Element::E3M2: return weight_rule_of<E3M2>(Weights::Bits6);
        default: return weight_rule_of<E2M1>(b.scale_type == ScaleType::E4M3 ? Weights::Nvfp4 : Weights::Bits4);
    }
}

}  // namespace mxq::cuda
