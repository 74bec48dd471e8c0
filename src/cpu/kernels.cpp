// Quantize, dequantize and the gathering of maxima, built once per instruction set (MXQ_ISA: scalar, avx2, avx512bw).
//
// Quantize works in patches that stay in L1 or L2, with one short loop per step:
//
//     input -> values -> maxima of blocks -> scales, multipliers -> codes, a byte each -> packed -> lines of the output
//
//     rowwise            patch = a row of up to 1024 columns, or a few shorter ones; a block is 16, 32 or 128 neighbours
//     square, rowwise    patch = 16 rows x 512 columns or 32 x 256; one maximum for the columns of a tile
//     columnwise, both   patch = up to 32 rows x 128 columns, which serves both parts; a block is a column. Patches gather in
//                        a tile of 256 x 128 codes, which is transposed by bytes: each line of the output gets 256 codes
//     blocks of 128      four patches for the maxima, the same four once more for the codes
//
// Before that, maxima that stand for whole K-major rows or tensors are gathered from the same patches (cpu/gather_kernels.h).
// Values come from a plain tensor, or from codes in requantize, and may be transformed (cpu/quantize_values.h). A group is a
// matrix of its own (cpu/quantize_slices.h). cpu/dequantize_kernels.h shows how dequantize goes.
//
// The steps of MX, and of NVFP4 from BF16, exist twice: a fast path of 16-bit vectors (cpu/quantize_fast_path.h), in
// intrinsics because no compiler finds these conversions; and the exact path, from numerics alone and vectorised by the
// compiler, for what the fast path does not serve and for machines without F16C. A partial block is filled with zeros, which
// change no maximum. Steps are picked by pointer (input type, policy, rounding, element type), so that none multiplies the
// code of another. An element costs its input, its code and its share of a scale in memory traffic, for each part. Large
// outputs are written past the caches, because a cached store reads what it overwrites, which is half of its traffic.
#include "cpu/activate_kernels.h"
#include "cpu/combine_kernels.h"
#include "cpu/convert_kernels.h"
#include "cpu/gather_kernels.h"
#include "cpu/quantize_kernels.h"

namespace mxq::cpu {

#define MXQ_JOIN_OF(isa, name) isa##name
#define MXQ_JOIN(isa, name) MXQ_JOIN_OF(isa, name)

extern const Kernels MXQ_JOIN(MXQ_ISA, _kernels) = {quantize_rectangle, gather_rectangle, dequantize_rectangle,
                                                    convert_rectangle, combine_rectangle, activate_rectangle, sum_gradients, weight_gradient};

}  // namespace mxq::cpu
