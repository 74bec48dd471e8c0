#include "values.h"

namespace search {

const std::vector<std::string> plain_kinds = {"normal", "bits", "wide", "specials", "planted",
                                              "sizes",  "ties", "even", "equal",    "zeros",   "far"};
const std::vector<std::string> raw_kinds = {"raw", "raw_mid", "raw_edge", "opposite"};

bool is_raw(const Values& values) { return std::find(raw_kinds.begin(), raw_kinds.end(), values.kind) != raw_kinds.end(); }

namespace {

// Returns whether values far from 1 are large.
bool is_large(const Values& values) { return values.seed % 2 != 0; }

// Moves a value by `steps` of the least bit of a plain format.
float nudged(int32_t format, float value, int64_t steps) {
    if (format == MXQ_FORMAT_F16) return oracle::from_f16(static_cast<uint16_t>(oracle::to_f16(value) + steps));
    if (format == MXQ_FORMAT_BF16) return oracle::from_bf16(static_cast<uint16_t>(oracle::to_bf16(value) + steps));
    return oracle::float_of(static_cast<uint32_t>(oracle::bits_of(value) + steps));
}

int draw_exponent(int32_t format, cases::Random& random) {
    const int64_t reach = format == MXQ_FORMAT_F16 ? 6 : random.below(4) ? 20 : 110;
    return static_cast<int>(random.below(2 * reach + 1) - reach);
}

float special_value(int32_t format, cases::Random& random) {
    if (format == MXQ_FORMAT_F32) {
        const auto& all = cases::special_bits();
        return oracle::float_of(all[static_cast<size_t>(random.below(static_cast<int64_t>(all.size())))]);
    }
    const uint16_t infinity = format == MXQ_FORMAT_F16 ? 0x7C00 : 0x7F80;
    const uint16_t magnitudes[] = {
        0, 1, 2, static_cast<uint16_t>(infinity - 1), infinity, static_cast<uint16_t>(infinity + 1), 0x7FFF};
    const auto bits = static_cast<uint16_t>(magnitudes[random.below(7)] | (random.below(2) ? 0x8000 : 0));
    return format == MXQ_FORMAT_F16 ? oracle::from_f16(bits) : oracle::from_bf16(bits);
}

// Normal values with a special one every few elements, at a distance that is coprime to the width of words and tiles.
oracle::Floats planted(int32_t format, size_t count, cases::Random& random) {
    oracle::Floats out(count);
    const int exponent = draw_exponent(format, random);
    for (float& value : out) value = std::ldexp(random.normal(), exponent);
    const size_t distances[] = {3, 7, 31, 97, 1009};
    const size_t distance = distances[random.below(5)];
    const bool one_kind = random.below(2);
    const float special = special_value(format, random);
    for (size_t i = static_cast<size_t>(random.below(static_cast<int64_t>(distance))); i < count; i += distance)
        out[i] = one_kind ? special : special_value(format, random);
    return out;
}

oracle::Floats of_sizes(int32_t format, oracle::Shape shape, cases::Random& random) {
    const int64_t reach = format == MXQ_FORMAT_F16 ? 4 : random.below(3) ? 12 : 45;
    const auto exponents = [&](int64_t count) {
        std::vector<int> out;
        for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int>(random.below(2 * reach + 1) - reach));
        return out;
    };
    const int64_t across = oracle::ceil_div(shape.cols, 32);
    const auto lines = exponents(shape.experts * shape.rows), columns = exponents(shape.cols);
    const auto tiles = exponents(oracle::ceil_div(shape.experts * shape.rows, 32) * across);
    oracle::Floats out;
    for (int64_t i = 0; i < shape.experts * shape.rows; ++i)
        for (int64_t j = 0; j < shape.cols; ++j)
            out.push_back(std::ldexp(random.uniform(), lines[static_cast<size_t>(i)] + columns[static_cast<size_t>(j)] +
                                                           tiles[static_cast<size_t>(i / 32 * across + j / 32)]));
    return out;
}

float tie(const std::vector<double>& magnitudes, cases::Random& random) {
    const auto low = static_cast<size_t>(random.below(static_cast<int64_t>(magnitudes.size()) - 1));
    return static_cast<float>((magnitudes[low] + magnitudes[low + 1]) / 2);
}

// The maximum of 16 neighbours decides about their scale: the largest value of the element, a power of two above it, or
// where an E4M3 scale of NVFP4 is a tie.
float tie_of_scale(const oracle::Type& element, cases::Random& random) {
    const float largest = element.max();
    switch (random.below(4)) {
        case 0: return largest;
        case 1: return std::ldexp(1.0f, element.emax() + 1);
        case 2: return tie(oracle::e4m3.finite, random) / 448 * largest;
        default: return std::ldexp(1.0f + std::ldexp(1.0f, -element.mantissa_bits - 1), element.emax());
    }
}

oracle::Floats ties(const oracle::Spec& target, int32_t format, size_t count, cases::Random& random) {
    const oracle::Type& element = target.format <= MXQ_FORMAT_BF16 ? oracle::e4m3 : oracle::element_type(target.format);
    const bool per_block = random.below(2);
    int exponent = draw_exponent(format, random);
    oracle::Floats out(count);
    for (size_t i = 0; i < count; ++i) {
        if (per_block && i % 32 == 0) exponent = draw_exponent(format, random);
        const float magnitude = i % 16 == 5 ? tie_of_scale(element, random) : tie(element.finite, random);
        const float value = std::ldexp(magnitude, exponent) * (random.below(2) ? 1.0f : -1.0f);
        out[i] = nudged(format, value, random.below(3) - 1);
    }
    return out;
}

// Returns an exponent at which numbers of a few units are nearly too large, or nearly too small, for the range of F32 and BF16.
int far_exponent(int32_t format, bool large, cases::Random& random) {
    if (format == MXQ_FORMAT_F16) return static_cast<int>(large ? 8 + random.below(5) : -18 + random.below(6));
    return static_cast<int>(large ? 110 + random.below(14) : -130 + random.below(16));
}

// At such an exponent: values halfway between two codes beside a maximum that is one, or those of a normal distribution.
oracle::Floats far(const oracle::Spec& target, int32_t format, size_t count, bool large, cases::Random& random) {
    const oracle::Type& element = target.format <= MXQ_FORMAT_BF16 ? oracle::e4m3 : oracle::element_type(target.format);
    const int exponent = far_exponent(format, large, random);
    const bool halfway = random.below(2);
    oracle::Floats out(count);
    for (size_t i = 0; i < count; ++i) {
        const float magnitude = i % 16 == 5 ? element.max() : tie(element.finite, random);
        const float units = halfway ? std::ldexp(magnitude, 2 - element.emax()) : random.normal();
        out[i] = std::ldexp(random.below(2) ? units : -units, exponent);
    }
    return out;
}

// Blocks with the maximum 6, in units of a power of two times one of a few factors, of a tensor whose amax lets their scale
// for a maximum of 4 be 1.5 times that for 6. Each other value lies halfway between neighbours of one grid or of the two, so
// that both errors of a block are equal but for the roundings of their terms.
oracle::Floats even(const oracle::Spec& target, int32_t format, oracle::Shape shape, cases::Random& random) {
    const float halfway[] = {0, 0.25f, 0.625f, 0.875f, 1.25f, 1.75f, 2.125f, 2.625f, 3.5f, 4.25f, 5.25f, 6},
                factors[] = {1, 1, 1.25f, 1.5f};
    const int64_t across = oracle::ceil_div(shape.cols, 16), nudges = random.below(3);
    const int exponent = draw_exponent(format, random);
    oracle::Floats units, out;
    for (int64_t i = 0; i < oracle::ceil_div(shape.experts * shape.rows, 16) * across; ++i)
        units.push_back(std::ldexp(factors[random.below(4)], exponent - 1 - static_cast<int>(random.below(6))));
    for (int64_t i = 0; i < shape.experts * shape.rows; ++i)
        for (int64_t j = 0; j < shape.cols; ++j) {
            const float unit = units[static_cast<size_t>(i / 16 * across + j / 16)],
                        magnitude = (i + j) % 16 == 0 ? 6 : halfway[random.below(12)];
            const float value = unit * magnitude * (random.below(2) ? 1.0f : -1.0f);
            out.push_back(nudged(format, value, magnitude != 0 && random.below(4) < nudges ? random.below(3) - 1 : 0));
        }
    if (!out.empty()) out[0] = std::ldexp(target.nvfp4_t == 256 ? 6.0f : 7.0f, exponent);
    return out;
}

oracle::Floats of_cases(cases::Values kind, size_t count, cases::Random& random) {
    oracle::Floats out(count);
    for (float& value : out) value = cases::value(kind, random);
    return out;
}

oracle::Floats draw_kind(const Values& values, const oracle::Spec& target, int32_t format, oracle::Shape shape,
                         cases::Random& random) {
    const std::string& kind = values.kind;
    const size_t count = shape.count();
    if (kind == "wide") return of_cases(cases::Values::wide, count, random);
    if (kind == "specials") return of_cases(cases::Values::specials, count, random);
    if (kind == "planted") return planted(format, count, random);
    if (kind == "sizes") return of_sizes(format, shape, random);
    if (kind == "ties") return ties(target, format, count, random);
    if (kind == "even") return even(target, format, shape, random);
    if (kind == "far") return far(target, format, count, is_large(values), random);
    if (kind == "equal") return oracle::Floats(count, random.below(3) ? random.normal() : special_value(format, random));
    oracle::Floats out(count);
    for (float& value : out) value = kind == "zeros" ? (random.below(2) ? 0.0f : -0.0f) : random.normal();
    return out;
}

// Returns values as bytes of a plain format. Those of F32 keep every bit of a NaN.
oracle::Bytes stored(int32_t format, const oracle::Floats& x) {
    return format == MXQ_FORMAT_F32 ? testing::bytes_of(x) : oracle::store(format, x);
}

// Draws the bytes of a plain tensor. Many values would take seconds, so that those of some rows are repeated.
oracle::Bytes draw_bytes(const Values& values, const oracle::Spec& target, int32_t format, oracle::Shape shape) {
    constexpr int64_t many = 1 << 24, enough = 1 << 20;
    oracle::Shape drawn = shape;
    if (static_cast<int64_t>(shape.count()) > many && shape.cols < enough)
        drawn = {1, enough / shape.cols | 1, shape.cols};  // an odd number of rows, as no tile has
    cases::Random random(values.seed);
    oracle::Bytes out = values.kind == "bits" ? cases::plain_values(format, cases::Values::bits, drawn.count(), values.seed)
                                              : stored(format, draw_kind(values, target, format, drawn, random));
    const size_t first = out.size();
    out.resize(shape.count() * static_cast<size_t>(oracle::plain_bytes(format)));
    for (size_t at = first; at < out.size(); at += first)
        std::copy_n(out.begin(), std::min(first, out.size() - at), out.begin() + static_cast<int64_t>(at));
    return out;
}

bool keeps(const Values& values, int64_t row, int64_t col) {
    const auto& keep = values.keep;
    return keep.empty() || (row >= keep[0] && row < keep[1] && col >= keep[2] && col < keep[3]);
}

}  // namespace

