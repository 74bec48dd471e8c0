// Each call of CUDA's runtime, its driver and cuBLASLt fails once, in every implementation of every verb, in every exported
// function, and while a context is created. Then there is a status, a message that names what failed, no leak, the caller's
// context is current, nothing is written before the first work was enqueued, and the same call works.
//
// Two programs have this file: one on CUDA played by the host, where no kernel runs, and one on a GPU.
#include "allocations.h"
#include "calls.h"

#include "../abi/caller.h"
#include "../dispatch/problems.h"
#include "../paths.h"

#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "dispatch/choice.h"
#ifdef MXQ_TESTS_PLAYED_CUDA
#include "played_cuda.h"
#endif

using problems::Problem, problems::Problems, problems::Scene;
using testing::Buffer;
using testing::Bytes;
using testing::ok;

namespace {

#ifdef MXQ_TESTS_PLAYED_CUDA
constexpr bool is_played = true;
#else
constexpr bool is_played = false;
#endif

// ---- What must be as before
// ------------------------------------------------------------------------------------------------

// All that a failed call may leave behind; on a GPU what can be seen of it.
struct State {
    long allocations = fault::held;
#ifdef MXQ_TESTS_PLAYED_CUDA
    played::Live cuda = played::live();
    void* current = played::current();
#else
    int device = [] {
        int now = -1;
        cudaGetDevice(&now);
        return now;
    }();
    cudaError_t error = cudaPeekAtLastError();
#endif
    bool operator==(const State&) const = default;
    std::string text() const {
        std::string all = std::to_string(allocations) + " allocations";
#ifdef MXQ_TESTS_PLAYED_CUDA
        all += ", " + std::to_string(cuda.streams) + " streams, " + std::to_string(cuda.retained) + " times retained, " +
               std::to_string(cuda.pushed) + " contexts pushed, " + std::to_string(cuda.cublaslt) + " of cuBLASLt";
#endif
        return all;
    }
};

std::string left_since(const State& before) {
    const State now;
    return now == before ? "" : "there were " + before.text() + ", and are " + now.text();
}

void forget_records() {
#ifdef MXQ_TESTS_PLAYED_CUDA
    played::forget();
#endif
}

// A caller who has another context current, or none.
void change_caller([[maybe_unused]] long number) {
#ifdef MXQ_TESTS_PLAYED_CUDA
    static int other = 0;
    played::make_current(number % 2 ? &other : nullptr);
#endif
}

// ---- One run
// -----------------------------------------------------------------------------------------------------------------

// Calls that may fail without a failure of the function: what they ask for or end is not needed for its result.
bool may_be_missed(const std::string& name) {
    static const std::set<std::string> names{
        "cudaThreadExchangeStreamCaptureMode",  // then cuBLASLt is called in the caller's mode
        "cuCtxPopCurrent",
        "cudaStreamDestroy",
        "cublasLtDestroy",
        "cuDevicePrimaryCtxRelease",
        "cublasLtMatmulDescDestroy",
        "cublasLtMatrixLayoutDestroy",
        "cublasLtMatmulPreferenceDestroy",
        "cublasLtMatmulAlgoConfigGetAttribute"};  // then the attribute counts as 0
    return names.count(name) > 0;
}

// Returns what is wrong with the status and the words of a call in which `failed` failed, or "".
std::string complaint(const std::string& function, mxq_status status, const std::string& failed) {
    if (status == MXQ_STATUS_OK) return may_be_missed(failed) ? "" : "it succeeds";
    const std::string message = mxq_last_error();
    const auto has = [&](const std::string& text) { return message.find(text) != std::string::npos; };
    if (message.find(function + ": ") != 0) return "another function in: " + message;
    if (failed.find("AlgoGetHeuristic") != std::string::npos)  // then the implementation declines
        return status == MXQ_STATUS_UNSUPPORTED && has("needs an algorithm of cuBLASLt") ? "" : "no reason in: " + message;
    if (status != MXQ_STATUS_CUDA_ERROR) return "status " + std::string(mxq_status_name(status)) + ": " + message;
    const bool by_cublaslt = failed.find("cublasLt") == 0, by_driver = failed.find("cu") == 0 && failed.find("cuda") != 0;
    if (!has(by_cublaslt ? " failed: cuBLASLt says " : " failed: CUDA says ")) return "no words in: " + message;
    if ((by_cublaslt || by_driver) && !has(failed)) return "no name in: " + message;
    const size_t begin = function.size() + 2, end = message.find(" failed: ");
    return end > begin + 3 ? "" : "no name in: " + message;
}

struct Tally {
    std::map<std::string, int> failed;  // by entry point
    int runs = 0;
};

// Lets each call of `run` fail once. `renew` makes its operands anew, `written` returns what it writes, `expect` looks at a
// result that succeeded.
struct Subject {
    std::string function;
    std::function<void()> renew = [] {};
    std::function<mxq_status()> run;
    std::function<Bytes()> written = [] { return Bytes(); };
    std::function<void()> expect = [] {};
};

void fail_each_call(const Subject& subject, Tally& tally) {
    const auto succeed = [&] {
        subject.renew();
        fault::begin_calls();
        const mxq_status status = subject.run();
        const fault::Counted counted = fault::end_calls();
        INFO((status == MXQ_STATUS_OK ? "" : mxq_last_error()));
        CHECK(status == MXQ_STATUS_OK);
        subject.expect();
        forget_records();
        return counted.calls;
    };
    succeed();
    change_caller(0);
    const fault::Trace all = succeed();
    const State before;
    for (size_t n = 0; n < all.size(); ++n) {
        change_caller(static_cast<long>(n));
        subject.renew();
        const Bytes outputs = subject.written();
        const State start;
        fault::begin_calls(static_cast<long>(n));
        const mxq_status status = subject.run();
        const fault::Counted counted = fault::end_calls();
        INFO(subject.function << ", call " << n << ", " << all[n]);
        CHECK(counted.failed == all[n]);
        CHECK(complaint(subject.function, status, counted.failed) == "");
        if (status != MXQ_STATUS_OK && counted.work_before == 0) CHECK(subject.written() == outputs);
        forget_records();
        State after;
        after.allocations = start.allocations;  // what the context keeps may be lost, and is made anew
#ifdef MXQ_TESTS_PLAYED_CUDA
        after.cuda.cublaslt = start.cuda.cublaslt;
#endif
        CHECK((after == start ? "" : after.text()) == std::string());
        succeed();
        change_caller(0);
        CHECK(left_since(before) == "");
        ++tally.failed[counted.failed];
        ++tally.runs;
    }
}

// ---- Verbs by their implementations
// --------------------------------------------------------------------------------------------

// A problem as it is set up for one implementation.
struct Set {
    testing::Device& device;
    const Problem& problem;
    const std::string& name;
    std::unique_ptr<Scene> scene{};
    std::unique_ptr<Buffer> workspace{};

