// A second implementation of the numerics contract, written from its text alone: nearest value by table search, double
// precision, one element at a time. Formats, roundings and other choices are the constants of mxq.h.
//
//     oracle_types.h    small floating-point types, fl(), plain formats
//     oracle_layout.h   Spec, Part, Shape; where codes and scales lie; swizzle, unswizzle
//     oracle_random.h   Philox, stochastic rounding, Hadamard
//     oracle_mx.h, oracle_nvfp4.h, oracle_fp8.h    one block of each family
//     oracle_groups.h, oracle_product.h            groups of rows; products (not included here)
//
// oracle.cpp has the functions of all of these but the last two. This file has the operations on whole tensors:
//
//     quantize(spec, x, shape, part, swizzled)             returns a part as the library stores it, experts one after another
//     quantize_rowwise(spec, x, rows, cols)                returns the rowwise part of one matrix, scales compact
//     dequantize(spec, stored, shape, part, swizzled)      returns fp32 values (experts, rows, cols), a transform undone; store()
//                                                          rounds them
//     untransformed(spec)                                  returns the specification without transforms, to keep those of values
//     dequantize_rowwise(spec or format and scaling, ...)  returns the values of one matrix, scales compact
//     lines(spec, stored, shape, part, swizzled)           returns values as stored: (experts, cols, rows) if columnwise
//     requantize(...)                                      dequantizes, then quantizes
//     amax(spec, x, shape, part)                           returns one amax, or one per expert, of a part's values (transformed,
//                                                          if the specification transforms them)
//     swizzle, unswizzle(spec, stored, shape, part)        change the layout of all scales of a part
#ifndef MXQ_TESTS_ORACLE_H
#define MXQ_TESTS_ORACLE_H

#include "oracle_fp8.h"
#include "oracle_mx.h"
#include "oracle_nvfp4.h"
#include "parallel.h"

namespace oracle {

// ---- One matrix of lines -----------------------------------------------------------------------------------------------

// Quantizes one matrix of lines. `shared` is the number that the whole matrix shares: the amax of NVFP4, the quantization
// scale of FP8 TENSOR; other formats ignore it.
Matrix quantize_matrix(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, Origin origin, float shared);

// Returns the lines of a part of a (rows, cols) matrix, Hadamard-transformed if the specification transforms that part.
Floats lines_of(const Spec& spec, const float* x, int64_t rows, int64_t cols, int32_t part);

float largest(const Floats& x);

// Returns the largest magnitude of all matrices together, or of each.
Floats amaxes(const std::vector<Floats>& matrices, bool per_matrix);

// Returns the number that each matrix shares (see quantize_matrix), given by the specification or computed from the amaxes.
Floats shared_numbers(const Spec& spec, const Floats& amax);

// Returns a part with room for `codes` bytes and `scales` entries, and with the numbers that whole matrices share.
Part empty_part(const Spec& spec, int64_t codes, int64_t scales, const Floats& amax, const Floats& shared);

// ---- Tensors -----------------------------------------------------------------------------------------------------------

// Returns the shape of a part's lines: (rows, cols) rowwise, (cols, rows) columnwise.
Shape line_shape(Shape shape, int32_t part);

// Returns the number of scales that a whole part stores.
int64_t scale_count(const Spec& spec, Shape shape, int32_t part, bool swizzled);

std::vector<Floats> all_lines(const Spec& spec, const Floats& x, Shape shape, int32_t part);

Floats amax(const Spec& spec, const Floats& x, Shape shape, int32_t part);

// Returns a part as the library stores it. Of a tensor without elements the library writes no ROW scales; here they are the
// scales of a maximum of 0.
Part quantize(const Spec& spec, const Floats& x, Shape shape, int32_t part, bool swizzled);

Part quantize_rowwise(const Spec& spec, const float* x, int64_t rows, int64_t cols);

// Returns the factors that decoding multiplies NVFP4 values with: one, or one per matrix. They are 1 for other formats.
Floats decode_scales(const Spec& spec, const Part& stored);

float decode(const Spec& spec, uint8_t code, uint32_t scale, float decode_scale);

// Returns the values of the (rows, cols) matrix of codes at this placement.
Floats decode_matrix(const Spec& spec, const uint8_t* codes, const uint8_t* scales, const Placement& placement,
                     int64_t rows, int64_t cols, float decode_scale);

Floats dequantize_rowwise(const Spec& spec, const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t cols,
                          float decode_scale = 1);
Floats dequantize_rowwise(int32_t format, int32_t scaling, const uint8_t* codes, const uint8_t* scales, int64_t rows,
                          int64_t cols);

Floats lines(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled = false);

Spec untransformed(Spec spec);

Floats dequantize(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled = false);

Part requantize(const Spec& from, const Part& stored, int32_t from_part, bool from_swizzled, const Spec& to, Shape shape,
                int32_t to_part, bool to_swizzled);

// ---- Scales of whole parts -----------------------------------------------------------------------------------------------

Bytes move_scales(const Spec& spec, const Bytes& scales, Shape shape, int32_t part, bool to_swizzled);
Bytes swizzle(const Spec& spec, const Bytes& compact, Shape shape, int32_t part);
Bytes unswizzle(const Spec& spec, const Bytes& swizzled, Shape shape, int32_t part);

}  // namespace oracle

#endif
