// Environment variables of any text. A context is made, or refused with a message.
#include "check.h"
#include "targets.h"

#include <cstdlib>
#include <iterator>

namespace fuzz {

namespace {

// Returns words of the variables' grammar, put together at random, or any text.
std::string text(Input& in) {
    constexpr const char* words[] = {"gemm", "grouped_gemm", "quantize",   ":", ",",  "cpu", "cublaslt",
                                     "avx2", "scalar",       "avx512bf16", " ", "%s", "=",   "mma_bf16"};
    if (in.seldom(4)) return in.text(200);
    std::string made;
    for (int32_t left = in.below(12); left > 0; --left) made += words[in.below(std::size(words))];
    return made;
}

}  // namespace

void environment(Input& in) {
    for (const char* name : {"MXQ_IMPL", "MXQ_CPU_ISA", "MXQ_CUBLASLT_PATH"}) {
        if (in.seldom(3)) continue;
        setenv(name, text(in).c_str(), 1);
    }
    mxq_context_options* options = nullptr;
    mxq_context* context = nullptr;
    if (in.below(2)) {
        mxq_context_options_create(&options);
        mxq_context_options_set_threads(options, in.seldom(8) ? in.wild32() : 1);
        mxq_context_options_set_own_threads(options, in.below(3));
        mxq_context_options_set_cublaslt_path(options, text(in).c_str());
        int32_t threads = 0;
        mxq_context_options_get_threads(options, &threads);
        if (threads != 1) mxq_context_options_set_threads(options, 2);
    }
    const mxq_device device = in.seldom(16) ? in.wild32() : MXQ_DEVICE_CPU;
    const mxq_status status = mxq_context_create(device, in.seldom(16) ? in.wild32() : 0, options, &context);
    for (const char* name : {"MXQ_IMPL", "MXQ_CPU_ISA", "MXQ_CUBLASLT_PATH"}) unsetenv(name);
    require((status == MXQ_STATUS_OK) == (context != nullptr), "mxq_context_create", "a context that was refused is NULL");
    if (!context) require(*mxq_last_error() != 0, "mxq_context_create", "a refusal has a message");
    if (context) require(*mxq_context_description(context) != 0, "mxq_context_description", "it is empty");
    mxq_context_destroy(context);
    mxq_context_options_destroy(options);
}

}  // namespace fuzz
