// numerics/nvfp4.h against the oracle, and at the ends of fp32.
#include "../catch.h"
#include "../oracle.h"
#include "numerics/e8m0.h"
#include "numerics/four_over_six.h"
#include "numerics/nvfp4.h"

#include <random>

namespace {

const float inf = std::numeric_limits<float>::infinity(), flt_max = std::numeric_limits<float>::max();
const float smallest = oracle::float_of(1);

bool same(float a, float b) { return oracle::bits_of(a) == oracle::bits_of(b); }

std::vector<float> global_maxima() {
    std::vector<float> out{0, smallest, 1e-40f, 0x1p-126f, 1e-37f, 7.9e-36f, 1, 6, 1536, 2688, 3e38f, flt_max, inf};
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) out.push_back(oracle::float_of(random() % 0x7F800000u));
    return out;
}

// Around g, where blocks of the tensor are, and everywhere.
std::vector<float> block_maxima(float g, std::mt19937& random) {
    std::vector<float> out{0, smallest, 1e-40f, g, g / 2, std::nextafter(g, 0.0f), 1, flt_max, inf};
    for (int i = 0; i < 60; ++i) out.push_back(g * std::ldexp(1.0f, -(i % 20)) * static_cast<float>(random() % 1000) / 1000);
    for (int i = 0; i < 30; ++i) out.push_back(oracle::float_of(random() % 0x7F800000u));
    for (float& a : out)
        if (std::isnan(a)) a = 0;  // Inf times 0
    return out;
}

std::vector<float> elements(float a, std::mt19937& random) {
    std::vector<float> out{0, -0.0f, a, -a, a / 2, -a / 3, NAN, -NAN, inf, -inf, smallest, -smallest};
    for (int i = 0; i < 20; ++i) out.push_back(a * (static_cast<float>(random() % 2001) - 1000) / 1000);
    return out;
}

oracle::Spec spec_of(int t, int32_t four_over_six = 0) {
    oracle::Spec spec;
    spec.format = MXQ_FORMAT_NVFP4;
    spec.scaling = MXQ_SCALING_1X16;
    spec.nvfp4_t = static_cast<float>(t);
    spec.four_over_six = four_over_six;
    return spec;
}

uint8_t oracle_code(const oracle::Spec& spec, float g, uint8_t scale, float x) {
    uint8_t code = 0xEE;
    oracle::nvfp4_codes(spec, oracle::Block{&x, &code, nullptr, 1, 1, 1}, g, scale);
    return code;
}

// The library's way for one block of four-over-six.
template <bool squared>
uint32_t better_scale(const float* x, int64_t rows, int64_t cols, float a, const mxq::Nvfp4Global& global) {
    const mxq::Nvfp4Candidates candidates = mxq::nvfp4_candidates(a, global);
    auto error = [&](uint32_t scale) {
        const float multiplier = mxq::nvfp4_multiplier(scale, global), value = mxq::decode<mxq::E4M3>(scale);
        float errors[16] = {};
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c) {
                const float element = x[r * cols + c];
                const uint32_t code = mxq::nvfp4_code(element, multiplier);
                errors[r] = mxq::add_rn(errors[r], mxq::nvfp4_error<squared>(element, code, value, global));
            }
        return rows == 1 ? errors[0] : mxq::add_errors_16(errors);
    };
    return mxq::nvfp4_choice(candidates, error(candidates.four), error(candidates.six));
}

}  // namespace

TEST_CASE("nvfp4: global scales") {
    int ran = 0;
    for (float g : global_maxima())
        for (int t : {448, 256}) {
            const mxq::Nvfp4Global global = mxq::nvfp4_global(g, t);
            INFO("g " << g << ", T " << t);
            CHECK(same(global.encode, oracle::nvfp4_encode_scale(static_cast<float>(t), g)));
            CHECK(same(global.decode, oracle::nvfp4_decode_scale(static_cast<float>(t), g)));
            CHECK(same(mxq::nvfp4_decode_scale(g, t), global.decode));
            ++ran;
        }
    CHECK(ran == 2 * 213);
    for (float g : {0.0f, inf}) {
        CHECK(mxq::nvfp4_global(g, 448).encode == 1.0f);
        CHECK(mxq::nvfp4_global(g, 448).decode == 1.0f);
    }
    CHECK(mxq::nvfp4_global(smallest, 448).encode == flt_max);
    CHECK(mxq::nvfp4_global(2688, 448).encode == 1.0f);
    CHECK(mxq::nvfp4_global(1536, 256).encode == 1.0f);
    CHECK(same(mxq::nvfp4_global(flt_max, 448).encode, static_cast<float>(2688.0 / static_cast<double>(flt_max))));
}

