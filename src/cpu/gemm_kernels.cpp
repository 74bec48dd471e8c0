// Products of decoded panels, compiled once per instruction set (MXQ_ISA: scalar, avx2, avx512).
//
//     A block: rows as they lie              B block: panels of `columns` lines, transposed as bytes, then decoded
//       line 0  k0 k1 k2 ... k255              k0    line 0 | line 1 | ... | line columns - 1
//       line 1  k0 k1 ...                      k1    line 0 | ...
//
//     register tile: kRows x kVectors vectors of sums; per k it loads kVectors vectors of B and broadcasts kRows values of A
//
// Vectors run across N only, so every output is summed in the same order whatever the width. A product of two codes has at
// most 8 significant bits: unless a scale is extreme it is exact, and a fused multiply-add gives the bits of a multiply and an
// add. Blocks with extreme lines use the two apart, so that the bits do not depend on the machine having FMA.
//
// Bound by the multiply-adds (100 GFLOP/s of a register tile on one Zen 3 core): a panel of columns stays in L1 while the
// rows stream past it from L2. Per element of an operand 33/32 bytes are read and 4 written to scratch, at
// 0.2 ns, once for every tile of D that the line meets; few rows are bound by that. Nothing here has external linkage but
// the table at the end.
#include "cpu/gemm_kernels.h"

#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cpu/decode.h"
#include "mxq/mxq.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"

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
constexpr int kGroup = 8;  // lines that are transposed together

typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef float VectorInMemory __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(16)));

// Whether nonzero values under this scale may leave [2^-74, 2^64): within, products are exact and finite.
template <class E>
MXQ_HD bool is_extreme_scale(uint32_t scale) {
    constexpr int smallest = 1 - E::bias - E::mantissa_bits;  // exponent of the smallest code
    constexpr uint32_t lowest = 127 - 74 - smallest, highest = 127 + 63 - E::emax;
    return scale - lowest > highest - lowest && scale != kScaleNan;
}

template <class E>
bool has_nonzero(const uint8_t* codes, int64_t count) {
    uint32_t magnitude = 0;
    for (int64_t i = 0; i < count; i++) magnitude |= codes[i] & (ElementBits<E>::sign - 1);
    return magnitude != 0;
}

// A block of which `count` codes exist: where it lies if whole, else a copy with zeros behind.
MXQ_HD const uint8_t* whole_block(const uint8_t* codes, int64_t count, uint8_t (&copy)[kMxBlock]) {
    if (count >= kMxBlock) return codes;
    memset(copy, 0, kMxBlock);
    memcpy(copy, codes, count);
    return copy;
}

// out = codes * scales, 16 of each; dequantize_element but for the bits of a NaN.
template <class E>
MXQ_HD void dequantize_16(const uint8_t* codes, const float* scales, float* out) {
#if defined(__AVX2__)
    const SixteenFloats values = decode_16<E>(codes);
    _mm256_storeu_ps(out, _mm256_mul_ps(values.low, _mm256_loadu_ps(scales)));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(values.high, _mm256_loadu_ps(scales + 8)));
#else
    for (int i = 0; i < 16; i++) out[i] = multiply_rn(decode<E>(codes[i]), scales[i]);
#endif
}

// Where the blocks of a line's codes [k, k + depth) have their scales, from line_scales on.
struct ScaleOffsets {
    int64_t at[kGemmDepth / kMxBlock];

    MXQ_HD ScaleOffsets(const OperandLines& lines, int64_t k, int64_t depth) {
        for (int64_t i = 0; i < ceil_div(depth, kMxBlock); i++) at[i] = lines.layout.offset(0, 0, k / kMxBlock + i);
    }
};

MXQ_HD const uint8_t* line_scales(const OperandLines& lines, int64_t line) {
    return lines.scales + lines.layout.offset(0, lines.first + line, 0);
}

MXQ_HD const uint8_t* line_codes(const OperandLines& lines, int64_t line, int64_t k) {
    return lines.codes + (lines.first + line) * lines.stride + k;
}

template <class E>
bool decode_rows(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    const ScaleOffsets offsets(lines, k, depth);
    bool any = false;
    for (int64_t line = 0; line < lines.count; line++, out += kGemmDepth) {
        const uint8_t* scales = line_scales(lines, line);
        const uint8_t* codes = line_codes(lines, line, k);
        for (int64_t at = 0; at < depth; at += kMxBlock) {
            uint8_t copy[kMxBlock];
            const uint8_t* block = whole_block(codes + at, depth - at, copy);
            const uint32_t scale = scales[offsets.at[at / kMxBlock]];
            float values[16];
            for (float& value : values) value = scale_value(scale);
            dequantize_16<E>(block, values, out + at);
            dequantize_16<E>(block + 16, values, out + at + 16);
            if (is_extreme_scale<E>(scale) && has_nonzero<E>(block, kMxBlock)) extreme[line] = any = true;
        }
    }
    memset(out, 0, (round_up(lines.count, kRows) - lines.count) * kGemmDepth * sizeof(float));
    return any;
}

