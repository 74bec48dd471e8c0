// Many threads use one context at once, and each thread keeps its own error message.
#include "../cases.h"
#include "says.h"

#include <atomic>
#include <thread>

using testing::ok;

MXQ_EACH_DEVICE("threads: two use one context at once, each with its own result") {
    const testing::Dims dims{std::nullopt, 257, 300};
    std::atomic<int> good{0};
    std::vector<std::string> complaints(2);
    auto work = [&](size_t thread) {
        try {
            oracle::Spec spec;
            spec.rounding = thread ? MXQ_SCALE_ROUNDING_FLOOR : MXQ_SCALE_ROUNDING_RCEIL;
            oracle::Floats x = cases::values(cases::Values::wide, dims.shape().count(), thread);
            oracle::Part expected = oracle::quantize(spec, x, dims.shape(), MXQ_PART_ROWWISE, false);
            testing::Device mine(device.type, nullptr);  // a pool of memory of this thread's own
            testing::Buffer data(mine, oracle::store(MXQ_FORMAT_F32, x));
            auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), out = testing::make_quantized(spec, dims, false);
            auto options = testing::quantize_options(spec);
            ok(mxq_tensor_set_data(in, data.data(), data.bytes()));
            for (int round = 0; round < 50; ++round) {
                testing::PartBuffers part(mine, out, MXQ_PART_ROWWISE);
                ok(mxq_quantize(device.context, options, in, out, nullptr, 0, nullptr));
                if (part.codes->read() == expected.codes && part.scales->read() == expected.scales) ++good;
            }
        } catch (const std::exception& error) {
            complaints[thread] = error.what();
        }
    };
    std::thread first(work, 0), second(work, 1);
    first.join(), second.join();
    CHECK(complaints == std::vector<std::string>(2));
    CHECK(good == 100);
}

TEST_CASE("threads: the message belongs to the thread that failed") {
    CHECK(mxq_format_property(-5, 1, nullptr) == MXQ_STATUS_INVALID_ARGUMENT);
    std::string before = mxq_last_error(), at_first = "?", after_failure;
    CHECK(before != "");
    std::thread([&] {
        at_first = mxq_last_error();
        mxq_tensor_create_2d(77, 1, 1, nullptr);
        after_failure = mxq_last_error();
    }).join();
    CHECK(at_first == "");
    CHECK(after_failure.find("mxq_tensor_create_2d") != std::string::npos);
    CHECK(mxq_last_error() == before);
    testing::Tensor tensor;
    ok(mxq_tensor_create_2d(MXQ_FORMAT_F32, 1, 1, tensor.out()));
    CHECK(mxq_last_error() == before);  // a call that succeeds leaves the message as it is
}
