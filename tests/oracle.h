// A second implementation of the numerics contract, written from its text alone: nearest value by table search, double
// precision, one element at a time. Formats, roundings and other choices are the constants of mxq.h.
//
//     oracle_types.h    small floating-point types, fl(), plain formats
//     oracle_layout.h   Spec, Part, Shape; where codes and scales lie; swizzle, unswizzle
//     oracle_random.h   Philox, stochastic rounding, Hadamard
//     oracle_mx.h, oracle_nvfp4.h, oracle_fp8.h    one block of each family
//     oracle_groups.h, oracle_product.h            groups of rows; products (not included here)
//
// This file has the operations on whole tensors:
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
inline Matrix quantize_matrix(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, Origin origin, float shared) {
    Tile tile = tile_of(spec.scaling);
    Grid grid = grid_of(tile, rows, cols);
    const auto tiles = static_cast<size_t>(grid.rows * grid.cols);
    Matrix out{rows, cols, Bytes(x.size()), std::vector<uint32_t>(tiles), Floats(is_fp8(spec.format) ? tiles : 0)};
    Bytes random = spec.stochastic ? random_bytes(spec, rows, cols, origin) : Bytes{};
    const int64_t steps = 30 * cols * std::min(tile.height, rows);  // the work for one row of tiles
    testing::parallel_for(grid.rows, steps, [&](int64_t r) {
        for (int64_t c = 0; c < grid.cols; ++c) {
            const auto number = static_cast<size_t>(r * grid.cols + c);
            int64_t i = r ? r * tile.height : 0, j = c ? c * tile.width : 0, first = i * cols + j;
            Block block{x.data() + first, out.codes.data() + first, spec.stochastic ? random.data() + first : nullptr,
                        cols, std::min(tile.height, rows - i), std::min(tile.width, cols - j)};
            if (is_mx(spec.format)) {
                out.scales[number] = quantize_mx(spec, block);
            } else if (spec.format == MXQ_FORMAT_NVFP4) {
                out.scales[number] = quantize_nvfp4(spec, block, shared, origin.part == MXQ_PART_COLUMNWISE);
            } else {
                out.amax[number] = block.amax();
                float s = spec.scaling == MXQ_SCALING_TENSOR ? shared : fp8_scale(spec, out.amax[number]);
                out.scales[number] = quantize_fp8(spec, block, s);
            }
        }
    });
    return out;
}

// Returns the lines of a part of a (rows, cols) matrix, Hadamard-transformed if the specification transforms that part.
inline Floats lines_of(const Spec& spec, const float* x, int64_t rows, int64_t cols, int32_t part) {
    Floats lines = part == MXQ_PART_COLUMNWISE ? transposed(x, rows, cols) : Floats(x, x + rows * cols);
    if (spec.transforms(part)) hadamard_lines(lines, part == MXQ_PART_COLUMNWISE ? rows : cols, spec.mask(part));
    return lines;
}

inline float largest(const Floats& x) {
    float a = 0;
    for (float value : x)
        if (std::fabs(value) > a) a = std::fabs(value);
    return a;
}

// Returns the largest magnitude of all matrices together, or of each.
inline Floats amaxes(const std::vector<Floats>& matrices, bool per_matrix) {
    Floats out(per_matrix ? matrices.size() : 1, 0.0f);
    for (size_t e = 0; e < matrices.size(); ++e) {
        float& a = out[per_matrix ? e : 0];
        a = std::max(a, largest(matrices[e]));
    }
    return out;
}

// Returns the number that each matrix shares (see quantize_matrix), given by the specification or computed from the amaxes.
inline Floats shared_numbers(const Spec& spec, const Floats& amax) {
    if (spec.format == MXQ_FORMAT_NVFP4) return spec.amax.empty() ? amax : spec.amax;
    if (!spec.quantization_scale.empty()) return spec.quantization_scale;
    Floats out;
    for (float a : amax) out.push_back(is_fp8(spec.format) ? fp8_scale(spec, a) : a);
    return out;
}

