// Codes of BF16 pairs against the one rounding that there is.
#include "../catch.h"
#include "numerics/encode_sub_byte.h"
#include "numerics/nvfp4.h"

namespace {

bool has_negative_nan(uint32_t bits) { return bits > 0xFF800000u; }

}  // namespace

TEST_CASE("every BF16 number has the E2M1 code that its value has, in either half", "[numerics]") {
    int checked = 0, wrong = 0;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        if (has_negative_nan(bits << 16)) continue;
        const uint32_t code = mxq::encode<mxq::E2M1>(mxq::bits_float(bits << 16));
        const uint32_t other = 0xC0A0;  // -5, a tie: 4
        wrong += mxq::encode_e2m1_bf16(bits | other << 16) != (0x430E4300u | code);
        wrong += mxq::encode_e2m1_bf16(other | bits << 16) != (0x4300430Eu | code << 16);
        ++checked;
    }
    CHECK(checked == 0x10000 - 0x7F);
    CHECK(wrong == 0);
}

TEST_CASE("every fp32 value around a code has the code of encode", "[numerics]") {
    int64_t checked = 0, wrong = 0;
    const auto is_near = [](uint64_t magnitude) { return magnitude > 0x3E7F0000u && magnitude < 0x40E10000u; };
    for (uint64_t bits = 0; bits <= 0xFF800000u; bits += is_near(bits & mxq::kMagnitudeMask) ? 7 : 4001) {
        const float value = mxq::bits_float(uint32_t(bits));
        if (mxq::is_nan(value) && bits >> 31) continue;
        const uint32_t code = mxq::encode<mxq::E2M1>(value);
        wrong += mxq::encode_e2m1_floats(value, 1.0f) != (0x43024300u | code);
        wrong += mxq::encode_e2m1_floats(1.0f, value) != (0x43004302u | code << 16);
        ++checked;
    }
    CHECK(checked > 12'000'000);
    CHECK(wrong == 0);
}

TEST_CASE("fp32 values beside a tie go the way of the value, not of its first sixteen bits", "[numerics]") {
    for (float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f})
        for (int away = -3; away <= 3; ++away)
            for (uint32_t sign : {0u, 0x80000000u}) {
                const float value = mxq::bits_float((mxq::float_bits(tie) + away) | sign);
                CAPTURE(tie, away, sign);
                CHECK((mxq::encode_e2m1_floats(value, 0.0f) & 0xFFFF) == (0x4300u | mxq::encode<mxq::E2M1>(value)));
            }
}

namespace {

// Returns the codes of eight BF16 numbers from `first` on under a multiplier, the signs of every second set.
uint32_t codes_of_eight(uint32_t first, float multiplier) {
    uint32_t codes = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        const float value = mxq::bits_float((first + i) << 16 | (i % 2) << 31);
        codes |= mxq::encode<mxq::E2M1>(mxq::multiply_rn(value, multiplier)) << (4 * i);
    }
    return codes;
}

// Codes of all BF16 numbers by what serves instead of a multiplier; whether anything does.
bool check_cut(float multiplier, int64_t& checked) {
    const mxq::CuttingMultiplier cut = mxq::cutting_multiplier(multiplier, mxq::cut_for(multiplier));
    if (mxq::is_nan(cut.factor)) return false;
    int64_t wrong = 0;
    for (uint32_t bits = 0; bits < 0x7F80; bits += 8, checked += 8) {
        float products[8];
        for (uint32_t i = 0; i < 8; ++i)
            products[i] = mxq::multiply_rn(mxq::bits_float((bits + i) << 16 | (i % 2) << 31), cut.factor);
        if (!(-products[7] < 7 * mxq::kCutUnit)) break;
        const uint32_t codes = codes_of_eight(bits, multiplier);
        wrong += mxq::encode_e2m1_cut<true>(products, cut.up ? mxq::kOneInBothHalves : 0) != codes;
        wrong += cut.up && mxq::encode_e2m1_cut<false>(products, 0) != codes;
    }
    CAPTURE(multiplier, cut.factor, cut.up);
    CHECK(wrong == 0);
    return true;
}

}  // namespace

TEST_CASE("cut products give the codes of all BF16 numbers", "[numerics]") {
    int64_t checked = 0;
    int served = 0, up = 0, globals = 0;
    for (int g = 128; g < 256; ++g)  // whatever a BF16 maximum is, halfway products are common
        for (int t : {448, 256}) {
            const mxq::Nvfp4Global global = mxq::nvfp4_global(float(g), t);
            int of_global = 0;
            for (uint32_t scale = 64; scale < 72; ++scale) {
                const float multiplier = mxq::nvfp4_multiplier(scale, global);
                of_global += check_cut(multiplier, checked);
                up += mxq::cut_for(multiplier) == mxq::Cut::Up;
            }
            served += of_global;
            globals += of_global == 8;
        }
    CHECK(served == 2038);
    CHECK(globals == 246);
    CHECK((up > 500 && up < 2000));
    for (uint32_t i = 0; i < 400; ++i) {
        const float any = mxq::bits_float(0x3C000000u + i * 0x0003D0A7u), exact = float(1 + 2 * (i % 4)) / float(128 + i % 128);
        check_cut(any, checked);
        check_cut(exact, checked);
    }
    CHECK(checked > 46'000'000);
    CHECK(mxq::is_nan(mxq::cutting_multiplier(0x1p-112f, mxq::Cut::Up).factor));
    CHECK(mxq::cutting_multiplier(0x1p-111f, mxq::Cut::Up).factor == 0x1p-125f);
    CHECK(mxq::cutting_multiplier(0, mxq::Cut::None).factor == 0);
}

TEST_CASE("nibbles are packed by rows and by lines", "[numerics]") {
    uint32_t pairs[4];
    for (uint32_t i = 0; i < 4; ++i) pairs[i] = 0x43004300u | (2 * i + 1) | (2 * i + 2) << 16;
    CHECK(mxq::pack_nibble_pairs(pairs) == 0x87654321u);
    CHECK(mxq::pack_nibble_lines(pairs) == 0x86427531u);
}

// A line of NaN leaves more than a nibble in its bytes.
TEST_CASE("nibbles of a line stay as they are, whatever else its neighbour's bytes hold", "[numerics]") {
    int checked = 0;
    for (uint32_t garbage : {0x00000010u, 0x00000080u, 0x0000FFF0u, 0xFFF00000u, 0xFFF0FFF0u}) {
        uint32_t pairs[4];
        for (uint32_t i = 0; i < 4; ++i) pairs[i] = garbage | (2 * i + 1) | (2 * i + 2) << 16;
        CHECK(mxq::pack_nibble_lines(pairs) == 0x86427531u);
        ++checked;
    }
    CHECK(checked == 5);
    CHECK(mxq::join_nibbles(0x04030201u, 0x08070605u) == 0x84736251u);
    CHECK(mxq::join_nibbles(0xF4F3FFFFu, 0x98FFFFA5u) == 0x84F3FF5Fu);
}
