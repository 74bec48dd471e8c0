// The functions of oracle.h and of the headers that it includes.
#include "oracle.h"

namespace oracle {

// ---- Types ----------------------------------------------------------------------------------------------------------

static uint32_t exponent_field(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, 8);
    return static_cast<uint32_t>(bits >> 52 & 0x7FF);
}

Type::Type(int exponent_bits, int mantissa_bits, Specials specials)
    : exponent_bits(exponent_bits), mantissa_bits(mantissa_bits), specials(specials) {
    for (uint32_t code = 0; code < magnitudes(); ++code) {
        all.push_back(magnitude(code));
        if (std::isfinite(all.back())) finite.push_back(all.back());
    }
    for (uint32_t field = 0; field <= 0x800; ++field) {
        uint32_t below = binades_.empty() ? 0 : binades_.back();
        while (below < finite.size() && exponent_field(finite[below]) < field) ++below;
        binades_.push_back(below);
    }
}

// Halves the magnitudes of one binade until one is left. No step branches: a processor would guess half of them wrong.
uint32_t Type::count_up_to(double x) const {
    const uint32_t binade = exponent_field(x);
    const double* first = finite.data() + binades_[binade];
    for (size_t left = binades_[binade + 1] - binades_[binade]; left > 0;) {
        const size_t half = (left + 1) / 2;
        first += half & -size_t{first[half - 1] <= x};
        left -= half;
    }
    return static_cast<uint32_t>(first - finite.data());
}

double Type::magnitude(uint32_t code) const {
    uint32_t exponent = code >> mantissa_bits, mantissa = code & ((1u << mantissa_bits) - 1);
    uint32_t last = (1u << exponent_bits) - 1;
    if (specials == Specials::infinity_and_nan && exponent == last) return mantissa ? NAN : INFINITY;
    if (specials == Specials::nan && code == magnitudes() - 1) return NAN;
    double fraction = exponent ? mantissa + std::ldexp(1.0, mantissa_bits) : mantissa;
    return std::ldexp(fraction, std::max<int>(static_cast<int>(exponent), 1) - bias() - mantissa_bits);
}

const QuantizedFormat* find_quantized(int32_t format) {
    for (const QuantizedFormat& known : quantized_formats)
        if (known.id == format) return &known;
    return nullptr;
}

const Type& element_type(int32_t format) {
    if (const QuantizedFormat* known = find_quantized(format)) return known->element;
    throw std::logic_error("oracle: not a quantized format");
}

uint32_t nearest(const Type& type, double magnitude) {
    const std::vector<double>& values = type.finite;
    const uint32_t high = type.count_up_to(magnitude), low = high - 1;
    if (high == values.size()) return low;
    double middle = (values[low] + values[high]) / 2;
    return low + ((magnitude > middle) | ((magnitude == middle) & (low % 2)));
}

uint8_t encode(const Type& type, double value) {
    if (std::isnan(value)) return static_cast<uint8_t>(type.has_nan() ? type.magnitudes() - 1 : type.finite.size() - 1);
    uint32_t code = nearest(type, std::fabs(value));
    return static_cast<uint8_t>(code | (std::signbit(value) ? type.magnitudes() : 0u));
}

uint8_t encode_element(int32_t format, double value) { return encode(element_type(format), value); }

double decode_element(int32_t format, uint8_t code) { return element_type(format).decode(code); }

uint16_t encode_16(const Type& type, double value) {
    if (std::isnan(value)) return 0x7FFF;
    const auto& values = table(type);
    double past_last = values.back() + (values.back() - values[values.size() - 2]);  // rounding treats Inf as this value
    uint32_t code = std::fabs(value) >= (values.back() + past_last) / 2 ? static_cast<uint32_t>(values.size())
                                                                        : nearest(type, std::fabs(value));
    return static_cast<uint16_t>(code | (std::signbit(value) ? 0x8000u : 0u));
}

uint16_t to_f16(double value) { return encode_16(f16, value); }

uint16_t to_bf16(double value) { return encode_16(bf16, value); }

float from_f16(uint16_t code) { return static_cast<float>(f16.decode(code)); }

