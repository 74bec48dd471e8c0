// numerics/decode_to_bf16.h against the oracle: every code under every scale, in every place of a word.
#include "../catch.h"
#include "../oracle.h"
#include "formats.h"
#include "numerics/decode_to_bf16.h"
#include "numerics/packing.h"

#include <random>

namespace {

using mxq::EvenOddBf16;
using mxq::Bf16DecodeRule;

// Equal bits, any NaN equal to any other.
bool same(uint32_t bits, double value) {
    const double got = mxq::bits_float(bits << 16);
    if (std::isnan(value)) return std::isnan(got);
    return bits == oracle::to_bf16(value) && std::signbit(got) == std::signbit(value);
}

// The i-th of four values.
uint32_t at(const EvenOddBf16& pairs, int i) { return (i % 2 ? pairs.odd : pairs.even) >> (i / 2 * 16) & 0xFFFF; }

template <class E>
EvenOddBf16 convert(const Bf16DecodeRule& rule, const uint32_t (&codes)[4], uint32_t scale, int half) {
    const uint32_t word = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
    const uint32_t multiplier = mxq::bf16_scale_factor(rule, scale);
    if constexpr (E::bits == 8) return mxq::decode_8_bits_to_bf16(rule, word, multiplier);
    if constexpr (E::bits == 6) return mxq::decode_6_bits_to_bf16(rule, word, multiplier);
    const uint32_t others = half == 0 ? 0xABCD0000u : 0xABCDu;
    return mxq::decode_4_bits_to_bf16(rule, mxq::pack_4<4>(word) << (16 * half) | others, half, multiplier);
}

template <class E>
bool is_special(const Bf16DecodeRule& rule, const uint32_t (&codes)[4], uint32_t scale) {
    const uint32_t word = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
    const bool special_code = E::bits == 8 && (mxq::mark_special_codes(rule, word) & mxq::kSpecialMarks);
    return special_code || mxq::is_special_scale(rule, scale);
}

// Four codes, one of them given, at every place and under every scale; returns how many needed no care.
template <class E>
int64_t check_conversion(const Bf16DecodeRule& rule, double (*scale_value)(uint32_t)) {
    std::mt19937 random(5);
    int64_t usual = 0, wrong = 0, wrong_exactly = 0;
    for (uint32_t scale = 0; scale < 256; scale++)
        for (uint32_t code = 0; code < 1u << E::bits; code++)
            for (int place = 0; place < 4; place++) {
                uint32_t codes[4];
                for (uint32_t& other : codes) other = random() % (1u << E::bits);
                codes[place] = code;
                const auto value = [&](int i) {
                    return oracle::decode_element(format_of<E>, static_cast<uint8_t>(codes[i])) * scale_value(scale);
                };
                const float element = mxq::decode<E>(code);
                const float byte = rule.e4m3_scale ? mxq::decode<mxq::E4M3>(scale) : mxq::scale_value(scale);
                wrong_exactly += !same(mxq::decode_to_bf16_exactly(element, byte), value(place));
                if (is_special<E>(rule, codes, scale)) continue;
                usual++;
                const int half = static_cast<int>(random() % 2);
                const EvenOddBf16 pairs = convert<E>(rule, codes, scale, half);
                for (int i = 0; i < 4; i++) wrong += !same(at(pairs, i), value(i));
            }
    CHECK(wrong == 0);
    CHECK(wrong_exactly == 0);
    return usual;
}

double e8m0(uint32_t scale) { return oracle::scale_value(static_cast<int>(scale)); }
double e4m3(uint32_t scale) { return oracle::decode_element(MXQ_FORMAT_MXFP8_E4M3, static_cast<uint8_t>(scale)); }

}  // namespace

TEST_CASE("bf16_pairs: codes of every type under E8M0 scales") {
    CHECK(check_conversion<mxq::E2M1>(mxq::bf16_decode_rule<mxq::E2M1>(), e8m0) == 239 * 16 * 4);
    CHECK(check_conversion<mxq::E2M3>(mxq::bf16_decode_rule<mxq::E2M3>(), e8m0) == 239 * 64 * 4);
    CHECK(check_conversion<mxq::E3M2>(mxq::bf16_decode_rule<mxq::E3M2>(), e8m0) == 239 * 64 * 4);
    CHECK(check_conversion<mxq::E4M3>(mxq::bf16_decode_rule<mxq::E4M3>(), e8m0) > 135 * 254 * 4 * 9 / 10);
    CHECK(check_conversion<mxq::E5M2>(mxq::bf16_decode_rule<mxq::E5M2>(), e8m0) > 143 * 248 * 4 * 8 / 10);
}

TEST_CASE("bf16_pairs: E2M1 codes under E4M3 scales") {
    CHECK(check_conversion<mxq::E2M1>(mxq::bf16_decode_rule_nvfp4(), e4m3) == 254 * 16 * 4);
}

TEST_CASE("bf16_pairs: no finite code is special, and no other is usual") {
    const auto special = [](const Bf16DecodeRule& rule, uint32_t code) {
        return bool(mxq::mark_special_codes(rule, code << 16) & 0x00800000u);
    };
    for (uint32_t code = 0; code < 256; code++) {
        CHECK(special(mxq::bf16_decode_rule<mxq::E4M3>(), code) == !std::isfinite(mxq::decode<mxq::E4M3>(code)));
        CHECK(special(mxq::bf16_decode_rule<mxq::E5M2>(), code) == !std::isfinite(mxq::decode<mxq::E5M2>(code)));
    }
}

TEST_CASE("bf16_pairs: plain numbers keep their order among themselves, and tiny ones are seen") {
    const EvenOddBf16 pairs = mxq::split_even_odd_bf16(0x22221111u, 0x44443333u);
    for (int i = 0; i < 4; i++) CHECK(at(pairs, i) == 0x1111u * static_cast<uint32_t>(i + 1));

    for (uint32_t limit : {0x0880u, 0x2000u}) {
        int64_t wrong = 0, tiny = 0;
        for (uint32_t bits = 0; bits < 0x10000; bits++)
            for (uint32_t other : {0u, 1u, limit, 0x7FFFu, 0xFFFFu, 0x8000u}) {
                const uint32_t magnitude = bits & 0x7FFF;
                const uint32_t low = mxq::mark_tiny_bf16(bits | other << 16, limit * mxq::kOneInBothHalves) & 0x8000u;
                const uint32_t high = mxq::mark_tiny_bf16(other | bits << 16, limit * mxq::kOneInBothHalves) & 0x80000000u;
                const bool is_tiny = magnitude != 0 && magnitude < limit;
                tiny += is_tiny;
                wrong += (low != 0) != is_tiny || (high != 0) != is_tiny;
            }
        CHECK(wrong == 0);
        CHECK(tiny == 6 * 2 * (static_cast<int64_t>(limit) - 1));
    }
}
