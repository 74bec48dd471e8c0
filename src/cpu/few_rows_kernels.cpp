// Products of few rows of A with many lines of B, compiled once per instruction set (MXQ_ISA: scalar, avx2, avx512bw,
// avx512, which has VBMI, and avx512bf16). Here are those of plain numbers beside up to two or three rows, and of four bits
// beside two in dot products; few_rows_blocks.h has those of codes beside a few more with AVX-512, which are decoded in
// registers and never stored, few_rows_ahead.h all others with AVX2, but for one row of codes of four bits in integers
// (few_rows_integers.h), and few_rows_strips.h those of more rows:
//
//     rows of A    prepared, fp32 or pairs of BF16:  128 numbers of row 0 | of row 1 | ... | the next of row 0 | ...
//     lines of B   up to four:                       units of 128 codes or numbers, as they are stored
//     sums         sixteen lanes for each row and line
//
// The order of a sum is fixed. Lanes sum the products of a unit's codes that share a factor, in the order of code_at()
// (few_rows_weights.h), and add that times the factor to their sums; at the end lanes are added as a tree (cpu/lanes.h).
// Neither threads nor passes nor the width of vectors touch it. A product, or a sum times its factor, is added with one
// rounding. Scalar code, which may have no instruction for that, multiplies and adds where products are exact, as those with
// codes are for rows of BF16, F16 and MX, and does all else in double (fused_multiply_add()).
//
// BF16 dot products (vdpbf16ps) give the same bits where products are exact: that instruction adds the product of the upper
// numbers, then that of the lower ones, each sum rounded to nearest, on AMD as on Intel (both were compared with two fp32
// multiply-adds in millions of draws). It takes subnormals as zero, but there are none: rows have no value below 2^-71
// (extreme ones go another way), codes none below 2^-16, and sums of their products are multiples of the product of their
// last bits. Lines of BF16 numbers that have smaller ones go another way, too (are_exact()).
// Integers give the same bits where sums are exact. VNNI, which adds products of bytes, gained too little there
// (docs/cpu-few-rows.md). AMX sums 32 products at a time in an order that no other instruction set could follow at speed.
//
// Rows that have values out of the range in which products are exact are multiplied with codes times factors. Lines whose
// factors may leave that range are decoded to memory by an OperandReader first. NVFP4's global scale of B and FP8's scale of
// a whole line multiply the sum.
//
// Lines that come next are prefetched to L2, because the hardware's streams end with each line. docs/cpu-few-rows.md says
// what bounds which format. Only the table at the end has external linkage.
#include "cpu/few_rows_kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cpu/few_rows_ahead.h"
#include "cpu/few_rows_blocks.h"
#include "cpu/few_rows_columns.h"
#include "cpu/few_rows_integers.h"
#include "cpu/few_rows_strips.h"
#include "cpu/few_rows_weights.h"
#include "cpu/gemm_repair.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

// Tells whether plain numbers are multiplied 64 bytes of each line after another.
template <class Weights, Products products, int rows>
constexpr bool kTakesTurns = is_plain<Weights>&& products != Products::dots&& rows <= kTurnRows;

// Multiplies a part of one unit of lines of plain numbers with the rows, of which a vector is loaded once for all lines.
// Only the first part prefetches what comes next. AVX-512 finds a vector by a constant, which takes 7% less with two
// rows of BF16; AVX2, in two parts, took a tenth more so.
template <class Weights, Products products, int rows, int columns>
MXQ_HD void multiply_turns(const uint8_t* const (&lines)[columns], const Columns& b, const float* numbers, int64_t part,
                           Lanes (&sums)[columns][rows]) {
    constexpr int64_t vector_bytes = Weights::unit_bytes / kUnitVectors;
    constexpr int vectors = int(64 / vector_bytes);
#pragma GCC unroll 1
    for (int first = 0; first < kUnitVectors; first += vectors) {
        const int from = kParts == 1 ? first : 0;
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            if (part == 0) __builtin_prefetch(lines[c] + b.to_next + first * vector_bytes, 0, 2);
#pragma GCC unroll 2
        for (int n = first; n < first + vectors; n++) {
            Lanes row[rows];
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                row[r] = in_register(row_lanes<products>(numbers + from * kLanes + r * kRowFloats<products>, n - from));
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) {
                const Lanes weights = Weights::load(lines[c] + from * vector_bytes, n - from, part);
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++)
                    sums[c][r] = multiply_add<products == Products::exact>(row[r], weights, sums[c][r]);
            }
        }
    }
}

