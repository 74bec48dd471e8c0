// mxq_expert_layer has the bits of the program of single verbs, which its comment in mxq.h lists.
#include "../abi/says.h"
#include "routing.h"

#include <cmath>

using testing::Buffer;
using testing::Bytes;
using testing::DeviceRouting;
using testing::Dims;
using testing::Draw;
using testing::ok;

namespace {

using LayerOptions = testing::Handle<mxq_expert_layer_options, mxq_expert_layer_options_destroy>;
using ActivateOptions = testing::Handle<mxq_activate_options, mxq_activate_options_destroy>;

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;

struct Case {
    int64_t tokens = 13;
    int32_t choices = 2, experts = 4;
    int64_t width = 64, inner = 96;  // K and I
    int32_t x = MXQ_FORMAT_BF16, out = MXQ_FORMAT_BF16;
    oracle::Spec weights = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    oracle::Spec rows = testing::spec_of(0, 0);  // format 0: plain
    int32_t inner_format = MXQ_FORMAT_BF16;
    int32_t activation = MXQ_ACTIVATION_SWIGLU, layout = MXQ_GATE_LAYOUT_GATE_UP;
    bool activation_bias = false;
    int32_t id_type = MXQ_TYPE_INT32;
    bool computed = false;  // the layer gets a routing that was computed before
    bool biases = false, residual = false, weights_first = false, weighted = true;
    Draw draw = Draw::uniform;

    bool gated() const { return activation <= MXQ_ACTIVATION_SWIGLU_CLAMPED; }
    int64_t columns() const { return gated() ? 2 * inner : inner; }
    bool is_plain_rows() const { return rows.format == 0; }
};

// Memory of one device for a tensor of any format, filled with values or poison.
class Stored {
public:
    // Values, quantized where the format is.
    Stored(testing::Device& device, const oracle::Spec& spec, Dims dims, uint64_t seed) {
        const auto values = cases::values(cases::Values::normal, dims.shape().count(), seed);
        if (spec.format <= MXQ_FORMAT_BF16) {
            tensor = testing::make_tensor(spec.format, dims);
            data_ = std::make_unique<Buffer>(device, oracle::store(spec.format, values));
            ok(mxq_tensor_set_const_data(tensor, data_->data(), data_->bytes()));
            return;
        }
        tensor = testing::make_tensor(spec, dims, false);
        part_ = std::make_unique<testing::InputPart>(device, tensor, spec, MXQ_PART_ROWWISE,
                                                     oracle::quantize(spec, values, dims.shape(), MXQ_PART_ROWWISE, false));
    }
    // Poison, for what a verb writes.
    Stored(testing::Device& device, testing::Tensor made) : tensor(std::move(made)) {
        uint64_t bytes = 0;
        ok(mxq_tensor_total_bytes(tensor, MXQ_PART_ROWWISE, &bytes));
        data_ = std::make_unique<Buffer>(device, static_cast<size_t>(bytes));
        ok(mxq_tensor_set_memory(tensor, MXQ_PART_ROWWISE, bytes ? data_->data() : nullptr, data_->bytes()));
    }
    Bytes read() const { return data_->read(); }

