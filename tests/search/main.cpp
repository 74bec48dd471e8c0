// mxq_search: draws calls of the library, runs each by every implementation that takes it, and compares all that they leave
// behind with the oracle. run.sh has its options.
#include "broken.h"
#include "check.h"
#include "draw.h"
#include "shrink.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

namespace {

using search::Call;
using search::Runner;
using Clock = std::chrono::steady_clock;

constexpr int tries_of_shrinking = 400, most_shrunk = 20;
constexpr int64_t calls_of_a_device = 2000;  // a device keeps memory of every size that it had once, so it is renewed

const char usage[] =
    "usage: mxq_search [--calls N | --minutes N] [--seed S] [--only CALL] [--list FILE] [--device cpu|cuda]\n"
    "                  [--implementation NAME] [--verb NAME]\n";

struct Options {
    int64_t calls = -1;
    double minutes = -1;
    uint64_t seed = 1;
    std::string only, list, device, implementation, verb;
};

Options read_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const auto value = [&]() -> std::string {
            if (++i == argc) throw std::runtime_error(name + " needs a value");
            return argv[i];
        };
        if (name == "--calls")
            options.calls = std::stoll(value());
        else if (name == "--minutes")
            options.minutes = std::stod(value());
        else if (name == "--seed")
            options.seed = std::stoull(value());
        else if (name == "--only")
            options.only = value();
        else if (name == "--list")
            options.list = value();
        else if (name == "--device")
            options.device = value();
        else if (name == "--implementation")
            options.implementation = value();
        else if (name == "--verb")
            options.verb = value();
        else
            throw std::runtime_error("no option " + name);
    }
    if (!options.device.empty() && options.device != "cpu" && options.device != "cuda")
        throw std::runtime_error("--device is cpu or cuda");
    if (!options.verb.empty() && std::find(search::verbs.begin(), search::verbs.end(), options.verb) == search::verbs.end())
        throw std::runtime_error("no verb " + options.verb);
    if (options.calls < 0 && options.minutes < 0 && options.only.empty() && options.list.empty())
        throw std::runtime_error("needs --calls, --minutes, --only or --list");
    return options;
}

// ---- Contexts ----------------------------------------------------------------------------------------------------------

// Returns a context as if the CPU had nothing better than `isa`. Calls of one of them use threads of their own.
Runner cpu_runner(const char* isa, int32_t threads) {
    setenv("MXQ_CPU_ISA", isa, 1);
    testing::Context context = testing::cpu_context(threads);
    unsetenv("MXQ_CPU_ISA");
    const std::string description = mxq_context_description(context);
    mxq_context* const handle = std::exchange(*context.out(), nullptr);
    return {description, std::make_unique<testing::Device>(MXQ_DEVICE_CPU, handle)};
}

bool has_instruction_set(const char* isa) { return cpu_runner(isa, 1).name.find(isa) != std::string::npos; }

std::vector<Runner> make_runners(const std::string& device, int64_t worker) {
    std::vector<Runner> out;
    if (device != "cuda")
        for (const char* isa : {"scalar", "avx2", "avx512"})
            if (has_instruction_set(isa))
                out.push_back(cpu_runner(isa, worker % 2 == 0 && std::string(isa) == "avx2" ? 3 : 1));
    if (device == "cpu") return out;
    mxq_context* context = nullptr;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CUDA, 0, nullptr, &context);
    if (status == MXQ_STATUS_OK)
        out.push_back({mxq_context_description(context), std::make_unique<testing::Device>(MXQ_DEVICE_CUDA, context)});
    else if (status != MXQ_STATUS_NO_DEVICE)
        throw std::runtime_error(std::string("no CUDA context: ") + mxq_last_error());
    return out;
}

// ---- The call that a thread is at, for the case that it ends the process -------------------------------------------------

thread_local char current_call[8192];

void note_current(const std::string& text) { std::snprintf(current_call, sizeof current_call, "%s\n", text.c_str()); }

