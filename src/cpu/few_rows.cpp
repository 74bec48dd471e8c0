#include "cpu/few_rows.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cpu/gemm_repair.h"

namespace mxq::cpu {

namespace {

constexpr int kBf16Bits = 8;

// Returns how products with plain numbers are made. Those with F16 numbers are exact if they have few enough bits. BF16
// numbers may be so small or large that products are not, for which each row of B is looked at: that pays without a
// multiply-add with one rounding, and for dot products from six rows on.
Products products_of_plain(const QuantizedPart& a, const QuantizedPart& b, int64_t row_count,
                           const FewRowsKernels& kernels) {
    const bool can_be_exact = b.element == Element::Bf16 && significant_bits(a) <= significant_bits(b);
    if (can_be_exact && kernels.packs_dots && row_count > 5) return Products::dots;
    const bool is_exact = can_be_exact || (b.element == Element::F16 && are_exact(a, b));
    return is_exact && !kernels.fuses ? Products::exact : Products::fused;
}

// Returns how products are made with rows that are not extreme. Factors round the sums that they are applied to, but those
// of MX; of contractions too short for a bound of K + 1 roundings to have room for that, factors are applied to codes.
Products products_of(const QuantizedPart& a, const QuantizedPart& b, int64_t k, int64_t row_count,
                     const FewRowsKernels& kernels) {
    constexpr int64_t is_short = 16;
    constexpr int of_fp32 = 24;
    if (b.scale_type == ScaleType::None) return products_of_plain(a, b, row_count, kernels);
    if (b.scale_type != ScaleType::E8M0 && k <= is_short) return Products::scaled;
    const int bits = significant_bits(a);
    return bits <= kBf16Bits ? Products::dots : bits + code_bits(b) <= of_fp32 ? Products::exact : Products::fused;
}

// Returns whether 32 KiB of rows stay in L1 with the rows of B that pass through it.
bool has_large_l1() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    static const bool is_large = sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10;
    return is_large;
#else
    return false;
#endif
}

// Returns how many codes of the contraction are multiplied in one way, as codes or as values, with so many rows. It is the
// same for every instruction set and every processor, so that these give the same bits where values are extreme.
int64_t step_of(int64_t row_count) { return kPassDepth / row_count / kGemmDepth * kGemmDepth; }

// Returns how many codes of the contraction a pass takes at most, in whole steps. Rows whose sums are in registers
// stay in L1, others in L2. is_packed: numbers are BF16 and not fp32.
int64_t pass_depth(int64_t row_count, bool in_registers, bool is_packed) {
    const int64_t in_l1 = is_packed || has_large_l1() ? 2 * kPassDepth : kPassDepth;
    const int64_t in_l2 = is_packed ? FewRowsScratch::row_floats : FewRowsScratch::row_floats / 2;
    const int64_t step = step_of(row_count);
    return (in_registers ? std::min(in_l1 / row_count, kPassDepth) : std::min(in_l2 / row_count, kMostDepth)) / step * step;
}

// Tells whether it is faster to cut so many rows into few at a time. Sums have another order then, so all instruction sets
// must choose alike. Up to 64 rows nearly all gain. More rows gain 1.5 to 2.5 times with BF16 dot products and are level with
// AVX-512, but take 1.1 to 1.35 times as long with AVX2. Six and eight bits of MX gain less and lose more. So do rows that dot
// products cannot take. docs/cpu-few-rows.md has the figures.
bool gains_from_cut(const QuantizedPart& a, const QuantizedPart& b, int64_t row_count, int64_t k) {
    constexpr int64_t shortest = 512;  // shorter lines are over too soon
    constexpr int64_t gain_always = 64;
    if (k < shortest) return false;
    const bool is_fast = b.element == Element::E2M1 || b.scale_type == ScaleType::F32 || b.element == Element::Bf16;
    return row_count <= gain_always || (significant_bits(a) <= kBf16Bits && is_fast);
}

// Tells whether one of the sums is tiny (is_tiny()), or, where that counts, not finite.
bool has_tiny(const float* sums, int64_t count, bool or_infinite) {
    const int32_t least = int32_t(float_bits(kTinySum)), most = int32_t(or_infinite ? 0x7F7FFFFF : kMagnitudeMask);
    int32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t magnitude = int32_t(float_bits(sums[i]) & kMagnitudeMask);
        any |= int32_t(magnitude < least) | int32_t(magnitude > most);
    }
    return any != 0;
}

}  // namespace

// Passes are as few as can be, and have the same rows but for the last ones.
int64_t FewRows::rows_of_cut(const OperandLines& a, const OperandLines& b, int64_t k) {
    if (a.count <= kFewRows || a.part.across || b.part.across || !gains_from_cut(a.part, b.part, a.count, k)) return a.count;
    constexpr int64_t passes_of_cut = kFewRows / kPassRows;
    return passes_of_cut * ceil_div(a.count, ceil_div(a.count, kPassRows));
}

