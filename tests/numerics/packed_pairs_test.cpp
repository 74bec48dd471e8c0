// numerics/packed_pairs.h: every pair of codes at every place of two packed rows, against the oracle.
#include "../catch.h"
#include "../oracle.h"
#include "formats.h"
#include "numerics/packed_pairs.h"

#include <random>

namespace {

bool same_f16(uint32_t bits, uint32_t code) {
    const double got = mxq::to_float(mxq::F16{uint16_t(bits)}) * 0x1p14;
    const double value = oracle::decode_element(format_of<mxq::E2M1>, static_cast<uint8_t>(code));
    return got == value && std::signbit(got) == std::signbit(value);
}

}  // namespace

TEST_CASE("packed pairs: codes of four bits of two rows as F16") {
    std::mt19937 random(7);
    int wrong = 0, checked = 0;
    for (uint32_t pair = 0; pair < 256; pair++)
        for (int i = 0; i < 8; i++, checked++) {
            const uint32_t low = pair % 16, high = pair / 16, mask = ~(15u << (4 * i));
            const uint32_t first = (uint32_t(random()) & mask) | low << (4 * i);
            const uint32_t second = (uint32_t(random()) & mask) | high << (4 * i);
            const uint32_t moved = mxq::move_e2m1_to_f16(first, second, i);
            wrong += !same_f16(moved & 0xFFFF, low) + !same_f16(moved >> 16, high);
        }
    CHECK(checked == 2048);
    CHECK(wrong == 0);
}
