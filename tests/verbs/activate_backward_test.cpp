// mxq_activate_backward gives the oracle's bytes: every activation with a gate, layout, type and format, and the gradients of
// biases and of weights of rows.
#include "activation.h"

using namespace activation;

namespace {

// Numbers that are NaN have one bit pattern in memory.
oracle::Bytes stored(const oracle::Floats& numbers) { return oracle::store(MXQ_FORMAT_F32, numbers); }

// Returns bytes of rows, of which those in no group are poison.
oracle::Bytes of_written_rows(const Case& c, oracle::Bytes bytes, int64_t row_bytes) {
    for (int64_t row = 0; row < c.rows(); ++row)
        if (c.bias_of(row) < 0) std::fill_n(bytes.begin() + row * row_bytes, row_bytes, testing::poison);
    return bytes;
}

void run(testing::Device& device, mxq_activate_options* options, mxq_tensor* gradient, mxq_tensor* in, mxq_tensor* out) {
    testing::Plan plan;
    ok(mxq_activate_backward_query(device.context, options, gradient, in, out, plan.out()));
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    ok(mxq_activate_backward(device.context, options, gradient, in, out, workspace.bytes() ? workspace.data() : nullptr,
                             workspace.bytes(), nullptr));
    workspace.read();
}

// A plain tensor of the call's rows, with gaps between them.
struct Rows {
    testing::Tensor tensor;
    Buffer data;
    Rows(testing::Device& device, const Case& c, int32_t format, int64_t cols, const oracle::Bytes& dense)
        : tensor(testing::make_tensor(format, {c.dims.experts, c.dims.rows, cols})),
          data(device, testing::spread_rows(dense, c.rows(), cols * oracle::plain_bytes(format), c.gap * oracle::plain_bytes(format)),
               c.offset * static_cast<size_t>(oracle::plain_bytes(format))) {
        ok(mxq_tensor_set_row_stride(tensor, cols + c.gap));
        ok(mxq_tensor_set_data(tensor, data.data(), data.bytes()));
    }
};

std::string compare_sums(const Case& c, const Gradients& expected, const Buffer& bias, const Buffer& weights) {
    if (auto text = testing::difference(bias.read(), stored(expected.bias)); !text.empty()) return "bias: " + text;
    const auto text = testing::difference(weights.read(), of_written_rows(c, stored(expected.weights), 4));
    return text.empty() ? "" : "weights: " + text;
}

// Returns "" if the device writes the oracle's bytes, else a text that says what differs.
std::string compare(testing::Device& device, const Case& c, const Inputs& inputs) {
    const Gradients expected = gradients_of(c, inputs);
    const Rows in(device, c, c.input, c.columns(), inputs.in), gradient(device, c, c.gradient, c.dims.cols, inputs.gradient);
    Buffer bias(device, inputs.bias), weights(device, inputs.weights);
    Buffer of_bias(device, static_cast<size_t>(c.biases() * c.columns() * 4)), of_weights(device, static_cast<size_t>(c.rows() * 4));
    testing::Options quantize(device, c.format ? testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32) : c.spec);
    const ActivateOptions options = options_of(c, quantize, bias, weights);
    ok(mxq_activate_options_set_bias_gradient(options, static_cast<float*>(of_bias.bytes() ? of_bias.data() : nullptr), of_bias.bytes()));
    ok(mxq_activate_options_set_row_weight_gradient(options, static_cast<float*>(of_weights.bytes() ? of_weights.data() : nullptr), of_weights.bytes()));
    testing::DeviceEnds ends(device, c.groups.ends);
    if (c.format) {
        const int64_t row_bytes = c.columns() * oracle::plain_bytes(c.format);
        const Rows out(device, c, c.format, c.columns(), oracle::Bytes(static_cast<size_t>(c.rows() * row_bytes), testing::poison));
        if (c.grouped) ends.set(gradient.tensor, {c.groups.ends});
        run(device, options, gradient.tensor, in.tensor, out.tensor);
        const auto bytes = of_written_rows(c, oracle::store(c.format, expected.values), row_bytes);
        const auto text = testing::difference(out.data.read(), testing::spread_rows(bytes, c.rows(), row_bytes, c.gap * oracle::plain_bytes(c.format)));
        return text.empty() ? compare_sums(c, expected, of_bias, of_weights) : text;
    }
    const testing::Dims dims{c.dims.experts, c.dims.rows, c.columns()};
    auto out = testing::make_tensor(c.spec, dims, c.swizzled);
    if (c.grouped) ends.set(out, c.groups);
    std::vector<std::pair<int32_t, testing::OutputPart>> parts;
    for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE})
        if (part == MXQ_PART_ROWWISE ? c.rowwise : c.columnwise)
            parts.emplace_back(part, testing::OutputPart(device, out, c.spec, part, testing::is_nvfp4(c.spec), c.offset));
    run(device, options, gradient.tensor, in.tensor, out);
    for (auto& [part, buffers] : parts) {
        const auto right = c.grouped ? oracle::quantize_groups(c.spec, expected.values, dims.rows, dims.cols, c.groups, part, c.swizzled)
                                     : testing::all_written(oracle::quantize(c.spec, expected.values, dims.shape(), part, c.swizzled));
        if (auto text = buffers.compare(right, c.spec); !text.empty())
            return std::string(part == MXQ_PART_ROWWISE ? "rowwise " : "columnwise ") + text;
    }
    return compare_sums(c, expected, of_bias, of_weights);
}