Bytes store(int32_t format, const Floats& values) {
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

Floats load(int32_t format, const uint8_t* bytes, size_t count) {
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

// ---- Layout ---------------------------------------------------------------------------------------------------------

int32_t default_scaling(int32_t format) {
    return is_fp8(format) ? MXQ_SCALING_TENSOR : is_mx(format) ? MXQ_SCALING_1X32 : MXQ_SCALING_1X16;
}

int code_bits(int32_t format) { return element_type(format).width(); }

int64_t row_bytes(int32_t format, int64_t cols) { return ceil_div(cols * code_bits(format), 8); }

Tile tile_of(int32_t scaling) {
    switch (scaling) {
        case MXQ_SCALING_1X32: return {1, 32};
        case MXQ_SCALING_32X32: return {32, 32};
        case MXQ_SCALING_1X128: return {1, 128};
        case MXQ_SCALING_128X128: return {128, 128};
        case MXQ_SCALING_1X16: return {1, 16};
        case MXQ_SCALING_16X16: return {16, 16};
        case MXQ_SCALING_ROW: return {1, whole};
        case MXQ_SCALING_TENSOR: return {whole, whole};
    }
    throw std::logic_error("oracle: unknown scaling");
}

Tile stored_tile(int32_t scaling) { return scaling == MXQ_SCALING_16X16 ? Tile{1, 16} : tile_of(scaling); }

Grid grid_of(Tile tile, int64_t rows, int64_t cols) {
    return {tile.height == whole ? 1 : ceil_div(rows, tile.height), tile.width == whole ? 1 : ceil_div(cols, tile.width)};
}

Placement scale_placement(const Spec& spec, int64_t rows, int64_t cols, bool swizzled) {
    Placement out;
    out.tile = stored_tile(spec.scaling);
    out.stride = grid_of(out.tile, rows, cols).cols;
    bool fp8 = is_fp8(spec.format);
    if (swizzled && !fp8) {
        out.kind = Placement::Kind::swizzled;
        out.tile = {1, position_width(spec.format)};
        out.stride = ceil_div(cols, out.tile.width);
    } else if (swizzled && spec.scaling == MXQ_SCALING_1X128) {
        out.kind = Placement::Kind::outer_major;
        out.stride = rows;
    } else if (swizzled && spec.scaling == MXQ_SCALING_128X128) {
        out.stride = 4 * ceil_div(out.stride, 4);
    }
    return out;
}

int64_t scale_count(const Spec& spec, int64_t rows, int64_t cols, bool swizzled) {
    Placement placement = scale_placement(spec, rows, cols, swizzled);
    Grid grid = grid_of(placement.tile, rows, cols);
    if (placement.kind == Placement::Kind::swizzled) return ceil_div(rows, 128) * ceil_div(placement.stride, 4) * 512;
    return placement.kind == Placement::Kind::row_major ? grid.rows * placement.stride : grid.cols * placement.stride;
}

Placement placement_of(const Spec& spec, int64_t e, int64_t rows, int64_t cols, bool swizzled) {
    Placement out = scale_placement(spec, rows, cols, swizzled);
    out.row_bytes = row_bytes(spec.format, cols);
    out.first_byte = e * rows * out.row_bytes;
    bool one_for_all = spec.scaling == MXQ_SCALING_TENSOR && !spec.per_matrix;
    out.first_scale = one_for_all ? 0 : e * scale_count(spec, rows, cols, swizzled);
    return out;
}

size_t tile_number(const Spec& spec, const Matrix& matrix, int64_t i, int64_t j) {
    Tile tile = tile_of(spec.scaling);
    return static_cast<size_t>(i / tile.height * grid_of(tile, matrix.rows, matrix.cols).cols + j / tile.width);
}

void put_matrix(const Spec& spec, const Matrix& matrix, const Placement& placement, Part& part) {
    int bits = code_bits(spec.format);
    for (int64_t i = 0; i < matrix.rows; ++i)
        for (int64_t j = 0; j < matrix.cols; ++j)
            put_code(&part.codes[static_cast<size_t>(placement.first_byte + i * placement.row_bytes)], bits,
                     placement.first_code + j, matrix.codes[static_cast<size_t>(i * matrix.cols + j)]);
    bool amax_too = !matrix.amax.empty() && spec.scaling != MXQ_SCALING_TENSOR;
    each_scale(placement, matrix.rows, matrix.cols, [&](int64_t i, int64_t j) {
        int64_t entry = placement.scale(i, j);
        size_t tile = tile_number(spec, matrix, i, j);
        put_scale(spec.format, part.scales.data(), entry, matrix.scales[tile]);
        if (amax_too) part.amax[static_cast<size_t>(entry)] = matrix.amax[tile];
    });
}

Matrix get_matrix(const Spec& spec, const Part& part, const Placement& placement, int64_t rows, int64_t cols) {
    Tile tile = tile_of(spec.scaling);
    Grid grid = grid_of(tile, rows, cols);
    Matrix out{rows, cols, {}, std::vector<uint32_t>(static_cast<size_t>(grid.rows * grid.cols), 0), {}};
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j)
            out.codes.push_back(get_code(part.codes.data() + placement.first_byte + i * placement.row_bytes,
                                         code_bits(spec.format), placement.first_code + j));
    for (int64_t r = 0; r < grid.rows; ++r)
        for (int64_t c = 0; c < grid.cols; ++c) {
            int64_t i = tile.height == whole ? 0 : r * tile.height, j = tile.width == whole ? 0 : c * tile.width;
            if (!placement.has_scale(i, j) || (cols == 0 && placement.kind == Placement::Kind::swizzled)) continue;
            auto number = static_cast<size_t>(r * grid.cols + c);
            out.scales[number] = get_scale(spec.format, part.scales.data(), placement.scale(i, j));
        }
    return out;
}

int64_t compact_scale_rows(int32_t scaling, int64_t rows) { return ceil_div(rows, tile_of(scaling).height); }

int64_t swizzled_bytes(int64_t rows, int64_t cols) { return ceil_div(rows, 128) * ceil_div(ceil_div(cols, 32), 4) * 512; }

Bytes swizzle_positions(const uint8_t* scales, int64_t rows, int64_t blocks) {
    Bytes out(static_cast<size_t>(ceil_div(rows, 128) * ceil_div(blocks, 4) * 512), 0);
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < blocks; ++j)
            out[static_cast<size_t>(swizzle_position(i, j, blocks))] = scales[i * blocks + j];
    return out;
}

