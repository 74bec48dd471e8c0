#include "cpu/engine.h"

#include <cstring>

#include "core/environment.h"
#include "core/error.h"
#include "cpu/shared_pools.h"
#include "cpu/usable_cores.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mxq::cpu {
namespace {

struct Candidate {
    bool (*runs_here)();  // whether the machine has it and the system keeps its registers
    InstructionSet build;
};

#if defined(__x86_64__)
// Returns whether the machine converts F16, which Clang has a name for only from version 18 on.
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
// Returns whether the machine has all that the avx2 build is compiled for.
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
// Returns whether the machine has all that the avx512bw build is compiled for.
bool has_avx512bw() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
// Returns whether the machine has what these builds of the kernels for few rows are compiled for.
bool has_avx512() { return has_avx512bw() && __builtin_cpu_supports("avx512vbmi"); }
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
// Returns whether dot products of BF16 numbers are slower than multiply-adds. Intel's takes as long as four of these, which
// make twice as many products.
bool has_slow_dots() { return __builtin_cpu_is("intel"); }
#define MXQ_X86_BUILD(isa, gemm_isa, few_rows_isa) \
    { #few_rows_isa, &isa##_kernels, &gemm_isa##_gemm_kernels, &few_rows_isa##_few_rows_kernels }
#else
bool has_avx2() { return false; }
bool has_avx512bw() { return false; }
bool has_avx512() { return false; }
bool has_avx512bf16() { return false; }
bool has_slow_dots() { return false; }
#define MXQ_X86_BUILD(isa, gemm_isa, few_rows_isa) \
    { #few_rows_isa, nullptr, nullptr, nullptr }
#endif

// The builds, from the least to the most that they ask of a machine.
const Candidate candidates[] = {
    {[] { return true; }, {"scalar", &scalar_kernels, &scalar_gemm_kernels, nullptr}},
    {has_avx2, MXQ_X86_BUILD(avx2, avx2, avx2)},
    {has_avx512bw, MXQ_X86_BUILD(avx512bw, avx512bw, avx512bw)},
    {has_avx512, MXQ_X86_BUILD(avx512bw, avx512bw, avx512)},
    {has_avx512bf16, MXQ_X86_BUILD(avx512bw, avx512bf16, avx512bf16)},
};

// Returns the build that MXQ_CPU_ISA names, or the last one, if it is not slower than the one before it.
const Candidate* cap_of_environment() {
    const char* cap = environment_variable("MXQ_CPU_ISA");
    if (!cap || !*cap) return std::end(candidates) - (has_slow_dots() ? 2 : 1);
    for (const Candidate& candidate : candidates)
        if (std::strcmp(cap, candidate.build.name) == 0) return &candidate;
    fail(MXQ_STATUS_INVALID_ARGUMENT,
         "the environment variable MXQ_CPU_ISA is \"%.32s\", expected scalar, avx2, avx512bw, avx512 or avx512bf16; or "
         "leave it unset",
         cap);
}

// Returns the last build, up to that cap, that runs here.
InstructionSet best_instruction_set() {
    const Candidate* candidate = cap_of_environment();
    while (!candidate->runs_here()) candidate--;
    return candidate->build;
}

std::shared_ptr<ThreadPool> pool_for(const mxq_context_options_s& options) {
    const int threads = options.threads > 0 ? options.threads : usable_cores();
    if (!options.parallel_for && !options.own_threads) return shared_pool(threads);
    return {new ThreadPool(threads, {options.parallel_for, options.user}), ThreadPool::release};
}

}  // namespace

Engine::Engine(const mxq_context_options_s& options)
    : instruction_set_(best_instruction_set()), pool_(pool_for(options)), scratch_(pool_->threads()) {}

void open(Context& context, const mxq_context_options_s& options) {
    context.cpu = std::make_shared<Engine>(options);
    const int count = context.cpu->pool().threads();
    context.description = format_text("CPU, %d thread%s%s, %s", count, count == 1 ? "" : "s",
                                      options.parallel_for ? " of the host" : "", context.cpu->instruction_set());
}

}  // namespace mxq::cpu