MXQ_HD Bytes interleave_low(Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

MXQ_HD Bytes interleave_high(Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// out[k][line] = lines[line][k] for 8 lines of 32 codes: three rounds of interleaving bytes.
MXQ_HD void transpose(const uint8_t* const (&lines)[kGroup], uint8_t (*out)[kColumns]) {
    for (int half = 0; half < 2; half++, out += 16) {
        Bytes now[kGroup], next[kGroup];
#pragma GCC unroll 8
        for (int i = 0; i < kGroup; i++) memcpy(&now[i], lines[i] + 16 * half, 16);
#pragma GCC unroll 8
        for (int round = 0; round < 3; round++) {
#pragma GCC unroll 8
            for (int i = 0; i < kGroup / 2; i++) {
                next[2 * i] = interleave_low(now[i], now[i + 4]);
                next[2 * i + 1] = interleave_high(now[i], now[i + 4]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < kGroup; i++) now[i] = next[i];
        }
#pragma GCC unroll 8
        for (int i = 0; i < kGroup; i++) {
            memcpy(out[2 * i], &now[i], kGroup);
            memcpy(out[2 * i + 1], reinterpret_cast<const uint8_t*>(&now[i]) + kGroup, kGroup);
        }
    }
}

// One panel of at most kColumns lines: out[depth][kColumns]. The last line stands in for those that do not exist.
template <class E>
bool decode_panel(const OperandLines& lines, const ScaleOffsets& offsets, int64_t k, int64_t depth, float* out,
                  uint8_t* extreme) {
    const uint8_t *codes[kColumns], *scales[kColumns];
    for (int64_t j = 0; j < kColumns; j++) {
        const int64_t line = j < lines.count ? j : lines.count - 1;
        codes[j] = line_codes(lines, line, k);
        scales[j] = line_scales(lines, line);
    }
    bool any = false;
    for (int64_t at = 0; at < depth; at += kMxBlock) {
        const int64_t count = depth - at < kMxBlock ? depth - at : kMxBlock;
        alignas(64) float values[kColumns];
        for (int64_t j = 0; j < kColumns; j++) {
            const uint32_t scale = scales[j][offsets.at[at / kMxBlock]];
            values[j] = scale_value(scale);
            if (is_extreme_scale<E>(scale) && has_nonzero<E>(codes[j] + at, count)) extreme[j] = any = true;
        }
        alignas(64) uint8_t transposed[kMxBlock][kColumns];
        for (int64_t j = 0; j < kColumns; j += kGroup) {
            uint8_t copies[kGroup][kMxBlock];
            const uint8_t* blocks[kGroup];
            for (int64_t i = 0; i < kGroup; i++) blocks[i] = whole_block(codes[j + i] + at, count, copies[i]);
            transpose(blocks, reinterpret_cast<uint8_t (*)[kColumns]>(&transposed[0][j]));
        }
        for (int64_t i = 0; i < count; i++, out += kColumns)
            for (int64_t j = 0; j < kColumns; j += 16) dequantize_16<E>(&transposed[i][j], values + j, out + j);
    }
    return any;
}

template <class E>
bool decode_columns(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    const ScaleOffsets offsets(lines, k, depth);
    bool any = false;
    for (int64_t line = 0; line < lines.count; line += kColumns, out += kColumns * depth) {
        const int64_t count = lines.count - line < kColumns ? lines.count - line : kColumns;
        any |= decode_panel<E>(lines.part(line, count), offsets, k, depth, out, extreme + line);
    }
    return any;
}

MXQ_HD Vector load(const float* from) { return *reinterpret_cast<const VectorInMemory*>(from); }
MXQ_HD void store(float* to, Vector value) { *reinterpret_cast<VectorInMemory*>(to) = value; }

template <bool fused>
MXQ_HD Vector multiply_add(float a, Vector b, Vector sum) {
#if defined(__AVX512F__)
    if constexpr (fused) return _mm512_fmadd_ps(_mm512_set1_ps(a), b, sum);
#elif defined(__AVX2__)
    if constexpr (fused) return _mm256_fmadd_ps(_mm256_set1_ps(a), b, sum);
#endif
    return sum + a * b;
}

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
        for (int j = 0; j < kVectors; j++)
            store(out + j * kLanes, first ? sums[i][j] : load(out + j * kLanes) + sums[i][j]);
}

template <bool fused>
void multiply_block(const GemmBlock& block, int64_t depth, bool first) {
    for (int64_t column = 0; column < block.column_count; column += kColumns)
        for (int64_t row = 0; row < block.row_count; row += kRows)
            multiply_tile<fused>(block.rows + row * kGemmDepth, block.columns + column * depth, depth,
                                 block.sums + row * block.stride + column, block.stride, first);
}

void multiply(const GemmBlock& block, int64_t depth, bool first, bool exact) {
    exact ? multiply_block<true>(block, depth, first) : multiply_block<false>(block, depth, first);
}

template <class T>
void store_row(const float* sums, int64_t count, T* d) {
    for (int64_t i = 0; i < count; i++) d[i] = from_float<T>(sums[i]);
}

void add_row(const float* sums, int64_t count, float* d) {
    for (int64_t i = 0; i < count; i++) d[i] = from_float<float>(add_rn(d[i], sums[i]));
}

void store_sums(const float* sums, int64_t count, int32_t format, bool accumulate, void* d) {
    if (accumulate) return add_row(sums, count, static_cast<float*>(d));
    switch (format) {
        case MXQ_FORMAT_F32: return store_row(sums, count, static_cast<float*>(d));
        case MXQ_FORMAT_F16: return store_row(sums, count, static_cast<F16*>(d));
        case MXQ_FORMAT_BF16: return store_row(sums, count, static_cast<Bf16*>(d));
    }
}

}  // namespace

#define MXQ_JOIN(a, b) a##b
#define MXQ_TABLE(isa) MXQ_JOIN(isa, _gemm_kernels)

const GemmKernels MXQ_TABLE(MXQ_ISA) = {
    kRows,    kColumns, {decode_rows<E4M3>, decode_columns<E4M3>}, {decode_rows<E5M2>, decode_columns<E5M2>},
    multiply, store_sums,
};

}  // namespace mxq::cpu
