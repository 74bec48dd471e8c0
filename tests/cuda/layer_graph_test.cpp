// The steps of an expert layer in a CUDA graph, which is replayed with other routings.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("graph: 100 routings, rows and sums", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "../verbs/routing.h"
#include "graph.h"

using testing::Buffer;
using testing::Bytes;
using testing::Draw;
using testing::ok;

namespace {

// A routing, rows of tokens quantized by index, and the sums of the rows of another tensor.
class Steps {
public:
    Steps(testing::Device& device, const testing::Choices& choices)
        : device_(device),
          routing(device, choices, MXQ_TYPE_INT32),
          x_(device, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, choices.tokens * cols, 1)),
          y_(device, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, choices.rows() * cols, 2)),
          sums_(device, static_cast<size_t>(choices.tokens * cols * 4)),
          rows_(matrix(MXQ_FORMAT_BF16, choices.rows())),
          codes_(matrix(MXQ_FORMAT_MXFP8_E4M3, choices.rows())),
          in_(matrix(MXQ_FORMAT_BF16, choices.rows())),
          out_(matrix(MXQ_FORMAT_F32, choices.tokens)) {
        ok(mxq_tensor_set_routing_rows(rows_, routing.handle));
        ok(mxq_tensor_set_const_data(rows_, x_.data(), x_.bytes()));
        uint64_t bytes = 0;
        ok(mxq_tensor_total_bytes(codes_, MXQ_PART_ROWWISE, &bytes));
        quantized_ = std::make_unique<Buffer>(device, static_cast<size_t>(bytes));
        ok(mxq_tensor_set_memory(codes_, MXQ_PART_ROWWISE, quantized_->data(), quantized_->bytes()));
        ok(mxq_tensor_set_routing_groups(codes_, routing.handle));
        ok(mxq_tensor_set_const_data(in_, y_.data(), y_.bytes()));
        ok(mxq_tensor_set_data(out_, sums_.data(), sums_.bytes()));
    }
    void run(void* stream) const {
        ok(routing.route(stream));
        ok(mxq_quantize(device_.context, nullptr, rows_, codes_, nullptr, 0, stream));
        ok(mxq_combine(device_.context, nullptr, routing.handle, in_, nullptr, out_, nullptr, 0, stream));
    }
    // Clears what rows past the last end keep.
    void poison() const {
        const Bytes bytes(quantized_->bytes(), testing::poison);
        device_.to_device(quantized_->data(), bytes.data(), bytes.size());
    }
    Bytes result() const {
        Bytes all = routing.written();
        for (const Buffer* buffer : std::initializer_list<const Buffer*>{quantized_.get(), &sums_}) {
            const Bytes more = buffer->read();
            all.insert(all.end(), more.begin(), more.end());
        }
        return all;
    }

private:
    static constexpr int64_t cols = 256;
    static testing::Tensor matrix(int32_t format, int64_t rows) { return testing::make_tensor(format, {std::nullopt, rows, cols}); }

    testing::Device& device_;

public:
    testing::DeviceRouting routing;

private:
    Buffer x_, y_, sums_;
    testing::Tensor rows_, codes_, in_, out_;
    std::unique_ptr<Buffer> quantized_;
};

}  // namespace

TEST_CASE("graph: 100 routings, rows and sums", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    int compared = 0;
    for (const auto& [tokens, choices, experts] : {std::tuple<int64_t, int32_t, int32_t>{37, 4, 32}, {3000, 4, 128}}) {
        const auto first = testing::draw_choices(tokens, choices, experts, Draw::uniform, 1);
        Steps steps(*testing::cuda(), first), expected(testing::cpu(), first);
        testing::Stream stream;
        testing::Graph graph(stream, [&] { steps.run(stream.handle); });
        CHECK(graph.nodes() == 3);
        for (int replay = 0; replay < 100; ++replay) {
            const auto ids = testing::draw_choices(tokens, choices, experts, static_cast<Draw>(replay % 4), static_cast<uint64_t>(replay) + 2).ids;
            for (Steps* each : {&steps, &expected}) each->routing.write_ids(ids, MXQ_TYPE_INT32), each->poison();
            graph.replay();
            expected.run(nullptr);
            if (const auto text = testing::difference(steps.result(), expected.result()); !text.empty())
                FAIL(tokens << " tokens, replay " << replay << ": " << text);
            ++compared;
        }
    }
    CHECK(compared == 200);
}

namespace {

// A replay gives the bits of a call with the same ids. Returns the kernels of the graph.
size_t replay_layer(testing::Device& device, int64_t tokens) {
    constexpr int64_t width = 256, inner = 384, experts = 8;
    const auto first = testing::draw_choices(tokens, 2, experts, Draw::uniform, 1);
    const testing::Dims up{experts, 2 * inner, width}, down{experts, width, inner};
    const oracle::Spec spec = testing::spec_of(MXQ_FORMAT_MXFP4, MXQ_SCALING_1X32);
    testing::DeviceRouting routing(device, first, MXQ_TYPE_INT32);
    const Buffer x(device, cases::plain_values(MXQ_FORMAT_BF16, cases::Values::normal, tokens * width, 2)), sums(device, tokens * width * 2);
    auto w_up = testing::make_tensor(spec, up, false), w_down = testing::make_tensor(spec, down, false),
         in = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, tokens, width}), out = testing::make_tensor(MXQ_FORMAT_BF16, {std::nullopt, tokens, width});
    const auto content = [&](const testing::Dims& dims, uint64_t seed) {
        return oracle::quantize(spec, cases::values(cases::Values::normal, dims.shape().count(), seed), dims.shape(), MXQ_PART_ROWWISE, false);
    };
    const testing::InputPart of_up(device, w_up, spec, MXQ_PART_ROWWISE, content(up, 3)), of_down(device, w_down, spec, MXQ_PART_ROWWISE, content(down, 4));
    ok(mxq_tensor_set_const_data(in, x.data(), x.bytes()));
    ok(mxq_tensor_set_data(out, sums.data(), sums.bytes()));
    testing::Plan plan;
    ok(mxq_expert_layer_query(device.context, nullptr, in, routing.handle, w_up, w_down, out, plan.out()));
    const Buffer workspace(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    const auto run = [&](void* stream) {
        ok(mxq_expert_layer(device.context, nullptr, in, routing.handle, w_up, w_down, out, workspace.data(), workspace.bytes(), stream));
    };
    testing::Stream stream;
    testing::Graph graph(stream, [&] { run(stream.handle); });
    const Bytes poison(sums.bytes(), testing::poison);
    int compared = 0;
    Bytes before;
    for (int replay = 0; replay < 40; ++replay) {
        routing.write_ids(testing::draw_choices(tokens, 2, experts, static_cast<Draw>(replay % 4), static_cast<uint64_t>(replay) + 2).ids, MXQ_TYPE_INT32);
        device.to_device(sums.data(), poison.data(), poison.size());
        graph.replay();
        const Bytes replayed = sums.read();
        device.to_device(sums.data(), poison.data(), poison.size());
        run(stream.handle);
        testing::cuda_ok(cudaStreamSynchronize(stream.handle));
        if (const auto text = testing::difference(replayed, sums.read()); !text.empty()) FAIL("replay " << replay << ": " << text);
        CHECK(replayed != before);
        before = replayed;
        ++compared;
    }
    workspace.read();
    CHECK(compared == 40);
    return graph.nodes();
}

}  // namespace

TEST_CASE("graph: an expert layer, replayed with other routings", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    CHECK(replay_layer(*testing::cuda(), 24) >= 5);
    CHECK(replay_layer(*testing::cuda(), 8) == 3);
}
#endif
