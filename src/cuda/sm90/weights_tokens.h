// The tokens of weights_sm90: A as BF16 in another order of the contraction, so that weights need not change theirs. A
// thread's quarter of 128 codes of a line is 32 of them in a row, of which it gives four to each instruction:
//
//     codes 8 w .. 8 w + 7 of quarter q       0 and 4    1 and 5    2 and 6    3 and 7      pairs of FP4 in a masked word
//                                             0 and 2    1 and 3    4 and 6    5 and 7      pairs of 6 and 8 bits
//     instruction 2 w                         2 q, + 1   8 + 2 q, + 1                       its numbers of the contraction
//     instruction 2 w + 1                                           2 q, + 1   8 + 2 q, + 1
//
// F16 becomes two BF16 numbers, as split_f16 makes them: a matrix of high parts, and behind it one of low parts.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda::sm90::weights {

// Returns the arranged operand of BF16 or F16 numbers, at `to`.
GemmOperand arranged_tokens(const GemmOperand& from, void* to);

// Returns the bytes that it takes, a multiple of the workspace's alignment.
uint64_t arranged_token_bytes(const GemmOperand& from);

// Enqueues the pass for weights of so many bits. The next kernel may start before it ends (programmatic dependent launch)
// and then waits for it.
void arrange_tokens(const Context& context, const GemmOperand& from, const GemmOperand& to, int32_t bits, void* stream);

void load_arrange_tokens();

}  // namespace mxq::cuda::sm90::weights
