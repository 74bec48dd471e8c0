// Products through cuBLASLt, for the implementations `cublaslt` and `cublaslt_grouped`, and for those that prepare operands
// for it, such as FP8 codes under fp32 scales of 128.
#pragma once
#include "cuda/cublaslt/arrays.h"
#include "cuda/device.h"
#include "dispatch/prepared.h"

namespace mxq::cuda::lt {

// Returns why the context has no session; empty where it has one.
Reason needs_session(const Context& context);

// Returns why a chip has no tensor cores that take E8M0 and E4M3 scales; empty where it has.
Reason needs_blackwell(int32_t capability);

// Sets the state that a call of cuBLASLt needs, and restores it when destroyed. The context's device is current, and the
// thread may load kernels while one of its streams is captured.
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

// Returns the class of bound of products by cuBLASLt, groups or not. The FP8 tensor cores of 8.9 were not measured: they
// count as Hopper's. Blackwell's have a class of their own.
int32_t product_bound(const Context& context, const GemmProblem& p);
int32_t bound_on(int32_t capability, const GemmProblem& p);

// A product for cuBLASLt, described once a call, when an implementation is asked. It may run on other addresses, such as
// those of a workspace that was unknown then.
struct PreparedProduct {
    MatmulDescription matmul;
    std::shared_ptr<Algorithm> algorithm;
    WorkspaceLayout workspace;
};

// Fills `out`, or returns why cuBLASLt does not take the product, which has no groups or has all of them in one call. `packed`:
// as in describe_grouped.
Reason prepare_product(const Context& context, const GemmProblem& p, const Sides& packed, PreparedProduct& out);

// Prepares a product whose operands cuBLASLt takes where they are, groups in one call. The state is a PreparedProduct.
Prepared prepare_as_is(const Context& context, const GemmProblem& p);

// Enqueues what was prepared for `p`, without groups.
void run_product(const Context& context, const GemmProblem& p, const PreparedProduct& prepared, const Launch& launch);

// Enqueues what was prepared for `p` and `packed`, all groups in one call.
void run_groups(const Context& context, const GemmProblem& p, const Sides& packed, const PreparedProduct& prepared,
                const Launch& launch);

}  // namespace mxq::cuda::lt
