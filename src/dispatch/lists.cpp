// The whole dispatch policy: for each verb, implementations in the order in which they are asked. The first that takes the
// problem runs it. For products preferred_gemm, below, names an implementation that is asked before the list.
//
// Tables below compare two implementations. "120 | 150" are times in us, of the first and of the second one in the header,
// for B of the given (N,K), unless they say otherwise. docs/performance.md has more of them.
#include <algorithm>

#include "cpu/implementations.h"
#include "cuda/backend.h"
#include "cuda/implementations.h"
#include "cuda/routed_implementations.h"
#include "cuda/widen/pays_to_widen.h"
#include "dispatch/choice.h"

namespace mxq {
namespace {

const QuantizeImplementation* const quantize_list[] = {
    &cuda::quantize_rowwise,     // the rowwise part alone of 8 and 4 bits, of aligned rows
    &cuda::quantize_fp4_groups,  // groups of aligned BF16 to NVFP4 and MXFP4, columnwise or both
    &cuda::quantize_fp4_pairs,   // aligned BF16 to NVFP4 and MXFP4
    &cuda::quantize_columns,     // aligned BF16 to columns of 8 bits, without groups
    &cuda::quantize_groups,      // groups of aligned BF16 to columns of MXFP8 1x32 and 32x32
    &cuda::quantize_tile,        // every other format, part and scaling of 8 and 6 bits: tiles of 128x128 in registers
    &cuda::quantize_fp4,  // all other NVFP4 and MXFP4: Hadamard transform, stochastic rounding, four-over-six, any rows
    &cpu::quantize,
};

const QuantizeImplementation* const requantize_list[] = {
    &cuda::requantize_transpose,  // MXFP8 and FP8 to the transposed part in MXFP8 1x32, aligned rows
    &cuda::requantize_codes,      // E4M3 and E2M1 codes, rows of whole aligned 8 codes: any scaling, layout and part
    &cuda::requantize_values,     // any formats, scalings, parts and alignments
    &cuda::quantize_fp4,          // Hadamard transform, stochastic rounding, four-over-six
    &cpu::requantize,
};

const AmaxImplementation* const amax_list[] = {
    &cuda::amax,
    &cpu::amax,
};

const PadImplementation* const pad_list[] = {
    &cuda::pad_groups,
    &cpu::pad_groups,
};

const DequantizeImplementation* const dequantize_list[] = {
    &cuda::dequantize_rowwise,
    &cuda::dequantize_columnwise,
    &cuda::dequantize_hadamard,  // undoes a Hadamard transform
    &cpu::dequantize,
};

const ConvertImplementation* const convert_list[] = {
    &cuda::convert,
    &cpu::convert,
};

const SwizzleImplementation* const swizzle_list[] = {
    &cuda::swizzle_scales,
    &cpu::swizzle_scales,
};

const GemmImplementation* const gemm_list[] = {
    &cuda::cublaslt,          // cuBLASLt's tensor-core kernels, where version, chip and layout allow
    &cuda::cublaslt_swizzle,  // after a pass over compact scales, and over MX of 4 and 6 bits; where FP8 takes E8M0 scales
    &cuda::cublaslt_rebase,   // MX where FP8 takes no E8M0 scales: after a pass over each operand
    &cuda::skinny_sm90,       // up to 128 rows: reads quantized weights once, exact
    &cuda::splitk_sm90,       // up to 128 rows, split-K in one launch, exact: see has_split_rows
    &cuda::wgmma_fp8_sm90,    // MX rebased by a kernel of our own, and FP8: see preferred_gemm
    &cuda::wgmma_bf16_sm90,   // BF16, NVFP4, and FP8 with ROW scales, with quantized weights
    &cuda::wgmma_plain_sm90,  // BF16 with BF16, F16 with F16
    &cuda::wgmma_fp8_transpose,  // FP8 with MN-major FP8, which a pass transposes
    &cuda::weights_sm90,         // what is BF16, or becomes so, with FP8 weights with scales of 128, MXFP4 and NVFP4
    &cuda::weights_fp8_sm90,     // FP8 and MXFP8 with MXFP4 on FP8 tensor cores, few rows: see has_rows_for_fp8_weights
    &cuda::wgmma_blocks_sm90,    // FP8 with scales of 128 with BF16, MX and NVFP4
    &cuda::cublaslt_widen,       // MN-major MX, and weight gradients that are exact or with BF16: after dequantizing to BF16
    &cuda::wgmma_plain_widen,    // the same by a kernel of our own, and exact products of many rows
    &cuda::mma_bf16_widen,
    &cuda::mma_bf16_transpose,  // MN-major FP8, which a pass transposes
    &cuda::mma_bf16_rows,       // up to 64 rows (of groups: on average) with quantized weights
    &cuda::mma_bf16,
    &cpu::gemm,
};

const GemmImplementation* const grouped_gemm_list[] = {
    &cuda::cublaslt_grouped,  // one call for all groups
    &cuda::cublaslt_grouped_swizzle,
    &cuda::wgmma_plain_sm90,  // one launch; BF16 with BF16, F16 with F16
    &cuda::cublaslt,          // one call for each group, which needs their ends on the host
    &cuda::cublaslt_swizzle,
    &cuda::cublaslt_grouped_rebase,
    &cuda::skinny_sm90,     // up to 128 rows a group
    &cuda::wgmma_fp8_sm90,  // MX: see preferred_gemm; FP8 with ROW scales, which cuBLASLt does not group
    &cuda::wgmma_bf16_sm90,
    &cuda::wgmma_fp8_transpose,
    &cuda::weights_sm90,       // what is BF16, or becomes so, with FP8 weights with scales of 128, MXFP4 and NVFP4
    &cuda::weights_fp8_sm90,   // FP8 and MXFP8 with MXFP4 on FP8 tensor cores, few rows: see has_rows_for_fp8_weights
    &cuda::wgmma_blocks_sm90,  // FP8 with scales of 128 with BF16, MX and NVFP4
    &cuda::wgmma_plain_widen,  // as above, and NVFP4 and FP8 with ROW scales
    &cuda::cublaslt_grouped_widen,
    &cuda::cublaslt_widen,
    &cuda::mma_bf16_widen,
    &cuda::mma_bf16_transpose,  // MN-major FP8, which a pass transposes
    &cuda::mma_bf16_rows,       // up to 64 rows a group on average, with quantized weights
    &cuda::mma_bf16,
    &cpu::gemm,
};

const RouteImplementation* const route_list[] = {
    &cuda::route,
    &cpu::route,
};

const CombineImplementation* const combine_list[] = {
    &cuda::combine,
    &cpu::combine,
};

const CombineBackwardImplementation* const combine_backward_list[] = {
    &cuda::combine_backward,
    &cpu::combine_backward,
};

// Returns whether each K-major row of MXFP8 has one scale, so that rebasing changes no codes.
bool has_kept_lines(const GemmOperand& operand) { return operand.bits == 8 && operand.layout.has_one_of_line(); }

// Returns whether each product of two codes must be exact, so that BF16 tensor cores multiply. FP8 tensor cores take the
// other problems: FP8 with FP8, and MX with MX unless the caller asked for exact products.
bool is_exact(const GemmProblem& p) {
    // With such a B, A is plain, for BF16 tensor cores, or FP8, for FP8 tensor cores.
    if (p.b.scale_type == ScaleType::None || p.b.scale_type == ScaleType::F32) return p.a.scale_type == ScaleType::None;
    return p.a.scale_type != ScaleType::E8M0 || p.b.scale_type != ScaleType::E8M0 || p.exact_products;
}

// Columns up to which splitk_sm90 has no more tiles than there are SMs: see has_split_rows.
constexpr int64_t kMostSplitColumns = 1 << 14;

// Returns up to how many rows, of groups on average, skinny_sm90 is faster than the implementation behind it. An H200:
//
//     skinny_sm90 | wgmma_bf16_sm90              64 rows      128 rows
//     BF16 with MXFP4, (7168,2048)               20 | 20      27 | 21
//                      (4096,4096)               22 | 23      33 | 24
//                      (2048,7168)               25 | 23      40 | 24
//                      (8192,8192)               40 | 52      47 | 47
//     rows a group, 32 groups of (2048,7168)     219 | 288
//                                (5760,2880)     239 | 332    396 | 353
//
// Rebased operands need a pass over the weights, unless these are kept with one scale a row:
//
//     skinny_sm90 | rebased, cuBLASLt 13.10      1 row      8          16         32         64         128
//     MXFP8 with MXFP8, (7168,2048)                                    15 | 17    21 | 23
//                       (4096,4096)                                    19 | 26    19 | 26    27 | 26
//                       (8192,8192)                                                                     57 | 63
//     kept weights, (7168,2048)                  15 | 12
//                   (8192,8192)                             28 | 30    32 | 30
//     rows a group, 8 groups of (2048,7168)                 58 | 74               75 | 78    97 | 83
int64_t most_few_rows(const GemmProblem& p) {
    const bool is_large = p.n * p.k >= int64_t(1) << 25, grouped = p.grouping == Grouping::Rows;
    const bool rounds = p.a.scale_type == ScaleType::E8M0 && p.b.scale_type == ScaleType::E8M0 && !p.exact_products;
    const bool kept = rounds && has_kept_lines(p.b);
    const bool for_cublaslt = rounds && p.d.format != MXQ_FORMAT_F32 && !p.a.columnwise;  // see preferred_gemm
    if (grouped) return kept ? 32 : 96;
    if (for_cublaslt && kept) return is_large ? 8 : 0;
    if (for_cublaslt) return is_large ? 128 : 16;
    if (kept) return 32;
    if (is_exact(p)) return p.n > kMostSplitColumns ? 128 : is_large ? 96 : 64;
    return is_large ? 128 : 64;
}

// Returns the rows of A in an exact product, which splits each F16 row into two of BF16.
int64_t bf16_rows(const GemmProblem& p) { return p.a.format == MXQ_FORMAT_F16 ? 2 * p.m : p.m; }

bool has_few_rows(const GemmProblem& p) {
    const bool is_block_scaled = p.b.scale_type == ScaleType::E8M0 || p.b.scale_type == ScaleType::E4M3;
    const bool is_plain = p.a.scale_type == ScaleType::None && p.b.scale_type != ScaleType::None;
    if ((!is_block_scaled && !is_plain) || p.grouping == Grouping::Contraction) return false;
    return bf16_rows(p) <= most_few_rows(p) * (p.grouping == Grouping::Rows ? p.groups.count : 1);
}

// Returns whether mma_bf16_rows, which issues all loads of weights at its start, is faster than skinny_sm90, whose thread
// blocks first read the work list. An H100, BF16 with MXFP4:
//
//     skinny_sm90 | mma_bf16_rows     1 row          4              8              16 rows
//     (4096,4096)                     11.4 | 7.7                    11.5 | 8.1
//     (7168,2048)                     10.4 | 7.3                    10.5 | 7.6
//     (2048,7168)                     11.8 | 7.2                    11.9 | 8.1
//     (8192,8192)                     24.4 | 19.8                   24.6 | 21.1
//     (28672,8192)                    56.7 | 56.4                   57.1 | 62.8
//     32 groups of (5760,2880)        12.0 | 8.7     22.0 | 18.8    25.2 | 22.1    35.7 | 37.1
//     32 groups of (2048,7168)                                                     43 | 44
//     8 groups of (2048,7168)                                                      33 | 28
//     8 groups of (8192,5120)                                                      72 | 72
bool has_fewest_rows(const GemmProblem& p) {
    const int64_t most_rows = p.grouping == Grouping::Rows && p.groups.count <= 8 ? 16 : 8;
    return bf16_rows(p) <= most_rows && p.n <= kMostSplitColumns;
}

// Returns whether splitk_sm90, whose clusters split K, is the fastest exact product with quantized weights. The second
// number is of the fastest other one: skinny_sm90, wgmma_bf16_sm90 (w) or cuBLASLt 13.1 with rebased operands (r). H200,
// (5760,2880) H100:
//
//     splitk_sm90 | others               8 rows         16             32             64             128 rows
//     BF16 with MXFP4, (4096,4096)       11.9 | 10.5
//                      (7168,2048)                      9.9 | 11.1                    11.3 | 19.3w   13.9 | 20.5w
//                      (2048,7168)                                                    14.1 | 21.6w
//                      (8192,8192)                      23 | 25                       27 | 37        35 | 44w
//                      (5760,2880)                      13.3 | 14.5    13.2 | 18.7    15.0 | 22.3    17.9 | 24.1
//                      (28672,8192)                                    79 | 67        90 | 80        126 | 119
//     with NVFP4, (4096,4096)                           14.2 | 13.6    14.2 | 19.1
//                 (8192,8192)                           29.7 | 27.5    29.9 | 34.5
//     MXFP8 with MXFP8, (7168,2048)                                                   15.3 | 19.7r
//                       (4096,4096)                                                   18.3 | 26.1r
//
// (28672,8192) has more tiles of 128 columns than there are SMs, where the persistent thread blocks of skinny_sm90 win.
bool has_split_rows(const GemmProblem& p) {
    constexpr int64_t most_rows = 128;
    const bool is_block_scaled = p.b.scale_type == ScaleType::E8M0 || p.b.scale_type == ScaleType::E4M3;
    const bool is_plain = p.a.scale_type == ScaleType::None && p.b.scale_type != ScaleType::None;
    if ((!is_block_scaled && !is_plain) || p.grouping != Grouping::None) return false;
    if (is_block_scaled && (!p.b.layout.has_adjacent_fours() || (has_kept_lines(p.b) && !is_exact(p)))) return false;
    const int64_t least_rows = p.b.scale_type == ScaleType::E4M3 ? 17 : 9, rows = bf16_rows(p);
    return rows >= least_rows && rows <= most_rows && p.n <= kMostSplitColumns;
}

// Returns whether wgmma_plain_sm90 multiplies groups of plain numbers at least as fast as cuBLASLt. An H200, rows in all:
//
//     wgmma_plain_sm90 | cuBLASLt 13.10   1024         4096          16384          32768          131072 rows
//     32 groups of (5760,2880)            272 | 323    318 | 366     793 | 866      1497 | 1494    6233 | 5507
//     8 groups of (2048,7168)             85 | 112     229 | 227     602 | 658      1194 | 1186    4818 | 4675
//     128 groups of (2048,7168)           883 | 898    915 | 1014    1062 | 1134    1634 | 1737    5636 | 5188
bool has_plain_groups(const GemmProblem& p) {
    constexpr int64_t most_rows = int64_t(1) << 15;
    return p.grouping == Grouping::Rows && p.m <= most_rows && p.a.scale_type == ScaleType::None &&
           p.b.scale_type == ScaleType::None;
}

// Returns whether one operand alone is FP8 with scales of 128.
bool mixes_scales_of_128(const GemmProblem& p) { return has_scales_of_128(p.a) != has_scales_of_128(p.b); }

// Returns whether wgmma_blocks_sm90, which dequantizes weights once for all rows, is faster than mma_bf16_rows, which
// decodes them for every eight rows. An H100, rows of groups in all:
//
//     mma_bf16_rows | wgmma_blocks_sm90           4 rows      32         64           256          1024         2048 rows
//     BF16 with FP8 128x128, (4096,4096)                      33 | 57    62 | 58
//                            (2048,7168)                                 51 | 79
//                            (7168,2048)                                 60 | 40
//         32 groups of (2048,7168)                32 | 551               151 | 708    291 | 814    875 | 821    1620 | 827
//     FP8 1x128 with MXFP4, (4096,4096)                       26 | 63    48 | 63
//                           (2048,7168)                                  37 | 82
//                           (7168,2048)                                  46 | 44
bool has_rows_for_wgmma_blocks(const GemmProblem& p) {
    return p.grouping == Grouping::Rows ? p.m > 24 * int64_t(std::max(p.groups.count, 1)) : p.m > 48;
}

// Returns whether weights_sm90, which decodes FP8 weights in registers, takes the place of both. An H200, rows of groups in
// all, 2026-11-29, before a warp of its own loaded scales:
//
//     mma_bf16_rows (m), wgmma_blocks_sm90 (w) | weights_sm90     8 rows     16           64          256         1024 rows
//     BF16 with FP8 128x128, (4096,4096)                          9.8m |     17.4m | 15   55w | 18    55w | 28    93w | 89
//         32 groups of (2048,7168)                                           64 rows: 156m            256: | 135
//         32 groups of (5760,2880)    4 rows: 37m | 42, 32 rows: 167m | 116
bool has_rows_for_weights(const GemmProblem& p) {
    if (!has_scales_of_128(p.b) || p.b.element != Element::E4M3 || p.a.across || p.b.across) return false;
    return p.grouping == Grouping::Rows ? p.m >= std::max(p.groups.count, 1) : p.m > 8;
}

// Returns whether wgmma_fp8_sm90, whose pass moves MX weights to FP8 codes, multiplies FP8 by MX faster than kernels on BF16
// tensor cores. They may not round operands, so neither may it where exact products are asked for. An H200, 2026-11-29, us,
// rows in all:
//
//     the other | wgmma_fp8_sm90                    256         1024        2048        8192        32768 rows
//     FP8 1x128 with MXFP4, 32 of (5760,2880)       265 | 446   631 | 446   638 | 449   892 | 602   2198 | 1333
//                           128 of (1536,2048)      158 | 304   272 | 319   451 | 322
//     FP8 ROW with MXFP4, 32 of (5760,2880): the other takes 377 us with 4096 rows, 593 with 8192
bool has_rows_for_moved_weights(const GemmProblem& p) {
    if (p.exact_products || p.a.scale_type != ScaleType::F32 || p.b.scale_type != ScaleType::E8M0) return false;
    const int64_t groups = p.grouping == Grouping::Rows ? std::max(p.groups.count, 1) : 1;
    const int64_t rows = !has_scales_of_128(p.a) ? 256 : groups > 1 ? 12 : 64;
    return p.m > rows * groups;
}

// Returns whether weights_fp8_sm90 multiplies FP8 or MXFP8 by MXFP4 faster than kernels on BF16 tensor cores, or than
// wgmma_fp8_sm90, whose pass moves all weights. It wants scales of A row by row. An H200, 2026-11-29, us, rows in all:
//
//     the other | weights_fp8_sm90                  4 rows     64          512          1024        2048        4096 rows
//     FP8 1x128, 32 of (5760,2880)                  29 | 23    166 | 92    443 | 138    449 | 198   451 | 275   492 | 462
//                128 of (1536,2048)                            130 | 59    (1024) 272 | 88          (8192) 325 | 242
//     MXFP8, 32 of (5760,2880)                                 109 | 91    170 | 141                282 | 339
//
//                                                   1 row      16          64           128         256 rows
//     FP8 1x128, (4096,4096)                        10 | 16    18 | 16     58 | 18      38 | 22     40 | 27
//                (8192,8192)                        26 | 26    45 | 27     125 | 31     86 | 41     89 | 68
//     MXFP8, (4096,4096)                                       15 | 16                  20 | 22
bool has_rows_for_fp8_weights(const GemmProblem& p) {
    if (p.exact_products || p.b.bits != 4 || p.b.scale_type != ScaleType::E8M0 || p.b.across) return false;
    if (p.a.element != Element::E4M3 || p.a.across || p.a.layout.swizzled || p.grouping == Grouping::Contraction) return false;
    const bool is_mx = p.a.scale_type == ScaleType::E8M0, has_blocks = has_scales_of_128(p.a);
    if (!is_mx && (p.a.scale_type != ScaleType::F32 || (has_blocks && p.a.layout.tile_rows != 1))) return false;
    if (p.grouping == Grouping::None) return has_blocks && p.m > 8 && p.m <= 256;
    return p.m <= (has_blocks ? 96 : 24) * int64_t(std::max(p.groups.count, 1));
}

// Returns whether wgmma_fp8_sm90 has its tiles of 256 x 128 for FP8 1x128 with 128x128 (fp8_squares.cu), and those fill at
// least 85% of the rounds of an H200 or H100: it is then faster than cuBLASLt. An H200, cuBLASLt 13.1, 2026-11-29, us in
// loops:
//
//     cuBLASLt | wgmma_fp8_sm90     (4096,4096,7168)    (4096,7168,2048)    (8192,8192,8192)    (4736,7296,2560)
//                                   215 | 186           124 | 109           990 | 891           175 | 174
//     fewer than 85%                (512,4096,7168)     (1024,2048,7168)    (5248,1152,7680)    (2304,1920,3584)
//                                   29 | 42             29 | 45             84 | 105            40 | 47
bool fills_square_tiles(const GemmProblem& p) {
    constexpr int64_t clusters = 66;
    if (!has_scales_of_128(p.a) || !has_scales_of_128(p.b) || p.b.layout.tile_rows != kBlock128 ||
        p.grouping != Grouping::None || p.d.format == MXQ_FORMAT_F16 || p.n % 8 != 0 ||
        !p.is_sum_alone() || p.k % 16 != 0 || p.a.across || p.b.across)
        return false;
    const int64_t turns = ceil_div(p.m, int64_t(256)) * ceil_div(p.n, int64_t(256)), rounds = ceil_div(turns, clusters);
    return turns * 100 >= rounds * clusters * 85;
}

// Returns whether weights_sm90 multiplies BF16 rows with FP4 weights faster than skinny_sm90, or wgmma_bf16_sm90 (w). An H200,
// rows of groups on average, 2026-11-29:
//
//     skinny_sm90 | weights_sm90        2 rows       4            8            16           32           64           128
//     MXFP4, 32 groups of (5760,2880)   107 | 116                 142 | 138    159 | 145    180 | 174    246 | 237    371w | 388
//            128 groups of (5760,2880)               463 | 472    517 | 472    571 | 501    699 | 598    924 | 883
//            128 groups of (1536,2048)               103 | 103    108 | 105    134 | 113    156 | 138    227 | 213
//     NVFP4, 32 groups of (5760,2880)                                          186 | 194    204 | 203    266 | 271
//            128 groups of (1536,2048)                            129 | 143                 186 | 174    240 | 251
//
//     wgmma_bf16_sm90 | weights_sm90    160 rows     192          256          384          512
//     MXFP4, (4096,4096)                32.5 | 29.7  30.7 | 27.7  32.0 | 27.1  43.4 | 39.4  38.5 | 40.3
//            (2048,7168)                                          31.6 | 30.1               41.5 | 38.3
//            (8192,8192)                                          60 | 70
//
// Without groups splitk_sm90 is faster up to 128 rows.
bool has_rows_for_fp4(const GemmProblem& p) {
    constexpr int64_t least_weights = 1 << 23, most_weights = 1 << 24;
    if (p.b.bits != 4 || p.a.format != MXQ_FORMAT_BF16 || p.b.across || p.grouping == Grouping::Contraction) return false;
    const bool is_nvfp4 = p.b.scale_type == ScaleType::E4M3, is_grouped = p.grouping == Grouping::Rows;
    const bool fits = p.m > 128 && p.m <= 384 && p.n * p.k >= least_weights && p.n * p.k <= most_weights;
    if (!is_grouped) return !is_nvfp4 && fits;
    const int64_t least_rows = is_nvfp4 ? 24 : 6, most_rows = is_nvfp4 ? 48 : 96;
    return p.m >= least_rows * p.groups.count && p.m <= most_rows * p.groups.count;
}

// Returns whether weights_sm90 takes rows that must be invariant: few of them, since wgmma_bf16_sm90 has the same sums in tiles
// that are faster with many, and all of weights with scales of 128, which it alone takes. An H200, 2026-11-29, rows in all:
//
//     weights_sm90 | wgmma_bf16_sm90         1 row       16 rows     64           256          512          2048
//     BF16 with MXFP4, (4096,4096)           19 | 41     19 | 41     20 | 41      27 | 43      48 | 44
//         32 groups of (5760,2880)                                   193 | 367    225 | 347    237 | 331    356 | 319
//     MXFP8 with MXFP8, (4096,4096)          22 | 48     22 | 49     24 | 49                   56 | 52
//         32 groups of (5760,2880)                                   216 | 379    240 | 388    247 | 364    361 | 361
bool has_rows_in_order(const GemmProblem& p) {
    if (p.b.across || p.a.across) return false;
    if (has_scales_of_128(p.b)) return mixes_scales_of_128(p);
    const bool is_block_scaled = p.b.scale_type == ScaleType::E8M0 || p.b.scale_type == ScaleType::E4M3;
    if (!is_block_scaled || (p.b.bits != 4 && p.b.bits != 8)) return false;
    return bf16_rows(p) <= (p.grouping == Grouping::Rows ? 32 * int64_t(std::max(p.groups.count, 1)) : 256);
}

// Returns whether wgmma_fp8_sm90 multiplies few rows of FP8 with scales of 128 in tiles for few (fp8_few.cu), faster than
// cuBLASLt. An H200, cuBLASLt 13.1, 2026-11-29, us:
//
//     cuBLASLt | wgmma_fp8_sm90     8 rows       16           64           128          512
//     (4096,4096)                   16.4 | 14.4  16.8 | 12.2  17.1 | 11.4  17.9 | 13.0  18.8 | 24.5
bool has_few_fp8_rows(const GemmProblem& p) {
    constexpr int64_t most_rows = 128, most_weights = 1 << 25;
    const bool are_codes = p.a.element == Element::E4M3 && p.b.element == Element::E4M3 && !p.a.across && !p.b.across;
    const bool is_d = (p.d.format == MXQ_FORMAT_BF16 || p.d.format == MXQ_FORMAT_F32) && p.is_sum_alone();
    return are_codes && is_d && has_scales_of_128(p.a) && has_scales_of_128(p.b) && p.b.layout.tile_rows == kBlock128 &&
           p.grouping == Grouping::None && p.sm_count == 0 && p.m <= most_rows && p.n * p.k <= most_weights;
}

// Returns the implementation to ask before the list, or null for the order of the list. The first case that fits decides:
//
//     rows must be invariant                  weights_sm90 where has_rows_in_order, else null
//     has_rows_for_fp8_weights                weights_fp8_sm90
//     has_rows_for_moved_weights              wgmma_fp8_sm90
//     fills_square_tiles, has_few_fp8_rows    wgmma_fp8_sm90
//     one operand alone has scales of 128     weights_sm90 where it is B, else wgmma_blocks_sm90; mma_bf16_rows for few rows
//     has_rows_for_fp4                        weights_sm90
//     has_split_rows: up to 128, no groups    splitk_sm90
//     has_few_rows                            mma_bf16_rows for the fewest rows, else skinny_sm90
//     has_plain_groups                        wgmma_plain_sm90
//     is_exact                                wgmma_plain_widen where that pays, else wgmma_bf16_sm90
//     MX with MX on Hopper                    wgmma_fp8_sm90 in the three cases below, else null: cuBLASLt
//
// Lists where wgmma_fp8_sm90 multiplies MX by MX faster than cuBLASLt:
//
//     A is transposed          cuBLASLt then needs a scale for every 128 codes
//     D is F32                 cuBLASLt is slow with it
//     B has one scale a row    no pass over B is needed here; tiles of 128x192 must fill the SMs about twice
//
// An H200, (M,N,K):
//
//     TFLOP/s, wgmma_fp8_sm90 | cuBLASLt 13.10         (8192,8192,8192)
//     A transposed                                     1173 | 985
//
//     the same, 8 groups                               (32768,2048,7168)    (32768,8192,5120)
//     groups of rows, F32 D                            972 | 782            1098 | 861
//     groups along K, F32 D                            873 | 736            983 | 805
//     groups along K, BF16 D                           907 | 863            1032 | 962
//     groups of rows, BF16 D                           1001 | 1063          1139 | 1186
//     groups of rows, BF16 D, one scale a row of B     1071 | 1063          1230 | 1186
//
//     us, one scale a row of B                         88 tiles             352 tiles
//                                                      103 | 97             177 | 198
//
// Where rows of both have one scale each and there are no groups, cuBLASLt multiplies sums by these scales, too:
//
//     TFLOP/s, wgmma_fp8_sm90 | cuBLASLt 13.10         (8192,8192,8192)     (4096,4096,4096)    (32768,2048,7168)
//     FP8                                              1373 | 1441          1051 | 1340         1314 | 1425
const GemmImplementation* preferred_gemm(const Context& context, const GemmProblem& p) {
    constexpr int64_t tile_rows = 128, tile_columns = 192, enough_tiles = 256;
    const bool is_hopper = cuda::compute_capability(context) == 90;  // on Blackwell cuBLASLt takes few rows of MX and NVFP4
    if (p.row_invariant) return is_hopper && has_rows_in_order(p) ? &cuda::weights_sm90 : nullptr;  // those below sum otherwise
    if (is_hopper && has_rows_for_fp8_weights(p)) return &cuda::weights_fp8_sm90;
    if (is_hopper && (has_rows_for_moved_weights(p) || fills_square_tiles(p) || has_few_fp8_rows(p)))
        return &cuda::wgmma_fp8_sm90;
    if (mixes_scales_of_128(p) && is_hopper && has_rows_for_weights(p)) return &cuda::weights_sm90;
    if (mixes_scales_of_128(p))
        return is_hopper && has_rows_for_wgmma_blocks(p) ? &cuda::wgmma_blocks_sm90 : &cuda::mma_bf16_rows;
    if (is_hopper && has_rows_for_fp4(p)) return &cuda::weights_sm90;
    if (has_split_rows(p)) return &cuda::splitk_sm90;
    if (has_few_rows(p)) return is_hopper && has_fewest_rows(p) ? &cuda::mma_bf16_rows : &cuda::skinny_sm90;
    if (has_plain_groups(p)) return &cuda::wgmma_plain_sm90;
    if (is_exact(p) && cuda::pays_to_widen(p)) return &cuda::wgmma_plain_widen;
    if (is_exact(p) && p.b.scale_type != ScaleType::None) return &cuda::wgmma_bf16_sm90;
    if (p.a.scale_type != ScaleType::E8M0) return nullptr;
    if (p.a.columnwise || p.d.format == MXQ_FORMAT_F32) return &cuda::wgmma_fp8_sm90;
    const int64_t groups = p.grouping == Grouping::Rows ? std::max(p.groups.count, 1) : 1;
    const int64_t tiles = groups * ceil_div(ceil_div(p.m, groups), tile_rows) * ceil_div(p.n, tile_columns);
    if (!has_kept_lines(p.b) || (has_kept_lines(p.a) && p.grouping == Grouping::None)) return nullptr;
    return tiles >= enough_tiles ? &cuda::wgmma_fp8_sm90 : nullptr;
}

const ActivateImplementation* const activate_list[] = {
    &cuda::activate,           // to plain numbers
    &cuda::activate_rowwise,   // of a gate, aligned BF16 to rows of 8 bits with scales of 1x32 and 1x128
    &cuda::activate_tile,      // to codes of 8 and 6 bits with scales of blocks: tiles of 128x128 in registers
    &cuda::activate_quantize,  // to every other format: F32 in the workspace, then quantize
    &cpu::activate,
};

const ActivateImplementation* const activate_backward_list[] = {
    &cuda::activate_backward,           // to plain numbers
    &cuda::activate_backward_tile,      // aligned BF16 in halves to codes of 8 bits with scales of blocks, from one read
    &cuda::activate_backward_quantize,  // to every quantized format: F32 in the workspace, then quantize
    &cpu::activate_backward,
};

// Steps of mxq_expert_layer: the first product, with the routing and the activation, and the second one. Where none takes it,
// single verbs do.
const RoutedProductImplementation* const activated_product_list[] = {&cuda::mma_bf16_rows_activate};
const RoutedProductImplementation* const routed_product_list[] = {&cuda::mma_bf16_rows_routed};
const RoutedCombineImplementation* const routed_combine_list[] = {&cuda::combine_choices};

template <class Problem, size_t count>
constexpr Verb<Problem> as_verb(const char* name, const Implementation<Problem>* const (&list)[count],
                                const Implementation<Problem>* (*preferred)(const Context&, const Problem&) = nullptr) {
    static_assert(count <= kMostImplementations);
    return {name, list, count, preferred};
}

}  // namespace

namespace verbs {
constinit const Verb<QuantizeProblem> quantize = as_verb("quantize", quantize_list);
constinit const Verb<QuantizeProblem> requantize = as_verb("requantize", requantize_list);
constinit const Verb<AmaxProblem> amax = as_verb("amax", amax_list);
constinit const Verb<DequantizeProblem> dequantize = as_verb("dequantize", dequantize_list);
constinit const Verb<ConvertProblem> convert = as_verb("convert", convert_list);
constinit const Verb<PadProblem> pad_groups = as_verb("pad_groups", pad_list);
constinit const Verb<PadProblem> unpad_groups = as_verb("unpad_groups", pad_list);
constinit const Verb<SwizzleProblem> swizzle_scales = as_verb("swizzle_scales", swizzle_list);
constinit const Verb<SwizzleProblem> unswizzle_scales = as_verb("unswizzle_scales", swizzle_list);
constinit const Verb<GemmProblem> gemm = as_verb("gemm", gemm_list, preferred_gemm);
constinit const Verb<GemmProblem> grouped_gemm = as_verb("grouped_gemm", grouped_gemm_list, preferred_gemm);
constinit const Verb<RouteProblem> route = as_verb("route", route_list);
constinit const Verb<CombineProblem> combine = as_verb("combine", combine_list);
constinit const Verb<CombineBackwardProblem> combine_backward = as_verb("combine_backward", combine_backward_list);
constinit const Verb<ActivateProblem> activate = as_verb("activate", activate_list);
constinit const Verb<ActivateProblem> activate_backward = as_verb("activate_backward", activate_backward_list);
constinit const Verb<RoutedProductProblem> activated_product = as_verb("grouped_gemm", activated_product_list);
constinit const Verb<RoutedProductProblem> routed_product = as_verb("grouped_gemm", routed_product_list);
constinit const Verb<RoutedCombineProblem> routed_combine = as_verb("combine", routed_combine_list);
}  // namespace verbs

namespace {

// Calls `look` with every verb.
template <class Look>
void each_verb(const Look& look) {
    look(verbs::quantize);
    look(verbs::requantize);
    look(verbs::dequantize);
    look(verbs::convert);
    look(verbs::amax);
    look(verbs::swizzle_scales);
    look(verbs::unswizzle_scales);
    look(verbs::pad_groups);
    look(verbs::unpad_groups);
    look(verbs::gemm);
    look(verbs::grouped_gemm);
    look(verbs::route);
    look(verbs::combine);
    look(verbs::combine_backward);
    look(verbs::activate);
    look(verbs::activate_backward);
}

}  // namespace

void gather_rows(const Context& context, const GatherProblem& problem, const Launch& launch) {
    (context.is_cpu() ? cpu::gather_rows : cuda::gather_rows).run(context, problem, launch);
}

void load_implementations(const Context& context) {
    if (context.is_cuda()) cuda::gather_rows.load(context);
    const auto load = [&](const auto& verb) {
        for (size_t i = 0; i < verb.count; i++)
            if (verb.first[i]->load) verb.first[i]->load(context);
    };
    each_verb(load);
    load(verbs::activated_product);
    load(verbs::routed_product);
    load(verbs::routed_combine);
}

std::vector<VerbNames> verb_table() {
    std::vector<VerbNames> table;
    each_verb([&](const auto& verb) { table.push_back(names_of(verb)); });
    return table;
}

void check_workspace(uint64_t need, const void* workspace, uint64_t bytes) {
    if (need == 0 && bytes == 0) return;
    if (bytes < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL,
             "workspace holds %llu bytes, expected at least %llu; ask the verb's query and mxq_plan_workspace_bytes",
             (unsigned long long)bytes, (unsigned long long)need);
    if (!workspace && need == 0)
        fail(MXQ_STATUS_MISSING_BUFFER, "workspace is NULL with %llu bytes, expected NULL with 0: this call needs none",
             (unsigned long long)bytes);
    if (!workspace)
        fail(MXQ_STATUS_MISSING_BUFFER,
             "workspace is NULL with %llu bytes, expected the address of at least %llu; allocate it",
             (unsigned long long)bytes, (unsigned long long)need);
    if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0)
        fail(MXQ_STATUS_MISALIGNED, "workspace is at %p, expected a multiple of %llu bytes", workspace,
             (unsigned long long)kWorkspaceAlignment);
}

}  // namespace mxq
