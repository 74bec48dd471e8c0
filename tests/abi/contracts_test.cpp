// Every exported function leaves the caller's floating-point environment, errno, locale and signal mask as they were, and runs
// in many threads that share contexts.
#include "../every_function.h"

#include <cerrno>
#include <cfenv>
#include <clocale>
#include <csignal>
#include <set>
#include <thread>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__SSE2__)
// Rounding up, flushed subnormals, subnormals read as 0, and a trap for each exception, none of which is flagged.
constexpr unsigned odd_mode = 0x8040 | 0x4000;
unsigned float_mode() { return _mm_getcsr(); }
void set_float_mode(unsigned mode) { _mm_setcsr(mode); }
#else
constexpr unsigned odd_mode = FE_UPWARD;
unsigned float_mode() { return static_cast<unsigned>(fegetround()); }
void set_float_mode(unsigned mode) { fesetround(static_cast<int>(mode)); }
#endif

// Returns what differs after a call, or "".
std::string changed_by(const testing::Function& function) {
    const unsigned mode = float_mode();
    const int rounding = fegetround();
    const std::string locale = std::setlocale(LC_ALL, nullptr);
    sigset_t signals_before, signals_after;
    pthread_sigmask(SIG_SETMASK, nullptr, &signals_before);
    fesetround(FE_UPWARD);
    set_float_mode(odd_mode);
    errno = 12345;
    const mxq_status status = function.call();
    const int after = errno;
    const bool kept = float_mode() == odd_mode && fegetround() == FE_UPWARD;
    set_float_mode(mode);
    fesetround(rounding);
    pthread_sigmask(SIG_SETMASK, nullptr, &signals_after);
    if (status != MXQ_STATUS_OK) return "it fails: " + std::string(mxq_last_error());
    if (!kept) return "the floating-point environment";
    if (after != 12345) return "errno, which is " + std::to_string(after);
    if (std::setlocale(LC_ALL, nullptr) != locale) return "the locale";
    for (int signal = 1; signal < 32; ++signal)
        if (sigismember(&signals_before, signal) != sigismember(&signals_after, signal)) return "the signal mask";
    return "";
}

}  // namespace

TEST_CASE("contracts: no function changes the caller's floating-point environment, errno, locale or signal mask", "[cpu]") {
    std::set<std::string> called;
    for (const int32_t threads : {1, 3}) {
        const testing::Context context = testing::cpu_context(threads);
        testing::EveryFunction every(context);
        for (const testing::Function& function : every.functions()) {
            INFO(function.name);
            CHECK(changed_by(function) == "");
            called.insert(function.name);
        }
    }
    CHECK(std::vector<std::string>(called.begin(), called.end()) == testing::EveryFunction::declared());
}

TEST_CASE("contracts: a refused call changes none of these either", "[cpu]") {
    int refused = 0;
    const auto check = [&](const char* name, const std::function<mxq_status()>& call) {
        INFO(name);
        CHECK(changed_by({name, [&] { return call() == MXQ_STATUS_OK ? MXQ_STATUS_INTERNAL_ERROR : MXQ_STATUS_OK; }}) == "");
        ++refused;
    };
    testing::Context context;
    testing::Tensor tensor;
    check("a device", [&] { return mxq_context_create(77, 0, nullptr, context.out()); });
    check("an ordinal", [&] { return mxq_context_create(MXQ_DEVICE_CPU, 5, nullptr, context.out()); });
    check("a CUDA device", [&] { return mxq_context_create(MXQ_DEVICE_CUDA, 4000, nullptr, context.out()); });
    check("a shape", [&] { return mxq_tensor_create_2d(MXQ_FORMAT_F32, -1, 1, tensor.out()); });
    check("a verb", [] { return mxq_quantize(testing::any_context(), nullptr, nullptr, nullptr, nullptr, 0, nullptr); });
    CHECK(refused == 5);
}

// Run under ThreadSanitizer, too: ./tests/sanitize.sh thread.
TEST_CASE("contracts: every function in many threads that share two contexts", "[cpu]") {
    const testing::Context first = testing::cpu_context(2), second = testing::cpu_context(3);
    constexpr size_t thread_count = 6;
    std::vector<std::string> complaints(thread_count);
    const auto work = [&](size_t number) {
        try {
            testing::EveryFunction every(number % 2 ? first : second);
            for (int round = 0; round < 3; ++round)
                for (const testing::Function& function : every.functions())
                    if (function.call() != MXQ_STATUS_OK) complaints[number] = function.name + ": " + mxq_last_error();
        } catch (const std::exception& error) {
            complaints[number] = error.what();
        }
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < thread_count; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
    CHECK(complaints == std::vector<std::string>(thread_count));
}

TEST_CASE("contracts: no verb is missing among them") {
    std::set<std::string> verbs, with_query;
    const testing::Context context = testing::cpu_context(1);
    const testing::EveryFunction every(context);
    for (const testing::Function& function : every.functions())
        if (function.is_verb) verbs.insert(function.name);
    for (const std::string& name : testing::EveryFunction::declared())
        if (name.ends_with("_query")) with_query.insert(name.substr(0, name.size() - 6));
    CHECK(verbs == with_query);
    CHECK(verbs.size() == 17);
}
