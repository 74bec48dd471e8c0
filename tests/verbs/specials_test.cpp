// NaN, Inf and extreme values change the block that holds them and no other, at every position in a word of packed elements.
#include "specials.h"

using namespace specials;
using testing::Buffer;
using testing::ok;

namespace {

// `even` has whole words and several tiles of 128; the lines of `odd` end in the middle of a word.
const testing::Dims even{std::nullopt, 192, 160}, odd{std::nullopt, 67, 131};

// ---- Quantize --------------------------------------------------------------------------------------------------------

std::map<int32_t, oracle::GroupedPart> quantized_parts(const oracle::Spec& spec, const oracle::Floats& x, testing::Dims dims,
                                                       bool swizzled) {
    std::map<int32_t, oracle::GroupedPart> out;
    for (int32_t part : both_parts)
        out[part] = testing::all_written(oracle::quantize(spec, x, dims.shape(), part, swizzled));
    return out;
}

// Adds to each E2M1 specification its variants with stochastic rounding, Hadamard transforms and four-over-six.
std::vector<oracle::Spec> with_variants(const std::vector<oracle::Spec>& specs) {
    std::vector<oracle::Spec> out;
    for (const oracle::Spec& spec : specs) {
        out.push_back(spec);
        if (!testing::takes_stochastic(spec)) continue;
        out.push_back(spec);
        out.back().stochastic = true, out.back().seed = out.size(), out.back().offset = 5;
        if (!testing::is_square(spec)) out.push_back(spec), out.back().hadamard = MXQ_PART_ROWWISE | MXQ_PART_COLUMNWISE;
        for (int32_t errors : {MXQ_FOUR_OVER_SIX_MAE, MXQ_FOUR_OVER_SIX_MSE})
            if (testing::is_nvfp4(spec)) out.push_back(spec), out.back().four_over_six = errors;
    }
    return out;
}

// Returns a format and scaling with each of its options.
std::vector<oracle::Spec> with_options(const oracle::Spec& base) {
    std::vector<oracle::Spec> out;
    const auto add = [&](auto set) {
        out.push_back(base);
        set(out.back());
    };
    if (oracle::is_mx(base.format))
        for (int32_t rounding : cases::roundings)
            for (int32_t policy : cases::policies)
                add([&](oracle::Spec& spec) { spec.rounding = rounding, spec.nonfinite = policy; });
    if (testing::is_nvfp4(base))
        for (float t : {448.0f, 256.0f})
            for (bool given : {true, false})
                add([&](oracle::Spec& spec) {
                    spec.nvfp4_t = t;
                    if (given) spec.amax = {100};  // a computed amax would be Inf
                });
    if (oracle::is_fp8(base.format))
        for (bool power_of_two : {false, true})
            for (float eps : {0.0f, 0.01f, 0.5f, 40.0f})
                add([&](oracle::Spec& spec) { spec.power_of_two = power_of_two, spec.eps = eps; });
    if (base.scaling == MXQ_SCALING_TENSOR) add([](oracle::Spec& spec) { spec.quantization_scale = {3}; });
    return with_variants(out);
}

}  // namespace

MXQ_EACH_DEVICE("specials: quantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& base : testing::all_formats())
        for (int32_t input : cases::plain_formats) {
            Dealer any(all_specials), finite(finite_specials);
            const bool many_exponents =
                oracle::is_mx(base.format) && oracle::tile_of(base.scaling).width == 32 && input != MXQ_FORMAT_F16;
            cases::Random of_values(static_cast<uint64_t>(ran) + 1);
            const auto even_values = finite_values(input, even, many_exponents ? 40 : 0, of_values);
            const auto odd_values = finite_values(input, odd, many_exponents ? 40 : 0, of_values);
            for (const oracle::Spec& spec : with_options(base))
                for (bool is_even : {true, false}) {
                    const testing::Dims& dims = is_even ? even : odd;
                    if (spec.hadamard && !is_even) continue;
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    const bool swizzled = random.below(2) && testing::can_swizzle(spec);
                    oracle::Bytes data = is_even ? even_values : odd_values;
                    plant(data, input, 0, dims.cols, positions(dims, spec, random), any, finite);
                    Buffer buffer(device, data);
                    auto in = testing::make_tensor(input, dims);
                    ok(mxq_tensor_set_data(in, buffer.data(), buffer.bytes()));
                    const auto expected =
                        quantized_parts(spec, oracle::load(input, data.data(), dims.shape().count()), dims, swizzled);
                    const auto text = compare_parts(device, mxq_quantize, mxq_quantize_query, spec, in, {dims, swizzled},
                                                    expected, compared);
                    ++ran;
                    if (!text.empty())
                        FAIL(testing::describe(spec)
                             << " from " << mxq_format_name(input) << ", " << dims.rows << " rows: " << text);
                }
            if (!testing::is_square(base)) missing += any.missing() + finite.missing();
        }
    CHECK(missing == 0);
    // In this order: the options of MX, the variants of MXFP4, those of NVFP4, and the options of FP8. Hadamard transforms
    // exist only for blocks of one line, and not for odd shapes; ROW has no variants.
    CHECK(ran == 3 * (20 * 8 * 2 + (2 * 5 + 2 * 4 + 2) * 8 + (9 + 8) * 4 + (8 * 8 + 2) * 2));
    CHECK(compared == 3 * 4 * (int64_t{350} * 192 * 160 + 330 * 67 * 131));
}