// Multiplies a part of a unit of a line of plain numbers, or of decoded ones, with the rows.
template <class Weights, Products products, int rows>
MXQ_HD void multiply_plain_line(const uint8_t* line, const float* numbers, int64_t part, Lanes (&sums)[rows]) {
#if defined(__AVX512BF16__)
    if constexpr (products == Products::dots && Weights::has_words)
        return Weights::decode_words(
            line, [&](int s, __m512i pairs) __attribute__((always_inline)) {
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const __m512i row = _mm512_loadu_si512(numbers + r * kRowFloats<products> + s * kLanes);
                    sums[r].all = _mm512_dpbf16_ps(sums[r].all, __m512bh(pairs), __m512bh(row));
                }
            });
#endif
    Weights::decode(
        line, part, [&](int n, Lanes values) __attribute__((always_inline)) {
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                sums[r] = multiply_add<products == Products::exact>(
                    row_lanes<products>(numbers + r * kRowFloats<products>, n), values, sums[r]);
        });
}

// Multiplies a part of one unit of the lines with the rows.
template <class Weights, Products products, int rows, int columns>
MXQ_HD void multiply_unit(const uint8_t* const (&codes)[columns], const Columns& b, [[maybe_unused]] int64_t unit,
                          const float* numbers, int64_t part, Lanes (&sums)[columns][rows]) {
    if constexpr (kTakesTurns<Weights, products, rows>)
        return multiply_turns<Weights, products>(codes, b, numbers, part, sums);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        if constexpr (!has_codes<Weights>) {
            multiply_plain_line<Weights, products>(codes[c], numbers, part, sums[c]);
        } else {
#if defined(__AVX512F__)
            static_assert(DecodedPiece<typename Weights::Element>::of_unit == 1, "no other piece is decoded meanwhile");
            DecodedPiece<typename Weights::Element> pieces[2];
            pieces[0].take(codes[c]);
            const float* const factors = b.factors[c] + unit * Weights::factor_floats;
            multiply_by_pieces<Weights, products>({codes[c], codes[c], factors, b.to_next}, 0, numbers, pieces, sums[c]);
#else
            static_assert(!has_codes<Weights>, "codes have sums in registers with AVX-512 alone");
#endif
        }
}

// Multiplies parts of all units, from part `first` on. Only those with the first one prefetch what comes next.
template <class Weights, Products products, int parts, int rows, int columns>
MXQ_HD void multiply_parts(const FewRowsPass& pass, const Columns& b, int64_t first, Lanes (&sums)[parts][columns][rows]) {
    const uint8_t* codes[columns];
    for (int c = 0; c < columns; c++) codes[c] = b.codes[c];
    const float* numbers = pass.rows + first * kWidth;
    const auto multiply = [&](int64_t unit) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int p = 0; p < parts; p++)
            multiply_unit<Weights, products>(codes, b, unit, numbers + p * kWidth, first + p, sums[p]);
    };
    for (int64_t unit = 0; unit < b.units; unit++, numbers += rows * kRowFloats<products>) {
        if (!has_codes<Weights> && !kTakesTurns<Weights, products, rows> && first == 0)
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
#pragma GCC unroll 8
                for (int64_t at = 0; at < Weights::unit_bytes; at += 64) __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
        multiply(unit);
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) codes[c] += Weights::unit_bytes;
    }
    if (b.units * kUnit < pass.depth) {
        for (int c = 0; c < columns; c++) codes[c] = b.last[c];
        multiply(b.units);
    }
}

