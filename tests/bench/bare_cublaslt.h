// A product by cuBLASLt alone, as its manual has it: what the library's own calls of it are compared with.
//
//     the library that the context uses, opened again -> descriptors -> heuristic, asked once -> one call, again and again
//
// Sizes and pointers of groups are on the device before the first call, and so are scales in the order that it wants.
#pragma once

#include "call.h"

enum class Scales { None, Tensor, Wide };  // BF16; FP8 with one, or one for each group; FP8 1x128 x 128x128

// Makes the call for the operands of a forward product (N,T), FP8 E4M3 where they have scales; Wide ones are swizzled, and of groups padded to rows
// by fours. Into a D of its own. Throws LeftOut where the library has no such call. The operands must outlive it.
Call bare_cublaslt(Device& device, const Library& library, const Operands& operands, Scales scales, const Size& size);
