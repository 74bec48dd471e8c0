// Quantize and dequantize, built once per instruction set (MXQ_ISA: scalar, avx2, avx512); the compiler vectorises.
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
//     before     maxima that stand for whole lines or tensors, of the same patches (cpu/gather_kernels.h)
//     values     of a plain tensor, or decoded (requantize); transformed (Hadamard)
//     groups     each a matrix of its own (cpu/quantize_slices.h)
//
//     dequantize codes (columnwise: a tile, transposed) -> times the scale, rounded -> rows of the output
//
// The steps of MX and of NVFP4 from BF16 stand twice: with 16-bit vectors (cpu/quantize_halves.h; intrinsics, as no compiler
// finds these conversions), and from numerics alone for what the former does not serve and for machines without F16.
// A partial block is filled with zeros, which change no maximum. Steps are picked by pointer (input type, policy, rounding,
// element type), so none of them multiplies the others' code. Bytes per element: input + code + scale / block, per part.
// Large outputs are written past the caches: half of a store's traffic is otherwise reading what it overwrites.
#include "cpu/dequantize_kernels.h"
#include "cpu/gather_kernels.h"
#include "cpu/quantize_kernels.h"

namespace mxq::cpu {

#define MXQ_TEXT_OF(isa) #isa
#define MXQ_TEXT(isa) MXQ_TEXT_OF(isa)
#define MXQ_JOIN_OF(isa, name) isa##name
#define MXQ_JOIN(isa, name) MXQ_JOIN_OF(isa, name)

extern const Kernels MXQ_JOIN(MXQ_ISA, _kernels) = {MXQ_TEXT(MXQ_ISA), quantize_rectangle, gather_rectangle,
                                                     dequantize_rectangle};

}  // namespace mxq::cpu
