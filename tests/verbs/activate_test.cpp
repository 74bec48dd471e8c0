// mxq_activate gives the oracle's bytes: every activation, layout, type and format, with bias, weights of rows and groups.
#include "activation.h"

using namespace activation;

namespace {

void run(testing::Device& device, mxq_activate_options* options, mxq_tensor* in, mxq_tensor* out) {
    testing::Plan plan;
    ok(mxq_activate_query(device.context, options, in, out, plan.out()));
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    ok(mxq_activate(device.context, options, in, out, workspace.bytes() ? workspace.data() : nullptr, workspace.bytes(), nullptr));
    workspace.read();
}

// Returns "" if the plain bytes are the oracle's, and those of rows in no group still poison.
std::string compare_plain(const Case& c, const Buffer& data, const oracle::Floats& values) {
    const int64_t element = oracle::plain_bytes(c.format), row_bytes = c.dims.cols * element;
    oracle::Bytes expected = oracle::store(c.format, values);
    for (int64_t row = 0; row < c.rows(); ++row)
        if (c.bias_of(row) < 0)
            std::fill_n(expected.begin() + row * row_bytes, row_bytes, testing::poison);
    return testing::difference(data.read(), testing::spread_rows(expected, c.rows(), row_bytes, c.gap * element));
}

// Returns "" if the device writes the oracle's bytes, else a text that says what differs.
std::string compare(testing::Device& device, const Case& c, const Inputs& inputs) {
    const int64_t in_bytes = oracle::plain_bytes(c.input);
    testing::Dims in_dims = c.dims;
    in_dims.cols = c.columns();
    auto in = testing::make_tensor(c.input, in_dims);
    auto out = c.format ? testing::make_tensor(c.format, c.dims) : testing::make_tensor(c.spec, c.dims, c.swizzled);
    testing::DeviceEnds ends(device, c.groups.ends);
    if (c.grouped) ends.set(out, c.groups);
    Buffer data(device, testing::spread_rows(inputs.in, c.rows(), c.columns() * in_bytes, c.gap * in_bytes),
                c.offset * static_cast<size_t>(in_bytes));
    ok(mxq_tensor_set_row_stride(in, c.columns() + c.gap));
    ok(mxq_tensor_set_const_data(in, data.data(), data.bytes()));
    Buffer bias(device, inputs.bias), weights(device, inputs.weights);
    const oracle::Floats values = values_of(c, inputs);
    testing::Options quantize(device, c.format ? testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32) : c.spec);
    const ActivateOptions options = options_of(c, quantize, bias, weights);
    if (c.format) {
        const int64_t element = oracle::plain_bytes(c.format);
        const oracle::Bytes room(static_cast<size_t>(c.rows() * c.dims.cols * element), testing::poison);
        Buffer target(device, testing::spread_rows(room, c.rows(), c.dims.cols * element, c.gap * element),
                      c.offset * static_cast<size_t>(element));
        ok(mxq_tensor_set_row_stride(out, c.dims.cols + c.gap));
        ok(mxq_tensor_set_data(out, target.data(), target.bytes()));
        run(device, options, in, out);
        return compare_plain(c, target, values);
    }
    std::vector<std::pair<int32_t, testing::OutputPart>> parts;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (part == MXQ_PART_ROWWISE ? c.rowwise : c.columnwise)
            parts.emplace_back(part, testing::OutputPart(device, out, c.spec, part, testing::is_nvfp4(c.spec), c.offset));
    run(device, options, in, out);
    for (auto& [part, buffers] : parts) {
        const auto expected =
            c.grouped ? oracle::quantize_groups(c.spec, values, c.dims.rows, c.dims.cols, c.groups, part, c.swizzled)
                      : testing::all_written(oracle::quantize(c.spec, values, c.dims.shape(), part, c.swizzled));
        if (auto text = buffers.compare(expected, c.spec); !text.empty())
            return std::string(part == MXQ_PART_ROWWISE ? "rowwise " : "columnwise ") + text;
    }
    return "";
}

void check(testing::Device& device, const Case& c, cases::Values values, uint64_t seed) {
    if (auto text = compare(device, c, Inputs(c, values, seed)); !text.empty()) FAIL(c.describe() << ": " << text);
}

}  // namespace

MXQ_EACH_DEVICE("activate: plain results of every activation, layout and type") {
    int64_t ran = 0;
    for (int32_t format : cases::plain_formats)
        for (int64_t rows : {0, 1, 9, 131})
            for (int64_t cols : {0, 1, 8, 67, 256, 1032})
                for (int64_t turn = 0; turn < 6; ++turn, ++ran) {
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    const int64_t experts = random.below(3);
                    Case c;
                    c.format = format;
                    c.dims = {experts ? std::optional(experts) : std::nullopt, rows, cols};
                    draw(c, random);
                    if (!rows || !cols) c.gap = 0;
                    if (c.grouped) c.groups = {testing::draw_ends(random, rows, random.below(5))};
                    check(device, c, cases::all_values[random.below(4)], static_cast<uint64_t>(ran));
                }
    CHECK(ran == 3 * 4 * 6 * 6);
}

