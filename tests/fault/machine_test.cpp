// Machines without a driver, with an old one, without a device or with an old one, without cuBLASLt or with parts of it,
// played by the host: statuses and words. And the caller's current context, which every function leaves as it was.
#include "calls.h"
#include "played_cuda.h"

#include "../abi/caller.h"

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

using testing::ok;

namespace {

struct Opened {
    testing::Context context;
    mxq_status status = MXQ_STATUS_OK;
    std::string message, cublaslt;
};

// Opens a context on a machine that is otherwise, with this path of cuBLASLt.
Opened open_on(const played::Machine& machine, int32_t ordinal = 0, const char* path = "libcublasLt.so.13") {
    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    ok(mxq_context_options_create(options.out()));
    ok(mxq_context_options_set_cublaslt_path(options, path));
    const played::Machine before = std::exchange(played::machine, machine);
    Opened out;
    out.status = mxq_context_create(MXQ_DEVICE_CUDA, ordinal, options, out.context.out());
    out.message = out.status == MXQ_STATUS_OK ? "" : mxq_last_error();
    if (out.context) out.cublaslt = mxq_context_cublaslt(out.context);
    played::machine = before;
    return out;
}

bool says(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words)
        if (text.find(word) == std::string::npos) return false;
    return true;
}

// Runs a test in a process of its own, whose table of the driver's functions is empty. Returns whether it went well.
bool in_child(const std::function<bool()>& test) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        bool is_right = false;
        try {
            is_right = test();
        } catch (...) {
        }
        _exit(is_right ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

constexpr const char* required_of_cublaslt[] = {"cublasLtGetVersion",
                                                "cublasLtGetStatusName",
                                                "cublasLtCreate",
                                                "cublasLtDestroy",
                                                "cublasLtMatmulDescCreate",
                                                "cublasLtMatmulDescDestroy",
                                                "cublasLtMatmulDescSetAttribute",
                                                "cublasLtMatrixLayoutCreate",
                                                "cublasLtMatrixLayoutDestroy",
                                                "cublasLtMatmulPreferenceCreate",
                                                "cublasLtMatmulPreferenceDestroy",
                                                "cublasLtMatmulPreferenceSetAttribute",
                                                "cublasLtMatmulAlgoGetHeuristic",
                                                "cublasLtMatmulAlgoConfigGetAttribute",
                                                "cublasLtMatmul"};

// A product of BF16 by cuBLASLt: the message of its query, or "".
std::string decline(mxq_context* context, int32_t format, int32_t groups = 0) {
    const int64_t rows = 128;
    static int32_t ends[2];
    const auto tensor = [&](int32_t of, bool is_grouped) {
        testing::Tensor made = testing::make_tensor(of, {std::nullopt, rows, rows});
        if (is_grouped) ok(testing::set_ends(made, ends, MXQ_TYPE_INT32, groups));
        return made;
    };
    const bool is_grouped = groups > 0;
    const testing::Tensor a = tensor(format, is_grouped), d = tensor(MXQ_FORMAT_BF16, false);
    const testing::Tensor b = is_grouped ? testing::make_tensor(format, {groups, rows, rows}) : tensor(format, false);
    const auto options =
        testing::gemm_options(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T, 0, is_grouped ? "cublaslt_grouped" : "cublaslt");
    testing::Plan plan;
    const mxq_status status = (is_grouped ? mxq_grouped_gemm_query : mxq_gemm_query)(context, options, a, b, d, plan.out());
    return status == MXQ_STATUS_OK ? "" : mxq_last_error();
}

}  // namespace

TEST_CASE("machine: what a driver is without") {
    const auto& start = played::machine;
    for (const char* name : {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuCtxGetCurrent", "cuCtxPushCurrent",
                             "cuCtxPopCurrent", "cuGetErrorString", "cuTensorMapEncodeTiled"}) {
        INFO(name);
        CHECK(in_child([&] {
            played::Machine machine = start;
            machine.missing = name;
            const Opened lacks = open_on(machine);
            const std::string words = std::string("mxq_context_create: the CUDA driver has no ") + name +
                                      "; install a driver for CUDA 12 or later";
            if (lacks.status != MXQ_STATUS_NO_DEVICE || lacks.message != words || lacks.context) return false;
            if (!(played::live() == played::Live())) return false;
            return open_on(start).status == MXQ_STATUS_OK;  // in the same process
        }));
    }
}

TEST_CASE("machine: each question for a function of the driver fails once") {
    CHECK(in_child([] {
        int failed = 0;
        for (long n = 0; failed < 7 && n < 20; ++n) {
            fault::begin_calls(n);
            const Opened opened = open_on(played::machine);
            if (fault::end_calls().failed != "cudaGetDriverEntryPointByVersion") continue;
            ++failed;
            const bool is_refused =
                opened.status == MXQ_STATUS_CUDA_ERROR && !opened.context &&
                says(opened.message, {"mxq_context_create: cu", " failed: CUDA says \"played failure\""});
            if (!is_refused || !(played::live() == played::Live())) return false;
        }
        return failed == 7 && open_on(played::machine).status == MXQ_STATUS_OK;
    }));
}