// ---- Dequantize ------------------------------------------------------------------------------------------------------

namespace {

// Draws a stored part of one matrix.
oracle::Part draw_part(const oracle::Spec& spec, testing::Dims dims, int32_t part, bool swizzled, Special special,
                       Dealer& dealer, cases::Random& random) {
    const auto [experts, lines, length] = oracle::line_shape(dims.shape(), part);
    const oracle::Matrix matrix = draw_matrix(spec, lines, length, special, dealer, random);
    const auto codes = static_cast<size_t>(lines * oracle::row_bytes(spec.format, length));
    const auto scales =
        static_cast<size_t>(oracle::scale_count(spec, dims.shape(), part, swizzled) * oracle::scale_bytes(spec.format));
    oracle::Part out{oracle::Bytes(codes, 0), oracle::Bytes(scales, 0)};
    if (testing::is_nvfp4(spec)) out.amax = {2688.0f};
    oracle::put_matrix(spec, matrix, oracle::placement_of(spec, 0, lines, length, swizzled), out);
    return out;
}

}  // namespace

MXQ_EACH_DEVICE("specials: dequantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int32_t part : both_parts) {
            Dealer dealer(mark_special_codes(spec.format));
            for (int32_t output : cases::plain_formats)
                for (Special special : special_places)
                    for (const testing::Dims& dims : {even, odd}) {
                        cases::Random random(static_cast<uint64_t>(ran) + 1);
                        const bool swizzled = random.below(2) && testing::can_swizzle(spec);
                        const oracle::Part stored = draw_part(spec, dims, part, swizzled, special, dealer, random);
                        auto in = testing::make_tensor(spec, dims, swizzled);
                        auto out = testing::make_tensor(output, dims);
                        testing::InputPart input(device, in, spec, part, stored);
                        const auto values =
                            oracle::store(output, oracle::dequantize(spec, stored, dims.shape(), part, swizzled));
                        Buffer data(device, values.size());
                        ok(mxq_tensor_set_data(out, data.data(), data.bytes()));
                        testing::run(device, mxq_dequantize, mxq_dequantize_query, nullptr, in, out);
                        ++ran, compared += static_cast<int64_t>(values.size());
                        if (auto text = testing::difference(data.read(), values); !text.empty())
                            FAIL(testing::describe(spec) << " part " << part << " to " << mxq_format_name(output) << ", "
                                                         << dims.rows << " rows: " << text);
                    }
            if (!testing::is_square(spec)) missing += dealer.missing();
        }
    CHECK(missing == 0);
    CHECK(ran == 35 * 2 * 3 * 3 * 2);
    CHECK(compared == 35 * 2 * 3 * (4 + 2 + 2) * (192 * 160 + 67 * 131));
}

// ---- Requantize ------------------------------------------------------------------------------------------------------

MXQ_EACH_DEVICE("specials: requantize gives their neighbours the oracle's bytes") {
    int64_t ran = 0, compared = 0, missing = 0;
    for (const oracle::Spec& from : sources()) {
        Dealer dealer(mark_special_codes(from.format));
        for (oracle::Spec to : with_variants(targets()))
            for (int32_t part : both_parts)
                for (int32_t policy : cases::policies) {
                    if (policy == MXQ_NONFINITE_SATURATE && !oracle::is_mx(to.format)) continue;
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    if (oracle::is_mx(to.format)) to.nonfinite = policy, to.rounding = cases::roundings[random.below(4)];
                    const Special special = special_places[random.below(3)];
                    const bool from_swizzled = random.below(2) && testing::can_swizzle(from);
                    const bool swizzled = random.below(2) && testing::can_swizzle(to);
                    const testing::Dims& dims = even;
                    const oracle::Part stored = draw_part(from, dims, part, from_swizzled, special, dealer, random);
                    auto in = testing::make_tensor(from, dims, from_swizzled);
                    testing::InputPart input(device, in, from, part, stored);
                    const auto x = oracle::dequantize(from, stored, dims.shape(), part, from_swizzled);
                    const auto expected = quantized_parts(to, x, dims, swizzled);
                    const auto text = compare_parts(device, mxq_requantize, mxq_requantize_query, to, in, {dims, swizzled},
                                                    expected, compared);
                    ++ran;
                    if (!text.empty())
                        FAIL(testing::describe(from) << " part " << part << " to " << testing::describe(to) << ": " << text);
                }
        if (!testing::is_square(from)) missing += dealer.missing();
    }
    CHECK(missing == 0);
    CHECK(ran == 13 * 2 * (11 * 2 + 6));  // 13 sources, 2 parts, 11 MX targets with 2 policies each, 6 other targets
    CHECK(compared == ran * 4 * 192 * 160);
}
