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
#endif
