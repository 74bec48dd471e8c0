// Products of few rows of A with many K-major rows of B, compiled once per instruction set (MXQ_ISA: avx2, avx512bw, avx512,
// which has VBMI, and avx512bf16). Processors without AVX2 take gemm_kernels.cpp. The headers have a method each:
//
//     few_rows_blocks.h       codes with a few rows, decoded in registers and never stored (AVX-512)
//     few_rows_ahead.h        codes, and plain numbers with more rows (AVX2)
//     few_rows_integers.h     4-bit codes with one row in fixed point (AVX2)
//     few_rows_strips.h       all others
//
//     rows of A    prepared, fp32 or pairs of BF16:  128 numbers of row 0 | of row 1 | ... | the next of row 0 | ...
//     rows of B    up to four:                       units of 128 codes or numbers, as they are stored
//     sums         sixteen lanes for each row of A and of B
//
// The order of a sum is fixed. Lanes sum the products of a unit's codes that share a factor, in the order of code_at()
// (few_rows_order.h). They multiply that by the factor and add it to their sums. At the end a tree adds the lanes
// (cpu/lanes.h). Neither threads nor passes nor the width of vectors change it. A product, or a sum times its factor, is
// added with one rounding. Scalar code without such an instruction multiplies and adds where products are exact. Products
// with codes are exact for rows of BF16, F16 and MX. It makes all others in double (fused_multiply_add()).
//
// BF16 dot products (vdpbf16ps) give the same bits where products are exact. The instruction adds the product of the upper
// numbers, then that of the lower ones, each sum rounded to nearest. AMD and Intel agree, which millions of draws compared
// with two fp32 multiply-adds. It takes subnormals as zero, but there are none. Rows have no value below 2^-71, since
// extreme rows are multiplied in another way. Codes have none below 2^-16, and sums are multiples of the product of the last
// bits. Rows of B in BF16 with smaller numbers are multiplied in another way, too (are_exact()). Integers give the same bits
// where sums are exact. VNNI, which adds products of bytes, gained too little there (docs/cpu-few-rows.md). AMX sums 32
// products at a time in an order that no other instruction set could follow at speed.
//
// Rows of A with values out of the range in which products are exact are multiplied with codes times factors. Rows of B
// whose factors may leave that range are decoded to memory by an OperandReader first. NVFP4's global scale of B and FP8's
// scale of a whole row multiply the sum.
//
// The next rows of B are prefetched to L2, because the hardware's streams end with each row. docs/cpu-few-rows.md says what
// bounds which format. Only the table at the end has external linkage.
#include "cpu/few_rows_kernels.h"

#include <algorithm>
#include <cstring>

#include "cpu/few_rows_ahead.h"
#include "cpu/few_rows_blocks.h"
#include "cpu/few_rows_factors.h"
#include "cpu/few_rows_integers.h"
#include "cpu/few_rows_strips.h"
#include "cpu/few_rows_weights.h"
#include "cpu/gemm_repair.h"

