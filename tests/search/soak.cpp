// mxq_soak: a long run. Rounds of the same random calls, in threads that share one context of each device, each compared
// with the oracle; memory is flat once the rounds are warm.
//
//     mxq_soak --seconds S [--threads N] [--calls N] [--seed S] [--device cpu|cuda] [--alone 0|1]
//
// Counts all that operator new gives, in this program and in the library, and memory of the device: what this process has, where
// the driver tells it, else what all have; with --alone 0 only the former. In the second half of the time the first is the same
// to the byte after each round, and the second never grows. soak.sh starts two at once.
#include "check.h"
#include "device_memory.h"
#include "draw.h"

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <thread>

namespace {

std::atomic<long long> live_bytes{0}, live_blocks{0};

void* counted(void* block) {
    if (!block) throw std::bad_alloc();
    live_bytes += static_cast<long long>(malloc_usable_size(block));
    ++live_blocks;
    return block;
}
void release(void* block) noexcept {
    if (!block) return;
    live_bytes -= static_cast<long long>(malloc_usable_size(block));
    --live_blocks;
    std::free(block);
}
void* aligned(std::size_t bytes, std::align_val_t alignment) {
    const auto to = static_cast<std::size_t>(alignment);
    return std::aligned_alloc(to, (bytes + to - 1) / to * to);
}

}  // namespace

void* operator new(std::size_t n) { return counted(std::malloc(n ? n : 1)); }
void* operator new[](std::size_t n) { return counted(std::malloc(n ? n : 1)); }
void* operator new(std::size_t n, std::align_val_t a) { return counted(aligned(n, a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return counted(aligned(n, a)); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }

namespace {

using search::Call;
using search::Runner;
using Clock = std::chrono::steady_clock;

constexpr int64_t calls_for_one_of_the_layer = 8;

struct Options {
    double seconds = -1;
    int64_t threads = 2, calls = 400;
    uint64_t seed = 1;
    std::string device;
    bool alone = true;  // no other program uses the device
};

Options read_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i], value = argv[i + 1];
        if (name == "--seconds")
            options.seconds = std::stod(value);
        else if (name == "--threads")
            options.threads = std::stoll(value);
        else if (name == "--calls")
            options.calls = std::stoll(value);
        else if (name == "--seed")
            options.seed = std::stoull(value);
        else if (name == "--alone" && (value == "0" || value == "1"))
            options.alone = value == "1";
        else if (name == "--device" && (value == "cpu" || value == "cuda"))
            options.device = value;
        else
            throw std::runtime_error("no option " + name + " " + value);
    }
    if (options.seconds < 0 || options.threads < 1) throw std::runtime_error("needs --seconds");
    return options;
}

// The contexts that all threads share. They live as long as the process.
std::vector<std::pair<int32_t, mxq_context*>> open_contexts(const std::string& device) {
    std::vector<std::pair<int32_t, mxq_context*>> out;
    for (const int32_t type : {MXQ_DEVICE_CPU, MXQ_DEVICE_CUDA}) {
        if (device == (type == MXQ_DEVICE_CPU ? "cuda" : "cpu")) continue;
        mxq_context* context = nullptr;
        const mxq_status status = mxq_context_create(type, 0, nullptr, &context);
        if (status == MXQ_STATUS_OK)
            out.emplace_back(type, context);
        else if (status != MXQ_STATUS_NO_DEVICE)
            throw std::runtime_error(mxq_last_error());
    }
    return out;
}

// What one thread runs in each round.
struct Worker {
    std::vector<Runner> runners;
    std::vector<Call> calls;
    search::Counts counts;
    std::string complaint;

    void run() {
        for (const Call& call : calls) {
            const std::string text = search::check_call(call, runners, counts);
            if (text.empty()) continue;
            complaint = text + "\n      --only '" + search::text_of(call) + "'";
            return;
        }
    }
};

std::vector<Worker> make_workers(const Options& options) {
    const auto contexts = open_contexts(options.device);
    std::vector<Worker> workers(static_cast<size_t>(options.threads));
    int64_t number = 0;
    for (Worker& worker : workers) {
        for (const auto& [type, context] : contexts) {
            Runner runner;
            runner.name = mxq_context_description(context);
            runner.device = std::make_unique<testing::Device>(type, context);
            runner.arena = std::make_unique<search::Arena>(type == MXQ_DEVICE_CPU, false);
            worker.runners.push_back(std::move(runner));
        }
        for (int64_t i = 0; i < options.calls; ++i, ++number)
            worker.calls.push_back(i % calls_for_one_of_the_layer == 0 ? search::draw_layer_call(options.seed, number)
                                                                       : search::draw_call(options.seed, number, ""));
    }
    return workers;
}

