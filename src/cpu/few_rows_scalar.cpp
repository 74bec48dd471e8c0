// Products of few rows in plain loops, for processors without AVX2. They give the same bits as few_rows_kernels.cpp, whose
// head fixes the order of each sum.
//
//     for each row of B, and each step of the contraction that is multiplied in one way:
//         256 codes -> fp32 values -> arranged in units of 128 -> multiplied with all rows of A
//
// A step is multiplied as codes, whose sums are multiplied by factors, or as values. Sums lie in pass.lanes all the time.
#include <algorithm>

#include "cpu/few_rows_kernels.h"
#include "cpu/few_rows_operands.h"
#include "cpu/few_rows_order.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

// Adds the products of sixteen lanes to their sums, each with one rounding. Without an instruction for that, a
// multiplication and an addition give the same bits where products are exact.
template <bool exact>
void multiply_add(const float* a, const float* b, float* __restrict sums) {
    for (int64_t l = 0; l < kLanes; l++)
        sums[l] =
            exact && !MXQ_HOST_FUSES ? add_rn(sums[l], multiply_rn(a[l], b[l])) : fused_multiply_add(a[l], b[l], sums[l]);
}

// A unit of a row of B in its order. Each section of its vectors has a factor for every lane; without sections there are
// none.
struct Unit {
    alignas(64) float weights[kUnit];
    float factors[2][kLanes];
    int sections;
};

// Multiplies a unit with all rows.
template <bool exact>
void multiply_unit(const Unit& unit, const float* rows, int64_t row_count, float* sums) {
    for (int64_t r = 0; r < row_count; r++, rows += kUnit, sums += kLanes) {
        float run[kLanes] = {};
        const int vectors = unit.sections == 2 ? kUnitVectors / 2 : kUnitVectors;
        for (int v = 0; v < kUnitVectors; v++) {
            multiply_add<exact>(rows + v * kLanes, unit.weights + v * kLanes, unit.sections > 0 ? run : sums);
            if (unit.sections == 0 || (v + 1) % vectors != 0) continue;
            multiply_add<false>(run, unit.factors[v / vectors], sums);
            std::fill_n(run, kLanes, 0.0f);
        }
    }
}

// Returns the sum of the lanes as a tree: lane l with l + 8, then l + 4, l + 2 and l + 1.
float sum_of_lanes(const float* lanes) {
    float sums[kLanes / 2];
    for (int64_t i = 0; i < kLanes / 2; i++) sums[i] = add_rn(lanes[i], lanes[i + kLanes / 2]);
    for (int64_t half = kLanes / 4; half > 0; half /= 2)
        for (int64_t i = 0; i < half; i++) sums[i] = add_rn(sums[i], sums[i + half]);
    return sums[0];
}

// Multiplies rows of B with the rows of a pass.
class RowsOfB {
public:
    RowsOfB(const FewRowsPass& pass, const OperandLines& b)
        : pass_(pass),
          b_(b),
          reader_(b.part, 1.0f),
          order_(order_of(b.part)),
          has_line_scale_(has_line_scale(b.part)),
          sections_(b.part.scale_type == ScaleType::E8M0 && order_ == Order::bytes ? 2 : 1) {}

    void multiply(uint8_t* unsafe) const {
        for (int64_t line = 0; line < b_.count; line++) {
            float* const sums = pass_.lanes + line * pass_.row_count * kLanes;
            if (pass_.first) std::fill_n(sums, pass_.row_count * kLanes, 0.0f);
            for (int64_t at = 0; at < pass_.depth; at += pass_.step)
                if (!multiply_step(b_.first + line, at, least(pass_.step, pass_.depth - at), sums)) unsafe[line] = 1;
            const float factor = factor_of_sums(b_.part, b_.first + line);
            for (int64_t r = 0; pass_.last && r < pass_.row_count; r++)
                pass_.sums[r * pass_.stride + line] = multiply_rn(sum_of_lanes(sums + r * kLanes), factor);
        }
    }

private:
    // Holds what codes of a step are multiplied by, one for every sixteen.
    using Factors = float[kPassDepth / kSixteen];

