// Products of few rows of A with many lines of B, compiled once per instruction set (MXQ_ISA: scalar, avx2, avx512). Codes
// of B are decoded in registers and are never stored:
//
//     rows of A, prepared        k0 ... k15 of row 0 | of row 1 | ... | k16 ... k31 of row 0 | ...     fp32, in L1
//     lines of B, up to four     32 codes each, as they are stored -> fp32, times their factor
//     sums                       sixteen for each row and line: lane l has every sixteenth product from l on
//
// The order of a sum is fixed: the products of a lane in their order along the contraction from +0 on, then the lanes as a
// tree (cpu/lanes.h). Neither threads nor passes nor the width of vectors touch it. As in gemm_kernels.cpp a multiply-add is
// fused only where the product is exact: MX, times MX, BF16 or F16, in range. Lines with factors that may leave it are
// decoded to memory by an OperandReader first.
//
// A line of B costs its bytes once for all rows of a pass. With one or two rows these bytes are the bound (13 GB/s of MXFP4
// on one Zen 4 core that reads 18 GB/s), with more the multiply-adds. Lines that come next are prefetched to L2, because the
// hardware's streams end with each line. Only the table at the end has external linkage.
#include "cpu/few_rows_kernels.h"

#include <cstring>
#include <utility>

#include "cpu/few_rows_weights.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kRowCounts[] = {1, 2, 3, 4, 6, 8};
constexpr int columns_for(int rows) { return rows <= 4 ? 4 : 2; }
#elif defined(__AVX2__)
constexpr int kRowCounts[] = {1, 2, 3, 4};
constexpr int columns_for(int rows) { return rows == 1 ? 2 : 1; }
#else
constexpr int kRowCounts[] = {1, 2, 4, 8};
constexpr int columns_for(int) { return 1; }
#endif
constexpr int kRowCountCount = sizeof kRowCounts / sizeof kRowCounts[0];
constexpr int kMostRows = kRowCounts[kRowCountCount - 1];
constexpr int64_t kMostFactors = few_rows_depth(1) / kSixteen;

MXQ_HD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int index_of_rows(int64_t rows) {
    int index = 0;
    while (kRowCounts[index] < rows) index++;
    return index;
}

// Implements FewRowsKernels::padded.
int64_t padded(int64_t rows) { return kRowCounts[index_of_rows(rows)]; }

// Lines of B that are multiplied together.
struct Columns {
    const uint8_t* codes[kFewColumns];
    const uint8_t* last[kFewColumns];  // the last 32 codes, filled up with zeros, where the depth is no multiple of 32
    const float* factors[kFewColumns];
    int64_t units;     // whole ones
    int factor_shift;  // units that share a factor, as a power of two
    int64_t to_next;   // bytes from a line to the one that takes its place next
    int64_t count;     // how many lines there are; the others repeat one
    float global;
};

// Multiplies one unit of `columns` lines with the rows.
template <bool fused, int row_count, int columns, class Weights>
MXQ_HD void multiply_unit(const Weights& weights, const uint8_t* const (&codes)[columns], const Columns& b, int64_t unit,
                          const float* rows, Lanes (&sums)[row_count][columns]) {
    Lanes values[columns][2];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        weights.decode(codes[c], b.factors[c] + (unit >> b.factor_shift) * Weights::factors, values[c]);
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
    const Weights weights{b.global};
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
        multiply_unit<fused, row_count, columns>(weights, codes, b, unit, rows, sums);
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) codes[c] += Weights::unit_bytes;
    }
    if (b.units * kUnit < pass.depth) {
        for (int c = 0; c < columns; c++) codes[c] = b.last[c];
        multiply_unit<fused, row_count, columns>(weights, codes, b, b.units, rows, sums);
    }

#pragma GCC unroll 8
    for (int r = 0; r < row_count; r++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            const Lanes ordered = Weights::interleaved ? in_order(sums[r][c]) : sums[r][c];
            if (!pass.last)
                store_lanes(sums[r][c], lanes + (c * row_count + r) * kLanes);
            else if (c < b.count)
                pass.sums[r * pass.stride + first_column + c] = sum_of_lanes(ordered);
        }
}

using MultiplyColumns = void (*)(const FewRowsPass&, const Columns&, int64_t first_column);

// A kernel for each count of rows, and what it asks of its operands.
struct Kernel {
    MultiplyColumns multiply[kRowCountCount];
    int64_t unit_bytes, factors;
    float fold;
    bool interleaved;
};

template <class Weights, bool fused, int... index>
constexpr Kernel kernel_with(std::integer_sequence<int, index...>) {
    return {{multiply_columns<Weights, fused, kRowCounts[index]>...},
            Weights::unit_bytes,
            Weights::factors,
            Weights::fold,
            Weights::interleaved};
}

template <class Weights, bool fused>
constexpr Kernel kernel = kernel_with<Weights, fused>(std::make_integer_sequence<int, kRowCountCount>());

// Returns the kernel for decoded lines beside rows in the order of another kernel.
const Kernel& kernel_of_values(bool interleaved) {
    return interleaved ? kernel<PlainWeights<float, kInterleavesE2M1>, false> : kernel<PlainWeights<float>, false>;
}