template <class Weights, Products products, int rows>
bool multiply_columns(const FewRowsPass& pass, const Columns& b) {
    constexpr int columns = kRegisterLines, parts = rows == 1 ? kParts : 1;  // so many whose sums registers hold
    const auto lanes_of = [&](int64_t part, int r, int c) {
        return pass.lanes + ((b.first + c * b.apart) * rows + r) * kLanes + part * kWidth;
    };
    Lanes all[kParts][columns][rows];
#pragma GCC unroll 2
    for (int64_t first = 0; first < kParts; first += parts) {
        Lanes sums[parts][columns][rows];
#pragma GCC unroll 2
        for (int p = 0; p < parts; p++)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int c = 0; c < columns; c++)
                    sums[p][c][r] = pass.first || c >= b.count ? no_lanes() : load_lanes(lanes_of(first + p, r, c));
        multiply_parts<Weights, products>(pass, b, first, sums);
#pragma GCC unroll 2
        for (int p = 0; p < parts; p++)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int c = 0; c < columns; c++) {
                    all[first + p][c][r] = sums[p][c][r];
                    if (!pass.last && c < b.count) store_lanes(sums[p][c][r], lanes_of(first + p, r, c));
                }
    }
    if (!pass.last) return true;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < b.count; c++) {
            Lanes of_sum[kParts];
            for (int64_t part = 0; part < kParts; part++) of_sum[part] = all[part][c][r];
            finish_sum(pass, b, r, c, of_sum, Weights::order, kScaleOfSums<Weights, products>);
        }
    return true;
}

// Returns false, and leaves sums as they were, where there is a NaN that decoding loses.
using MultiplyColumns = bool (*)(const FewRowsPass&, const Columns&);

// A function for any number of rows, and what it asks of its operands.
struct Kernel {
    MultiplyColumns multiply;
    int64_t unit_bytes, factors;
    float fold;
    Order order;
};

// How many rows have their sums in registers beside these weights. Codes of four bits pass by so fast with dot products that
// sums which go through memory at the end of a line would show.
template <class Weights, Products products>
constexpr int kRegisterRowsOf = products == Products::dots&& Weights::order == Order::nibbles ? 2 : 0;
template <class T, Products products>
constexpr int kRegisterRowsOf<PlainWeights<T>, products> = kRegisterRows;

// Returns the function for so many rows, whose sums are in registers.
template <class Weights, Products products, int... index>
MultiplyColumns columns_of(int64_t rows, std::integer_sequence<int, index...>) {
    static constexpr MultiplyColumns of_rows[] = {multiply_columns<Weights, products, index + 1>...};
    return of_rows[rows - 1];
}

template <class Weights, Products products>
bool multiply_lines(const FewRowsPass& pass, const Columns& b) {
    if constexpr (kHasIntegers<Weights, products>)
        if (pass.integers) return multiply_integers<Weights>(pass, b), true;
    constexpr int register_rows = kRegisterRowsOf<Weights, products>;
    if constexpr (register_rows > 0)
        if (pass.row_count <= register_rows)
            return columns_of<Weights, products>(pass.row_count, std::make_integer_sequence<int, register_rows>())(pass, b);
    return multiply_strips<Weights, products>(pass, b);
}

template <class Weights, Products products>
constexpr Kernel kernel = {multiply_lines<Weights, products>, Weights::unit_bytes, Weights::factors, Weights::fold,
                           Weights::order};

template <class Weights>
const Kernel& kernel_for(Products products) {
#if defined(__AVX512BF16__)
    if (products == Products::dots) return kernel<Weights, Products::dots>;
#endif
    if constexpr (Weights::factors > 0)
        if (products == Products::scaled) return kernel<Weights, Products::scaled>;
    if constexpr (!kFuses)
        if (products <= Products::exact) return kernel<Weights, Products::exact>;
    return kernel<Weights, Products::fused>;
}

// Tells whether one fp32 scale stands for a whole line.
bool has_line_scale(const QuantizedPart& part) {
    return part.scale_type == ScaleType::F32 && part.layout.block == MXQ_MAX_DIM;
}

// Returns the kernel for decoded lines beside rows in this order. Their products may leave the range in which they are
// exact.
const Kernel& kernel_of_values(Order order, Products products) {
    if (products == Products::exact) products = Products::fused;
    return order == Order::nibbles ? kernel_for<DecodedWeights<Order::nibbles>>(products)
           : order == Order::pairs ? kernel_for<DecodedWeights<Order::pairs>>(products)
                                   : kernel_for<DecodedWeights<Order::bytes>>(products);
}