    testing::Tensor tensor;

private:
    std::unique_ptr<Buffer> data_;
    std::unique_ptr<testing::InputPart> part_;
};

// The inputs of a layer on a device.
struct Inputs {
    Inputs(testing::Device& device, const Case& c, const testing::Choices& choices)
        : routing(device, choices, c.id_type),
          x(device, testing::spec_of(c.x, MXQ_SCALING_NONE), {std::nullopt, c.tokens, c.width}, 1),
          gate_up(device, c.weights, {c.experts, c.columns(), c.width}, 2),
          down(device, c.weights, {c.experts, c.width, c.inner}, 3),
          residual(device, testing::spec_of(MXQ_FORMAT_F32, MXQ_SCALING_NONE), {std::nullopt, c.tokens, c.width}, 4),
          first_bias(device, oracle::store(MXQ_FORMAT_F32, cases::values(cases::Values::normal, c.experts * c.columns(), 5))),
          second_bias(device, oracle::store(MXQ_FORMAT_BF16, cases::values(cases::Values::normal, c.experts * c.width, 6))),
          third_bias(device, oracle::store(MXQ_FORMAT_F16, cases::values(cases::Values::normal, c.experts * c.columns(), 7))) {}
    DeviceRouting routing;
    Stored x, gate_up, down, residual;
    Buffer first_bias, second_bias, third_bias;
};

ActivateOptions activate_options(const Case& c, const Inputs* in = nullptr) {
    ActivateOptions options;
    ok(mxq_activate_options_create(options.out()));
    ok(mxq_activate_options_set_activation(options, c.activation));
    if (c.gated()) ok(mxq_activate_options_set_gate_layout(options, c.layout));
    if (in && c.activation_bias)
        ok(mxq_activate_options_set_bias(options, MXQ_FORMAT_F16, in->third_bias.data(), in->third_bias.bytes()));
    return options;
}

LayerOptions layer_options(testing::Device& device, const Case& c, const Inputs& in) {
    LayerOptions options;
    ok(mxq_expert_layer_options_create(options.out()));
    ok(mxq_expert_layer_options_set_activate_options(options, activate_options(c, &in)));
    if (!c.is_plain_rows()) {
        ok(mxq_expert_layer_options_set_row_format(options, c.rows.format, c.rows.scaling));
        ok(mxq_expert_layer_options_set_quantize_options(options, testing::Options(device, c.rows)));
    }
    ok(mxq_expert_layer_options_set_inner_format(options, c.inner_format));
    if (c.biases) {
        ok(mxq_expert_layer_options_set_gate_up_bias(options, MXQ_FORMAT_F32, in.first_bias.data(), in.first_bias.bytes()));
        ok(mxq_expert_layer_options_set_down_bias(options, MXQ_FORMAT_BF16, in.second_bias.data(), in.second_bias.bytes()));
    }
    if (c.residual) ok(mxq_expert_layer_options_set_residual(options, in.residual.tensor));
    ok(mxq_expert_layer_options_set_weights_first(options, c.weights_first));
    return options;
}

// Runs a verb with the workspace that its query asks for.
template <class Ask, class Run>
std::string with_workspace(testing::Device& device, Ask ask, Run run) {
    testing::Plan plan;
    ok(ask(plan.out()));
    Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    ok(run(workspace.bytes() ? workspace.data() : nullptr, workspace.bytes()));
    workspace.read();
    return mxq_plan_implementation(plan);
}

Stored matrix_of(testing::Device& device, const oracle::Spec& spec, int64_t rows, int64_t cols, const DeviceRouting& routing) {
    auto tensor = spec.format <= MXQ_FORMAT_BF16 ? testing::make_tensor(spec.format, {std::nullopt, rows, cols})
                                                 : testing::make_tensor(spec, {std::nullopt, rows, cols}, false);
    ok(mxq_tensor_set_routing_groups(tensor, routing.handle));
    return {device, std::move(tensor)};
}

void multiply(testing::Device& device, const mxq_gemm_options* options, mxq_tensor* a, mxq_tensor* b, mxq_tensor* d) {
    with_workspace(device, [&](mxq_plan** plan) { return mxq_grouped_gemm_query(device.context, options, a, b, d, plan); },
                   [&](void* memory, uint64_t bytes) { return mxq_grouped_gemm(device.context, options, a, b, d, memory, bytes, nullptr); });
}

testing::GemmOptions product_options(bool biased, int32_t format, const Buffer& bias, const char* implementation) {
    auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, implementation);
    if (biased) ok(mxq_gemm_options_set_bias(options, format, bias.data(), bias.bytes()));
    return options;
}

// What a layer wrote, and what its query named.
struct Result {
    Bytes out;
    testing::Routed routed;
    std::string names;
};

