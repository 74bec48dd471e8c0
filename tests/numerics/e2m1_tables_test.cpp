// numerics/e2m1_tables.h: every code at every place of a word, against the oracle.
#include "../catch.h"
#include "../oracle.h"
#include "formats.h"
#include "numerics/e2m1_tables.h"

#include <random>

namespace {

double value_of(uint32_t code) { return oracle::decode_element(format_of<mxq::E2M1>, static_cast<uint8_t>(code)); }

uint32_t half_of(const uint32_t (&pairs)[4], uint32_t place) { return pairs[place / 2] >> (place % 2 * 16) & 0xFFFF; }

}  // namespace

TEST_CASE("E2M1 tables: eight codes as F16") {
    std::mt19937 random(5);
    int checked = 0, wrong = 0;
    for (int word = 0; word < 4096; word++) {
        const uint32_t codes = random();
        uint32_t f16[4];
        mxq::decode_e2m1_to_f16(codes, f16);
        for (uint32_t place = 0; place < 8; place++, checked++) {
            const double value = value_of(codes >> (4 * place) & 0xF);
            wrong += half_of(f16, place) != oracle::to_f16(value);
        }
    }
    CHECK(checked == 8 * 4096);
    CHECK(wrong == 0);
}
