// Sets round-to-nearest without flushing of subnormals for as long as the object lives, then restores what was there before.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace mxq {

class FloatEnvironment {
public:
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

#if defined(__x86_64__)
    FloatEnvironment() : before_(_mm_getcsr()) { _mm_setcsr(0x1F80); }  // masks all exceptions
    ~FloatEnvironment() { _mm_setcsr(before_); }

private:
    unsigned before_;
#else
    FloatEnvironment() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~FloatEnvironment() { std::fesetenv(&before_); }

private:
    std::fenv_t before_;
#endif
};

}  // namespace mxq
