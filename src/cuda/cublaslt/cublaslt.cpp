// `cublaslt`: D = A B^T by one call of cuBLASLt. Groups take a call each, which needs their ends on the host.
//
// `cublaslt_grouped`: every group's product in one call, through the library's grouped matrix layout.
//
//     ends on the device -> prepare_groups -> sizes, leading dimensions, pointers, packed scales -> cuBLASLt
//
// The host knows averages alone, which the heuristic is given. What the library leaves is zeroed: the padding of D before
// it, D of groups with an empty contraction behind it.
//
// Sums of 16-bit numbers are fp32, as in mma_bf16: MXQ_BOUND_EXACT_PRODUCTS. Sums of FP8 codes keep 14 bits inside Hopper's
// tensor cores and are added to fp32 every 128 of the contraction, since fast accumulation is off:
// MXQ_BOUND_FP8_TENSOR_CORES. What Blackwell's keep is not known: MXQ_BOUND_BLACKWELL_TENSOR_CORES.
//
// The library multiplies a sum by the scale of its row and then by that of its column. Scales of tensors and NVFP4's global
// ones it multiplies with each other first: docs/numerics.md says what must be a normal number for that.
#include <algorithm>

#include "core/groups.h"
#include "cuda/cublaslt/products.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

// A group's product: where it starts, its rows, and how it is made.
struct Product {
    GroupStart a, b;
    int64_t d_row, rows;
    lt::PreparedProduct prepared;

    GemmProblem problem(const GemmProblem& p) const { return lt::product_of_group(p, a, b, d_row, rows); }
};

// Holds the products of a call's groups, which run one after another in the same workspace.
using Products = std::vector<Product>;

// Returns a product for every group that has rows, not prepared yet. Checks the ends.
Products products_of_groups(const GemmProblem& p) {
    Groups on_host = p.groups;
    on_host.ends = p.host_ends;
    const std::vector<Group> groups = read_groups({on_host, p.group_rows}, "a");
    const bool by_rows = p.grouping == Grouping::Rows;
    const std::vector<GroupStart> a = group_starts(groups, p.a.units);
    const std::vector<GroupStart> b = group_starts(groups, by_rows ? GroupUnits{p.d.group_unit, 1} : p.b.units);
    Products products;
    products.reserve(groups.size());
    for (size_t g = 0; g < groups.size(); g++) {
        const int64_t d_row = by_rows ? b[g].codes : int64_t(g) * p.m;
        if (groups[g].rows > 0) products.push_back({a[g], b[g], d_row, groups[g].rows, {}});
    }
    return products;
}

Reason check_groups(const Context& context, const GemmProblem& p) {
    if (auto reason = lt::needs_session(context); !reason.empty()) return reason;
    if (!p.host_ends) return "needs the ends of the groups on the host, found them on the device alone";
    return lt::check_groups(p);
}

Prepared prepare_groups(const Context& context, const GemmProblem& p) {
    if (auto reason = check_groups(context, p); !reason.empty()) return {reason, 0, nullptr};
    const auto products = std::make_shared<Products>(products_of_groups(p));
    uint64_t bytes = lt::kWorkspaceBytes;
    for (Product& product : *products) {
        if (auto reason = lt::prepare_product(context, product.problem(p), {}, product.prepared); !reason.empty())
            return {reason, 0, nullptr};
        bytes = std::max(bytes, product.prepared.workspace.bytes);
    }
    return {{}, bytes, products};
}

void run_groups(const Context& context, const GemmProblem& p, const Launch& launch) {
    for (const Product& product : *static_cast<const Products*>(launch.state))
        lt::run_product(context, product.problem(p), product.prepared, launch);
    lt::zero_rest(context, p, launch.stream);
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    return p.grouping == Grouping::None ? lt::prepare_as_is(context, p) : prepare_groups(context, p);
}

void run(const Context& context, const GemmProblem& p, const Launch& launch) {
    if (p.grouping != Grouping::None)
        run_groups(context, p, launch);
    else
        lt::run_product(context, p, *static_cast<const lt::PreparedProduct*>(launch.state), launch);
}

void run_in_one_call(const Context& context, const GemmProblem& p, const Launch& launch) {
    lt::run_groups(context, p, {}, *static_cast<const lt::PreparedProduct*>(launch.state), launch);
}

}  // namespace

const GemmImplementation cublaslt{.name = "cublaslt",
                                  .run = run,
                                  .load = lt::load_arrays,
                                  .bound = lt::product_bound,
                                  .prepare = prepare,
                                  .reads_across = true};
const GemmImplementation cublaslt_grouped{.name = "cublaslt_grouped",
                                          .run = run_in_one_call,
                                          .bound = lt::product_bound,
                                          .prepare = lt::prepare_as_is,
                                          .reads_across = true};

}  // namespace mxq::cuda
