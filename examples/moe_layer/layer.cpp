#include "layer.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>

namespace {

// A tensor in the device's memory: its descriptor, and the buffers that the descriptor refers to.
struct Stored {
    mxq::tensor tensor;
    std::vector<Buffer> buffers;

    template <class... Buffers>
    void keep(Buffers... more) {
        (buffers.push_back(std::move(more)), ...);
    }
};

// Rounds a finite value to the nearest BF16 number, ties to even, and returns its bits.
uint16_t to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

class QuantizedLayer {
public:
    QuantizedLayer(const Model& model, Device& device, const Setting& setting)
        : model_(model),
          device_(device),
          memory_(*device.memory),
          setting_(setting),
          ends_(memory_, model.ends.data(), model.ends.size() * sizeof(int32_t)) {}

    // Runs the forward pass. Its products contract over the rows of tokens and of weights, so the blocks of both run along
    // their rows: the rowwise part.
    QuantizedRun forward() {
        QuantizedRun run;
        const Stored up = quantize_weight(model_.up_weight, model_.hidden, model_.width, kRows, run.weights);
        const Stored down = quantize_weight(model_.down_weight, model_.width, model_.hidden, kRows, run.weights);
        run.weight_bytes = total_bytes(up) + total_bytes(down);

        const Stored tokens = as_activations(bf16_rows(model_.token_data), model_.width, kRows, run.activations);
        run.up = add_bias(model_, forward_product(tokens, up, model_.hidden, run.products), model_.up_bias);

        std::vector<float> activation(run.up.size());
        std::transform(run.up.begin(), run.up.end(), activation.begin(), [](double x) { return float(gelu(x)); });
        const Stored hidden = as_activations(hidden_activations(activation), model_.hidden, kRows, run.activations);
        run.output = add_bias(model_, forward_product(hidden, down, model_.width, run.products), model_.down_bias);
        return run;
    }

    // Runs the forward pass as one call. Tokens lie expert by expert already, so that the routing is given: each token has
    // one choice, and its row is its own number.
    OneCall one_call() {
        Calls quantized;
        const Stored up = quantize_weight(model_.up_weight, model_.hidden, model_.width, kRows, quantized);
        const Stored down = quantize_weight(model_.down_weight, model_.width, model_.hidden, kRows, quantized);
        const Stored x = bf16_rows(model_.token_data);
        const Stored out = plain(mxq::tensor(MXQ_FORMAT_F32, model_.tokens, model_.width), nullptr);
        std::vector<int32_t> numbers(size_t(model_.tokens));
        std::iota(numbers.begin(), numbers.end(), 0);
        const Buffer rows(memory_, numbers.data(), numbers.size() * sizeof(int32_t));
        const auto array = [](const Buffer& of) {
            return mxq::memory_of<const int32_t>{static_cast<const int32_t*>(of.get()), of.bytes()};
        };
        mxq::routing routing(model_.tokens, 1, int32_t(model_.experts));
        routing.set_computed({array(ends_), array(rows), array(rows), {}});

        const Buffer up_bias(memory_, model_.up_bias.data(), model_.up_bias.size() * sizeof(float));
        const Buffer down_bias(memory_, model_.down_bias.data(), model_.down_bias.size() * sizeof(float));
        mxq::expert_layer_options options;
        options.set_activate_options(mxq::activate_options().set_activation(MXQ_ACTIVATION_GELU_ERF))
            .set_row_format(setting_.activations.format, setting_.activations.scaling)
            .set_quantize_options(options_for(setting_.activations.format))
            .set_inner_format(MXQ_FORMAT_F32)
            .set_gate_up_bias(MXQ_FORMAT_F32, up_bias.get(), up_bias.bytes())
            .set_down_bias(MXQ_FORMAT_F32, down_bias.get(), down_bias.bytes())
            .set_exact_products(setting_.exact_products);
        const mxq::plan plan =
            mxq::expert_layer_query(device_.context, options, x.tensor, routing, up.tensor, down.tensor, out.tensor);
        OneCall run;
        run.layer.implementation = plan.implementation();
        const Buffer workspace(memory_, plan.workspace_bytes());
        run.layer.ms = time_ms([&] {
            mxq::expert_layer(device_.context, options, x.tensor, routing, up.tensor, down.tensor, out.tensor,
                              {workspace.get(), workspace.bytes()}, memory_.stream());
        });
        std::vector<float> output(size_t(model_.tokens * model_.width));
        memory_.download(output.data(), out.buffers[0].get(), output.size() * sizeof(float));
        run.output.assign(output.begin(), output.end());
        return run;
    }

