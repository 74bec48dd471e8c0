// Spreads the work of the tests over all cores. Each call must write memory of its own, so that the result does not depend
// on the number of cores.
#ifndef MXQ_TESTS_PARALLEL_H
#define MXQ_TESTS_PARALLEL_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace testing {

// The number of steps, each of about a nanosecond, below which a thread is not worth its start.
inline constexpr int64_t steps_of_a_thread = 2'000'000;

// Calls work(i) for every i below `count`, where one call takes about `steps` steps. Rethrows what a call throws.
template <class Work>
void parallel_for(int64_t count, int64_t steps, Work work) {
    const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
    const int64_t threads = std::min({cores, count, count * steps / steps_of_a_thread});
    std::atomic<int64_t> next{0};
    std::exception_ptr error;
    std::mutex error_mutex;
    const auto run = [&] {
        try {
            for (int64_t i; (i = next++) < count;) work(i);
        } catch (...) {
            const std::lock_guard lock(error_mutex);
            error = std::current_exception();
        }
    };
    std::vector<std::thread> helpers;
    for (int64_t t = 1; t < threads; ++t) helpers.emplace_back(run);
    run();
    for (auto& helper : helpers) helper.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace testing

#endif
