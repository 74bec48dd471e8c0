// Includes Catch2 2.13 or 3, and defines a way to skip a running case that works the same with both.
#ifndef MXQ_TESTS_CATCH_H
#define MXQ_TESTS_CATCH_H

#if __has_include(<catch2/catch_all.hpp>) && !__has_include(<catch2/catch.hpp>)
#include <catch2/catch_all.hpp>
#define MXQ_CATCH_VERSION 3
#else
#include <catch2/catch.hpp>
#define MXQ_CATCH_VERSION 2
#endif

#include <string>

namespace testing {
inline std::string skip_reason;  // why the running case is skipped; empty: it is not
}

#define MXQ_SKIP(reason)                \
    do {                                \
        ::testing::skip_reason = reason; \
        return;                         \
    } while (0)

#endif