    // Runs the backward pass of `down`. Its products contract over other dimensions than the forward pass, and the blocks
    // run along those (e is an expert):
    //     input gradient    dx[rows of e] = dy[rows of e] down[e]    along the rows of dy and the columns of down
    //     weight gradient   dw[e] = dy[rows of e]^T x[rows of e]     along the columns of both, groups padded to whole
    //     blocks
    // Both products read dy, so one call quantizes both of its parts.
    GradientRun backward(const std::vector<double>& exact_hidden) {
        GradientRun run;
        const std::vector<float> activation(exact_hidden.begin(), exact_hidden.end());
        const Stored down = quantize_weight(model_.down_weight, model_.width, model_.hidden, kColumns, run.quantize);
        const Stored x = as_activations(hidden_activations(activation), model_.hidden, kColumns, run.quantize);
        const Stored dy = as_activations(bf16_rows(model_.grad_output), model_.width, kRows | kColumns, run.quantize);

        mxq::tensor dx(MXQ_FORMAT_F32, model_.tokens, model_.hidden);
        mxq::tensor dw(MXQ_FORMAT_F32, model_.experts, model_.width, model_.hidden);
        const std::vector<float> input = multiply(dy, MXQ_TRANSPOSE_N, down, MXQ_TRANSPOSE_N, std::move(dx), run.products);
        const std::vector<float> weight = multiply(dy, MXQ_TRANSPOSE_T, x, MXQ_TRANSPOSE_N, std::move(dw), run.products);
        run.input.assign(input.begin(), input.end());
        run.weight.assign(weight.begin(), weight.end());
        return run;
    }

private:
    // The direction in which the blocks run that share a scale.
    static constexpr int32_t kRows = MXQ_PART_ROWWISE, kColumns = MXQ_PART_COLUMNWISE;

    Stored plain(mxq::tensor tensor, const void* values) {
        const uint64_t bytes = tensor.required_bytes().codes;
        Buffer data = values ? Buffer(memory_, values, bytes) : Buffer(memory_, bytes);
        tensor.set_data(data.get(), data.bytes());
        Stored stored{std::move(tensor), {}};
        stored.keep(std::move(data));
        return stored;
    }

    // Returns a plain tensor of the tokens, or of the gradients of the layer's output.
    Stored bf16_rows(const uint8_t* values) {
        return plain(mxq::tensor(MXQ_FORMAT_BF16, model_.tokens, model_.width), values);
    }

    // Returns a plain tensor of the hidden activations: in fp32 if they are quantized next, else rounded to BF16.
    Stored hidden_activations(const std::vector<float>& values) {
        if (setting_.activations.format != MXQ_FORMAT_BF16)
            return plain(mxq::tensor(MXQ_FORMAT_F32, model_.tokens, model_.hidden), values.data());
        std::vector<uint16_t> rounded(values.size());
        std::transform(values.begin(), values.end(), rounded.begin(), to_bf16);
        return plain(mxq::tensor(MXQ_FORMAT_BF16, model_.tokens, model_.hidden), rounded.data());
    }

    Stored quantize_weight(const uint8_t* values, int64_t rows, int64_t cols, int32_t parts, Calls& calls) {
        Stored in = plain(mxq::tensor(MXQ_FORMAT_BF16, model_.experts, rows, cols), values);
        mxq::tensor out(setting_.weights.format, model_.experts, rows, cols);
        out.set_scaling(setting_.weights.scaling);
        return quantize(in, std::move(out), setting_.weights.format, parts, calls);
    }

    // Returns activations as the setting stores them, quantized or BF16, with a group of rows for each expert. The groups
    // tell a product which rows belong to which expert's weights, and NVFP4 which rows share an amax.
    Stored as_activations(Stored in, int64_t cols, int32_t parts, Calls& calls) {
        if (setting_.activations.format == MXQ_FORMAT_BF16) {
            set_groups(in.tensor);
            return in;
        }
        mxq::tensor out(setting_.activations.format, model_.tokens, cols);
        out.set_scaling(setting_.activations.scaling);
        set_groups(out);
        return quantize(in, std::move(out), setting_.activations.format, parts, calls);
    }

    void set_groups(mxq::tensor& tensor) {
        tensor.set_groups(ends_.get(), model_.ends.size() * sizeof(int32_t), MXQ_TYPE_INT32, int32_t(model_.experts));
    }

    // Returns the options for a format: the scale rounding of MX formats. NVFP4 needs none.
    mxq::quantize_options options_for(int32_t format) {
        mxq::quantize_options options;
        if (format != MXQ_FORMAT_NVFP4) options.set_scale_rounding(setting_.rounding);
        return options;
    }