    void renew() {
        scene.reset();
        scene = std::make_unique<Scene>(device);
        problem.set_up(*scene);
        testing::Plan plan;  // options keep the name from here on
        ok(problem.query(*scene, name, plan.out()));
        if (!workspace) workspace = std::make_unique<Buffer>(device, static_cast<size_t>(mxq_plan_workspace_bytes(plan)));
    }
    mxq_status run() const {
        return problem.run(*scene, name, workspace->bytes() ? workspace->data() : nullptr, workspace->bytes());
    }
};

std::string joined(const fault::Trace& trace) {
    std::string all;
    for (const std::string& name : trace) all += name + ' ';
    return all;
}

// Problems of the same calls are tried once; so many different ones.
constexpr size_t most_ways = is_played ? 4 : 2;

// The ways in which an implementation was tried: its calls, one after another.
using Ways = std::set<std::string>;

void try_implementation(testing::Device& device, const std::string& verb, const Problem& problem, const std::string& name,
                        Ways& ways, Tally& tally) {
    Set set{device, problem, name};
    set.renew();
    fault::begin_calls();
    ok(set.run());
    if (!ways.insert(joined(fault::end_calls().calls)).second) return;
    INFO(name << ", " << problem.text);
    std::optional<Bytes> expected;
    if (!is_played) expected = result(testing::cpu(), problem, "cpu");
    const auto expect = [&] {
        if (expected) CHECK(testing::difference(set.scene->written(), *expected) == "");
    };
    fail_each_call(
        {"mxq_" + verb, [&] { set.renew(); }, [&] { return set.run(); }, [&] { return set.scene->written(); }, expect},
        tally);
}

Problems all_problems() {
    Problems all = problems::of_quantize();
    for (Problems more : {problems::of_requantize(), problems::of_other_conversions(), problems::of_activations(),
                          problems::of_gemm(), problems::of_grouped_gemm()})
        all.merge(more);
    return all;
}

// Returns the implementations that some problem reached.
std::set<std::string> try_verbs(testing::Device& device, const Problems& all, Tally& tally,
                                const std::function<bool(const std::string&)>& is_wanted) {
    std::set<std::string> reached;
    for (const mxq::VerbNames& verb : mxq::verb_table()) {
        std::map<std::string, Ways> ways;
        for (const std::string& name : verb.implementations)
            if (name != "cpu" && is_wanted(name)) ways[name];
        for (const Problem& problem : all.at(verb.verb)) {
            Scene asked(device);
            problem.set_up(asked);
            for (auto& [name, of_name] : ways)
                if (of_name.size() < most_ways && !reason_to_decline(asked, problem, name))
                    try_implementation(device, verb.verb, problem, name, of_name, tally);
        }
        for (const auto& [name, of_name] : ways)
            if (!of_name.empty()) reached.insert(verb.verb + ":" + name);
    }
    return reached;
}

// Each chip with a cuBLASLt that has groups on it.
void set_capability([[maybe_unused]] int capability) {
#ifdef MXQ_TESTS_PLAYED_CUDA
    played::machine.capability = capability;
    played::machine.cublaslt_version = capability == 90 ? 131000 : 130500;
#endif
}

using ContextOptions = testing::Handle<mxq_context_options, mxq_context_options_destroy>;

// Returns options for a context that looks for cuBLASLt anew.
ContextOptions options_of_context() {
    ContextOptions options;
    ok(mxq_context_options_create(options.out()));
    if (is_played) ok(mxq_context_options_set_cublaslt_path(options, "libcublasLt.so.13"));
    return options;
}

std::unique_ptr<testing::Device> new_device() {
    mxq_context* context = nullptr;
    const mxq_status status = mxq_context_create(MXQ_DEVICE_CUDA, 0, options_of_context(), &context);
    if (status == MXQ_STATUS_NO_DEVICE) return nullptr;
    ok(status);
    return std::make_unique<testing::Device>(MXQ_DEVICE_CUDA, context);
}

// Counts what the library frees.
void destroy(mxq_context* context) {
    fault::begin_calls();
    mxq_context_destroy(context);
    fault::end_calls();
}

// ---- The creation of a context
// --------------------------------------------------------------------------------------------------

std::string complaint_of_creation(mxq_status status, mxq_context* context, const std::string& failed) {
    static const std::set<std::string> of_cublaslt{"dlopen", "dlsym", "cublasLtCreate", "cudaStreamCreateWithFlags"};
    static const std::set<std::string> of_machine{"cudaDriverGetVersion", "cudaGetDeviceCount"};
    if (status == MXQ_STATUS_OK) {
        const std::string found = mxq_context_cublaslt(context);
        if (failed == "dlsym") return "";  // of a function that this release need not have, or said below
        if (of_cublaslt.count(failed))
            return found.find("needs ") == 0 && (failed == "dlopen" || found.find(failed) != std::string::npos)
                       ? ""
                       : "cuBLASLt: " + found;
    } else if (of_machine.count(failed)) {
        return status == MXQ_STATUS_NO_DEVICE ? "" : mxq_last_error();
    }
    if (context && status != MXQ_STATUS_OK) return "a context in spite of the status";
    if (failed.find("cudaFunc") == 0 && is_played)
        return std::string(mxq_last_error()).find(" a kernel (a_kernel) failed: ") != std::string::npos ? ""
                                                                                                        : mxq_last_error();
    return complaint("mxq_context_create", status, failed);
}

// Of the many kernels that are loaded, some: the first and the last, and each 40th. On a GPU, where a creation takes long,
// the first and the last call of each name.
std::set<size_t> calls_to_fail(const fault::Trace& all) {
    std::set<size_t> numbers;
    std::map<std::string, size_t> last;
    for (size_t i = 0; i < all.size(); ++i) {
        const bool loads = all[i].find("cudaFunc") == 0;
        if (!last.count(all[i]) || (is_played && (!loads || i % 40 == 0))) numbers.insert(i);
        last[all[i]] = i;
    }
    for (const auto& [name, i] : last) numbers.insert(i);
    return numbers;
}

struct Created {
    mxq_status status;
    fault::Counted counted;
    std::string complaint;
};

Created create_and_destroy(mxq_context_options* options, long failing) {
    auto* context = reinterpret_cast<mxq_context*>(&failing);  // any address but NULL, which the call must set to NULL
    fault::begin_calls(failing);
    Created out;
    out.status = mxq_context_create(MXQ_DEVICE_CUDA, 0, options, &context);
    out.counted = fault::end_calls();
    if (!out.counted.failed.empty()) out.complaint = complaint_of_creation(out.status, context, out.counted.failed);
    destroy(context);
    return out;
}

// Keeps memory that is given back: fresh pages cost more than the calls.
const bool keeps_memory = mallopt(M_MMAP_THRESHOLD, 64 << 20) && mallopt(M_TRIM_THRESHOLD, 512 << 20);

}  // namespace

