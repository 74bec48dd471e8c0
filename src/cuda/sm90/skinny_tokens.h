// The tokens of skinny_sm90 for tiles of 64 and 128: A as BF16, in the order in which a warpgroup's instruction takes it, so
// that a tile's 128 codes of the contraction are bytes in a row. By tiles of a group, and of these
//
//     128 codes     8 tokens     16 codes     8 of these     token                          16 bytes
//
// Eight tokens in F16 lie as sixteen: their high parts, then their low ones (numerics/split_f16.h).
//
// A thread's quarter of 128 codes of a weight is 32 of them in a row (skinny_weights.cuh), of which it gives two pairs to
// each 16: numbers 2 q and 2 q + 1 of the 16, and those 8 further. Of quarter q these are
//
//     weights of 8 and 6 bits    codes 0 and 2, 1 and 3 of four in a row
//     weights of 4 bits          codes 0 and 4, 1 and 5 of eight in a row, and 2 and 6, 3 and 7 in the next 16
#pragma once
#include "core/context.h"
#include "core/problem.h"

namespace mxq::cuda::sm90 {

constexpr int kFewTokens = 16, kManyTokens = 64, kMostTokens = 128;  // of a tile
constexpr int kTokenRows = 8;  // tokens are counted by these: groups begin at multiples of them
constexpr int kChunkCodes = 128;
constexpr int kTokenRowsBytes = kTokenRows * kChunkCodes * 2;  // of eight tokens and 128 codes

// Returns the bytes that the tokens take, for any ends of groups.
uint64_t token_bytes(const GemmProblem& p);

// Enqueues the pass that writes them, for tiles of so many, in the order for weights of 4 bits or for the others.
void prepare_tokens(const Context& context, const GemmProblem& p, int32_t tile_tokens, bool by_eights, uint8_t* tokens,
                    void* stream);

void load_prepare_tokens();

}  // namespace mxq::cuda::sm90