    // Allocates the codes and scales of one part, and the amax of each expert where the format has them.
    void declare_part(Stored& stored, int32_t part, bool has_amax) {
        mxq::tensor& out = stored.tensor;
        const mxq::part_bytes bytes = out.required_bytes(part);
        Buffer codes(memory_, bytes.codes), scales(memory_, bytes.scales), amax(memory_, model_.experts * sizeof(float));
        out.set_part(part, codes.get(), codes.bytes(), scales.get(), scales.bytes());
        if (has_amax) out.set_scope(MXQ_SCOPE_EXPERT).set_amax(part, static_cast<float*>(amax.get()), amax.bytes());
        stored.keep(std::move(codes), std::move(scales), std::move(amax));
    }

    Stored quantize(const Stored& in, mxq::tensor out, int32_t format, int32_t parts, Calls& calls) {
        Stored quantized{std::move(out), {}};
        for (int32_t part : {kRows, kColumns})
            if (parts & part) declare_part(quantized, part, format == MXQ_FORMAT_NVFP4);

        const mxq::quantize_options options = options_for(format);
        const mxq::plan plan = mxq::quantize_query(device_.context, options, in.tensor, quantized.tensor);
        calls.implementation = plan.implementation();
        Buffer workspace(memory_, plan.workspace_bytes());
        calls.ms += time_ms([&] {
            mxq::quantize(device_.context, options, in.tensor, quantized.tensor, {workspace.get(), workspace.bytes()},
                          memory_.stream());
        });
        return quantized;
    }

    // Returns product[rows of e] = a[rows of e] weight[e]^T for each expert e.
    std::vector<float> forward_product(const Stored& a, const Stored& weight, int64_t cols, Calls& calls) {
        return multiply(a, MXQ_TRANSPOSE_N, weight, MXQ_TRANSPOSE_T, mxq::tensor(MXQ_FORMAT_F32, model_.tokens, cols),
                        calls);
    }

    mxq::gemm_options product_options(int32_t transpose_a, int32_t transpose_b) {
        mxq::gemm_options options;
        options.set_transpose(transpose_a, transpose_b);
        if (setting_.exact_products) options.set_exact_products(true);
        return options;
    }

    // Returns d = op(a) op(b) for each expert, in fp32.
    std::vector<float> multiply(const Stored& a, int32_t transpose_a, const Stored& b, int32_t transpose_b, mxq::tensor d,
                                Calls& calls) {
        Buffer data(memory_, d.required_bytes().codes);
        d.set_data(data.get(), data.bytes());
        const mxq::gemm_options options = product_options(transpose_a, transpose_b);
        const mxq::plan plan = mxq::grouped_gemm_query(device_.context, options, a.tensor, b.tensor, d);
        calls.implementation = plan.implementation();
        calls.exact = calls.exact && plan.bound() == MXQ_BOUND_EXACT_PRODUCTS;
        Buffer workspace(memory_, plan.workspace_bytes());
        calls.ms += time_ms([&] {
            mxq::grouped_gemm(device_.context, options, a.tensor, b.tensor, d, {workspace.get(), workspace.bytes()},
                              memory_.stream());
        });
        std::vector<float> product(data.bytes() / sizeof(float));
        memory_.download(product.data(), data.get(), data.bytes());
        return product;
    }

    // Returns the median time of five calls after a first one that does not count. Each call is waited for.
    template <class Call>
    double time_ms(Call call) {
        using clock = std::chrono::steady_clock;
        call();
        memory_.synchronize();
        double times[5];
        for (double& time : times) {
            const auto start = clock::now();
            call();
            memory_.synchronize();
            time = std::chrono::duration<double, std::milli>(clock::now() - start).count();
        }
        std::sort(std::begin(times), std::end(times));
        return times[2];
    }

    static uint64_t total_bytes(const Stored& weight) {
        const mxq::part_bytes bytes = weight.tensor.required_bytes(kRows);
        return bytes.codes + bytes.scales;
    }

    const Model& model_;
    Device& device_;
    Memory& memory_;
    const Setting setting_;
    Buffer ends_;
};

}  // namespace

OneCall run_one_call(const Model& model, Device& device, const Setting& setting) {
    return QuantizedLayer(model, device, setting).one_call();
}

QuantizedRun run_layer(const Model& model, Device& device, const Setting& setting) {
    return QuantizedLayer(model, device, setting).forward();
}

GradientRun run_gradients(const Model& model, Device& device, const Setting& setting, const std::vector<double>& hidden) {
    return QuantizedLayer(model, device, setting).backward(hidden);
}
