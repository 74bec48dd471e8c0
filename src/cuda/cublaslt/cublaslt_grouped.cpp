// `cublaslt_grouped`: every group's product in one call of cuBLASLt, through its grouped matrix layout.
//
//     ends on the device -> prepare_groups -> sizes, leading dimensions, pointers, packed scales -> cuBLASLt
//
// The host knows averages alone, which the heuristic is given. What the library leaves is zeroed: the padding of D before it, D
// of groups with an empty contraction behind it.
#include "cuda/cublaslt/products.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

void run(const Context& context, const GemmProblem& p, const Launch& launch) {
    lt::run_groups(context, p, {}, *static_cast<const lt::PreparedProduct*>(launch.state), launch);
}

void load(const Context&) { lt::load_arrays(); }

}  // namespace

const GemmImplementation cublaslt_grouped{
    .name = "cublaslt_grouped",
    .run = run,
    .load = load,
    .bound = lt::product_bound,
    .prepare = lt::prepare_as_is,
    .reads_across = true};

}  // namespace mxq::cuda
