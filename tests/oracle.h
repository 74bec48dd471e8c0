// The numerics contract once more, written from its text alone: nearest value by table search, double precision, one
// element at a time. Formats, roundings and the like are the numbers of mxq.h.
#ifndef MXQ_TESTS_ORACLE_H
#define MXQ_TESTS_ORACLE_H

#include <mxq/mxq.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

namespace oracle {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// ---- Small floating-point types: sign, exponent_bits, mantissa_bits ------------------------------------------------

struct Type {
    int exponent_bits, mantissa_bits;
    bool infinity;  // false: E4M3 "fn", whose largest exponent holds numbers, and one NaN of all ones

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    int width() const { return 1 + exponent_bits + mantissa_bits; }
    uint32_t magnitudes() const { return 1u << (width() - 1); }

    double magnitude(uint32_t code) const {
        uint32_t exponent = code >> mantissa_bits, mantissa = code & ((1u << mantissa_bits) - 1);
        uint32_t last = (1u << exponent_bits) - 1;
        if (infinity && exponent == last) return mantissa ? NAN : INFINITY;
        if (!infinity && code == magnitudes() - 1) return NAN;
        double fraction = exponent ? mantissa + std::ldexp(1.0, mantissa_bits) : mantissa;
        return std::ldexp(fraction, std::max<int>(static_cast<int>(exponent), 1) - bias() - mantissa_bits);
    }
    double decode(uint32_t code) const {
        double value = magnitude(code & (magnitudes() - 1));
        return code & magnitudes() ? -value : value;
    }
};

inline const Type e4m3{4, 3, false}, e5m2{5, 2, true}, f16{5, 10, true}, bf16{8, 7, true};

inline const Type& element_type(int32_t format) { return format == MXQ_FORMAT_MXFP8_E4M3 ? e4m3 : e5m2; }

// All finite magnitudes of a type in order; the index is the code.
inline std::vector<double> finite_magnitudes(const Type& type) {
    std::vector<double> values;
    for (uint32_t code = 0; code < type.magnitudes() && std::isfinite(type.magnitude(code)); ++code)
        values.push_back(type.magnitude(code));
    return values;
}
inline const std::vector<double>& table(const Type& type) {
    static const std::vector<double> of_e4m3 = finite_magnitudes(e4m3), of_e5m2 = finite_magnitudes(e5m2),
                                     of_f16 = finite_magnitudes(f16), of_bf16 = finite_magnitudes(bf16);
    return &type == &e4m3 ? of_e4m3 : &type == &e5m2 ? of_e5m2 : &type == &f16 ? of_f16 : of_bf16;
}

// Index of the value nearest to `magnitude`, ties to the even index, never past the last.
inline uint32_t nearest(const std::vector<double>& values, double magnitude) {
    auto above = std::upper_bound(values.begin(), values.end(), magnitude);
    if (above == values.end()) return static_cast<uint32_t>(values.size() - 1);
    auto high = static_cast<uint32_t>(above - values.begin()), low = high - 1;
    double middle = (values[low] + values[high]) / 2;
    if (magnitude != middle) return magnitude < middle ? low : high;
    return low % 2 ? high : low;
}

// RNE_sat: to the nearest code, saturating; NaN loses its sign.
inline uint8_t encode_element(int32_t format, double value) {
    const Type& type = element_type(format);
    if (std::isnan(value)) return 0x7F;
    uint32_t code = nearest(table(type), std::fabs(value));
    return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80u : 0u));
}
inline double decode_element(int32_t format, uint8_t code) { return element_type(format).decode(code); }

// To a 16-bit type: nearest, ties to even, beyond the range to Inf, NaN to 0x7FFF.
inline uint16_t encode_16(const Type& type, double value) {
    if (std::isnan(value)) return 0x7FFF;
    const auto& values = table(type);
    double past_last = values.back() + (values.back() - values[values.size() - 2]);  // what Inf stands for in a tie
    uint32_t code = std::fabs(value) >= (values.back() + past_last) / 2 ? static_cast<uint32_t>(values.size())
                                                                        : nearest(values, std::fabs(value));
    return static_cast<uint16_t>(code | (std::signbit(value) ? 0x8000u : 0u));
}
inline uint16_t to_f16(double value) { return encode_16(f16, value); }
inline uint16_t to_bf16(double value) { return encode_16(bf16, value); }
inline float from_f16(uint16_t code) { return static_cast<float>(f16.decode(code)); }
inline float from_bf16(uint16_t code) { return float_of(static_cast<uint32_t>(code) << 16); }

// ---- MX scales -------------------------------------------------------------------------------------------------------

struct Spec {
    int32_t format = MXQ_FORMAT_MXFP8_E4M3;
    int32_t scaling = MXQ_SCALING_1X32;
    int32_t rounding = MXQ_SCALE_ROUNDING_RCEIL;
    int32_t nonfinite = MXQ_NONFINITE_PROPAGATE;
};

inline int biased_exponent(uint32_t bits) { return static_cast<int>(bits >> 23 & 0xFF); }
inline uint32_t mantissa(uint32_t bits) { return bits & 0x7FFFFF; }