MXQ_EACH_DEVICE("activate: every format and scaling, each part and both") {
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int32_t parts = 1; parts <= 3; ++parts)
            for (int64_t turn = 0; turn < 6; ++turn, ++ran) {
                cases::Random random(static_cast<uint64_t>(ran) + 77);
                const int64_t experts = random.below(3), sizes[] = {16, 32, 67, 128, 160, 257};
                Case c;
                c.spec = spec;
                c.dims = {experts ? std::optional(experts) : std::nullopt, sizes[random.below(6)], sizes[random.below(6)]};
                draw(c, random);
                c.rowwise = parts & 1, c.columnwise = parts & 2;
                if (c.grouped) c.groups = testing::draw_groups(random, spec, c.dims.rows, 1 + random.below(4));
                const int64_t contraction = c.grouped ? c.groups.alignment(c.spec, MXQ_PART_COLUMNWISE) : c.dims.rows;
                testing::draw_options(c.spec, random, c.dims.cols, contraction);
                if (!c.rowwise) c.spec.hadamard &= MXQ_PART_COLUMNWISE;
                if (!c.columnwise) c.spec.hadamard &= MXQ_PART_ROWWISE;
                c.swizzled = random.below(2) && testing::can_swizzle(c.spec, c.grouped && c.columnwise);
                if (c.spec.scaling == MXQ_SCALING_ROW || c.spec.scaling == MXQ_SCALING_TENSOR) c.swizzled = false;
                check(device, c, random.below(3) ? cases::Values::normal : cases::Values::specials, static_cast<uint64_t>(ran));
            }
    CHECK(ran == static_cast<int64_t>(testing::all_formats().size()) * 18);
}

// Whole vectors of BF16, which kernels of their own take.
MXQ_EACH_DEVICE("activate: whole vectors of BF16 to 8 bits") {
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats()) {
        const bool has_8_bits = spec.format == MXQ_FORMAT_MXFP8_E4M3 || spec.format == MXQ_FORMAT_MXFP8_E5M2 ||
                                spec.format == MXQ_FORMAT_FP8_E4M3 || spec.format == MXQ_FORMAT_FP8_E5M2;
        if (!has_8_bits || spec.scaling == MXQ_SCALING_ROW || spec.scaling == MXQ_SCALING_TENSOR) continue;
        for (int64_t rows : {1, 200})
            for (int64_t cols : {32, 768, 1032})
                for (int32_t parts : {MXQ_PART_ROWWISE, MXQ_PART_BOTH}) {
                    cases::Random random(static_cast<uint64_t>(++ran) + 500);
                    Case c;
                    c.spec = spec, c.dims = {std::nullopt, rows, cols};
                    draw(c, random);
                    c.rowwise = true, c.columnwise = parts == MXQ_PART_BOTH;
                    c.input = MXQ_FORMAT_BF16, c.gap = c.offset = 0;
                    c.activation.kind = 1 + c.activation.kind % 4, c.activation.layout = static_cast<int32_t>(1 + random.below(4));
                    if (c.grouped) c.groups = {testing::draw_ends(random, rows, 1 + random.below(4))};
                    if (c.grouped && c.columnwise) c.groups = testing::draw_groups(random, spec, rows, 1 + random.below(4));
                    check(device, c, cases::Values::normal, static_cast<uint64_t>(ran));
                }
    }
    CHECK(ran > 90);
}

MXQ_EACH_DEVICE("activate: a NaN stays in its row") {
    for (int32_t kind = MXQ_ACTIVATION_SWIGLU; kind <= MXQ_ACTIVATION_SQUARED_RELU; ++kind) {
        Case c;
        c.activation.kind = kind, c.input = c.format = MXQ_FORMAT_F32, c.dims = {std::nullopt, 3, 40};
        Inputs inputs(c, cases::Values::normal, 5);
        const uint32_t nan = 0x7FC00000;
        std::memcpy(&inputs.in[static_cast<size_t>(c.columns() * 4)], &nan, 4);
        const auto values = values_of(c, inputs);
        CHECK(std::count_if(values.begin(), values.end(), [](float v) { return std::isnan(v); }) == 1);
        CHECK(compare(device, c, inputs) == "");
    }
}

TEST_CASE("activate: the error of each activation", "[cpu]") {
    // In units of 2^-24 of the result and of 2^-24 of the gate: an activation near its zero keeps no relative precision.
    cases::Random random(3);
    int64_t ran = 0;
    for (int32_t kind = MXQ_ACTIVATION_SWIGLU; kind <= MXQ_ACTIVATION_SQUARED_RELU; ++kind)
        for (int64_t i = 0; i < 200000; ++i, ++ran) {
            oracle::ActivationSpec spec;
            spec.kind = kind;
            const float gate = random.normal() * 8, up = random.normal() * 8;
            const double right = oracle::exact_activation(spec, gate, up), got = oracle::activate(spec, gate, up);
            const double scale = std::fabs(right) + std::fabs(static_cast<double>(gate)) * (spec.gated() ? std::fabs(up) + 1 : 1) * 0x1p-3;
            if (!(std::fabs(got - right) <= 8 * 0x1p-24 * scale + 0x1p-148))
                FAIL("activation " << kind << " of " << gate << ", " << up << " is " << got << ", expected " << right);
        }
    CHECK(ran == 8 * 200000);
}