TEST_CASE("nvfp4: block scales and codes") {
    std::mt19937 random(5);
    int64_t blocks = 0, codes = 0, zero_scales = 0;
    for (float g : global_maxima())
        for (int t : {448, 256}) {
            const oracle::Spec spec = spec_of(t);
            const mxq::Nvfp4Global global = mxq::nvfp4_global(g, t);
            for (float a : block_maxima(g, random)) {
                const uint32_t scale = mxq::nvfp4_scale(a, global);
                const float multiplier = mxq::nvfp4_multiplier(scale, global);
                ++blocks;
                zero_scales += scale == 0;
                if (scale != oracle::nvfp4_scale(spec.nvfp4_t, g, a)) FAIL("scale: g " << g << ", a " << a << ", T " << t);
                for (float x : elements(a, random)) {
                    if (std::fabs(x) > a) continue;  // not of this block; a NaN may be
                    const uint8_t expected = oracle_code(spec, g, static_cast<uint8_t>(scale), x);
                    const uint32_t code = mxq::encode<mxq::E2M1>(mxq::multiply_rn(x, multiplier));
                    ++codes;
                    if (mxq::nvfp4_code(x, multiplier) != expected || (code & mxq::nvfp4_code_mask(scale)) != expected)
                        FAIL("code: g " << g << ", a " << a << ", T " << t << ", x " << x);
                }
            }
        }
    CHECK(blocks == 2 * 213 * 99);
    CHECK(codes > 20 * blocks);
    CHECK(zero_scales > 1000);
    CHECK(zero_scales < blocks / 2);
}

TEST_CASE("nvfp4: a block of scale 0 keeps signs alone") {
    const mxq::Nvfp4Global global = mxq::nvfp4_global(1e30f, 448);
    REQUIRE(mxq::nvfp4_scale(1.0f, global) == 0);
    const float multiplier = mxq::nvfp4_multiplier(0, global);
    CHECK(mxq::nvfp4_code(1.0f, multiplier) == 0);
    CHECK(mxq::nvfp4_code(-1.0f, multiplier) == 8);
    CHECK(mxq::nvfp4_code(-0.0f, multiplier) == 8);
    CHECK(mxq::nvfp4_code(NAN, multiplier) == 0);
    CHECK(mxq::nvfp4_code(-NAN, multiplier) == 0);
    CHECK(mxq::nvfp4_code_mask(0) == 0x88888888u);
    CHECK(mxq::nvfp4_code_mask(1) == 0xFFFFFFFFu);
    CHECK(mxq::nvfp4_code(NAN, mxq::nvfp4_multiplier(1, global)) == 7);
    CHECK(mxq::nvfp4_code(-NAN, mxq::nvfp4_multiplier(1, global)) == 7);
}

TEST_CASE("nvfp4: the multiplier of every scale") {
    int ran = 0;
    for (float g : global_maxima())
        for (uint32_t scale = 1; scale <= 0x7E; ++scale, ++ran)
            if (!same(mxq::nvfp4_multiplier(scale, mxq::nvfp4_global(g, 448)),
                      oracle::nvfp4_multiplier(448, g, static_cast<uint8_t>(scale))))
                FAIL("g " << g << ", scale " << scale);
    CHECK(ran == 213 * 0x7E);
}

TEST_CASE("nvfp4: every code under every block scale decodes to the oracle's value") {
    const auto decoded = [](uint32_t code, uint32_t scale, float decode_scale) {
        return mxq::from_float<float>(mxq::nvfp4_product(mxq::decode<mxq::E2M1>(code), mxq::decode<mxq::E4M3>(scale), decode_scale));
    };
    int ran = 0;
    for (float g : {0.0f, smallest, 1e-38f, 0.3f, 2688.0f, flt_max, inf})
        for (uint32_t scale = 0; scale < 256; ++scale)
            for (uint32_t code = 0; code < 16; ++code, ++ran) {
                const float decode_scale = mxq::nvfp4_decode_scale(g, 448);
                const float value = decoded(code, scale, decode_scale);
                float expected = oracle::decode_nvfp4(static_cast<uint8_t>(code), static_cast<uint8_t>(scale), decode_scale);
                if (std::isnan(expected)) expected = oracle::float_of(0x7FFFFFFF);
                if (!same(value, expected)) FAIL("g " << g << ", scale " << scale << ", code " << code);
            }
    CHECK(ran == 7 * 256 * 16);
    CHECK(decoded(7, 0xB8, 1.0f) == -6.0f);  // the scale's sign counts
}

