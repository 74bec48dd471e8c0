// The references of numerics/rebase_guard.h at their edges.
#include "../catch.h"

#include "numerics/rebase_guard.h"

using namespace mxq;

TEST_CASE("rebase guard: a block's reference is its scale less the headroom, at least 1") {
    CHECK(block_reference<E4M3>(0) == 1);
    CHECK(block_reference<E4M3>(1) == 1);
    CHECK(block_reference<E4M3>(254) == 254);
    CHECK(block_reference<E5M2>(2) == 2);
    CHECK(block_reference<E2M3>(6) == 1);
    CHECK(block_reference<E2M3>(7) == 2);
    CHECK(block_reference<E3M2>(254) == 250);
    CHECK(block_reference<E2M1>(254) == 248);
    CHECK(block_reference<E2M1>(kScaleNan) == 1);  // takes no part in a maximum
}

TEST_CASE("rebase guard: blocks within ten powers of two of the reference are near, and those of scale 255") {
    CHECK(is_near<E4M3>(117, 127));
    CHECK_FALSE(is_near<E4M3>(116, 127));
    CHECK(is_near<E2M1>(123, 127));
    CHECK_FALSE(is_near<E2M1>(122, 127));
    CHECK(is_near<E4M3>(kScaleNan, 254));
}

TEST_CASE("rebase guard: references beside that of their line, as factors") {
    CHECK(relative_reference(254, 254) == 127);
    CHECK(relative_reference(1, 127) == 1);
    CHECK(relative_reference(1, 128) == 0);
    CHECK(relative_factor(127) == 1.0f);
    CHECK(relative_factor(1) == 0x1p-126f);
    CHECK(relative_factor(0) == 0.0f);
}
