// The guard of rebasing: which blocks may move to the reference of a K-major row or of 128 codes, and which scale the
// others get.
//
//     R(s)        the reference of a block by itself: its scale less the element's headroom, at least 1
//     reference   the largest R(s) of the row, or of 128 codes of it, without blocks of scale 255; 1 where there is none
//     near        reference - R(s) <= 10, or all codes are zero, or s is 255
//
// Four blocks make 128 codes. Where all four are near the reference of the row (B alone), they move to it. Where all four
// are near the reference of the 128, they move to that. Otherwise each moves to its own R(s). So a block loses at most half
// a step of E4M3's subnormals at 2^10 times its own reference, whatever its neighbours are. References are kept relative to
// the largest of their row, so that sums stay in range under any scales; what is more than 2^126 below it counts as zeros.
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

// Returns whether a block that has codes other than zero may move to the reference of its row or tile.
template <class E>
MXQ_HD bool is_near(uint32_t scale, uint32_t reference) {
    return scale == kScaleNan || reference - block_reference<E>(scale) <= kGuardBinades;
}

constexpr uint32_t kSameReference = 127;

// Returns a reference relative to that of its row, as an E8M0 scale; 127 where they are equal. A scale of 0 stands for a
// factor of 0: codes count as zeros, NaN as NaN.
MXQ_HD uint32_t relative_reference(uint32_t reference, uint32_t of_line) {
    return reference + (kSameReference - 1) < of_line ? 0 : reference + kSameReference - of_line;
}

// Returns the factor of a relative reference.
MXQ_HD float relative_factor(uint32_t relative) { return bits_float(relative << 23); }

}  // namespace mxq