TEST_CASE("calls fail: while a context is created", "[cuda]") {
    const ContextOptions options = options_of_context();
    std::map<std::string, int> failed;
    const auto keeper = is_played ? nullptr : new_device();  // with it a GPU creates the others faster
    if (!is_played && !keeper) MXQ_SKIP("no CUDA device");
    const Created whole = create_and_destroy(options, -1);
    REQUIRE(whole.status == MXQ_STATUS_OK);
    forget_records();
    const State before;
    for (const size_t n : calls_to_fail(whole.counted.calls)) {
        const Created one = create_and_destroy(options, static_cast<long>(n));
        INFO("call " << n << ", " << one.counted.failed);
        CHECK(one.complaint == "");
        ++failed[one.counted.failed];
        CHECK(left_since(before) == "");
    }
    CHECK(create_and_destroy(options, -1).status == MXQ_STATUS_OK);
    for (const char* name :
         {"cudaDriverGetVersion", "cudaGetDeviceCount", "cudaGetDeviceProperties", "cuDevicePrimaryCtxRetain",
          "cuCtxGetCurrent", "cudaStreamCreateWithFlags", "cublasLtCreate", "cudaFuncGetAttributes", "cudaFuncSetAttribute"})
        CHECK(failed[name] > 0);
    if (is_played) CHECK(failed["dlsym"] == 17);
}

