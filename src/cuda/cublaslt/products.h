// Products through cuBLASLt, for the implementations `cublaslt` and `cublaslt_grouped` and for whoever makes operands that it
// takes, such as FP8 codes under fp32 scales of 128, and then wants them multiplied.
#pragma once
#include "cuda/cublaslt/arrays.h"
#include "dispatch/implementation.h"

namespace mxq::cuda::lt {

// The context's session; NULL where there is none, and then `missing` says why.
Session* session_of(const Context& context, std::string& missing);

// What a call of the library runs under: the context's device, and a thread that may load kernels while a stream of its is
// captured.
class Scope {
public:
    explicit Scope(const Context& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

private:
    CurrentDevice current_;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    bool exchanged_ = false;
};

// The class of bound that products of the library keep, groups or not. Neither Blackwell's block-scaled tensor cores nor the
// FP8 ones of 8.9 were measured: they count as Hopper's FP8 tensor cores.
int32_t product_bound(const GemmProblem& p);

// One product without groups. `run_product` may be called where `declines_product` gave "".
std::string declines_product(const Context& context, const GemmProblem& p);
uint64_t product_workspace(const Context& context, const GemmProblem& p);
void run_product(const Context& context, const GemmProblem& p, const Launch& launch);

// All groups in one call. `packed`: which operands have their scales group after group already.
std::string declines_groups(const Context& context, const GemmProblem& p, const Packed& packed);
uint64_t groups_workspace(const Context& context, const GemmProblem& p, const Packed& packed);
void run_groups(const Context& context, const GemmProblem& p, const Packed& packed, const Launch& launch);

}  // namespace mxq::cuda::lt