void check(testing::Device& device, const Case& c, cases::Values values, uint64_t seed) {
    if (auto text = compare(device, c, Inputs(c, values, seed)); !text.empty()) FAIL(c.describe() << ": " << text);
}

// Draws all of a case but its formats and shape.
void draw_backward(Case& c, cases::Random& random) {
    draw(c, random);
    c.activation.kind = 1 + c.activation.kind % 4;
    c.activation.layout = static_cast<int32_t>(1 + random.below(4));
    c.gradient = cases::plain_formats[random.below(3)];
}

}  // namespace

MXQ_EACH_DEVICE("activate backward: plain gradients of every activation, layout and type") {
    int64_t ran = 0;
    for (int32_t format : cases::plain_formats)
        for (int64_t rows : {0, 1, 9, 131, 300})
            for (int64_t cols : {0, 1, 8, 67, 256, 1032})
                for (int64_t turn = 0; turn < 4; ++turn, ++ran) {
                    cases::Random random(static_cast<uint64_t>(ran) + 1);
                    const int64_t experts = random.below(3);
                    Case c;
                    c.format = format;
                    c.dims = {experts ? std::optional(experts) : std::nullopt, rows, cols};
                    draw_backward(c, random);
                    if (!rows || !cols) c.gap = 0;
                    if (c.grouped) c.groups = {testing::draw_ends(random, rows, random.below(5))};
                    check(device, c, cases::all_values[random.below(4)], static_cast<uint64_t>(ran));
                }
    CHECK(ran == 3 * 5 * 6 * 4);
}

MXQ_EACH_DEVICE("activate backward: every format and scaling, each part and both") {
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats())
        for (int32_t parts = 1; parts <= 3; ++parts)
            for (int64_t turn = 0; turn < 3; ++turn, ++ran) {
                cases::Random random(static_cast<uint64_t>(ran) + 77);
                const int64_t experts = random.below(3), sizes[] = {16, 32, 67, 128, 160, 257};
                Case c;
                c.spec = spec;
                c.dims = {experts ? std::optional(experts) : std::nullopt, sizes[random.below(6)], sizes[random.below(6)]};
                draw_backward(c, random);
                c.rowwise = parts & 1, c.columnwise = parts & 2;
                if (c.grouped) c.groups = testing::draw_groups(random, spec, c.dims.rows, 1 + random.below(4));
                const int64_t contraction = c.grouped ? c.groups.alignment(c.spec, MXQ_PART_COLUMNWISE) : c.dims.rows;
                testing::draw_options(c.spec, random, c.columns(), contraction);
                if (!c.rowwise) c.spec.hadamard &= MXQ_PART_COLUMNWISE;
                if (!c.columnwise) c.spec.hadamard &= MXQ_PART_ROWWISE;
                c.swizzled = random.below(2) && testing::can_swizzle(c.spec, c.grouped && c.columnwise);
                if (c.spec.scaling == MXQ_SCALING_ROW || c.spec.scaling == MXQ_SCALING_TENSOR) c.swizzled = false;
                check(device, c, random.below(3) ? cases::Values::normal : cases::Values::specials, static_cast<uint64_t>(ran));
            }
    CHECK(ran == static_cast<int64_t>(testing::all_formats().size()) * 9);
}