TEST_CASE("calls fail: while a context is destroyed", "[cuda]") {
    const auto keeper = new_device();
    if (!keeper) MXQ_SKIP("no CUDA device");
    const ContextOptions options = options_of_context();
    // Returns the calls of the end of a context.
    const auto create_and_fail = [&](long n) {
        mxq_context* context = nullptr;
        fault::begin_calls();
        ok(mxq_context_create(MXQ_DEVICE_CUDA, 0, options, &context));
        fault::end_calls();
        fault::begin_calls(n);
        mxq_context_destroy(context);
        fault::Counted counted = fault::end_calls();
        forget_records();
        return counted.calls;
    };
    const fault::Trace all = create_and_fail(-1);
    CHECK(all.size() >= 6);
    const State before;
    for (size_t n = 0; n < all.size(); ++n) {
        create_and_fail(static_cast<long>(n));
        INFO(all[n]);
        CHECK(left_since(before) == "");
    }
}

TEST_CASE("calls fail: every implementation of every verb", "[cuda]") {
    if (!new_device()) MXQ_SKIP("no CUDA device");
    const Problems all = all_problems();
    std::set<std::string> reached, expected;
    Tally tally;
    for (const int capability : {90, 100}) {
        if (capability != 90 && !is_played) break;
        set_capability(capability);
        const auto device = new_device();
        reached.merge(try_verbs(*device, all, tally,
                                [&](const std::string& name) { return capability == 90 || name.find("cublaslt") == 0; }));
    }
    set_capability(90);
    for (const mxq::VerbNames& verb : mxq::verb_table())
        for (const std::string& name : verb.implementations)
            if (name != "cpu") expected.insert(verb.verb + ":" + name);
    if (is_played) CHECK(reached == expected);
    CHECK(reached.size() >= 16);
    CHECK(tally.failed["cudaLaunchKernelExC"] >= 40);
    std::printf("%d calls of %zu implementations failed in turn:", tally.runs, reached.size());
    for (const auto& [name, count] : tally.failed) std::printf(" %s %d", name.c_str(), count);
    std::printf("\n");
}

constexpr size_t most_workspace = 40 << 20;

// The heuristic is asked once in a context, so that each run has a context of its own.
TEST_CASE("calls fail: the first product of a context by cuBLASLt", "[cuda]") {
    if (!new_device()) MXQ_SKIP("no CUDA device");
    Problems all = problems::of_gemm();
    all.merge(problems::of_grouped_gemm());
    std::set<std::string> failed;
    for (const int capability : {90, 100})
        for (const mxq::VerbNames& verb : mxq::verb_table()) {
            if (capability != 90 && !is_played) break;
            set_capability(capability);
            for (const std::string& name : verb.implementations) {
                if (name.find("cublaslt") != 0) continue;
                const auto first = new_device();
                const auto& problems_of_verb = all.at(verb.verb);
                const auto taken =
                    std::find_if(problems_of_verb.begin(), problems_of_verb.end(), [&](const Problem& problem) {
                        Scene asked(*first);
                        problem.set_up(asked);
                        return !reason_to_decline(asked, problem, name);
                    });
                if (taken == problems_of_verb.end()) continue;
                const Buffer workspace(*first, most_workspace);
                size_t calls = 0;
                for (long n = -1; n < static_cast<long>(calls); ++n) {
                    const auto device = new_device();
                    Scene scene(*device);
                    taken->set_up(scene);
                    testing::Plan plan;
                    fault::begin_calls(n);
                    const mxq_status status = taken->query(scene, name, plan.out());
                    const fault::Counted counted = fault::end_calls();
                    if (n < 0) calls = counted.calls.size();
                    INFO(verb.verb << ":" << name << ", call " << n << ", " << counted.failed);
                    if (!counted.failed.empty())
                        CHECK(complaint("mxq_" + verb.verb + "_query", status, counted.failed) == "");
                    CHECK((status == MXQ_STATUS_OK) == (plan != nullptr));
                    failed.insert(counted.failed);
                    testing::Plan again;
                    CHECK(taken->query(scene, name, again.out()) == MXQ_STATUS_OK);
                    CHECK(taken->run(scene, name, workspace.data(), workspace.bytes()) == MXQ_STATUS_OK);
                    forget_records();
                }
            }
        }
    set_capability(90);
    for (const char* name : {"cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate",
                             "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute"})
        CHECK(failed.count(name) == 1);
}

TEST_CASE("calls fail: every exported function", "[cuda]") {
    const auto device = new_device();
    if (!device) MXQ_SKIP("no CUDA device");
#ifdef MXQ_TESTS_PLAYED_CUDA
    testing::EveryFunction every(device->context);
#else
    testing::EveryFunction every(device->context, {[](size_t bytes) {
                                                       void* memory = nullptr;
                                                       if (cudaMallocManaged(&memory, bytes) != cudaSuccess)
                                                           throw std::bad_alloc();
                                                       return memory;
                                                   },
                                                   [](void* memory) { cudaFree(memory); }});
#endif
    std::set<std::string> called;
    Tally tally;
    for (const testing::Function& function : every.functions()) {
        INFO(function.name);
        const State before;
        CHECK(testing::changed_by(function) == "");
        CHECK(left_since(before) == "");
        fail_each_call({function.name, [] { cudaDeviceSynchronize(); }, function.call,
                        [&] {
                            cudaDeviceSynchronize();
                            return every.memory();
                        }},
                       tally);
        called.insert(function.name);
    }
    CHECK(std::vector<std::string>(called.begin(), called.end()) == testing::EveryFunction::declared());
    CHECK(tally.failed["cudaLaunchKernelExC"] >= 17);
}

#ifdef MXQ_TESTS_PLAYED_CUDA
// Without memory on the host, allocation by allocation.
TEST_CASE("calls fail: out of memory, in every exported function on CUDA and while a context is created", "[cuda]") {
    const ContextOptions options = options_of_context();
    const auto device = new_device();
    testing::EveryFunction every(device->context);
    int failures = 0;
    const auto fail_allocations = [&](const std::string& name, const std::function<mxq_status()>& function) {
        const auto call = [&] {
            fault::begin_calls();
            const mxq_status status = function();
            fault::end_calls();
            return status;
        };
        INFO(name);
        for (int n = 0;; ++n) {
            REQUIRE(n < 10000);
            CHECK(call() == MXQ_STATUS_OK);
            forget_records();
            const State before;
            fault::until_failure = n;
            fault::begin_calls();
            fault::armed = true;
            const mxq_status status = function();
            fault::armed = false;
            fault::end_calls();
            if (status == MXQ_STATUS_OK) break;
            CHECK(status == MXQ_STATUS_OUT_OF_MEMORY);
            CHECK(std::string(mxq_last_error()).find("memory") != std::string::npos);
            CHECK(call() == MXQ_STATUS_OK);
            forget_records();
            CHECK(left_since(before) == "");
            ++failures;
        }
    };
    for (const testing::Function& function : every.functions()) fail_allocations(function.name, function.call);
    fail_allocations("mxq_context_create", [&] {
        mxq_context* context = nullptr;
        const mxq_status status = mxq_context_create(MXQ_DEVICE_CUDA, 0, options, &context);
        mxq_context_destroy(context);
        return status;
    });
    CHECK(failures >= 60);
}
#endif

// The library's sources name each function of the runtime that they call.
TEST_CASE("calls fail: no entry point is left out") {
    CHECK(fault::unknown_entry_points() == std::vector<std::string>());
    const std::vector<std::string> known = fault::entry_points();
    const std::set<std::string> names(known.begin(), known.end());
    const auto source = std::filesystem::path(testing::header_path()).parent_path().parent_path().parent_path() / "src/cuda";
    const std::regex call("\\b(cuda[A-Z][A-Za-z0-9]*)\\(");
    std::set<std::string> called;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source)) {
        if (!entry.is_regular_file() || entry.path().filename() == "README.md") continue;
        std::ifstream file(entry.path());
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        for (auto at = std::sregex_iterator(text.begin(), text.end(), call); at != std::sregex_iterator(); ++at)
            called.insert((*at)[1]);
    }
    CHECK(called.erase("cudaGetErrorString") == 1);  // cannot fail
    CHECK(called.erase("cudaFuncGetName") == 1);     // after a failure alone
    CHECK(called.size() >= 14);
    for (const std::string& name : called) {
        INFO(name);
        CHECK(names.count(name) == 1);
    }
}
