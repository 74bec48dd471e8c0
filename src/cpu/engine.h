// Holds what a CPU context works with: its threads, which other contexts may share, the memory that they work in, and the
// kernels of the best instruction set that the machine has.
#pragma once
#include <memory>

#include "core/context.h"
#include "core/options.h"
#include "cpu/few_rows_kernels.h"
#include "cpu/kernels.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

namespace mxq::cpu {

// The kernels as they are built for one instruction set.
struct InstructionSet {
    const char* name;
    const Kernels* kernels;
    const GemmKernels* gemm_kernels;
    const FewRowsKernels* few_rows_kernels;  // nullptr: there are none
};

class Engine {
public:
    // The environment variable MXQ_CPU_ISA (scalar, avx2, avx512bw, avx512, avx512bf16) names the most that the instruction
    // set may be; every instruction set gives the same bytes.
    explicit Engine(const mxq_context_options_s& options);

    ThreadPool& pool() const { return *pool_; }
    ScratchCache& scratch() const { return scratch_; }
    const char* instruction_set() const { return instruction_set_.name; }
    const Kernels& kernels() const { return *instruction_set_.kernels; }
    const GemmKernels& gemm_kernels() const { return *instruction_set_.gemm_kernels; }
    const FewRowsKernels* few_rows_kernels() const { return instruction_set_.few_rows_kernels; }

private:
    const InstructionSet instruction_set_;
    const std::shared_ptr<ThreadPool> pool_;
    mutable ScratchCache scratch_;
};

// Opens a context on the CPU: sets context.cpu and context.description.
void open(Context& context, const mxq_context_options_s& options);

}  // namespace mxq::cpu
