#include "layer.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

using namespace mxq_handles;

namespace {

// A tensor in the device's memory: its descriptor, and the buffers that the descriptor points to.
struct Stored {
    Tensor tensor;
    std::vector<Buffer> buffers;
};

// To nearest, ties to even.
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

    QuantizedRun run() {
        Stored up = quantize_weight(model_.up_weight, model_.hidden, model_.width);
        Stored down = quantize_weight(model_.down_weight, model_.width, model_.hidden);

        Stored tokens = plain(tensor(MXQ_FORMAT_BF16, model_.tokens, model_.width), model_.token_data);
        tokens = as_activations(std::move(tokens), model_.width);
        run_.up = add_bias(model_, multiply(tokens, up, model_.hidden), model_.up_bias);

        std::vector<float> activation(run_.up.size());
        std::transform(run_.up.begin(), run_.up.end(), activation.begin(), [](double x) { return float(gelu(x)); });
        const Stored hidden = as_activations(hidden_activations(activation), model_.hidden);
        run_.output = add_bias(model_, multiply(hidden, down, model_.width), model_.down_bias);
        return std::move(run_);
    }

private:
    Stored plain(Tensor tensor, const void* values) {
        Buffer data(memory_, values, required_bytes(tensor).codes);
        check(mxq_tensor_set_data(tensor.get(), data.get(), data.bytes()));
        return store(std::move(tensor), std::move(data));
    }

    // In fp32 where they are quantized next, else rounded to BF16.
    Stored hidden_activations(const std::vector<float>& values) {
        if (setting_.activations.format != MXQ_FORMAT_BF16)
            return plain(tensor(MXQ_FORMAT_F32, model_.tokens, model_.hidden), values.data());
        std::vector<uint16_t> rounded(values.size());
        std::transform(values.begin(), values.end(), rounded.begin(), to_bf16);
        return plain(tensor(MXQ_FORMAT_BF16, model_.tokens, model_.hidden), rounded.data());
    }

    Stored quantize_weight(const uint8_t* values, int64_t rows, int64_t cols) {
        Stored in = plain(tensor(MXQ_FORMAT_BF16, model_.experts, rows, cols), values);
        Tensor out = tensor(setting_.weights.format, model_.experts, rows, cols);
        check(mxq_tensor_set_scaling(out.get(), setting_.weights.scaling));
        Stored weight = quantize(in, std::move(out), setting_.weights.format, run_.weight_ms);
        const PartBytes bytes = required_bytes(weight.tensor);
        run_.weight_bytes += bytes.codes + bytes.scales;
        return weight;
    }

    // Tokens are sorted by expert: the groups tell the product which rows belong to which expert's weights, and NVFP4
    // which rows share an amax.
    Stored as_activations(Stored in, int64_t cols) {
        if (setting_.activations.format == MXQ_FORMAT_BF16) {
            set_groups(in.tensor);
            return in;
        }
        Tensor out = tensor(setting_.activations.format, model_.tokens, cols);
        check(mxq_tensor_set_scaling(out.get(), setting_.activations.scaling));
        set_groups(out);
        return quantize(in, std::move(out), setting_.activations.format, run_.activation_ms);
    }

    void set_groups(const Tensor& tensor) {
        check(mxq_tensor_set_groups(tensor.get(), ends_.get(), MXQ_TYPE_INT32, int32_t(model_.experts)));
    }

    // MX formats have a scale rounding; NVFP4 an amax per expert or group, computed in the same call.
    QuantizeOptions options_for(int32_t format) {
        auto options = make<QuantizeOptions>(mxq_quantize_options_create);
        if (format == MXQ_FORMAT_NVFP4) check(mxq_quantize_options_set_compute_amax(options.get(), 1));
        else check(mxq_quantize_options_set_scale_rounding(options.get(), setting_.rounding));
        return options;
    }

    Stored quantize(const Stored& in, Tensor out, int32_t format, double& ms) {
        const QuantizeOptions options = options_for(format);
        const PartBytes bytes = required_bytes(out);
        Buffer codes(memory_, bytes.codes), scales(memory_, bytes.scales), amax(memory_, model_.experts * sizeof(float));
        check(
            mxq_tensor_set_part(out.get(), MXQ_PART_ROWWISE, codes.get(), codes.bytes(), scales.get(), scales.bytes()));
        if (format == MXQ_FORMAT_NVFP4) {
            check(mxq_tensor_set_scope(out.get(), MXQ_SCOPE_EXPERT));
            check(mxq_tensor_set_amax(out.get(), MXQ_PART_ROWWISE, static_cast<float*>(amax.get()), amax.bytes()));
        }
        Plan plan = make<Plan>(mxq_quantize_query, device_.context.get(), options.get(), in.tensor.get(), out.get());
        run_.quantize_implementation = mxq_plan_implementation(plan.get());
        Buffer workspace(memory_, mxq_plan_workspace_bytes(plan.get()));
        ms += time_ms([&] {
            check(mxq_quantize(device_.context.get(), options.get(), in.tensor.get(), out.get(), workspace.get(),
                               workspace.bytes(), memory_.stream()));
        });
        return store(std::move(out), std::move(codes), std::move(scales), std::move(amax));
    }

    // product[rows of e] = a[rows of e] weight[e]^T, in fp32
    std::vector<float> multiply(const Stored& a, const Stored& weight, int64_t cols) {
        Tensor d = tensor(MXQ_FORMAT_F32, model_.tokens, cols);
        Buffer data(memory_, required_bytes(d).codes);
        check(mxq_tensor_set_data(d.get(), data.get(), data.bytes()));

        Plan plan = make<Plan>(mxq_grouped_gemm_query, device_.context.get(), nullptr, a.tensor.get(),
                               weight.tensor.get(), d.get());
        run_.gemm_implementation = mxq_plan_implementation(plan.get());
        Buffer workspace(memory_, mxq_plan_workspace_bytes(plan.get()));
        run_.product_ms += time_ms([&] {
            check(mxq_grouped_gemm(device_.context.get(), nullptr, a.tensor.get(), weight.tensor.get(), d.get(),
                                   workspace.get(), workspace.bytes(), memory_.stream()));
        });
        std::vector<float> product(model_.tokens * cols);
        memory_.download(product.data(), data.get(), data.bytes());
        return product;
    }

    // Median of five calls after a first one, each waited for.
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

    template <class... Buffers>
    static Stored store(Tensor tensor, Buffers... buffers) {
        Stored stored{std::move(tensor), {}};
        (stored.buffers.push_back(std::move(buffers)), ...);
        return stored;
    }

    const Model& model_;
    Device& device_;
    Memory& memory_;
    const Setting setting_;
    Buffer ends_;
    QuantizedRun run_;
};

}  // namespace

QuantizedRun run_layer(const Model& model, Device& device, const Setting& setting) {
    return QuantizedLayer(model, device, setting).run();
}
