// fused_multiply_add() of numerics/bits.h against the C library's.
#include <cmath>
#include <random>

#include "../catch.h"
#include "numerics/bits.h"

namespace {

bool is_same(float a, float b) { return std::isnan(a) ? std::isnan(b) : mxq::float_bits(a) == mxq::float_bits(b); }

}  // namespace

TEST_CASE("numerics: a multiply-add has one rounding", "[cpu]") {
    std::mt19937 random(20261127);
    const auto of_exponents = [&](uint32_t first, uint32_t count) {
        const uint32_t bits = static_cast<uint32_t>(random());
        return mxq::bits_float((bits & 0x807FFFFF) | (first + static_cast<uint32_t>(random()) % count) << 23);
    };
    int64_t wrong = 0, rounded_twice = 0, subnormal = 0;
    for (int64_t i = 0; i < 4'000'000; i++) {
        float a, b, c;
        if (i % 4 == 0) {  // any
            a = of_exponents(0, 256), b = of_exponents(0, 256), c = of_exponents(0, 256);
        } else if (i % 4 == 1) {  // sums near the product
            a = of_exponents(110, 30), b = of_exponents(110, 30), c = of_exponents(100, 50);
        } else if (i % 4 == 2) {  // subnormal ones
            a = of_exponents(60, 8), b = of_exponents(55, 8), c = of_exponents(0, 3);
        } else {  // half of the last bit of a sum, and 2^-46 of it less, or 2^-36 more, which double loses
            const bool is_more = random() % 2 != 0;
            a = is_more ? 1 + 0x1p-12f : 1 + 0x1p-23f;
            b = is_more ? 1 - 0x1p-12f + 0x1p-24f : 1 - 0x1p-23f;
            a *= random() % 2 != 0 ? 0x1p-24f : -0x1p-24f;
            c = of_exponents(127, 1);
        }
        const float right = std::fma(a, b, c);
        wrong += !is_same(mxq::fused_multiply_add(a, b, c), right);
        rounded_twice += !is_same(static_cast<float>(static_cast<double>(a) * b + c), right);
        subnormal += right != 0 && std::fabs(right) < 0x1p-126f;
    }
    CHECK(wrong == 0);
    CHECK(rounded_twice > 100'000);
    CHECK(subnormal > 100'000);
    const float infinity = INFINITY;
    CHECK(mxq::fused_multiply_add(0x1p64f, 0x1p64f, -0x1.Ep127f) == 0x1p124f);
    CHECK(mxq::fused_multiply_add(0x1p64f, 0x1p64f, 0) == infinity);
    CHECK(mxq::fused_multiply_add(infinity, 2, 1) == infinity);
    CHECK(std::isnan(mxq::fused_multiply_add(infinity, 2, -infinity)));
    CHECK(std::isnan(mxq::fused_multiply_add(NAN, 0, 0)));
    CHECK(mxq::float_bits(mxq::fused_multiply_add(-0.0f, 1, -0.0f)) == 0x80000000);
}

// Adds half of the last bit, and 2^-46 of it less or 2^-36 of it more, which double loses.
TEST_CASE("numerics: a multiply-add beside a tie rounds towards the exact sum", "[cpu]") {
    for (const float sign : {1.0f, -1.0f})
        for (const float number : {1.0f, 1 + 0x1p-23f}) {
            const float c = sign * number, next = sign * (number + 0x1p-23f);
            CHECK(mxq::fused_multiply_add(sign * 0x1p-24f * (1 + 0x1p-23f), 1 - 0x1p-23f, c) == c);
            CHECK(mxq::fused_multiply_add(sign * 0x1p-24f * (1 + 0x1p-12f), 1 - 0x1p-12f + 0x1p-24f, c) == next);
        }
}
