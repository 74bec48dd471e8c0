// numerics/rebase.h against the contract in doubles: every code under every distance of scales, and the bound on what it loses.
#include "../catch.h"
#include "../oracle.h"
#include "formats.h"
#include "numerics/rebase.h"

#include <random>

namespace {

// Calls f with an object of each type that can be rebased.
template <class F>
void for_each_rebased_element(F f) {
    for_each_element([&]<class E>(E element) {
        if constexpr (mxq::can_rebase<E>) f(element);
    });
}

template <class E>
constexpr int32_t rebased_format = std::is_same_v<E, mxq::E5M2> ? MXQ_FORMAT_MXFP8_E5M2 : MXQ_FORMAT_MXFP8_E4M3;

// Four codes as the kernels give them to rebase_codes.
template <class E>
uint32_t bytes_of(const uint32_t (&codes)[4]) {
    const uint32_t word = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
    if constexpr (E::bits == 8) return word;
    if constexpr (E::bits == 6) return mxq::six_bits_to_e4m3<E>(word);
    return mxq::e2m1_to_e4m3(codes[0] | codes[1] << 4 | codes[2] << 8 | codes[3] << 12);
}

template <class E>
uint32_t expected(uint32_t code, uint32_t scale, uint32_t largest) {
    if (scale == 255) return 0x7F;
    const double value = oracle::decode_element(format_of<E>, static_cast<uint8_t>(code));
    if (std::isinf(value)) return code;
    return oracle::encode_element(rebased_format<E>, std::ldexp(value, static_cast<int>(scale) - static_cast<int>(largest)));
}

}  // namespace

TEST_CASE("rebase: every code under every pair of scales") {
    for_each_rebased_element([]<class E>(E) {
        std::mt19937 random(7);
        int64_t wrong = 0, checked = 0;
        for (uint32_t largest = 0; largest < 255; largest += 127)
            for (uint32_t scale = 0; scale < 256; ++scale) {
                if (scale > largest + mxq::Rebase<E>::headroom && scale != 255) continue;
                const auto factors = mxq::rebase_factors<E>(scale, largest);
                for (uint32_t code = 0; code < 1u << E::bits; ++code)
                    for (int place = 0; place < 4; ++place) {
                        uint32_t codes[4];
                        for (uint32_t& other : codes) other = random() % (1u << E::bits);
                        codes[place] = code;
                        const uint32_t moved = mxq::rebase_codes<E>(bytes_of<E>(codes), factors);
                        for (int i = 0; i < 4; ++i)
                            wrong += (moved >> (8 * i) & 0xFF) != expected<E>(codes[i], scale, largest);
                        ++checked;
                    }
            }
        CHECK(wrong == 0);
        const int64_t headroom = mxq::Rebase<E>::headroom;
        CHECK(checked == (2 + 129 + 256 + 2 * headroom) * 4 << E::bits);
    });
}

// As the kernel takes them: of E5M2, words with an Inf or far below the tile's scale go another way than the others.
TEST_CASE("rebase: sixteen codes of a block") {
    for_each_rebased_element([]<class E>(E) {
        std::mt19937 random(11);
        const uint32_t largest = 100, nan = 255;
        int64_t wrong = 0, checked = 0;
        for (uint32_t scale = 60; scale <= largest + 1; ++scale)
            for (int run = 0; run < 400; ++run) {
                const uint32_t of_block = scale > largest ? nan : scale;
                uint32_t codes[4][4], words[4];
                for (int w = 0; w < 4; ++w) {
                    for (uint32_t& code : codes[w]) code = random() % (1u << E::bits);
                    if (run % 2 && E::bits == 8)
                        for (uint32_t& code : codes[w]) code &= 0xFB;  // neither Inf nor NaN
                    words[w] = bytes_of<E>(codes[w]);
                }
                const mxq::RebaseBlock<E> block = mxq::rebase_block<E>(of_block, largest);
                if constexpr (E::bits == 4) {
                    uint32_t packed[2] = {};
                    for (int i = 0; i < 16; ++i) packed[i / 8] |= codes[i / 4][i % 4] << (i % 8 * 4);
                    mxq::rebase_e2m1(packed, block, words);
                } else {
                    mxq::rebase_16<E>(words, block);
                }
                for (int i = 0; i < 16; ++i, ++checked)
                    wrong += (words[i / 4] >> (i % 4 * 8) & 0xFF) != expected<E>(codes[i / 4][i % 4], of_block, largest);
            }
        CHECK(wrong == 0);
        CHECK(checked == 42 * 400 * 16);
    });
}

TEST_CASE("rebase: what a code loses") {
    for_each_rebased_element([]<class E>(E) {
        const bool e5m2 = std::is_same_v<E, mxq::E5M2>;
        const double least_normal = std::ldexp(1.0, e5m2 ? -14 : -6), most = std::ldexp(1.0, e5m2 ? -17 : -10);
        int changed = 0, exact = 0;
        for (uint32_t distance = 0; distance < 64; ++distance)
            for (uint32_t code = 0; code < 1u << E::bits; ++code) {
                const double value = oracle::decode_element(format_of<E>, static_cast<uint8_t>(code));
                if (!std::isfinite(value)) continue;
                const uint32_t codes[4] = {code, code, code, code};
                const uint32_t moved = mxq::rebase_codes<E>(bytes_of<E>(codes), mxq::rebase_factors<E>(100 - distance, 100));
                const double after = oracle::decode_element(rebased_format<E>, static_cast<uint8_t>(moved));
                const double before = std::ldexp(value, -static_cast<int>(distance)), error = std::fabs(after - before);
                CHECK(error <= (std::fabs(before) >= least_normal ? 0 : most));
                CHECK(std::signbit(after) == std::signbit(before));
                (error > 0 ? changed : exact)++;
            }
        CHECK(changed > 0);
        CHECK(exact > 0);
    });
}

TEST_CASE("rebase: the scale of a tile") {
    CHECK(mxq::rebased_scale<mxq::E4M3>(0x04030201) == 4);
    CHECK(mxq::rebased_scale<mxq::E5M2>(0x01FE02FF) == 254);
    CHECK(mxq::rebased_scale<mxq::E4M3>(0xFFFFFFFF) == 1);
    CHECK(mxq::rebased_scale<mxq::E4M3>(0xFF00FF00) == 1);
    CHECK(mxq::rebased_scale<mxq::E4M3>(0xFF010001) == 1);
    CHECK(mxq::rebased_scale<mxq::E2M1>(0x04030207) == 1);
    CHECK(mxq::rebased_scale<mxq::E2M1>(0x04030208) == 2);
    CHECK(mxq::rebased_scale<mxq::E2M1>(0x04030206) == 1);
    CHECK(mxq::rebased_scale<mxq::E2M1>(0x04030201) == 1);
    CHECK(mxq::rebased_scale<mxq::E2M3>(0xFFFFFF80) == 123);
    CHECK(mxq::rebased_scale<mxq::E3M2>(0xFFFFFF80) == 124);
}
