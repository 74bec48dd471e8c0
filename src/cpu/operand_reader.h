// Decodes the K-major rows of one operand of a product to fp32, and says which are extreme. Part of gemm_kernels.cpp and
// few_rows_kernels.cpp.
#pragma once
#include "cpu/decode_lines.h"
#include "cpu/few_rows_order.h"
#include "cpu/gemm_kernels.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"

namespace mxq::cpu {
namespace {

MXQ_HD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Tells whether one fp32 scale stands for a whole row of B.
MXQ_HD bool has_line_scale(const QuantizedPart& part) {
    return part.scale_type == ScaleType::F32 && part.layout.block == MXQ_MAX_DIM;
}

// Returns what the sums of a row of B are multiplied by: FP8's scale of a whole row, or NVFP4's global scale.
MXQ_HD float factor_of_sums(const QuantizedPart& b, int64_t line) {
    if (!has_line_scale(b)) return global_scale(b, 0);
    float factor;
    load_factors(b, 0, line, 0, 1, &factor);
    return factor;
}

MXQ_HD Order order_of(const QuantizedPart& b) {
    if (b.scale_type != ScaleType::None) return b.bits == 4 ? Order::nibbles : Order::bytes;
    return b.element == Element::Bf16 ? Order::pairs : Order::sixteens;
}

// Returns the bits of 2^exponent.
constexpr uint32_t power_of_two(int exponent) { return uint32_t(127 + exponent) << 23; }

// Returns `lowest`: values in [2^lowest, 2^64) have products that are exact, or normal numbers where they are rounded. Those
// of MX types are multiples of 2^-74 then. F32, and FP8 under fp32 scales, have more bits than fit with those, so their
// products with them are rounded.
int lowest_of(const QuantizedPart& part) {
    if (part.scale_type == ScaleType::E8M0) return -71;
    return part.element == Element::F32 || part.scale_type == ScaleType::F32 ? -52 : -63;
}

// Magnitudes of factors under which all nonzero values of an element are in that range.
struct SafeFactors {
    float low, high;
};

// Returns the safe factors of E under a kind of scales.
template <class E>
SafeFactors safe_factors(ScaleType type) {
    constexpr int smallest = 1 - E::bias - E::mantissa_bits;  // the exponent of the smallest value
    const int low = (type == ScaleType::E8M0 ? -74 : type == ScaleType::F32 ? -51 : -62) - smallest;
    return {bits_float(power_of_two(low)), bits_float(power_of_two(62 - E::emax))};
}

SafeFactors safe_factors(const QuantizedPart& part) {
    return with_element(part.element, [&]<class E>(E) { return safe_factors<E>(part.scale_type); });
}

// Tells whether all factors, times `global`, have safe magnitudes.
bool are_safe(const float* factors, int64_t count, const SafeFactors& safe, float global = 1) {
    const uint32_t first = float_bits(safe.low), span = float_bits(safe.high) - first;
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) any |= (float_bits(multiply_rn(factors[i], global)) & kMagnitudeMask) - first > span;
    return any == 0;
}

// Returns whether a nonzero value is out of [2^lowest, 2^beyond).
bool leaves_range(const float* values, int64_t count, int lowest, int beyond = 64) {
    const uint32_t first = power_of_two(lowest), span = power_of_two(beyond) - 1 - first;
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
        any |= uint32_t(magnitude - first > span) & uint32_t(magnitude != 0);
    }
    return any != 0;
}

bool has_nonzero(const float* values, int64_t count) {
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) any |= float_bits(values[i]) & kMagnitudeMask;
    return any != 0;
}

// Loads the numbers of a plain K-major row, which lie at any address.
template <class T>
void load_numbers(const uint8_t* from, int64_t count, float* out) {
    for (int64_t i = 0; i < count; i++) {
        T number;
        memcpy(&number, from + i * int64_t(sizeof number), sizeof number);
        out[i] = to_float(number);
    }
}

using LoadNumbers = decltype(&load_numbers<float>);

LoadNumbers load_numbers_of(Element element) {
    return element == Element::F32 ? load_numbers<float> : element == Element::F16 ? load_numbers<F16> : load_numbers<Bf16>;
}

// Decodes the K-major rows of one operand.
struct OperandReader {
    const QuantizedPart& part;
    const DecodeSixteens decode;
    const LoadNumbers load_numbers;
    const SafeFactors safe;
    const float global;

    explicit OperandReader(const QuantizedPart& part) : OperandReader(part, global_scale(part, 0)) {}

    // Decodes as if the scale above the block scales were `global`.
    OperandReader(const QuantizedPart& part, float global)
        : part(part),
          decode(decode_sixteens_of(part)),
          load_numbers(load_numbers_of(part.element)),
          safe(safe_factors(part)),
          global(global) {}

    // Stores the values of codes [k, k + depth) of a K-major row. Returns whether the K-major row is extreme: it has a
    // nonzero value out of the range in which products are exact.
    bool read(int64_t line, int64_t k, int64_t depth, float* out) const {
        const uint8_t* codes = line_of(part, 0, line, k);
        if (part.scale_type == ScaleType::None) {
            load_numbers(codes, depth, out);
            return leaves_range(out, depth, lowest_of(part));
        }
        float factors[kGemmDepth / kSixteen] = {};
        load_sixteenths(part, 0, line, k, depth, factors);
        decode(codes, depth, factors, global, out);
        return !are_safe(factors, ceil_div(depth, kSixteen), safe, global) && leaves_range(out, depth, lowest_of(part));
    }
};

// Marks the K-major rows of which a value makes them extreme, one value of each K-major row. Returns whether there are any.
bool mark_extreme(const float* values, int64_t count, int lowest, uint8_t* extreme) {
    bool any = false;
    for (int64_t i = 0; i < count; i++)
        if (leaves_range(values + i, 1, lowest)) extreme[i] = any = true;
    return any;
}

// Decodes code `k` of operands that are not K-major, which is a chunk of the stored row k. Calls take(first, values, count)
// with values of K-major rows first, first + 1, ..., counted from the first of `lines`, until it had all. Marks extreme
// K-major rows, and returns whether there are any.
template <class Take>
bool read_across(const OperandReader& reader, const OperandLines& lines, int64_t k, uint8_t* extreme, const Take& take) {
    alignas(64) float values[kGemmDepth];
    const int64_t end = lines.first + lines.count;
    const int64_t begin = reader.part.scale_type == ScaleType::None ? lines.first : lines.first / kSixteen * kSixteen;
    bool any = false;
    for (int64_t at = begin; at < end; at += kGemmDepth) {
        const int64_t count = end - at < kGemmDepth ? end - at : kGemmDepth;
        const int64_t before = at < lines.first ? lines.first - at : 0, first = at + before - lines.first;
        const bool leaves = reader.read(k, at, count, values);
        take(first, values + before, count - before);
        if (leaves) any |= mark_extreme(values + before, count - before, lowest_of(reader.part), extreme + first);
    }
    return any;
}

}  // namespace
}  // namespace mxq::cpu