TEST_CASE("nvfp4: four over six takes the oracle's scale") {
    std::mt19937 random(9);
    int ran = 0, fours = 0;
    auto check = [&](std::vector<float> x, int64_t rows, float g, int t) {
        float a = 0;
        for (float value : x) a = std::max(a, mxq::bits_float(mxq::amax_bits<mxq::Nonfinite::Saturate>(value)));
        const mxq::Nvfp4Global global = mxq::nvfp4_global(g, t);
        std::vector<uint8_t> codes(x.size());
        const oracle::Block block{x.data(), codes.data(), nullptr, 16, rows, 16};
        for (bool squared : {false, true}) {
            oracle::Spec spec = spec_of(t, squared ? MXQ_FOUR_OVER_SIX_MSE : MXQ_FOUR_OVER_SIX_MAE);
            if (rows == 16) spec.scaling = MXQ_SCALING_16X16;
            const uint32_t scale = squared ? better_scale<true>(x.data(), rows, 16, a, global)
                                           : better_scale<false>(x.data(), rows, 16, a, global);
            if (scale != oracle::nvfp4_better_scale(spec, block, g, false)) FAIL("g " << g << ", a " << a << ", rows " << rows);
            ++ran;
            fours += scale != mxq::nvfp4_candidates(a, global).six;
        }
    };
    for (float g : {0.0f, smallest, 1e-38f, 1.0f, 3000.0f, flt_max, inf})
        for (int t : {448, 256})
            for (int64_t rows : {1, 16})
                for (int repeat = 0; repeat < 100; ++repeat) {
                    std::vector<float> x(static_cast<size_t>(16 * rows));
                    const float unit = std::isfinite(g) ? g : 1.0f;
                    for (float& value : x) value = unit * (static_cast<float>(random() % 2001) - 1000) / 1000;
                    if (repeat % 10 == 1) x[5] = NAN;
                    if (repeat % 10 == 2) x[7] = inf;
                    if (repeat % 10 == 3) x.assign(x.size(), 0.0f);
                    check(x, rows, g, t);
                }
    CHECK(ran == 7 * 2 * 2 * 100 * 2);
    CHECK(fours > ran / 10);
    CHECK(fours < ran / 2);
}

TEST_CASE("nvfp4: candidates, and the choice between them") {
    const mxq::Nvfp4Global global = mxq::nvfp4_global(2688, 448);
    CHECK(mxq::nvfp4_candidates(6.0f, global).six == 0x38);   // 1
    CHECK(mxq::nvfp4_candidates(6.0f, global).four == 0x3C);  // 1.5
    CHECK(mxq::nvfp4_candidates(inf, global).four == 0x7E);
    const mxq::Nvfp4Candidates candidates{4, 6};
    CHECK(mxq::nvfp4_choice(candidates, 1, 2) == 4);
    CHECK(mxq::nvfp4_choice(candidates, 2, 2) == 6);
    CHECK(mxq::nvfp4_choice(candidates, NAN, 2) == 6);
    CHECK(mxq::nvfp4_choice(candidates, 1, NAN) == 6);
}

TEST_CASE("nvfp4: errors of 16 rows are added as a tree") {
    std::mt19937 random(13);
    int ran = 0, unlike_in_order = 0;
    for (; ran < 10000; ++ran) {
        float rows[16], in_order = 0;
        for (float& row : rows) row = std::ldexp(static_cast<float>(random() % 0x1000000u), -static_cast<int>(random() % 12));
        for (float row : rows) in_order = oracle::add(in_order, row);
        auto eight = [&](int r) { return oracle::add(rows[r], rows[r + 8]); };
        auto four = [&](int r) { return oracle::add(eight(r), eight(r + 4)); };
        auto two = [&](int r) { return oracle::add(four(r), four(r + 2)); };
        REQUIRE(same(mxq::add_errors_16(rows), oracle::add(two(0), two(1))));
        unlike_in_order += !same(mxq::add_errors_16(rows), in_order);
    }
    CHECK(ran == 10000);
    CHECK(unlike_in_order > 1000);
}