Bytes move_scales(const Spec& spec, const uint8_t* scales, int64_t rows, int64_t cols, bool to_swizzled) {
    Bytes out(static_cast<size_t>(scale_count(spec, rows, cols, to_swizzled) * scale_bytes(spec.format)), 0);
    if (rows == 0 || cols == 0) return out;  // compact ROW scales of lines without codes are not written
    Placement from = scale_placement(spec, rows, cols, !to_swizzled), to = scale_placement(spec, rows, cols, to_swizzled);
    each_scale(to, rows, cols, [&](int64_t i, int64_t j) {
        put_scale(spec.format, out.data(), to.scale(i, j), get_scale(spec.format, scales, from.scale(i, j)));
    });
    return out;
}

Bytes swizzle(const Spec& spec, const Bytes& compact, int64_t rows, int64_t cols) {
    return move_scales(spec, compact.data(), rows, cols, true);
}

Bytes unswizzle(const Spec& spec, const Bytes& swizzled, int64_t rows, int64_t cols) {
    return move_scales(spec, swizzled.data(), rows, cols, false);
}

Bytes swizzle(const Bytes& compact, int32_t scaling, int64_t rows, int64_t cols) {  // MX
    Spec spec;
    spec.scaling = scaling;
    return swizzle(spec, compact, rows, cols);
}

// ---- Random ---------------------------------------------------------------------------------------------------------

Words philox(Words counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
        key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
    }
    return counter;
}