namespace mxq::cpu {
namespace {

// Builds share kernels that they would compile alike (other_build()). That for BF16 dot products has no others. That with
// VBMI has those of codes of six and eight bits.
#if defined(__AVX512VBMI__) && !defined(__AVX512BF16__)
constexpr bool kHasWideCodesAlone = true;
#else
constexpr bool kHasWideCodesAlone = false;
#endif

// Returns the build that has the kernels of such products, or nullptr for this one.
const FewRowsKernels* other_build([[maybe_unused]] Products products, [[maybe_unused]] const QuantizedPart& b) {
#if defined(__AVX512BF16__)
    if (products != Products::dots) return &avx512_few_rows_kernels;
#elif defined(__AVX512VBMI__)
    if (b.scale_type == ScaleType::None || b.bits == 4) return &avx512bw_few_rows_kernels;
#endif
    return nullptr;
}

// Returns false, and leaves sums as they were, where there is a NaN that decoding loses.
using MultiplyColumns = bool (*)(const FewRowsPass&, const Columns&);

// A function for any number of rows, and what it asks of its operands.
struct Kernel {
    MultiplyColumns multiply;
    int64_t unit_bytes;
    float fold;
};

template <class Weights, Products products>
bool multiply_lines(const FewRowsPass& pass, const Columns& b) {
    if constexpr (kHasIntegers<Weights, products>)
        if (pass.integers) return multiply_integers<Weights>(pass, b), true;
    return multiply_strips<Weights, products>(pass, b);
}

template <class Weights, Products products>
constexpr Kernel kernel = {multiply_lines<Weights, products>, Weights::unit_bytes, Weights::fold};

// Returns the kernel of this build. Exact products are multiplied by the kernel of any products.
template <class Weights>
const Kernel& kernel_for() {
    return kernel<Weights, kHasDots ? Products::dots : Products::fused>;
}

template <class E>
const Kernel& kernel_of_codes(const QuantizedPart& b) {
    if constexpr (E::bits == 4)
        if (b.scale_type == ScaleType::E4M3) return kernel_for<QuantizedWeights<E, kNvBlock>>();
    if constexpr (E::bits == 8) {
        if (has_line_scale(b)) return kernel_for<LineWeights<E>>();
        if (b.scale_type == ScaleType::F32) return kernel_for<QuantizedWeights<E, 128>>();
    }
    return kernel_for<QuantizedWeights<E, kMxBlock>>();
}

const Kernel& kernel_of(const QuantizedPart& b) {
    if constexpr (!kHasDots && !kHasWideCodesAlone) {
        if (b.element == Element::F32) return kernel_for<PlainWeights<float>>();
        if (b.element == Element::F16) return kernel_for<PlainWeights<F16>>();
    }
    if constexpr (!kHasWideCodesAlone)
        if (b.element == Element::Bf16) return kernel_for<PlainWeights<Bf16>>();
    const Kernel* found = with_element(b.element, [&]<class E>(E) -> const Kernel* {
        if constexpr (E::bits == 4 && kHasWideCodesAlone)
            return nullptr;
        else
            return &kernel_of_codes<E>(b);
    });
    return *found;
}

// Makes integers of a prepared row, where it is multiplied so.
void make_integers_for([[maybe_unused]] FewRowsPass& pass, [[maybe_unused]] const QuantizedPart& a,
                       [[maybe_unused]] const QuantizedPart& b, [[maybe_unused]] const uint8_t* extreme) {
    pass.integers = nullptr;
#if !defined(__AVX512F__)
    static_assert(sizeof(IntegerRow) <= kIntegerRoom);
    const bool has_codes = b.element == Element::E2M1 && pass.products == Products::exact;
    if (!has_codes || pass.row_count > 1 || extreme[0] || pass.stride < kLinesForIntegers) return;
    IntegerRow& row = *static_cast<IntegerRow*>(pass.integer_room);
    if (make_integers(pass, significant_bits(a), row)) pass.integers = &row;
#endif
}

// Implements FewRowsKernels::prepare.
void prepare(FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, uint8_t* extreme, uint8_t* nonzero) {
    if (!kHasDots && pass.products == Products::dots) pass.products = Products::exact;
    const bool packed = pass.products == Products::dots;
    const int64_t unit = packed ? kUnit / 2 : kUnit;
    const OperandReader reader(a.part);
    const Order order = order_of(b);
    alignas(64) float values[kGemmDepth];
    for (int64_t line = 0; line < a.count; line++)
        for (int64_t at = 0; at < pass.depth; at += kGemmDepth) {
            const int64_t depth = least(kGemmDepth, pass.depth - at);
            if (reader.read(a.first + line, pass.k + at, depth, values)) extreme[line] = true;
            if (has_nonzero(values, depth)) nonzero[line] = true;
            store_units(order, packed, values, depth, pass.rows + (at / kUnit * pass.row_count + line) * unit,
                        pass.row_count * unit);
        }
#if !defined(__AVX512F__)
    for (int64_t i = 0; order == Order::nibbles && i < round_up(pass.depth, kUnit) * pass.row_count; i += kLanes)
        interleave_lanes(pass.rows + i);
#endif
    make_integers_for(pass, a.part, b, extreme);
}

// Sums of products of rows in range with BF16 numbers that are zero or in [2^-45, 2^62), which are multiples of 2^-74, are
// zero or normal numbers. These are the magnitudes' bits.
constexpr uint16_t kLeastExact = (127 - 45) << 7, kBeyondExact = (127 + 62) << 7;

// Returns whether all these BF16 numbers are zero or in [kLeastExact, kBeyondExact).
bool are_exact(const uint8_t* numbers, int64_t count) {
    uint16_t smallest = 0xFFFF, largest = 0;  // the first of all but zeros, less one
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, numbers + i * int64_t(sizeof bits), sizeof bits);
        const uint16_t magnitude = bits & 0x7FFF, less_one = uint16_t(magnitude - 1);
        smallest = less_one < smallest ? less_one : smallest;
        largest = magnitude > largest ? magnitude : largest;
    }
    return smallest >= kLeastExact - 1 && largest < kBeyondExact;
}

