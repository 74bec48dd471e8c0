// One task of a product of few rows: the rows of A of one product times some rows of B.
#pragma once
#include <memory>

#include "cpu/few_rows_kernels.h"
#include "cpu/scratch.h"

namespace mxq::cpu {

// Products of so few rows, or fewer, are served by FewRowsKernels, which decode B for up to kPassRows rows at a time.
constexpr int64_t kFewRows = 4 * kPassRows;

// Holds what a task works in; it is part of a worker's scratch.
struct alignas(64) FewRowsScratch {
    static constexpr int64_t row_floats = 64 << 10, most_columns = 512, most_columns_of_many = 256;
    static constexpr int64_t depth = 2 * kGemmDepth;  // of a block that is multiplied again

    float* rows() { return memory; }                // as fp32, which may be packed in place
    float* lanes() { return memory + row_floats; }  // sums of lanes

    float memory[row_floats + most_columns_of_many * kPassRows * 16];  // of a block that is multiplied again, too
    float strip[kFewColumns * kPassRows * 16];
    float sums[most_columns_of_many * kFewRows];
    uint8_t again[most_columns], extreme[kFewRows], nonzero[kFewRows];
};
static_assert(floats_of_block(kFewRows, kPanelColumns, kMostDepth, FewRowsScratch::depth) * int64_t(sizeof(float)) <=
              int64_t(sizeof(FewRowsScratch::memory)));
static_assert(sizeof(FewRowsScratch) <= kScratchBytes && alignof(FewRowsScratch) <= kScratchAlignment);

// The products of few rows of one call.
class FewRows {
public:
    FewRows(const FewRowsKernels* kernels, int64_t workers)
        : kernels_(kernels), prepared_(std::make_unique<Prepared[]>(size_t(workers))) {}

    // Returns whether these operands are multiplied here: A has few rows, and sums of codes may be multiplied by factors.
    static bool takes(const OperandLines& a, const OperandLines& b, int64_t k, const FewRowsKernels& kernels);

    // Returns how many rows of B a task with so many rows takes at most.
    static int64_t most_columns(int64_t rows);

    // Sets scratch.sums[row][b.count] to the products' sums, and scratch.extreme, nonzero and again as a GemmBlock has them.
    // Sums of extreme rows are wrong. `product` is a number of its own for each A of the call. `scratch` is the worker's, and
    // nothing else writes there between its products, or forget() tells so.
    void multiply(int64_t product, const OperandLines& a, const OperandLines& b, int64_t k, int worker,
                  FewRowsScratch& scratch) const;
    void forget(int worker) const { prepared_[size_t(worker)].product = -1; }

private:
    // Tells of which product a worker's scratch has all rows prepared (`rows`, `extreme` and `nonzero`), so that the
    // worker's next task of that product does not prepare them again. It is not part of scratch, whose memory begins with
    // any bytes.
    struct alignas(64) Prepared {
        int64_t product = -1;  // -1: nothing
        Products products = Products::fused;
        const void* integers = nullptr;
    };

    const FewRowsKernels* const kernels_;
    const std::unique_ptr<Prepared[]> prepared_;  // of each worker
};

}  // namespace mxq::cpu
