// Calls of activate and of its gradient: what they read, with the oracle's values of it.
#ifndef MXQ_TESTS_VERBS_ACTIVATION_H
#define MXQ_TESTS_VERBS_ACTIVATION_H

#include "../formats.h"
#include "../oracle_activation.h"

namespace activation {

using testing::Buffer;
using testing::ok;

using ActivateOptions = testing::Handle<mxq_activate_options, mxq_activate_options_destroy>;

// One call. `format`: of out where it is plain, 0 where `spec` says how it is quantized.
struct Case {
    oracle::ActivationSpec activation;
    int32_t input = MXQ_FORMAT_BF16, format = 0, bias = 0, weights = 0;
    int32_t gradient = 0;  // backward: the format of the result's gradient
    oracle::Spec spec;
    testing::Dims dims{std::nullopt, 0, 0};  // of out
    int64_t gap = 0;
    bool rowwise = true, columnwise = false, swizzled = false, grouped = false;
    oracle::Groups groups;
    size_t offset = 0;

    int64_t rows() const { return dims.shape().experts * dims.rows; }
    int64_t columns() const { return activation.columns(dims.cols); }
    int64_t biases() const { return grouped ? groups.count() : dims.shape().experts; }
    // Returns which bias a row has: that of its expert or group; -1: it is in no group.
    int64_t bias_of(int64_t row) const {
        if (!grouped) return dims.rows ? row / dims.rows : 0;
        for (size_t g = 0; g < groups.ends.size(); ++g)
            if (row < groups.ends[g]) return static_cast<int64_t>(g);
        return -1;
    }
    std::string describe() const {
        char text[300];
        std::snprintf(text, sizeof text, "activation %d layout %d, %s to %s, %dx%d, bias %d, weights %d, groups %d, gap %d, offset %d; ",
                      activation.kind, activation.layout, mxq_format_name(input), format ? mxq_format_name(format) : "codes",
                      static_cast<int>(dims.rows), static_cast<int>(dims.cols), bias, weights,
                      grouped ? static_cast<int>(groups.count()) : -1, static_cast<int>(gap), static_cast<int>(offset));
        return text + testing::describe(spec);
    }
};

// What a call reads, as the bytes of the types that it has them in.
struct Inputs {
    oracle::Bytes in, bias, weights;
    oracle::Bytes gradient;  // of the result, for backward
    Inputs(const Case& c, cases::Values values, uint64_t seed) {
        in = cases::plain_values(c.input, values, static_cast<size_t>(c.rows() * c.columns()), seed);
        const auto numbers = [&](int32_t format, int64_t count) {
            return format ? cases::plain_values(format, cases::Values::normal, static_cast<size_t>(count), ++seed) : oracle::Bytes{};
        };
        bias = numbers(c.bias, c.biases() * c.columns());
        weights = numbers(c.weights, c.rows());
        gradient = numbers(c.gradient, c.rows() * c.dims.cols);
    }
};

inline oracle::Floats numbers_of(int32_t format, const oracle::Bytes& bytes) {
    return format ? oracle::load(format, bytes.data(), bytes.size() / static_cast<size_t>(oracle::plain_bytes(format))) : oracle::Floats{};
}

// Returns the values in fp32, 0 for rows in no group.
inline oracle::Floats values_of(const Case& c, const Inputs& inputs) {
    const int64_t width = c.dims.cols;
    const auto x = numbers_of(c.input, inputs.in), bias = numbers_of(c.bias, inputs.bias);
    const auto weights = numbers_of(c.weights, inputs.weights);
    oracle::Floats out(static_cast<size_t>(c.rows() * width), 0.0f);
    for (int64_t row = 0; row < c.rows(); ++row) {
        const int64_t group = c.bias_of(row);
        if (group < 0) continue;
        const auto element = [&](int64_t column) {
            const float value = x[static_cast<size_t>(row * c.columns() + column)];
            return c.bias ? value + bias[static_cast<size_t>(group * c.columns() + column)] : value;
        };
        for (int64_t i = 0; i < width; ++i) {
            const float gate = element(c.activation.gate_column(i, width));
            const float up = c.activation.gated() ? element(c.activation.up_column(i, width)) : 0;
            const float value = oracle::activate(c.activation, gate, up);
            out[static_cast<size_t>(row * width + i)] = c.weights ? value * weights[static_cast<size_t>(row)] : value;
        }
    }
    return out;
}

// Holds the outputs of a call in fp32, with a bias's gradient for each expert or group and one for each row.
struct Gradients {
    oracle::Floats values, bias, weights;
};

// Adds numbers in pairs that are half of them apart.
inline float tree(std::vector<float> sums) {
    for (size_t distance = sums.size() / 2; distance > 0; distance /= 2)
        for (size_t i = 0; i < distance; ++i) sums[i] += sums[i + distance];
    return sums[0];
}

// Returns the sums of the columns of rows [first, last): 128 rows at a time, then those sums.
inline void add_columns(const oracle::Floats& values, int64_t columns, int64_t first, int64_t last, float* to) {
    for (int64_t column = 0; column < columns; ++column) {
        float all = 0;
        for (int64_t chunk = first; chunk < last; chunk += 128) {
            float sum = 0;
            for (int64_t row = chunk; row < std::min(chunk + 128, last); ++row)
                sum += values[static_cast<size_t>(row * columns + column)];
            all += sum;
        }
        to[column] = all;
    }
}

// Returns the gradients in fp32, 0 for rows in no group.
inline Gradients gradients_of(const Case& c, const Inputs& inputs) {
    const int64_t width = c.dims.cols, columns = c.columns();
    const auto x = numbers_of(c.input, inputs.in), bias = numbers_of(c.bias, inputs.bias);
    const auto weights = numbers_of(c.weights, inputs.weights), of_result = numbers_of(c.gradient, inputs.gradient);
    Gradients out{oracle::Floats(static_cast<size_t>(c.rows() * columns), 0.0f),
                  oracle::Floats(static_cast<size_t>(c.biases() * columns), 0.0f),
                  oracle::Floats(static_cast<size_t>(c.rows()), 0.0f)};
    for (int64_t row = 0; row < c.rows(); ++row) {
        const int64_t group = c.bias_of(row);
        if (group < 0) continue;
        std::vector<float> sums(256, 0.0f);
        for (int64_t i = 0; i < width; ++i) {
            const auto element = [&](int64_t column) {
                const float value = x[static_cast<size_t>(row * columns + column)];
                return c.bias ? value + bias[static_cast<size_t>(group * columns + column)] : value;
            };
            const int64_t gate_column = c.activation.gate_column(i, width), up_column = c.activation.up_column(i, width);
            const float gate = element(gate_column), up = element(up_column),
                        d = of_result[static_cast<size_t>(row * width + i)];
            sums[static_cast<size_t>(i % 256)] += d * oracle::activate(c.activation, gate, up);
            const auto found =
                oracle::gradients(c.activation, gate, up, c.weights ? d * weights[static_cast<size_t>(row)] : d);
            out.values[static_cast<size_t>(row * columns + gate_column)] = found.gate;
            out.values[static_cast<size_t>(row * columns + up_column)] = found.up;
        }
        out.weights[static_cast<size_t>(row)] = tree(sums);
    }
    for (int64_t one = 0; one < c.biases(); ++one) {
        const int64_t first = !c.grouped ? one * c.dims.rows : one ? c.groups.ends[static_cast<size_t>(one - 1)] : 0;
        const int64_t last = !c.grouped ? first + c.dims.rows : c.groups.ends[static_cast<size_t>(one)];
        add_columns(out.values, columns, first, last, out.bias.data() + one * columns);
    }
    return out;
}

inline ActivateOptions options_of(const Case& c, mxq_quantize_options* quantize, const Buffer& bias, const Buffer& weights) {
    ActivateOptions options;
    ok(mxq_activate_options_create(options.out()));
    ok(mxq_activate_options_set_activation(options, c.activation.kind));
    ok(mxq_activate_options_set_gate_layout(options, c.activation.layout));
    if (c.activation.kind == MXQ_ACTIVATION_SWIGLU_CLAMPED)
        ok(mxq_activate_options_set_clamp(options, c.activation.alpha, c.activation.limit, c.activation.addend));
    if (c.bias) ok(mxq_activate_options_set_bias(options, c.bias, bias.data(), bias.bytes()));
    if (c.weights) ok(mxq_activate_options_set_row_weights(options, c.weights, weights.data(), weights.bytes()));
    if (!c.format) ok(mxq_activate_options_set_quantize_options(options, quantize));
    return options;
}

inline oracle::ActivationSpec draw_activation(cases::Random& random) {
    oracle::ActivationSpec spec;
    spec.kind = static_cast<int32_t>(1 + random.below(8));
    if (spec.gated()) spec.layout = static_cast<int32_t>(1 + random.below(4));
    if (random.below(3) == 0) spec.alpha = 1, spec.limit = random.below(2) ? INFINITY : 0.5f, spec.addend = 0;
    return spec;
}

// Draws all of a case but its formats and shape.
inline void draw(Case& c, cases::Random& random) {
    c.activation = draw_activation(random);
    c.input = cases::plain_formats[random.below(3)];
    const int32_t formats[] = {0, 0, MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16};
    c.bias = formats[random.below(5)], c.weights = formats[random.below(5)];
    c.gap = random.below(3) ? 0 : 1 + random.below(9);
    c.offset = static_cast<size_t>(random.below(2));
    c.grouped = !c.dims.experts && random.below(3) == 0;
}

}  // namespace activation

#endif
