// The guard of rebasing: which blocks may move to the reference of a line or of 128 codes, and under what scale the others
// stay.
//
//     R(s)        the reference of a block by itself: its scale less the element's headroom, at least 1
//     reference   the largest R(s) of the line, or of 128 codes of it; blocks of scale 255 left out; 1 where there is none
//     near        reference - R(s) <= 10, or all codes are zero, or s is 255
//
// The four blocks of 128 codes of a line move to the reference of the line (B), where all of them are near it; else, and always
// in A, to that of the 128, where all are near that; else each moves to its own R(s). So no block loses more than half a step of E4M3's subnormals at 2^10 times its own reference, whatever
// stands beside it. References are kept relative to the largest of their line, so that sums stay in range whatever the
// scales are; what is more than 2^126 below that largest counts as zeros.
#pragma once
#include "numerics/rebase.h"

namespace mxq {

constexpr uint32_t kGuardBinades = 10;

// Returns the reference of a block of this scale by itself, or the least there is for a scale of 255.
template <class E>
MXQ_HD uint32_t block_reference(uint32_t scale) {
    constexpr uint32_t headroom = Rebase<E>::headroom;
    return scale == kScaleNan || scale <= headroom + 1 ? 1 : scale - headroom;
}

// Returns whether a block that has codes other than zero may move to the reference of its line or tile.
template <class E>
MXQ_HD bool is_near(uint32_t scale, uint32_t reference) {
    return scale == kScaleNan || reference - block_reference<E>(scale) <= kGuardBinades;
}

constexpr uint32_t kSameReference = 127;

// Returns a reference relative to that of its line, as an E8M0 scale: 127 where they are the same. 0 stands for a factor of 0,
// under which codes count as zeros, and NaN as NaN.
MXQ_HD uint32_t relative_reference(uint32_t reference, uint32_t of_line) {
    return reference + (kSameReference - 1) < of_line ? 0 : reference + kSameReference - of_line;
}

// Returns the factor of a relative reference.
MXQ_HD float relative_factor(uint32_t relative) { return bits_float(relative << 23); }

}  // namespace mxq