inline int rceil_byte(float d) {
    uint32_t bits = bits_of(d);
    int exponent = biased_exponent(bits);
    int up = exponent == 0 ? mantissa(bits) > 0x400000 : mantissa(bits) != 0;
    return std::min(exponent + up, 255);
}

// Scale byte of a finite maximum a >= 0; 255 only for EVEN, where a rounds up to Inf.
inline int scale_byte(int32_t format, int32_t rounding, float a) {
    bool is_e4m3 = format == MXQ_FORMAT_MXFP8_E4M3;
    int emax = is_e4m3 ? 8 : 15, mantissa_bits = is_e4m3 ? 3 : 2;
    float max = is_e4m3 ? 448.0f : 57344.0f;
    uint32_t bits = bits_of(a);
    switch (rounding) {
        case MXQ_SCALE_ROUNDING_FLOOR: return std::max(biased_exponent(bits) - emax, 0);
        case MXQ_SCALE_ROUNDING_CEIL: return std::max(biased_exponent(bits) + (mantissa(bits) != 0) - emax, 0);
        case MXQ_SCALE_ROUNDING_EVEN: {
            int exponent = biased_exponent(bits + (1u << (22 - mantissa_bits)));
            return exponent == 255 ? 255 : std::max(exponent - emax, 0);
        }
        case MXQ_SCALE_ROUNDING_RCEIL: {
            auto reciprocal = static_cast<float>(1.0 / max);
            return rceil_byte(static_cast<float>(static_cast<double>(a) * reciprocal));
        }
    }
    throw std::logic_error("oracle: unknown scale rounding");
}

inline double scale_value(int scale) { return scale == 255 ? NAN : std::ldexp(1.0, scale - 127); }

// One block: elements(i) for i < count gives its values, code(i, byte) takes its codes. Returns the scale.
template <class Elements, class Code>
uint8_t quantize_block(const Spec& spec, int64_t count, Elements elements, Code code) {
    float a = 0;
    bool any_nan = false, any_inf = false;
    for (int64_t i = 0; i < count; ++i) {
        float x = elements(i);
        any_nan |= std::isnan(x);
        any_inf |= std::isinf(x);
        if (std::isfinite(x)) a = std::max(a, std::fabs(x));
    }
    bool saturate = spec.nonfinite == MXQ_NONFINITE_SATURATE;
    int scale = any_inf ? 255 : scale_byte(spec.format, spec.rounding, a);
    if (saturate) scale = std::min(scale, 0xFE);
    if (!saturate && any_nan) scale = 255;
    double reciprocal = scale == 255 ? NAN : std::ldexp(1.0, 127 - scale);
    for (int64_t i = 0; i < count; ++i)  // the product is exact in double, so the cast is its one rounding
        code(i, encode_element(spec.format, static_cast<float>(elements(i) * reciprocal)));
    return static_cast<uint8_t>(scale);
}

// ---- Matrices --------------------------------------------------------------------------------------------------------

struct Part {
    Bytes codes, scales;  // scales compact unless said
};

inline int64_t compact_scale_rows(int32_t scaling, int64_t rows) {
    return scaling == MXQ_SCALING_32X32 ? ceil_div(rows, 32) : rows;
}

// Rowwise part of one rows x cols matrix, compact.
inline Part quantize_rowwise(const Spec& spec, const float* x, int64_t rows, int64_t cols) {
    int64_t height = spec.scaling == MXQ_SCALING_32X32 ? 32 : 1;
    Part part{Bytes(static_cast<size_t>(rows * cols)), {}};
    for (int64_t i0 = 0; i0 < rows; i0 += height)
        for (int64_t j0 = 0; j0 < cols; j0 += 32) {
            int64_t h = std::min(height, rows - i0), w = std::min<int64_t>(32, cols - j0);
            auto at = [&](int64_t i) { return static_cast<size_t>((i0 + i / w) * cols + j0 + i % w); };
            part.scales.push_back(quantize_block(
                spec, h * w, [&](int64_t i) { return x[at(i)]; }, [&](int64_t i, uint8_t c) { part.codes[at(i)] = c; }));
        }
    return part;
}

template <class T>
std::vector<T> transposed(const T* x, int64_t rows, int64_t cols) {
    std::vector<T> out(static_cast<size_t>(rows * cols));
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) out[static_cast<size_t>(j * rows + i)] = x[i * cols + j];
    return out;
}

// Size of the swizzled scales of a (rows, cols) matrix of codes.
inline int64_t swizzled_bytes(int64_t rows, int64_t cols) {
    return ceil_div(rows, 128) * ceil_div(ceil_div(cols, 32), 4) * 512;
}

// Puts a (rows, blocks) matrix of 1x32 scale bytes into 128x4 tiles; padding is zero.
inline Bytes swizzle_positions(const uint8_t* scales, int64_t rows, int64_t blocks) {
    Bytes out(static_cast<size_t>(ceil_div(rows, 128) * ceil_div(blocks, 4) * 512), 0);
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < blocks; ++j) {
            int64_t at = ((i / 128) * ceil_div(blocks, 4) + j / 4) * 512 + (i % 32) * 16 + ((i % 128) / 32) * 4 + j % 4;
            out[static_cast<size_t>(at)] = scales[i * blocks + j];
        }
    return out;
}

