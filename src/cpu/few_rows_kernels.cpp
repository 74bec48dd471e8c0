// Products of few rows of A with many lines of B, compiled once per instruction set (MXQ_ISA: scalar, avx2, avx512). Codes
// of B are decoded in registers and never stored:
//
//     rows of A    prepared, fp32, in L1:  sixteen numbers of row 0 | of row 1 | ... | the next sixteen of row 0 | ...
//     lines of B   up to four:             32 codes each, as they are stored -> fp32, times their factor
//     sums         sixteen lanes for each row and line
//
// The order of a sum is fixed. Of 32 products lane l adds numbers 2 l and 2 l + 1, or where B has four-bit codes, F16 or F32
// numbers l and l + 16; the lanes are added as a tree (cpu/lanes.h). Neither threads nor passes nor the width of vectors
// touch it. As in gemm_kernels.cpp a multiply-add is fused only where the product is exact: of MX, BF16 or F16 rows with
// codes times block scales. Lines whose factors may leave the range of that are decoded to memory by an OperandReader first.
// NVFP4's global scale of B and FP8's scale of a whole line multiply the sum.
//
// A line of B costs its bytes once for four rows. With one row these bytes are the bound or close to it (13 GB/s of MXFP4 on
// one Zen 4 core that reads 18 GB/s), with more the multiply-adds. Lines that come next are prefetched to L2, because the
// hardware's streams end with each line. Only the table at the end has external linkage.
#include "cpu/few_rows_kernels.h"

#include <cstring>
#include <utility>

#include "cpu/few_rows_weights.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int columns_for(int) { return 4; }
#elif defined(__AVX2__)
constexpr int columns_for(int rows) { return rows == 1 ? 2 : 1; }
#else
constexpr int columns_for(int) { return 1; }
#endif
constexpr int64_t kMostFactors = few_rows_depth(1) / kSixteen;

MXQ_HD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Lines of B that are multiplied together.
struct Columns {
    const uint8_t* codes[kFewColumns];
    const uint8_t* last[kFewColumns];  // the last 32 codes, filled up with zeros, where the depth is no multiple of 32
    const float* factors[kFewColumns];
    int64_t units;                   // whole ones
    int factor_shift;                // units that share a factor, as a power of two
    int64_t to_next;                 // bytes from a line to the one that takes its place next
    int64_t count;                   // how many lines there are; the others repeat one
    float line_factor[kFewColumns];  // what sums are multiplied by
};

// Multiplies one unit of `columns` lines with the rows.
template <class Weights, bool fused, int row_count, int columns>
MXQ_HD void multiply_unit(const uint8_t* const (&codes)[columns], const Columns& b, int64_t unit, const float* rows,
                          Lanes (&sums)[row_count][columns]) {
    Lanes values[columns][2];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        Weights::decode(codes[c], b.factors[c] + (unit >> b.factor_shift) * Weights::factors, values[c]);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 8
        for (int r = 0; r < row_count; r++) {
            const Lanes row = load_lanes(rows + (i * row_count + r) * kLanes);
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) sums[r][c] = multiply_add<fused>(row, values[c][i], sums[r][c]);
        }
}

template <class Weights, bool fused, int row_count>
void multiply_columns(const FewRowsPass& pass, const Columns& b, int64_t first_column) {
    constexpr int columns = columns_for(row_count);
    constexpr int64_t between_prefetches = Weights::unit_bytes < 64 ? 64 / Weights::unit_bytes : 1;
    constexpr int64_t unit_floats = kUnit * row_count;
    float* const lanes = pass.lanes + first_column * row_count * kLanes;
    Lanes sums[row_count][columns];
#pragma GCC unroll 8
    for (int r = 0; r < row_count; r++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            sums[r][c] = pass.first ? no_lanes() : load_lanes(lanes + (c * row_count + r) * kLanes);

    const uint8_t* codes[columns];
    for (int c = 0; c < columns; c++) codes[c] = b.codes[c];
    const float* rows = pass.rows;
    for (int64_t unit = 0; unit < b.units; unit++, rows += unit_floats) {
        if (unit % between_prefetches == 0) {
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) __builtin_prefetch(codes[c] + b.to_next, 0, 2);
        }
        multiply_unit<Weights, fused, row_count, columns>(codes, b, unit, rows, sums);
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) codes[c] += Weights::unit_bytes;
    }
    if (b.units * kUnit < pass.depth) {
        for (int c = 0; c < columns; c++) codes[c] = b.last[c];
        multiply_unit<Weights, fused, row_count, columns>(codes, b, b.units, rows, sums);
    }