TEST_CASE("four over six: values of E2M1 without their codes") {
    int64_t ran = 0;
    auto check = [&](uint32_t bits) {
        ++ran;
        const float magnitude = oracle::float_of(bits);
        if (!same(mxq::round_to_e2m1(magnitude), mxq::decode<mxq::E2M1>(mxq::encode<mxq::E2M1>(magnitude))))
            FAIL("magnitude " << magnitude);
    };
    for (uint64_t bits = 0; bits < 0x80000000u; bits += 4093) check(static_cast<uint32_t>(bits));
    for (float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, std::numeric_limits<float>::infinity()})
        for (uint32_t bits : {oracle::bits_of(tie) - 1, oracle::bits_of(tie), oracle::bits_of(tie) + 1}) check(bits);
    CHECK(ran == 0x80000000u / 4093 + 1 + 27);
}

TEST_CASE("four over six: the sum of 16 errors is that of nvfp4_error") {
    std::mt19937 random(17);
    int ran = 0;
    for (float g : global_maxima())
        for (uint32_t scale : {0u, 1u, 8u, 0x38u, 0x7Eu}) {
            const mxq::Nvfp4Global global = mxq::nvfp4_global(g, ran % 2 ? 448 : 256);
            const float multiplier = mxq::nvfp4_multiplier(scale, global), value = mxq::decode<mxq::E4M3>(scale);
            float x[16], absolute = 0, squared = 0;
            for (float& element : x)
                element = (std::isfinite(g) ? g : 1.0f) * (static_cast<float>(random() % 2001) - 1000) / 1000;
            if (ran % 7 == 0) x[3] = NAN;
            if (ran % 7 == 1) x[4] = -inf;
            for (float element : x) {
                const uint32_t code = mxq::nvfp4_code(element, multiplier);
                absolute = mxq::add_rn(absolute, mxq::nvfp4_error<false>(element, code, value, global));
                squared = mxq::add_rn(squared, mxq::nvfp4_error<true>(element, code, value, global));
            }
            auto equal = [](float a, float b) { return same(a, b) || (std::isnan(a) && std::isnan(b)); };
            CHECK(equal(mxq::nvfp4_errors_16<false, false>(x, scale, global), absolute));
            CHECK(equal(mxq::nvfp4_errors_16<true, false>(x, scale, global), squared));
            ++ran;
        }
    CHECK(ran == 213 * 5);
}

TEST_CASE("four over six: a corrected product with the reciprocal is the quotient, for every significand") {
    int64_t ran = 0, corrected = 0;
    for (float divisor : {2688.0f, 1536.0f, 6.0f})
        for (uint32_t exponent : {127u - 99, 127u, 127u + 115})
            for (uint32_t significand = 0; significand < 0x800000; ++significand, ++ran) {
                const float product = oracle::float_of(exponent << 23 | significand), reciprocal = 1 / divisor;
                const float quotient = product * reciprocal;
                const float right = std::fma(std::fma(-quotient, divisor, product), reciprocal, quotient);
                if (!same(right, product / divisor)) FAIL("product " << product);
                corrected += !same(right, quotient);
            }
    CHECK(ran == 9 * 0x800000);
    CHECK(corrected > ran / 10);
    for (float g : {0x1p-80f, 0x1p100f}) {  // smallest and largest code times block scale
        CHECK(mxq::ErrorDivisor::serves(g));
        CHECK(0.5f * 0x1p-9f * g >= 0x1p-99f);
        CHECK(6 * 448 * g < 0x1p116f);
    }
}