oracle::Bytes draw_plain(const Values& values, const oracle::Spec& target, int32_t format, oracle::Shape shape) {
    oracle::Bytes out = draw_bytes(values, target, format, shape);
    const int64_t element = oracle::plain_bytes(format);
    for (int64_t i = 0; !values.keep.empty() && i < static_cast<int64_t>(shape.count()); ++i)
        if (!keeps(values, i / shape.cols, i % shape.cols)) std::fill_n(out.begin() + i * element, element, uint8_t{0});
    return out;
}

oracle::Floats draw_numbers(uint64_t seed, int64_t count) {
    cases::Random random(seed + 77);
    const float odd[] = {0.0f, 1.0f, 0x1p-149f, 3.0e38f, INFINITY, 0x1p-100f, 448.0f, 0x1p100f, 0x1p-126f, 2688.0f, 1536.0f};
    oracle::Floats out;
    for (int64_t i = 0; i < count; ++i)
        out.push_back(random.below(3) ? std::fabs(random.normal()) * 10 + 0.1f : odd[random.below(11)]);
    return out;
}

oracle::Floats draw_far_numbers(uint64_t seed, int64_t count) {
    cases::Random random(seed + 99);
    const float far[] = {3.0e38f, 0x1p127f, 0x1.8p125f, 0x1p116f, 0x1p100f, 0x1p-100f, 0x1.4p-120f, 0x1p-126f, 0x1p-149f, 1.0f};
    oracle::Floats out;
    for (int64_t i = 0; i < count; ++i) out.push_back(far[random.below(10)]);
    return out;
}

