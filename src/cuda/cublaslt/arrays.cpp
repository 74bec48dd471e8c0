#include "cuda/cublaslt/arrays.h"

#include "dispatch/prepared.h"

namespace mxq::cuda::lt {
namespace {

template <class T>
T* take(uintptr_t& at, int64_t count) {
    T* const taken = reinterpret_cast<T*>(at);
    at += uintptr_t(round_up(count * int64_t(sizeof(T)), kWorkspaceAlignment));
    return taken;
}

// Returns where the arrays end.
uintptr_t lay_out(uintptr_t at, int32_t groups, GroupArrays& arrays) {
    GroupSizes& sizes = arrays.sizes;
    for (int32_t** array : {&sizes.m, &sizes.n, &sizes.k, &sizes.a_ld, &sizes.b_ld, &sizes.d_ld})
        *array = take<int32_t>(at, groups);
    for (const void*** array : {&arrays.a, &arrays.b, &arrays.a_scales, &arrays.b_scales})
        *array = take<const void*>(at, groups);
    arrays.d = take<void*>(at, groups);
    for (const float*** array : {&arrays.alphas, &arrays.betas}) *array = take<const float*>(at, groups);
    arrays.alpha = take<float>(at, groups);
    arrays.beta = take<float>(at, 1);
    return at;
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