#pragma GCC unroll 8
    for (int r = 0; r < row_count; r++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            if (!pass.last)
                store_lanes(sums[r][c], lanes + (c * row_count + r) * kLanes);
            else if (c < b.count)
                pass.sums[r * pass.stride + first_column + c] =
                    multiply_rn(sum_of_lanes(Weights::order == Order::alternating ? in_order(sums[r][c]) : sums[r][c]),
                                b.line_factor[c]);
        }
}

using MultiplyColumns = void (*)(const FewRowsPass&, const Columns&, int64_t first_column);

// A kernel for each number of rows, and what it asks of its operands.
struct Kernel {
    MultiplyColumns multiply[kPassRows];
    int64_t unit_bytes, factors;
    float fold;
    Order order;
};

template <class Weights, bool fused, int... index>
constexpr Kernel kernel_with(std::integer_sequence<int, index...>) {
    return {{multiply_columns<Weights, fused, index + 1>...},
            Weights::unit_bytes,
            Weights::factors,
            Weights::fold,
            Weights::order};
}

template <class Weights, bool fused>
constexpr Kernel kernel = kernel_with<Weights, fused>(std::make_integer_sequence<int, kPassRows>());

// Returns the kernel for decoded lines beside rows in this order.
const Kernel& kernel_of_values(Order order) {
    return order == Order::pairs ? kernel<DecodedWeights<Order::pairs>, false> : kernel<DecodedWeights<kOrderOfE2M1>, false>;
}

const Kernel& kernel_of(const QuantizedPart& b, bool exact) {
    if (b.element == Element::F32) return kernel<PlainWeights<float>, false>;
    if (b.element == Element::F16) return kernel<PlainWeights<F16>, false>;
    if (b.element == Element::Bf16) return kernel<PlainWeights<Bf16>, false>;
    if (b.scale_type == ScaleType::E4M3)
        return exact ? kernel<QuantizedWeights<E2M1, kNvBlock>, true> : kernel<QuantizedWeights<E2M1, kNvBlock>, false>;
    const Kernel* found = with_element(b.element, [&]<class E>(E) {
        return exact ? &kernel<QuantizedWeights<E, kUnit>, true> : &kernel<QuantizedWeights<E, kUnit>, false>;
    });
    return *found;
}

// Implements FewRowsKernels::prepare.
void prepare(const FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, uint8_t* extreme, uint8_t* nonzero) {
    const OperandReader reader(a.part);
    const Order order = kernel_of(b, false).order;
    const int64_t all = round_up(pass.depth, kUnit);
    memset(pass.rows, 0, size_t(pass.row_count * all) * sizeof(float));
    alignas(64) float values[kGemmDepth];
    for (int64_t line = 0; line < a.count; line++)
        for (int64_t at = 0; at < pass.depth; at += kGemmDepth) {
            const int64_t depth = least(kGemmDepth, pass.depth - at), whole = round_up(depth, kUnit);
            if (reader.read(a.first + line, pass.k + at, depth, values)) extreme[line] = true;
            for (int64_t i = depth; i < whole; i++) values[i] = 0;
            uint32_t any = 0;
            for (int64_t i = 0; i < whole; i++) any |= float_bits(values[i]) & kMagnitudeMask;
            if (any) nonzero[line] = true;
            for (int64_t i = 0; i < whole; i += kUnit) {
                LanePair pair;
                arrange(order, load_lanes(values + i), load_lanes(values + i + kLanes), pair);
                float* const to = pass.rows + ((at + i) / kLanes * pass.row_count + line) * kLanes;
                store_lanes(pair[0], to);
                store_lanes(pair[1], to + pass.row_count * kLanes);
            }
        }
}

