// Contexts on two devices, used by threads that have the other one current and an error of their own pending. Needs two GPUs.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("two devices: contexts on both, whichever is current", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "graph.h"
#include "graph_calls.h"

#include <iterator>
#include <thread>

using testing::Bytes;
using testing::cuda_ok;

namespace {

constexpr int64_t one_of = 23;

// A device that is current as long as this lives.
class Current {
public:
    explicit Current(int ordinal) {
        cuda_ok(cudaGetDevice(&before_));
        cuda_ok(cudaSetDevice(ordinal));
    }
    ~Current() { cudaSetDevice(before_); }
    Current(const Current&) = delete;

private:
    int before_ = 0;
};

// Calls on one device, with their memory and a stream there.
class OnDevice {
public:
    explicit OnDevice(int ordinal) : ordinal_(ordinal) {
        const Current current(ordinal == 0 ? 1 : 0);  // the context is created while the other is current
        mxq_context* context = nullptr;
        testing::ok(mxq_context_create(MXQ_DEVICE_CUDA, ordinal, nullptr, &context));
        int now = -1;
        cuda_ok(cudaGetDevice(&now));
        if (now == ordinal) throw std::runtime_error("mxq_context_create changed the current device");
        const Current own(ordinal);
        device_ = std::make_unique<testing::Device>(MXQ_DEVICE_CUDA, context);
        stream_ = std::make_unique<testing::Stream>();
        calls = graph_calls::conversions(*device_, one_of);
        conversions_ = calls.size();
        auto products = graph_calls::products(*device_, one_of);
        std::move(products.begin(), products.end(), std::back_inserter(calls));
    }
    ~OnDevice() {
        const Current own(ordinal_);
        calls.clear();
        stream_.reset();
        device_.reset();
    }

    // Runs all calls while `current` is current and an error is pending. Returns what changed for the caller, or "".
    std::string run(int current) const {
        cuda_ok(cudaSetDevice(current));
        const cudaError_t pending = cudaSetDevice(9999);
        for (const auto& call : calls) {
            call->run(stream_->handle);
            int now = -1;
            if (cudaGetDevice(&now) != cudaSuccess || now != current) return call->verb + " changes the current device";
            if (cudaPeekAtLastError() != pending) return call->verb + " takes the caller's error";
        }
        return cudaGetLastError() == pending ? "" : "the caller's error is gone";
    }
    // Returns what is not as the CPU has it, or, of products, as another call writes it.
    std::string complaint(const graph_calls::Calls& expected, int round) const {
        const Current own(ordinal_);
        cuda_ok(cudaStreamSynchronize(stream_->handle));
        for (size_t i = 0; i < calls.size(); ++i) {
            const Bytes got = calls[i]->result();
            const graph_calls::Call& call = i < conversions_ ? *expected[i] : *calls[i];
            call.reset(round);
            call.run(nullptr);
            if (const auto text = testing::difference(got, call.result()); !text.empty())
                return calls[i]->verb + " by " + calls[i]->implementation + ", " + calls[i]->text + ": " + text;
        }
        return "";
    }
    void reset(int round) const {
        const Current own(ordinal_);
        for (const auto& call : calls) call->reset(round);
        cuda_ok(cudaDeviceSynchronize());
    }

    graph_calls::Calls calls;

private:
    int ordinal_;
    size_t conversions_ = 0;
    std::unique_ptr<testing::Device> device_;
    std::unique_ptr<testing::Stream> stream_;
};

}  // namespace

TEST_CASE("two devices: contexts on both, whichever is current", "[cuda]") {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) MXQ_SKIP("needs two CUDA devices");
    const OnDevice first(0), second(1);
    const auto expected = graph_calls::conversions(testing::cpu(), one_of);
    REQUIRE(first.calls.size() > 300);
    REQUIRE(first.calls.size() == second.calls.size());
    for (const bool crossed : {false, true}) {
        first.reset(crossed), second.reset(crossed);
        std::string complaints[2];
        const auto work = [&](const OnDevice& device, int current, std::string& complaint) {
            try {
                complaint = device.run(current);
            } catch (const std::exception& error) {
                complaint = error.what();
            }
        };
        std::thread one(work, std::cref(first), crossed ? 1 : 0, std::ref(complaints[0]));
        std::thread two(work, std::cref(second), crossed ? 0 : 1, std::ref(complaints[1]));
        one.join(), two.join();
        CHECK(complaints[0] == "");
        CHECK(complaints[1] == "");
        CHECK(first.complaint(expected, crossed) == "");
        CHECK(second.complaint(expected, crossed) == "");
    }
}

#endif
