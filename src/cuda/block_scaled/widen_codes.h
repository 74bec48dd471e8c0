// MX codes of four, six or eight bits as FP8 codes of the same values, row by row. Where a thread block reads and writes,
// for the kernel of widen_codes.cu and for tests on the host.
#pragma once
#include "cuda/block_scaled/product.h"

namespace mxq::cuda {

// A thread block takes 128 K-major rows of 256 codes: rows of one group, or codes of one group along the contraction.
constexpr int kWidenLines = 128, kWidenLength = 256;

// The tile of a thread block: it starts at code `code` of row `line` of matrix `matrix`.
struct WidenTile {
    int64_t matrix, line, code;
    int64_t lines, codes;  // that exist from there on; the rest of a row's last blocks of 32 becomes zero
};

// Returns tile (down, across) of matrix `matrix`, or of a group of `rows` rows that starts at `start`. Groups
// of rows extend down, groups along the contraction across.
MXQ_HD WidenTile widen_tile(const BlockScaledOperand& operand, int64_t matrix, const GroupStart& start, int64_t rows,
                            int64_t down, int64_t across) {
    WidenTile tile{matrix, down * kWidenLines, across * kWidenLength, 0, 0};
    int64_t lines = operand.from.lines, codes = operand.from.length;
    if (operand.grouping == Grouping::Rows) lines = rows;
    if (operand.grouping == Grouping::Contraction) codes = round_up_to_power(rows, operand.from.units.codes);
    tile.lines = lines - tile.line;
    tile.codes = codes - tile.code;
    if (operand.grouping == Grouping::Rows) tile.line += start.codes;
    if (operand.grouping == Grouping::Contraction) tile.code += start.codes;
    return tile;
}

// Enqueues the pass over the codes of an operand.
void widen_codes(const Context& context, const BlockScaledOperand& operand, void* stream);

// Loads the kernels that widen_codes enqueues.
void load_widen_codes(const Context&);

}  // namespace mxq::cuda
