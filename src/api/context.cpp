#include "core/context.h"

#include "api/guard.h"
#include "core/environment.h"
#include "core/options.h"
#include "cpu/engine.h"
#include "cuda/backend.h"
#include "dispatch/choice.h"
#include "dispatch/forced.h"

using namespace mxq;

mxq_status mxq_context_options_create(mxq_context_options** out) { return create(out); }

void mxq_context_options_destroy(mxq_context_options* options) { destroy(options); }

namespace {

void require_one_pool(bool own_threads, mxq_parallel_for parallel_for) {
    if (parallel_for && own_threads)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options have a parallel_for and threads of their own, expected one of them; call "
             "mxq_context_options_set_parallel_for with NULL, or mxq_context_options_set_own_threads with 0, first");
}

}  // namespace

mxq_status mxq_context_options_set_threads(mxq_context_options* options, int32_t threads) {
    return with(options, [&](auto& o) {
        constexpr int32_t most = 1024;
        if (threads < 0 || threads > most)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "threads is %d, expected 0 (one per core) to %d", threads, most);
        o.threads = threads;
    });
}

mxq_status mxq_context_options_set_own_threads(mxq_context_options* options, int32_t own) {
    return with(options, [&](auto& o) {
        require_flag(own, "own");
        require_one_pool(own == 1, o.parallel_for);
        o.own_threads = own;
    });
}

mxq_status mxq_context_options_set_parallel_for(mxq_context_options* options, mxq_parallel_for parallel_for, void* user) {
    return with(options, [&](auto& o) {
        if (user && !parallel_for)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "user is set but parallel_for is NULL, expected both, or NULL with NULL to clear");
        require_one_pool(o.own_threads, parallel_for);
        o.parallel_for = parallel_for;
        o.user = user;
    });
}

mxq_status mxq_context_options_set_cublaslt_path(mxq_context_options* options, const char* path) {
    return with(options, [&](auto& o) { o.cublaslt_path = path ? path : ""; });
}

mxq_status mxq_context_create(int32_t device_type, int32_t ordinal, const mxq_context_options* options, mxq_context** out) {
    return guard_create(out, [&] {
        const mxq_context_options_s defaults;
        const mxq_context_options_s& wanted = options ? require_handle(options, "options") : defaults;
        const bool is_cpu = device_type == MXQ_DEVICE_CPU;
        if (!is_cpu && device_type != MXQ_DEVICE_CUDA)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "device_type is %d, expected MXQ_DEVICE_CPU (1) or MXQ_DEVICE_CUDA (2)",
                 device_type);
        if (ordinal < 0 || (is_cpu && ordinal != 0))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "ordinal is %d, expected 0%s", ordinal, is_cpu ? " for the CPU" : " or more");
        auto context = std::make_unique<mxq_context_s>();
        context->device_type = device_type;
        context->forced = forced_implementations(*context, environment_variable("MXQ_IMPL"));
        if (is_cpu)
            cpu::open(*context, wanted);
        else
            cuda::open(*context, ordinal, wanted.cublaslt_path, load_implementations);
        if (context->cublaslt.empty()) context->cublaslt = is_cpu ? "not used by the CPU backend" : "not used by this build";
        return context.release();
    });
}

void mxq_context_destroy(mxq_context* context) { destroy(context); }

const char* mxq_context_description(const mxq_context* context) {
    return context && is_alive(context) ? context->description.c_str() : "";
}

const char* mxq_context_cublaslt(const mxq_context* context) {
    return context && is_alive(context) ? context->cublaslt.c_str() : "";
}
