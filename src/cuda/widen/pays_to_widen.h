// Says when weights are dequantized to BF16 before the product. Dispatch and the implementations that do it ask this.
#pragma once
#include "core/problem.h"

namespace mxq::cuda {

// Returns whether enough rows, of groups on average, share the weights for a pass that dequantizes these to BF16. The pass
// is wgmma_plain_widen; otherwise wgmma_bf16_sm90 decodes weights in its main loop. An H100, us, BF16 activations, rows in
// all:
//
//     wgmma_bf16_sm90 | wgmma_plain_widen    4096         8192           16384          32768          65536 rows
//     8 groups of (2048,7168), MXFP8         277 | 355    453 | 495      808 | 720      1450 | 1303
//                              MXFP6         384 | 355    624 | 493      1026 | 717     1800 | 1301
//                              FP8 ROW                                   809 | 757      1458 | 1379
//     8 groups of (8192,5120), MXFP8                      1209 | 1261    2254 | 2075    4272 | 3807
//                              MXFP6                      1506 | 1249    2762 | 2063    5265 | 3802
//     32 groups of (5760,2880), MXFP8                                    1099 | 1358                   3620 | 3434
//                               MXFP6                                    1354 | 1339                   4399 | 3412
//                               FP8 ROW                                                                3678 | 3803
//
// Codes of four bits gain at most 6%, for four times their bytes in the workspace.
inline bool pays_to_widen(const GemmProblem& p) {
    if (p.a.element == Element::F16 || p.b.bits == 16 || p.b.bits == 4 || p.grouping == Grouping::Contraction) return false;
    const int64_t least_rows = p.b.bits == 6 ? 512 : p.b.scale_type == ScaleType::F32 ? 4096 : 2048;
    return p.m >= least_rows * (p.grouping == Grouping::Rows ? p.groups.count : 1);
}

}  // namespace mxq::cuda
