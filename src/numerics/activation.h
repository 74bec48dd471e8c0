// Activations of one element, in fp32. docs/numerics.md has each step. Sums and products round once, and are fused only where
// that page says so.
#pragma once
#include "numerics/exponential.h"

namespace mxq {

enum class Activation : int32_t {  // values of MXQ_ACTIVATION_*
    Swiglu = 1,
    GegluErf = 2,
    GegluTanh = 3,
    SwigluClamped = 4,
    Silu = 5,
    GeluErf = 6,
    GeluTanh = 7,
    SquaredRelu = 8,
};

MXQ_HD bool is_gated(Activation kind) { return kind < Activation::Silu; }

// Those of the clamped form.
struct ActivationNumbers {
    float alpha, limit, addend;
};

// The logistic function of x, and that of -x.
struct Sigmoid {
    float value, complement;
};

MXQ_HD Sigmoid sigmoid(float x) {
    const float e = exp_of_nonpositive(-magnitude_of(x)), large = reciprocal_of_1_to_2(add_rn(1.0f, e)),
                small = multiply_rn(e, large);
    return {x < 0 ? small : large, x < 0 ? large : small};
}

// An activation at x, and its derivative. Whoever needs the value alone pays for no more.
struct Curve {
    float value, slope;
};

// Returns 1 + x c, where a c of 0 counts as 0 for an infinite x too.
MXQ_HD float one_plus(float x, float c) { return is_zero(c) ? 1.0f : fused_multiply_add(x, c, 1.0f); }

// x sigmoid(alpha x)
MXQ_HD Curve silu(float x, float alpha) {
    const float scaled = multiply_rn(alpha, x);
    const Sigmoid s = sigmoid(scaled);
    return {multiply_rn(x, s.value), multiply_rn(s.value, one_plus(scaled, s.complement))};
}

// x (1 + erf(x / sqrt 2)) / 2
MXQ_HD Curve gelu_erf(float x) {
    constexpr float root_half = 0x1.6a09e6p-1f, density_at_0 = 0x1.988454p-2f;
    const float share = multiply_rn(0.5f, add_rn(1.0f, error_function(multiply_rn(x, root_half))));
    const float density = multiply_rn(exp_of_nonpositive(multiply_rn(multiply_rn(x, -0.5f), x)), density_at_0);
    return {multiply_rn(x, share), is_zero(density) ? share : fused_multiply_add(x, density, share)};
}

// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, by (1 + tanh z) / 2 = sigmoid(2 z)
MXQ_HD Curve gelu_tanh(float x) {
    constexpr float linear = 0x1.988454p+0f, cubic = 0x1.2444f2p-4f, three_cubic = 0x1.b6676cp-3f;
    const float square = multiply_rn(x, x);
    const Sigmoid s = sigmoid(multiply_rn(x, fused_multiply_add(cubic, square, linear)));
    const float slope_of_argument = multiply_rn(x, fused_multiply_add(three_cubic, square, linear));
    return {multiply_rn(x, s.value), multiply_rn(s.value, one_plus(slope_of_argument, s.complement))};
}

MXQ_HD float squared_relu(float x) {
    const float positive = at_least(x, 0.0f);
    return multiply_rn(positive, positive);
}

// Returns the value and the slope of the factor that the gate makes.
template <Activation kind>
MXQ_HD Curve curve_of(const ActivationNumbers& numbers, float gate) {
    switch (kind) {
        case Activation::SwigluClamped: return silu(gate, numbers.alpha);
        case Activation::GegluErf:
        case Activation::GeluErf: return gelu_erf(gate);
        case Activation::GegluTanh:
        case Activation::GeluTanh: return gelu_tanh(gate);
        case Activation::SquaredRelu: return {squared_relu(gate), 0};
        default: return silu(gate, 1.0f);
    }
}

// Returns the gate as the activation takes it.
template <Activation kind>
MXQ_HD float clamped_gate(const ActivationNumbers& numbers, float gate) {
    return kind == Activation::SwigluClamped ? at_most(gate, numbers.limit) : gate;
}

// Returns the factor that `up` makes.
template <Activation kind>
MXQ_HD float factor_of_up(const ActivationNumbers& numbers, float up) {
    if (kind != Activation::SwigluClamped) return up;
    const float clamped = at_least(at_most(up, numbers.limit), -numbers.limit);
    return is_zero(numbers.addend) ? clamped : add_rn(clamped, numbers.addend);
}

// Returns an element of the result; activations without a gate do not look at `up`.
template <Activation kind>
MXQ_HD float activated(const ActivationNumbers& numbers, float gate, float up) {
    const float value = curve_of<kind>(numbers, clamped_gate<kind>(numbers, gate)).value;
    return is_gated(kind) ? multiply_rn(value, factor_of_up<kind>(numbers, up)) : value;
}

// The gradients of a gate and an `up`.
struct GateGradients {
    float gate, up;
};

// Returns them from that of the result, which has the row's weight. Where a number is clamped its gradient is 0.
template <Activation kind>
MXQ_HD GateGradients gradients_of(const ActivationNumbers& numbers, float gate, float up, float of_result) {
    const Curve curve = curve_of<kind>(numbers, clamped_gate<kind>(numbers, gate));
    const float factor = factor_of_up<kind>(numbers, up);
    const GateGradients found = {multiply_rn(multiply_rn(of_result, factor), curve.slope), multiply_rn(of_result, curve.value)};
    if (kind != Activation::SwigluClamped) return found;
    const bool clamps_up = up > numbers.limit || up < -numbers.limit;
    return {gate > numbers.limit ? 0.0f : found.gate, clamps_up ? 0.0f : found.up};
}

// A constant as a type.
template <Activation kind>
struct ActivationConstant {
    static constexpr Activation value = kind;
};

// Calls body(ActivationConstant<kind>{}) for an activation with a gate, on the device for all threads of a warp alike.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Body>
MXQ_HD auto with_gated_activation(Activation kind, const Body& body) {
    switch (kind) {
        case Activation::GegluErf: return body(ActivationConstant<Activation::GegluErf>{});
        case Activation::GegluTanh: return body(ActivationConstant<Activation::GegluTanh>{});
        case Activation::SwigluClamped: return body(ActivationConstant<Activation::SwigluClamped>{});
        default: return body(ActivationConstant<Activation::Swiglu>{});
    }
}

// Calls body(ActivationConstant<kind>{}) for any activation.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Body>
MXQ_HD auto with_activation(Activation kind, const Body& body) {
    switch (kind) {
        case Activation::Swiglu: return body(ActivationConstant<Activation::Swiglu>{});
        case Activation::GegluErf: return body(ActivationConstant<Activation::GegluErf>{});
        case Activation::GegluTanh: return body(ActivationConstant<Activation::GegluTanh>{});
        case Activation::SwigluClamped: return body(ActivationConstant<Activation::SwigluClamped>{});
        case Activation::Silu: return body(ActivationConstant<Activation::Silu>{});
        case Activation::GeluErf: return body(ActivationConstant<Activation::GeluErf>{});
        case Activation::GeluTanh: return body(ActivationConstant<Activation::GeluTanh>{});
        default: return body(ActivationConstant<Activation::SquaredRelu>{});
    }
}

}  // namespace mxq
