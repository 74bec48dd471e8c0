// Products in double precision and the contract's error bound for every element. c is the factor of that bound.
//
//     operand_lines(spec, stored, shape, part, swizzled)    returns fp32 values of an operand of any format, line by line
//     product(a, a_stride, b, b_stride, m, n, k, previous)   returns every element of D, with the terms of its bound
//     with_more(sum, more, d, bias), more_of(more)           apply alpha, beta and bias; return what they add to c
//     check_product(expected, d, d_format, c)                checks D against the bound
//     bound_factor(promise, k)                               returns c, from the class of bound that a plan names
//     rebase_errors(...), guarded_errors(...),
//     add_rebase_errors(...)                                 add the errors of operands whose scales are rebased first
#ifndef MXQ_TESTS_ORACLE_PRODUCT_H
#define MXQ_TESTS_ORACLE_PRODUCT_H

#include "oracle.h"

#include <cstdio>
#include <string>

namespace oracle {

// Returns an operand's values: (experts, rows, cols) for the rowwise part, (experts, cols, rows) for the columnwise one. The
// rows of a plain tensor are in stored.codes.
Floats operand_lines(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled = false);

// One element of D before it is rounded to D's type, with the terms of its error bound.
struct Element {
    double value = 0;      // sum_k a_k b_k
    double magnitude = 0;  // sum_k |a_k| |b_k|
    double operands = 0;   // sum_k |a_k| + |b_k|
    bool nan = false;      // an operand is NaN, so that D must be NaN
    bool promised = true;  // false: an operand is Inf or the magnitude is 2^128 or more, for which there is no bound
    double below = 0;      // allowed error of roundings below the normal range
    double rebased = 0;    // allowed error of operands whose scales are rebased first
    double aligned = 0;    // what subnormals of F16 add to the magnitude where tensor cores align their products
};

// Returns how much larger |x||y| counts where products of two F16 numbers are aligned by their exponent fields.
double aligned_more(double x, double y);

// Returns every element of A B^T. A is (m, k), B is (n, k), both with a row stride. `previous` is the D that an accumulating
// product adds to, or NULL. `aligned` means something for two F16 operands alone.
std::vector<Element> product(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t m, int64_t n,
                             int64_t k, const float* previous = nullptr);

// The options of a product that act on its sums.
struct More {
    float alpha = 1, beta = 0;
    bool bias = false;
};

inline double more_of(const More& more) { return (more.alpha != 1) + (more.beta != 0) + more.bias; }

// Returns alpha * sum + beta * previous + bias, with the terms of its bound. `previous`, the old element of D, is ignored if
// beta is 0.
Element with_more(Element e, const More& more, float previous, float bias);

// Returns the elements of a product of two F16 operands as an implementation bounds them: tensor cores align the products.
std::vector<Element> of_f16(std::vector<Element> elements, const std::string& implementation);

// Returns "" if D's values (m * n, dense) keep the bound with factor c, else a text about the first element that does not.
std::string check_product(const std::vector<Element>& expected, const Floats& d, int32_t d_format, double c);

// Returns how many powers of two the largest E4M3 value is above that of the format, for a format that rebasing turns into
// E4M3.
int rebase_headroom(int32_t format);

// Returns the error that rebasing allows each value of a (lines, k) matrix of MX values. Each tile of tile_lines x 128 gets
// one scale: the largest of its scales that is not 255, lowered by the headroom.
Floats rebase_errors(const Spec& spec, const Bytes& scales, const Placement& placement, const Floats& values,
                     int64_t lines, int64_t k, int64_t tile_lines);

// Returns the references of lines: the largest of a block by itself, at least 1.
std::vector<int> guarded_references(const Spec& spec, const Bytes& scales, const Placement& placement, int64_t lines,
                                    int64_t k);

// Adds what sums lose below the normal range, in units of the references of their two lines.
void add_guarded_roundings(std::vector<Element>& elements, const std::vector<int>& a, const std::vector<int>& b, int64_t k);

// Returns the error that guarded rebasing allows each value of a (lines, k) matrix of MX values. Values move to the reference of
// their line (with by_line) or of their 128, the first of which none of the 128 is too far below, or else to that of their block.
// What is too far below its line for a relative scale may be lost.
Floats guarded_errors(const Spec& spec, const Bytes& scales, const Placement& placement, const Floats& values,
                      int64_t lines, int64_t k, bool by_line);

// Adds the errors of rebased operands to the bounds of product(a, ..., b, ...).
void add_rebase_errors(std::vector<Element>& elements, const float* a, const float* a_errors, const float* b,
                       const float* b_errors, int64_t m, int64_t n, int64_t k);

// Says of a product which implementation makes it, and which class of bound it keeps (MXQ_BOUND_*).
struct Promise {
    std::string implementation;
    int32_t bound = MXQ_BOUND_NONE;
};

// Returns the factor c of a class of bounds, as docs/numerics.md has it, or -1 where there is none.
double class_factor(int32_t bound, int64_t k);

// c of a product: that of its class, or less where docs/numerics.md has less for the implementation; -1 as above. `exact`: both
// operands are MX or BF16, or both F16.
double bound_factor(const Promise& promise, int64_t k, bool exact = true);

// Returns what is added to the bound where an implementation rounds each sum of L products to a multiple of 2^-149, or 2^-142.
double rounding_of_sums(const Promise& promise, int32_t b_format, int64_t k);

}  // namespace oracle

#endif
