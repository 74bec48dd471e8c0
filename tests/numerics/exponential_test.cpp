// The exponential and the error function of numerics/exponential.h against double precision, and against the oracle's bits.
#include "../catch.h"
#include "../oracle_activation.h"
#include "../parallel.h"
#include "numerics/activation.h"

#include <mutex>

namespace {

// The distance of two neighbouring floats at a value.
double last_place(double value) {
    int exponent;
    std::frexp(value, &exponent);
    return std::ldexp(1.0, std::max(exponent - 24, -149));
}

struct Outcome {
    int64_t ran = 0, wrong_bits = 0;
    double worst = 0;  // in units in the last place
};

// Compares a function with the right value and with the oracle, for every `stride`-th pattern of [first, last).
template <class Function, class Right, class Oracle>
Outcome compare(uint32_t first, uint32_t last, uint32_t stride, Function function, Right right, Oracle oracle) {
    constexpr uint32_t slice = 1 << 22;
    Outcome all;
    std::mutex mutex;
    testing::parallel_for((last - first + slice - 1) / slice, 100 * slice / stride, [&](int64_t number) {
        Outcome mine;
        const uint32_t begin = first + uint32_t(number) * slice, end = std::min(last - begin, slice) + begin;
        for (uint32_t bits = begin; bits < end; bits += stride) {
            const float x = oracle::float_of(bits), got = function(x);
            const double exact = right(static_cast<double>(x));
            const double error = std::fabs(static_cast<double>(got) - exact) / last_place(exact);
            mine.worst = std::max(mine.worst, std::isnan(error) ? 1e9 : error);
            mine.wrong_bits += oracle::bits_of(got) != oracle::bits_of(oracle(x));
            ++mine.ran;
        }
        const std::lock_guard lock(mutex);
        all.ran += mine.ran, all.wrong_bits += mine.wrong_bits, all.worst = std::max(all.worst, mine.worst);
    });
    return all;
}

void check_exponential(uint32_t stride) {
    const auto exp = [](double x) { return std::exp(x); };
    const Outcome outcome = compare(0x80000000u, 0xC2D20000u, stride, mxq::exp_of_nonpositive, exp, oracle::activation_exp);
    CHECK(outcome.wrong_bits == 0);
    CHECK(outcome.worst <= 0.9);
    CHECK(outcome.ran >= (0xC2D20000u - 0x80000000u) / stride);
}

void check_error_function(uint32_t stride) {
    const auto erf = [](double x) { return std::erf(x); };
    for (uint32_t sign : {0u, 0x80000000u}) {
        const Outcome outcome = compare(sign, sign + 0x40A00000u, stride, mxq::error_function, erf, oracle::activation_erf);
        CHECK(outcome.wrong_bits == 0);
        CHECK(outcome.worst <= 1.09);
        CHECK(outcome.ran >= 0x40A00000u / stride);
    }
}

}  // namespace

TEST_CASE("numerics: the exponential and the error function keep their errors", "[cpu]") {
    check_exponential(509);
    check_error_function(509);
}

TEST_CASE("exhaustive: the exponential and the error function of every number", "[.long]") {
    check_exponential(1);
    check_error_function(1);
}

TEST_CASE("numerics: the exponential and the error function at their ends", "[cpu]") {
    CHECK(mxq::float_bits(mxq::exp_of_nonpositive(-0.0f)) == 0x3F800000);
    CHECK(mxq::float_bits(mxq::exp_of_nonpositive(-INFINITY)) == 0);
    CHECK(mxq::float_bits(mxq::exp_of_nonpositive(-0x1.9fe368p+6f)) == 1);  // ln 2^-149.99
    CHECK(std::isnan(mxq::exp_of_nonpositive(NAN)));
    CHECK(mxq::float_bits(mxq::error_function(-0.0f)) == 0x80000000);
    CHECK(mxq::float_bits(mxq::error_function(0x1p-149f)) == 1);
    CHECK(mxq::error_function(INFINITY) == 1);
    CHECK(mxq::error_function(-INFINITY) == -1);
    CHECK(std::isnan(mxq::error_function(NAN)));
}

TEST_CASE("numerics: activations of numbers that are special", "[cpu]") {
    using mxq::Activation;
    const float inf = INFINITY;
    CHECK(mxq::float_bits(mxq::silu(-0.0f, 1).value) == 0x80000000);
    CHECK(mxq::float_bits(mxq::gelu_erf(-0.0f).value) == 0x80000000);
    CHECK(mxq::float_bits(mxq::gelu_tanh(-0.0f).value) == 0x80000000);
    CHECK(mxq::float_bits(mxq::squared_relu(-0.0f)) == 0);
    for (const float large : {inf, 0x1p100f}) {
        CHECK(mxq::silu(large, 1).value == large);
        CHECK(mxq::silu(large, 1).slope == 1);
        CHECK(mxq::gelu_erf(large).value == large);
        CHECK(mxq::gelu_erf(large).slope == 1);
        CHECK(mxq::gelu_tanh(large).value == large);
        CHECK(mxq::gelu_tanh(large).slope == 1);
    }
    CHECK(std::isnan(mxq::silu(-inf, 1).value));
    CHECK(std::isnan(mxq::gelu_erf(-inf).value));
    CHECK(std::isnan(mxq::gelu_tanh(-inf).value));
    CHECK(mxq::squared_relu(-inf) == 0);
    CHECK(mxq::squared_relu(inf) == inf);
    for (const auto curve : {mxq::silu(NAN, 1), mxq::gelu_erf(NAN), mxq::gelu_tanh(NAN)}) {
        CHECK(std::isnan(curve.value));
        CHECK(std::isnan(curve.slope));
    }
    CHECK(std::isnan(mxq::squared_relu(NAN)));
    const mxq::ActivationNumbers clamp{1.702f, 7, 1};
    CHECK(std::isnan(mxq::activated<Activation::SwigluClamped>(clamp, NAN, 1)));
    CHECK(std::isnan(mxq::activated<Activation::SwigluClamped>(clamp, 1, NAN)));
    CHECK(mxq::activated<Activation::SwigluClamped>(clamp, inf, inf) == mxq::activated<Activation::SwigluClamped>(clamp, 7, 7));
    CHECK(mxq::activated<Activation::SwigluClamped>(clamp, 7, -inf) == mxq::activated<Activation::SwigluClamped>(clamp, 7, -7));
}