// Turns E8M0 scales to factors. Returns whether all are safe.
bool factors_of_e8m0(const uint8_t* scales, int64_t count, const SafeFactors& safe, float fold, float* to) {
    const uint32_t exponent = (float_bits(fold) >> 23) - 127;
    for (int64_t i = 0; i < count; i++) to[i] = bits_float((scales[i] + exponent) << 23);
    const uint8_t first = uint8_t(float_bits(safe.low) >> 23), span = uint8_t((float_bits(safe.high) >> 23) - first);
    uint8_t any = 0;
    for (int64_t i = 0; i < count; i++) any |= uint8_t(uint8_t(scales[i] - first) > span);
    return any == 0;
}

// Turns E4M3 scales, a multiple of 16, to factors. They are in range without the global scale, and NaN stays NaN.
void factors_of_e4m3(const uint8_t* scales, int64_t count, float fold, float* to) {
    for (int64_t i = 0; i < count; i += kSixteen)
        store_sixteen(times(decode_bytes_16<E4M3>(scales + i), sixteen_of(fold)), to + i);
}

// Loads fp32 scales of a line, which are a column_stride apart, as factors. Returns whether all are safe.
bool factors_of_fp32(const QuantizedPart& part, int64_t line, int64_t begin, int64_t count, const SafeFactors& safe,
                     float fold, float* to) {
    constexpr int64_t bytes = sizeof(float);
    const uint8_t* const from = part.scales + part.layout.offset(0, line, begin) * bytes;
    for (int64_t i = 0; i < count; i++) memcpy(to + i, from + i * part.layout.column_stride * bytes, bytes);
    const uint32_t first = float_bits(safe.low), span = float_bits(safe.high) - first;
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        any |= uint32_t((float_bits(to[i]) & kMagnitudeMask) - first > span);
        to[i] = multiply_rn(to[i], fold);
    }
    return any == 0;
}

// Tells whether one fp32 scale stands for a whole line.
bool has_line_scale(const QuantizedPart& part) {
    return part.scale_type == ScaleType::F32 && part.layout.block == MXQ_MAX_DIM;
}

// Loads the factors of the blocks that codes [k, k + depth) of a line lie in, and some more. Returns false if one is not
// safe.
bool load_safe_factors(const QuantizedPart& part, const SafeFactors& safe, int64_t line, int64_t k, int64_t depth,
                       float fold, float* to) {
    if (has_line_scale(part)) return to[0] = fold, true;
    const int shift = block_shift(part.layout);
    const int64_t begin = k >> shift, count = ((k + depth - 1) >> shift) + 1 - begin;
    if (part.scale_type == ScaleType::F32) return factors_of_fp32(part, line, begin, count, safe, fold, to);
    alignas(64) uint8_t scales[kMostFactors];
    load_scale_bytes(part, 0, line, begin, count, scales);
    const int64_t whole = round_up(count, kSixteen);
    memset(scales + count, scales[0], size_t(whole - count));
    if (part.scale_type == ScaleType::E4M3) return factors_of_e4m3(scales, whole, fold, to), true;
    return factors_of_e8m0(scales, whole, safe, fold, to);
}

// Holds the lines that are multiplied together.
struct ColumnBuffers {
    alignas(64) float factors[kFewColumns][kMostFactors];
    alignas(64) uint8_t last[kFewColumns][kUnit * sizeof(float)];
};

// Multiplies lines of B, a few at a time.
class LinesOfB {
public:
    LinesOfB(const FewRowsPass& pass, const OperandLines& b)
        : pass_(pass),
          b_(b),
          reader_(b.part, 1.0f),
          kernel_(kernel_of(b.part, pass.exact)),
          of_values_(kernel_of_values(kernel_.order)),
          rows_(int(pass.row_count) - 1) {}

    void multiply(uint8_t* unsafe) {
        const int64_t width = columns_for(int(pass_.row_count));
        for (int64_t first = 0; first < b_.count; first += width) {
            const int64_t count = least(width, b_.count - first);
            if (are_safe(first, count, unsafe + first))
                multiply_codes(first, count, width);
            else
                multiply_values(first, count, width);
        }
    }

private:
    bool is_plain() const { return b_.part.scale_type == ScaleType::None; }

