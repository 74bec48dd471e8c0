// mxq_search: draws calls of the library, runs each by every implementation that takes it, and compares all that they leave
// behind with the oracle. run.sh has its options.
#include "broken.h"
#include "check.h"
#include "draw.h"
#include "shrink.h"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

namespace {

using search::Call;
using search::Runner;
using Clock = std::chrono::steady_clock;

constexpr double seconds_of_shrinking = 2, seconds_of_all_shrinking = 20;
constexpr int64_t draws_for_an_implementation = 20'000;

const char usage[] =
    "usage: mxq_search [--calls N | --minutes N] [--seed S] [--only CALL] [--list FILE] [--device cpu|cuda]\n"
    "                  [--implementation NAME] [--verb NAME] [--divided]\n";

struct Options {
    int64_t calls = -1;
    double minutes = -1;
    uint64_t seed = 1;
    std::string only, list, device, implementation, verb;
    bool divided = false;  // each buffer on a GPU is an allocation of its own
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
        else if (name == "--divided")
            options.divided = true;
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

Runner make_runner(int32_t device, mxq_context* context, bool divided = false) {
    Runner out;
    out.name = mxq_context_description(context);
    out.device = std::make_unique<testing::Device>(device, context);
    out.arena = std::make_unique<search::Arena>(device == MXQ_DEVICE_CPU, divided);
    return out;
}

enum class Threads { One, Three, OfHost };

// A host's way to run tasks: the last first, one after another, and one in three is left out; every fifth time all are.
void run_as_host(void*, int32_t count, mxq_task task, void* data) {
    static thread_local int times = 0;
    if (++times % 5 == 0) return;
    for (int32_t i = count; i-- > 0;)
        if (i % 3 != 1) task(data, i);
}

// Returns a context as if the CPU had nothing better than `isa`.
Runner cpu_runner(const char* isa, Threads threads) {
    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    testing::ok(mxq_context_options_create(options.out()));
    testing::ok(mxq_context_options_set_threads(options, threads == Threads::One ? 1 : 3));
    if (threads == Threads::OfHost) testing::ok(mxq_context_options_set_parallel_for(options, run_as_host, nullptr));
    mxq_context* context = nullptr;
    setenv("MXQ_CPU_ISA", isa, 1);
    testing::ok(mxq_context_create(MXQ_DEVICE_CPU, 0, options, &context));
    unsetenv("MXQ_CPU_ISA");
    return make_runner(MXQ_DEVICE_CPU, context);
}

// Returns the threads of a context. Calls of one worker in two share the library's threads and those of a host.
Threads threads_of(const std::string& isa, int64_t worker) {
    if (worker % 2 != 0) return Threads::One;
    return isa == "avx2" ? Threads::Three : isa == "scalar" ? Threads::OfHost : Threads::One;
}

bool has_instruction_set(const char* isa) { return cpu_runner(isa, Threads::One).name.find(isa) != std::string::npos; }

// Leaves large calls to the best CPU runner, and the best for other verbs than products: a list has them for the kernels of a GPU,
// and the kernels of each instruction set meet their edges in smaller calls.
void leave_large_to_best(std::vector<Runner>& runners) {
    for (Runner& runner : runners) runner.takes_large = false;
    runners.back().takes_large = true;
    std::find_if(runners.rbegin(), runners.rend(), [](const Runner& runner) { return !runner.for_products; })->takes_large = true;
}

std::vector<Runner> make_runners(const Options& options, int64_t worker) {
    const std::string& device = options.device;
    std::vector<Runner> out;
    if (device != "cuda")
        for (const char* isa : {"scalar", "avx2", "avx512bw", "avx512", "avx512bf16"})
            if (has_instruction_set(isa)) {
                out.push_back(cpu_runner(isa, threads_of(isa, worker)));
                out.back().for_products = std::strncmp(isa, "avx512", 6) == 0 && std::strcmp(isa, "avx512bw") != 0;
            }
    if (!options.list.empty() && !out.empty()) leave_large_to_best(out);
    if (device == "cpu") return out;
    mxq_context* context = nullptr;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CUDA, 0, nullptr, &context);
    if (status == MXQ_STATUS_OK)
        out.push_back(make_runner(MXQ_DEVICE_CUDA, context, options.divided));
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

    // Checks the calls that `next` returns for 0, 1, 2, ... until it returns none, on all cores.
    template <class Next>
    void check_all(const Next& next) {
        const int64_t workers = std::max(1u, std::thread::hardware_concurrency());
        while (std::ssize(runners_) < workers) runners_.push_back(make_runners(options_, std::ssize(runners_)));
        if (runners_[0].empty()) throw std::runtime_error("no device of this kind");
        std::atomic<int64_t> number{0};
        testing::parallel_for(workers, testing::steps_of_a_thread, [&](int64_t worker) {
            auto& runners = runners_[static_cast<size_t>(worker)];
            search::Counts counts;
            while (!lost_device_) {
                const std::optional<Call> call = next(number++, runners);
                if (!call) break;
                check(*call, runners, counts);
            }
            add(counts);
        });
    }

    // Prints what ran. Returns the number of failures.
    int64_t report(double seconds) const {
        std::string names;
        for (const Runner& runner : runners_[0]) names += (names.empty() ? "" : "; ") + runner.name;
        std::printf("%lld calls, %lld of them refused as they must be, in %.1f s on %s\n",
                    static_cast<long long>(counts_.calls), static_cast<long long>(counts_.refused), seconds, names.c_str());
        for (const auto& [name, runs] : counts_.runs)
            std::printf("  %-40s %lld\n", name.c_str(), static_cast<long long>(runs));
        return counts_.failed;
    }

private:
    void check(const Call& call, std::vector<Runner>& runners, search::Counts& counts) {
        note_current(search::text_of(call));
        const std::string complaint = search::check_call(call, runners, counts);
        if (complaint.empty()) return;
        ++counts.failed;
        Call failed = call;
        search::drop_unused_offsets(failed);
        tell(failed, complaint);
        note_lost_device(complaint);
        if (!lost_device_ && shrinking_ < seconds_of_all_shrinking) shrink(failed, runners);
    }

    // Prints a smaller call that fails too.
    void shrink(const Call& call, std::vector<Runner>& runners) {
        search::Counts ignored;
        std::string complaint;
        const auto begin = Clock::now();
        const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
        const auto fails = [&](const Call& one) {
            note_current(search::text_of(one));
            const std::string text = search::check_call(one, runners, ignored);
            if (!text.empty()) complaint = text;
            return !text.empty();
        };
        const Call smaller = search::shrink(call, fails, [&] { return seconds() < seconds_of_shrinking; });
        shrinking_ += seconds();
        if (!complaint.empty()) tell_shrunk(smaller, complaint);
        note_lost_device(complaint);
    }

    // After an error of the device itself every later call would fail.
    void note_lost_device(const std::string& complaint) {
        const bool of_device =
            complaint.find("MXQ_STATUS_CUDA_ERROR") != std::string::npos || complaint.rfind("CUDA: ", 0) == 0;
        if (of_device) lost_device_ = true;
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
    std::vector<std::vector<Runner>> runners_;  // of each thread
    std::atomic<double> shrinking_{0};          // seconds, of all threads
    std::atomic<bool> lost_device_{false};
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

// Returns the call with the implementation that the options ask for.
Call asking(const Options& options, Call call) {
    if (!options.implementation.empty()) call.implementation = options.implementation;
    return call;
}

// Tells calls apart by what decides most about who takes them: verb, formats and scalings.
using Kind = std::tuple<std::string, int32_t, int32_t, int32_t, int32_t>;
Kind kind_of(const Call& call) {
    return {call.verb, call.first.format, call.first.scaling, call.second.format, call.second.scaling};
}

// Returns the call that is drawn for an implementation as number `i` under a number, with the verb and formats of another.
Call draw_for_implementation(const Options& options, int64_t number, int64_t i, const Call* like) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(i) * 1'000'003;
    Call call = asking(options, search::draw_call(seed, number, like ? like->verb : options.verb, like));
    call.broken = "";
    return call;
}

// Returns calls of different kinds that the implementation takes. Asks about a few calls of each kind that is drawn.
const std::vector<Call>& calls_taken(const Options& options, std::vector<Runner>& runners) {
    constexpr int64_t draws = 500'000, enough = 64, few = 4;  // draws, kinds that it takes, and questions about a kind
    static std::mutex mutex;
    static std::map<std::string, std::vector<Call>> known;  // by implementation
    const std::lock_guard lock(mutex);
    const auto [found, is_new] = known.try_emplace(options.implementation);
    std::vector<Call>& taken = found->second;
    std::map<Kind, int64_t> asked;
    for (int64_t i = 0; is_new && i < draws && int64_t(taken.size()) < enough; ++i) {
        const Call call = draw_for_implementation(options, 0, i, nullptr);
        if (int64_t& count = asked[kind_of(call)]; ++count <= few && search::may_take(call, runners)) {
            taken.push_back(call);
            count = few;
        }
    }
    return taken;
}

// Returns the call of this number under the seed. For an implementation draws until there is one that it may take, of kinds
// that it is known to take, and now and then of any.
Call draw(const Options& options, int64_t number, std::vector<Runner>& runners) {
    constexpr int64_t now_and_then = 64;
    if (options.implementation.empty()) return search::draw_call(options.seed, number, options.verb);
    const std::vector<Call>& taken = calls_taken(options, runners);
    for (int64_t i = 0; i < draws_for_an_implementation; ++i) {
        const Call* const like = taken.empty() || i % now_and_then == 0 ? nullptr : &taken[size_t(number + i) % taken.size()];
        const Call call = draw_for_implementation(options, number, i, like);
        if (search::may_take(call, runners)) return call;
    }
    throw std::runtime_error("no call that " + options.implementation + " takes among " +
                             std::to_string(draws_for_an_implementation));
}

// --only takes a call's line, or its number under the seed.
Call only(const Options& options, std::vector<Runner>& runners) {
    const bool number = options.only.find_first_not_of("0123456789") == std::string::npos;
    return number ? draw(options, std::stoll(options.only), runners) : asking(options, search::parse_call(options.only));
}

void search_all(Search& search, const Options& options, Clock::time_point begin) {
    if (!options.list.empty()) {
        const std::vector<Call> list = read_list(options.list);
        search.check_all([&](int64_t number, std::vector<Runner>&) {
            return number < std::ssize(list) ? std::optional(asking(options, list[static_cast<size_t>(number)]))
                                             : std::nullopt;
        });
    }
    if (!options.only.empty())
        search.check_all([&](int64_t number, std::vector<Runner>& runners) {
            return number == 0 ? std::optional(only(options, runners)) : std::nullopt;
        });
    if (options.calls < 0 && options.minutes < 0) return;
    const auto end = begin + std::chrono::duration<double>(options.minutes * 60);
    search.check_all([&](int64_t number, std::vector<Runner>& runners) -> std::optional<Call> {
        if (options.calls >= 0 ? number >= options.calls : Clock::now() >= end) return std::nullopt;
        return draw(options, number, runners);
    });
    if (!options.verb.empty() || !options.implementation.empty()) return;
    // A call of the layer for each eight of the others, whose numbers stay what they are.
    const auto end_of_layer = Clock::now() + std::chrono::duration<double>(options.minutes * 60 / 8);
    search.check_all([&](int64_t number, std::vector<Runner>&) -> std::optional<Call> {
        if (options.calls >= 0 ? number >= options.calls / 8 : Clock::now() >= end_of_layer) return std::nullopt;
        return search::draw_layer_call(options.seed, number);
    });
}

}  // namespace

int main(int argc, char** argv) {
    // Keeps memory that is given back: calls need the same sizes again, and fresh pages cost more than the calls.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM}) std::signal(signal, tell_current);
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
