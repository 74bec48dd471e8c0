// cpu/thread_pool.h runs every chunk once, never gives two running workers the same number, and computes with the
// floating-point settings that the contract needs.
#include "../abi/tasks.h"
#include "../catch.h"
#include "cpu/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <numeric>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

TEST_CASE("thread pool: every chunk once, for any number of threads and chunks") {
    int ran = 0;
    for (int threads : {1, 2, 3, 8}) {
        mxq::cpu::ThreadPool pool(threads);
        CHECK(pool.threads() == threads);
        for (int64_t chunks : {0, 1, 2, 7, 1000}) {
            std::vector<std::atomic<int>> counts(static_cast<size_t>(chunks));
            std::vector<std::atomic<int>> busy(static_cast<size_t>(threads));
            std::atomic<int> wrong{0};
            pool.run(chunks, [&](int64_t chunk, int worker) {
                if (worker < 0 || worker >= threads || busy[static_cast<size_t>(worker)]++ != 0) ++wrong;
                ++counts[static_cast<size_t>(chunk)];
                --busy[static_cast<size_t>(worker)];
            });
            for (auto& count : counts) wrong += count != 1;
            CHECK(wrong == 0);
            ++ran;
        }
    }
    CHECK(ran == 20);
}

// Threads look for work for a moment after their last. Then they sleep: an idle host keeps its processors.
TEST_CASE("thread pool: without work its threads use no processor") {
    mxq::cpu::ThreadPool pool(4);
    std::atomic<int> workers{0};
    pool.run(4, [&](int64_t, int) {  // waits for the other chunks, so that every thread has one
        ++workers;
        while (workers < 4) usleep(100);
    });
    const auto processor_ms = [] { return static_cast<double>(std::clock()) * 1000 / CLOCKS_PER_SEC; };
    const double before = processor_ms();
    usleep(200'000);
    CHECK(processor_ms() - before < 20);
}

TEST_CASE("thread pool: many callers at once") {
    mxq::cpu::ThreadPool pool(3);
    std::atomic<int64_t> sum{0};
    std::vector<std::thread> callers;
    callers.reserve(6);
    for (int i = 0; i < 6; ++i)
        callers.emplace_back([&] {
            for (int round = 0; round < 100; ++round) pool.run(10, [&](int64_t chunk, int) { sum += chunk; });
        });
    for (auto& caller : callers) caller.join();
    CHECK(sum == 6 * 100 * 45);
}

#if defined(__SSE2__)
// The caller flushes subnormals and rounds up. Chunks must do neither, on any thread, and the caller's settings must return.
TEST_CASE("thread pool: rounds to nearest and keeps subnormals, whatever the caller does") {
    mxq::cpu::ThreadPool pool(2);
    const unsigned before = _mm_getcsr(), odd = before | 0x8040 | 0x4000;  // adds FTZ, DAZ and rounding up
    std::atomic<int> wrong{0};
    _mm_setcsr(odd);
    pool.run(64, [&](int64_t, int) { wrong += (_mm_getcsr() & 0xE040) != 0; });
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK((after & 0xE040) == (odd & 0xE040));
    CHECK(wrong == 0);
}
#endif

namespace {

// Returns the signals that a thread blocks, a bit each.
uint64_t blocked_signals(const std::string& task) {
    std::ifstream status("/proc/self/task/" + task + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("SigBlk:", 0) == 0) return std::stoull(line.substr(7), nullptr, 16);
    return 0;
}

}  // namespace

TEST_CASE("thread pool: its threads block signals, so that no handler of the host runs on them") {
    const std::set<std::string> before = testing::tasks();
    mxq::cpu::ThreadPool pool(3);
    std::atomic<int> running{0};
    pool.run(3, [&](int64_t, int) {  // until all have begun: the C library starts threads with signals blocked
        for (++running; running < 3;) std::this_thread::yield();
    });
    int threads = 0;
    for (const std::string& task : testing::tasks()) {
        if (before.count(task)) continue;
        for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM}) CHECK((blocked_signals(task) >> (signal - 1) & 1) == 1);
        ++threads;
    }
    CHECK(threads == 2);
    CHECK((blocked_signals(std::to_string(getpid())) >> (SIGUSR1 - 1) & 1) == 0);
}

// A child may be made while a thread of its parent holds the pool's mutex, which nobody gives back in the child.
TEST_CASE("thread pool: a child that is forked in the midst of calls does its own work") {
    mxq::cpu::ThreadPool pool(4);
    std::atomic<bool> done{false};
    std::vector<std::thread> callers;
    callers.reserve(2);
    for (int i = 0; i < 2; ++i)
        callers.emplace_back([&] {
            while (!done) pool.run(3, [](int64_t, int) {});
        });
    int good = 0;
    for (int i = 0; i < 100 && good == i; ++i) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(10);
            std::atomic<int> chunks{0};
            for (int run = 0; run < 20; ++run) pool.run(3, [&](int64_t, int) { ++chunks; });
            _exit(chunks == 60 ? 0 : 1);
        }
        int status = 0;
        good += waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    done = true;
    for (auto& caller : callers) caller.join();
    CHECK(good == 100);
}