// Returns what a query names where the steps of a layer are fused on a CUDA device.
std::string fused(bool computed) {
    return std::string("mma_bf16_rows_activate, mma_bf16_rows_routed, ") + (computed ? "combine" : "combine_choices");
}

// Returns a routing with the arrays and the weights of one that was routed.
testing::RoutingHandle computed_as(const DeviceRouting& from) {
    testing::RoutingHandle out;
    const testing::Choices& c = from.choices;
    ok(mxq_routing_create(c.tokens, c.choices, c.experts, out.out()));
    const int32_t *ends = nullptr, *tokens = nullptr, *rows = nullptr;
    const float* row_weights = nullptr;
    const void* weights = nullptr;
    uint64_t end_bytes = 0, bytes = 0, weight_bytes = 0;
    int32_t format = 0;
    ok(mxq_routing_get_ends(from.handle, &ends, &end_bytes));
    ok(mxq_routing_get_row_tokens(from.handle, &tokens, &bytes));
    ok(mxq_routing_get_choice_rows(from.handle, &rows, &bytes));
    ok(mxq_routing_get_row_weights(from.handle, &row_weights, &bytes));
    ok(mxq_routing_set_computed(out, ends, end_bytes, tokens, bytes, rows, bytes, row_weights, bytes));
    ok(mxq_routing_get_weights(from.handle, &format, &weights, &weight_bytes));
    ok(mxq_routing_set_weights(out, format, weights, weight_bytes));
    return out;
}

// Returns the implementation of both products whose bits a layer has; NULL: the usual one.
const char* product_of(const std::string& names) {
    return names.find("mma_bf16_rows_activate") == names.npos ? nullptr : "mma_bf16_rows";
}

// The program of single verbs.
Result by_verbs(testing::Device& device, const Case& c, const testing::Choices& choices, const Inputs& in, const char* product) {
    mxq_context* const context = device.context;
    const int64_t rows = choices.rows();
    ok(in.routing.route());
    auto tokens = testing::make_tensor(c.x, {std::nullopt, rows, c.width});
    ok(mxq_tensor_set_routing_rows(tokens, in.routing.handle));
    void* data = nullptr;
    uint64_t bytes = 0;
    ok(mxq_tensor_get_data(in.x.tensor, &data, &bytes, nullptr));
    ok(mxq_tensor_set_const_data(tokens, data, bytes));

    const auto inner = testing::spec_of(c.inner_format, MXQ_SCALING_NONE);
    const auto& second_rows = c.is_plain_rows() ? inner : c.rows;
    const Stored quantized = matrix_of(device, c.is_plain_rows() ? inner : c.rows, rows, c.width, in.routing),
                 hidden = matrix_of(device, inner, rows, c.columns(), in.routing),
                 activated = matrix_of(device, second_rows, rows, c.inner, in.routing),
                 products = matrix_of(device, inner, rows, c.width, in.routing);
    const testing::Options quantize_options(device, c.rows);
    if (!c.is_plain_rows()) testing::run(device, mxq_quantize, mxq_quantize_query, quantize_options, tokens, quantized.tensor);
    multiply(device, product_options(c.biases, MXQ_FORMAT_F32, in.first_bias, product), c.is_plain_rows() ? tokens : quantized.tensor,
             in.gate_up.tensor, hidden.tensor);
    auto options = activate_options(c, &in);
    if (!c.is_plain_rows()) ok(mxq_activate_options_set_quantize_options(options, quantize_options));
    const float* weights = nullptr;
    ok(mxq_routing_get_row_weights(in.routing.handle, &weights, &bytes));
    if (c.weights_first && c.weighted) ok(mxq_activate_options_set_row_weights(options, MXQ_FORMAT_F32, weights, bytes));
    with_workspace(device, [&](mxq_plan** plan) { return mxq_activate_query(context, options, hidden.tensor, activated.tensor, plan); },
                   [&](void* memory, uint64_t size) { return mxq_activate(context, options, hidden.tensor, activated.tensor, memory, size, nullptr); });
    multiply(device, product_options(c.biases, MXQ_FORMAT_BF16, in.second_bias, product), activated.tensor, in.down.tensor, products.tensor);
    const Stored out(device, testing::make_tensor(c.out, {std::nullopt, c.tokens, c.width}));
    if (c.weights_first) ok(mxq_routing_set_weights(in.routing.handle, 0, nullptr, 0));
    ok(mxq_combine(context, nullptr, in.routing.handle, products.tensor,
                   c.residual ? static_cast<mxq_tensor*>(in.residual.tensor) : nullptr, out.tensor, nullptr, 0, nullptr));
    return {out.read(), in.routing.read(), ""};
}

