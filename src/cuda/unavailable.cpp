// Stand-ins for the chips' folders that a build leaves out: every implementation of such a folder declines. The build sets
// MXQ_BUILT_PORTABLE and MXQ_BUILT_SM90 to 1 for the folders that it has, to 0 for the others.
#include "core/routed_problem.h"
#include "cuda/backend.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

template <class Problem>
[[maybe_unused]] Reason built_without_cuda(const Context&, const Problem&) {
    return "this library was built without CUDA";
}

template <class Problem>
[[maybe_unused]] Reason built_without_sm90(const Context&, const Problem&) {
    return MXQ_BUILT_PORTABLE ? "this library was built without kernels for sm_90a; build it with MXQ_CUDA_ARCHITECTURES=90a-real"
                              : "this library was built without CUDA";
}

}  // namespace

// A row expands to its stand-in where its folder is left out, and to nothing where it is built.
#if MXQ_BUILT_PORTABLE
#define MXQ_STAND_IN_portable(Problem, name)
#else
#define MXQ_STAND_IN_portable(Problem, name) \
    constinit const Implementation<Problem> name{#name, built_without_cuda<Problem>, nullptr, nullptr, nullptr};
#endif
#if MXQ_BUILT_SM90
#define MXQ_STAND_IN_sm90(Problem, name)
#else
#define MXQ_STAND_IN_sm90(Problem, name) \
    constinit const Implementation<Problem> name{#name, built_without_sm90<Problem>, nullptr, nullptr, nullptr};
#endif
#define MXQ_IMPLEMENTATION(chip, Problem, name) MXQ_STAND_IN_##chip(Problem, name)
#include "cuda/implementations.def"
#undef MXQ_IMPLEMENTATION

#if !MXQ_BUILT_PORTABLE
void open(Context&, int, const std::string&, void (*)(const Context&)) {
    fail(MXQ_STATUS_NO_DEVICE,
         "this libmxq was built without CUDA; use MXQ_DEVICE_CPU, or build it where a CUDA compiler is found (MXQ_CUDA=ON)");
}

int compute_capability(const Context&) { return 0; }
int multiprocessors(const Context&) { return 0; }
#endif

}  // namespace mxq::cuda
