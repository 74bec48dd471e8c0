// What cuBLASLt reads on the device in addition to the operands, in the caller's workspace:
//
//     0                  the library's own workspace
//     kWorkspaceBytes    per group: sizes, leading dimensions, pointers, factor; or the two factors of one product
//     then               fp32 scales of 128 in the layout that it wants, where they have another: of our A, of our B
//
// The sizes come from the groups' ends by one small kernel, so that the host never learns them.
#pragma once
#include "cuda/cublaslt/group_entry.h"
#include "cuda/cublaslt/session.h"
#include "cuda/launch.h"

namespace mxq::cuda::lt {

struct GroupArrays {
    GroupSizes sizes;
    const void **a, **b, **a_scales, **b_scales;  // in cuBLASLt's order
    void** d;
    const float **alphas, **betas;  // to alpha[g], and to beta
    float* alpha;                   // one a group, or the first for all
    float* beta;
};

// Offsets in the workspace, for the scales of our A and B.
struct WorkspaceLayout {
    uint64_t arrays, packed_a, packed_b, bytes;
};

WorkspaceLayout workspace_layout(const GemmProblem& p, const MatmulDescription& matmul);

GroupArrays group_arrays(void* base, int32_t groups);

// Returns the description with these arrays for pointers; one float that serves all groups stays as it is.
MatmulDescription with_arrays(const MatmulDescription& matmul, const GroupArrays& arrays);

// Enqueues a copy of the scales of an operand of a single product, laid out as ScaleMode says.
void pack_scales(const Context& context, const GemmProblem& p, Side side, float* to, void* stream);

// Enqueues all that comes before a grouped product: fills every array, packs the scales of the sides in `packs` to where
// `packed` has them, zeroes the padding of D's groups.
//
// In the packed scales a group's rows are rounded up to kPackedRows. With groups of rows, A's are a matrix of (ceil(k /
// 128), rows) floats at float ceil(k / 128) * (sum of rows before it). With groups along the contraction, both operands
// have (codes / 128, K-major rows) floats at K-major rows * (sum of codes before it) / 128. Experts: as ScaleMode says.
void prepare_groups(const Context& context, const GemmProblem& p, const PackedScales& packed, const Sides& packs,
                    const GroupArrays& to, void* stream);

// Enqueues a kernel that writes the factors of one NVFP4 product: alpha, then beta.
void fill_factors(const Context& context, const GemmProblem& p, float* to, void* stream);

// Zeroes what a grouped product leaves: D of groups with an empty contraction, the padding of D's groups of rows.
void zero_rest(const Context& context, const GemmProblem& p, void* stream);

// Loads the kernels of this file for whoever multiplies through cuBLASLt.
void load_arrays(const Context&);

}  // namespace mxq::cuda::lt