// Returns a part with room for `codes` bytes and `scales` entries, and with the numbers that whole matrices share.
inline Part empty_part(const Spec& spec, int64_t codes, int64_t scales, const Floats& amax, const Floats& shared) {
    Part out{Bytes(static_cast<size_t>(codes), 0), Bytes(static_cast<size_t>(scales * scale_bytes(spec.format)), 0)};
    if (spec.format == MXQ_FORMAT_NVFP4) out.amax = shared;
    if (!is_fp8(spec.format)) return out;
    out.amax = amax;
    if (spec.scaling != MXQ_SCALING_TENSOR) out.amax.assign(static_cast<size_t>(scales), 0.0f);
    else
        for (size_t e = 0; e < shared.size(); ++e)
            put_scale(spec.format, out.scales.data(), static_cast<int64_t>(e), bits_of(divide(1, shared[e])));
    return out;
}

// ---- Tensors -----------------------------------------------------------------------------------------------------------

// Returns the shape of a part's lines: (rows, cols) rowwise, (cols, rows) columnwise.
inline Shape line_shape(Shape shape, int32_t part) {
    return part == MXQ_PART_ROWWISE ? shape : Shape{shape.experts, shape.cols, shape.rows};
}

// Returns the number of scales that a whole part stores.
inline int64_t scale_count(const Spec& spec, Shape shape, int32_t part, bool swizzled) {
    if (spec.scaling == MXQ_SCALING_TENSOR) return spec.per_matrix ? shape.experts : 1;
    Shape of_lines = line_shape(shape, part);
    return shape.experts * scale_count(spec, of_lines.rows, of_lines.cols, swizzled);
}

inline std::vector<Floats> all_lines(const Spec& spec, const Floats& x, Shape shape, int32_t part) {
    std::vector<Floats> out;
    for (int64_t e = 0; e < shape.experts; ++e)
        out.push_back(lines_of(spec, x.data() + e * shape.rows * shape.cols, shape.rows, shape.cols, part));
    return out;
}

inline Floats amax(const Spec& spec, const Floats& x, Shape shape, int32_t part) {
    return amaxes(all_lines(spec, x, shape, part), spec.per_matrix);
}

// Returns a part as the library stores it. Of a tensor without elements the library writes no ROW scales; here they are the
// scales of a maximum of 0.
inline Part quantize(const Spec& spec, const Floats& x, Shape shape, int32_t part, bool swizzled) {
    auto [experts, rows, cols] = line_shape(shape, part);
    std::vector<Floats> matrices = all_lines(spec, x, shape, part);
    Floats amax = amaxes(matrices, spec.per_matrix), shared = shared_numbers(spec, amax);
    int64_t codes = experts * rows * row_bytes(spec.format, cols);
    Part out = empty_part(spec, codes, scale_count(spec, shape, part, swizzled), amax, shared);
    for (int64_t e = 0; e < experts; ++e) {
        auto number = static_cast<size_t>(e);
        float of_matrix = shared[spec.per_matrix ? number : 0];
        Matrix matrix = quantize_matrix(spec, matrices[number], rows, cols, {part, e * rows, 0}, of_matrix);
        put_matrix(spec, matrix, placement_of(spec, e, rows, cols, swizzled), out);
    }
    return out;
}

inline Part quantize_rowwise(const Spec& spec, const float* x, int64_t rows, int64_t cols) {
    return quantize(spec, Floats(x, x + rows * cols), {1, rows, cols}, MXQ_PART_ROWWISE, false);
}

// Returns the factors that decoding multiplies NVFP4 values with: one, or one per matrix. They are 1 for other formats.
inline Floats decode_scales(const Spec& spec, const Part& stored) {
    if (spec.format != MXQ_FORMAT_NVFP4) return {1};
    if (!stored.global_scale.empty()) return stored.global_scale;
    Floats out;
    for (float g : stored.amax) out.push_back(nvfp4_decode_scale(spec.nvfp4_t, g));
    return out;
}

inline float decode(const Spec& spec, uint8_t code, uint32_t scale, float decode_scale) {
    if (is_mx(spec.format)) return decode(spec.format, code, static_cast<uint8_t>(scale));
    if (is_fp8(spec.format)) return decode_fp8(spec.format, code, scale);
    return decode_nvfp4(code, static_cast<uint8_t>(scale), decode_scale);
}

