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
        const int64_t step = from.step, bias_row = matrix * from.in.cols;
        load_steps(line + from.gate + col * step, step, count, gate);
        if (from.bias.set()) add_bias(from.bias, bias_row + from.gate + col * step, step, count, gate);
        if (!is_gated(from.kind)) return;
        load_steps(line + from.up + col * step, step, count, up);
        if (from.bias.set()) add_bias(from.bias, bias_row + from.up + col * step, step, count, up);
    }
};

// Makes `count` values of a row of a matrix from column `col` on. `line` is the row of the input.
template <class T>
void activate_row(const ActivatedMatrix& from, const T* line, int64_t matrix, int64_t row, int64_t col, int64_t count,
                  float* values) {
    const Activate activate = activate_of(from.kind);
    const float weight = from.row_weights.set() ? number_of(from.row_weights, matrix * from.in.rows + row) : 1.0f;
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
