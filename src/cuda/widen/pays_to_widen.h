// When weights are dequantized to BF16 before the product, by dispatch and by those who do so.
#pragma once
#include "core/problem.h"

namespace mxq::cuda {

// Returns whether so many rows share the weights, in all or of a group on average, that dequantizing these to BF16 in a pass of
// its own costs less than decoding them in the main loop of wgmma_bf16_sm90. An H100, us of that kernel and of
// wgmma_plain_widen, BF16 activations:
//
//     groups, (N,K), rows                             MXFP8                       MXFP6
//     8, (2048,7168), 4096, 8192, 16384 and 32768     277 355 453 495 808 720     384 355 624 493 1026 717
//                                                     1450 1303                   1800 1301
//     8, (8192,5120), 8192, 16384 and 32768           1209 1261 2254 2075         1506 1249 2762 2063
//                                                     4272 3807                   5265 3802
//     32, (5760,2880), 16384 and 65536                1099 1358 3620 3434         1354 1339 4399 3412
//
// FP8 with one scale a line, whose sums have factors: 16384 and 32768 rows of the first 809 757 and 1458 1379, 65536 of the
// last 3678 3803. Codes of four bits gain 6% at most, for four times their bytes in the workspace: NVFP4 1348 and 1321, 65536
// rows 2678 and 2535; MXFP4 1270 and 1266, 2532 and 2430.
inline bool pays_to_widen(const GemmProblem& p) {
    if (p.a.element == Element::F16 || p.b.bits == 16 || p.b.bits == 4 || p.grouping == Grouping::Contraction) return false;
    const int64_t least_rows = p.b.bits == 6 ? 512 : p.b.scale_type == ScaleType::F32 ? 4096 : 2048;
    return p.m >= least_rows * (p.grouping == Grouping::Rows ? p.groups.count : 1);
}

}  // namespace mxq::cuda