// Returns the values of the (rows, cols) matrix of codes at this placement.
inline Floats decode_matrix(const Spec& spec, const uint8_t* codes, const uint8_t* scales, const Placement& placement,
                            int64_t rows, int64_t cols, float decode_scale) {
    Floats out(static_cast<size_t>(rows * cols));
    testing::parallel_for(rows, 10 * cols, [&](int64_t i) {
        const uint8_t* row = codes + placement.first_byte + i * placement.row_bytes;
        for (int64_t j = 0; j < cols; ++j) {
            uint8_t code = get_code(row, code_bits(spec.format), placement.first_code + j);
            out[static_cast<size_t>(i * cols + j)] =
                decode(spec, code, get_scale(spec.format, scales, placement.scale(i, j)), decode_scale);
        }
    });
    return out;
}

inline Floats dequantize_rowwise(const Spec& spec, const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t cols,
                                 float decode_scale = 1) {
    return decode_matrix(spec, codes, scales, placement_of(spec, 0, rows, cols, false), rows, cols, decode_scale);
}
inline Floats dequantize_rowwise(int32_t format, int32_t scaling, const uint8_t* codes, const uint8_t* scales, int64_t rows,
                                 int64_t cols) {
    Spec spec;
    spec.format = format, spec.scaling = scaling;
    return dequantize_rowwise(spec, codes, scales, rows, cols);
}

inline Floats lines(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled = false) {
    auto [experts, rows, cols] = line_shape(shape, part);
    Floats scales = decode_scales(spec, stored), out;
    for (int64_t e = 0; e < experts; ++e) {
        Placement placement = placement_of(spec, e, rows, cols, swizzled);
        float decode_scale = scales[scales.size() > 1 ? static_cast<size_t>(e) : 0];
        Floats one = decode_matrix(spec, stored.codes.data(), stored.scales.data(), placement, rows, cols, decode_scale);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

inline Spec untransformed(Spec spec) {
    spec.hadamard = 0;
    return spec;
}

inline Floats dequantize(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled = false) {
    Floats values = lines(spec, stored, shape, part, swizzled);
    if (spec.transforms(part)) undo_hadamard_lines(values, spec.mask(part));
    if (part == MXQ_PART_ROWWISE) return values;
    Floats out;
    for (int64_t e = 0; e < shape.experts; ++e) {
        Floats one = transposed(values.data() + e * shape.rows * shape.cols, shape.cols, shape.rows);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

inline Part requantize(const Spec& from, const Part& stored, int32_t from_part, bool from_swizzled, const Spec& to, Shape shape,
                       int32_t to_part, bool to_swizzled) {
    if (from.transforms(from_part))  // the values pass as they are, to a part that is transformed alike
        return requantize(untransformed(from), stored, from_part, from_swizzled, untransformed(to), shape, to_part, to_swizzled);
    return quantize(to, dequantize(from, stored, shape, from_part, from_swizzled), shape, to_part, to_swizzled);
}

// ---- Scales of whole parts -----------------------------------------------------------------------------------------------

inline Bytes move_scales(const Spec& spec, const Bytes& scales, Shape shape, int32_t part, bool to_swizzled) {
    auto [experts, rows, cols] = line_shape(shape, part);
    if (spec.scaling == MXQ_SCALING_TENSOR) return scales;
    Bytes out;
    for (int64_t e = 0; e < experts; ++e) {
        auto first = static_cast<size_t>(e * scale_count(spec, rows, cols, !to_swizzled) * scale_bytes(spec.format));
        Bytes one = move_scales(spec, scales.data() + first, rows, cols, to_swizzled);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}
inline Bytes swizzle(const Spec& spec, const Bytes& compact, Shape shape, int32_t part) {
    return move_scales(spec, compact, shape, part, true);
}
inline Bytes unswizzle(const Spec& spec, const Bytes& swizzled, Shape shape, int32_t part) {
    return move_scales(spec, swizzled, shape, part, false);
}

}  // namespace oracle

#endif
