// requantize_wide to one scale a line, across the source's lines, where its blocks of threads wait for each other, and where
// they cannot: on a device that runs fewer of them at once than a column has tiles, and where the driver refuses the launch.
// A context that counts other multiprocessors than there are stands for such devices. The bytes are the same each time.
#include "../formats.h"

#include "cuda/device.h"

using testing::Bytes;
using testing::ok;

namespace {

constexpr int64_t kRows = 8192, kCols = 4096;  // 16 columns of 32 tiles, more than any device runs at once

void cuda_ok(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct Requantized {
    Bytes codes, scales;
    int kernels = 0;  // in a graph of the call
};

// Captures a call and runs it once. Returns how many kernels it has. A launch that is refused would end the capture.
template <class Enqueue>
int run_captured(const Enqueue& enqueue) {
    cudaStream_t stream;
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    enqueue(stream);
    cudaGraph_t graph;
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    size_t count = 0;
    cuda_ok(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    cuda_ok(cudaGraphGetNodes(graph, nodes.data(), &count));
    int kernels = 0;
    for (const cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        cuda_ok(cudaGraphNodeGetType(node, &type));
        kernels += type == cudaGraphNodeTypeKernel;
    }
    cudaGraphExec_t executable;
    cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
    cuda_ok(cudaGraphLaunch(executable, stream));
    cuda_ok(cudaStreamSynchronize(stream));
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return kernels;
}

// Codes and scales, random, without NaN.
struct Source {
    Bytes codes = Bytes(kRows * kCols), scales = Bytes(kRows * kCols / 32);

    Source() {
        cases::Random random(11);
        for (uint8_t& code : codes) code = uint8_t(random.below(2) * 128 + random.below(127));
        for (uint8_t& scale : scales) scale = uint8_t(120 + random.below(9));
    }
};

// Requantizes to one scale a line. The workspace is poison before.
Requantized requantize(testing::Device& device, const Source& source, int32_t format, bool captured) {
    const testing::Dims dims{std::nullopt, kRows, kCols};
    auto from = testing::make_quantized({}, dims, false);
    auto to = testing::make_quantized({format, MXQ_SCALING_ROW}, dims, false);
    testing::Buffer from_codes(device, source.codes), from_scales(device, source.scales);
    ok(mxq_tensor_set_part(from, MXQ_PART_ROWWISE, from_codes.data(), from_codes.bytes(), from_scales.data(),
                           from_scales.bytes()));
    uint64_t code_bytes = 0, scale_bytes = 0;
    ok(mxq_tensor_required_bytes(to, MXQ_PART_COLUMNWISE, &code_bytes, &scale_bytes));
    testing::Buffer to_codes(device, code_bytes), to_scales(device, scale_bytes);
    ok(mxq_tensor_set_part(to, MXQ_PART_COLUMNWISE, to_codes.data(), code_bytes, to_scales.data(), scale_bytes));
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    if (!device.is_cpu()) ok(mxq_quantize_options_set_implementation(options, "requantize_wide"));
    testing::Plan plan;
    ok(mxq_requantize_query(device.context, options, from, to, plan.out()));
    testing::Buffer workspace(device, mxq_plan_workspace_bytes(plan));
    const auto enqueue = [&](void* stream) {
        ok(mxq_requantize(device.context, options, from, to, workspace.data(), workspace.bytes(), stream));
    };
    Requantized result;
    if (captured)
        result.kernels = run_captured(enqueue);
    else
        enqueue(nullptr);
    result.codes = to_codes.read(), result.scales = to_scales.read();
    return result;
}

}  // namespace

TEST_CASE("requantize: one scale a line, by blocks of threads that wait for each other or cannot", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    mxq_context* context = nullptr;
    ok(mxq_context_create(MXQ_DEVICE_CUDA, 0, nullptr, &context));
    testing::Device device(MXQ_DEVICE_CUDA, context);
    const int capability = context->cuda->compute_capability, all = context->cuda->multiprocessors;
    if (capability < 90 || capability >= 120) MXQ_SKIP("requantize_wide needs compute capability 9.0 to 11.0");
    REQUIRE(3 * all < kRows / 256 * kCols / 256);  // else a device that refuses would have room for all tiles
    const Source source;
    for (const int32_t format : {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_FP8_E4M3}) {
        const Requantized expected = requantize(testing::cpu(), source, format, false);
        const struct {
            const char* text;
            int multiprocessors, kernels;  // the one; or zeros, maxima and codes; none where it is not captured
        } devices[] = {{"the device as it is", all, 1},
                       {"one that runs 30 blocks, where a column has 32 tiles", 10, 3},
                       {"one whose driver refuses to run as many blocks", 64 * all, 0}};
        for (const auto& c : devices) {
            INFO("format " << format << ", " << c.text);
            context->cuda->multiprocessors = c.multiprocessors;
            const Requantized result = requantize(device, source, format, c.kernels > 0);
            CHECK(result.kernels == c.kernels);
            CHECK(testing::difference(result.codes, expected.codes) == "");
            CHECK(testing::difference(result.scales, expected.scales) == "");
        }
        CHECK(cudaGetLastError() == cudaSuccess);
    }
}