TEST_CASE("machine: no driver, an old one, no device, an old one, an ordinal") {
    const played::Live before = played::live();
    int refused = 0;
    const auto refuses = [&](const std::function<void(played::Machine&)>& change, const char* words, int32_t ordinal = 0) {
        played::Machine machine = played::machine;
        change(machine);
        const Opened opened = open_on(machine, ordinal);
        CHECK(opened.status == MXQ_STATUS_NO_DEVICE);
        CHECK(opened.message == std::string("mxq_context_create: ") + words);
        CHECK(!opened.context);
        CHECK(played::live() == before);
        ++refused;
    };
    refuses([](auto& m) { m.driver_version = 0; },
            "no NVIDIA driver is installed, expected one for CUDA 13.0; install it, or use MXQ_DEVICE_CPU");
    refuses([](auto& m) { m.driver_version = 12080; },
            "the NVIDIA driver is for CUDA 12.8, expected 13.0 or later; update it, or use MXQ_DEVICE_CPU");
    refuses([](auto& m) { m.devices = 0; },
            "there is no CUDA device (CUDA says \"no device\"), expected one; use MXQ_DEVICE_CPU");
    refuses([](auto& m) { m.devices = 2; }, "ordinal is 2, expected less than 2, the number of CUDA devices", 2);
    refuses([](auto& m) { m.capability = 75; },
            "CUDA device 0 (played by the host) has compute capability 7.5, expected at least 8.0");
    CHECK(refused == 5);
    CHECK(open_on(played::machine).status == MXQ_STATUS_OK);
}

TEST_CASE("machine: no cuBLASLt, or one without a function") {
    played::Machine machine = played::machine;
    machine.has_cublaslt = false;
    const Opened none = open_on(machine, 0, "libcublasLt.so.13");
    REQUIRE(none.status == MXQ_STATUS_OK);
    CHECK(says(none.cublaslt, {"needs libcublasLt.so.13 or .12 at the path in the options, found none ("}));
    CHECK(says(decline(none.context, MXQ_FORMAT_BF16), {"cublaslt", "needs libcublasLt.so.13 or .12"}));
    int without = 0;
    for (const char* name : required_of_cublaslt) {
        machine = played::machine;
        machine.missing = name;
        const Opened opened = open_on(machine);
        INFO(name);
        REQUIRE(opened.status == MXQ_STATUS_OK);
        const std::string words =
            std::string("needs a cuBLASLt that has ") + name + ", found one without in libcublasLt.so.13";
        CHECK(opened.cublaslt == words);
        CHECK(says(decline(opened.context, MXQ_FORMAT_BF16), {words.c_str()}));
        ++without;
    }
    CHECK(without == 15);
    // Groups need a function that old releases are without; plain products do not.
    machine = played::machine;
    machine.missing = "cublasLtGroupedMatrixLayoutCreate";
    const Opened old = open_on(machine);
    CHECK(decline(old.context, MXQ_FORMAT_BF16) == "");
    CHECK(says(decline(old.context, MXQ_FORMAT_BF16, 2), {"needs a cuBLASLt with grouped layouts, found 13.10 in "}));
}

TEST_CASE("machine: an old cuBLASLt serves what it can, and says what it is too old for") {
    played::Machine machine = played::machine;
    machine.cublaslt_version = 120300;
    const Opened old = open_on(machine);
    REQUIRE(old.status == MXQ_STATUS_OK);
    CHECK(says(old.cublaslt, {"cuBLASLt 12.3.0, "}));
    CHECK(decline(old.context, MXQ_FORMAT_BF16) == "");
    CHECK(says(decline(old.context, MXQ_FORMAT_BF16, 2), {"needs cuBLASLt 13.7 for groups of", "found 12.3 in "}));
}

// Contexts of the caller's own: none, and one that is not the library's.
TEST_CASE(
    "machine: every function leaves the current context, the capture mode, what is pushed, and the thread's own state") {
    const Opened opened = open_on(played::machine);
    testing::EveryFunction every(opened.context);
    int other = 0;
    const auto mode = [] {
        cudaStreamCaptureMode now = cudaStreamCaptureModeThreadLocal, theirs = now;
        cudaThreadExchangeStreamCaptureMode(&theirs);
        now = theirs;
        cudaThreadExchangeStreamCaptureMode(&theirs);
        return now;
    };
    int calls = 0;
    for (void* current : {static_cast<void*>(nullptr), static_cast<void*>(&other)}) {
        played::make_current(current);
        const int pushed = played::live().pushed;
        const cudaStreamCaptureMode before = mode();
        for (const testing::Function& function : every.functions()) {
            INFO(function.name);
            CHECK(testing::changed_by(function) == "");
            CHECK(played::current() == current);
            CHECK(played::live().pushed == pushed);
            CHECK(mode() == before);
            ++calls;
        }
        {
            const Opened second = open_on(played::machine);
            CHECK(played::current() == current);
        }
        CHECK(played::current() == current);
    }
    played::make_current(nullptr);
    CHECK(calls >= 440);
}