Result by_one_call(testing::Device& device, const Case& c, const Inputs& in) {
    const Stored out(device, testing::make_tensor(c.out, {std::nullopt, c.tokens, c.width}));
    const LayerOptions options = layer_options(device, c, in);
    if (c.computed) ok(in.routing.route());
    const testing::RoutingHandle computed = c.computed ? computed_as(in.routing) : testing::RoutingHandle();
    mxq_routing* const routing = c.computed ? computed : in.routing.handle;
    const auto ask = [&](mxq_plan** plan) {
        return mxq_expert_layer_query(device.context, options, in.x.tensor, routing, in.gate_up.tensor, in.down.tensor, out.tensor, plan);
    };
    const auto run = [&](void* memory, uint64_t bytes) {
        return mxq_expert_layer(device.context, options, in.x.tensor, routing, in.gate_up.tensor, in.down.tensor, out.tensor, memory, bytes, nullptr);
    };
    const std::string names = with_workspace(device, ask, run);
    const int steps = 4 + !c.computed + !c.is_plain_rows();
    if (device.is_cpu()) CHECK(names == std::string("cpu, cpu, cpu, cpu, cpu, cpu").substr(0, static_cast<size_t>(5 * steps - 2)));
    return {out.read(), in.routing.read(), names};
}

// Returns how a layer differs from its verbs. `names`: what a query names on a CUDA device; "": anything.
std::string check(testing::Device& device, const Case& c, uint64_t seed, const std::string& names = "") {
    auto choices = testing::draw_choices(c.tokens, c.choices, c.experts, c.draw, seed);
    if (!c.weighted) choices.weights.clear();
    const Inputs in(device, c, choices);
    const Result layer = by_one_call(device, c, in), verbs = by_verbs(device, c, choices, in, product_of(layer.names));
    if (!(layer.routed == testing::expected_routing(choices))) return "the routing differs; " + layer.names;
    if (!names.empty() && !device.is_cpu() && layer.names != names) return "found " + layer.names + ", expected " + names;
    const std::string text = testing::difference(layer.out, verbs.out);
    return text.empty() ? text : layer.names + ": " + text;
}

std::vector<Case> drawn_cases() {
    const oracle::Spec rows[] = {testing::spec_of(0, 0), testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32)};
    std::vector<Case> out;
    for (const auto& row : rows)
        for (const int32_t activation : {MXQ_ACTIVATION_SWIGLU, MXQ_ACTIVATION_SWIGLU_CLAMPED, MXQ_ACTIVATION_SILU})
            for (const bool weights_first : {false, true})
                for (const Draw draw : {Draw::uniform, Draw::one_expert, Draw::with_dropped}) {
                    Case c;
                    c.rows = row, c.activation = activation, c.weights_first = weights_first, c.draw = draw;
                    const size_t number = out.size();
                    c.biases = number % 2 == 0, c.residual = number % 3 == 0, c.weighted = number % 5 != 4;
                    if (number % 7 == 3) c.inner_format = MXQ_FORMAT_F32, c.x = row.format ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16;
                    if (number % 4 == 1) c.out = MXQ_FORMAT_F32;
                    out.push_back(c);
                }
    return out;
}

}  // namespace

