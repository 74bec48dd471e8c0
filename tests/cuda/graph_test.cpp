// Every verb inside a CUDA graph. In this executable every kernel's first call, in each of its instances, happens under
// capture: what a context does not load at its creation would show.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("graph: every verb captured and replayed", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "../oracle_groups.h"
#include "../verbs/product.h"

#include <functional>
#include <iterator>

using testing::Bytes;
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
    size_t nodes() const {
        size_t count = 0;
        cuda_ok(cudaGraphGetNodes(graph_, nullptr, &count));
        return count;
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
    ok(testing::set_ends(grouped_q, ends.data(), MXQ_TYPE_INT32, 2));
    auto narrow = testing::make_tensor(MXQ_FORMAT_F16, dims);
    testing::Buffer narrow_data(device, m * k * 2);
    ok(mxq_tensor_set_data(narrow, narrow_data.data(), narrow_data.bytes()));
    testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0), grouped_d(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);

    testing::Buffer workspace(device, 1 << 20);
    auto by_name = testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, "mma_bf16");
    Graph graph(stream, [&] {
        ok(mxq_quantize(context, nullptr, x, q, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_dequantize(context, nullptr, q, back, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_convert(context, nullptr, back, narrow, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_swizzle_scales(context, nullptr, row_only, q_swizzled, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_unswizzle_scales(context, nullptr, q_swizzled, q_again, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_gemm(context, by_name, q, w, d.tensor, workspace.data(), workspace.bytes(), stream.handle));
        ok(mxq_grouped_gemm(context, by_name, grouped_q, experts, grouped_d.tensor, workspace.data(), workspace.bytes(), stream.handle));
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

        double factor = oracle::bound_factor({"mma_bf16", MXQ_BOUND_EXACT_PRODUCTS}, k);
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

namespace {

// One call of a verb on a device, in memory of its own, whose inputs are the same on every device.
class Call {
public:
    // `offset` 1 takes codes and scales the alignment that the widest loads need.
    Call(testing::Device& device, std::string name, size_t offset = 0) : name(std::move(name)), device_(device), offset_(offset) {}

    mxq_tensor* plain(int32_t format, testing::Dims dims, bool is_output) {
        mxq_tensor* tensor = keep(testing::make_tensor(format, dims));
        const size_t count = dims.shape().count(), bytes = count * static_cast<size_t>(oracle::plain_bytes(format));
        const auto& data = buffer(is_output ? Bytes(bytes, testing::poison) : cases::plain_values(format, cases::Values::specials, count, 1), is_output);
        ok(mxq_tensor_set_data(tensor, data.data(), data.bytes()));
        return tensor;
    }
    mxq_tensor* quantized(int32_t format, testing::Dims dims, int32_t part, bool is_output, bool swizzled = false, const testing::Buffer* ends = nullptr) {
        mxq_tensor* tensor = keep(testing::make_quantized({format}, dims, swizzled));
        if (ends) ok(testing::set_ends(tensor, ends->data(), MXQ_TYPE_INT32, static_cast<int32_t>(ends->bytes() / 4)));
        uint64_t code_bytes = 0, scale_bytes = 0;
        ok(mxq_tensor_required_bytes(tensor, part, &code_bytes, &scale_bytes));
        const auto &codes = buffer(codes_or_scales(code_bytes, is_output), is_output, offset_), &scales = buffer(codes_or_scales(scale_bytes, is_output), is_output, offset_);
        ok(mxq_tensor_set_part(tensor, part, codes.data(), codes.bytes(), scales.data(), scales.bytes()));
        return tensor;
    }
    const testing::Buffer& buffer(const Bytes& content, bool is_output, size_t offset = 0) {
        buffers_.push_back(std::make_unique<testing::Buffer>(device_, content, offset));
        if (is_output) outputs_.push_back(buffers_.back().get());
        return *buffers_.back();
    }
    mxq_gemm_options* transposes(int32_t a, int32_t b) {
        options_ = testing::exact_gemm_options(a, b, 0);
        return options_;
    }

    bool untouched() const {
        return std::all_of(outputs_.begin(), outputs_.end(), [](auto* output) { return output->untouched(); });
    }
    Bytes result() const {
        Bytes all;
        for (auto* output : outputs_) {
            const Bytes one = output->read();
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }

    std::string name;
    std::function<mxq_status(mxq_context*, void* stream)> run;

private:
    mxq_tensor* keep(testing::Tensor tensor) {
        tensors_.push_back(std::move(tensor));
        return tensors_.back();
    }
    static Bytes codes_or_scales(uint64_t count, bool is_output) {
        Bytes out(count, testing::poison);
        cases::Random random(count);
        for (auto& byte : out)
            if (!is_output) byte = static_cast<uint8_t>(random.below(124));  // finite in both formats
        return out;
    }

    testing::Device& device_;
    size_t offset_;
    std::vector<testing::Tensor> tensors_;
    std::vector<std::unique_ptr<testing::Buffer>> buffers_;
    std::vector<const testing::Buffer*> outputs_;
    testing::GemmOptions options_;
};

// Every verb but the products: each kernel in each of its instances.
std::vector<Call> conversions(testing::Device& device) {
    const testing::Dims dims{std::nullopt, 150, 100};
    std::vector<Call> calls;
    for (int32_t plain : cases::plain_formats)
        for (int32_t format : cases::formats)
            for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) {
                const std::string names = std::string(mxq_format_name(plain)) + ", " + mxq_format_name(format) + ", part " + std::to_string(part);
                Call to(device, "quantize " + names), from(device, "dequantize " + names);
                auto *x = to.plain(plain, dims, false), *q = to.quantized(format, dims, part, true);
                to.run = [=](mxq_context* context, void* stream) { return mxq_quantize(context, nullptr, x, q, nullptr, 0, stream); };
                auto *p = from.quantized(format, dims, part, false), *y = from.plain(plain, dims, true);
                from.run = [=](mxq_context* context, void* stream) { return mxq_dequantize(context, nullptr, p, y, nullptr, 0, stream); };
                calls.push_back(std::move(to)), calls.push_back(std::move(from));
            }
    for (bool to_swizzled : {true, false}) {
        Call call(device, to_swizzled ? "swizzle_scales" : "unswizzle_scales");
        auto verb = to_swizzled ? mxq_swizzle_scales : mxq_unswizzle_scales;
        auto *in = call.quantized(MXQ_FORMAT_MXFP8_E4M3, dims, MXQ_PART_ROWWISE, false, !to_swizzled),
             *out = call.quantized(MXQ_FORMAT_MXFP8_E4M3, dims, MXQ_PART_ROWWISE, true, to_swizzled);
        call.run = [=](mxq_context* context, void* stream) { return verb(context, nullptr, in, out, nullptr, 0, stream); };
        calls.push_back(std::move(call));
    }
    return calls;
}

// Products without groups, along rows and along the contraction; aligned, and with a K that is no multiple of 16 and pointers
// that are none either.
std::vector<Call> products(testing::Device& device) {
    const int64_t m = 150, n = 70;
    const int32_t e4m3 = MXQ_FORMAT_MXFP8_E4M3, e5m2 = MXQ_FORMAT_MXFP8_E5M2, row = MXQ_PART_ROWWISE, column = MXQ_PART_COLUMNWISE;
    const Bytes ends{32, 0, 0, 0, 128, 0, 0, 0};
    std::vector<Call> calls;
    auto add = [&](Call call, testing::ProductVerb verb, mxq_gemm_options* options, mxq_tensor* a, mxq_tensor* b, mxq_tensor* d) {
        const auto workspace = std::make_shared<testing::Buffer>(device, 1 << 20);
        call.run = [=](mxq_context* context, void* stream) {
            return verb(context, options, a, b, d, workspace->data(), workspace->bytes(), stream);
        };
        calls.push_back(std::move(call));
    };
    for (bool aligned : {true, false}) {
        const int64_t k = aligned ? 96 : 100;
        const size_t offset = aligned ? 0 : 1;
        const std::string suffix = aligned ? ", aligned" : ", unaligned";
        Call dense(device, "gemm" + suffix, offset), rows(device, "groups of rows" + suffix, offset), contraction(device, "groups of the contraction" + suffix, offset);
        auto *a = dense.quantized(e4m3, {std::nullopt, m, k}, row, false), *b = dense.quantized(e5m2, {std::nullopt, n, k}, row, false),
             *d = dense.plain(MXQ_FORMAT_F32, {std::nullopt, m, n}, true);
        auto* by_name = dense.transposes(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
        add(std::move(dense), mxq_gemm, by_name, a, b, d);

        const auto* of_rows = &rows.buffer(ends, false);
        a = rows.quantized(e5m2, {std::nullopt, m, k}, row, false, false, of_rows), b = rows.quantized(e4m3, {2, n, k}, row, false);
        d = rows.plain(MXQ_FORMAT_F32, {std::nullopt, m, n}, true);
        by_name = rows.transposes(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T);
        add(std::move(rows), mxq_grouped_gemm, by_name, a, b, d);

        const auto* of_both = &contraction.buffer(ends, false);
        a = contraction.quantized(e4m3, {std::nullopt, m, k}, column, false, true, of_both), b = contraction.quantized(e4m3, {std::nullopt, m, n}, column, false, true, of_both);
        d = contraction.plain(MXQ_FORMAT_F32, {2, k, n}, true);
        auto* options = contraction.transposes(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N);
        add(std::move(contraction), mxq_grouped_gemm, options, a, b, d);
    }
    return calls;
}

}  // namespace

TEST_CASE("graph: every instance of every kernel, its first call captured", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    Stream stream;
    auto calls = conversions(device), captured_products = products(device);
    std::move(captured_products.begin(), captured_products.end(), std::back_inserter(calls));
    int captured = 0;
    Graph graph(stream, [&] {
        for (Call& call : calls) {
            ok(call.run(device.context, stream.handle));
            ++captured;
        }
    });
    CHECK(captured == 3 * 2 * 2 * 2 + 2 + 6);
    CHECK(graph.nodes() >= calls.size());
    for (const Call& call : calls) CHECK(call.untouched());
    cuda_ok(cudaDeviceSynchronize());
    graph.replay();

    auto expected = conversions(testing::cpu()), eager = products(device);
    for (Call& call : expected) ok(call.run(testing::cpu().context, nullptr));
    for (Call& call : eager) ok(call.run(device.context, nullptr));
    std::move(eager.begin(), eager.end(), std::back_inserter(expected));
    REQUIRE(expected.size() == calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
        INFO(calls[i].name);
        CHECK(testing::difference(calls[i].result(), expected[i].result()) == "");
        CHECK(!calls[i].untouched());
    }
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
        testing::Buffer ends(device, Bytes{static_cast<uint8_t>(rows), 0, 0, 0});
        auto grouped_q = testing::make_quantized({}, dims, false), expert = testing::make_quantized({}, {1, rows, cols}, false);
        ok(testing::set_ends(grouped_q, ends.data(), MXQ_TYPE_INT32, 1));
        ok(mxq_tensor_set_part(grouped_q, MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0));
        ok(mxq_tensor_set_part(expert, MXQ_PART_ROWWISE, nullptr, 0, nullptr, 0));
        testing::Output d(device, MXQ_FORMAT_F32, {std::nullopt, rows, rows}, 0), grouped_d(device, MXQ_FORMAT_F32, {std::nullopt, rows, rows}, 0);
        Graph graph(stream, [&] {
            ok(mxq_quantize(device.context, nullptr, x, q, nullptr, 0, stream.handle));
            ok(mxq_dequantize(device.context, nullptr, q, x, nullptr, 0, stream.handle));
            ok(mxq_swizzle_scales(device.context, nullptr, q, q_swizzled, nullptr, 0, stream.handle));
            ok(mxq_unswizzle_scales(device.context, nullptr, q_swizzled, q, nullptr, 0, stream.handle));
            ok(mxq_gemm(device.context, nullptr, q, q, d.tensor, nullptr, 0, stream.handle));
            ok(mxq_grouped_gemm(device.context, nullptr, grouped_q, expert, grouped_d.tensor, nullptr, 0, stream.handle));
        });
        cuda_ok(cudaDeviceSynchronize());
        graph.replay();
        for (float value : d.values()) CHECK(value == 0);  // K = 0 gives zeros
        for (float value : grouped_d.values()) CHECK(value == 0);
        ++ran;
    }
    CHECK(ran == 3);
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
    auto a = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, rows, k}), b = testing::make_tensor(MXQ_FORMAT_BF16, {2, n, k});
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
    if (std::string(mxq_context_description(device.context)).find("sm_90") == std::string::npos) MXQ_SKIP("not an sm_90 device");
    Stream stream;
    const int64_t m = 300, k = 160, n = 200;
    auto a = testing::make_quantized({}, {std::nullopt, m, k}, false), b = testing::make_quantized({}, {2, n, k}, false);
    const auto a_operand = testing::make_operand({}, m, k, testing::Spread::normal, 1),
               b_operand = testing::make_operand({}, 2 * n, k, testing::Spread::normal, 2);
    testing::PartBuffers a_part(device, a, MXQ_PART_ROWWISE, a_operand.compact), b_part(device, b, MXQ_PART_ROWWISE, b_operand.compact);
    testing::Buffer ends(device, testing::Bytes{30, 0, 0, 0, 44, 1, 0, 0});  // 30 and 300
    ok(testing::set_ends(a, ends.data(), MXQ_TYPE_INT32, 2));
    testing::Output replayed(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0), called(device, MXQ_FORMAT_F32, {std::nullopt, m, n}, 0);
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
            const auto one = oracle::product(a_operand.values.data() + begin * k, k, b_operand.values.data() + g * n * k, k, rows, n, k);
            expected.insert(expected.end(), one.begin(), one.end());
        }
        // Normal numbers lose next to nothing by the move of their codes: far less than sums on FP8 tensor cores may.
        CHECK(oracle::check_product(expected, values, MXQ_FORMAT_F32, oracle::class_factor(MXQ_BOUND_REBASED_GUARDED, k)) == "");
        ++runs;
    }
    CHECK(runs == 4);
}

#endif
