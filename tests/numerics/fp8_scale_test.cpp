// fp32 scales of FP8, by hand and against the oracle.
#include "../catch.h"
#include "../oracle.h"
#include "one_element.h"
#include "numerics/e8m0.h"
#include "numerics/fp8_scale.h"

namespace {

const float inf = std::numeric_limits<float>::infinity(), flt_max = std::numeric_limits<float>::max();
const float smallest = oracle::float_of(1);

uint32_t scale_bits(float amax, float epsilon, bool power_of_two, float max = 448) {
    return oracle::bits_of(mxq::fp8_quantization_scale(amax, {max, epsilon, power_of_two}));
}

}  // namespace

TEST_CASE("fp8 scale: what has no scale of its own") {
    for (bool power_of_two : {false, true})
        for (float amax : {0.0f, inf, NAN}) CHECK(scale_bits(amax, 0, power_of_two) == 0x3F800000);
    CHECK(scale_bits(0, 1e-12f, false) == oracle::bits_of(oracle::divide(448, 1e-12f)));
    CHECK(scale_bits(1e-13f, 1e-12f, false) == oracle::bits_of(oracle::divide(448, 1e-12f)));
    CHECK(scale_bits(inf, 1e-12f, false) == 0x3F800000);
    CHECK(scale_bits(NAN, 1e-12f, false) == 0x3F800000);
    CHECK(scale_bits(1, inf, false) == 0x3F800000);
}

TEST_CASE("fp8 scale: the ends of fp32, and powers of two") {
    CHECK(scale_bits(smallest, 0, false) == oracle::bits_of(flt_max));
    CHECK(scale_bits(smallest, 0, true) == 0x7F000000);  // 2^127
    CHECK(scale_bits(448, 0, false) == 0x3F800000);
    CHECK(scale_bits(449, 0, true) == 0x3F000000);
    CHECK(scale_bits(300, 0, true) == 0x3F800000);
    CHECK(scale_bits(flt_max, 0, false) == oracle::bits_of(oracle::divide(448, flt_max)));
    CHECK(scale_bits(57344, 0, false, 57344) == 0x3F800000);
    CHECK(oracle::bits_of(mxq::fp8_stored_scale(flt_max)) == 0x00200000);  // a subnormal, kept
    CHECK(mxq::fp8_stored_scale(0.0f) == inf);
    CHECK(oracle::bits_of(mxq::fp8_stored_scale(3.0f)) == oracle::bits_of(oracle::divide(1, 3)));
}

TEST_CASE("fp8 scale: a stride of maxima against the oracle") {
    int64_t ran = 0;
    for (int32_t format : {MXQ_FORMAT_FP8_E4M3, MXQ_FORMAT_FP8_E5M2})
        for (float epsilon : {0.0f, 1e-12f})
            for (bool power_of_two : {false, true}) {
                oracle::Spec spec;
                spec.format = format;
                spec.eps = epsilon;
                spec.power_of_two = power_of_two;
                const mxq::Fp8Rule rule{format == MXQ_FORMAT_FP8_E4M3 ? 448.0f : 57344.0f, epsilon, power_of_two};
                for (uint64_t bits = 0; bits <= 0x7F800000u; bits += 10007, ++ran) {
                    const float a = oracle::float_of(static_cast<uint32_t>(bits));
                    const float scale = mxq::fp8_quantization_scale(a, rule);
                    if (oracle::bits_of(scale) != oracle::bits_of(oracle::fp8_scale(spec, a))) FAIL("maximum " << a);
                    if (oracle::bits_of(mxq::fp8_stored_scale(scale)) != oracle::bits_of(oracle::divide(1, scale)))
                        FAIL("reciprocal of " << scale);
                }
            }
    CHECK(ran == 8 * (0x7F800000 / 10007 + 1));
}

TEST_CASE("fp8 scale: values of codes") {
    int ran = 0;
    for (uint32_t code = 0; code < 256; ++code)
        for (float scale : {1.0f, 0.3f, 1e-38f, flt_max, smallest}) {
            ++ran;
            float expected = oracle::decode_fp8(MXQ_FORMAT_FP8_E5M2, static_cast<uint8_t>(code), oracle::bits_of(scale));
            if (std::isnan(expected)) expected = oracle::float_of(0x7FFFFFFF);
            CHECK(oracle::bits_of(dequantize_element<mxq::E5M2>(code, scale)) == oracle::bits_of(expected));
        }
    CHECK(ran == 256 * 5);
}