// Holds the rows of B that are multiplied together.
struct ColumnBuffers {
    alignas(64) float factors[2 * kFewColumns - 1][kMostFactors] = {};  // the last ones belong with those of a single line
    alignas(64) uint8_t last[kFewColumns][kUnit * sizeof(float)];
};

// Multiplies rows of B, a few at a time: neighbours, or rows of B as far apart as there are groups of them, of which each is
// followed by its neighbour, so that they are streams of memory that go on from row of B to row of B:
//
//     near     0 1 2 3 | 4 5 6 7 | ..                     far     0 a 2a 3a | 1 a+1 2a+1 3a+1 | ..
//
// Far ones begin pages of memory together, and the TLB serves all of them at once, which is faster where a row of B takes a
// short time. Near ones are one stretch of memory, which kernels that decode ahead prefetch in its order
// (docs/cpu-few-rows.md).
class LinesOfB {
public:
    LinesOfB(const FewRowsPass& pass, const OperandLines& b)
        : pass_(pass),
          b_(b),
          reader_(b.part, 1.0f),
          kernel_(kernel_of(b.part)),
          is_far_(!kDecodesAhead || kernel_.unit_bytes > kUnit || pass.integers != nullptr),
          lines_ahead_(is_far_ && b.part.scale_type != ScaleType::None ? lines_ahead(b.part.line_bytes)
                       : is_far_                                       ? 1
                                                                       : kStripLines) {}

    void multiply(uint8_t* again) {
        constexpr int64_t width = kStripLines;
        const int64_t groups = b_.count / width, rest = b_.count % width;
        for (int64_t i = 0; i < groups; i++) multiply(is_far_ ? Group{i, groups, width} : Group{i * width, 1, width}, again);
        // Where they must lie at equal distances, those at the end go one by one.
        const int64_t together = kDecodesAhead ? 1 : rest;
        for (int64_t i = b_.count - rest; i < b_.count; i += together) multiply({i, 1, together}, again);
    }

private:
    // Names the rows of B first, first + apart and so on, `count` of them.
    struct Group {
        int64_t first, apart, count;

        int64_t line(int64_t i) const { return first + i * apart; }
        Group alone(int64_t i) const { return {line(i), 1, 1}; }
    };

    // Returns how many rows of codes ahead is prefetched: one, or as many short ones as have the bytes that are read until
    // memory answers.
    static int64_t lines_ahead(int64_t line_bytes) {
        constexpr int64_t until_answer = 2048;
        return std::max(int64_t(1), until_answer / std::max(int64_t(1), line_bytes));
    }

    void multiply(const Group& group, uint8_t* again) {
        bool safe[kFewColumns];
        if (read_factors(group, safe) && multiply_codes(group, 0)) return;
        for (int64_t i = 0; i < group.count; i++)
            if (!safe[i] || !multiply_codes(group.alone(i), i)) again[group.line(i)] = 1;
    }

    // Tells which rows of BF16 numbers have exact products with the rows of this pass. Returns whether all have, or products
    // need not be exact.
    bool read_numbers(const Group& group, bool* safe) {
        for (int64_t i = 0; i < group.count; i++) safe[i] = true;
        if (b_.part.element != Element::Bf16 || pass_.products > Products::exact) return true;
        bool all = true;
        for (int64_t i = 0; i < group.count; i++)
            all &= safe[i] = are_exact(line_of(b_.part, 0, b_.first + group.line(i), pass_.k), pass_.depth);
        return all;
    }

