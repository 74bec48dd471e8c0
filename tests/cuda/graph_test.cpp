// Every verb inside a CUDA graph. In this executable every kernel's first call happens under capture: what a context does
// not load at its creation would show.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("graph: every verb captured and replayed", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "../verbs/product.h"
#include "graph.h"
#include "graph_calls.h"

#include <iterator>
#include <memory>

using testing::Bytes;
using testing::cuda_ok;
using testing::Graph;
using testing::ok;
using testing::Stream;

// Conversions write the same bytes everywhere, so those of the CPU are expected; of products, those of a call without a
// capture.
TEST_CASE(
    "graph: every verb, format, part and layout, captured at its first call and replayed with other contents and groups",
    "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    Stream stream;
    auto calls = graph_calls::conversions(device), products = graph_calls::products(device);
    const auto expected = graph_calls::conversions(testing::cpu());
    REQUIRE(calls.size() == expected.size());
    std::move(products.begin(), products.end(), std::back_inserter(calls));
    std::map<std::string, int> captured;
    std::vector<std::unique_ptr<Graph> > graphs;  // of so many calls each, so that one that does not end is soon found
    constexpr size_t of_graph = 64;
    size_t nodes = 0;
    for (size_t first = 0; first < calls.size(); first += of_graph) {
        graphs.push_back(std::make_unique<Graph>(stream, [&] {
            for (size_t i = first; i < std::min(calls.size(), first + of_graph); ++i) {
                calls[i]->run(stream.handle);
                ++captured[calls[i]->verb];
            }
        }));
        nodes += graphs.back()->nodes();
    }
    std::string counts;
    for (const auto& [verb, count] : captured) counts += verb + " " + std::to_string(count) + " ";
    CHECK(counts ==
          "amax 80 convert 54 dequantize 1352 gemm 1572 grouped_gemm 1572 pad_groups 524 quantize 2524 "
          "requantize 2704 swizzle_scales 604 unpad_groups 524 unswizzle_scales 604 ");
    CHECK(nodes > calls.size() / 2);  // tensors without elements need none

    int compared = 0;
    for (int round = 0; round < graph_calls::rounds; ++round) {
        for (const auto& call : calls) call->reset(round);
        for (const auto& graph : graphs) graph->replay();
        std::vector<Bytes> replayed;
        for (const auto& call : calls) replayed.push_back(call->result());
        for (size_t i = 0; i < calls.size(); ++i) {
            const bool is_product = i >= expected.size();
            const graph_calls::Call& call = is_product ? *calls[i] : *expected[i];
            call.reset(round);
            call.run(nullptr);
            if (auto text = testing::difference(replayed[i], call.result()); !text.empty())
                FAIL_CHECK(calls[i]->verb << " by " << calls[i]->implementation << ", " << calls[i]->text << ", round "
                                          << round << ": " << text);
            ++compared;
        }
    }
    CHECK(compared == 3 * 12114);
}

