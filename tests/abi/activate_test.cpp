// Options of activate return what was set, and first their defaults; activate refuses what it does not take.
#include "../formats.h"
#include "says.h"

#include <limits>

using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;
using Options = testing::Handle<mxq_activate_options, mxq_activate_options_destroy>;

Options make_options() {
    Options options;
    ok(mxq_activate_options_create(options.out()));
    return options;
}

struct Numbers {
    int32_t format = -1;
    const void* values = &format;
    uint64_t bytes = 1;
    bool operator==(const Numbers&) const = default;
};

template <class Getter>
Numbers numbers(Getter getter, const mxq_activate_options* options) {
    Numbers out;
    ok(getter(options, &out.format, &out.values, &out.bytes));
    return out;
}

// BF16 tensors of which `in` has twice the columns of `out`, and a place for both.
struct Small {
    testing::Tensor in = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 4, 64});
    testing::Tensor out = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 4, 32});
    std::vector<uint16_t> from = std::vector<uint16_t>(4 * 64), to = std::vector<uint16_t>(4 * 32, 0xCCCC);
    Small() {
        ok(mxq_tensor_set_const_data(in, from.data(), from.size() * 2));
        ok(mxq_tensor_set_data(out, to.data(), to.size() * 2));
    }
    mxq_status run(const mxq_activate_options* options) const {
        return mxq_activate(testing::cpu().context, options, in, out, nullptr, 0, nullptr);
    }
};

}  // namespace

TEST_CASE("activate: options, first as they are by default", "[cpu]") {
    const auto options = make_options();
    int32_t activation = 0, layout = 0;
    float alpha = 0, limit = 0, addend = 0;
    const char* name = nullptr;
    const auto read = [&] {
        ok(mxq_activate_options_get_activation(options, &activation));
        ok(mxq_activate_options_get_gate_layout(options, &layout));
        ok(mxq_activate_options_get_clamp(options, &alpha, &limit, &addend));
        ok(mxq_activate_options_get_implementation(options, &name));
    };
    read();
    CHECK(std::tuple(activation, layout, alpha, limit, addend, std::string(name)) ==
          std::tuple(MXQ_ACTIVATION_SWIGLU, MXQ_GATE_LAYOUT_GATE_UP, 1.702f, 7.0f, 1.0f, std::string()));
    CHECK(numbers(mxq_activate_options_get_bias, options) == Numbers{0, nullptr, 0});
    CHECK(numbers(mxq_activate_options_get_row_weights, options) == Numbers{0, nullptr, 0});

    const float values[4] = {};
    testing::QuantizeOptions quantize, copy;
    ok(mxq_quantize_options_create(quantize.out()));
    ok(mxq_quantize_options_create(copy.out()));
    ok(mxq_quantize_options_set_scale_rounding(quantize, MXQ_SCALE_ROUNDING_EVEN));
    ok(mxq_activate_options_set_activation(options, MXQ_ACTIVATION_SWIGLU_CLAMPED));
    ok(mxq_activate_options_set_gate_layout(options, MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE));
    ok(mxq_activate_options_set_clamp(options, -2, std::numeric_limits<float>::infinity(), 0.5f));
    ok(mxq_activate_options_set_bias(options, MXQ_FORMAT_F32, values, 16));
    ok(mxq_activate_options_set_row_weights(options, MXQ_FORMAT_BF16, values, 8));
    ok(mxq_activate_options_set_quantize_options(options, quantize));
    ok(mxq_activate_options_set_implementation(options, "cpu"));
    read();
    CHECK(std::tuple(activation, layout, alpha, limit, addend, std::string(name)) ==
          std::tuple(MXQ_ACTIVATION_SWIGLU_CLAMPED, MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE, -2.0f,
                     std::numeric_limits<float>::infinity(), 0.5f, std::string("cpu")));
    CHECK(numbers(mxq_activate_options_get_bias, options) == Numbers{MXQ_FORMAT_F32, values, 16});
    CHECK(numbers(mxq_activate_options_get_row_weights, options) == Numbers{MXQ_FORMAT_BF16, values, 8});
    int32_t rounding = 0;
    ok(mxq_activate_options_get_quantize_options(options, copy));
    ok(mxq_quantize_options_get_scale_rounding(copy, &rounding));
    CHECK(rounding == MXQ_SCALE_ROUNDING_EVEN);
    ok(mxq_activate_options_set_quantize_options(options, nullptr));
    ok(mxq_activate_options_get_quantize_options(options, copy));
    ok(mxq_quantize_options_get_scale_rounding(copy, &rounding));
    CHECK(rounding == MXQ_SCALE_ROUNDING_RCEIL);
}

