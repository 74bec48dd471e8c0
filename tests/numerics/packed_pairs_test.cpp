// numerics/packed_pairs.h: every code at every place of packed words, under every scale that is not special, against the
// oracle.
#include "../catch.h"
#include "../oracle.h"
#include "formats.h"
#include "numerics/packed_pairs.h"

#include <array>
#include <random>

namespace {

using Eight = std::array<uint32_t, 8>;

// Eight codes of a line as they are packed, with other bits behind them.
template <class E>
uint64_t packed(const Eight& codes, std::mt19937& random) {
    uint64_t all = uint64_t(random()) << 32 | random();
    if (E::bits == 6)
        all = all >> 48 << 48;
    else
        all = all >> 32 << 32;
    for (int i = 0; i < 8; i++) all |= uint64_t(codes[size_t(i)]) << (i * E::bits);
    return all;
}

template <class E>
double value_of(uint32_t code) {
    return oracle::decode_element(format_of<E>, static_cast<uint8_t>(code));
}

bool same_f16(uint32_t bits, double value) {
    const double got = mxq::to_float(mxq::F16{uint16_t(bits)});
    return got == value && std::signbit(got) == std::signbit(value);
}

bool same_bf16(uint32_t bits, double value) {
    return bits == oracle::to_bf16(value) && std::signbit(mxq::bits_float(bits << 16)) == std::signbit(value);
}

// Compares both halves of a window with the values of two codes under two scales; returns how many are wrong.
template <class E>
int wrong_halves(uint32_t window, int bit, uint32_t low, uint32_t high, uint32_t low_scale, uint32_t high_scale) {
    constexpr mxq::Bf16DecodeRule rule = mxq::bf16_decode_rule<E>();
    const uint32_t f16 = mxq::decode_window_to_f16<E>(window, bit);
    int wrong = !same_f16(f16 & 0xFFFF, value_of<E>(low)) + !same_f16(f16 >> 16, value_of<E>(high));
    const auto scaled = [](uint32_t code, uint32_t scale) { return value_of<E>(code) * oracle::scale_value(int(scale)); };
    if (mxq::has_f16(low_scale)) {
        const uint32_t product = mxq::multiply_f16_pairs(f16, mxq::f16_of_e8m0(low_scale));
        wrong += (product & 0xFFFF) != oracle::to_f16(scaled(low, low_scale));
        wrong += product >> 16 != oracle::to_f16(scaled(high, low_scale));
    }
    if (mxq::is_special_scale(rule, low_scale) || mxq::is_special_scale(rule, high_scale)) return wrong;
    const uint32_t factors =
        (mxq::bf16_e8m0_factor(rule, low_scale) & 0xFFFF) | (mxq::bf16_e8m0_factor(rule, high_scale) & 0xFFFF0000u);
    const uint32_t bf16 = mxq::decode_window_to_bf16<E>(window, bit, factors);
    wrong += !same_bf16(bf16 & 0xFFFF, scaled(low, low_scale)) + !same_bf16(bf16 >> 16, scaled(high, high_scale));
    return wrong;
}

template <class E>
void check_windows() {
    constexpr int in_word = E::bits == 6 ? 4 : 8;
    std::mt19937 random(7);
    int wrong = 0;
    for (uint32_t scale = 0; scale < 256; scale++)
        for (uint32_t code = 0; code < 1u << E::bits; code++) {
            Eight a, b;
            for (uint32_t& other : a) other = random() % (1u << E::bits);
            for (uint32_t& other : b) other = random() % (1u << E::bits);
            const size_t place = code % 8;
            a[place] = b[7 - place] = code;
            const uint64_t of_a = packed<E>(a, random), of_b = packed<E>(b, random);
            const uint32_t other_scale = random() % 256;
            for (int i = 0; i < in_word; i++) {
                const uint32_t window = mxq::window_of_lines<E::bits>(uint32_t(of_a), uint32_t(of_b), i);
                wrong +=
                    wrong_halves<E>(window, mxq::bit_in_window<E::bits>(i), a[size_t(i)], b[size_t(i)], scale, other_scale);
            }
            uint32_t words[mxq::kWordsOfEight<E::bits>];
            for (int w = 0; w < mxq::kWordsOfEight<E::bits>; w++) words[w] = uint32_t(of_a >> (32 * w));
            for (int i = 0; i < 4; i++) {
                const uint32_t window = mxq::window_of_line<E::bits>(words, i);
                wrong +=
                    wrong_halves<E>(window, mxq::bit_in_window<E::bits>(i), a[size_t(i)], a[size_t(i) + 4], scale, scale);
            }
        }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("packed pairs: codes of four and six bits in windows of two lines and of one") {
    check_windows<mxq::E2M1>();
    check_windows<mxq::E2M3>();
    check_windows<mxq::E3M2>();
}
