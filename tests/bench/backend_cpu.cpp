#include "backend.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <thread>

#include "mxq_handles.hpp"

namespace {

constexpr int repeats = 9;
constexpr size_t copied = size_t(256) << 20;  // far beyond the last level cache
constexpr std::align_val_t alignment{256};

std::string cpu_model() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "CPU of unknown model";
}

class CpuBackend final : public Backend {
public:
    explicit CpuBackend(int threads) : threads_(threads) {
        using namespace mxq_handles;
        auto options = make<ContextOptions>(mxq_context_options_create);
        check(mxq_context_options_set_threads(options.get(), threads));
        context_ = make<Context>(mxq_context_create, MXQ_DEVICE_CPU, 0, options.get());
        from_ = allocate(copied);
        to_ = allocate(copied);
        std::memcpy(from_.get(), random_words(copied).data(), copied);
        std::memset(to_.get(), 1, copied);  // maps its pages
    }
    mxq_context* context() override { return context_.get(); }
    void* stream() override { return nullptr; }
    std::string machine() override {
        return cpu_model() + ", " + std::to_string(usable_cores()) + " cores; " +
               mxq_context_description(context_.get());
    }
    std::shared_ptr<void> allocate(size_t bytes) override {
        return {::operator new(bytes, alignment), [](void* p) { ::operator delete(p, alignment); }};
    }
    void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void wait() override {}

    std::vector<double> median_ms(const std::vector<std::function<void()>>& calls) override {
        using clock = std::chrono::steady_clock;
        std::vector<std::vector<double>> times(calls.size());
        for (int repeat = -1; repeat < repeats; ++repeat) {  // the first time round is for page faults and clocks
            for (size_t i = 0; i < calls.size(); ++i) {
                const auto start = clock::now();
                calls[i]();
                const double ms = std::chrono::duration<double, std::milli>(clock::now() - start).count();
                if (repeat >= 0) times[i].push_back(ms);
            }
        }
        std::vector<double> medians;
        for (auto& time : times) medians.push_back(median(time));
        return medians;
    }

    void copy() override {
        const size_t slice = copied / threads_;
        const auto copy_slice = [&](int i) {
            const size_t begin = i * slice, end = i + 1 == threads_ ? copied : begin + slice;
            std::memcpy(static_cast<char*>(to_.get()) + begin, static_cast<char*>(from_.get()) + begin, end - begin);
        };
        std::vector<std::thread> team;
        for (int i = 1; i < threads_; ++i) team.emplace_back(copy_slice, i);
        copy_slice(0);
        for (auto& thread : team) thread.join();
    }
    double copy_bytes() const override { return 2.0 * copied; }

private:
    const int threads_;
    mxq_handles::Context context_;
    std::shared_ptr<void> from_, to_;
};

}  // namespace

int usable_cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : int(std::thread::hardware_concurrency());
}

std::vector<uint32_t> random_words(size_t bytes) {
    std::mt19937 random(54321);
    std::vector<uint32_t> words(bytes / sizeof(uint32_t));
    std::generate(words.begin(), words.end(), random);
    return words;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::unique_ptr<Backend> cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }
