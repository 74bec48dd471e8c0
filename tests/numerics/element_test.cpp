// Codes and 16-bit types: every value there is, against the oracle's tables.
#include "../catch.h"
#include "../oracle.h"
#include "core/formats.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"

#include "formats.h"

namespace {

// Equal bits, any NaN equal to any other.
bool same(float a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return oracle::bits_of(a) == oracle::bits_of(static_cast<float>(b));
}

template <class E>
void check_decode() {
    uint32_t ran = 0;
    for (uint32_t code = 0; code < 1u << E::bits; ++code, ++ran) {
        const double expected = oracle::decode_element(format_of<E>, static_cast<uint8_t>(code));
        if (!same(mxq::decode<E>(code), expected)) FAIL("code " << code);
    }
    CHECK(ran == 1u << E::bits);
}

// Every value of `next`, a generator of fp32 bits, as a code.
template <class E>
bool encodes(uint32_t bits) {
    float x = oracle::float_of(bits);
    return mxq::encode<E>(x) == oracle::encode_element(format_of<E>, x);
}

template <class E>
void check_encode() {
    int64_t ran = 0;
    auto check = [&](uint32_t bits) {
        ++ran;
        if (!encodes<E>(bits)) FAIL("fp32 bits " << std::hex << bits);
    };
    for (uint32_t half = 0; half < 0x10000; ++half) {
        check(half << 16);
        check(oracle::bits_of(oracle::from_f16(static_cast<uint16_t>(half))));
    }
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 4093) check(static_cast<uint32_t>(bits));
    // Every value and every midpoint between two, and their neighbours; the largest value too, and the tie past it.
    auto values = oracle::table(oracle::element_type(format_of<E>));
    const auto codes = static_cast<int64_t>(values.size());
    values.push_back(2 * values.back() - values[values.size() - 2]);
    for (size_t i = 0; i + 1 < values.size(); ++i)
        for (double place : {values[i], (values[i] + values[i + 1]) / 2})
            for (uint32_t sign : {0u, 0x80000000u}) {
                uint32_t bits = oracle::bits_of(static_cast<float>(place)) | sign;
                for (uint32_t beside : {bits - 1, bits, bits + 1}) check(beside);
            }
    CHECK(ran == 2 * 0x10000 + (0x100000000 + 4092) / 4093 + 12 * codes);
}

template <class E>
void check_round_trip() {
    uint32_t ran = 0;
    for (uint32_t code = 0; code < 1u << E::bits; ++code) {
        if ((code & (mxq::ElementBits<E>::sign - 1)) >= E::first_special) continue;
        ++ran;
        if (mxq::encode<E>(mxq::decode<E>(code)) != code) FAIL("code " << code);
    }
    CHECK(ran == 2 * E::first_special);
}

}  // namespace

TEST_CASE("element: every code decodes to the oracle's value") {
    for_each_element([](auto e) { check_decode<decltype(e)>(); });
}

TEST_CASE("element: every 16-bit value, every midpoint and a stride of fp32 encode to the oracle's code") {
    for_each_element([](auto e) { check_encode<decltype(e)>(); });
}

TEST_CASE("element: every code comes back from its own value") {
    for_each_element([](auto e) { check_round_trip<decltype(e)>(); });
}

TEST_CASE("element: Inf, NaN and the largest values") {
    const float inf = std::numeric_limits<float>::infinity();
    auto codes = [&](auto e) {
        using E = decltype(e);
        return std::vector<uint32_t>{mxq::encode<E>(inf), mxq::encode<E>(-inf), mxq::encode<E>(NAN), mxq::encode<E>(-NAN),
                                     mxq::encode<E>(E::max), mxq::encode<E>(-E::max), mxq::encode<E>(-0.0f)};
    };
    using Codes = std::vector<uint32_t>;
    CHECK(codes(mxq::E4M3()) == Codes{0x7E, 0xFE, 0x7F, 0x7F, 0x7E, 0xFE, 0x80});
    CHECK(codes(mxq::E5M2()) == Codes{0x7B, 0xFB, 0x7F, 0x7F, 0x7B, 0xFB, 0x80});
    CHECK(codes(mxq::E3M2()) == Codes{0x1F, 0x3F, 0x1F, 0x1F, 0x1F, 0x3F, 0x20});
    CHECK(codes(mxq::E2M3()) == Codes{0x1F, 0x3F, 0x1F, 0x1F, 0x1F, 0x3F, 0x20});
    CHECK(codes(mxq::E2M1()) == Codes{0x7, 0xF, 0x7, 0x7, 0x7, 0xF, 0x8});
}

TEST_CASE("convert: every 16-bit value to fp32") {
    int ran = 0;
    for (uint32_t half = 0; half < 0x10000; ++half, ++ran) {
        auto bits = static_cast<uint16_t>(half);
        if (!same(mxq::to_float(mxq::Bf16{bits}), oracle::from_bf16(bits))) FAIL("bf16 " << half);
        if (!same(mxq::to_float(mxq::F16{bits}), oracle::from_f16(bits))) FAIL("f16 " << half);
    }
    CHECK(ran == 0x10000);
}

TEST_CASE("convert: fp32 to 16 bits at every value, every midpoint, beside both, and by a stride") {
    int64_t ran = 0;
    auto check = [&](uint32_t bits) {
        ++ran;
        float x = oracle::float_of(bits);
        if (mxq::from_float<mxq::Bf16>(x).bits != oracle::to_bf16(x)) FAIL("to bf16: " << std::hex << bits);
        if (mxq::from_float<mxq::F16>(x).bits != oracle::to_f16(x)) FAIL("to f16: " << std::hex << bits);
    };
    for (uint32_t half = 0; half < 0x10000; ++half)
        for (uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) check(half << 16 | low);
    const auto& values = oracle::table(oracle::f16);
    for (size_t i = 0; i + 1 < values.size(); ++i) {
        uint32_t middle = oracle::bits_of(static_cast<float>((values[i] + values[i + 1]) / 2));
        for (uint32_t bits : {middle - 1, middle, middle + 1}) check(bits);
    }
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 40961) check(static_cast<uint32_t>(bits));
    CHECK(ran == 6 * 0x10000 + 3 * static_cast<int64_t>(values.size() - 1) + (0x100000000 + 40960) / 40961);
}

TEST_CASE("element: every quantized format has an element of kElements, and its number of bits") {
    int formats = 0;
    for (const oracle::QuantizedFormat& format : oracle::quantized_formats) {
        const mxq::Format* row = mxq::find_format(format.id);
        REQUIRE(row);
        CHECK(std::count(std::begin(mxq::kElements), std::end(mxq::kElements), row->element) == 1);
        const int bits = mxq::with_element(row->element, [](auto e) { return decltype(e)::bits; });
        CHECK(bits == row->bits);
        CHECK(bits == format.element.width());
        formats++;
    }
    CHECK(formats == 8);
    CHECK(mxq::with_element(mxq::Element::Bf16, [](auto) { return 1; }) == 0);
}