MXQ_EACH_DEVICE("expert layer: the bits of single verbs") {
    int ran = 0;
    for (const Case& drawn : drawn_cases()) {
        Case c = drawn;
        if (!device.is_cpu() && c.is_plain_rows()) c.inner_format = MXQ_FORMAT_BF16;  // CUDA multiplies no F32
        INFO("case " << ran);
        CHECK(check(device, c, static_cast<uint64_t>(ran) + 1) == "");
        ++ran;
    }
    CHECK(ran == 2 * 3 * 2 * 3);
}

MXQ_EACH_DEVICE("expert layer: rows and weights of other formats, no tokens, one choice") {
    Case fp8;
    fp8.width = 128, fp8.inner = 256;
    fp8.weights = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128);
    fp8.rows = testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128);
    fp8.rows.power_of_two = true;
    Case plain;
    plain.weights = testing::spec_of(MXQ_FORMAT_BF16, MXQ_SCALING_NONE);
    plain.choices = 1;
    Case none = plain;
    none.tokens = 0;
    for (const Case& c : {fp8, plain, none}) CHECK(check(device, c, 3) == "");
}

// Few tokens take three launches on a CUDA device. Cases cross the formats of weights with the activations, and draw the rest.
MXQ_EACH_DEVICE("expert layer: few tokens in three launches, the bits of single verbs") {
    const oracle::Spec formats[] = {
        testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16),
        testing::spec_of(MXQ_FORMAT_MXFP8_E4M3, MXQ_SCALING_1X32), testing::spec_of(MXQ_FORMAT_MXFP6_E2M3, MXQ_SCALING_1X32),
        testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_128X128), testing::spec_of(MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_ROW)};
    constexpr struct { int64_t tokens; int32_t choices, experts; } shapes[] = {
        {1, 4, 32}, {1, 1, 1}, {2, 4, 70}, {1, 8, 40}, {8, 1, 3}, {5, 3, 7}, {4, 4, 32}, {2, 8, 40}, {16, 1, 3}};
    constexpr int shapes_of_nvfp4 = 5;
    cases::Random random(60);
    int ran = 0;
    for (const auto& format : formats)
        for (int32_t activation = MXQ_ACTIVATION_SWIGLU; activation <= MXQ_ACTIVATION_SQUARED_RELU; ++activation)
            for (int each = 0; each < 3; ++each) {
                const size_t most = format.format == MXQ_FORMAT_NVFP4 ? shapes_of_nvfp4 : std::size(shapes);
                const auto& shape = shapes[static_cast<size_t>(ran) % most];
                Case c;
                c.weights = format, c.activation = activation;
                c.tokens = shape.tokens, c.choices = shape.choices, c.experts = shape.experts;
                c.layout = MXQ_GATE_LAYOUT_GATE_UP + static_cast<int32_t>(random.below(4));
                const bool wide = format.scaling == MXQ_SCALING_128X128;
                c.width = wide ? 256 : 64 * (1 + random.below(3)), c.inner = wide ? 128 : 64 * (1 + random.below(2));
                c.draw = static_cast<Draw>(random.below(4)), c.id_type = random.below(2) ? MXQ_TYPE_INT64 : MXQ_TYPE_INT32;
                c.biases = random.below(2), c.activation_bias = random.below(2), c.residual = random.below(2);
                c.weights_first = random.below(2), c.weighted = random.below(4) > 0;
                c.computed = c.weighted && random.below(4) == 0;
                if (random.below(3) == 0) c.out = MXQ_FORMAT_F32;
                INFO("case " << ran << ", format " << format.format << ", " << c.tokens << " tokens of " << c.width << ", " << c.inner);
                CHECK(check(device, c, static_cast<uint64_t>(ran) + 1, fused(c.computed)) == "");
                ++ran;
            }
    CHECK(ran == 6 * 8 * 3);
}

