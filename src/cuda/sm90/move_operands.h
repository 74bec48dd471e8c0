// MX operands as FP8 codes under few powers of two, for wgmma_fp8_sm90: what its pass reads and writes, by
// numerics/rebase_guard.h.
//
//                   128 codes        128 codes
//     line i     |  0  1  2  3  |  0  1  2  3  | ...     codes, moved to the reference of the 128 (A) or of the line (B)
//     words[i]   |    a word    |    a word    | ...     the four blocks' references beside the line's, as E8M0 bytes:
//                                                        equal, unless they are split. Those of a group along the
//                                                        contraction begin at 16 bytes
//     factors[i]     2^reference of the line
//     marks          of 32 lines and 128 codes
//
// Codes whose scales are those of lines already are copied, to the same places, and nothing else is written: the scales stay
// where they are. Of operands whose 128 codes share a scale, and that have references of 128 codes, words and factors alone
// can be written: their codes are as they should be, and a scale of 255 makes the factor of its line NaN.
//
// Lines are those of all experts, one after the other, or rows where the source has them; groups along the contraction start
// at multiples of 128 codes. Codes past the end of a line or group are zero.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda::sm90 {

constexpr int kMarkLines = 32;
constexpr int64_t kWordUnit = 4;  // words in 16 bytes

// Says which references the 128 codes of some of 32 lines have, 0 or 1 each. Bytes, since several warps may write the same.
struct Marks {
    uint8_t moved;  // of B: another than that of the line
    uint8_t split;  // one for each block of 32
};

struct MoveCall {
    GemmOperand from;
    Grouping grouping;  // of this operand
    GroupedRows grouped;
    bool by_line;        // one reference for a line, of one group where they lie along it
    bool codes_stay;     // words and factors alone are written
    int64_t line_bytes;  // of the moved codes, a multiple of 128
    uint8_t* codes;
    uint32_t* words;
    float* factors;
    Marks* marks;

    // FP8's codes serve as they are, and so do those of MX that have one scale for a line. In 128 x 4 tiles those of a group of
    // the contraction begin where its length says.
    MXQ_HD bool copies() const {
        const bool are_found = !from.layout.swizzled || grouping != Grouping::Contraction;
        return from.scale_type == ScaleType::F32 || (from.bits == 8 && from.layout.has_one_of_line() && are_found);
    }
    MXQ_HD bool codes_may_stay() const { return !by_line && from.bits == 8 && from.layout.has_one_of_128(); }
    MXQ_HD int64_t lines() const { return from.matrices * from.lines; }
    MXQ_HD int64_t blocks() const { return line_bytes / kBlock128; }  // words of a line
    // The copy engine reads from multiples of 16 bytes on. Return the words from a line to the next, and the first word of a
    // group whose codes begin at `code`, a multiple of 128: four words a group make up for what is rounded down.
    MXQ_HD int64_t word_stride() const {
        return round_up(blocks(), kWordUnit) + (grouping == Grouping::Contraction ? kWordUnit * grouped.groups.count : 0);
    }
    MXQ_HD static int64_t first_word(int64_t code, int32_t group) {
        return code / kBlock128 / kWordUnit * kWordUnit + kWordUnit * group;
    }
};

// Returns a call without its pointers.
MoveCall move_call(const GemmProblem& p, Side side, bool by_line);

// Return how much the call writes.
uint64_t moved_code_bytes(const MoveCall& call);
uint64_t moved_word_bytes(const MoveCall& call);
uint64_t moved_factor_bytes(const MoveCall& call);
uint64_t moved_mark_bytes(const MoveCall& call);

// Returns the blocks of threads that the call takes; those of both calls must be fewer than 2^31.
int64_t move_blocks(const MoveCall& call);

// Enqueues the calls, of which one may be NULL, as one launch, on at most so many multiprocessors; 0: all.
void move_operands(const Context& context, const MoveCall* a, const MoveCall* b, int32_t sm_count, void* stream);

void load_move_operands();

}  // namespace mxq::cuda::sm90