std::array<uint8_t, 16> random_chunk(const Spec& spec, int32_t part, int64_t row, int64_t chunk) {
    uint32_t columnwise = part == MXQ_PART_COLUMNWISE ? 0x80000000u : 0;
    Words words = philox({static_cast<uint32_t>(chunk), static_cast<uint32_t>(row) | columnwise,
                          static_cast<uint32_t>(spec.offset), static_cast<uint32_t>(spec.offset >> 32)},
                         {static_cast<uint32_t>(spec.seed), static_cast<uint32_t>(spec.seed >> 32)});
    std::array<uint8_t, 16> bytes;
    for (size_t i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
    return bytes;
}

Bytes random_bytes(const Spec& spec, int64_t rows, int64_t cols, Origin origin) {
    Bytes out;
    for (int64_t i = 0; i < rows; ++i) {
        std::array<uint8_t, 16> chunk{};
        for (int64_t j = 0; j < cols; ++j) {
            int64_t position = origin.position + j;
            if (j == 0 || position % 16 == 0) chunk = random_chunk(spec, origin.part, origin.row + i, position / 16);
            out.push_back(chunk[static_cast<size_t>(position % 16)]);
        }
    }
    return out;
}

uint8_t stochastic_code(float value, uint8_t r) {
    const auto& values = e2m1.finite;
    auto last = static_cast<uint32_t>(values.size() - 1);
    if (std::isnan(value)) return static_cast<uint8_t>(last);
    double v = std::min(std::fabs(static_cast<double>(value)), values.back());
    uint32_t code = last;
    if (v < values.back()) {
        code = e2m1.count_up_to(v) - 1;
        double p = (v - values[code]) / (values[code + 1] - values[code]);
        if (256 * p > r + 0.5) ++code;
    }
    return static_cast<uint8_t>(code | (std::signbit(value) ? 8u : 0u));
}

void hadamard_16(float* x, uint32_t mask) {
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) x[i] = -x[i];
    for (int distance = 1; distance < 16; distance *= 2)
        for (int i = 0; i < 16; ++i) {
            if (i & distance) continue;
            float u = x[i], v = x[i + distance];
            x[i] = add(u, v);
            x[i + distance] = subtract(u, v);
        }
    for (int i = 0; i < 16; ++i) x[i] = multiply(x[i], 0.25f);
}

void hadamard_lines(Floats& lines, int64_t cols, uint32_t mask) {
    if (cols % 16) throw std::logic_error("oracle: the transform needs a contraction that is a multiple of 16");
    for (size_t at = 0; at < lines.size(); at += 16) hadamard_16(&lines[at], mask);
}

void undo_hadamard_16(float* x, uint32_t mask) {
    for (int distance : {1, 2, 4, 8})
        for (int first = 0; first < 16; first += 2 * distance)
            for (int i = first; i < first + distance; ++i) {
                float u = x[i], v = x[i + distance];
                x[i] = add(u, v);
                x[i + distance] = subtract(u, v);
            }
    for (int i = 0; i < 16; ++i) {
        float value = multiply(x[i], 0.25f);
        x[i] = mask >> i & 1 ? -value : value;
    }
}

void undo_hadamard_lines(Floats& lines, uint32_t mask) {
    if (lines.size() % 16) throw std::logic_error("oracle: the transform needs a contraction that is a multiple of 16");
    for (size_t at = 0; at < lines.size(); at += 16) undo_hadamard_16(&lines[at], mask);
}

// ---- MX -------------------------------------------------------------------------------------------------------------

int rceil_byte(float d) {
    uint32_t bits = bits_of(d);
    int exponent = biased_exponent(bits);
    int up = exponent == 0 ? mantissa(bits) > 0x400000 : mantissa(bits) != 0;
    return std::min(exponent + up, 255);
}

int scale_byte(int32_t format, int32_t rounding, float a) {
    const Type& type = element_type(format);
    int emax = type.emax();
    uint32_t bits = bits_of(a);
    switch (rounding) {
        case MXQ_SCALE_ROUNDING_FLOOR: return std::max(biased_exponent(bits) - emax, 0);
        case MXQ_SCALE_ROUNDING_CEIL: return std::max(biased_exponent(bits) + (mantissa(bits) != 0) - emax, 0);
        case MXQ_SCALE_ROUNDING_EVEN: {
            int exponent = biased_exponent(bits + (1u << (22 - type.mantissa_bits)));
            return exponent == 255 ? 255 : std::max(exponent - emax, 0);
        }
        case MXQ_SCALE_ROUNDING_RCEIL: return rceil_byte(multiply(a, divide(1, type.max())));
    }
    throw std::logic_error("oracle: unknown scale rounding");
}

double scale_value(int scale) { return scale == 255 ? NAN : std::ldexp(1.0, scale - 127); }

