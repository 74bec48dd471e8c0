// Philox and stochastic rounding.
#include "../catch.h"
#include "../oracle.h"
#include "numerics/philox.h"

#include <random>

namespace {

std::vector<uint32_t> words_of(mxq::PhiloxKey key, mxq::PhiloxCounter counter) {
    const mxq::PhiloxWords out = mxq::philox(key, counter);
    return {out.words, out.words + 4};
}

const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// Returns how many of all 256 bytes round `value`, which lies between codes low and low + 1, up.
int ups(float value, uint32_t low) {
    int count = 0;
    for (uint32_t r = 0; r < 256; ++r) {
        const uint32_t code = mxq::stochastic_e2m1(value, r), negative = mxq::stochastic_e2m1(-value, r);
        if (negative != (code | 8)) FAIL("sign of " << value);
        if (code != low && code != low + 1) FAIL(value << " became " << code);
        count += code == low + 1;
    }
    return count;
}

}  // namespace

TEST_CASE("philox: known answers") {
    using Words = std::vector<uint32_t>;
    const uint32_t ones = 0xFFFFFFFFu;
    CHECK(words_of({{0, 0}}, {{0, 0, 0, 0}}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(words_of({{ones, ones}}, {{ones, ones, ones, ones}}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(words_of({{0xa4093822, 0x299f31d0}}, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("philox: bytes of a chunk are the oracle's") {
    std::mt19937_64 random(1);
    int ran = 0;
    for (int repeat = 0; repeat < 200; ++repeat)
        for (bool columnwise : {false, true}) {
            oracle::Spec spec;
            spec.seed = random();
            spec.offset = random();
            const auto row = static_cast<uint32_t>(random() % 0x80000000u), chunk = static_cast<uint32_t>(random());
            const int32_t part = columnwise ? MXQ_PART_COLUMNWISE : MXQ_PART_ROWWISE;
            const auto expected = oracle::random_chunk(spec, part, row, static_cast<int64_t>(chunk));
            const mxq::PhiloxCounter counter = mxq::philox_counter(chunk, row, columnwise, spec.offset);
            const mxq::PhiloxWords words = mxq::philox(mxq::philox_key(spec.seed), counter);
            for (int i = 0; i < 16; ++i, ++ran)
                if (mxq::philox_byte(words, i) != expected[static_cast<size_t>(i)]) FAIL("element " << i);
        }
    CHECK(ran == 200 * 2 * 16);
    const mxq::PhiloxWords words{{0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C}};
    for (int i = 0; i < 16; ++i) CHECK(mxq::philox_byte(words, i) == static_cast<uint32_t>(i));
}

TEST_CASE("stochastic rounding: a place of k/256 goes up k times in 256, halves down") {
    int ran = 0;
    for (uint32_t low = 0; low < 7; ++low)
        for (int k = 0; k < 256; ++k, ++ran) {
            const float gap = values[low + 1] - values[low];
            const float place = values[low] + gap * static_cast<float>(k) / 256;      // exact, as is the next
            const float half = values[low] + gap * (static_cast<float>(k) + 0.5f) / 256;
            INFO("low " << low << ", k " << k);
            REQUIRE(ups(place, low) == k);
            REQUIRE(ups(half, low) == k);
            REQUIRE(ups(std::nextafter(half, 8.0f), low) == k + 1);
            REQUIRE(ups(std::nextafter(half, 0.0f), low) == k);
        }
    CHECK(ran == 7 * 256);
}

TEST_CASE("stochastic rounding: beyond the range, NaN, and what is almost nothing") {
    const float inf = std::numeric_limits<float>::infinity();
    int ran = 0;
    for (uint32_t r = 0; r < 256; ++r, ++ran) {
        CHECK(mxq::stochastic_e2m1(6.0f, r) == 7);
        CHECK(mxq::stochastic_e2m1(-6.5f, r) == 15);
        CHECK(mxq::stochastic_e2m1(inf, r) == 7);
        CHECK(mxq::stochastic_e2m1(-inf, r) == 15);
        CHECK(mxq::stochastic_e2m1(NAN, r) == 7);
        CHECK(mxq::stochastic_e2m1(-NAN, r) == 7);
        CHECK(mxq::stochastic_e2m1(-0.0f, r) == 8);
        CHECK(mxq::stochastic_e2m1(oracle::float_of(1), r) == 0);
    }
    CHECK(ran == 256);
}

TEST_CASE("stochastic rounding: the oracle's codes") {
    std::mt19937 random(2);
    int ran = 0;
    for (; ran < 1000000; ++ran) {
        const auto r = static_cast<uint8_t>(random());
        const float near = (static_cast<float>(random() % 0x1000000u) - 0x800000) / 0x100000;
        const float x = ran % 2 ? oracle::float_of(random()) : near;
        if (mxq::stochastic_e2m1(x, r) != oracle::stochastic_code(x, r)) FAIL(x << ", byte " << int(r));
    }
    CHECK(ran == 1000000);
}