    // Loads the factors. Returns whether values of the lines are in range for sure, or products are rounded in any case.
    bool are_safe(int64_t first, int64_t count, uint8_t* unsafe) {
        if (is_plain()) return memset(unsafe, 1, size_t(count)), true;
        bool all = true;
        for (int64_t i = 0; i < count; i++) {
            const int64_t line = b_.first + first + i;
            if (!load_safe_factors(b_.part, reader_.safe, line, pass_.k, pass_.depth, kernel_.fold, buffers_.factors[i]))
                unsafe[i] = 1, all = false;
        }
        return all;
    }

    void multiply_codes(int64_t first, int64_t count, int64_t width) {
        Columns columns = columns_of(count, width * b_.part.line_bytes);
        for (int64_t i = 0; i < width; i++) {
            const int64_t from = least(i, count - 1);
            columns.codes[i] = line_of(b_.part, 0, b_.first + first + from, pass_.k);
            columns.factors[i] = buffers_.factors[from];
            columns.last[i] = buffers_.last[from];
            columns.line_factor[i] = line_factor(b_.first + first + from);
        }
        if (columns.units * kUnit < pass_.depth)
            for (int64_t i = 0; i < count; i++) copy_last(columns.codes[i], b_.part.bits, kernel_.unit_bytes, i);
        kernel_.multiply[rows_](pass_, columns, first);
    }

    // Multiplies lines that leave the range: their values are decoded to memory.
    void multiply_values(int64_t first, int64_t count, int64_t width) {
        Columns columns = columns_of(count, 0);
        for (int64_t i = 0; i < width; i++) {
            const int64_t from = least(i, count - 1);
            float* const values = pass_.values + from * few_rows_depth(pass_.row_count);
            columns.codes[i] = reinterpret_cast<const uint8_t*>(values);
            columns.factors[i] = nullptr;
            columns.last[i] = buffers_.last[from];
            columns.line_factor[i] = line_factor(b_.first + first + from);
            for (int64_t at = 0; i < count && at < pass_.depth; at += kGemmDepth)
                reader_.read(b_.first + first + i, pass_.k + at, least(kGemmDepth, pass_.depth - at), values + at);
        }
        if (columns.units * kUnit < pass_.depth)
            for (int64_t i = 0; i < count; i++) copy_last(columns.codes[i], 32, of_values_.unit_bytes, i);
        of_values_.multiply[rows_](pass_, columns, first);
    }

    Columns columns_of(int64_t count, int64_t to_next) const {
        Columns columns{};
        columns.units = pass_.depth / kUnit;
        columns.to_next = to_next;
        columns.count = count;
        columns.factor_shift = is_plain() || kernel_.factors == 2 ? 0 : block_shift(b_.part.layout) - kUnitShift;
        return columns;
    }

    // Returns what the sums of a line are multiplied by.
    float line_factor(int64_t line) const {
        float factor = global_scale(b_.part, 0);
        if (has_line_scale(b_.part)) load_factors(b_.part, 0, line, 0, 1, &factor);
        return factor;
    }

    // Copies the codes after the last whole unit of a line, and fills up with zeros.
    void copy_last(const uint8_t* codes, int64_t bits, int64_t unit_bytes, int64_t index) {
        const int64_t begin = pass_.depth / kUnit * unit_bytes;
        uint8_t* const last = buffers_.last[index];
        memset(last, 0, sizeof buffers_.last[index]);
        memcpy(last, codes + begin, size_t(packed_bytes(pass_.depth % kUnit, int(bits))));
    }

    const FewRowsPass& pass_;
    const OperandLines& b_;
    const OperandReader reader_;
    const Kernel& kernel_;
    const Kernel& of_values_;
    const int rows_;
    ColumnBuffers buffers_;
};

// Implements FewRowsKernels::multiply.
void multiply(const FewRowsPass& pass, const OperandLines& b, uint8_t* unsafe) { LinesOfB(pass, b).multiply(unsafe); }

}  // namespace

#define MXQ_JOIN(a, b) a##b
#define MXQ_TABLE(isa) MXQ_JOIN(isa, _few_rows_kernels)

const FewRowsKernels MXQ_TABLE(MXQ_ISA) = {prepare, multiply};

}  // namespace mxq::cpu
