// The random Hadamard transform, against its matrix, the oracle, and its own inverse.
#include "../catch.h"
#include "../oracle.h"
#include "numerics/hadamard.h"

#include <bit>
#include <random>

namespace {

constexpr uint32_t common_mask = 0xD7E8;

// One element, the sums exact on small integers.
double by_matrix(const float (&x)[16], uint32_t mask, int i) {
    double sum = 0;
    for (int j = 0; j < 16; ++j) {
        int flips = std::popcount(static_cast<unsigned>(i & j)) + static_cast<int>(mask >> j & 1);
        sum += flips % 2 ? -static_cast<double>(x[j]) : static_cast<double>(x[j]);
    }
    return sum / 4;
}

void random_integers(float (&x)[16], std::mt19937& random) {
    for (float& value : x) value = static_cast<float>(random() % 2001) - 1000;
}

}  // namespace

TEST_CASE("hadamard: the rows of the matrix, on small integers, and back") {
    std::mt19937 random(4);
    int ran = 0;
    for (; ran < 1000; ++ran) {
        const uint32_t mask = ran ? random() & 0xFFFF : common_mask;
        float x[16], transformed[16];
        random_integers(x, random);
        std::copy(x, x + 16, transformed);
        mxq::hadamard_16(transformed, mask);
        for (int i = 0; i < 16; ++i) REQUIRE(static_cast<double>(transformed[i]) == by_matrix(x, mask, i));
        mxq::undo_hadamard_16(transformed, mask);
        for (int i = 0; i < 16; ++i) REQUIRE(transformed[i] == x[i]);
    }
    CHECK(ran == 1000);
}

TEST_CASE("hadamard: the common mask flips 3, 5 to 10, 12, 14 and 15") {
    int flipped = 0;
    for (int i = 0; i < 16; ++i) {
        const bool flips = i == 3 || (i >= 5 && i <= 10) || i == 12 || i >= 14;
        CHECK(mxq::hadamard_signs(common_mask).bits[i] == (flips ? 0x80000000u : 0u));
        flipped += flips;
    }
    CHECK(flipped == 10);
}

namespace {

using Transform = void (*)(float (&)[16], uint32_t);

// Compares one of the library's transforms with that of the oracle, on values of similar and of all sizes.
int compare(Transform transform, void (*of_oracle)(float*, uint32_t), uint32_t seed) {
    std::mt19937 random(seed);
    int ran = 0;
    for (; ran < 20000; ++ran) {
        float expected[16], whole[16];
        for (float& value : expected)
            value = ran % 2 ? oracle::float_of((random() & 0x807FFFFFu) | (120 + random() % 16) << 23)
                            : oracle::float_of((random() & 0x807FFFFFu) | random() % 255 << 23);
        std::copy(expected, expected + 16, whole);
        of_oracle(expected, common_mask);
        transform(whole, common_mask);
        for (int i = 0; i < 16; ++i) {
            if (std::isnan(expected[i])) {  // Inf less Inf
                REQUIRE(std::isnan(whole[i]));
                continue;
            }
            REQUIRE(oracle::bits_of(whole[i]) == oracle::bits_of(expected[i]));
        }
    }
    return ran;
}

}  // namespace

TEST_CASE("hadamard: the oracle's roundings, there and back") {
    CHECK(compare([](float (&x)[16], uint32_t mask) { mxq::hadamard_16(x, mask); }, oracle::hadamard_16, 6) == 20000);
    CHECK(compare(mxq::undo_hadamard_16, oracle::undo_hadamard_16, 7) == 20000);
}
