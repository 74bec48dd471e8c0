// Holds what a product is to cuBLASLt, as plain numbers: made and explained without the library and without a GPU.
//
//     GemmProblem          D (m, n), row-major     = A (m, k) B (n, k)^T     K-major rows of codes
//     MatmulDescription    D (n, m), column-major  = A (k, n)^T B (k, m)     the same bytes: its A is our B, transposed
//
// Every quantized part is K-major. So cuBLASLt's (T,N) form, the only one that all formats have, serves our (N,T), (N,N)
// and (T,N) alike, once the transpose has picked the part. Plain operands have one part; where it is MN-major, cuBLASLt's
// own transposes take it.
#pragma once
#include <library_types.h>

#include <string>

#include "core/problem.h"
#include "dispatch/reason.h"

namespace mxq::cuda::lt {

// cublasLtMatmulMatrixScale_t; of its own, since older headers lack the later ones.
enum class ScaleMode : int32_t {
    Scalar = 0,          // one float
    Vec16 = 1,           // E4M3 per 16 codes, swizzled
    Vec32 = 2,           // E8M0 per 32 codes, swizzled
    OuterVec = 3,        // a float per K-major row
    Vec128 = 4,          // a float per 128 codes: (ceil(k / 128), K-major rows)
    Block128 = 5,        // a float per 128 x 128: (ceil(K-major rows / 128), ceil(k / 128) rounded up to 4)
    GroupScalar = 6,     // an array of pointers to a float per group
    None = -1,           // plain numbers
};

constexpr int32_t kBlackwellCapability = 100;  // from here on tensor cores take E8M0 and E4M3 scales

// Holds what there is to run on.
struct Machine {
    int32_t capability;  // 90 for 9.0
    int32_t version;     // 130100 for 13.1.0
    std::string path;
};

// One operand as cuBLASLt sees it: k rows, and a column for each of our K-major rows. `across`: k columns, and a row for
// each.
struct MatrixDescription {
    cudaDataType type;
    ScaleMode mode;
    const void* data;    // of a group: an array of pointers on the device, as are the scales
    const void* scales;
    int64_t lines;
    int64_t ld;          // codes from one stored row to the next
    bool packs;          // its fp32 scales have another layout: a kernel copies them into the workspace first
    bool across;         // of plain numbers: MN-major
};

// Where the factors of the sums come from: those of the caller from the host, those with NVFP4's from the device.
enum class Alpha { Host, Device, DevicePerGroup };

// A product as cuBLASLt sees it: its A is our B, its rows of D are our columns.
struct MatmulDescription {
    MatrixDescription a, b;
    cudaDataType d_type;
    void* d;
    int64_t ldd;
    int64_t m, n, k;     // of groups: averages, where the device alone knows better
    int32_t groups;      // 0: one product
    bool reads_d;
    Alpha alpha;
    bool has_bias;
    cudaDataType bias_type;
    const void* bias;
    int32_t sm_count;    // 0: all
};

// Says of our A and of our B whether something is so.
struct Sides {
    bool a = false, b = false;
};

// Fill `out`, or return what cuBLASLt needs and what was found. `packed`: whose fp32 scales of 128 are stored group after
// group already, as prepare_groups of arrays.h would put them. A reason refers to the machine.
Reason describe(const GemmProblem& p, const Machine& machine, MatmulDescription& out);
Reason describe_grouped(const GemmProblem& p, const Machine& machine, const Sides& packed, MatmulDescription& out);

// Gives the description of a product the pointers of `p`, which is the same product elsewhere in memory.
void point_at(const GemmProblem& p, MatmulDescription& out);

// Returns why the groups cannot be taken one by one; empty where they can.
Reason check_groups(const GemmProblem& p);

// Returns one group as a product of its own; `a`, `b` and `d_row` are where it starts in the parts and in D.
GemmProblem product_of_group(const GemmProblem& p, const GroupStart& a, const GroupStart& b, int64_t d_row, int64_t rows);

bool is_nvfp4(const GemmOperand& operand);

// Returns the words for operands under these scales.
const char* mode_name(ScaleMode mode);

// Returns the floats that the packed scales of an operand take; with groups, the bound that the host can know.
int64_t packed_floats(const GemmProblem& p, Side side);

// The rows of a group's scales of 1x128, and the columns of scales of 128x128, are rounded up to these. The rows of D of a
// single product must be a multiple of the first.
constexpr int32_t kPackedRows = 4, kPackedColumns = 4;

}  // namespace mxq::cuda::lt
