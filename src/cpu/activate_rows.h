// Activates rows: gates and ups to fp32, 256 at a time, and from there to values. Part of kernels.cpp.
#pragma once
#include "cpu/moves.h"
#include "numerics/convert.h"

namespace mxq::cpu {
namespace {

// Loads `count` elements of a row.
template <class T>
MXQ_HD void load_row(const T* line, int64_t count, float* to) {
    int64_t i = 0;
#if defined(__F16C__)
    // The vectoriser does not find this instruction. Its bits are those of to_float but for a signaling NaN.
    if constexpr (__is_same(T, F16))
        for (; i + 8 <= count; i += 8)
            _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + i))));
#endif
    for (; i < count; i++) to[i] = to_float(line[i]);
}

// Loads `count` elements of a row, every `step`-th.
template <class T>
void load_steps(const T* line, int64_t step, int64_t count, float* to) {
    if (step == 1) return load_row(line, count, to);
    for (int64_t i = 0; i < count; i++) to[i] = to_float(line[2 * i]);
}

constexpr int64_t kActivatedAtOnce = 256;

// Adds `count` numbers of a bias, every `step`-th from number `first` on.
inline void add_bias(const PlainArray& bias, int64_t first, int64_t step, int64_t count, float* values) {
    float numbers[kActivatedAtOnce];
    with_plain(bias.format, [&]<class T>(T) { load_steps(static_cast<const T*>(bias.values) + first, step, count, numbers); });
    for (int64_t i = 0; i < count; i++) values[i] = add_rn(values[i], numbers[i]);
}

inline float number_of(const PlainArray& numbers, int64_t index) {
    return with_plain(numbers.format, [&]<class T>(T) { return to_float(static_cast<const T*>(numbers.values)[index]); });
}

using Activate = void (*)(const ActivationNumbers& numbers, const float* gate, const float* up, int64_t count, float* to);

inline Activate activate_of(Activation kind) {
    return with_activation(kind, []<class Kind>(Kind) -> Activate {
        return [](const ActivationNumbers& numbers, const float* gate, const float* up, int64_t count, float* to) {
            for (int64_t i = 0; i < count; i++) to[i] = activated<Kind::value>(numbers, gate[i], up[i]);
        };
    });
}

// The gates and ups of some neighbours in a row, with their bias.
struct GatesAndUps {
    float gate[kActivatedAtOnce], up[kActivatedAtOnce];

    template <class T>
    void load(const ActivatedMatrix& from, const T* line, int64_t matrix, int64_t col, int64_t count) {
        const auto load_one = [&](int64_t first, float* to) {
            const int64_t at = first + col * from.step;
            load_steps(line + at, from.step, count, to);
            if (from.bias.set()) add_bias(from.bias, matrix * from.in.cols + at, from.step, count, to);
        };
        load_one(from.gate, gate);
        if (is_gated(from.kind)) load_one(from.up, up);
    }
};

using Differentiate = void (*)(const ActivationNumbers& numbers, const float* gate, const float* up, const float* result,
                               int64_t count, float* of_gate, float* of_up);

inline Differentiate differentiate_of(Activation kind) {
    return with_gated_activation(kind, []<class Kind>(Kind) -> Differentiate {
        return [](const ActivationNumbers& numbers, const float* gate, const float* up, const float* result, int64_t count,
                  float* of_gate, float* of_up) {
            for (int64_t i = 0; i < count; i++) {
                const GateGradients found = gradients_of<Kind::value>(numbers, gate[i], up[i], result[i]);
                of_gate[i] = found.gate, of_up[i] = found.up;
            }
        };
    });
}

inline float weight_of_row(const ActivatedMatrix& from, int64_t matrix, int64_t row) {
    return from.row_weights.set() ? number_of(from.row_weights, matrix * from.in.rows + row) : 1.0f;
}

// The gradients of some neighbours in a row.
struct Gradients {
    GatesAndUps loaded;
    float result[kActivatedAtOnce], of_gate[kActivatedAtOnce], of_up[kActivatedAtOnce];

    // Makes those of elements [element, element + count). `in` and `of_result` are the rows.
    template <class T>
    void make(const ActivationGradient& gradient, const T* in, const uint8_t* of_result, int64_t matrix, float weight,
              int64_t element, int64_t count) {
        const ActivatedMatrix& from = gradient.from;
        loaded.load(from, in, matrix, element, count);
        with_plain(gradient.result.format,
                   [&]<class D>(D) { load_row(reinterpret_cast<const D*>(of_result) + element, count, result); });
        for (int64_t i = 0; from.row_weights.set() && i < count; i++) result[i] = multiply_rn(result[i], weight);
        differentiate_of(from.kind)(from.numbers, loaded.gate, loaded.up, result, count, of_gate, of_up);
    }
};

// Makes `count` gradients of a row of a matrix from column `col` of the input on, of up to 128 elements at a time.
template <class T>
void differentiate_row(const ActivationGradient& gradient, const T* in, const uint8_t* of_result, int64_t matrix, int64_t row,
                       int64_t col, int64_t count, float* values) {
    const ActivatedMatrix& from = gradient.from;
    const int64_t half = from.in.cols / 2;
    const float weight = weight_of_row(from, matrix, row);
    Gradients made;
    for (int64_t at = col; at < col + count;) {
        if (from.step == 1) {
            const bool second = at >= half, is_gate = (from.gate != 0) == second;
            const int64_t end = least(second ? 2 * half : half, col + count), some = least(kActivatedAtOnce, end - at);
            made.make(gradient, in, of_result, matrix, weight, at - (second ? half : 0), some);
            memcpy(values + (at - col), is_gate ? made.of_gate : made.of_up, size_t(some) * sizeof(float));
            at += some;
        } else {
            const int64_t end = least(col + count, round_up(at + 1, 2) + kActivatedAtOnce), first = at / 2;
            made.make(gradient, in, of_result, matrix, weight, first, (end + 1) / 2 - first);
            for (; at < end; at++)
                values[at - col] = at % 2 == from.gate ? made.of_gate[at / 2 - first] : made.of_up[at / 2 - first];
        }
    }
}

// Makes `count` values of a row of a matrix from column `col` on. `line` is the row of the input.
template <class T>
void activate_row(const ActivatedMatrix& from, const T* line, int64_t matrix, int64_t row, int64_t col, int64_t count,
                  float* values) {
    const Activate activate = activate_of(from.kind);
    const float weight = weight_of_row(from, matrix, row);
    GatesAndUps loaded;
    for (int64_t first = 0; first < count; first += kActivatedAtOnce) {
        const int64_t some = least(kActivatedAtOnce, count - first);
        loaded.load(from, line, matrix, col + first, some);
        activate(from.numbers, loaded.gate, is_gated(from.kind) ? loaded.up : loaded.gate, some, values + first);
        for (int64_t i = first; from.row_weights.set() && i < first + some; i++) values[i] = multiply_rn(values[i], weight);
    }
}

}  // namespace
}  // namespace mxq::cpu