// Bytes of the device: a source, and how many.
struct OfDevice {
    const char* text = "not compared";
    long long bytes = 0;
};
OfDevice of_device([[maybe_unused]] bool alone) {
#ifdef MXQ_TESTS_CUDA
    static const search::DeviceMemory memory;
    if (const auto bytes = memory.of_process()) return {"of this process", *bytes};
    size_t unused = 0, all = 0;
    if (alone && cudaMemGetInfo(&unused, &all) == cudaSuccess) return {"of all processes", static_cast<long long>(all - unused)};
    cudaGetLastError();
#endif
    return {};
}

struct Memory {
    explicit Memory(bool alone) : device(of_device(alone)) {}
    long long host = live_bytes, blocks = live_blocks;
    OfDevice device;
};

// Returns what is wrong, or "".
std::string run_rounds(std::vector<Worker>& workers, const Options& options) {
    const auto begin = Clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    std::optional<Memory> warm;
    int64_t rounds = 0, compared = 0;
    while (seconds() < options.seconds || compared == 0) {
        std::vector<std::thread> threads;
        for (Worker& worker : workers) threads.emplace_back([&worker] { worker.run(); });
        for (std::thread& thread : threads) thread.join();
        for (const Worker& worker : workers)
            if (!worker.complaint.empty()) return worker.complaint;
        ++rounds;
        const Memory now(options.alone);
        if (warm) {
            ++compared;
            if (now.host != warm->host || now.blocks != warm->blocks)
                return "host memory was " + std::to_string(warm->host) + " bytes in " + std::to_string(warm->blocks) +
                       " blocks, and is " + std::to_string(now.host) + " in " + std::to_string(now.blocks) +
                       " after round " + std::to_string(rounds);
            if (now.device.bytes > warm->device.bytes)
                return "the device had " + std::to_string(warm->device.bytes) + " bytes in use, and has " +
                       std::to_string(now.device.bytes) + " after round " + std::to_string(rounds);
        } else if (rounds >= 3 && seconds() >= options.seconds / 2) {
            warm = now;
        }
    }
    std::printf(
        "%lld rounds in %.0f s, memory compared after %lld of them: %lld bytes of the host, %lld of the device (%s)\n",
        static_cast<long long>(rounds), seconds(), static_cast<long long>(compared), warm->host, warm->device.bytes,
        warm->device.text);
    return "";
}

void print_counts(const std::vector<Worker>& workers) {
    int64_t calls = 0, runs = 0;
    std::map<std::string, int64_t> by_verb;
    std::set<std::string> implementations;
    for (const Worker& worker : workers) {
        calls += worker.counts.calls;
        for (const auto& [name, count] : worker.counts.runs) {
            runs += count;
            by_verb[name.substr(0, name.find(' '))] += count;
            implementations.insert(name);
        }
    }
    std::printf("%lld calls, %lld runs of %zu verbs by %zu implementations:", static_cast<long long>(calls),
                static_cast<long long>(runs), by_verb.size(), implementations.size());
    for (const auto& [verb, count] : by_verb) std::printf(" %s %lld", verb.c_str(), static_cast<long long>(count));
    std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const Options options = read_options(argc, argv);
        // Never destroyed: the threads' devices share contexts, which none of them may destroy.
        static std::vector<Worker>& workers = *new std::vector<Worker>(make_workers(options));
        if (workers[0].runners.empty()) {
            std::printf("skip  soak: no device of this kind\n0 passed, 0 failed, 1 skipped\n");
            return 0;
        }
        std::string names;
        for (const Runner& runner : workers[0].runners) names += (names.empty() ? "" : "; ") + runner.name;
        const std::string complaint = run_rounds(workers, options);
        print_counts(workers);
        std::printf("%zu threads on %s\n", workers.size(), names.c_str());
        if (!complaint.empty()) std::printf("FAIL  %s\n", complaint.c_str());
        std::printf("%d passed, %d failed, 0 skipped\n", complaint.empty(), !complaint.empty());
        return complaint.empty() ? 0 : 1;
    } catch (const std::exception& error) {
        std::printf("FAIL  %s\n0 passed, 1 failed, 0 skipped\n", error.what());
        return 1;
    }
}