// Other tokens of the same experts keep their bits.
MXQ_EACH_DEVICE("expert layer: a token of NaN stays alone") {
    Case c;
    c.tokens = 5, c.choices = 3, c.experts = 4;
    const auto choices = testing::draw_choices(c.tokens, c.choices, c.experts, Draw::uniform, 5);
    const Inputs in(device, c, choices);
    const Bytes before = by_one_call(device, c, in).out;
    const auto row_bytes = static_cast<size_t>(c.width) * 2;
    const Bytes nan(row_bytes, 0xFF);
    void* data = nullptr;
    uint64_t bytes = 0;
    ok(mxq_tensor_get_data(in.x.tensor, &data, &bytes, nullptr));
    constexpr size_t token = 2;
    device.to_device(static_cast<uint8_t*>(data) + token * row_bytes, nan.data(), nan.size());
    const Bytes after = by_one_call(device, c, in).out;
    const auto rows = [&](const Bytes& of, size_t first, size_t end) {
        return Bytes(of.begin() + static_cast<std::ptrdiff_t>(first * row_bytes), of.begin() + static_cast<std::ptrdiff_t>(end * row_bytes));
    };
    const auto last = static_cast<size_t>(c.tokens);
    CHECK(testing::difference(rows(after, 0, token), rows(before, 0, token)) == "");
    CHECK(testing::difference(rows(after, token + 1, last), rows(before, token + 1, last)) == "");
    for (const float value : oracle::load(MXQ_FORMAT_BF16, rows(after, token, token + 1).data(), c.width)) CHECK(std::isnan(value));
}

// What the layer computes is what its rule says, in double, up to what numbers between the steps are rounded to.
TEST_CASE("expert layer: the sum of its experts", "[cpu]") {
    Case c;
    c.x = c.inner_format = c.out = MXQ_FORMAT_F32;
    c.weights = testing::spec_of(MXQ_FORMAT_F32, MXQ_SCALING_NONE);
    c.residual = true;
    const auto choices = testing::draw_choices(c.tokens, c.choices, c.experts, Draw::with_dropped, 8);
    const Bytes bytes = by_one_call(testing::cpu(), c, Inputs(testing::cpu(), c, choices)).out;
    const auto out = oracle::load(MXQ_FORMAT_F32, bytes.data(), c.tokens * c.width);
    const auto values = [](int64_t count, uint64_t seed) { return cases::values(cases::Values::normal, count, seed); };
    const auto x = values(c.tokens * c.width, 1), gate_up = values(c.experts * 2 * c.inner * c.width, 2),
               down = values(c.experts * c.width * c.inner, 3), residual = values(c.tokens * c.width, 4);
    double worst = 0, largest = 0;
    for (int64_t t = 0; t < c.tokens; ++t) {
        std::vector<double> sums(residual.begin() + t * c.width, residual.begin() + (t + 1) * c.width);
        for (int64_t i = t * c.choices; i < (t + 1) * c.choices; ++i) {
            const int64_t e = choices.ids[static_cast<size_t>(i)];
            if (e < 0) continue;
            std::vector<double> h(static_cast<size_t>(2 * c.inner), 0.0);
            for (int64_t n = 0; n < 2 * c.inner; ++n)
                for (int64_t k = 0; k < c.width; ++k)
                    h[static_cast<size_t>(n)] += double(x[static_cast<size_t>(t * c.width + k)]) * double(gate_up[static_cast<size_t>((e * 2 * c.inner + n) * c.width + k)]);
            for (int64_t k = 0; k < c.width; ++k)
                for (int64_t n = 0; n < c.inner; ++n) {
                    const double g = h[static_cast<size_t>(n)], u = h[static_cast<size_t>(c.inner + n)];
                    sums[static_cast<size_t>(k)] += double(choices.weights[static_cast<size_t>(i)]) * (g / (1 + std::exp(-g)) * u) *
                                                    double(down[static_cast<size_t>((e * c.width + k) * c.inner + n)]);
                }
        }
        for (int64_t k = 0; k < c.width; ++k) {
            worst = std::max(worst, std::abs(sums[static_cast<size_t>(k)] - double(out[static_cast<size_t>(t * c.width + k)])));
            largest = std::max(largest, std::abs(sums[static_cast<size_t>(k)]));
        }
    }
    CHECK(largest > 1);
    CHECK(worst < 1e-4 * largest);
}

