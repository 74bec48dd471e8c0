// numerics/split_f16.h: all F16 numbers, in both halves of a word.
#include "../catch.h"
#include "../oracle.h"
#include "numerics/split_f16.h"

TEST_CASE("numerics: every F16 number is the sum of two BF16 numbers of its sign, the second less than 2^-7 of it", "[cpu]") {
    int64_t wrong = 0, finite = 0, with_low = 0;
    for (uint32_t code = 0; code < 1u << 16; code++) {
        const double value = oracle::from_f16(static_cast<uint16_t>(code));
        const uint32_t other = code * 40503u & 0xFFFF, pair = code | other << 16;
        const uint32_t highs = mxq::parts_of_pair(pair, true), lows = mxq::parts_of_pair(pair, false);
        const double high = oracle::from_bf16(static_cast<uint16_t>(highs)), low = oracle::from_bf16(static_cast<uint16_t>(lows));
        bool good = highs >> 16 == mxq::high_part({static_cast<uint16_t>(other)}).bits &&
                    lows >> 16 == mxq::low_part({static_cast<uint16_t>(other)}).bits;
        if (std::isfinite(value)) {
            good &= high + low == value && std::fabs(low) <= 0x1p-7 * std::fabs(value) && high * low >= 0;
            ++finite;
            with_low += low != 0;
        } else {
            good &= low == 0 && (std::isnan(value) ? std::isnan(high) : high == value);
        }
        wrong += !good;
    }
    CHECK(wrong == 0);
    CHECK(finite == 2 * 31 * 1024);
    CHECK(with_low == 2 * (30 * 1024 * 7 / 8 + 256 / 2 + 512 * 3 / 4));
}
