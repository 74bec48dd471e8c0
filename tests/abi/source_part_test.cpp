// Which part dequantize and requantize read: the one that the options name.
#include "../formats.h"
#include "says.h"

using testing::Buffer;
using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;

testing::QuantizeOptions read_from(int32_t part) {
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    ok(mxq_quantize_options_set_source_part(options, part));
    return options;
}

// Returns the value that all elements of a part have, one that the format holds exactly; quantize would make no such parts.
float value_of(const oracle::Spec& spec, int32_t part) {
    const float rowwise = testing::is_nvfp4(spec) ? 5.25f : oracle::is_fp8(spec.format) ? 1.75f : 1.5f;
    return part == MXQ_PART_COLUMNWISE ? 4 * rowwise : rowwise;
}

// 64 x 96 values in both parts.
struct TwoParts {
    TwoParts(testing::Device& device, const oracle::Spec& spec) : tensor(testing::make_tensor(spec, dims, false)) {
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
            parts.push_back(std::make_unique<testing::InputPart>(
                device, tensor, spec, part,
                oracle::quantize(spec, oracle::Floats(64 * 96, value_of(spec, part)), dims.shape(), part, false)));
    }
    static constexpr testing::Dims dims{std::nullopt, 64, 96};
    testing::Tensor tensor;
    std::vector<std::unique_ptr<testing::InputPart>> parts;
};

}  // namespace

MXQ_EACH_DEVICE("source part: dequantize and requantize read the one that is asked for, in every format") {
    int ran = 0;
    for (const oracle::Spec& spec : testing::all_formats()) {
        TwoParts q(device, spec);
        Buffer data(device, 64 * 96 * 4);
        auto y = testing::make_tensor(MXQ_FORMAT_F32, TwoParts::dims);
        ok(mxq_tensor_set_data(y, data.data(), data.bytes()));
        for (int32_t part : {0, MXQ_PART_COLUMNWISE, MXQ_PART_ROWWISE}) {
            const float value = value_of(spec, part);
            INFO(testing::describe(spec) << " part " << part);
            testing::run(device, mxq_dequantize, mxq_dequantize_query, read_from(part), q.tensor, y);
            CHECK(testing::difference(data.read(), testing::bytes_of(oracle::Floats(64 * 96, value))) == "");

            const oracle::Spec to;
            auto again = testing::make_tensor(to, TwoParts::dims, false);
            testing::OutputPart out(device, again, to, MXQ_PART_ROWWISE, false);
            testing::run(device, mxq_requantize, mxq_requantize_query, read_from(part), q.tensor, again);
            const auto expected = oracle::quantize(to, oracle::Floats(64 * 96, value), TwoParts::dims.shape(), MXQ_PART_ROWWISE, false);
            CHECK(out.compare(testing::all_written(expected), to) == "");
            ++ran;
        }
    }
    CHECK(ran == 35 * 3);
}

MXQ_EACH_DEVICE("source part: one that is not declared is refused by name, and taken on trust in a query without parts") {
    auto q = testing::make_quantized({}, {std::nullopt, 32, 32}, false), to = testing::make_quantized({}, {std::nullopt, 32, 32}, false),
         y = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 32, 32});
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
        const auto options = read_from(part);
        CHECK(mxq_dequantize_query(device.context, options, q, y, nullptr) == MXQ_STATUS_OK);
        MXQ_REFUSED(mxq_dequantize(device.context, options, q, y, nullptr, 0, nullptr), MXQ_STATUS_MISSING_BUFFER, "in declares no part");
        auto other = testing::make_quantized({}, {std::nullopt, 32, 32}, false);
        ok(mxq_tensor_set_part(other, MXQ_PART_BOTH - part, nullptr, 0, nullptr, 0));
        const std::string words = part == MXQ_PART_ROWWISE ? "in declares no rowwise part" : "in declares no columnwise part";
        MXQ_REFUSED(mxq_dequantize_query(device.context, options, other, y, nullptr), MXQ_STATUS_MISSING_BUFFER, words, "set_source_part");
        MXQ_REFUSED(mxq_requantize_query(device.context, options, other, to, nullptr), MXQ_STATUS_MISSING_BUFFER, words, "set_source_part");
    }
}

MXQ_EACH_DEVICE("source part: verbs that read no quantized values have no such option") {
    auto x = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 32, 32}), q = testing::make_quantized({}, {std::nullopt, 32, 32}, false),
         fp8 = testing::make_tensor(MXQ_FORMAT_FP8_E4M3, {std::nullopt, 32, 32}), swizzled = testing::make_quantized({}, {std::nullopt, 32, 32}, true),
         grouped = testing::make_quantized({}, {std::nullopt, 32, 32}, false);
    ok(testing::set_ends(grouped, nullptr, MXQ_TYPE_INT32, 1));
    const auto options = read_from(MXQ_PART_ROWWISE);
    auto* const context = device.context;
    MXQ_REFUSED(mxq_quantize_query(context, options, x, q, nullptr), invalid, "a source part", "quantize does not have");
    MXQ_REFUSED(mxq_amax_query(context, options, x, fp8, nullptr), invalid, "a source part", "amax does not have");
    MXQ_REFUSED(mxq_swizzle_scales_query(context, options, q, swizzled, nullptr), invalid, "a source part", "swizzle_scales");
    MXQ_REFUSED(mxq_unswizzle_scales_query(context, options, swizzled, q, nullptr), invalid, "a source part", "unswizzle_scales");
    MXQ_REFUSED(mxq_pad_groups_query(context, options, grouped, grouped, nullptr), invalid, "a source part", "pad_groups");
    MXQ_REFUSED(mxq_unpad_groups_query(context, options, grouped, grouped, nullptr), invalid, "a source part", "unpad_groups");
    for (int32_t bad : {-1, MXQ_PART_BOTH, 4}) MXQ_REFUSED(mxq_quantize_options_set_source_part(options, bad), invalid, "part is " + std::to_string(bad));
    MXQ_REFUSED(mxq_quantize_options_set_source_part(nullptr, 0), invalid, "options is NULL");
}
