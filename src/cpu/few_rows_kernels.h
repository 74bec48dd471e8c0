// The inner loops of products of few rows, compiled once per instruction set from few_rows_kernels.cpp. Every one gives the
// same bits.
#pragma once
#include "cpu/gemm_kernels.h"

namespace mxq::cpu {

// How products of a row's values with codes are made. A product is added to its sum with one rounding. Products of codes that
// have the same factors are summed, and factors are applied to these sums. Where products are exact all give the same bits.
enum class Products {
    dots,   // exact products of BF16 values with codes, in dot products of two where there are such instructions
    exact,  // exact products
    fused   // any products
};

// Rows of A that are multiplied with every row of B that is read, over codes [k, k + depth) of the contraction.
struct FewRowsPass {
    int64_t row_count;  // 1 to kPassRows
    int64_t k, depth;   // k is a multiple of kGemmDepth
    bool first, last;   // whether the contraction begins and ends here
    Products products;
    float* rows;        // from prepare
    float* lanes;       // sums that wait for the next codes: sixteen for each line of B and row of A
    float* strip;       // room for those of kFewColumns lines
    float* sums;        // the sums of all codes, where `last`: sums[row][stride]
    int64_t stride;
    const void* integers;  // from prepare: one row in fixed point, where it is multiplied so
    void* integer_room;    // kIntegerRoom bytes for it, where one row of numbers leaves room
};

// Limits the rows of A of a pass, and the rows of B that a kernel takes at a time.
constexpr int64_t kPassRows = 16, kFewColumns = 4;

// Limits the codes of a pass: so many that it seldom ends within a row of B, since rows of B that are read in chunks are no
// sequential stream.
constexpr int64_t kMostDepth = 16384;

constexpr size_t kIntegerRoom = size_t(128) << 10;

struct FewRowsKernels {
    bool packs_dots;  // whether rows of dot products are pairs of BF16

    // Fills pass.rows with the values of pass.row_count rows of A, in the order that products with such a B take. Sets
    // extreme[row] and nonzero[row] as GemmBlock has them.
    void (*prepare)(FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, uint8_t* extreme, uint8_t* nonzero);

    // Multiplies the prepared rows with the rows of B. Sets again[line] for a row of B that it may not multiply.
    void (*multiply)(const FewRowsPass& pass, const OperandLines& b, uint8_t* again);
};

#if defined(__x86_64__)
extern const FewRowsKernels avx2_few_rows_kernels;
extern const FewRowsKernels avx512bw_few_rows_kernels;
extern const FewRowsKernels avx512_few_rows_kernels;
extern const FewRowsKernels avx512bf16_few_rows_kernels;
#endif

}  // namespace mxq::cpu
