// One context that serves 64 streams at once, from several threads.
#include "../catch.h"

#ifndef MXQ_TESTS_CUDA
TEST_CASE("streams: 64 on one context", "[cuda]") { MXQ_SKIP("a build without CUDA"); }
#else

#include "graph.h"
#include "graph_calls.h"

#include <iterator>
#include <thread>

using testing::Bytes;
using testing::cuda_ok;

namespace {

constexpr size_t stream_count = 64, thread_count = 4;
constexpr int64_t one_of = 7;

// Enqueues all calls from several threads. `shared`: threads have streams in common; else each stream has one thread.
std::vector<std::string> enqueue(const graph_calls::Calls& calls, const std::vector<testing::Stream>& streams, bool shared) {
    std::vector<std::string> failures(thread_count);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < thread_count; ++t)
        threads.emplace_back([&, t] {
            try {
                for (size_t i = t; i < calls.size(); i += thread_count)
                    calls[i]->run(streams[(shared ? i / thread_count : i) % stream_count].handle);
            } catch (const std::exception& error) {
                failures[t] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return failures;
}

}  // namespace

// Conversions write what the CPU does, and products what a call alone does.
TEST_CASE("streams: 64 on one context", "[cuda]") {
    if (!testing::cuda()) MXQ_SKIP("no CUDA device");
    testing::Device& device = *testing::cuda();
    auto calls = graph_calls::conversions(device, one_of);
    const auto expected = graph_calls::conversions(testing::cpu(), one_of);
    REQUIRE(calls.size() == expected.size());
    auto products = graph_calls::products(device, one_of);
    std::move(products.begin(), products.end(), std::back_inserter(calls));
    REQUIRE(calls.size() > 20 * stream_count);
    const std::vector<testing::Stream> streams(stream_count);
    int compared = 0;
    for (int round = 0; round < graph_calls::rounds; ++round) {
        for (const auto& call : calls) call->reset(round);
        cuda_ok(cudaDeviceSynchronize());
        CHECK(enqueue(calls, streams, round % 2 == 1) == std::vector<std::string>(thread_count));
        cuda_ok(cudaDeviceSynchronize());
        for (size_t i = 0; i < calls.size(); ++i) {
            const Bytes got = calls[i]->result();
            const graph_calls::Call& call = i < expected.size() ? *expected[i] : *calls[i];
            call.reset(round);
            call.run(nullptr);
            if (const auto text = testing::difference(got, call.result()); !text.empty())
                FAIL_CHECK(calls[i]->verb << " by " << calls[i]->implementation << ", " << calls[i]->text << ", round " << round
                                          << ": " << text);
            ++compared;
        }
    }
    CHECK(compared == graph_calls::rounds * static_cast<int>(calls.size()));
}

#endif
