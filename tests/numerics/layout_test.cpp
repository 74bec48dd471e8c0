// core/layout.h against the oracle's tables and brute force.
#include "../catch.h"
#include "../oracle_groups.h"
#include "core/layout.h"

#include <set>

TEST_CASE("layout: a swizzled scale lies where the oracle puts it, no two in one place") {
    int ran = 0;
    for (int64_t rows : {1, 31, 32, 127, 128, 129, 300})
        for (int64_t blocks : {1, 3, 4, 5, 9}) {
            mxq::ScaleLayout layout{};
            layout.columns = blocks;
            layout.matrix_scales = mxq::swizzled_scale_bytes(rows, blocks);
            layout.swizzled = 1;
            std::set<int64_t> places;
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t j = 0; j < blocks; ++j) {
                    oracle::Bytes one(static_cast<size_t>(rows * blocks), 0);
                    one[static_cast<size_t>(i * blocks + j)] = 1;
                    int64_t place = layout.offset(0, i, j);
                    if (i % 13 == 0) {
                        auto swizzled = oracle::swizzle_positions(one.data(), rows, blocks);
                        REQUIRE(place < static_cast<int64_t>(swizzled.size()));
                        CHECK(swizzled[static_cast<size_t>(place)] == 1);
                    }
                    places.insert(place);
                }
            CHECK(places.size() == static_cast<size_t>(rows * blocks));
            CHECK(layout.matrix_scales == oracle::swizzled_bytes(rows, blocks * 32));
            ++ran;
        }
    CHECK(ran == 35);
}

TEST_CASE("layout: the padded bound is the largest that any ends need") {
    int ran = 0;
    for (int64_t rows : {0, 1, 2, 5, 6, 9})
        for (int64_t groups : {1, 2, 3})
            for (int64_t alignment : {1, 2, 4}) {
                int64_t largest = 0;  // over all ways to end the groups
                for (int64_t a = 0; a <= rows; ++a)
                    for (int64_t b = a; b <= rows; ++b)
                        for (int64_t c = b; c <= rows; ++c) {
                            oracle::Ends ends{a, b, c};
                            ends.resize(static_cast<size_t>(groups));
                            largest = std::max(largest, oracle::padded_starts(ends, alignment).back());
                        }
                CHECK(mxq::padded_rows_bound(rows, groups, alignment) == largest);
                CHECK(oracle::padded_bound(rows, groups, alignment) == largest);
                ++ran;
            }
    CHECK(ran == 54);
}
