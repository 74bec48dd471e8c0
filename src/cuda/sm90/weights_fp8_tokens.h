// The tokens of weights_fp8_sm90: rows of E4M3 codes in another order of the contraction, and their scales by boxes of 128:
//
//     for sums of 32     32 codes as the even and the odd ones of eights: a thread of the product has eight codes of a line
//                        of weights in a word, of which masks give it these
//     for sums of 128    128 codes as fours of each quarter in turn: a thread has a quarter of 128 codes of a line
//     scales of a box    row after row: a float for 128 codes, or four for blocks of 32
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda::sm90::weights {

// Which scales of tokens the main loop multiplies by.
enum class TokenScales { None, Of128, Of32 };

MXQ_HD constexpr int floats_of(TokenScales scales) {
    return scales == TokenScales::Of32 ? 4 : scales == TokenScales::Of128 ? 1 : 0;
}

inline TokenScales token_scales_of(const GemmOperand& a) {
    if (a.scale_type == ScaleType::E8M0) return TokenScales::Of32;
    return has_scales_of_128(a) ? TokenScales::Of128 : TokenScales::None;
}

// Returns whether the block scales of weights are folded into their codes, since tiles have so many tokens that it costs less
// than to multiply their sums.
MXQ_HD constexpr bool is_folded(int32_t tile_tokens, TokenScales scales) {
    return tile_tokens >= 64 && scales != TokenScales::Of32;
}

// Multiplies the scales of tokens where those of weights are folded, so that sums under small ones are no subnormals.
constexpr int kTokenLiftLog2 = 64;
constexpr float kTokenLift = 0x1p64f;

// Where the pass writes.
struct Fp8Tokens {
    uint8_t* codes;  // rows of line_bytes, a multiple of 256
    float* scales;   // of a box: those of all rows
    int64_t lines, line_bytes;
};

// Returns the tokens at `to`, and the bytes that they take, a multiple of the workspace's alignment.
Fp8Tokens fp8_tokens(const GemmOperand& from, void* to);
uint64_t fp8_token_bytes(const GemmOperand& from);

// Enqueues the pass; `folded`: for sums of 128. The next kernel may start before it ends (programmatic dependent launch) and then waits for it.
void arrange_fp8_tokens(const Context& context, const GemmOperand& from, const Fp8Tokens& to, bool folded, void* stream);

void load_arrange_fp8_tokens();

}  // namespace mxq::cuda::sm90::weights