const Kernel& kernel_of(const QuantizedPart& b, bool exact) {
    if (b.element == Element::F32) return kernel<PlainWeights<float>, false>;
    if (b.element == Element::F16) return kernel<PlainWeights<F16>, false>;
    if (b.element == Element::Bf16) return kernel<PlainWeights<Bf16>, false>;
    if (b.scale_type == ScaleType::E4M3) return kernel<QuantizedWeights<E2M1, true>, false>;
    const Kernel* found = with_element(b.element, [&]<class E>(E) {
        return exact ? &kernel<QuantizedWeights<E, false>, true> : &kernel<QuantizedWeights<E, false>, false>;
    });
    return *found;
}

// Implements FewRowsKernels::prepare.
void prepare(const FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, uint8_t* extreme, uint8_t* nonzero) {
    const OperandReader reader(a.part);
    const bool interleaved = kernel_of(b, false).interleaved;
    const int64_t all = round_up(pass.depth, kUnit);
    std::memset(pass.rows, 0, size_t(pass.row_count * all) * sizeof(float));
    alignas(64) float values[kGemmDepth];
    for (int64_t line = 0; line < a.count; line++)
        for (int64_t at = 0; at < pass.depth; at += kGemmDepth) {
            const int64_t depth = least(kGemmDepth, pass.depth - at), whole = round_up(depth, kLanes);
            if (reader.read(a.first + line, pass.k + at, depth, values)) extreme[line] = true;
            for (int64_t i = depth; i < whole; i++) values[i] = 0;
            uint32_t any = 0;
            for (int64_t i = 0; i < whole; i++) any |= float_bits(values[i]) & kMagnitudeMask;
            if (any) nonzero[line] = true;
            for (int64_t i = 0; i < whole; i += kLanes) {
                const Lanes sixteen = load_lanes(values + i);
                store_lanes(interleaved ? alternating(sixteen) : sixteen,
                            pass.rows + ((at + i) / kLanes * pass.row_count + line) * kLanes);
            }
        }
}

// Returns whether a magnitude of `count` factors, times global, is out of [low, high], or a factor is NaN.
bool leave(const float* factors, int64_t count, float global, const SafeFactors& safe) {
    const uint32_t first = float_bits(safe.low), span = float_bits(safe.high) - first;
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++)
        any |= uint32_t((float_bits(multiply_rn(factors[i], global)) & kMagnitudeMask) - first > span);
    return any != 0;
}

// Loads the factors of the blocks that codes [k, k + depth) of a line lie in. Returns false if one is not safe.
bool load_safe_factors(const OperandReader& reader, int64_t line, int64_t k, int64_t depth, float fold, float* to) {
    constexpr int64_t at_a_time = kLineSixteens;
    const QuantizedPart& part = reader.part;
    const int shift = block_shift(part.layout);
    const int64_t begin = k >> shift, count = ((k + depth - 1) >> shift) + 1 - begin;
    for (int64_t i = 0; i < count; i += at_a_time)
        load_factors(part, 0, line, begin + i, least(at_a_time, count - i), to + i);
    if (leave(to, count, reader.global, reader.safe)) return false;
    for (int64_t i = 0; i < count; i++) to[i] = multiply_rn(to[i], fold);
    return true;
}

// The memory of the lines that are multiplied together.
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
          reader_(b.part),
          kernel_(kernel_of(b.part, pass.exact)),
          of_values_(kernel_of_values(kernel_.interleaved)),
          rows_(index_of_rows(pass.row_count)) {}

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
        if (is_plain()) return std::memset(unsafe, 1, size_t(count)), true;
        bool all = true;
        for (int64_t i = 0; i < count; i++) {
            const int64_t line = b_.first + first + i;
            if (!load_safe_factors(reader_, line, pass_.k, pass_.depth, kernel_.fold, buffers_.factors[i]))
                unsafe[i] = 1, all = false;
        }
        return all;
    }

    void multiply_codes(int64_t first, int64_t count, int64_t width) {
        Columns columns = columns_of(count, width * b_.part.line_bytes);
        for (int64_t i = 0; i < width; i++) {
            const int64_t from = least(i, count - 1);
            columns.codes[i] = b_.part.line(0, b_.first + first + from) + pass_.k * b_.part.bits / 8;
            columns.factors[i] = buffers_.factors[from];
            columns.last[i] = buffers_.last[from];
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
        columns.global = reader_.global;
        return columns;
    }

    // Copies the codes after the last whole unit of a line, and fills up with zeros.
    void copy_last(const uint8_t* codes, int64_t bits, int64_t unit_bytes, int64_t index) {
        const int64_t begin = pass_.depth / kUnit * unit_bytes;
        uint8_t* const last = buffers_.last[index];
        std::memset(last, 0, sizeof buffers_.last[index]);
        std::memcpy(last, codes + begin, size_t(packed_bytes(pass_.depth % kUnit, int(bits))));
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

const FewRowsKernels MXQ_TABLE(MXQ_ISA) = {kMostRows, padded, prepare, multiply};

}  // namespace mxq::cpu