namespace {

// Draws a scale byte by the kind of values. "opposite" are large ones or small ones: of MX, two small ones make products
// near 2^-149, where fp32 ends.
uint32_t raw_byte_scale(const Values& values, bool mx, cases::Random& random) {
    const std::string& kind = values.kind;
    if (kind == "raw") return random.bits() & 0xFF;
    if (mx) {
        const uint32_t edges[] = {0, 1, 2, 3, 126, 127, 128, 251, 252, 253, 254, 255};
        if (kind == "opposite") return static_cast<uint32_t>((is_large(values) ? 196 : 46) + random.below(10));
        return kind == "raw_edge" ? edges[random.below(12)] : static_cast<uint32_t>(112 + random.below(32));
    }
    const uint32_t edges[] = {0x00, 0x01, 0x07, 0x08, 0x7D, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF};
    return kind == "raw_edge" ? edges[random.below(11)] : static_cast<uint32_t>(0x20 + random.below(0x38));
}

uint32_t raw_float_scale(const Values& values, cases::Random& random) {
    const std::string& kind = values.kind;
    if (kind == "raw") return random.bits();
    uint32_t mantissa = random.bits() & 0x7FFFFF;
    if (kind == "raw_mid") return static_cast<uint32_t>(112 + random.below(32)) << 23 | mantissa;
    if (kind == "opposite") return static_cast<uint32_t>((is_large(values) ? 225 : 29) + random.below(8)) << 23 | mantissa;
    const uint32_t near_ties[] = {0x008000, 0x007FFF, 0x008001, 0x001000, 0x000FFF, 0x001001, 0x018000, 0x003000};
    mantissa = (mantissa & 0x7C0000) | near_ties[random.below(8)];
    const uint32_t exponents[] = {0, 1, 2, 96, 102, 103, 110, 112, 127, 142, 143, 252, 253, 254, 255};
    return exponents[random.below(15)] << 23 | mantissa;
}

bool is_finite_code(const oracle::Type& element, uint8_t code) { return std::isfinite(element.decode(code)); }

}  // namespace

oracle::Matrix raw_matrix(const Values& values, const oracle::Spec& spec, int64_t rows, int64_t cols,
                          cases::Random& random) {
    const oracle::Grid grid = oracle::grid_of(oracle::tile_of(spec.scaling), rows, cols);
    const oracle::Type& element = oracle::element_type(spec.format);
    const uint32_t mask = (1u << element.width()) - 1;
    const bool any_code = values.kind == "raw" || values.kind == "raw_edge";
    oracle::Matrix out{rows, cols, {}, {}, {}};
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) {
            auto code = static_cast<uint8_t>(random.bits() & mask);
            if (!any_code && !is_finite_code(element, code)) code = 0;
            out.codes.push_back(keeps(values, i, j) ? code : 0);
        }
    for (int64_t i = 0; i < grid.rows * grid.cols; ++i)
        out.scales.push_back(oracle::is_fp8(spec.format) ? raw_float_scale(values, random)
                                                         : raw_byte_scale(values, oracle::is_mx(spec.format), random));
    return out;
}

}  // namespace search