template <class E>
const Kernel& kernel_of_codes(const QuantizedPart& b, Products products) {
    if constexpr (E::bits == 4)
        if (b.scale_type == ScaleType::E4M3) return kernel_for<QuantizedWeights<E, kNvBlock>>(products);
    if constexpr (E::bits == 8) {
        if (has_line_scale(b) && products != Products::scaled) return kernel_for<LineWeights<E>>(products);
        if (b.scale_type == ScaleType::F32) return kernel_for<QuantizedWeights<E, 128>>(products);
    }
    return kernel_for<QuantizedWeights<E, kMxBlock>>(products);
}

const Kernel& kernel_of(const QuantizedPart& b, Products products) {
    if (b.element == Element::F32) return kernel<PlainWeights<float>, Products::fused>;
    if (b.element == Element::F16) return kernel_for<PlainWeights<F16>>(products);
    if (b.element == Element::Bf16) return kernel_for<PlainWeights<Bf16>>(products);
    const Kernel* found = with_element(b.element, [&]<class E>(E) { return &kernel_of_codes<E>(b, products); });
    return *found;
}

#if defined(__AVX512BF16__)
// Packs pairs of vectors of BF16 numbers, in place: the first one of a pair in the upper halves.
void pack_pairs(float* numbers, int64_t count) {
    uint32_t* to = reinterpret_cast<uint32_t*>(numbers);
    for (const float* pair = numbers; pair < numbers + count; pair += 2 * kLanes)
        for (int64_t i = 0; i < kLanes; i++) *to++ = (float_bits(pair[i]) & 0xFFFF0000) | float_bits(pair[i + kLanes]) >> 16;
}
#endif

// Makes integers of a prepared row, where it is multiplied so.
void make_integers_for([[maybe_unused]] FewRowsPass& pass, [[maybe_unused]] const QuantizedPart& a,
                       [[maybe_unused]] const QuantizedPart& b) {
    pass.integers = nullptr;
#if defined(__AVX2__) && !defined(__AVX512F__)
    static_assert(sizeof(IntegerRow) <= kIntegerRoom);
    const bool has_codes = b.element == Element::E2M1 && pass.products == Products::exact;
    if (!has_codes || pass.row_count > 1 || pass.stride < kLinesForIntegers) return;
    IntegerRow& row = *static_cast<IntegerRow*>(pass.integer_room);
    if (make_integers(pass, significant_bits(a), row)) pass.integers = &row;
#endif
}

// Implements FewRowsKernels::prepare.
void prepare(FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, uint8_t* extreme, uint8_t* nonzero) {
    const OperandReader reader(a.part);
    const Order order = kernel_of(b, Products::scaled).order;
    alignas(64) float values[kGemmDepth];
    for (int64_t line = 0; line < a.count; line++)
        for (int64_t at = 0; at < pass.depth; at += kGemmDepth) {
            const int64_t depth = least(kGemmDepth, pass.depth - at), whole = round_up(depth, kUnit);
            if (reader.read(a.first + line, pass.k + at, depth, values)) extreme[line] = true;
            for (int64_t i = depth; i < whole; i++) values[i] = 0;
            uint32_t any = 0;
            for (int64_t i = 0; i < whole; i++) any |= float_bits(values[i]) & kMagnitudeMask;
            if (any) nonzero[line] = true;
            for (int64_t i = 0; i < whole; i += kUnit)
                arrange(order, values + i, pass.rows + (at + i) * pass.row_count + line * kUnit);
        }
    bool any_extreme = false;
    for (int64_t line = 0; line < a.count; line++) any_extreme |= extreme[line] != 0;
    if (any_extreme) pass.products = Products::scaled;
#if defined(__AVX512BF16__)
    if (pass.products == Products::dots) pack_pairs(pass.rows, round_up(pass.depth, kUnit) * pass.row_count);
#else
    if (pass.products == Products::dots) pass.products = Products::exact;
#endif
    make_integers_for(pass, a.part, b);
}

// Loads fp32 scales of blocks of 128, which are a column_stride apart, as factors. Returns whether all are safe.
bool factors_of_fp32(const QuantizedPart& part, int64_t line, int64_t begin, int64_t count, const SafeFactors& safe,
                     float fold, float* to) {
    constexpr int64_t bytes = sizeof(float);
    const uint8_t* const from = part.scales + part.layout.offset(0, line, begin) * bytes;
    const uint32_t first = float_bits(safe.low), span = float_bits(safe.high) - first;
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        float scale;
        memcpy(&scale, from + i * part.layout.column_stride * bytes, bytes);
        any |= uint32_t((float_bits(scale) & kMagnitudeMask) - first > span);
        to[i] = multiply_rn(scale, fold);
    }
    return any == 0;
}