uint32_t quantize_mx(const Spec& spec, const Block& block) {
    const Type& type = element_type(spec.format);
    float a = 0;
    bool any_nan = false, any_inf = false;
    for (int64_t i = 0; i < block.count(); ++i) {
        float x = block.value(i);
        any_nan |= std::isnan(x);
        any_inf |= std::isinf(x);
        if (std::isfinite(x)) a = std::max(a, std::fabs(x));
    }
    bool saturate = spec.nonfinite == MXQ_NONFINITE_SATURATE;
    int scale = any_inf ? 255 : scale_byte(spec.format, spec.rounding, a);
    if (saturate) scale = std::min(scale, 0xFE);
    if (!saturate && any_nan) scale = 255;
    float reciprocal = scale == 255 ? NAN : std::ldexp(1.0f, 127 - scale);
    for (int64_t i = 0; i < block.count(); ++i)
        if (scale == 255)
            block.codes[block.at(i)] = type.has_nan() ? 0x7F : 0;
        else
            block.put(type, i, multiply(block.value(i), reciprocal));
    return static_cast<uint32_t>(scale);
}

float decode(int32_t format, uint8_t code, uint8_t scale) {
    return static_cast<float>(decode_element(format, code) * scale_value(scale));
}

// ---- NVFP4 ----------------------------------------------------------------------------------------------------------

float nvfp4_encode_scale(float t, float g) { return says_nothing(g) ? 1 : min_number(divide(t * 6, g), flt_max); }

float nvfp4_decode_scale(float t, float g) { return says_nothing(g) ? 1 : multiply(g, divide(1, t * 6)); }

uint8_t nvfp4_scale(float t, float g, float a) {
    float sixth = multiply(nvfp4_encode_scale(t, g), divide(1, 6));
    return encode(e4m3, min_number(multiply(a, sixth), flt_max));
}

float nvfp4_multiplier(float t, float g, uint8_t scale) {
    float value = multiply(static_cast<float>(e4m3.decode(scale)), divide(1, nvfp4_encode_scale(t, g)));
    return min_number(divide(1, value), flt_max);
}

void nvfp4_codes(const Spec& spec, const Block& block, float g, uint8_t scale) {
    float multiplier = nvfp4_multiplier(spec.nvfp4_t, g, scale);
    for (int64_t i = 0; i < block.count(); ++i) {
        float x = block.value(i);
        if (scale == 0)
            block.codes[block.at(i)] = !std::isnan(x) && std::signbit(x) ? 8 : 0;
        else
            block.put(e2m1, i, multiply(x, multiplier));
    }
}

float nvfp4_error(const Spec& spec, float g, uint8_t scale, uint8_t code, float x) {
    float value = multiply(static_cast<float>(e2m1.decode(code)), static_cast<float>(e4m3.decode(scale)));
    float d = subtract(divide(multiply(value, g), 6 * spec.nvfp4_t), x);
    return spec.four_over_six == MXQ_FOUR_OVER_SIX_MAE ? std::fabs(d) : multiply(d, d);
}

float nvfp4_block_error(const Spec& spec, const Block& block, float g, uint8_t scale, bool columnwise) {
    bool upright = columnwise && spec.scaling == MXQ_SCALING_16X16;
    int64_t rows = upright ? block.width : block.height, cols = upright ? block.height : block.width;
    float errors[16] = {};
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) {
            int64_t at = upright ? c * block.stride + r : r * block.stride + c;
            errors[r] = add(errors[r], nvfp4_error(spec, g, scale, block.codes[at], block.x[at]));
        }
    for (int distance = 8; distance; distance /= 2)
        for (int r = 0; r < distance; ++r) errors[r] = add(errors[r], errors[r + distance]);
    return errors[0];
}

uint8_t nvfp4_better_scale(const Spec& spec, const Block& block, float g, bool columnwise) {
    float base = multiply(divide(block.amax(), 6), nvfp4_encode_scale(spec.nvfp4_t, g));
    uint8_t scale4 = encode(e4m3, multiply(base, 1.5f)), scale6 = encode(e4m3, base);
    nvfp4_codes(spec, block, g, scale4);
    float error4 = nvfp4_block_error(spec, block, g, scale4, columnwise);
    nvfp4_codes(spec, block, g, scale6);
    float error6 = nvfp4_block_error(spec, block, g, scale6, columnwise);
    return error4 < error6 ? scale4 : scale6;
}