// Whole vectors of BF16, which kernels of their own take.
MXQ_EACH_DEVICE("activate backward: whole vectors of BF16 to 8 bits") {
    int64_t ran = 0;
    for (const oracle::Spec& spec : testing::all_formats()) {
        const bool has_8_bits = spec.format == MXQ_FORMAT_MXFP8_E4M3 || spec.format == MXQ_FORMAT_MXFP8_E5M2 ||
                                spec.format == MXQ_FORMAT_FP8_E4M3 || spec.format == MXQ_FORMAT_FP8_E5M2;
        if (!has_8_bits || spec.scaling == MXQ_SCALING_ROW || spec.scaling == MXQ_SCALING_TENSOR) continue;
        for (int64_t rows : {1, 200})
            for (int64_t cols : {128, 384})
                for (int32_t parts : {MXQ_PART_ROWWISE, MXQ_PART_BOTH}) {
                    cases::Random random(static_cast<uint64_t>(++ran) + 500);
                    Case c;
                    c.spec = spec, c.dims = {std::nullopt, rows, cols};
                    draw_backward(c, random);
                    c.rowwise = true, c.columnwise = parts == MXQ_PART_BOTH;
                    c.input = MXQ_FORMAT_BF16, c.gap = c.offset = 0;
                    c.gradient = MXQ_FORMAT_BF16, c.activation.layout = static_cast<int32_t>(1 + random.below(2));
                    if (c.grouped) c.groups = {testing::draw_ends(random, rows, 1 + random.below(4))};
                    if (c.grouped && c.columnwise) c.groups = testing::draw_groups(random, spec, rows, 1 + random.below(4));
                    check(device, c, cases::Values::normal, static_cast<uint64_t>(ran));
                }
    }
    CHECK(ran > 90);
}

TEST_CASE("activate backward: gradients are those of the activation, by differences", "[cpu]") {
    cases::Random random(4);
    int64_t ran = 0;
    for (int32_t kind = MXQ_ACTIVATION_SWIGLU; kind <= MXQ_ACTIVATION_SWIGLU_CLAMPED; ++kind)
        for (int64_t i = 0; i < 20000; ++i) {
            oracle::ActivationSpec spec;
            spec.kind = kind;
            const double gate = static_cast<double>(random.normal()) * 4, up = static_cast<double>(random.normal()) * 4, step = 0x1p-20;
            if (std::fabs(gate - 7) < 0.01 || std::fabs(std::fabs(up) - 7) < 0.01) continue;  // where it is clamped
            const auto at = [&](double g, double u) { return oracle::exact_activation(spec, g, u); };
            const double of_gate = (at(gate + step, up) - at(gate - step, up)) / (2 * step);
            const double of_up = (at(gate, up + step) - at(gate, up - step)) / (2 * step);
            const auto found = oracle::gradients(spec, static_cast<float>(gate), static_cast<float>(up), 1);
            if (!(std::fabs(found.gate - of_gate) < 1e-5 * (1 + std::fabs(up)) && std::fabs(found.up - of_up) < 1e-5 * (1 + std::fabs(gate))))
                FAIL("activation " << kind << " at " << gate << ", " << up << ": " << found.gate << ", " << found.up << ", expected "
                                   << of_gate << ", " << of_up);
            ++ran;
        }
    CHECK(ran > 79000);
}
