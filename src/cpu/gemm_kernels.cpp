// Products of decoded panels, compiled once per instruction set (MXQ_ISA: scalar, avx2, avx512bw).
//
//     A block: rows as they lie              B block: panels of `columns` lines, decoded, then transposed
//       line 0  k0 k1 k2 ... k255              k0    line 0 | line 1 | ... | line columns - 1
//       line 1  k0 k1 ...                      k1    line 0 | ...
//
//     register tile: kRows x kVectors vectors of sums; per k it loads kVectors vectors of B and broadcasts kRows values of A
//
// Vectors run across N only, so every output is summed in the same order whatever the width. A product of two values that
// are MX, BF16 or F16 has at most 22 significant bits: unless a K-major row is extreme it is exact, and a fused multiply-add
// gives the bits of a multiply and an add. NVFP4 and FP8 values have 24 bits of their fp32 scales, as F32 has: their
// products, and those of extreme K-major rows, take the two apart, so that the bits do not depend on the machine having FMA.
//
// The multiply-adds are the bound (100 GFLOP/s of a register tile on one Zen 3 core): a panel of columns stays in L1 while
// the rows stream past it from L2. Codes are read, and values written to scratch, once for every tile of D that the K-major
// row meets, which is the bound where there are few rows. Only the table at the end has external linkage.
#include "cpu/gemm_kernels.h"

#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cpu/operand_reader.h"
#include "mxq/mxq.h"

namespace mxq::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 12, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRows = 6, kVectors = 2;
#else
constexpr int kLanes = 4, kRows = 2, kVectors = 4;
#endif
constexpr int kColumns = kVectors * kLanes;

typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef float VectorInMemory __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef float Four __attribute__((vector_size(16)));

// Implements GemmKernels::decode_rows for operands that are not K-major.
bool decode_rows_across(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    const OperandReader reader(lines.part);
    bool any = false;
    for (int64_t l = 0; l < depth; l++)
        any |= read_across(reader, lines, k + l, extreme, [&](int64_t first, const float* values, int64_t count) {
            for (int64_t i = 0; i < count; i++) out[(first + i) * kGemmDepth + l] = values[i];
        });
    return any;
}

bool decode_rows_along(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    const OperandReader reader(lines.part);
    bool any = false;
    for (int64_t line = 0; line < lines.count; line++, out += kGemmDepth)
        if (reader.read(lines.first + line, k, depth, out)) extreme[line] = any = true;
    return any;
}

// Implements GemmKernels::decode_rows.
bool decode_rows(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    const int64_t missing = round_up(lines.count, kRows) - lines.count;
    memset(out + lines.count * kGemmDepth, 0, size_t(missing * kGemmDepth) * sizeof(float));
    return lines.part.across ? decode_rows_across(lines, k, depth, out, extreme)
                             : decode_rows_along(lines, k, depth, out, extreme);
}

// Transposes 4 x 4 values by two rounds of interleaving.
MXQ_HD void transpose_4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    Four a, b, c, d;
    memcpy(&a, from, sizeof a);
    memcpy(&b, from + from_stride, sizeof b);
    memcpy(&c, from + 2 * from_stride, sizeof c);
    memcpy(&d, from + 3 * from_stride, sizeof d);
    const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const Four columns[] = {
        __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
        __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) memcpy(to + i * to_stride, &columns[i], sizeof columns[i]);
}

// Implements GemmKernels::decode_columns for operands that are not K-major: a stored row has those of a panel side by side.
bool decode_columns_across(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    const OperandReader reader(lines.part);
    const int64_t last = lines.count / kColumns * kColumns;
    if (last < lines.count) memset(out + last * depth, 0, size_t(kColumns * depth) * sizeof(float));
    bool any = false;
    for (int64_t l = 0; l < depth; l++)
        any |= read_across(reader, lines, k + l, extreme, [&](int64_t first, const float* values, int64_t count) {
            for (int64_t i = first; i < first + count; i++)
                out[(i / kColumns * depth + l) * kColumns + i % kColumns] = values[i - first];
        });
    return any;
}

// Implements GemmKernels::decode_columns, four K-major rows at a time, since the caller's stack may be small. A panel is
// written to a depth that is a multiple of 4; what is too much is overwritten by the next panel, or lies in room that `out`
// has and nobody reads.
bool decode_columns_along(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    const OperandReader reader(lines.part);
    alignas(64) float four[4][kGemmDepth] = {};
    bool any = false;
    for (int64_t first = 0; first < lines.count; first += kColumns, out += kColumns * depth)
        for (int64_t i = 0; i < kColumns; i += 4) {
            for (int64_t line = first + i; line < first + i + 4 && line < lines.count; line++)
                if (reader.read(lines.first + line, k, depth, four[line - first - i])) extreme[line] = any = true;
            for (int64_t at = 0; at < depth; at += 4)
                transpose_4(&four[0][at], kGemmDepth, out + at * kColumns + i, kColumns);
        }
    return any;
}