// Rows that take several passes are prepared anew for each task, so a task has as many rows of B as there is room for, whose
// sums stay in L2 while rows pass over a part of the contraction at a time, or once for kPassRows of them.
int64_t FewRows::most_columns(int64_t rows) {
    using Room = FewRowsScratch;
    const bool has_room = rows * Room::most_columns <= kPassRows * Room::most_columns_of_many;
    return has_room ? Room::most_columns : Room::most_columns_of_many;
}

void FewRows::multiply(int64_t product, const OperandLines& a, const OperandLines& b, int64_t k, bool odd, int worker,
                       FewRowsScratch& scratch) const {
    Prepared& prepared = prepared_[size_t(worker)];
    const bool is_prepared = prepared.product == product;
    std::fill_n(scratch.sums, a.count * b.count, 0.0f);
    std::fill_n(scratch.unsafe, b.count, uint8_t(0));
    if (!is_prepared) {
        prepared.product = -1;
        std::fill_n(scratch.extreme, a.count, uint8_t(0));
        std::fill_n(scratch.nonzero, a.count, uint8_t(0));
    }
    const int64_t row_count = ceil_div(a.count, ceil_div(a.count, kPassRows));
    for (int64_t row = 0; row < a.count; row += row_count) {
        const OperandLines rows = a.some(row, std::min(row_count, a.count - row));
        const bool in_registers = b.part.scale_type == ScaleType::None && rows.count <= kernels_.register_rows;
        const Products products = products_of(a.part, b.part, k, rows.count, kernels_);
        const int64_t step = step_of(rows.count);
        const int64_t depth = pass_depth(rows.count, in_registers, products == Products::dots && kernels_.packs_dots);
        uint8_t* const extreme = scratch.extreme + row;
        // Returns false, and does nothing, where the rows are extreme and so the pass must be no deeper than a step.
        const auto pass_over = [&](int64_t at, int64_t most) {
            FewRowsPass pass{};
            pass.row_count = rows.count;
            pass.k = at, pass.depth = std::min(most, k - at), pass.step = step;
            pass.first = at == 0, pass.last = at + most >= k;
            pass.rows = scratch.rows;
            pass.values = scratch.values;
            pass.integer_room = scratch.rows + (FewRowsScratch::row_floats - kIntegerRoom / sizeof(float));
            pass.lanes = scratch.lanes;
            pass.strip = scratch.strip;
            pass.sums = scratch.sums + row * b.count, pass.stride = b.count;
            pass.products = products;
            if (is_prepared) {
                pass.products = prepared.products, pass.integers = prepared.integers;
                kernels_.multiply(pass, b, scratch.unsafe);
                return true;
            }
            uint8_t before[kPassRows];
            std::copy_n(extreme, rows.count, before);
            kernels_.prepare(pass, rows, b.part, extreme, scratch.nonzero + row);
            const bool is_too_deep = pass.depth > step && std::count(extreme, extreme + rows.count, 0) != rows.count;
            if (is_too_deep)
                std::copy_n(before, rows.count, extreme);
            else
                kernels_.multiply(pass, b, scratch.unsafe);
            if (pass.first && pass.last && rows.count == a.count && !is_too_deep)
                prepared = {product, pass.products, pass.integers};
            return !is_too_deep;
        };
        for (int64_t at = 0; at < k; at += depth)
            if (!pass_over(at, depth))
                for (int64_t part = at; part < std::min(at + depth, k); part += step) pass_over(part, step);
    }
    repair(a, b, k, odd, prepared, scratch);
}

// Returns whether a row of B has a value out of the range in which products are exact.
bool FewRows::is_extreme(const OperandLines& line, int64_t k, FewRowsScratch& scratch) const {
    uint8_t extreme = 0;
    for (int64_t at = 0; at < k; at += kGemmDepth)
        gemm_kernels_.decode_rows(line, at, std::min(kGemmDepth, k - at), scratch.rows, &extreme);
    return extreme != 0;
}

// Makes tiny sums of extreme rows of B again, and those that left fp32's range before B's scale of a row or matrix brought
// them back. A row of zeros needs none, whatever it is multiplied with.
void FewRows::repair(const OperandLines& a, const OperandLines& b, int64_t k, bool odd, Prepared& prepared,
                     FewRowsScratch& scratch) const {
    enum : uint8_t { safe = 0, unsafe = 1, extreme = 2 };
    const bool scaled_last = b.part.scale_type == ScaleType::E4M3 || b.part.scale_type == ScaleType::F32;
    for (int64_t i = 0; i < a.count; i++) {
        if (!scratch.nonzero[i] || !has_tiny(scratch.sums + i * b.count, b.count, scaled_last)) continue;
        for (int64_t j = 0; j < b.count; j++) {
            float& sum = scratch.sums[i * b.count + j];
            if (!is_tiny(sum) && !(scaled_last && !std::isfinite(sum))) continue;
            uint8_t& line = scratch.unsafe[j];
            if (line == unsafe) {
                prepared.product = -1;  // where rows were is room for the line
                line = is_extreme(b.some(j, 1), k, scratch) ? extreme : safe;
            }
            if (scratch.extreme[i] || line == extreme)
                sum = sum_again(gemm_kernels_, a.some(i, 1), b.some(j, 1), k, odd, scratch.lanes);
        }
    }
}

}  // namespace mxq::cpu
