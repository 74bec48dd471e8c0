// numerics/f16_pairs.h: every pair of codes.
#include "../catch.h"
#include "numerics/f16_pairs.h"

TEST_CASE("F16 pairs: a word decodes as its two pairs do, and a pair as its two codes") {
    int wrong = 0, checked = 0;
    const auto check_type = [&]<class E>(E) {
        for (uint32_t pair = 0; pair < 1 << 16; ++pair, ++checked) {
            const uint32_t other = pair ^ 0x5A3Cu;
            uint32_t low, high;
            mxq::decode_word_to_f16<E>(pair | other << 16, low, high);
            wrong += low != mxq::decode_pair_to_f16<E>(pair) || high != mxq::decode_pair_to_f16<E>(other);
            const uint32_t first = mxq::from_float<mxq::F16>(mxq::decode<E>(pair & 0xFF)).bits;
            const uint32_t second = mxq::from_float<mxq::F16>(mxq::decode<E>(pair >> 8)).bits;
            wrong += low != (first | second << 16);
        }
    };
    check_type(mxq::E4M3{});
    check_type(mxq::E5M2{});
    CHECK(wrong == 0);
    CHECK(checked == 2 << 16);
}