TEST_CASE("expert layer: refusals, and nothing is written", "[cpu]") {
    const Case c;
    auto choices = testing::draw_choices(c.tokens, c.choices, c.experts, Draw::uniform, 2);
    const Inputs in(testing::cpu(), c, choices);
    const Stored out(testing::cpu(), testing::make_tensor(c.out, {std::nullopt, c.tokens, c.width}));
    const auto run = [&](mxq_tensor* x, mxq_tensor* gate_up, mxq_tensor* down, mxq_tensor* to, const mxq_expert_layer_options* options = nullptr) {
        return mxq_expert_layer(testing::cpu().context, options, x, in.routing.handle, gate_up, down, to, nullptr, 0, nullptr);
    };
    auto other = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, c.tokens + 1, c.width}),
         bare = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, c.tokens, c.width});
    MXQ_REFUSED(run(other, in.gate_up.tensor, in.down.tensor, out.tensor), MXQ_STATUS_SHAPE_MISMATCH, "mxq_expert_layer", "x is 14 x 64", "13 x 64");
    MXQ_REFUSED(run(in.x.tensor, in.down.tensor, in.gate_up.tensor, out.tensor), MXQ_STATUS_SHAPE_MISMATCH, "gate_up is 4 x 64 x 96");
    MXQ_REFUSED(run(in.x.tensor, in.gate_up.tensor, in.gate_up.tensor, out.tensor), MXQ_STATUS_SHAPE_MISMATCH, "down is 4 x 192 x 64", "4 x 64 x 96");
    MXQ_REFUSED(run(in.x.tensor, in.gate_up.tensor, in.down.tensor, other), MXQ_STATUS_SHAPE_MISMATCH, "out is 14 x 64");
    MXQ_REFUSED(run(in.x.tensor, in.gate_up.tensor, nullptr, out.tensor), invalid, "down is NULL");
    // The routing would be written before the last step misses its memory.
    MXQ_REFUSED(run(in.x.tensor, in.gate_up.tensor, in.down.tensor, bare), MXQ_STATUS_MISSING_BUFFER, "combine of the second product", "out.data is NULL");
    MXQ_REFUSED(run(bare, in.gate_up.tensor, in.down.tensor, out.tensor), MXQ_STATUS_MISSING_BUFFER, "rows of x", "a.data is NULL");
    CHECK(in.routing.untouched());

    LayerOptions options;
    ok(mxq_expert_layer_options_create(options.out()));
    float number = 1;
    auto activate = activate_options(c);
    ok(mxq_activate_options_set_row_weights(activate, MXQ_FORMAT_F32, &number, 4));
    MXQ_REFUSED(mxq_expert_layer_options_set_activate_options(options, activate), invalid, "row weights", "set_weights_first");
    MXQ_REFUSED(mxq_expert_layer_options_set_row_format(options, MXQ_FORMAT_BF16, 0), invalid, "format is 3", "quantized");
    MXQ_REFUSED(mxq_expert_layer_options_set_row_format(options, MXQ_FORMAT_MXFP4, MXQ_SCALING_TENSOR), invalid, "scaling is 8", "mxfp4");
    MXQ_REFUSED(mxq_expert_layer_options_set_inner_format(options, MXQ_FORMAT_MXFP4), invalid, "format is 8");
    MXQ_REFUSED(mxq_expert_layer_options_set_weights_first(options, 2), invalid, "first is 2");
    testing::QuantizeOptions quantize;
    ok(mxq_quantize_options_create(quantize.out()));
    ok(mxq_quantize_options_set_compute_amax(quantize, 0));
    MXQ_REFUSED(mxq_expert_layer_options_set_quantize_options(options, quantize), invalid, "an amax that is given");
    ok(mxq_expert_layer_options_set_gate_up_bias(options, MXQ_FORMAT_F32, &number, 4));
    MXQ_REFUSED(run(in.x.tensor, in.gate_up.tensor, in.down.tensor, out.tensor, options), MXQ_STATUS_BUFFER_TOO_SMALL, "options.bias holds 4 bytes", "3072");
    CHECK(in.routing.untouched());
    CHECK(out.read() == Bytes(out.read().size(), testing::poison));
}