// Repeats scales of blocks of 128 codes and more, in place, so that every 32 codes have one.
void spread_scales(uint8_t* scales, int64_t count, int shift) {
    if (shift > 7) return void(memset(scales, scales[0], size_t(kMostFactors)));
    for (int64_t i = count - 1; i >= 0; i--) memset(scales + 4 * i, scales[i], 4);
}

// Loads the factors of codes [k, k + depth) of a line whose scales do not lie in it, and some more: one for every 16 codes
// of NVFP4, for every 32 of MX and for every block of 128 of FP8. Returns false if one is not safe.
bool load_safe_factors(const QuantizedPart& part, const SafeFactors& safe, int64_t line, int64_t k, int64_t depth,
                       float fold, bool in_order, float* to) {
    if (has_line_scale(part)) return std::fill_n(to, ceil_div(depth, 128) + kLanes, fold), true;
    const int shift = block_shift(part.layout);
    const int64_t begin = k >> shift, count = ((k + depth - 1) >> shift) + 1 - begin;
    if (part.scale_type == ScaleType::F32) return factors_of_fp32(part, line, begin, count, safe, fold, to);
    alignas(64) uint8_t scales[kMostFactors];
    load_scale_bytes(part, 0, line, begin, count, scales);
    if (part.scale_type == ScaleType::E4M3) return factors_of_e4m3(scales, count, in_order, to);
    const E8m0Factors factors_of_e8m0(safe, fold);
    if (part.layout.block <= kMxBlock) return factors_of_e8m0(scales, count, in_order, to);
    spread_scales(scales, count, shift);
    return factors_of_e8m0(scales, ceil_div(depth, kMxBlock), in_order, to);
}

// Scales of a byte that lie in lines, those of codes [k, k + depth). `count` is 0 where they lie elsewhere or stand for more
// codes than kernels know.
struct ScalesInLines {
    ScalesInLines(const OperandLines& b, int64_t k, int64_t depth) {
        const QuantizedPart& part = b.part;
        const bool is_byte = part.scale_type == ScaleType::E8M0 || part.scale_type == ScaleType::E4M3;
        if (!is_byte || part.layout.swizzled || part.layout.block > kMxBlock) return;
        const int shift = block_shift(part.layout);
        const int64_t begin = k >> shift;
        count = ((k + depth - 1) >> shift) + 1 - begin;
        first = expert_scales(part, 0) + part.layout.offset(0, 0, begin);
        lines_shift = log2_of(uint32_t(part.layout.tile_rows)), stride = part.layout.line_stride;
    }

    const uint8_t* of_line(int64_t line) const { return first + (line >> lines_shift) * stride; }

    int64_t count = 0;

private:
    const uint8_t* first = nullptr;
    int lines_shift = 0;  // how many lines share scales
    int64_t stride = 0;
};

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

// Holds the lines that are multiplied together.
struct ColumnBuffers {
    alignas(64) float factors[2 * kFewColumns - 1][kMostFactors] = {};  // the last ones stand beside those of a single line
    alignas(64) uint8_t last[kFewColumns][kUnit * sizeof(float)];
};

// Multiplies lines of B, a few at a time: neighbours, or lines as far apart as there are groups of them, of which each is
// followed by its neighbour, so that they are streams of memory that go on from line to line:
//
//     near     0 1 2 3 | 4 5 6 7 | ..                     far     0 a 2a 3a | 1 a+1 2a+1 3a+1 | ..
//
// Far ones begin pages of memory together, and what looks their places up works for all at once, which is faster where a
// line passes by in a short time. Near ones are one stretch of memory, which kernels that decode ahead prefetch in its order
// (docs/cpu-few-rows.md).
class LinesOfB {
public:
    LinesOfB(const FewRowsPass& pass, const OperandLines& b)
        : pass_(pass),
          b_(b),
          reader_(b.part, 1.0f),
          global_(global_scale(b.part, 0)),
          has_line_scale_(has_line_scale(b.part)),
          kernel_(kernel_of(b.part, pass.products)),
          of_values_(kernel_of_values(kernel_.order, pass.products)),
          width_(b.part.scale_type == ScaleType::None && pass.row_count <= kRegisterRows ? kRegisterLines : kStripLines),
          is_far_(!kDecodesAhead || kernel_.unit_bytes > kUnit || pass.integers != nullptr),
          lines_ahead_(is_far_ && b.part.scale_type != ScaleType::None ? lines_ahead(b.part.line_bytes)
                       : is_far_                                       ? 1
                                                                       : width_) {}

