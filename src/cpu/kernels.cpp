// Quantize and dequantize, built once per instruction set (MXQ_ISA: scalar, avx2, avx512); the compiler vectorises.
//
// Work goes in patches that stay in L1: 4096 elements, loaded once, then one short loop per step:
//
//     quantize       input -> values -> maxima of 32 -> scales, factors -> codes -> lines of the output
//
//     rowwise        patch = a few rows x up to 1024 columns; a block is 32 neighbours
//     columnwise     patch = 32 rows x 128 columns; a block is a column; eight patches make a tile of 256 x 128 codes,
//                    which is transposed by bytes, so that each output line gets 256 of them at once
//     both           one patch serves both, then the tile
//     32x32          one maximum for 32 columns; the codes serve both parts
//
//     dequantize     codes (columnwise: a tile, transposed) -> times the scale, rounded -> rows of the output
//
// Each step stands twice: with 16-bit vectors by way of F16 (numerics/halves.h; intrinsics, as no compiler finds these
// conversions), and from numerics alone for patches that the former does not serve and for machines without F16.
// A partial block is filled with zeros, which change no maximum. Steps are picked by pointer (input type, policy, rounding,
// element type), so none of them multiplies the others' code. Bytes per element: input + 1 + 1/32 (quantize, per part).
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