namespace {

// A block in which nothing is as it mostly is, where `kind` says so.
void fill_block(float (&x)[16], int kind, float unit, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (float& element : x) element = unit * normal(random);
    if (kind == 1)
        for (float& element : x) element = unit * static_cast<float>(random() % 25) / 24;          // ties
    if (kind == 2)
        for (float& element : x) element = unit * std::ldexp(1.0f, -static_cast<int>(random() % 9));
    if (kind == 3)
        for (float& element : x) element = oracle::float_of(oracle::bits_of(unit) + random() % 3);  // around one value
    if (kind == 4) x[random() % 16] = NAN;
    if (kind == 5) x[random() % 16] *= 1000;
}

struct Estimates {
    int64_t ran = 0, clear = 0, usual = 0, usual_clear = 0;
};

// An estimate, whose codes must be the contract's.
template <bool squared>
float estimate(const float (&x)[16], const mxq::ErrorScale& scale) {
    uint32_t codes[4];
    const float sum = mxq::error_estimate_16<squared>(x, scale, codes);
    for (int i = 0; i < 16; ++i) {
        const uint32_t code = codes[i / 4] >> (8 * (i % 4)) & 0xFF;
        if (!std::isnan(x[i]) && code != (mxq::encode<mxq::E2M1>(mxq::multiply_rn(x[i], scale.multiplier * 0x1p14f)) & 7) << 1)
            FAIL("element " << x[i] << ", multiplier " << scale.multiplier * 0x1p14f << ", code " << code / 2.0f);
    }
    return sum;
}

// Where the estimates are clear apart, the errors are in their order.
template <bool squared>
void check_estimates(const float (&x)[16], bool usual, float g, int t, Estimates& counts) {
    const mxq::Nvfp4Global global = mxq::nvfp4_global(g, t);
    float a = 0;
    for (float value : x) a = std::max(a, mxq::bits_float(mxq::amax_bits<mxq::Nonfinite::Saturate>(value)));
    const mxq::Nvfp4Candidates candidates = mxq::nvfp4_candidates(a, global);
    const float unit = mxq::error_unit(global);
    const mxq::ErrorScale four = mxq::error_scale(candidates.four, mxq::nvfp4_multiplier(candidates.four, global), unit);
    const mxq::ErrorScale six = mxq::error_scale(candidates.six, mxq::nvfp4_multiplier(candidates.six, global), unit);
    ++counts.ran;
    if (!mxq::can_estimate(global) || !mxq::can_estimate(a, four, six)) return;
    const float four_estimate = estimate<squared>(x, four), six_estimate = estimate<squared>(x, six);
    counts.usual += usual;
    if (!mxq::estimates_decide<squared>(four_estimate, six_estimate, a, 1)) return;
    ++counts.clear;
    counts.usual_clear += usual;
    const float four_error = mxq::nvfp4_errors_16<squared, false>(x, candidates.four, global);
    const float six_error = mxq::nvfp4_errors_16<squared, false>(x, candidates.six, global);
    if ((four_error < six_error) != (four_estimate < six_estimate)) FAIL("g " << g << ", a " << a << ", T " << t);
}

}  // namespace

TEST_CASE("four over six: clear estimates are in the order of the errors, and most are clear") {
    std::mt19937 random(23);
    Estimates absolute, squares, bf16, bf16_squares;
    for (int repeat = 0; repeat < 300000; ++repeat) {
        const int kind = repeat % 8;
        const float g = std::ldexp(static_cast<float>(random() % 1000 + 1), static_cast<int>(random() % 100) - 60);
        const float unit = kind == 7 ? g * std::ldexp(1.0f, -static_cast<int>(random() % 24)) : g / 6;
        float x[16];
        fill_block(x, kind, unit, random);
        for (int t : {448, 256}) {
            check_estimates<false>(x, kind == 0, g, t, absolute);
            check_estimates<true>(x, kind == 0, g, t, squares);
        }
        for (float& element : x) element = mxq::to_float(mxq::from_float<mxq::Bf16>(element));  // ties are likelier
        for (int t : {448, 256}) {
            check_estimates<false>(x, kind == 0, g, t, bf16);
            check_estimates<true>(x, kind == 0, g, t, bf16_squares);
        }
    }
    for (const Estimates& counts : {absolute, squares, bf16, bf16_squares}) {
        CHECK(counts.ran == 600000);
        CHECK(counts.clear > counts.ran / 3);
        CHECK(counts.usual > 50000);
        CHECK(counts.usual - counts.usual_clear < counts.usual / 500);
    }
}