uint32_t quantize_nvfp4(const Spec& spec, const Block& block, float g, bool columnwise) {
    if (spec.four_over_six && spec.stochastic) throw std::logic_error("oracle: four-over-six is never stochastic");
    uint8_t scale =
        spec.four_over_six ? nvfp4_better_scale(spec, block, g, columnwise) : nvfp4_scale(spec.nvfp4_t, g, block.amax());
    nvfp4_codes(spec, block, g, scale);
    return scale;
}

float decode_nvfp4(uint8_t code, uint8_t scale, float decode_scale) {
    float value = multiply(static_cast<float>(e2m1.decode(code)), static_cast<float>(e4m3.decode(scale)));
    return multiply(value, decode_scale);
}

// ---- FP8 ------------------------------------------------------------------------------------------------------------

float fp8_scale(const Spec& spec, float a) {
    a = std::max(a, spec.eps);
    float s = a == 0 || !std::isfinite(a) ? 1 : divide(element_type(spec.format).max(), a);
    if (std::isinf(s)) s = flt_max;
    return spec.power_of_two ? float_of(bits_of(s) & 0xFF800000u) : s;
}

uint32_t quantize_fp8(const Spec& spec, const Block& block, float s) {
    for (int64_t i = 0; i < block.count(); ++i) block.put(element_type(spec.format), i, multiply(block.value(i), s));
    return bits_of(divide(1, s));
}

float decode_fp8(int32_t format, uint8_t code, uint32_t scale) {
    return multiply(static_cast<float>(decode_element(format, code)), float_of(scale));
}

// ---- Tensors --------------------------------------------------------------------------------------------------------

