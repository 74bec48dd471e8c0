// Small floating-point types by table search, fp32 arithmetic with one rounding per operation, and plain formats.
//
//     bits_of, float_of, ceil_div
//     multiply, divide, add, subtract, min_number   fl() of the contract
//     Type; e4m3, e5m2, e3m2, e2m3, e2m1, f16, bf16; table, nearest, encode
//     quantized_formats, element_type, is_fp8        every quantized format, once
//     encode_element, decode_element                 one code by its format
//     to_f16, to_bf16, from_f16, from_bf16, plain_bytes, store, load
#ifndef MXQ_TESTS_ORACLE_TYPES_H
#define MXQ_TESTS_ORACLE_TYPES_H

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

// ---- fl() ------------------------------------------------------------------------------------------------------------

// Double has more than twice the bits of fp32, so that rounding its result to fp32 gives the same as a single rounding. The
// cast also keeps a compiler from fusing two operations.
inline float multiply(float a, float b) { return static_cast<float>(static_cast<double>(a) * b); }
inline float divide(float a, float b) { return static_cast<float>(static_cast<double>(a) / b); }
inline float add(float a, float b) { return static_cast<float>(static_cast<double>(a) + b); }
inline float subtract(float a, float b) { return static_cast<float>(static_cast<double>(a) - b); }

inline constexpr float flt_max = std::numeric_limits<float>::max();
inline float min_number(float a, float b) { return std::isnan(a) || b < a ? b : a; }  // min(NaN, y) = y

// ---- Small floating-point types: sign, exponent_bits, mantissa_bits ------------------------------------------------

enum class Specials {
    none,
    nan,               // E4M3 "fn": the largest exponent holds numbers, and one NaN of all ones
    infinity_and_nan,  // the largest exponent holds Inf and NaNs
};

class Type {
public:
    Type(int exponent_bits, int mantissa_bits, Specials specials);

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    int width() const { return 1 + exponent_bits + mantissa_bits; }
    uint32_t magnitudes() const { return 1u << (width() - 1); }
    bool has_nan() const { return specials != Specials::none; }
    float max() const { return static_cast<float>(finite.back()); }
    int emax() const { return std::ilogb(finite.back()); }

    double decode(uint32_t code) const {
        double value = all[code & (magnitudes() - 1)];
        return code & magnitudes() ? -value : value;
    }

    const int exponent_bits, mantissa_bits;
    const Specials specials;
    std::vector<double> all, finite;  // magnitudes in order; the index is the code

    // Returns how many finite magnitudes are at most x, which is positive or 0.
    uint32_t count_up_to(double x) const;

private:
    double magnitude(uint32_t code) const;

    std::vector<uint32_t> binades_;  // [e]: how many finite magnitudes are below the doubles whose exponent field is e
};

inline const Type e4m3{4, 3, Specials::nan}, e5m2{5, 2, Specials::infinity_and_nan}, e3m2{3, 2, Specials::none},
    e2m3{2, 3, Specials::none}, e2m1{2, 1, Specials::none}, f16{5, 10, Specials::infinity_and_nan},
    bf16{8, 7, Specials::infinity_and_nan};

// Returns all finite magnitudes of a type in order. Their index is the code.
inline const std::vector<double>& table(const Type& type) { return type.finite; }

// ---- Quantized formats -----------------------------------------------------------------------------------------------

enum class Family { mx, nvfp4, fp8 };

struct QuantizedFormat {
    int32_t id;
    const Type& element;
    Family family;
};

inline const QuantizedFormat quantized_formats[] = {
    {MXQ_FORMAT_MXFP8_E4M3, e4m3, Family::mx}, {MXQ_FORMAT_MXFP8_E5M2, e5m2, Family::mx},
    {MXQ_FORMAT_MXFP6_E2M3, e2m3, Family::mx}, {MXQ_FORMAT_MXFP6_E3M2, e3m2, Family::mx},
    {MXQ_FORMAT_MXFP4, e2m1, Family::mx},      {MXQ_FORMAT_NVFP4, e2m1, Family::nvfp4},
    {MXQ_FORMAT_FP8_E4M3, e4m3, Family::fp8},  {MXQ_FORMAT_FP8_E5M2, e5m2, Family::fp8},
};

// Returns NULL for a format that is not quantized, for which element_type throws.
const QuantizedFormat* find_quantized(int32_t format);
const Type& element_type(int32_t format);

inline bool is_fp8(int32_t format) { return format == MXQ_FORMAT_FP8_E4M3 || format == MXQ_FORMAT_FP8_E5M2; }

// ---- Codes ---------------------------------------------------------------------------------------------------------------

// Returns the code of the finite magnitude nearest to `magnitude`, with ties to the even code, and never past the last.
uint32_t nearest(const Type& type, double magnitude);

// Returns RNE_sat of a value: the nearest code, saturating. NaN loses its sign, and becomes +max in a type without NaN.
uint8_t encode(const Type& type, double value);
uint8_t encode_element(int32_t format, double value);
double decode_element(int32_t format, uint8_t code);

// ---- Plain formats ---------------------------------------------------------------------------------------------------

// Returns a value in a 16-bit type: the nearest one, ties to even, Inf beyond the range, 0x7FFF for NaN.
uint16_t encode_16(const Type& type, double value);
uint16_t to_f16(double value);
uint16_t to_bf16(double value);
float from_f16(uint16_t code);
inline float from_bf16(uint16_t code) { return float_of(static_cast<uint32_t>(code) << 16); }

inline int64_t plain_bytes(int32_t format) { return format == MXQ_FORMAT_F32 ? 4 : 2; }

// Returns values as bytes of a plain format, with NaNs as the contract writes them.
Bytes store(int32_t format, const Floats& values);

Floats load(int32_t format, const uint8_t* bytes, size_t count);

}  // namespace oracle

#endif
