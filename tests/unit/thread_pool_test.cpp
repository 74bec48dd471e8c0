// cpu/thread_pool.h runs every chunk once, never gives two running workers the same number, and computes with the
// floating-point settings that the contract needs.
#include "../catch.h"
#include "cpu/thread_pool.h"

#include <numeric>
#include <set>
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

TEST_CASE("thread pool: many callers at once") {
    mxq::cpu::ThreadPool pool(3);
    std::atomic<int64_t> sum{0};
    std::vector<std::thread> callers;
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
