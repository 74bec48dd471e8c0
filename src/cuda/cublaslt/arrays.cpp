#include "cuda/cublaslt/arrays.h"

#include "dispatch/prepared.h"

namespace mxq::cuda::lt {
namespace {

// Returns where the arrays end.
uintptr_t lay_out(uintptr_t at, int32_t groups, GroupArrays& arrays) {
    WorkspaceParts workspace{at};
    const auto take = [&]<class T>(T*& array, int64_t count) { array = workspace.take<T>(count * int64_t(sizeof(T))); };
    GroupSizes& sizes = arrays.sizes;
    for (int32_t** array : {&sizes.m, &sizes.n, &sizes.k, &sizes.a_ld, &sizes.b_ld, &sizes.d_ld}) take(*array, groups);
    for (const void*** array : {&arrays.a, &arrays.b, &arrays.a_scales, &arrays.b_scales}) take(*array, groups);
    take(arrays.d, groups);
    for (const float*** array : {&arrays.alphas, &arrays.betas}) take(*array, groups);
    take(arrays.alpha, groups);
    take(arrays.beta, 1);
    return workspace.at;
}

uint64_t packed_bytes(const GemmProblem& p, Side side, const MatrixDescription& matrix) {
    const int64_t bytes = matrix.packs ? packed_floats(p, side) * int64_t(sizeof(float)) : 0;
    return uint64_t(round_up(bytes, kWorkspaceAlignment));
}

}  // namespace

GroupArrays group_arrays(void* base, int32_t groups) {
    GroupArrays arrays{};
    lay_out(reinterpret_cast<uintptr_t>(base), groups, arrays);
    return arrays;
}

MatmulDescription with_arrays(const MatmulDescription& matmul, const GroupArrays& arrays) {
    MatmulDescription out = matmul;
    out.a.data = arrays.a;
    out.b.data = arrays.b;
    if (out.a.mode != ScaleMode::Scalar) out.a.scales = arrays.a_scales;
    if (out.b.mode != ScaleMode::Scalar) out.b.scales = arrays.b_scales;
    out.d = arrays.d;
    return out;
}

WorkspaceLayout workspace_layout(const GemmProblem& p, const MatmulDescription& matmul) {
    GroupArrays arrays{};
    WorkspaceLayout out{};
    out.arrays = kWorkspaceBytes;
    out.packed_a = out.arrays + lay_out(0, matmul.groups, arrays);  // a single product uses the room of beta for its factors
    out.packed_b = out.packed_a + packed_bytes(p, Side::A, matmul.b);
    out.bytes = out.packed_b + packed_bytes(p, Side::B, matmul.a);
    return out;
}

}  // namespace mxq::cuda::lt
