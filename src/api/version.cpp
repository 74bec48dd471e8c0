#include "core/error.h"
#include "mxq/mxq.h"

#define MXQ_TEXT_OF(x) #x
#define MXQ_TEXT(x) MXQ_TEXT_OF(x)

static_assert(MXQ_VERSION == MXQ_VERSION_MAJOR * 10000 + MXQ_VERSION_MINOR * 100 + MXQ_VERSION_PATCH);

int32_t mxq_version(void) { return MXQ_VERSION; }

const char* mxq_version_string(void) {
    return MXQ_TEXT(MXQ_VERSION_MAJOR) "." MXQ_TEXT(MXQ_VERSION_MINOR) "." MXQ_TEXT(MXQ_VERSION_PATCH);
}

const char* mxq_build_string(void) {
#if defined(__clang__)
    return "Clang " __clang_version__ ", " MXQ_BUILD_CUDA;
#else
    return "GCC " __VERSION__ ", " MXQ_BUILD_CUDA;
#endif
}

const char* mxq_last_error(void) { return mxq::last_error(); }