    // Loads the factors of rows of B. Tells which rows of B have values in range for sure, or products that need not be
    // exact. Returns whether all have.
    bool read_factors(const Group& group, bool* safe) {
        if (b_.part.scale_type == ScaleType::None) return read_numbers(group, safe);
        const ScalesInLines scales(b_, pass_.k, pass_.depth);
        const bool in_order = pass_.integers != nullptr;
        const auto load_each = [&](const auto& load) __attribute__((always_inline)) {
            bool all = true;
            for (int64_t i = 0; i < group.count; i++) {
                safe[i] = load(group.line(i), buffers_.factors[i]);
                all &= safe[i];
            }
            return all;
        };
        const auto load_in_lines = [&](const auto& factors_of) __attribute__((always_inline)) {
            return load_each([&](int64_t line, float* to) __attribute__((always_inline)) {
                const uint8_t* const from = scales.of_line(b_.first + line);
                prefetch_scales(from, scales.count);
                return factors_of(from, scales.count, in_order, to);
            });
        };
        if (scales.count > 0 && b_.part.scale_type == ScaleType::E4M3) return load_in_lines(factors_of_e4m3);
        if (scales.count > 0) return load_in_lines(E8m0Factors(reader_.safe, kernel_.fold));
        return load_each([&](int64_t line, float* to) {
            return load_safe_factors(b_.part, reader_.safe, b_.first + line, pass_.k, pass_.depth, kernel_.fold, in_order,
                                     to);
        });
    }

    // Prefetches the scales of a row of B that comes later, of which there are `bytes` here. Those of near rows of B are
    // neighbours, which a processor finds by itself where they are few.
    void prefetch_scales(const uint8_t* from, int64_t bytes) const {
        if (!is_far_ && b_.part.scale_type != ScaleType::E4M3) return;
        const int64_t to_next = lines_ahead_ * b_.part.layout.line_stride;
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + to_next + at);
    }

    // Multiplies rows of B whose factors are in the buffers from one on. Returns false, and does nothing, where one has a
    // NaN that the kernel would take for a number.
    bool multiply_codes(const Group& group, int64_t buffer) {
        Columns columns;
        columns.units = pass_.depth / kUnit;
        columns.to_next = lines_ahead_ * b_.part.line_bytes;
        columns.first = group.first, columns.apart = group.apart, columns.count = group.count;
        for (int64_t i = 0; i < kStripLines; i++) {
            const int64_t from = least(i, group.count - 1), line = b_.first + group.line(from);
            columns.codes[i] = line_of(b_.part, 0, line, pass_.k);
            columns.factors[i] = buffers_.factors[buffer + (kDecodesAhead ? i : from)];
            columns.last[i] = buffers_.last[from];
            columns.line_factor[i] = factor_of_sums(b_.part, line);
        }
        if (columns.units * kUnit < pass_.depth)
            for (int64_t i = 0; i < group.count; i++) copy_last(columns.codes[i], i);
        return kernel_.multiply(pass_, columns);
    }

    // Copies the codes after the last whole unit of a row of B, and fills up with zeros.
    void copy_last(const uint8_t* codes, int64_t index) {
        const int64_t begin = pass_.depth / kUnit * kernel_.unit_bytes;
        uint8_t* const last = buffers_.last[index];
        memset(last, 0, size_t(kernel_.unit_bytes));
        // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): codes that are copied are there.
        memcpy(last, codes + begin, size_t(packed_bytes(pass_.depth % kUnit, b_.part.bits)));
    }

    FewRowsPass pass_;
    const OperandLines& b_;
    const OperandReader reader_;
    const Kernel& kernel_;
    const bool is_far_;
    const int64_t lines_ahead_;
    ColumnBuffers buffers_;
};

void multiply(const FewRowsPass& pass, const OperandLines& b, uint8_t* again) {
    if (const FewRowsKernels* const other = other_build(pass.products, b.part)) return other->multiply(pass, b, again);
    LinesOfB(pass, b).multiply(again);
}

}  // namespace

#define MXQ_JOIN(a, b) a##b
#define MXQ_TABLE(isa) MXQ_JOIN(isa, _few_rows_kernels)

const FewRowsKernels MXQ_TABLE(MXQ_ISA) = {kHasDots, prepare, multiply};

}  // namespace mxq::cpu
