// What a caller has set for its thread and its process, and which no function of the library may change.
#ifndef MXQ_TESTS_ABI_CALLER_H
#define MXQ_TESTS_ABI_CALLER_H

#include "../every_function.h"

#include <pthread.h>

#include <cerrno>
#include <cfenv>
#include <clocale>
#include <csignal>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace testing {

#if defined(__SSE2__)
// Rounding up, flushed subnormals, subnormals read as 0, and a trap for each exception, none of which is flagged.
inline constexpr unsigned odd_mode = 0x8040 | 0x4000;
inline unsigned float_mode() { return _mm_getcsr(); }
inline void set_float_mode(unsigned mode) { _mm_setcsr(mode); }
#else
inline constexpr unsigned odd_mode = FE_UPWARD;
inline unsigned float_mode() { return static_cast<unsigned>(fegetround()); }
inline void set_float_mode(unsigned mode) { fesetround(static_cast<int>(mode)); }
#endif

// Returns what differs after a call, or "".
inline std::string changed_by(const Function& function) {
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

}  // namespace testing

#endif