TEST_CASE("expert layer: getters of its options give what was set") {
    LayerOptions options;
    ok(mxq_expert_layer_options_create(options.out()));
    int32_t format = -1, scaling = -1, flag = -1, activation = -1;
    const void* bias = &format;
    uint64_t bytes = 1;
    auto activate = activate_options({});
    auto residual = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 0, 0});
    ok(mxq_expert_layer_options_get_row_format(options, &format, &scaling));
    CHECK((format == 0 && scaling == 0));
    ok(mxq_expert_layer_options_get_inner_format(options, &format));
    CHECK(format == MXQ_FORMAT_BF16);
    ok(mxq_expert_layer_options_get_down_bias(options, &format, &bias, &bytes));
    CHECK((format == 0 && !bias && bytes == 0));
    ok(mxq_expert_layer_options_get_residual(options, &flag, residual));
    CHECK(flag == 0);

    float numbers[2] = {};
    Case gelu;
    gelu.activation = MXQ_ACTIVATION_GEGLU_TANH;
    ok(mxq_expert_layer_options_set_activate_options(options, activate_options(gelu)));
    ok(mxq_expert_layer_options_set_row_format(options, MXQ_FORMAT_FP8_E4M3, MXQ_SCALING_1X128));
    ok(mxq_expert_layer_options_set_inner_format(options, MXQ_FORMAT_F32));
    ok(mxq_expert_layer_options_set_gate_up_bias(options, MXQ_FORMAT_F32, numbers, 8));
    ok(mxq_expert_layer_options_set_down_bias(options, MXQ_FORMAT_BF16, numbers + 1, 4));
    ok(mxq_expert_layer_options_set_weights_first(options, 1));
    ok(mxq_expert_layer_options_set_exact_products(options, 1));
    ok(mxq_expert_layer_options_get_row_invariant(options, &flag));
    CHECK(flag == 0);
    ok(mxq_expert_layer_options_set_row_invariant(options, 1));
    ok(mxq_expert_layer_options_set_residual(options, testing::make_tensor(MXQ_FORMAT_F16, {std::nullopt, 3, 5})));
    ok(mxq_expert_layer_options_get_activate_options(options, activate));
    ok(mxq_activate_options_get_activation(activate, &activation));
    CHECK(activation == MXQ_ACTIVATION_GEGLU_TANH);
    ok(mxq_expert_layer_options_get_row_format(options, &format, &scaling));
    CHECK((format == MXQ_FORMAT_FP8_E4M3 && scaling == MXQ_SCALING_1X128));
    ok(mxq_expert_layer_options_get_inner_format(options, &format));
    CHECK(format == MXQ_FORMAT_F32);
    ok(mxq_expert_layer_options_get_gate_up_bias(options, &format, &bias, &bytes));
    CHECK((format == MXQ_FORMAT_F32 && bias == numbers && bytes == 8));
    ok(mxq_expert_layer_options_get_down_bias(options, &format, &bias, &bytes));
    CHECK((format == MXQ_FORMAT_BF16 && bias == numbers + 1 && bytes == 4));
    ok(mxq_expert_layer_options_get_weights_first(options, &flag));
    CHECK(flag == 1);
    ok(mxq_expert_layer_options_get_exact_products(options, &flag));
    CHECK(flag == 1);
    ok(mxq_expert_layer_options_get_row_invariant(options, &flag));
    CHECK(flag == 1);
    ok(mxq_expert_layer_options_get_residual(options, &flag, residual));
    int64_t rows = 0, cols = 0;
    ok(mxq_tensor_get_shape(residual, nullptr, nullptr, &rows, &cols));
    CHECK((flag == 1 && rows == 3 && cols == 5));
}
