// Products in double precision and the contract's bound for every element.
//
//     operand_lines(spec, stored, shape, part, swizzled)    fp32 values of an operand of any format, along its contraction
//     product(a, a_stride, b, b_stride, m, n, k, previous)   every element of D, with what its bound needs
//     check_product(expected, d, d_format, c)
//     bound_factor(implementation, k)                        c
#ifndef MXQ_TESTS_ORACLE_PRODUCT_H
#define MXQ_TESTS_ORACLE_PRODUCT_H

#include "oracle.h"

#include <cstdio>
#include <string>

namespace oracle {

// (experts, rows, cols) rowwise, (experts, cols, rows) columnwise. A plain tensor's rows stand in stored.codes.
inline Floats operand_lines(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled = false) {
    bool plain = spec.format <= MXQ_FORMAT_BF16;
    if (!plain) return lines(spec, stored, shape, part, swizzled);
    Floats values = load(spec.format, stored.codes.data(), shape.count()), out;
    if (part == MXQ_PART_ROWWISE) return values;
    for (int64_t e = 0; e < shape.experts; ++e) {
        Floats one = transposed(values.data() + e * shape.rows * shape.cols, shape.rows, shape.cols);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// What is known of one element of D before it is rounded to D's type.
struct Element {
    double value = 0;      // sum_k a_k b_k
    double magnitude = 0;  // sum_k |a_k| |b_k|
    double operands = 0;   // sum_k |a_k| + |b_k|
    bool nan = false;      // an operand is NaN: so must D be
    bool promised = true;  // false: an operand is Inf, or the magnitude is 2^128 or more
};

// A is (m, k), B is (n, k), both with a row stride; previous is what an accumulating product adds to, or NULL.
inline std::vector<Element> product(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t m, int64_t n,
                                    int64_t k, const float* previous = nullptr) {
    std::vector<Element> out(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            Element& e = out[static_cast<size_t>(i * n + j)];
            bool infinite = false;
            for (int64_t l = 0; l < k; ++l) {
                double x = a[i * a_stride + l], y = b[j * b_stride + l];
                e.value += x * y;
                e.magnitude += std::fabs(x) * std::fabs(y);
                e.operands += std::fabs(x) + std::fabs(y);
                infinite |= std::isinf(x) || std::isinf(y);
            }
            if (infinite || e.magnitude >= 0x1p128) {
                e.promised = false;
            } else if (std::isnan(e.operands)) {
                e.nan = true;
            } else if (previous) {  // one more term: previous * 1
                double d = previous[i * n + j];
                e.value += d;
                e.magnitude += std::fabs(d);
            }
        }
    return out;
}

// "" if D's values (m * n, dense) keep the bound with factor c, else the first element that does not.
inline std::string check_product(const std::vector<Element>& expected, const Floats& d, int32_t d_format, double c) {
    double unit = d_format == MXQ_FORMAT_F32 ? 0x1p-24 : d_format == MXQ_FORMAT_F16 ? 0x1p-11 : 0x1p-8;
    double smallest_normal = d_format == MXQ_FORMAT_F16 ? 0x1p-14 : 0x1p-126;
    double largest = d_format == MXQ_FORMAT_F16 ? 65504.0 : d_format == MXQ_FORMAT_BF16 ? 0x1.FEp127 : 0x1.FFFFFEp127;
    for (size_t i = 0; i < expected.size(); ++i) {
        const Element& e = expected[i];
        double got = d[i];
        double before_rounding = c * 0x1p-24 * e.magnitude + 0x1p-134 * e.operands;
        double bound = before_rounding + unit * std::max(std::fabs(got), smallest_normal);
        double becomes_inf = largest * (1 + unit / 2) * (1 - 0x1p-40);
        bool good;
        if (e.nan) good = std::isnan(got);
        else if (!e.promised) good = true;
        else if (std::isinf(got)) good = std::fabs(e.value) + before_rounding >= becomes_inf && (got > 0) == (e.value > 0);
        else good = !std::isnan(got) && std::fabs(got - e.value) <= bound;
        if (!good) {
            char text[160];
            std::snprintf(text, sizeof text, "element %zu: %.9g, expected %.17g%s, error %.3g, bound %.3g", i, got, e.value,
                          e.nan ? " (NaN)" : "", got - e.value, bound);
            return text;
        }
    }
    return "";
}

// c of the bound, by the name that a query gives; -1 for a name that the header does not have. `exact`: both operands are
// MX or BF16.
inline double bound_factor(const std::string& implementation, int64_t k, bool exact = true) {
    auto length = static_cast<double>(k);
    if (implementation == "cpu") return length + 1;
    if (implementation == "mma_bf16") return exact ? 5 * length / 4 + 32 : 13 * length / 10 + 40;
    return -1;
}

}  // namespace oracle

#endif