TEST_CASE("activate: setters refuse values that mean nothing", "[cpu]") {
    const auto options = make_options();
    const float value = 0;
    for (int32_t bad : {0, -1, 9}) MXQ_REFUSED(mxq_activate_options_set_activation(options, bad), invalid, "activation", "SQUARED_RELU (8)");
    for (int32_t bad : {0, 5}) MXQ_REFUSED(mxq_activate_options_set_gate_layout(options, bad), invalid, "layout", "(4)");
    MXQ_REFUSED(mxq_activate_options_set_clamp(options, NAN, 7, 1), invalid, "alpha", "finite");
    MXQ_REFUSED(mxq_activate_options_set_clamp(options, 1, 0, 1), invalid, "limit is 0", "above 0");
    MXQ_REFUSED(mxq_activate_options_set_clamp(options, 1, NAN, 1), invalid, "limit", "above 0");
    MXQ_REFUSED(mxq_activate_options_set_clamp(options, 1, 7, INFINITY), invalid, "addend", "finite");
    MXQ_REFUSED(mxq_activate_options_set_bias(options, MXQ_FORMAT_NVFP4, &value, 4), invalid, "format is 9", "no bias");
    MXQ_REFUSED(mxq_activate_options_set_bias(options, MXQ_FORMAT_F32, nullptr, 4), invalid, "bias is NULL with 4 bytes");
    MXQ_REFUSED(mxq_activate_options_set_row_weights(options, 0, &value, 4), invalid, "format is 0", "no weights");
    testing::QuantizeOptions quantize;
    ok(mxq_quantize_options_create(quantize.out()));
    ok(mxq_quantize_options_set_implementation(quantize, "cpu"));
    MXQ_REFUSED(mxq_activate_options_set_quantize_options(options, quantize), invalid, "implementation \"cpu\"", "expected none");
}

TEST_CASE("activate: refuses shapes, options and buffers that do not fit, and writes nothing", "[cpu]") {
    const Small small;
    auto wrong = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, 4, 64});
    auto codes = testing::make_tensor(MXQ_FORMAT_MXFP8_E4M3, {std::nullopt, 4, 64});
    mxq_context* const cpu = testing::cpu().context;
    MXQ_REFUSED(mxq_activate_query(cpu, nullptr, small.in, wrong, nullptr), MXQ_STATUS_SHAPE_MISMATCH, "in is 4 x 64 and out is 4 x 64", "half");
    MXQ_REFUSED(mxq_activate_query(cpu, nullptr, codes, small.out, nullptr), MXQ_STATUS_UNSUPPORTED, "in is mxfp8_e4m3", "mxq_dequantize");
    const auto options = make_options();
    ok(mxq_activate_options_set_activation(options, MXQ_ACTIVATION_SILU));
    MXQ_REFUSED(small.run(options), MXQ_STATUS_SHAPE_MISMATCH, "out's columns", "in's shape");
    ok(mxq_activate_options_set_gate_layout(options, MXQ_GATE_LAYOUT_UP_GATE));
    MXQ_REFUSED(small.run(options), invalid, "gate layout", "no gate");
    ok(mxq_activate_options_set_gate_layout(options, MXQ_GATE_LAYOUT_GATE_UP));
    ok(mxq_activate_options_set_clamp(options, 1, 7, 1));
    MXQ_REFUSED(small.run(options), invalid, "clamp", "SWIGLU_CLAMPED");

    const auto plain = make_options();
    const std::vector<float> values(64);
    ok(mxq_activate_options_set_bias(plain, MXQ_FORMAT_F32, values.data(), 63 * 4));
    MXQ_REFUSED(small.run(plain), MXQ_STATUS_BUFFER_TOO_SMALL, "options.bias holds 252 bytes", "256");
    ok(mxq_activate_options_set_bias(plain, MXQ_FORMAT_F32, values.data(), 64 * 4));
    ok(mxq_activate_options_set_row_weights(plain, MXQ_FORMAT_BF16, values.data(), 7));
    MXQ_REFUSED(small.run(plain), MXQ_STATUS_BUFFER_TOO_SMALL, "options.row_weights holds 7 bytes", "8");
    ok(mxq_activate_options_set_row_weights(plain, MXQ_FORMAT_BF16, small.to.data(), 8));
    MXQ_REFUSED(small.run(plain), invalid, "overlap");
    ok(mxq_activate_options_set_row_weights(plain, 0, nullptr, 0));
    testing::QuantizeOptions quantize;
    ok(mxq_quantize_options_create(quantize.out()));
    ok(mxq_quantize_options_set_nonfinite(quantize, MXQ_NONFINITE_SATURATE));
    ok(mxq_activate_options_set_quantize_options(plain, quantize));
    MXQ_REFUSED(small.run(plain), invalid, "non-finite policy", "plain numbers");
    ok(mxq_activate_options_set_quantize_options(plain, nullptr));
    const int32_t ends[] = {4};
    ok(mxq_tensor_set_groups(small.in, ends, 4, MXQ_TYPE_INT32, 1));
    ok(mxq_tensor_set_group_alignment(small.in, 32, 0));
    MXQ_REFUSED(small.run(plain), MXQ_STATUS_UNSUPPORTED, "in has groups padded to 32 rows", "mxq_unpad_groups");
    CHECK(std::count(small.to.begin(), small.to.end(), 0xCCCC) == 4 * 32);
    ok(mxq_tensor_set_group_alignment(small.in, 1, 0));
    ok(small.run(plain));
    CHECK(std::count(small.to.begin(), small.to.end(), 0) == 4 * 32);
}