    void multiply(uint8_t* unsafe) {
        const int64_t groups = b_.count / width_, rest = b_.count % width_;
        for (int64_t i = 0; i < groups; i++)
            multiply(is_far_ ? Group{i, groups, width_} : Group{i * width_, 1, width_}, unsafe);
        // Where they must lie at equal distances, those at the end go one by one.
        const int64_t together = kDecodesAhead ? 1 : rest;
        for (int64_t i = b_.count - rest; i < b_.count; i += together) multiply({i, 1, together}, unsafe);
    }

private:
    // Names the lines first, first + apart and so on, `count` of them.
    struct Group {
        int64_t first, apart, count;

        int64_t line(int64_t i) const { return first + i * apart; }
        Group alone(int64_t i) const { return {line(i), 1, 1}; }
    };

    // Returns how many lines of codes ahead is prefetched: one, or as many short ones as have the bytes that pass by until
    // memory answers.
    static int64_t lines_ahead(int64_t line_bytes) {
        constexpr int64_t until_answer = 2048;
        return std::max(int64_t(1), until_answer / std::max(int64_t(1), line_bytes));
    }

    void multiply(const Group& group, uint8_t* unsafe) {
        bool safe[kFewColumns];
        if (!read_factors(group, unsafe, safe) || !multiply_codes(group, 0)) multiply_apart(group, unsafe, safe);
    }

    // Tells which lines of BF16 numbers have exact products with the rows of this pass. Returns whether all have, or
    // products need not be exact. Such lines have no factors, and are never known to have values in range.
    bool read_numbers(const Group& group, uint8_t* unsafe, bool* safe) {
        for (int64_t i = 0; i < group.count; i++) unsafe[group.line(i)] = 1, safe[i] = true;
        if (b_.part.element != Element::Bf16 || pass_.products > Products::exact) return true;
        bool all = true;
        for (int64_t i = 0; i < group.count; i++)
            all &= safe[i] = are_exact(line_of(b_.part, 0, b_.first + group.line(i), pass_.k), pass_.depth);
        return all;
    }

