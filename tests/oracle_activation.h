// Activations, from the text of docs/numerics.md: one element at a time, in float with the C library's fmaf.
#ifndef MXQ_TESTS_ORACLE_ACTIVATION_H
#define MXQ_TESTS_ORACLE_ACTIVATION_H

#include "oracle.h"

namespace oracle {

// The steps are those of the page, so the test is compiled without contraction as the library is.
inline float horner(std::initializer_list<float> highest_first, float x) {
    auto at = highest_first.begin();
    float sum = *at++;
    for (; at != highest_first.end(); ++at) sum = std::fmaf(sum, x, *at);
    return sum;
}

// e^x of x up to 0.
inline float activation_exp(float x) {
    if (std::isnan(x)) return x;
    if (x < -104) x = -104;
    // fmaf rounds x log2(e) + 1.5 2^23 + 151 to an integer, to nearest even.
    const float shifted = std::fmaf(x, 0x1.715476p+0f, 12583063.0f), k = shifted - 12583063.0f;
    const float r = std::fmaf(k, 0x1.05c610p-29f, std::fmaf(k, -0x1.62e430p-1f, x));
    const float p = horner({0x1.6a50bcp-10f, 0x1.123976p-7f, 0x1.5558acp-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1, 1}, r);
    return static_cast<float>(std::ldexp(static_cast<double>(p), static_cast<int>(k)));
}

inline float activation_erf(float x) {
    if (std::isnan(x)) return x;
    const float t = std::min(std::fabs(x), 4.0f), s = x * x;
    if (t < 0.8984375f) {
        const float p = horner({-0x1.3c6124p-11f, 0x1.47c716p-8f, -0x1.b6a24ep-6f, 0x1.ce1bf0p-4f, -0x1.8126eep-2f, 0x1.06eba6p-3f}, s);
        return std::fmaf(p, x, x);
    }
    const float q = horner({0x1.c24ccap-13f, -0x1.a62eeap-9f, 0x1.7758a2p-6f, -0x1.af469ep-4f, -0x1.4579e2p-1f, -0x1.20e6c2p+0f}, t);
    return std::copysign(1.0f - activation_exp(q * t), x);
}

inline float activation_sigmoid(float x) {
    const float e = activation_exp(-std::fabs(x)), large = 1.0f / (1.0f + e);
    return x < 0 ? e * large : large;
}

// The numbers and the layout of an activation.
struct ActivationSpec {
    int32_t kind = MXQ_ACTIVATION_SWIGLU, layout = MXQ_GATE_LAYOUT_GATE_UP;
    float alpha = 1.702f, limit = 7, addend = 1;
    bool gated() const { return kind <= MXQ_ACTIVATION_SWIGLU_CLAMPED; }
    int64_t columns(int64_t width) const { return gated() ? 2 * width : width; }
    int64_t gate_column(int64_t i, int64_t width) const {
        if (!gated() || layout == MXQ_GATE_LAYOUT_GATE_UP) return i;
        return layout == MXQ_GATE_LAYOUT_UP_GATE ? width + i : layout == MXQ_GATE_LAYOUT_INTERLEAVED_GATE_UP ? 2 * i : 2 * i + 1;
    }
    int64_t up_column(int64_t i, int64_t width) const {
        return layout == MXQ_GATE_LAYOUT_GATE_UP   ? width + i
               : layout == MXQ_GATE_LAYOUT_UP_GATE ? i
                                                   : gate_column(i, width) ^ 1;
    }
};

inline float activate(const ActivationSpec& spec, float gate, float up) {
    switch (spec.kind) {
        case MXQ_ACTIVATION_SILU: return gate * activation_sigmoid(gate);
        case MXQ_ACTIVATION_SWIGLU: return gate * activation_sigmoid(gate) * up;
        case MXQ_ACTIVATION_SWIGLU_CLAMPED: {
            if (gate > spec.limit) gate = spec.limit;
            if (up > spec.limit) up = spec.limit;
            if (up < -spec.limit) up = -spec.limit;
            const float factor = spec.addend == 0 ? up : up + spec.addend;
            return gate * activation_sigmoid(spec.alpha * gate) * factor;
        }
        case MXQ_ACTIVATION_SQUARED_RELU: return gate < 0 ? 0 : gate * gate;
        case MXQ_ACTIVATION_GELU_ERF:
        case MXQ_ACTIVATION_GEGLU_ERF: {
            const float value = gate * (0.5f * (1.0f + activation_erf(gate * 0x1.6a09e6p-1f)));
            return spec.gated() ? value * up : value;
        }
        default: {
            const float z = gate * std::fmaf(0x1.2444f2p-4f, gate * gate, 0x1.988454p+0f);
            const float value = gate * activation_sigmoid(z);
            return spec.gated() ? value * up : value;
        }
    }
}

// The derivative of the factor that the gate makes, and the gradients of a gate and an `up` from that of the result.
struct GateGradients {
    float gate, up;
};

inline float activation_slope(const ActivationSpec& spec, float x) {
    const auto of_sigmoid = [](float y, float argument) {
        const float s = activation_sigmoid(argument), c = activation_sigmoid(-argument);
        // -0 and 0 have the same sigmoid, 1 / 2, and so has their negation.
        return s * (c == 0 ? 1.0f : std::fmaf(y, c, 1.0f));
    };
    if (spec.kind == MXQ_ACTIVATION_GEGLU_ERF) {
        const float share = 0.5f * (1.0f + activation_erf(x * 0x1.6a09e6p-1f));
        const float density = activation_exp(x * -0.5f * x) * 0x1.988454p-2f;
        return density == 0 ? share : std::fmaf(x, density, share);
    }
    if (spec.kind == MXQ_ACTIVATION_GEGLU_TANH)
        return of_sigmoid(x * std::fmaf(0x1.b6676cp-3f, x * x, 0x1.988454p+0f), x * std::fmaf(0x1.2444f2p-4f, x * x, 0x1.988454p+0f));
    const float y = spec.kind == MXQ_ACTIVATION_SWIGLU ? x : spec.alpha * x;
    return of_sigmoid(y, y);
}

inline GateGradients gradients(const ActivationSpec& spec, float gate, float up, float of_result) {
    const bool clamps = spec.kind == MXQ_ACTIVATION_SWIGLU_CLAMPED;
    const bool clamps_gate = clamps && gate > spec.limit, clamps_up = clamps && std::fabs(up) > spec.limit;
    if (clamps_gate) gate = spec.limit;
    if (clamps_up) up = std::copysign(spec.limit, up);
    ActivationSpec value = spec;
    value.kind = spec.kind == MXQ_ACTIVATION_GEGLU_ERF    ? MXQ_ACTIVATION_GELU_ERF
                 : spec.kind == MXQ_ACTIVATION_GEGLU_TANH ? MXQ_ACTIVATION_GELU_TANH
                                                          : MXQ_ACTIVATION_SILU;
    float factor_of_gate = activate(value, gate, 0);
    if (clamps) factor_of_gate = gate * activation_sigmoid(spec.alpha * gate);
    const float factor_of_up = clamps && spec.addend != 0 ? up + spec.addend : up;
    return {clamps_gate ? 0.0f : of_result * factor_of_up * activation_slope(spec, gate),
            clamps_up ? 0.0f : of_result * factor_of_gate};
}

// The same without roundings but those of double, for bounds of the error.
inline double exact_activation(const ActivationSpec& spec, double gate, double up) {
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    double value = 0, factor = spec.gated() ? up : 1;
    switch (spec.kind) {
        case MXQ_ACTIVATION_SILU:
        case MXQ_ACTIVATION_SWIGLU: value = gate * sigmoid(gate); break;
        case MXQ_ACTIVATION_SWIGLU_CLAMPED:
            gate = std::min(gate, static_cast<double>(spec.limit));
            factor = std::clamp<double>(up, -spec.limit, spec.limit) + spec.addend;
            value = gate * sigmoid(spec.alpha * gate);
            break;
        case MXQ_ACTIVATION_SQUARED_RELU: value = gate < 0 ? 0 : gate * gate; break;
        case MXQ_ACTIVATION_GELU_ERF:
        case MXQ_ACTIVATION_GEGLU_ERF: value = gate * (1 + std::erf(gate * std::sqrt(0.5))) / 2; break;
        default: value = gate * (1 + std::tanh(std::sqrt(2 / 3.141592653589793) * (gate + 0.044715 * gate * gate * gate))) / 2;
    }
    return value * factor;
}

}  // namespace oracle

#endif