Matrix quantize_matrix(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, Origin origin, float shared) {
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
            Block block{x.data() + first,
                        out.codes.data() + first,
                        spec.stochastic ? random.data() + first : nullptr,
                        cols,
                        std::min(tile.height, rows - i),
                        std::min(tile.width, cols - j)};
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

Floats lines_of(const Spec& spec, const float* x, int64_t rows, int64_t cols, int32_t part) {
    Floats lines = part == MXQ_PART_COLUMNWISE ? transposed(x, rows, cols) : Floats(x, x + rows * cols);
    if (spec.transforms(part)) hadamard_lines(lines, part == MXQ_PART_COLUMNWISE ? rows : cols, spec.mask(part));
    return lines;
}

float largest(const Floats& x) {
    float a = 0;
    for (float value : x)
        if (std::fabs(value) > a) a = std::fabs(value);
    return a;
}

Floats amaxes(const std::vector<Floats>& matrices, bool per_matrix) {
    Floats out(per_matrix ? matrices.size() : 1, 0.0f);
    for (size_t e = 0; e < matrices.size(); ++e) {
        float& a = out[per_matrix ? e : 0];
        a = std::max(a, largest(matrices[e]));
    }
    return out;
}

Floats shared_numbers(const Spec& spec, const Floats& amax) {
    if (spec.format == MXQ_FORMAT_NVFP4) return spec.amax.empty() ? amax : spec.amax;
    if (!spec.quantization_scale.empty()) return spec.quantization_scale;
    Floats out;
    for (float a : amax) out.push_back(is_fp8(spec.format) ? fp8_scale(spec, a) : a);
    return out;
}

Part empty_part(const Spec& spec, int64_t codes, int64_t scales, const Floats& amax, const Floats& shared) {
    Part out{Bytes(static_cast<size_t>(codes), 0), Bytes(static_cast<size_t>(scales * scale_bytes(spec.format)), 0)};
    if (spec.format == MXQ_FORMAT_NVFP4) out.amax = shared;
    if (!is_fp8(spec.format)) return out;
    out.amax = amax;
    if (spec.scaling != MXQ_SCALING_TENSOR)
        out.amax.assign(static_cast<size_t>(scales), 0.0f);
    else
        for (size_t e = 0; e < shared.size(); ++e)
            put_scale(spec.format, out.scales.data(), static_cast<int64_t>(e), bits_of(divide(1, shared[e])));
    return out;
}

Shape line_shape(Shape shape, int32_t part) {
    return part == MXQ_PART_ROWWISE ? shape : Shape{shape.experts, shape.cols, shape.rows};
}

int64_t scale_count(const Spec& spec, Shape shape, int32_t part, bool swizzled) {
    if (spec.scaling == MXQ_SCALING_TENSOR) return spec.per_matrix ? shape.experts : 1;
    Shape of_lines = line_shape(shape, part);
    return shape.experts * scale_count(spec, of_lines.rows, of_lines.cols, swizzled);
}

std::vector<Floats> all_lines(const Spec& spec, const Floats& x, Shape shape, int32_t part) {
    std::vector<Floats> out;
    for (int64_t e = 0; e < shape.experts; ++e)
        out.push_back(lines_of(spec, x.data() + e * shape.rows * shape.cols, shape.rows, shape.cols, part));
    return out;
}

Floats amax(const Spec& spec, const Floats& x, Shape shape, int32_t part) {
    return amaxes(all_lines(spec, x, shape, part), spec.per_matrix);
}

Part quantize(const Spec& spec, const Floats& x, Shape shape, int32_t part, bool swizzled) {
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

Part quantize_rowwise(const Spec& spec, const float* x, int64_t rows, int64_t cols) {
    return quantize(spec, Floats(x, x + rows * cols), {1, rows, cols}, MXQ_PART_ROWWISE, false);
}

Floats decode_scales(const Spec& spec, const Part& stored) {
    if (spec.format != MXQ_FORMAT_NVFP4) return {1};
    if (!stored.global_scale.empty()) return stored.global_scale;
    Floats out;
    for (float g : stored.amax) out.push_back(nvfp4_decode_scale(spec.nvfp4_t, g));
    return out;
}

float decode(const Spec& spec, uint8_t code, uint32_t scale, float decode_scale) {
    if (is_mx(spec.format)) return decode(spec.format, code, static_cast<uint8_t>(scale));
    if (is_fp8(spec.format)) return decode_fp8(spec.format, code, scale);
    return decode_nvfp4(code, static_cast<uint8_t>(scale), decode_scale);
}

Floats decode_matrix(const Spec& spec, const uint8_t* codes, const uint8_t* scales, const Placement& placement, int64_t rows,
                     int64_t cols, float decode_scale) {
    Floats out(static_cast<size_t>(rows * cols));
    const int bits = code_bits(spec.format);
    testing::parallel_for(rows, 10 * cols, [&](int64_t i) {
        const uint8_t* row = codes + placement.first_byte + i * placement.row_bytes;
        for (int64_t j = 0; j < cols; ++j) {
            uint8_t code = get_code(row, bits, placement.first_code + j);
            out[static_cast<size_t>(i * cols + j)] =
                decode(spec, code, get_scale(spec.format, scales, placement.scale(i, j)), decode_scale);
        }
    });
    return out;
}

Floats dequantize_rowwise(const Spec& spec, const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t cols,
                          float decode_scale) {
    return decode_matrix(spec, codes, scales, placement_of(spec, 0, rows, cols, false), rows, cols, decode_scale);
}

Floats dequantize_rowwise(int32_t format, int32_t scaling, const uint8_t* codes, const uint8_t* scales, int64_t rows,
                          int64_t cols) {
    Spec spec;
    spec.format = format, spec.scaling = scaling;
    return dequantize_rowwise(spec, codes, scales, rows, cols);
}

Floats lines(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled) {
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

Spec untransformed(Spec spec) {
    spec.hadamard = 0;
    return spec;
}

Floats dequantize(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled) {
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

Part requantize(const Spec& from, const Part& stored, int32_t from_part, bool from_swizzled, const Spec& to, Shape shape,
                int32_t to_part, bool to_swizzled) {
    if (from.transforms(from_part))  // the values pass as they are, to a part that is transformed alike
        return requantize(untransformed(from), stored, from_part, from_swizzled, untransformed(to), shape, to_part,
                          to_swizzled);
    return quantize(to, dequantize(from, stored, shape, from_part, from_swizzled), shape, to_part, to_swizzled);
}

Bytes move_scales(const Spec& spec, const Bytes& scales, Shape shape, int32_t part, bool to_swizzled) {
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

Bytes swizzle(const Spec& spec, const Bytes& compact, Shape shape, int32_t part) {
    return move_scales(spec, compact, shape, part, true);
}

Bytes unswizzle(const Spec& spec, const Bytes& swizzled, Shape shape, int32_t part) {
    return move_scales(spec, swizzled, shape, part, false);
}

}  // namespace oracle
