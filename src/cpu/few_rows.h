// One task of a product of few rows: the rows of A of one product times some rows of B.
#pragma once
#include <memory>

#include "cpu/few_rows_kernels.h"
#include "cpu/scratch.h"

namespace mxq::cpu {

// Products of so few rows, or fewer, are served by FewRowsKernels, which decode B for up to kPassRows rows at a time.
constexpr int64_t kFewRows = 2 * kPassRows;

// Holds what a task works in; it is part of a worker's scratch.
struct alignas(64) FewRowsScratch {
    static constexpr int64_t row_floats = 64 << 10, most_columns = 512, most_columns_of_many = 256;

    float rows[row_floats];                              // as fp32, which may be packed in place
    float values[kPassDepth];                            // a decoded line
    float lanes[most_columns_of_many * kPassRows * 16];  // sums of lanes
    float strip[kFewColumns * kPassRows * 16];
    float sums[most_columns_of_many * kFewRows];
    uint8_t unsafe[most_columns], extreme[kFewRows], nonzero[kFewRows];
};
static_assert(sizeof(FewRowsScratch) <= kScratchBytes && alignof(FewRowsScratch) <= kScratchAlignment);

// The products of few rows of one call.
class FewRows {
public:
    FewRows(const FewRowsKernels& kernels, const GemmKernels& gemm_kernels, int64_t workers)
        : kernels_(kernels), gemm_kernels_(gemm_kernels), prepared_(std::make_unique<Prepared[]>(size_t(workers))) {}

    // Returns how many rows at a time A is multiplied with B: all, or up to kFewRows where that is faster than the kernels
    // that decode B for many rows (gemm_kernels.h).
    static int64_t rows_of_cut(const OperandLines& a, const OperandLines& b, int64_t k);

    // Returns how many rows of B a task with so many rows takes at most.
    static int64_t most_columns(int64_t rows);

    // Sets scratch.sums[row][b.count] to the products' sums. `product` is a number of its own for each A of the call. `odd`
    // is as in sum_again. `scratch` is the worker's, and nothing else writes there between its products.
    void multiply(int64_t product, const OperandLines& a, const OperandLines& b, int64_t k, bool odd, int worker,
                  FewRowsScratch& scratch) const;

private:
    // Tells of which product a worker's scratch has all rows prepared (`rows`, `extreme` and `nonzero`), so that the
    // worker's next task of that product does not prepare them again. It is not part of scratch, whose memory begins with
    // any bytes.
    struct alignas(64) Prepared {
        int64_t product = -1;  // -1: nothing
        Products products = Products::scaled;
        const void* integers = nullptr;
    };

    bool is_extreme(const OperandLines& line, int64_t k, FewRowsScratch& scratch) const;
    void repair(const OperandLines& a, const OperandLines& b, int64_t k, bool odd, Prepared& prepared,
                FewRowsScratch& scratch) const;

    const FewRowsKernels& kernels_;
    const GemmKernels& gemm_kernels_;
    const std::unique_ptr<Prepared[]> prepared_;  // of each worker
};

}  // namespace mxq::cpu