namespace {

// Returns whether the candidate of 4 has the smaller error over 16 rows that share one scale.
template <bool squared>
bool check_square(const float (&x)[16][16], float a, float g, Estimates& counts) {
    const mxq::Nvfp4Global global = mxq::nvfp4_global(g, 448);
    const mxq::Nvfp4Candidates candidates = mxq::nvfp4_candidates(a, global);
    const float unit = mxq::error_unit(global);
    const mxq::ErrorScale four = mxq::error_scale(candidates.four, mxq::nvfp4_multiplier(candidates.four, global), unit);
    const mxq::ErrorScale six = mxq::error_scale(candidates.six, mxq::nvfp4_multiplier(candidates.six, global), unit);
    float four_estimate = 0, six_estimate = 0, fours[16], sixes[16];
    for (int i = 0; i < 16; ++i) {
        four_estimate += estimate<squared>(x[i], four);
        six_estimate += estimate<squared>(x[i], six);
        fours[i] = mxq::nvfp4_errors_16<squared, false>(x[i], candidates.four, global);
        sixes[i] = mxq::nvfp4_errors_16<squared, false>(x[i], candidates.six, global);
    }
    const bool is_four = mxq::add_errors_16(fours) < mxq::add_errors_16(sixes);
    if (!mxq::can_estimate(global) || !mxq::can_estimate(a, four, six)) return is_four;
    ++counts.ran;
    if (!mxq::estimates_decide<squared>(four_estimate, six_estimate, a, 16)) return is_four;
    ++counts.clear;
    if (is_four != (four_estimate < six_estimate)) FAIL("g " << g << ", a " << a);
    return is_four;
}

// One element is moved to where the errors are equal, past which is the other scale's turn.
template <bool squared>
void check_around_equal(float (&x)[16][16], float a, float g, Estimates& counts) {
    float& element = x[3][5];
    float lower = 0, upper = a;
    const auto at = [&](float value) {
        element = value;
        return check_square<squared>(x, a, g, counts);
    };
    const bool below = at(lower);
    if (at(upper) == below) return;
    for (int i = 0; i < 24; ++i) {
        const float middle = lower + (upper - lower) / 2;
        (at(middle) == below ? lower : upper) = middle;
    }
}

}  // namespace

TEST_CASE("four over six: clear estimates of 16x16 are in the order of the errors, and most are clear") {
    std::mt19937 random(31);
    Estimates usual[2], equal[2];
    for (int repeat = 0; repeat < 4000; ++repeat) {
        const float g = std::ldexp(static_cast<float>(random() % 1000 + 1), static_cast<int>(random() % 60) - 40);
        float x[16][16], a = 0;
        for (auto& row : x) fill_block(row, repeat % 4 == 0 ? 0 : static_cast<int>(random() % 4), g / 6, random);
        for (const auto& row : x)
            for (float value : row) a = std::max(a, std::fabs(value));
        check_square<false>(x, a, g, usual[0]);
        check_square<true>(x, a, g, usual[1]);
        check_around_equal<false>(x, a, g, equal[0]);
        check_around_equal<true>(x, a, g, equal[1]);
    }
    for (int squared = 0; squared < 2; ++squared) {
        CHECK(usual[squared].ran > 3000);
        CHECK(usual[squared].ran - usual[squared].clear < usual[squared].ran / 100);
        CHECK(equal[squared].ran - equal[squared].clear > 40);
        CHECK(equal[squared].clear > 1000);
    }
}

TEST_CASE("NVFP4: a block scale and its value from one rounding") {
    std::mt19937 random(29);
    int64_t wrong = 0, values = 0;
    for (float g : global_maxima())
        for (int t : {448, 256}) {
            const mxq::Nvfp4Global global = mxq::nvfp4_global(g, t);
            for (float a : block_maxima(g, random)) {
                const uint32_t scale = mxq::nvfp4_scale(a, global);
                const mxq::Nvfp4BlockScale both = mxq::nvfp4_block_scale(a, global);
                values++;
                wrong += both.byte != scale || !same(both.value, mxq::decode<mxq::E4M3>(scale)) ||
                         !same(mxq::nvfp4_multiplier_of_value(both.value, global), mxq::nvfp4_multiplier(scale, global));
            }
        }
    CHECK(values == 213 * 2 * 99);
    CHECK(wrong == 0);
}

TEST_CASE("E2M1: the code of a value is that of its word, rounded to odd") {
    int64_t wrong = 0, values = 0;
    const auto check = [&](uint64_t bits) {
        const auto of = uint32_t(bits);
        const float value = oracle::float_of(of);
        values++;
        wrong += mxq::E2m1FromOddBf16::code((of | ((of & 0xFFFF) + 0xFFFF)) >> 16) != mxq::encode<mxq::E2M1>(value);
    };
    for (uint64_t sign : {0x00000000u, 0x80000000u}) {
        for (uint64_t bits = 0; bits <= 0x7F800000u; bits += 61) check(sign + bits);
        for (uint64_t tie = 0x3E000000u; tie <= 0x41000000u; tie += 0x00100000u)
            for (uint64_t bits = tie - 70000; bits <= tie + 70000; bits++) check(sign + bits);
    }
    CHECK(values > 80000000);
    CHECK(wrong == 0);
}
