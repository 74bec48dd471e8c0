// Every verb inside a CUDA graph. In this executable the first call of the library after the context's creation happens
// under capture.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("graph: every verb captured and replayed", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "../oracle_groups.h"
#include "../verbs/product.h"

using testing::ok;

namespace {

void cuda_ok(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct Stream {
    Stream() { cuda_ok(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
    ~Stream() { cudaStreamDestroy(handle); }
    cudaStream_t handle = nullptr;
};

// Captures what `enqueue` does; replays it as often as asked.
class Graph {
public:
    template <class Enqueue>
    Graph(Stream& stream, Enqueue enqueue) : stream_(stream) {
        cuda_ok(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeGlobal));
        try {
            enqueue();
        } catch (...) {
            cudaStreamEndCapture(stream.handle, &graph_);
            throw;
        }
        cuda_ok(cudaStreamEndCapture(stream.handle, &graph_));
        cuda_ok(cudaGraphInstantiate(&executable_, graph_, 0));
    }
    ~Graph() {
        cudaGraphExecDestroy(executable_);
        cudaGraphDestroy(graph_);
    }
    void replay() {
        cuda_ok(cudaGraphLaunch(executable_, stream_.handle));
        cuda_ok(cudaStreamSynchronize(stream_.handle));
    }

private:
    Stream& stream_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

TEST_CASE("graph: every verb captured and replayed, the first call of the process included", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    auto* context = device.context;
    Stream stream;
    const int64_t m = 150, k = 96, n = 70;
    const testing::Dims dims{std::nullopt, m, k};

    auto x = testing::make_tensor(MXQ_FORMAT_BF16, dims), back = testing::make_tensor(MXQ_FORMAT_F32, dims);
    auto q = testing::make_quantized({}, dims, false), q_swizzled = testing::make_quantized({}, dims, true), q_again = testing::make_quantized({}, dims, false);
    auto w = testing::make_quantized({}, {std::nullopt, n, k}, false), experts = testing::make_quantized({}, {2, n, k}, false);
    auto grouped_q = testing::make_quantized({}, dims, false);
    testing::Buffer x_data(device, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, m * k, 1)), back_data(device, m * k * 4),
        ends(device, testing::Bytes{30, 0, 0, 0, 140, 0, 0, 0});
    testing::PartBuffers row(device, q, MXQ_PART_ROWWISE), column(device, q, MXQ_PART_COLUMNWISE), swizzled_part(device, q_swizzled, MXQ_PART_ROWWISE),
        again_part(device, q_again, MXQ_PART_ROWWISE);
    auto w_operand = testing::make_operand({}, 2 * n, k, testing::Spread::normal, 2);
    testing::PartBuffers w_part(device, w, MXQ_PART_ROWWISE, w_operand.compact), experts_part(device, experts, MXQ_PART_ROWWISE, w_operand.compact);
    ok(mxq_tensor_set_data(x, x_data.data(), x_data.bytes()));
    ok(mxq_tensor_set_data(back, back_data.data(), back_data.bytes()));
    auto row_only = testing::make_quantized({}, dims, false);
    row.set(row_only, MXQ_PART_ROWWISE);
    row.set(grouped_q, MXQ_PART_ROWWISE);
    ok(mxq_tensor_set_groups(grouped_q, ends.data(), MXQ_TYPE_INT32, 2));
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0), grouped_d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);

    testing::Buffer workspace(device, 1 << 20);
    Graph graph(stream, [&] {
        ok(mxq_quantize(context, nullptr, x, q, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_dequantize(context, nullptr, q, back, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_swizzle_scales(context, nullptr, row_only, q_swizzled, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_unswizzle_scales(context, nullptr, q_swizzled, q_again, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_gemm(context, nullptr, q, w, d.tensor, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_grouped_gemm(context, nullptr, grouped_q, experts, grouped_d.tensor, workspace.data(), workspace.bytes(), stream.handle));
    });
    CHECK(row.codes->untouched());  // captured, not run
    CHECK(back_data.untouched());

    int replays = 0;
    for (uint64_t seed : {1, 2, 3}) {
        auto bytes = cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, m * k, seed);
        device.to_device(x_data.data(), bytes.data(), bytes.size());
        const std::vector<int64_t> group_ends{30, seed == 3 ? 145 : 140};  // the sizes are read when the graph runs
        const int32_t ends32[] = {30, static_cast<int32_t>(group_ends[1])};
        device.to_device(ends.data(), ends32, sizeof ends32);
        cuda_ok(cudaDeviceSynchronize());
        graph.replay();

        auto values = oracle::load(MXQ_FORMAT_BF16, bytes.data(), m * k);
        auto expected = oracle::quantize({}, values, dims.shape(), MXQ_PART_ROWWISE, false);
        auto expected_column = oracle::quantize({}, values, dims.shape(), MXQ_PART_COLUMNWISE, false);
        CHECK(testing::difference(row.codes->read(), expected.codes) == "");
        CHECK(testing::difference(row.scales->read(), expected.scales) == "");
        CHECK(testing::difference(column.codes->read(), expected_column.codes) == "");
        CHECK(testing::difference(column.scales->read(), expected_column.scales) == "");
        CHECK(testing::difference(swizzled_part.scales->read(), oracle::swizzle(expected.scales, MXQ_SCALING_1X32, m, k)) == "");
        CHECK(testing::difference(again_part.scales->read(), expected.scales) == "");
        auto a = oracle::dequantize({}, expected, dims.shape(), MXQ_PART_ROWWISE);
        CHECK(testing::difference(back_data.read(), oracle::store(MXQ_FORMAT_F32, a)) == "");

        double factor = oracle::bound_factor("mma_bf16", k);
        CHECK(oracle::check_product(oracle::product(a.data(), k, w_operand.values.data(), k, m, n, k), d.values(), MXQ_FORMAT_F32, factor) == "");
        std::vector<oracle::Element> of_groups;
        for (size_t g = 0; g < 2; ++g) {
            int64_t rows = oracle::group_rows(group_ends, g), first = group_ends[g] - rows;
            auto one = oracle::product(a.data() + first * k, k, w_operand.values.data() + static_cast<int64_t>(g) * n * k, k, rows, n, k);
            of_groups.insert(of_groups.end(), one.begin(), one.end());
        }
        auto grouped_values = grouped_d.values();
        grouped_values.resize(of_groups.size());
        CHECK(oracle::check_product(of_groups, grouped_values, MXQ_FORMAT_F32, factor) == "");
        ++replays;
    }
    CHECK(replays == 3);
}

// Nothing to launch must not break a capture either.
TEST_CASE("graph: tensors without elements under capture", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    Stream stream;
    int ran = 0;
    for (auto [rows, cols] : {std::pair<int64_t, int64_t>{0, 64}, {64, 0}, {0, 0}}) {
        const testing::Dims dims{std::nullopt, rows, cols};
        auto x = testing::make_tensor(MXQ_FORMAT_F32, dims), q = testing::make_quantized({}, dims, false), q_swizzled = testing::make_quantized({}, dims, true);
        ok(mxq_tensor_set_part(q, MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0));
        ok(mxq_tensor_set_part(q_swizzled, MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0));
        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, rows, rows}, 0);
        Graph graph(stream, [&] {
            ok(mxq_quantize(device.context, nullptr, x, q, nullptr, 0, stream.handle));
            ok(mxq_dequantize(device.context, nullptr, q, x, nullptr, 0, stream.handle));
            ok(mxq_swizzle_scales(device.context, nullptr, q, q_swizzled, nullptr, 0, stream.handle));
            ok(mxq_unswizzle_scales(device.context, nullptr, q_swizzled, q, nullptr, 0, stream.handle));
            ok(mxq_gemm(device.context, nullptr, q, q, d.tensor, nullptr, 0, stream.handle));
        });
        graph.replay();
        for (float value : d.values()) CHECK(value == 0);  // K = 0 gives zeros
        ++ran;
    }
    CHECK(ran == 3);
}

#endif
