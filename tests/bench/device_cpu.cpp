#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <thread>

#include "device.h"
#include "library.h"

namespace {

constexpr size_t usual_copy = size_t(256) << 20;  // far beyond the last level cache
constexpr std::align_val_t alignment{256};
constexpr int warmups = 1;  // for page faults and clocks

std::string cpu_model() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "CPU of unknown model";
}

// Reads words [begin, end) of each stream in `from` and writes the same of each in `to`; returns what keeps the reads alive.
template <int reads, int writes>
uint64_t pass_slice(const uint64_t* from, uint64_t* to, size_t stream_words, size_t begin, size_t end) {
    uint64_t all = 0;
    for (size_t i = begin; i < end; ++i) {
        uint64_t word = from[i];
        if constexpr (reads > 1) word ^= from[stream_words + i];
        if constexpr (writes == 0) all ^= word;
        if constexpr (writes > 0) to[i] = word;
        if constexpr (writes > 1) to[stream_words + i] = word;
    }
    return all;
}

using PassSlice = uint64_t (*)(const uint64_t*, uint64_t*, size_t, size_t, size_t);

PassSlice pass_of(Mix mix) {
    if (mix.writes == 0) return pass_slice<1, 0>;
    if (mix.reads == 1) return mix.writes == 1 ? pass_slice<1, 1> : pass_slice<1, 2>;
    return mix.writes == 1 ? pass_slice<2, 1> : pass_slice<2, 2>;
}

class CpuDevice final : public Device {
public:
    CpuDevice(int threads, int repeats, size_t copied)
        : Device(repeats > 0 ? repeats : 9, warmups), threads_(threads), copied_(copied ? copied : usual_copy) {
        from_ = allocate(copied_);
        to_ = allocate(copied_);
        std::memcpy(from_.get(), random_words(copied_).data(), copied_);
        std::memset(to_.get(), 1, copied_);  // maps its pages
    }
    std::string machine() override { return cpu_model() + ", " + std::to_string(usable_cores()) + " cores"; }
    void* stream() override { return nullptr; }
    std::shared_ptr<void> allocate(size_t bytes) override {
        return {::operator new(bytes, alignment), [](void* p) { ::operator delete(p, alignment); }};
    }
    void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void duplicate(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void wait() override {}

    std::vector<double> turn_us(const std::vector<Call>& calls) override {
        using clock = std::chrono::steady_clock;
        std::vector<double> times;
        for (const Call& call : calls) {
            const auto start = clock::now();
            call();
            times.push_back(std::chrono::duration<double, std::micro>(clock::now() - start).count());
        }
        return times;
    }

    std::vector<double> graph_times_us(const std::vector<std::vector<Call>>&) override {
        throw LeftOut("--graph needs --device cuda");
    }
    size_t rotated_bytes() override { return copied_; }
    std::vector<double> rotated_times_us(const std::vector<std::vector<Call>>& lists) override {
        constexpr double least_us = 20e3;  // of the calls that are timed together
        std::vector<double> least(lists.size(), INFINITY);
        size_t turn = 0;  // goes on from list to list, so that none takes what the one before it left in the caches
        for (int repeat = -warmups; repeat < repeats_; ++repeat)
            for (size_t i = 0; i < lists.size(); ++i) {
                const size_t before = turn;
                const double start = now_us();
                double us = 0;
                while (us < least_us) lists[i][turn++ % lists[i].size()](), us = now_us() - start;
                if (repeat >= 0) least[i] = std::min(least[i], us / double(turn - before));
            }
        return least;
    }
    int launches(const Call&) override { return 0; }
    void launch_nothing() override {}

    void copy() override {
        share(copied_, [&](size_t begin, size_t end) {
            std::memcpy(static_cast<char*>(to_.get()) + begin, static_cast<char*>(from_.get()) + begin, end - begin);
        });
    }
    double copied_bytes() const override { return double(copied_); }

    void stream_pass(Mix mix) override {
        const size_t words = size_t(streamed_bytes(mix)) / sizeof(uint64_t);
        const PassSlice pass = pass_of(mix);
        share(words, [&](size_t begin, size_t end) {
            volatile uint64_t kept =
                pass(static_cast<uint64_t*>(from_.get()), static_cast<uint64_t*>(to_.get()), words, begin, end);
            (void)kept;
        });
    }

private:
    // Returns the CPU time of this thread where it does all the work, else the time.
    double now_us() const {
        timespec now{};
        clock_gettime(threads_ == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
        return double(now.tv_sec) * 1e6 + double(now.tv_nsec) * 1e-3;
    }

    // Runs work(begin, end) on as many threads as the library has.
    template <class Work>
    void share(size_t count, const Work& work) {
        const size_t slice = count / threads_;
        const auto run = [&](int i) { work(i * slice, i + 1 == threads_ ? count : (i + 1) * slice); };
        std::vector<std::thread> team;
        for (int i = 1; i < threads_; ++i) team.emplace_back(run, i);
        run(0);
        for (auto& thread : team) thread.join();
    }

    const int threads_;
    const size_t copied_;
    std::shared_ptr<void> from_, to_;
};

}  // namespace

std::unique_ptr<Device> cpu_device(int threads, int repeats, size_t copied) {
    return std::make_unique<CpuDevice>(threads, repeats, copied);
}