// Compact scales of a (rows, cols) matrix of codes, swizzled. A square tile's byte stands at each of its rows.
inline Bytes swizzle(const Bytes& compact, int32_t scaling, int64_t rows, int64_t cols) {
    int64_t blocks = ceil_div(cols, 32), height = scaling == MXQ_SCALING_32X32 ? 32 : 1;
    Bytes positions;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < blocks; ++j) positions.push_back(compact[static_cast<size_t>(i / height * blocks + j)]);
    return swizzle_positions(positions.data(), rows, blocks);
}

struct Shape {
    int64_t experts = 1, rows = 0, cols = 0;
    size_t count() const { return static_cast<size_t>(experts * rows * cols); }
};

// A part as the library stores it, experts one after another.
inline Part quantize(const Spec& spec, const Floats& x, Shape shape, int32_t part, bool swizzled) {
    Part out;
    for (int64_t e = 0; e < shape.experts; ++e) {
        const float* matrix = x.data() + e * shape.rows * shape.cols;
        bool columnwise = part == MXQ_PART_COLUMNWISE;
        int64_t rows = columnwise ? shape.cols : shape.rows, cols = columnwise ? shape.rows : shape.cols;
        Floats turned = columnwise ? transposed(matrix, shape.rows, shape.cols) : Floats(matrix, matrix + rows * cols);
        Part one = quantize_rowwise(spec, turned.data(), rows, cols);
        if (swizzled) one.scales = swizzle(one.scales, spec.scaling, rows, cols);
        out.codes.insert(out.codes.end(), one.codes.begin(), one.codes.end());
        out.scales.insert(out.scales.end(), one.scales.begin(), one.scales.end());
    }
    return out;
}

// code * 2^(scale - 127), exact in double, rounded once to fp32.
inline float decode(int32_t format, uint8_t code, uint8_t scale) {
    return static_cast<float>(decode_element(format, code) * scale_value(scale));
}

// Values of one (rows, cols) matrix of codes with compact scales.
inline Floats dequantize_rowwise(int32_t format, int32_t scaling, const uint8_t* codes, const uint8_t* scales, int64_t rows,
                                 int64_t cols) {
    int64_t blocks = ceil_div(cols, 32), height = scaling == MXQ_SCALING_32X32 ? 32 : 1;
    Floats out;
    out.reserve(static_cast<size_t>(rows * cols));
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j)
            out.push_back(decode(format, codes[i * cols + j], scales[i / height * blocks + j / 32]));
    return out;
}

// Values of a whole tensor (experts, rows, cols), row-major, from a part with compact scales.
inline Floats dequantize(const Spec& spec, const Part& stored, Shape shape, int32_t part) {
    bool columnwise = part == MXQ_PART_COLUMNWISE;
    int64_t rows = columnwise ? shape.cols : shape.rows, cols = columnwise ? shape.rows : shape.cols;
    int64_t scales = compact_scale_rows(spec.scaling, rows) * ceil_div(cols, 32);
    Floats out;
    for (int64_t e = 0; e < shape.experts; ++e) {
        Floats one = dequantize_rowwise(spec.format, spec.scaling, stored.codes.data() + e * rows * cols,
                                        stored.scales.data() + e * scales, rows, cols);
        if (columnwise) one = transposed(one.data(), rows, cols);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// ---- Plain formats ---------------------------------------------------------------------------------------------------

inline int64_t plain_bytes(int32_t format) { return format == MXQ_FORMAT_F32 ? 4 : 2; }

// Values as bytes of a plain format; NaNs as the contract writes them.
inline Bytes store(int32_t format, const Floats& values) {
    Bytes out(values.size() * static_cast<size_t>(plain_bytes(format)));
    for (size_t i = 0; i < values.size(); ++i) {
        if (format == MXQ_FORMAT_F32) {
            uint32_t bits = std::isnan(values[i]) ? 0x7FFFFFFFu : bits_of(values[i]);
            std::memcpy(&out[i * 4], &bits, 4);
        } else {
            uint16_t bits = format == MXQ_FORMAT_F16 ? to_f16(values[i]) : to_bf16(values[i]);
            std::memcpy(&out[i * 2], &bits, 2);
        }
    }
    return out;
}

inline Floats load(int32_t format, const uint8_t* bytes, size_t count) {
    Floats out(count);
    for (size_t i = 0; i < count; ++i) {
        uint16_t half;
        if (format == MXQ_FORMAT_F32) {
            std::memcpy(&out[i], bytes + i * 4, 4);
        } else {
            std::memcpy(&half, bytes + i * 2, 2);
            out[i] = format == MXQ_FORMAT_F16 ? from_f16(half) : from_bf16(half);
        }
    }
    return out;
}

}  // namespace oracle

#endif