    // Loads the factors of lines. Tells which lines have values in range for sure, or products that need not be exact.
    // Returns whether all have.
    bool read_factors(const Group& group, uint8_t* unsafe, bool* safe) {
        if (b_.part.scale_type == ScaleType::None) return read_numbers(group, unsafe, safe);
        const ScalesInLines scales(b_, pass_.k, pass_.depth);
        const bool in_order = pass_.integers != nullptr;
        const auto load_each = [&](const auto& load) __attribute__((always_inline)) {
            bool all = true;
            for (int64_t i = 0; i < group.count; i++) {
                safe[i] = load(group.line(i), buffers_.factors[i]);
                if (!safe[i]) unsafe[group.line(i)] = 1;
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

    // Prefetches the scales of a line that comes later, of which there are `bytes` here. Those of near lines are
    // neighbours, which a processor finds by itself where they are few.
    void prefetch_scales(const uint8_t* from, int64_t bytes) const {
        if (!is_far_ && b_.part.scale_type != ScaleType::E4M3) return;
        const int64_t to_next = lines_ahead_ * b_.part.layout.line_stride;
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + to_next + at);
    }

    // Multiplies lines one by one: those that are safe, and then the others, in steps that may be.
    void multiply_apart(const Group& group, uint8_t* unsafe, bool* safe) {
        for (int64_t i = 0; i < group.count; i++) safe[i] = safe[i] && multiply_codes(group.alone(i), i);
        const FewRowsPass whole = pass_;
        for (int64_t i = 0; i < group.count; i++)
            for (int64_t at = 0; !safe[i] && at < whole.depth; at += whole.step) {
                pass_ = step_of(whole, at);
                bool is_safe = false;
                if (pass_.depth < whole.depth) read_factors(group.alone(i), unsafe, &is_safe);
                if (!is_safe || !multiply_codes(group.alone(i), 0)) multiply_values(group.line(i));
            }
        pass_ = whole;
    }

    // Returns a step of a pass that is deeper.
    static FewRowsPass step_of(const FewRowsPass& whole, int64_t at) {
        FewRowsPass step = whole;
        step.k += at, step.depth = least(whole.step, whole.depth - at);
        step.first = whole.first && at == 0, step.last = whole.last && at + whole.step >= whole.depth;
        step.rows += at * whole.row_count / (whole.products == Products::dots ? 2 : 1);
        return step;
    }

    // Multiplies lines whose factors are in the buffers from one on. Returns false, and does nothing, where one has a NaN
    // that the kernel would take for a number.
    bool multiply_codes(const Group& group, int64_t buffer) {
        Columns columns;
        columns.units = pass_.depth / kUnit;
        columns.to_next = lines_ahead_ * b_.part.line_bytes;
        columns.first = group.first, columns.apart = group.apart, columns.count = group.count;
        for (int64_t i = 0; i < width_; i++) {
            const int64_t from = least(i, group.count - 1), line = b_.first + group.line(from);
            columns.codes[i] = line_of(b_.part, 0, line, pass_.k);
            columns.factors[i] = buffers_.factors[buffer + (kDecodesAhead ? i : from)];
            columns.last[i] = buffers_.last[from];
            columns.line_factor[i] = line_factor(line);
        }
        if (columns.units * kUnit < pass_.depth)
            for (int64_t i = 0; i < group.count; i++) copy_last(columns.codes[i], i);
        return kernel_.multiply(pass_, columns);
    }

    // Multiplies a line that leaves the range: its values are decoded to memory.
    void multiply_values(int64_t line) {
        read_values(b_.first + line, pass_.values);
        Columns columns{};
        columns.units = ceil_div(pass_.depth, kUnit);
        columns.first = line, columns.apart = 1, columns.count = 1;
        for (int64_t i = 0; i < kFewColumns; i++) {
            columns.codes[i] = reinterpret_cast<const uint8_t*>(pass_.values);
            columns.line_factor[i] = line_factor(b_.first + line);
        }
        of_values_.multiply(pass_, columns);
    }

    // Stores the values of a line in the order of its codes.
    void read_values(int64_t line, float* to) const {
        alignas(64) float values[kGemmDepth];
        for (int64_t at = 0; at < pass_.depth; at += kGemmDepth) {
            const int64_t depth = least(kGemmDepth, pass_.depth - at), whole = round_up(depth, kUnit);
            reader_.read(line, pass_.k + at, depth, values);
            for (int64_t i = depth; i < whole; i++) values[i] = 0;
            for (int64_t i = 0; i < whole; i += kUnit) arrange(kernel_.order, values + i, to + at + i);
        }
    }

    // Returns what the sums of a line are multiplied by.
    float line_factor(int64_t line) const {
        if (!has_line_scale_) return global_;
        float factor;
        load_factors(b_.part, 0, line, 0, 1, &factor);
        return factor;
    }

    // Copies the codes after the last whole unit of a line, and fills up with zeros.
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
    const float global_;
    const bool has_line_scale_;
    const Kernel& kernel_;
    const Kernel& of_values_;
    const int64_t width_;
    const bool is_far_;
    const int64_t lines_ahead_;
    ColumnBuffers buffers_;
};

// Implements FewRowsKernels::multiply.
void multiply(const FewRowsPass& pass, const OperandLines& b, uint8_t* unsafe) { LinesOfB(pass, b).multiply(unsafe); }

}  // namespace

#define MXQ_JOIN(a, b) a##b
#define MXQ_TABLE(isa) MXQ_JOIN(isa, _few_rows_kernels)

#if defined(__AVX512BF16__)
constexpr bool kPacksDots = true;
#else
constexpr bool kPacksDots = false;
#endif

const FewRowsKernels MXQ_TABLE(MXQ_ISA) = {kPacksDots, kFuses, kRegisterRows, prepare, multiply};

}  // namespace mxq::cpu