    // Multiplies codes [at, at + depth) of the pass. Returns whether all values of the row of B are in range for sure.
    bool multiply_step(int64_t line, int64_t at, int64_t depth, float* sums) const {
        const bool exact = pass_.products == Products::exact;
        if (b_.part.scale_type == ScaleType::None) {
            const bool is_bf16 = b_.part.element == Element::Bf16;
            const bool in_range = !is_bf16 || are_exact(line_of(b_.part, 0, line, pass_.k + at), depth);
            multiply_units(line, at, depth, nullptr, 0, exact && in_range, sums);
            return false;
        }
        Factors factors = {};
        if (has_line_scale_) {
            multiply_units(line, at, depth, factors, 0, exact, sums);
            return true;
        }
        const bool is_safe = load_factors_of(line, at, depth, factors);
        if (is_safe && pass_.products != Products::scaled)
            multiply_units(line, at, depth, factors, sections_, exact, sums);
        else
            multiply_units(line, at, depth, nullptr, 0, false, sums);
        return is_safe;
    }

    // Returns whether all factors are safe.
    bool load_factors_of(int64_t line, int64_t at, int64_t depth, Factors& factors) const {
        for (int64_t i = 0; i < depth; i += kGemmDepth)
            load_sixteenths(b_.part, 0, line, pass_.k + at + i, least(kGemmDepth, depth - i), factors + i / kSixteen);
        return b_.part.scale_type == ScaleType::E4M3 || reader_.are_safe(factors, ceil_div(depth, kSixteen));
    }

    // Multiplies codes, whose sums are multiplied by factors where there are sections, or without `factors` values.
    void multiply_units(int64_t line, int64_t at, int64_t depth, const float* factors, int sections, bool exact,
                        float* sums) const {
        alignas(64) float values[kGemmDepth];
        float ones[kGemmDepth / kSixteen];
        std::fill_n(ones, kGemmDepth / kSixteen, 1.0f);
        Unit unit;
        unit.sections = sections;
        for (int64_t begin = 0; begin < depth; begin += kGemmDepth) {
            const int64_t k = pass_.k + at + begin, count = least(kGemmDepth, depth - begin), whole = round_up(count, kUnit);
            if (factors)
                reader_.decode(line_of(b_.part, 0, line, k), count, ones, 1.0f, values);
            else
                reader_.read(line, k, count, values);
            std::fill(values + count, values + whole, 0.0f);
            for (int64_t i = 0; i < whole; i += kUnit) {
                arrange(order_, values + i, unit.weights);
                for (int s = 0; s < sections; s++)
                    for (int64_t l = 0; l < kLanes; l++)
                        unit.factors[s][l] = factors[(begin + i + code_at(order_, s * kUnitVectors / 2, l)) / kSixteen];
                const auto multiply = exact ? multiply_unit<true> : multiply_unit<false>;
                multiply(unit, pass_.rows + (at + begin + i) * pass_.row_count, pass_.row_count, sums);
            }
        }
    }

    const FewRowsPass& pass_;
    const OperandLines& b_;
    const OperandReader reader_;
    const Order order_;
    const bool has_line_scale_;
    const int sections_;  // of a unit of codes with factors
};

// Implements FewRowsKernels::prepare.
void prepare(FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, uint8_t* extreme, uint8_t* nonzero) {
    prepare_rows(pass, a, b, arrange, extreme, nonzero);
    if (pass.products == Products::dots) pass.products = Products::exact;
}

// Implements FewRowsKernels::multiply.
void multiply(const FewRowsPass& pass, const OperandLines& b, uint8_t* unsafe) { RowsOfB(pass, b).multiply(unsafe); }

}  // namespace

const FewRowsKernels scalar_few_rows_kernels = {false, MXQ_HOST_FUSES, 0, prepare, multiply};

}  // namespace mxq::cpu
