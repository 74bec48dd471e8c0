#include "model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

namespace {

std::vector<double> bf16_to_double(const uint8_t* data, int64_t count) {
    std::vector<double> values(count);
    for (int64_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, 2);
        values[i] = std::bit_cast<float>(uint32_t(bits) << 16);
    }
    return values;
}

double dot(const double* a, const double* b, int64_t count) {
    double sums[8] = {};  // independent sums, which let the compiler vectorise
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
    for (; i < count; ++i) sums[0] += a[i] * b[i];
    double sum = 0;
    for (double s : sums) sum += s;
    return sum;
}

// Returns out[t] = in[t] weight[expert of t]^T + bias[expert of t] for each token t.
std::vector<double> linear(const Model& model, const std::vector<double>& in, const std::vector<double>& weight,
                           const std::vector<float>& bias, int64_t in_width, int64_t out_width) {
    std::vector<double> out(model.tokens * out_width);
    for (int64_t t = 0; t < model.tokens; ++t) {
        const int64_t expert = model.expert_of(t);
        for (int64_t n = 0; n < out_width; ++n)
            out[t * out_width + n] = bias[expert * out_width + n] +
                                     dot(&in[t * in_width], &weight[(expert * out_width + n) * in_width], in_width);
    }
    return out;
}

// Adds factor * x to y.
void add_scaled(double factor, const double* x, double* y, int64_t count) {
    for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

// Computes the gradients of `down`. Each token t of expert e, with g = grad_output[t], contributes
// input_gradient[t] = g down[e] and weight_gradient[e] += g^T hidden[t].
void add_gradients(const Model& m, const std::vector<double>& down, Reference& r) {
    const std::vector<double> grad_output = bf16_to_double(m.grad_output, m.tokens * m.width);
    r.input_gradient.resize(m.tokens * m.hidden);
    r.weight_gradient.resize(m.experts * m.width * m.hidden);
    for (int64_t t = 0; t < m.tokens; ++t)
        for (int64_t n = 0; n < m.width; ++n) {
            const double g = grad_output[t * m.width + n];
            const int64_t row = (m.expert_of(t) * m.width + n) * m.hidden;
            add_scaled(g, &down[row], &r.input_gradient[t * m.hidden], m.hidden);
            add_scaled(g, &r.hidden[t * m.hidden], &r.weight_gradient[row], m.hidden);
        }
}

}  // namespace

Model::Model(const std::string& path) : file(path) {
    const auto& up = file.at("up.weight");
    const auto& down = file.at("down.weight");
    const auto& x = file.at("tokens");
    const auto& grad = file.at("grad_output");
    experts = up.shape.at(0), hidden = up.shape.at(1), width = up.shape.at(2), tokens = x.shape.at(0);
    if (up.dtype != "BF16" || down.dtype != "BF16" || x.dtype != "BF16" || grad.dtype != "BF16" || x.shape.at(1) != width ||
        down.shape != std::vector<int64_t>{experts, width, hidden} || grad.shape != x.shape)
        throw std::runtime_error(
            path + ": expected BF16 tokens and grad_output (T, K), up.weight (E, H, K), down.weight (E, K, H)");
    ends = file.at("group_ends").values<int32_t>();
    up_bias = file.at("up.bias").values<float>();
    down_bias = file.at("down.bias").values<float>();
    if (int64_t(ends.size()) != experts || ends.back() != tokens || int64_t(up_bias.size()) != experts * hidden ||
        int64_t(down_bias.size()) != experts * width)
        throw std::runtime_error(path + ": group_ends, up.bias or down.bias do not fit the weights");
    token_data = x.data, up_weight = up.data, down_weight = down.data, grad_output = grad.data;
}

int Model::expert_of(int64_t token) const {
    return int(std::upper_bound(ends.begin(), ends.end(), token) - ends.begin());
}

Reference reference_layer(const Model& m) {
    Reference r;
    r.up = linear(m, bf16_to_double(m.token_data, m.tokens * m.width),
                  bf16_to_double(m.up_weight, m.experts * m.hidden * m.width), m.up_bias, m.width, m.hidden);
    r.hidden.resize(r.up.size());
    std::transform(r.up.begin(), r.up.end(), r.hidden.begin(), gelu);
    const std::vector<double> down = bf16_to_double(m.down_weight, m.experts * m.width * m.hidden);
    r.output = linear(m, r.hidden, down, m.down_bias, m.hidden, m.width);
    add_gradients(m, down, r);
    return r;
}

std::vector<double> add_bias(const Model& model, std::span<const float> product, std::span<const float> bias) {
    const int64_t cols = int64_t(product.size()) / model.tokens;
    std::vector<double> out(product.size());
    for (int64_t t = 0; t < model.tokens; ++t) {
        const int64_t expert = model.expert_of(t);
        for (int64_t n = 0; n < cols; ++n) out[t * cols + n] = double(product[t * cols + n]) + bias[expert * cols + n];
    }
    return out;
}

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

double sqnr_db(std::span<const double> reference, std::span<const double> result) {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
        const double error = result[i] - reference[i];
        signal += reference[i] * reference[i];
        noise += error * error;
    }
    return 10 * std::log10(signal / noise);
}

double largest_error(std::span<const double> reference, std::span<const double> result) {
    double largest = 0;
    for (size_t i = 0; i < reference.size(); ++i) largest = std::max(largest, std::abs(result[i] - reference[i]));
    return largest;
}