// A replay may have other groups than those that the host knows now.
TEST_CASE("graph: ends on the host count as not given while a stream is captured", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    Stream stream;
    const int64_t rows = 64, n = 32, k = 64;
    const int32_t ends[] = {16, 64};
    testing::Buffer on_device(device, Bytes{16, 0, 0, 0, 64, 0, 0, 0}),
        x(device, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, rows * k, 1)),
        w(device, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, 2 * n * k, 2));
    auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, k}),
         b = testing::make_tensor(MXQ_FORMAT_BF16, {2, n, k});
    ok(mxq_tensor_set_data(a, x.data(), x.bytes()));
    ok(mxq_tensor_set_data(b, w.data(), w.bytes()));
    ok(testing::set_ends(a, on_device.data(), MXQ_TYPE_INT32, 2));
    ok(mxq_tensor_set_host_ends(a, ends, sizeof ends));
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, rows, n}, 0);
    auto by_name = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, "cublaslt");
    const bool has_it = mxq_grouped_gemm_query(device.context, by_name, a, b, d.tensor, nullptr) == MXQ_STATUS_OK;
    testing::Buffer workspace(device, size_t(64) << 20);
    const auto call = [&](mxq_gemm_options* options) {
        return mxq_grouped_gemm(device.context, options, a, b, d.tensor, workspace.data(), workspace.bytes(), stream.handle);
    };
    mxq_status refused = MXQ_STATUS_OK;
    std::string message;
    Graph graph(stream, [&] {
        refused = call(by_name);
        message = mxq_last_error();
        ok(call(nullptr));
    });
    CHECK(refused == MXQ_STATUS_UNSUPPORTED);
    if (has_it) CHECK(message.find("needs the ends of the groups on the host") != std::string::npos);
    CHECK(graph.nodes() > 0);
    graph.replay();
    const Bytes captured = d.bytes();
    CHECK(captured != Bytes(captured.size(), testing::poison));
    CHECK((call(by_name) == MXQ_STATUS_OK) == has_it);  // without a capture
}

// The pass and the product of wgmma_fp8_sm90, whose group ends and operands are read when the graph runs.
TEST_CASE("graph: wgmma_fp8_sm90 captured, replayed with other ends, and the same bits as a call", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    if (std::string(mxq_context_description(device.context)).find("sm_90") == std::string::npos)
        MXQ_SKIP("not an sm_90 device");
    Stream stream;
    const int64_t m = 300, k = 160, n = 200;
    auto a = testing::make_quantized({}, {std::nullopt, m, k}, false), b = testing::make_quantized({}, {2, n, k}, false);
    const auto a_operand = testing::make_operand({}, m, k, testing::Spread::normal, 1),
               b_operand = testing::make_operand({}, 2 * n, k, testing::Spread::normal, 2);
    testing::PartBuffers a_part(device, a, MXQ_PART_ROWWISE, a_operand.compact),
        b_part(device, b, MXQ_PART_ROWWISE, b_operand.compact);
    testing::Buffer ends(device, testing::Bytes{30, 0, 0, 0, 44, 1, 0, 0});  // 30 and 300
    ok(testing::set_ends(a, ends.data(), MXQ_TYPE_INT32, 2));
    testing::Output replayed(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0),
        called(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
    auto options = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, "wgmma_fp8_sm90");
    testing::Plan plan;
    ok(mxq_grouped_gemm_query(device.context, options, a, b, replayed.tensor, plan.out()));
    testing::Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    const auto multiply = [&](mxq_tensor* d) {
        ok(mxq_grouped_gemm(device.context, options, a, b, d, workspace.data(), workspace.bytes(), stream.handle));
    };
    Graph graph(stream, [&] { multiply(replayed.tensor); });
    int runs = 0;
    for (int32_t first : {30, 0, 299, 300}) {
        const int32_t now[] = {first, 300};
        device.to_device(ends.data(), now, sizeof now);
        cuda_ok(cudaDeviceSynchronize());
        graph.replay();
        multiply(called.tensor);
        cuda_ok(cudaStreamSynchronize(stream.handle));
        const auto values = replayed.values();
        CHECK(values == called.values());
        std::vector<oracle::Element> expected;
        for (int g = 0; g < 2; ++g) {
            const int64_t begin = g ? first : 0, rows = (g ? 300 : first) - begin;
            const auto one =
                oracle::product(a_operand.values.data() + begin * k, k, b_operand.values.data() + g * n * k, k, rows, n, k);
            expected.insert(expected.end(), one.begin(), one.end());
        }
        // Normal numbers lose next to nothing by the move of their codes: far less than sums on FP8 tensor cores may.
        CHECK(oracle::check_product(expected, values, MXQ_FORMAT_F32, oracle::class_factor(MXQ_BOUND_REBASED_GUARDED, k)) ==
              "");
        ++runs;
    }
    CHECK(runs == 4);
}

#endif
