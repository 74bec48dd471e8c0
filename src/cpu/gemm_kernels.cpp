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
// Bound by the multiply-adds: a column block stays in L1 while the rows stream past it from L2. Decoding costs about a
// cycle per element, repeated for every row tile (columns) or column tile (rows) of D. Nothing here has external linkage
// but the table at the end.
#include "cpu/gemm_kernels.h"

#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

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
constexpr int kLanes = 4, kRows = 4, kVectors = 2;
#endif
constexpr int kColumns = kVectors * kLanes;
constexpr int kGroup = 8;  // lines that are transposed together

typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef uint8_t Bytes __attribute__((vector_size(16)));

// The block of codes of one line, zeros behind its end, and its scale.
struct Block {
    alignas(16) uint8_t codes[kMxBlock];
    uint32_t scale;
};

// Whether this block's nonzero values leave [2^-74, 2^64): within, products are exact and finite.
template <class E>
MXQ_HD bool is_extreme(const Block& block) {
    constexpr int smallest = 1 - E::bias - E::mantissa_bits;  // exponent of the smallest code
    constexpr uint32_t lowest = 127 - 74 - smallest, highest = 127 + 63 - E::emax;
    if (block.scale - lowest <= highest - lowest || block.scale == kScaleNan) return false;
    uint32_t magnitude = 0;
    for (uint8_t code : block.codes) magnitude |= code & (ElementBits<E>::sign - 1);
    return magnitude != 0;
}

// Where a line's scales start; scale (line, column) is layout.offset(0, 0, column) further.
MXQ_HD const uint8_t* line_scales(const OperandLines& lines, int64_t line) {
    return lines.scales + lines.layout.offset(0, lines.first + line, 0);
}

MXQ_HD Block fetch(const OperandLines& lines, int64_t line, const uint8_t* scales, int64_t k, int64_t count) {
    Block block;
    const uint8_t* codes = lines.codes + (lines.first + line) * lines.stride + k;
    if (count >= kMxBlock) {
        memcpy(block.codes, codes, kMxBlock);
    } else {
        memset(block.codes, 0, kMxBlock);
        memcpy(block.codes, codes, count);
    }
    block.scale = scales[lines.layout.offset(0, 0, k / kMxBlock)];
    return block;
}

template <class E>
bool decode_rows(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    bool any = false;
    for (int64_t line = 0; line < lines.count; line++, out += kGemmDepth) {
        const uint8_t* scales = line_scales(lines, line);
        for (int64_t at = 0; at < depth; at += kMxBlock) {
            const Block block = fetch(lines, line, scales, k + at, depth - at);
            const float scale = scale_value(block.scale);
            for (int64_t i = 0; i < kMxBlock; i++) out[at + i] = multiply_rn(decode<E>(block.codes[i]), scale);
            if (is_extreme<E>(block)) extreme[line] = any = true;
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

// out[k][line] = blocks[line].codes[k] for 8 lines: three rounds of interleaving bytes, lines 4, 2, 1 apart.
MXQ_HD void transpose(const Block (&blocks)[kGroup], uint8_t (*out)[kColumns]) {
    for (int half = 0; half < 2; half++, out += 16) {
        Bytes now[kGroup], next[kGroup];
        for (int i = 0; i < kGroup; i++) memcpy(&now[i], blocks[i].codes + 16 * half, 16);
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < kGroup / 2; i++) {
                next[2 * i] = interleave_low(now[i], now[i + 4]);
                next[2 * i + 1] = interleave_high(now[i], now[i + 4]);
            }
            for (int i = 0; i < kGroup; i++) now[i] = next[i];
        }
        for (int i = 0; i < kGroup; i++) {
            memcpy(out[2 * i], &now[i], kGroup);
            memcpy(out[2 * i + 1], reinterpret_cast<const uint8_t*>(&now[i]) + kGroup, kGroup);
        }
    }
}

// One panel of at most kColumns lines: out[depth][kColumns].
template <class E>
MXQ_HD bool decode_panel(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    bool any = false;
    const uint8_t* scales[kColumns];
    for (int64_t line = 0; line < lines.count; line++) scales[line] = line_scales(lines, line);
    for (int64_t at = 0; at < depth; at += kMxBlock) {
        alignas(64) uint8_t codes[kMxBlock][kColumns];
        alignas(64) float values[kColumns];
        for (int64_t line = 0; line < kColumns; line += kGroup) {
            Block blocks[kGroup];
            for (int64_t i = 0; i < kGroup; i++) {
                blocks[i] = line + i < lines.count ? fetch(lines, line + i, scales[line + i], k + at, depth - at) : Block{};
                values[line + i] = scale_value(blocks[i].scale);
                if (is_extreme<E>(blocks[i])) extreme[line + i] = any = true;
            }
            transpose(blocks, reinterpret_cast<uint8_t (*)[kColumns]>(&codes[0][line]));
        }
        const int64_t count = depth - at < kMxBlock ? depth - at : kMxBlock;
        for (int64_t i = 0; i < count; i++, out += kColumns)
            for (int64_t j = 0; j < kColumns; j++) out[j] = multiply_rn(decode<E>(codes[i][j]), values[j]);
    }
    return any;
}

template <class E>
bool decode_columns(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme) {
    bool any = false;
    for (int64_t line = 0; line < lines.count; line += kColumns, out += kColumns * depth) {
        const int64_t count = lines.count - line < kColumns ? lines.count - line : kColumns;
        any |= decode_panel<E>(lines.part(line, count), k, depth, out, extreme + line);
    }
    return any;
}

template <bool fused>
MXQ_HD Vector multiply_add(Vector a, Vector b, Vector sum) {
#if defined(__AVX512F__)
    if constexpr (fused) return _mm512_fmadd_ps(a, b, sum);
#elif defined(__AVX2__)
    if constexpr (fused) return _mm256_fmadd_ps(a, b, sum);
#endif
    return sum + a * b;
}

template <bool fused>
MXQ_HD void multiply_tile(const float* a, const float* b, int64_t depth, float* out, int64_t stride, bool first) {
    Vector sums[kRows][kVectors] = {};
    for (int64_t k = 0; k < depth; k++, b += kColumns) {
        Vector columns[kVectors];
        memcpy(columns, b, sizeof columns);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++) {
            const Vector row = Vector{} + a[i * kGemmDepth + k];
#pragma GCC unroll 16
            for (int j = 0; j < kVectors; j++) sums[i][j] = multiply_add<fused>(row, columns[j], sums[i][j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++, out += stride) {
        Vector before[kVectors] = {};
        if (!first) memcpy(before, out, sizeof before);
#pragma GCC unroll 16
        for (int j = 0; j < kVectors; j++) before[j] += sums[i][j];
        memcpy(out, before, sizeof before);
    }
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

void store(const float* sums, int64_t count, int32_t format, bool accumulate, void* d) {
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
    multiply, store,
};

}  // namespace mxq::cpu
