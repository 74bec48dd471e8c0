// How many kernels an expert layer launches, and which of them start before the one before has ended, on CUDA played by the
// host.
#include "calls.h"
#include "played_cuda.h"

#include "../verbs/routing.h"

#include <algorithm>
#include <cstdlib>

using testing::Buffer;
using testing::ok;

namespace {

// A layer whose operands are poison: no kernel runs.
struct Played {
    Played(testing::Device& device, int64_t tokens, int32_t choices, const oracle::Spec& weights, int32_t x_format)
        : device(device),
          routing(device, testing::draw_choices(tokens, choices, experts, testing::Draw::uniform, 1)),
          x(plain(x_format, tokens)),
          out(plain(MXQ_FORMAT_BF16, tokens)),
          gate_up(quantized(weights, {experts, 2 * inner, width})),
          down(quantized(weights, {experts, width, inner})) {}

    // Returns the calls of a layer; `names`: what its query says.
    fault::Trace run(std::string& names) {
        testing::Plan plan;
        ok(mxq_expert_layer_query(device.context, nullptr, x, routing.handle, gate_up, down, out, plan.out()));
        names = mxq_plan_implementation(plan);
        const Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
        played::launched = {};
        fault::begin_calls();
        const mxq_status status = mxq_expert_layer(device.context, nullptr, x, routing.handle, gate_up, down, out,
                                                   workspace.data(), workspace.bytes(), nullptr);
        const fault::Counted counted = fault::end_calls();
        ok(status);
        return counted.calls;
    }

private:
    static constexpr int64_t width = 256, inner = 128;
    static constexpr int32_t experts = 32;

    testing::Tensor with_memory(testing::Tensor tensor) {
        uint64_t bytes = 0;
        ok(mxq_tensor_total_bytes(tensor, MXQ_PART_ROWWISE, &bytes));
        const Buffer& buffer = *buffers.emplace_back(std::make_unique<Buffer>(device, static_cast<size_t>(bytes)));
        ok(mxq_tensor_set_memory(tensor, MXQ_PART_ROWWISE, buffer.data(), buffer.bytes()));
        return tensor;
    }
    testing::Tensor plain(int32_t format, int64_t rows) {
        return with_memory(testing::make_tensor(format, {std::nullopt, rows, width}));
    }
    testing::Tensor quantized(const oracle::Spec& spec, const testing::Dims& dims) {
        return with_memory(testing::make_tensor(spec, dims, false));
    }

    testing::Device& device;
    std::vector<std::unique_ptr<Buffer>> buffers;
    testing::DeviceRouting routing;
    testing::Tensor x, out, gate_up, down;
};

testing::Device new_device() {
    mxq_context* context = nullptr;
    ok(mxq_context_create(MXQ_DEVICE_CUDA, 0, nullptr, &context));
    return {MXQ_DEVICE_CUDA, context};
}

bool enqueues(const std::string& name) {
    return name == "cudaLaunchKernelExC" || name == "cudaMemsetAsync" || name == "cudaMemcpy2DAsync";
}

}  // namespace

TEST_CASE("launches: an expert layer of few choices takes three, and two of them start early") {
    testing::Device device = new_device();
    const oracle::Spec mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), nvfp4 = testing::spec_of(MXQ_FORMAT_NVFP4, MXQ_SCALING_1X16);
    for (const auto& [weights, most] : {std::pair<oracle::Spec, int64_t>{mxfp4, 4}, {nvfp4, 2}})
        for (int64_t tokens = 1; tokens <= most; ++tokens) {
            std::string names;
            const fault::Trace calls = Played(device, tokens, 4, weights, MXQ_FORMAT_BF16).run(names);
            INFO(tokens << " tokens: " << names);
            CHECK(names == "mma_bf16_rows_activate, mma_bf16_rows_routed, combine_choices");
            CHECK(std::count_if(calls.begin(), calls.end(), enqueues) == 3);
            CHECK((played::launched.all == 3 && played::launched.early == 2));
        }
}

TEST_CASE("launches: an expert layer takes the implementation that MXQ_IMPL names") {
    for (const char* text : {"grouped_gemm:mma_bf16_rows", "route:route", "activate:activate", "combine:combine"}) {
        setenv("MXQ_IMPL", text, 1);
        testing::Device device = new_device();
        unsetenv("MXQ_IMPL");
        std::string names;
        Played(device, 1, 4, testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32), MXQ_FORMAT_BF16).run(names);
        CHECK(names == "route, mma_bf16_rows, activate, mma_bf16_rows, combine");
        CHECK((played::launched.all == 5 && played::launched.early == 4));
    }
}

TEST_CASE("launches: an expert layer of more tokens, or of F16 tokens, takes five") {
    testing::Device device = new_device();
    const auto mxfp4 = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    for (const auto& [tokens, format] : {std::pair<int64_t, int32_t>{5, MXQ_FORMAT_BF16}, {1, MXQ_FORMAT_F16}}) {
        std::string names;
        Played(device, tokens, 4, mxfp4, format).run(names);
        INFO(tokens << " tokens: " << names);
        CHECK(names.find("route, ") == 0);
        CHECK(played::launched.all >= 5);
    }
}