extern "C" void tell_current(int signal) {
    const char before[] = "\nFAIL  the process ended in: ";
    [[maybe_unused]] ssize_t written = write(1, before, sizeof before - 1);
    written = write(1, current_call, std::strlen(current_call));
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

// ---- Searching -----------------------------------------------------------------------------------------------------------

class Search {
public:
    explicit Search(Options options) : options_(std::move(options)) {}

    // Checks the calls that `next` returns until it returns none, on all cores.
    template <class Next>
    void check_all(const Next& next) {
        for (int64_t first = 0; !done_ && !lost_device_; first += calls_of_a_device) check_some(next, first);
        done_ = false;
    }

    // Prints what ran. Returns the number of failures.
    int64_t report(double seconds) const {
        std::printf("%lld calls, %lld of them refused as they must be, in %.1f s on %s\n",
                    static_cast<long long>(counts_.calls), static_cast<long long>(counts_.refused), seconds, names_.c_str());
        for (const auto& [name, runs] : counts_.runs)
            std::printf("  %-40s %lld\n", name.c_str(), static_cast<long long>(runs));
        return counts_.failed;
    }
    int64_t failed() const { return counts_.failed; }

private:
    template <class Next>
    void check_some(const Next& next, int64_t first) {
        const int64_t workers = std::max(1u, std::thread::hardware_concurrency());
        std::vector<std::vector<Runner>> runners;
        for (int64_t i = 0; i < workers; ++i) runners.push_back(make_runners(options_.device, i));
        if (runners[0].empty()) throw std::runtime_error("no device of this kind");
        if (names_.empty())
            for (const Runner& runner : runners[0]) names_ += (names_.empty() ? "" : "; ") + runner.name;
        std::atomic<int64_t> number{first};
        std::vector<std::thread> threads;
        for (auto& own : runners)
            threads.emplace_back([&] {
                search::Counts counts;
                for (int64_t at; !lost_device_ && (at = number++) < first + calls_of_a_device;) {
                    const std::optional<Call> call = next(at);
                    if (!call) done_ = true;
                    if (!call) break;
                    check(*call, own, counts);
                }
                add(counts);
            });
        for (auto& thread : threads) thread.join();
    }

    void check(Call call, std::vector<Runner>& runners, search::Counts& counts) {
        if (!options_.implementation.empty()) call.implementation = options_.implementation;
        note_current(search::text_of(call));
        const std::string complaint = search::check_call(call, runners, counts);
        if (complaint.empty()) return;
        ++counts.failed;
        search::drop_unused_offsets(call);
        tell(call, complaint);
        if (complaint.find("MXQ_STATUS_CUDA_ERROR") != std::string::npos) lost_device_ = true;
        if (lost_device_ || shrunk_++ >= most_shrunk) return;
        search::Counts ignored;
        const Call smaller = search::shrink(
            call,
            [&](const Call& one) {
                note_current(search::text_of(one));
                return !search::check_call(one, runners, ignored).empty();
            },
            tries_of_shrinking);
        tell_shrunk(smaller, search::check_call(smaller, runners, ignored));
    }

    void tell(const Call& call, const std::string& complaint) {
        const std::lock_guard lock(mutex_);
        std::printf("FAIL  %s\n      --only '%s'\n", complaint.c_str(), search::text_of(call).c_str());
        std::fflush(stdout);
    }
    void tell_shrunk(const Call& call, const std::string& complaint) {
        const std::lock_guard lock(mutex_);
        const std::string text = search::text_of(call);
        if (!known_.insert(text).second) return;
        std::printf("      shrunk: %s\n      --only '%s'\n", complaint.c_str(), text.c_str());
        std::fflush(stdout);
    }
    void add(const search::Counts& counts) {
        const std::lock_guard lock(mutex_);
        counts_.calls += counts.calls;
        counts_.refused += counts.refused;
        counts_.failed += counts.failed;
        for (const auto& [name, runs] : counts.runs) counts_.runs[name] += runs;
    }

    const Options options_;
    std::mutex mutex_;
    search::Counts counts_;
    std::set<std::string> known_;
    std::string names_;
    std::atomic<int> shrunk_{0};
    std::atomic<bool> done_{false}, lost_device_{false};
};

// Returns the calls of a file: a line each, without empty ones and comments.
std::vector<Call> read_list(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    std::vector<Call> out;
    for (std::string line; std::getline(in, line);)
        if (!line.empty() && line[0] != '#') out.push_back(search::parse_call(line));
    return out;
}

// --only takes a call's line, or its number under the seed.
Call only(const Options& options) {
    const bool number = options.only.find_first_not_of("0123456789") == std::string::npos;
    return number ? search::draw_call(options.seed, std::stoll(options.only), options.verb)
                  : search::parse_call(options.only);
}

void search_all(Search& search, const Options& options, Clock::time_point begin) {
    std::vector<Call> given;
    if (!options.list.empty()) given = read_list(options.list);
    if (!options.only.empty()) given.push_back(only(options));
    if (!given.empty())
        search.check_all([&](int64_t number) {
            return number < static_cast<int64_t>(given.size()) ? std::optional(given[static_cast<size_t>(number)])
                                                               : std::nullopt;
        });
    if (options.calls < 0 && options.minutes < 0) return;
    const auto end = begin + std::chrono::duration<double>(options.minutes * 60);
    search.check_all([&](int64_t number) -> std::optional<Call> {
        if (options.calls >= 0 ? number >= options.calls : Clock::now() >= end) return std::nullopt;
        return search::draw_call(options.seed, number, options.verb);
    });
}

}  // namespace

int main(int argc, char** argv) {
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, tell_current);
    Options options;
    try {
        options = read_options(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mxq_search: %s\n%s", error.what(), usage);
        return 2;
    }
    Search search(options);
    try {
        const auto begin = Clock::now();
        search_all(search, options, begin);
        const int64_t failed = search.report(std::chrono::duration<double>(Clock::now() - begin).count());
        std::printf("%d passed, %lld failed, 0 skipped\n", failed == 0, static_cast<long long>(failed));
        return failed != 0;
    } catch (const std::exception& error) {
        std::printf("FAIL  %s\n0 passed, 1 failed, 0 skipped\n", error.what());
        return 1;
    }
}
