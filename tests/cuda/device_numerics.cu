// Conversions of numerics/ on the device against the same on the host: a kernel makes the results of all cases of a check, the
// host makes each once more and compares. Whichever way a device has is run: programs, or Blackwell's instructions. Compiled
// twice, the second time with the toolkit's conversions everywhere (MXQ_TEST_SMALL_FLOATS), so that what stands around those
// instructions runs on every device.
#include "../parallel.h"
#include "device_numerics.h"

#include "../numerics/one_element.h"
#include "numerics/encode_sub_byte.h"
#include "numerics/decode_to_bf16.h"
#include "numerics/e2m1_tables.h"
#include "numerics/packed_pairs.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"
#include "numerics/exponential.h"
#include "numerics/four_over_six.h"
#include "numerics/nvfp4.h"
#include "numerics/packing.h"
#include "numerics/philox.h"
#include "numerics/split_f16.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>

namespace {

using namespace mxq;

// ---- Inputs ---------------------------------------------------------------------------------------------------------

// Every upper half of an fp32 number, with lower halves at and beside every tie: those have few bits. A NaN is positive, as
// all are that arithmetic makes.
constexpr uint32_t kLowerHalves = 9, kFloats = kLowerHalves << 16;

MXQ_HD float float_of_case(uint32_t i) {
    constexpr uint16_t lower[kLowerHalves] = {0, 1, 2, 0x7FFF, 0x8000, 0x8001, 0xFFFD, 0xFFFE, 0xFFFF};
    const uint32_t bits = (i & 0xFFFF) << 16 | lower[i >> 16];
    return bits_float(is_nan(bits_float(bits)) ? bits & kMagnitudeMask : bits);
}

// Another case's, each once.
MXQ_HD float other_float(uint32_t i) { return float_of_case(uint32_t((i * uint64_t(40507) + 101) % kFloats)); }

// All BF16 numbers in pairs of either sign, once for each i >> 15.
struct Bf16Pair {
    float first, second;
};

MXQ_HD Bf16Pair bf16_pair(uint32_t i) {
    const uint32_t sign = i & 0x8000, half = i & 0x7FFF, other = (half * 40507 + 101) & 0x7FFF;
    return {float_of_case(half | sign), float_of_case(other | (sign ^ 0x8000))};
}

MXQ_HD uint32_t word(const Bf16Pair& pair) { return float_bits(pair.first) >> 16 | float_bits(pair.second); }

MXQ_HD uint32_t hash(uint64_t i) {
    uint32_t x = uint32_t(i) * 0x9E3779B9u ^ 0x7F4A7C15u;
    x = (x ^ x >> 15) * 0x2C1B3C6Du;
    return x ^ x >> 13;
}

// ---- Results --------------------------------------------------------------------------------------------------------

MXQ_HD uint64_t two_words(uint32_t first, uint32_t second) { return first | uint64_t(second) << 32; }

// One NaN is like another: what stores them gives them their bits.
MXQ_HD uint64_t two_values(float first, float second) {
    return two_words(float_bits(from_float<float>(first)), float_bits(from_float<float>(second)));
}

// ---- Elements -------------------------------------------------------------------------------------------------------

template <class E>
struct Encode {
    static constexpr uint64_t cases = kFloats;
    __device__ static uint64_t device(uint32_t i) { return encode_pair<E>(float_of_case(i), other_float(i)); }
    static uint64_t host(uint32_t i) { return encode<E>(float_of_case(i)) | encode<E>(other_float(i)) << 8; }
};

template <class E>
struct Decode {
    static constexpr uint64_t cases = 1 << 2 * E::bits;
    MXQ_HD static uint32_t first(uint32_t i) { return i & ((1u << E::bits) - 1); }
    MXQ_HD static uint32_t second(uint32_t i) { return i >> E::bits; }
    __device__ static uint64_t device(uint32_t i) {
        const float2 pair = decode_pair<E>(first(i) | second(i) << 8);
        return two_values(pair.x, pair.y);
    }
    static uint64_t host(uint32_t i) { return two_values(decode<E>(first(i)), decode<E>(second(i))); }
};

// All BF16 numbers under all scales.
template <class E>
struct Quantize {
    static constexpr uint64_t cases = 1 << 23;
    __device__ static uint64_t device(uint32_t i) {
        const Bf16Pair pair = bf16_pair(i);
        const float factor = scale_reciprocal(i >> 15);
        return encode_pair<E>(multiply_rn(pair.first, factor), multiply_rn(pair.second, factor)) & code_mask<E>(i >> 15);
    }
    static uint64_t host(uint32_t i) {
        const Bf16Pair pair = bf16_pair(i);
        const float factor = scale_reciprocal(i >> 15);
        return quantize_element<E>(pair.first, factor) | quantize_element<E>(pair.second, factor) << 8;
    }
};

// All codes under all scales, each beside another under another.
template <class E>
struct Dequantize {
    static constexpr uint64_t cases = 1 << (8 + E::bits);
    MXQ_HD static uint32_t code(uint32_t i) { return i & ((1u << E::bits) - 1); }
    __device__ static uint64_t device(uint32_t i) {
        const uint32_t scale = i >> E::bits;
        const float2 pair = dequantize_pair<E>(code(i) | code(~i) << 8, scale_value(scale), scale_value(255 - scale));
        return two_values(pair.x, pair.y);
    }
    static uint64_t host(uint32_t i) {
        const uint32_t scale = i >> E::bits;
        return two_values(dequantize_element<E>(code(i), scale_value(scale)),
                          dequantize_element<E>(code(~i), scale_value(255 - scale)));
    }
};

// ---- E8M0 -----------------------------------------------------------------------------------------------------------

// Every upper half of a maximum's bits, Inf and NaN too, by every rule.
template <class E>
struct Scale {
    static constexpr uint64_t maxima = kLowerHalves << 15, cases = 8 * maxima;
    MXQ_HD static uint64_t both(uint32_t i) {
        const uint32_t rule = uint32_t(i / maxima), half = i % maxima;
        const float amax = float_of_case((half >> 15) << 16 | (half & 0x7FFF));
        const auto rounding = static_cast<ScaleRounding>(1 + rule % 4);
        return scale_of(float_bits(amax), scale_steps<E>(rounding, static_cast<Nonfinite>(1 + rule / 4)));
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

// RCEIL's quotients around 2^-127, from where on subnormals round up.
template <class E>
struct SubnormalScale {
    static constexpr uint64_t cases = 1 << 17;
    MXQ_HD static uint64_t both(uint32_t i) {
        const uint32_t first = float_bits(multiply_rn(E::max, 0x1p-127f)) - uint32_t(cases / 2);
        return scale_of(first + i, scale_steps<E>(ScaleRounding::Rceil, Nonfinite::Propagate));
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

struct ScaleValues {
    static constexpr uint64_t cases = 256;
    MXQ_HD static uint64_t both(uint32_t i) { return two_values(scale_value(i), scale_reciprocal(i)); }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

// ---- In pairs -------------------------------------------------------------------------------------------------------

struct EncodeFloats {
    static constexpr uint64_t cases = kFloats;
    __device__ static uint64_t device(uint32_t i) { return encode_e2m1_floats(float_of_case(i), other_float(i)); }
    static uint64_t host(uint32_t i) {
        return 0x43004300u | encode<E2M1>(float_of_case(i)) | encode<E2M1>(other_float(i)) << 16;
    }
};

// All BF16 numbers under all scales, as words: the codes, and below 7 those of the magnitudes.
struct QuantizeWords {
    static constexpr uint64_t cases = 1 << 23;
    __device__ static uint64_t device(uint32_t i) {
        const uint32_t scale = i >> 15, factors = (float_bits(scale_reciprocal(scale)) >> 16) * kOneInBothHalves;
        const uint32_t products = multiply_bf16_pairs(word(bf16_pair(i)), factors);
        const uint32_t plain = encode_e2m1_products(word(bf16_pair(i)) & ~kSignsOfBothHalves, e2m1_line_factors(factors));
        const bool small = is_small(bits_float(products << 16)) && is_small(bits_float(products));
        return two_words(encode_e2m1_bf16(products) & code_mask<E2M1>(scale) & 0x00FF00FF, small ? plain & 0x00FF00FF : 0);
    }
    static uint64_t host(uint32_t i) {
        const Bf16Pair pair = bf16_pair(i);
        const float factor = scale_reciprocal(i >> 15);
        const uint32_t codes = quantize_element<E2M1>(pair.first, factor) | quantize_element<E2M1>(pair.second, factor) << 16;
        const bool small = is_small(multiply_rn(pair.first, factor)) && is_small(multiply_rn(pair.second, factor));
        return two_words(codes, small ? codes & 0x00070007 : 0);
    }
    MXQ_HD static bool is_small(float value) { return value > -7 && value < 7; }
};

// All BF16 numbers times NVFP4's multipliers, the way of quantize_fp4_pairs: cut products where they serve, else the others.
struct QuantizeNvfp4 {
    static constexpr uint32_t globals = 4, scales = 64;
    static constexpr uint64_t cases = uint64_t(globals * scales) << 15;
    MXQ_HD static Nvfp4Global global(uint32_t i) {
        constexpr float amax[globals] = {1.0f, 0x1.8p-9f, 3.9f, 0x1.fep20f};
        return nvfp4_global(amax[i >> 21], i >> 22 ? 448 : 256);
    }
    MXQ_HD static uint32_t scale(uint32_t i) { return (i >> 15) % scales * 2 + (i >> 21) % 2; }  // half of all for each global
    __device__ static uint64_t device(uint32_t i) {
        const Bf16Pair pair = bf16_pair(i);
        const float multiplier = nvfp4_multiplier(scale(i), global(i));
        const CuttingMultiplier cut = cutting_multiplier(multiplier, cut_for(multiplier));
        const float low = multiply_rn(pair.first, cut.factor), high = multiply_rn(pair.second, cut.factor);
        if (fabsf(low) < 7 * kCutUnit && fabsf(high) < 7 * kCutUnit) return cut_codes(low, high, i, cut.up);
        return encode_e2m1_floats(multiply_rn(pair.first, multiplier), multiply_rn(pair.second, multiplier)) & 0x00FF00FF &
               nvfp4_code_mask(scale(i));
    }
    // Returns the codes of two products, which lie among zeros where the case says, in the halves of a word.
    __device__ static uint32_t cut_codes(float low, float high, uint32_t i, bool up) {
        float products[8] = {};
        const uint32_t first = i % 8, second = (i + 1 + i / 8 % 7) % 8;
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) products[j] = j == first ? low : j == second ? high : 0;
        const uint32_t to_even = encode_e2m1_cut<true>(products, up ? kOneInBothHalves : 0);
        const uint32_t fast = up ? encode_e2m1_cut<false>(products, 0) : to_even;
        const uint32_t codes = (fast >> (4 * first) & 15) | (fast >> (4 * second) & 15) << 16;
        return fast == to_even && __popc(fast) == __popc(codes) ? codes : ~0u;
    }
    static uint64_t host(uint32_t i) {
        const Bf16Pair pair = bf16_pair(i);
        const float multiplier = nvfp4_multiplier(scale(i), global(i));
        return nvfp4_code(pair.first, multiplier) | nvfp4_code(pair.second, multiplier) << 16;
    }
};

// Codes out of estimates, of eight BF16 elements, by either conversion. The multiplier is 1 / m or a neighbour of it, m odd, and
// the elements are eighths times m: products are ties, a step of fp32 beside them, and what lies between.
struct EstimatedCodes {
    static constexpr uint64_t cases = 1 << 20;
    MXQ_HD static float power(uint32_t i) { return bits_float((117 + hash(i) % 20) << 23); }
    MXQ_HD static float odd(uint32_t i) { return float(2 * (hash(i) >> 8) % 16 + 1); }
    MXQ_HD static float multiplier(uint32_t i) {
        return bits_float(float_bits(divide_rn(power(i), odd(i))) + (hash(i) >> 16) % 3 - 1);
    }
    MXQ_HD static float element(uint32_t i, uint32_t k) {
        const uint32_t random = hash(uint64_t(i) * 8 + k);
        const float eighths = multiply_rn(float(random % 56), odd(i));
        const float value = divide_rn(eighths, multiply_rn(power(i), 8));
        return to_float(from_float<Bf16>(random >> 31 ? -value : value));
    }
    __device__ static uint64_t device(uint32_t i) {
        const ErrorScale scale{multiply_rn(multiplier(i), ErrorScale::one), 1};
        float values[8], sum = 0;
        uint32_t words[4] = {};
        for (uint32_t k = 0; k < 8; ++k) {
            values[k] = add_error<false>(element(i, k), scale, false, sum);
            words[k / 2] |= float_bits(element(i, k)) >> 16 << (k % 2 * 16);
        }
        const auto four = [&](const auto& bytes, int k) { return bytes(values[k], values[k + 1], values[k + 2], values[k + 3]); };
        return two_words(pack_shifted_codes(four(shifted_codes, 0), four(shifted_codes, 4), words),
                         pack_shifted_codes(four(shifted_codes_via_f16, 0), four(shifted_codes_via_f16, 4), words));
    }
    static uint64_t host(uint32_t i) {
        uint32_t codes = 0;
        for (uint32_t k = 0; k < 8; ++k) codes |= encode<E2M1>(multiply_rn(element(i, k), multiplier(i))) << (4 * k);
        return two_words(codes, codes);
    }
};

// Eight elements that the device packs, each with a random byte of its own: any number, or for every place of the eight one that
// lies where the byte decides, or right beside it.
struct Stochastic {
    static constexpr uint32_t kGaps = 7, kBytes = 256, kBeside = 3, kPlaces = 8;
    static constexpr uint64_t cases = kFloats + kGaps * kBytes * kBeside * kPlaces;

    MXQ_HD static uint32_t random(uint32_t i, uint32_t k) { return hash(uint64_t(i) * 8 + k) & 0xFF; }
    MXQ_HD static float element(uint32_t i, uint32_t k) {
        return float_of_case(uint32_t((i + uint64_t(k) * 73) * 40507 % kFloats));
    }
    // Returns the number where byte r still rounds down from `gap` on, or the one above or below it, of either sign.
    MXQ_HD static float at_byte(uint32_t gap, uint32_t r, uint32_t beside) {
        const float low = gap < 4 ? float(gap) / 2 : gap == 4 ? 2 : float(gap) - 2, width = gap < 4 ? 0.5f : gap == 6 ? 2 : 1;
        const uint32_t bits = float_bits(low + width * float(2 * r + 1) / 512) + beside - 1;
        return bits_float(bits | (r + gap) % 2 << 31);
    }
    struct Eight {
        float values[8];
        uint32_t random[2];
    };
    MXQ_HD static Eight eight(uint32_t i) {
        Eight out{};
        for (uint32_t k = 0; k < 8; k++) {
            uint32_t r = random(i, k);
            out.values[k] = element(i, k);
            if (i >= kFloats && k == i % kPlaces) {
                const uint32_t at = (i - kFloats) / kPlaces;
                r = at % kBytes;
                out.values[k] = at_byte(at / kBytes % kGaps, r, at / kBytes / kGaps);
            }
            out.random[k / 4] |= r << k % 4 * 8;
        }
        return out;
    }
    __device__ static uint64_t device(uint32_t i) {
        const Eight of = eight(i);
        return stochastic_e2m1_codes(of.values, 1.0f, of.random);
    }
    static uint64_t host(uint32_t i) {
        const Eight of = eight(i);
        uint32_t codes = 0;
        for (uint32_t k = 0; k < 8; k++) codes |= stochastic_e2m1(of.values[k], of.random[k / 4] >> k % 4 * 8 & 0xFF) << 4 * k;
        return codes;
    }
};

// ---- Around codes ---------------------------------------------------------------------------------------------------

struct Nvfp4Scale {
    static constexpr uint64_t cases = kFloats;
    MXQ_HD static uint64_t both(uint32_t i) {
        const float amax = bits_float(float_bits(float_of_case(i)) & kMagnitudeMask);
        if (is_nan(amax)) return 0;
        const Nvfp4BlockScale scale = nvfp4_block_scale(amax, nvfp4_global(448 * 6, 448));
        return two_words(encode_nvfp4_scale(amax), scale.byte) ^ uint64_t(float_bits(scale.value)) << 8;
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

struct Plain16 {
    static constexpr uint64_t cases = kFloats;
    MXQ_HD static uint64_t both(uint32_t i) {
        const float value = float_of_case(i);
        const uint32_t narrow = from_float<Bf16>(value).bits | uint32_t(from_float<F16>(value).bits) << 16;
        return two_words(narrow, float_bits(from_float<float>(to_float(F16{uint16_t(i)}))));
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

// Every number from 1 to 2, and NaN.
struct Reciprocal {
    static constexpr uint64_t cases = (1 << 23) + 2;
    MXQ_HD static float number(uint32_t i) { return bits_float(i + 1 < cases ? 0x3F800000u + i : kNanBits); }
    MXQ_HD static uint64_t bits(float found) { return float_bits(from_float<float>(found)); }
    __device__ static uint64_t device(uint32_t i) { return bits(reciprocal_of_1_to_2(number(i))); }
    static uint64_t host(uint32_t i) { return bits(1.0f / number(i)); }
};

// Exponentials of every upper half of a number of at most 0.
struct Exponential {
    static constexpr uint64_t cases = kFloats;
    MXQ_HD static uint64_t both(uint32_t i) {
        const float value = float_of_case(i);
        return float_bits(from_float<float>(exp_of_nonpositive(value > 0 ? -value : value)));
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

struct SplitF16 {
    static constexpr uint64_t cases = 1 << 16;
    MXQ_HD static uint64_t both(uint32_t i) { return two_words(parts_of_pair(i | i << 16, true), parts_of_pair(i | i << 16, false)); }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

// Codes to BF16 under all scales but those that are special.
template <class E>
struct Bf16Values {
    static constexpr uint64_t cases = 1 << 16;
    MXQ_HD static uint64_t both(uint32_t i) {
        const Bf16DecodeRule rule = bf16_decode_rule<E>();
        const uint32_t scale = i >> 8, codes = (i & 0xFF) | hash(i) << 8;
        if (is_special_scale(rule, scale)) return 0;
        const EvenOddBf16 pairs = convert(rule, codes, bf16_e8m0_factor(rule, scale));
        return two_words(pairs.even, pairs.odd);
    }
    MXQ_HD static EvenOddBf16 convert(const Bf16DecodeRule& rule, uint32_t codes, uint32_t multiplier) {
        if constexpr (E::bits == 4) return decode_4_bits_to_bf16(rule, codes, int(codes >> 31), multiplier);
        else if constexpr (E::bits == 6) return decode_6_bits_to_bf16(rule, codes & 0x3F3F3F3F, multiplier);
        else
            return mark_special_codes(rule, codes) & kSpecialMarks ? EvenOddBf16{}
                                                                   : decode_8_bits_to_bf16(rule, codes, multiplier);
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

// Packed E2M1 codes of two rows as F16.
struct PackedPairs {
    static constexpr uint64_t cases = 1 << 16;
    MXQ_HD static uint64_t both(uint32_t i) {
        uint32_t f16 = 0;
        for (int j = 0; j < 8; ++j) f16 = f16 * 31 + move_e2m1_to_f16(hash(i), hash(i + cases), j);
        return f16;
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

// Eight E2M1 codes by tables as F16.
struct E2m1Tables {
    static constexpr uint64_t cases = 1 << 16;
    MXQ_HD static uint64_t both(uint32_t i) {
        uint32_t pairs[4], f16 = 0;
        decode_e2m1_to_f16(hash(i), pairs);
        for (uint32_t j = 0; j < 4; ++j) f16 = f16 * 31 + pairs[j];
        return f16;
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

struct Packing {
    static constexpr uint64_t cases = 1 << 20;
    MXQ_HD static uint64_t both(uint32_t i) {
        uint32_t pairs[4], low, high;
        for (uint32_t p = 0; p < 4; ++p) pairs[p] = hash(4 * i + p);
        const uint32_t lines = pack_nibble_lines(pairs);  // one may be NaN, of which more is left than a nibble
        for (uint32_t& pair : pairs) pair &= 0x000F000F;
        unpack_nibbles(hash(i), low, high);
        return two_words(pack_nibble_pairs(pairs) ^ pack_nibbles(low, high) ^ low, lines ^ high);
    }
    __device__ static uint64_t device(uint32_t i) { return both(i); }
    static uint64_t host(uint32_t i) { return both(i); }
};

// ---- Running --------------------------------------------------------------------------------------------------------

void check(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

constexpr uint32_t kBatch = 1 << 22;

template <class Check>
__global__ void run_cases(uint32_t first, uint32_t count, uint64_t* results) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) results[i] = Check::device(first + i);
}

struct Results {
    Results() : host(kBatch) { check(cudaMalloc(&device, kBatch * sizeof(uint64_t))); }
    ~Results() { cudaFree(device); }

    uint64_t* device = nullptr;
    std::vector<uint64_t> host;
    std::vector<testing::NumericsOutcome> outcomes;

    template <class Check>
    void add(const std::string& name) {
        static_assert(Check::cases <= 1u << 31);
        testing::NumericsOutcome outcome{name, 0, 0, 0};
        for (uint32_t first = 0; first < Check::cases; first += kBatch) {
            const auto count = static_cast<uint32_t>(std::min<uint64_t>(kBatch, Check::cases - first));
            check(cudaMemset(device, 0xCC, count * sizeof(uint64_t)));
            run_cases<Check><<<(count + 255) / 256, 256>>>(first, count, device);
            check(cudaGetLastError());
            check(cudaMemcpy(host.data(), device, count * sizeof(uint64_t), cudaMemcpyDeviceToHost));
            compare<Check>(first, count, outcome);
        }
        outcomes.push_back(outcome);
    }

    template <class Check>
    void compare(uint32_t first, uint32_t count, testing::NumericsOutcome& outcome) const {
        constexpr uint32_t slice = 1 << 16;
        std::mutex mutex;
        testing::parallel_for((count + slice - 1) / slice, 10 * slice, [&](int64_t number) {
            const uint32_t begin = uint32_t(number) * slice, end = std::min(begin + slice, count);
            uint64_t wrong = 0, first_wrong = 0;
            for (uint32_t i = begin; i < end; ++i)
                if (host[i] != Check::host(first + i) && wrong++ == 0) first_wrong = first + i;
            const std::lock_guard lock(mutex);
            if (wrong && (!outcome.wrong || first_wrong < outcome.first_wrong)) outcome.first_wrong = first_wrong;
            outcome.wrong += wrong;
            outcome.ran += end - begin;
        });
    }

    template <class E>
    void add_element(const std::string& name) {
        add<Encode<E>>("encode " + name);
        add<Decode<E>>("decode " + name);
        add<Quantize<E>>("quantize " + name);
        add<Dequantize<E>>("dequantize " + name);
        add<Scale<E>>("scale " + name);
        add<SubnormalScale<E>>("subnormal scale " + name);
        add<Bf16Values<E>>("bf16 " + name);
    }
};

}  // namespace

std::vector<testing::NumericsOutcome> testing::MXQ_TEST_FUNCTION() {
    Results results;
    results.add_element<E4M3>("E4M3");
    results.add_element<E5M2>("E5M2");
    results.add_element<E3M2>("E3M2");
    results.add_element<E2M3>("E2M3");
    results.add_element<E2M1>("E2M1");
    results.add<E2m1Tables>("E2M1 tables");
    results.add<PackedPairs>("E2M1 packed pairs");
    results.add<ScaleValues>("scale values");
    results.add<EncodeFloats>("E2M1 floats");
    results.add<QuantizeWords>("E2M1 words");
    results.add<QuantizeNvfp4>("NVFP4");
    results.add<EstimatedCodes>("four over six");
    results.add<Stochastic>("stochastic");
    results.add<Nvfp4Scale>("NVFP4 scales");
    results.add<Plain16>("16 bits");
    results.add<Reciprocal>("reciprocals");
    results.add<Exponential>("exponentials");
    results.add<SplitF16>("parts of F16");
    results.add<Packing>("packing");
    return results.outcomes;
}
