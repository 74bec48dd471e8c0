// Storage of codes, against bits set one by one.
#include "../catch.h"
#include "numerics/packing.h"

#include <random>
#include <vector>

namespace {

// Element i's bit b is bit `bits * i + b` of the row, counted from the lowest of the first byte.
std::vector<uint8_t> stored(const std::vector<uint8_t>& codes, int bits) {
    std::vector<uint8_t> row((codes.size() * static_cast<size_t>(bits) + 7) / 8, 0);
    for (size_t i = 0; i < codes.size(); ++i)
        for (int b = 0; b < bits; ++b) {
            size_t at = i * static_cast<size_t>(bits) + static_cast<size_t>(b);
            row[at / 8] = static_cast<uint8_t>(row[at / 8] | (codes[i] >> b & 1) << at % 8);
        }
    return row;
}

uint32_t word_of(const uint8_t* bytes, size_t count) {
    uint32_t word = 0;
    for (size_t i = 0; i < count; ++i) word |= static_cast<uint32_t>(bytes[i]) << 8 * i;
    return word;
}

template <int bits>
void check_every_four() {
    int64_t ran = 0;
    for (uint32_t pattern = 0; pattern < 1u << 4 * bits; ++pattern, ++ran) {  // the stored bits themselves
        uint32_t codes = 0;
        for (int i = 0; i < 4; ++i) codes |= (pattern >> bits * i & ((1u << bits) - 1)) << 8 * i;
        bool right = mxq::pack_4<bits>(codes) == pattern && mxq::unpack_4<bits>(pattern) == codes &&
                     mxq::unpack_4<bits>(pattern | 0xFFFFFFFFu << 2 * bits << 2 * bits) == codes;
        if (!right) FAIL(bits << " bits, pattern " << std::hex << pattern);
    }
    CHECK(ran == 1 << 4 * bits);
}

template <int bits>
void check_sixteen() {
    std::mt19937 random(7);
    int ran = 0;
    for (; ran < 10000; ++ran) {
        std::vector<uint8_t> codes(16);
        for (auto& code : codes) code = static_cast<uint8_t>(random() & ((1u << bits) - 1));
        const std::vector<uint8_t> row = stored(codes, bits);
        uint32_t words[4], packed[bits / 2], back[4];
        for (size_t i = 0; i < 4; ++i) words[i] = word_of(&codes[4 * i], 4);
        mxq::pack_16<bits>(words, packed);
        for (size_t i = 0; i < bits / 2; ++i) REQUIRE(packed[i] == word_of(&row[4 * i], 4));
        mxq::unpack_16<bits>(packed, back);
        for (size_t i = 0; i < 4; ++i) REQUIRE(back[i] == words[i]);
    }
    CHECK(ran == 10000);
}

// Rows of every length, cut where the contract says: the last byte of a vector is the last that may be read.
template <int bits>
void check_rows() {
    std::mt19937 random(11);
    int64_t ran = 0;
    for (size_t count = 0; count < 40; ++count) {
        std::vector<uint8_t> codes(count);
        for (auto& code : codes) code = static_cast<uint8_t>(random() & ((1u << bits) - 1));
        const std::vector<uint8_t> row = stored(codes, bits);
        CHECK(mxq::packed_bytes(static_cast<int64_t>(count), bits) == static_cast<int64_t>(row.size()));
        for (size_t i = 0; i < count; ++i, ++ran)
            REQUIRE(mxq::load_code<bits>(row.data(), static_cast<int64_t>(i)) == codes[i]);
    }
    CHECK(ran == 39 * 40 / 2);
}

}  // namespace

TEST_CASE("packing: every pattern of four codes, there and back") {
    check_every_four<4>();
    check_every_four<6>();
    CHECK(mxq::pack_4<8>(0x89ABCDEFu) == 0x89ABCDEFu);
    CHECK(mxq::unpack_4<8>(0x89ABCDEFu) == 0x89ABCDEFu);
    CHECK(mxq::pack_4<4>(0x04030201u) == 0x4321u);  // the even element in the low nibble
    CHECK(mxq::pack_4<6>(0x0403023Fu) == (0x3Fu | 2u << 6 | 3u << 12 | 4u << 18));
}

TEST_CASE("packing: sixteen codes to whole words and back") {
    check_sixteen<4>();
    check_sixteen<6>();
    check_sixteen<8>();
}

TEST_CASE("packing: bytes of a row, and each of its codes") {
    check_rows<4>();
    check_rows<6>();
    check_rows<8>();
    static_assert(mxq::packed_bytes(int64_t(1) << 40, 6) == int64_t(3) << 38);
}
