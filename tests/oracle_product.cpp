// Products and their bounds: oracle_product.h says what each function does.
#include "oracle_product.h"

namespace oracle {

Floats operand_lines(const Spec& spec, const Part& stored, Shape shape, int32_t part, bool swizzled) {
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

double aligned_more(double x, double y) {
    if (x == 0 || y == 0) return 0;
    return std::max(std::fabs(x), 0x1p-14) * std::max(std::fabs(y), 0x1p-14) - std::fabs(x) * std::fabs(y);
}

// Sums each element in the order of l. B is turned around first, so that a compiler adds to several elements at once.
std::vector<Element> product(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t m, int64_t n,
                             int64_t k, const float* previous) {
    std::vector<Element> out(static_cast<size_t>(m * n));
    std::vector<double> turned(static_cast<size_t>(k * n));
    std::vector<bool> b_infinite(static_cast<size_t>(n), false);
    for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l) {
            turned[static_cast<size_t>(l * n + j)] = b[j * b_stride + l];
            if (std::isinf(b[j * b_stride + l])) b_infinite[static_cast<size_t>(j)] = true;
        }
    testing::parallel_for(m, n * k, [&](int64_t i) {
        const auto columns = static_cast<size_t>(n);
        std::vector<double> value(columns), magnitude(columns), operands(columns), aligned(columns);
        bool a_infinite = false;
        for (int64_t l = 0; l < k; ++l) {
            const double x = a[i * a_stride + l], *ys = turned.data() + l * n;
            a_infinite |= std::isinf(x);
            for (size_t j = 0; j < columns; ++j) {
                value[j] += x * ys[j];
                magnitude[j] += std::fabs(x) * std::fabs(ys[j]);
                operands[j] += std::fabs(x) + std::fabs(ys[j]);
                aligned[j] += aligned_more(x, ys[j]);
            }
        }
        for (size_t j = 0; j < columns; ++j) {
            Element& e = out[static_cast<size_t>(i) * columns + j];
            e.value = value[j], e.magnitude = magnitude[j], e.operands = operands[j], e.aligned = aligned[j];
            if (a_infinite || b_infinite[j] || e.magnitude >= 0x1p128) {
                e.promised = false;
            } else if (std::isnan(e.operands)) {
                e.nan = true;
            } else if (previous) {  // accumulation is one more term of the sum: previous * 1
                double d = previous[static_cast<size_t>(i) * columns + j];
                e.value += d;
                e.magnitude += std::fabs(d);
            }
        }
    });
    return out;
}

Element with_more(Element e, const More& more, float previous, float bias) {
    const double alpha = more.alpha, d = more.beta != 0 ? double(more.beta) * previous : 0, b = more.bias ? bias : 0;
    e.value = alpha * e.value + d + b;
    e.magnitude = std::fabs(alpha) * e.magnitude + std::fabs(d) + std::fabs(b);
    e.operands *= std::fabs(alpha);
    e.rebased *= std::fabs(alpha);
    e.aligned *= std::fabs(alpha);
    e.below = more_of(more) > 0 ? (1 + std::fabs(alpha)) * 0x1p-149 : 0;
    e.promised = e.promised && !std::isinf(d) && !std::isinf(b) && !(e.magnitude >= 0x1p128);
    e.nan = e.nan || std::isnan(d) || std::isnan(b);
    return e;
}

std::vector<Element> of_f16(std::vector<Element> elements, const std::string& implementation) {
    for (Element& e : elements)
        if (implementation != "cpu") e.magnitude += e.aligned;
    return elements;
}

std::string check_product(const std::vector<Element>& expected, const Floats& d, int32_t d_format, double c) {
    double unit = d_format == MXQ_FORMAT_F32 ? 0x1p-24 : d_format == MXQ_FORMAT_F16 ? 0x1p-11 : 0x1p-8;
    double smallest_normal = d_format == MXQ_FORMAT_F16 ? 0x1p-14 : 0x1p-126;
    double largest = d_format == MXQ_FORMAT_F16 ? 65504.0 : d_format == MXQ_FORMAT_BF16 ? 0x1.FEp127 : 0x1.FFFFFEp127;
    for (size_t i = 0; i < expected.size(); ++i) {
        const Element& e = expected[i];
        double got = d[i];
        double before_rounding = c * 0x1p-24 * e.magnitude + 0x1p-134 * e.operands + e.below + e.rebased;
        double bound = before_rounding + unit * std::max(std::fabs(got), smallest_normal);
        double becomes_inf = largest * (1 + unit / 2) * (1 - 0x1p-40);
        bool good;
        if (e.nan)
            good = std::isnan(got);
        else if (!e.promised)
            good = true;
        else if (std::isinf(got))
            good = std::fabs(e.value) + before_rounding >= becomes_inf && (got > 0) == (e.value > 0);
        else
            good = !std::isnan(got) && std::fabs(got - e.value) <= bound;
        if (!good) {
            char text[160];
            std::snprintf(text, sizeof text, "element %zu: %.9g, expected %.17g%s, error %.3g, bound %.3g", i, got, e.value,
                          e.nan ? " (NaN)" : "", got - e.value, bound);
            return text;
        }
    }
    return "";
}

int rebase_headroom(int32_t format) {
    return format == MXQ_FORMAT_MXFP4 ? 6 : format == MXQ_FORMAT_MXFP6_E2M3 ? 5 : format == MXQ_FORMAT_MXFP6_E3M2 ? 4 : 0;
}

Floats rebase_errors(const Spec& spec, const Bytes& scales, const Placement& placement, const Floats& values, int64_t lines,
                     int64_t k, int64_t tile_lines) {
    const bool e5m2 = spec.format == MXQ_FORMAT_MXFP8_E5M2;
    Floats out(values.size(), 0.0f);
    for (int64_t first = 0; first < lines * k; first += tile_lines * k)
        for (int64_t block = 0; block < k; block += 128) {
            const int64_t end = std::min(first + tile_lines * k, lines * k), width = std::min<int64_t>(128, k - block);
            int largest = 0;
            for (int64_t line = first; line < end; line += k)
                for (int64_t j = block; j < block + width; ++j) {
                    if (!placement.has_scale(line / k, j)) continue;
                    const uint32_t scale = get_scale(spec.format, scales.data(), placement.scale(line / k, j));
                    if (scale != 255) largest = std::max(largest, static_cast<int>(scale));
                }
            largest = std::max(largest - rebase_headroom(spec.format), 1);
            const double least_normal = std::ldexp(1.0, largest - 127 - (e5m2 ? 14 : 6));
            for (int64_t line = first; line < end; line += k)
                for (int64_t j = block; j < block + width; ++j) {
                    const double value = std::fabs(values[static_cast<size_t>(line + j)]);
                    if (value != 0 && value < least_normal)
                        out[static_cast<size_t>(line + j)] = static_cast<float>(least_normal * (e5m2 ? 0x1p-3 : 0x1p-4));
                }
        }
    return out;
}

std::vector<int> guarded_references(const Spec& spec, const Bytes& scales, const Placement& placement, int64_t lines,
                                    int64_t k) {
    std::vector<int> out(static_cast<size_t>(lines), 1);
    for (int64_t line = 0; line < lines; ++line)
        for (int64_t j = 0; j < k; ++j) {
            if (!placement.has_scale(line, j)) continue;
            const int scale = static_cast<int>(get_scale(spec.format, scales.data(), placement.scale(line, j)));
            int& largest = out[static_cast<size_t>(line)];
            if (scale != 255) largest = std::max(largest, scale - rebase_headroom(spec.format));
        }
    return out;
}

void add_guarded_roundings(std::vector<Element>& elements, const std::vector<int>& a, const std::vector<int>& b, int64_t k) {
    for (size_t i = 0; i < a.size(); ++i)
        for (size_t j = 0; j < b.size(); ++j)
            elements[i * b.size() + j].rebased += std::ldexp(static_cast<double>(k / 32 + 1), a[i] + b[j] - 254 - 148);
}

Floats guarded_errors(const Spec& spec, const Bytes& scales, const Placement& placement, const Floats& values, int64_t lines,
                      int64_t k, bool by_line) {
    const bool e5m2 = spec.format == MXQ_FORMAT_MXFP8_E5M2;
    const auto scale_at = [&](int64_t line, int64_t j) -> int {
        if (!placement.has_scale(line, j)) return 0;
        return static_cast<int>(get_scale(spec.format, scales.data(), placement.scale(line, j)));
    };
    const auto own = [&](int scale) { return scale == 255 ? 1 : std::max(scale - rebase_headroom(spec.format), 1); };
    const auto reference_of = [&](int64_t line, int64_t begin, int64_t end) {
        int largest = 1;
        for (int64_t j = begin; j < end; ++j) largest = std::max(largest, own(scale_at(line, j)));
        return largest;
    };
    Floats out(values.size(), 0.0f);
    for (int64_t line = 0; line < lines; ++line) {
        const int of_line = reference_of(line, 0, k);
        for (int64_t block = 0; block < k; block += 128) {
            const int64_t end = std::min(block + 128, k);
            const int of_step = reference_of(line, block, end);
            const auto all_near = [&](int reference) {
                bool near = true;
                for (int64_t j = block; j < end; ++j) {
                    const int scale = scale_at(line, j);
                    near &= scale == 255 || values[static_cast<size_t>(line * k + j)] == 0 || reference - own(scale) <= 10;
                }
                return near;
            };
            const bool by_its_line = by_line && all_near(of_line), by_step = all_near(of_step);
            for (int64_t j = block; j < end; ++j) {
                const int moved_to = by_its_line ? of_line : by_step ? of_step : own(scale_at(line, j));
                const double least_normal = std::ldexp(1.0, moved_to - 127 - (e5m2 ? 14 : 6));
                const double value = std::fabs(values[static_cast<size_t>(line * k + j)]);
                double error = 0;
                if (value != 0 && value < least_normal) error = least_normal * (e5m2 ? 0x1p-3 : 0x1p-4);
                // Counts as zero. E4M3 codes of A, which the pass may rescale, count as zero by their own scale.
                const bool by_scale = !by_line && spec.format == MXQ_FORMAT_MXFP8_E4M3;
                if ((by_scale ? scale_at(line, j) : moved_to) + 126 < of_line) error = value;
                out[static_cast<size_t>(line * k + j)] = static_cast<float>(error);
            }
        }
    }
    return out;
}

void add_rebase_errors(std::vector<Element>& elements, const float* a, const float* a_errors, const float* b,
                       const float* b_errors, int64_t m, int64_t n, int64_t k) {
    testing::parallel_for(m, n * k, [&](int64_t i) {
        for (int64_t j = 0; j < n; ++j)
            for (int64_t l = 0; l < k; ++l) {
                const double x = a[i * k + l], y = b[j * k + l], x_error = a_errors[i * k + l],
                             y_error = b_errors[j * k + l];
                elements[static_cast<size_t>(i * n + j)].rebased +=
                    x_error * std::fabs(y) + std::fabs(x) * y_error + x_error * y_error;
            }
    });
}

double class_factor(int32_t bound, int64_t k) {
    const double exact = 13 * static_cast<double>(k) / 10 + 40;
    // Where FP8 tensor cores keep 14 bits: 4 instructions for every 128 codes, 33 terms each, cut at 2^-13 of the largest.
    const double cut = 4 * 33 * 2048;
    if (bound == MXQ_BOUND_EXACT_PRODUCTS) return exact;
    if (bound == MXQ_BOUND_FP8_TENSOR_CORES || bound == MXQ_BOUND_REBASED || bound == MXQ_BOUND_REBASED_GUARDED ||
        bound == MXQ_BOUND_BLACKWELL_TENSOR_CORES)
        return exact + cut;
    return -1;
}

double bound_factor(const Promise& promise, int64_t k, bool exact) {
    const double of_class = class_factor(promise.bound, k), length = static_cast<double>(k);
    if (promise.implementation == "cpu") return std::min(of_class, length + 1);
    if (promise.implementation == "mma_bf16" && exact) return std::min(of_class, 5 * length / 4 + 32);
    return of_class;
}

double rounding_of_sums(const Promise& promise, int32_t b_format, int64_t k) {
    const std::string& name = promise.implementation;
    if (name == "weights_fp8_sm90") return static_cast<double>(ceil_div(k, 32)) * 0x1p-150;
    if (promise.bound != MXQ_BOUND_EXACT_PRODUCTS) return 0;
    if (name == "weights_sm90" && b_format == MXQ_FORMAT_NVFP4) return static_cast<double>(k) * 0x1p-142;
    for (const char* of_weights : {"splitk_sm90", "wgmma_bf16_sm90", "mma_bf16_rows"})
        if (name == of_weights) return static_cast<double>(k) * 0x1p-142;
    for (const char* of_16_bits : {"cublaslt", "cublaslt_grouped", "cublaslt_widen", "cublaslt_grouped_widen",
                                   "wgmma_plain_sm90", "wgmma_plain_widen", "wgmma_blocks_sm90", "weights_sm90"})
        if (name == of_16_bits) return static_cast<double>(k) * 0x1p-149;
    return 0;
}

}  // namespace oracle