bool decode_columns(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    return lines.part.across ? decode_columns_across(lines, k, depth, out, extreme)
                             : decode_columns_along(lines, k, depth, out, extreme);
}

MXQ_HD Vector load(const float* from) { return *reinterpret_cast<const VectorInMemory*>(from); }
MXQ_HD void store(float* to, Vector value) { *reinterpret_cast<VectorInMemory*>(to) = value; }

// Returns sum + a * b, with one rounding if `fused` and the instruction set has it, else with two.
template <bool fused>
MXQ_HD Vector multiply_add(float a, Vector b, Vector sum) {
#if defined(__AVX512F__)
    if constexpr (fused) return _mm512_fmadd_ps(_mm512_set1_ps(a), b, sum);
#elif defined(__AVX2__)
    if constexpr (fused) return _mm256_fmadd_ps(_mm256_set1_ps(a), b, sum);
#endif
    return sum + a * b;
}

// Multiplies one register tile of kRows x kColumns over `depth`, and stores the sums or adds them to those of `out`.
template <bool fused>
MXQ_HD void multiply_tile(const float* a, const float* b, int64_t depth, float* out, int64_t stride, bool first) {
    Vector sums[kRows][kVectors] = {};
    for (int64_t k = 0; k < depth; k++, b += kColumns) {
        Vector columns[kVectors];
#pragma GCC unroll 16
        for (int j = 0; j < kVectors; j++) columns[j] = load(b + j * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++)
#pragma GCC unroll 16
            for (int j = 0; j < kVectors; j++)
                sums[i][j] = multiply_add<fused>(a[i * kGemmDepth + k], columns[j], sums[i][j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++, out += stride)
#pragma GCC unroll 16
        for (int j = 0; j < kVectors; j++) store(out + j * kLanes, first ? sums[i][j] : load(out + j * kLanes) + sums[i][j]);
}

// Multiplies all register tiles of a block.
template <bool fused>
void multiply_block(const GemmBlock& block, int64_t depth, bool first) {
    for (int64_t column = 0; column < block.column_count; column += kColumns)
        for (int64_t row = 0; row < block.row_count; row += kRows)
            multiply_tile<fused>(block.rows + row * kGemmDepth, block.columns + column * depth, depth,
                                 block.sums + row * block.stride + column, block.stride, first);
}

// Implements GemmKernels::multiply.
void multiply(const GemmBlock& block, int64_t depth, bool first, bool exact) {
    exact ? multiply_block<true>(block, depth, first) : multiply_block<false>(block, depth, first);
}

// Rounds sums to D's type.
template <class T>
void store_row(const float* sums, int64_t count, T* d) {
    for (int64_t i = 0; i < count; i++) d[i] = from_float<T>(sums[i]);
}

// Returns element i of the bias.
float bias_at(const Finish& finish, const void* bias, int64_t i) {
    return with_plain(finish.bias_format, [&]<class T>(T) { return to_float(static_cast<const T*>(bias)[i]); });
}

// Applies alpha, beta and the bias to sums, and rounds to D's type.
template <class T>
void finish_row(const float* sums, int64_t count, const Finish& finish, const void* bias, T* d) {
    for (int64_t i = 0; i < count; i++) {
        float value = multiply_rn(finish.alpha, sums[i]);
        if (finish.beta != 0) value = add_rn(value, multiply_rn(finish.beta, to_float(d[i])));
        if (finish.bias_format != 0) value = add_rn(value, bias_at(finish, bias, i));
        d[i] = from_float<T>(value);
    }
}

template <class T>
void store_as(const float* sums, int64_t count, const Finish& finish, const void* bias, T* d) {
    const bool alone = finish.alpha == 1 && finish.beta == 0 && finish.bias_format == 0;
    alone ? store_row(sums, count, d) : finish_row(sums, count, finish, bias, d);
}

// Implements GemmKernels::store.
void store_sums(const float* sums, int64_t count, const Finish& finish, const void* bias, void* d) {
    with_plain(finish.d_format, [&]<class T>(T) { store_as(sums, count, finish, bias, static_cast<T*>(d)); });
}

}  // namespace

#define MXQ_JOIN(a, b) a##b
#define MXQ_TABLE(isa) MXQ_JOIN(isa, _gemm_kernels)

const GemmKernels MXQ_TABLE(MXQ_ISA) = {
    kRows, kColumns, decode_rows, decode_columns, multiply, store_sums,
};

}  // namespace mxq::cpu
