#include "cpu/few_rows.h"

#include <algorithm>

#include "cpu/gemm_repair.h"

namespace mxq::cpu {

namespace {

constexpr int kBf16Bits = 8;

// Returns how products with plain numbers are made. BF16 numbers may be so small or large that products are not exact. Each
// row of B is looked at for that, which pays for dot products from six rows on.
Products products_of_plain(const QuantizedPart& a, const QuantizedPart& b, int64_t row_count,
                           const FewRowsKernels& kernels) {
    const bool can_be_exact = b.element == Element::Bf16 && significant_bits(a) <= significant_bits(b);
    return can_be_exact && kernels.packs_dots && row_count > 5 ? Products::dots : Products::fused;
}

// Returns how products are made with rows that are not extreme.
Products products_of(const QuantizedPart& a, const QuantizedPart& b, int64_t row_count, const FewRowsKernels& kernels) {
    constexpr int of_fp32 = 24;
    if (b.scale_type == ScaleType::None) return products_of_plain(a, b, row_count, kernels);
    const int bits = significant_bits(a);
    return bits <= kBf16Bits ? Products::dots : bits + code_bits(b) <= of_fp32 ? Products::exact : Products::fused;
}

// Returns how many codes of the contraction a pass takes at most, so that rows stay in L2. is_packed: numbers are BF16 and
// not fp32.
int64_t pass_depth(int64_t row_count, bool is_packed) {
    const int64_t in_l2 = is_packed ? FewRowsScratch::row_floats : FewRowsScratch::row_floats / 2;
    return std::min(in_l2 / row_count, kMostDepth) / kGemmDepth * kGemmDepth;
}

}  // namespace

// Blocks multiply MX scales to codes once, which pays for dot products of fewer rows. GFLOP/s of a thread, 64 rows, MXFP4
// and MXFP8, Zen 4, 2026-11-30: 172 and 159, here 153 and 115; NVFP4 145, here 152.
bool FewRows::takes(const OperandLines& a, const OperandLines& b, int64_t k, const FewRowsKernels& kernels) {
    constexpr int64_t is_short = 16;  // for roundings by factors: see gemm_kernels.cpp
    const bool is_mx = b.part.scale_type == ScaleType::E8M0;
    const bool has_exact_factors = is_mx || b.part.scale_type == ScaleType::None;
    const bool has_dots = is_mx && kernels.packs_dots && significant_bits(a.part) <= kBf16Bits;
    return a.count <= (has_dots ? kFewRows / 2 : kFewRows) && !a.part.across && !b.part.across &&
           (has_exact_factors || k > is_short);
}

// Rows that take several passes are prepared anew for each task, so a task has as many rows of B as there is room for, whose
// sums stay in L2 while rows pass over a part of the contraction at a time, or once for kPassRows of them.
int64_t FewRows::most_columns(int64_t rows) {
    using Room = FewRowsScratch;
    const bool has_room = rows * Room::most_columns <= kPassRows * Room::most_columns_of_many;
    return has_room ? Room::most_columns : Room::most_columns_of_many;
}

void FewRows::multiply(int64_t product, const OperandLines& a, const OperandLines& b, int64_t k, int worker,
                       FewRowsScratch& scratch) const {
    Prepared& prepared = prepared_[size_t(worker)];
    const bool is_prepared = prepared.product == product;
    std::fill_n(scratch.sums, a.count * b.count, 0.0f);
    std::fill_n(scratch.again, b.count, uint8_t(0));
    if (!is_prepared) {
        prepared.product = -1;
        std::fill_n(scratch.extreme, a.count, uint8_t(0));
        std::fill_n(scratch.nonzero, a.count, uint8_t(0));
    }
    const int64_t row_count = ceil_div(a.count, ceil_div(a.count, kPassRows));
    for (int64_t row = 0; row < a.count; row += row_count) {
        const OperandLines rows = a.some(row, std::min(row_count, a.count - row));
        const Products products = products_of(a.part, b.part, rows.count, *kernels_);
        const int64_t depth = pass_depth(rows.count, products == Products::dots && kernels_->packs_dots);
        for (int64_t at = 0; at < k; at += depth) {
            FewRowsPass pass{};
            pass.row_count = rows.count;
            pass.k = at, pass.depth = std::min(depth, k - at);
            pass.first = at == 0, pass.last = at + depth >= k;
            pass.rows = scratch.rows();
            pass.integer_room = scratch.rows() + (FewRowsScratch::row_floats - kIntegerRoom / sizeof(float));
            pass.lanes = scratch.lanes();
            pass.strip = scratch.strip;
            pass.sums = scratch.sums + row * b.count, pass.stride = b.count;
            pass.products = is_prepared ? prepared.products : products;
            if (is_prepared)
                pass.integers = prepared.integers;
            else
                kernels_->prepare(pass, rows, b.part, scratch.extreme + row, scratch.nonzero + row);
            kernels_->multiply(pass, b, scratch.again);
            if (pass.first && pass.last && rows.count == a.count) prepared = {product, pass.products, pass.integers};
        }
    }
}

}  // namespace mxq::cpu
