// The whole layer of experts as one call, and what it and its steps read.
#ifndef MXQ_PYTHON_LAYER_H
#define MXQ_PYTHON_LAYER_H

#include "verbs.h"

namespace mxq_python {

// Bits of the first integer of a call: which arrays stand behind those of the operands.
constexpr int64_t has_ends = 1, covers_rows = 2, has_bias = 4, has_rows = 8, has_weights = 16, grouped = 32, exact = 64,
                  invariant = 128, has_down_bias = 256;

inline mxq::quantize_options options_of(const Word& word) {
    mxq::quantize_options options;
    if (word.rounding) options.set_scale_rounding(word.rounding);
    return options;
}

// Integers: the activation, the gate layout or 0. numbers: those of the clamp, or none.
template <class Arrays>
mxq::activate_options next_activation(Reader<Arrays>& from, const float* numbers, size_t count) {
    mxq::activate_options options;
    options.set_activation(static_cast<mxq_activation>(from.word()));
    if (const int64_t layout = from.word()) options.set_gate_layout(static_cast<mxq_gate_layout>(layout));
    if (count == 3) options.set_clamp(numbers[0], numbers[1], numbers[2]);
    return options;
}

// The choices of tokens (tokens, choices), and their weights where there are some.
inline mxq::routing routing_of(const View& ids, const std::optional<View>& weights, int32_t experts) {
    const bool fits = ids.dims == 2 && (ids.element == Element::i32 || ids.element == Element::i64) && ids.gapless();
    if (!fits)
        refuse("ids has shape " + text_of(ids.shape.data(), ids.dims) +
               " or another dtype, expected contiguous (tokens, choices) "
               "of int32 or int64");
    mxq::routing routing(ids.shape[0], static_cast<int32_t>(ids.shape[1]), experts);
    if (ids.count()) routing.set_ids(ids.data, ids.bytes(), ids.element == Element::i32 ? MXQ_TYPE_INT32 : MXQ_TYPE_INT64);
    if (weights) {
        if (weights->dims != 2 || !std::equal(ids.shape.begin(), ids.shape.begin() + 2, weights->shape.begin()) ||
            !weights->gapless())
            refuse("weights has shape " + text_of(weights->shape.data(), weights->dims) + ", expected " +
                   text_of(ids.shape.data(), 2) + " without gaps, as ids has");
        routing.set_weights(plain_format(*weights, "weights"), weights->address(), weights->bytes());
    }
    return routing;
}

// A bias of each expert: contiguous, and of this shape.
inline View checked_bias(const View& bias, int64_t experts, int64_t columns) {
    check_bias(bias, {experts, columns});
    return bias;
}

// Integers: flags, activation, gate layout, the word of the rows or 0, experts, the operands gate_up and down. Arrays: x,
// ids, those of the operands, weights, the biases. The numbers between the steps have the type of x.
template <class Allocate, class Arrays>
void run_layer(const Place<Allocate>& place, Reader<Arrays>& from, const float* numbers, size_t count, const View& out) {
    const int64_t flags = from.word();
    mxq::expert_layer_options options;
    options.set_activate_options(next_activation(from, numbers, count));
    if (const int64_t integer = from.word()) {
        const Word word(integer);
        options.set_row_format(word.spec.format, word.spec.scaling);
        if (word.rounding) options.set_quantize_options(options_of(word));
    }
    const auto experts = static_cast<int32_t>(from.word());
    const View view = from.array(), ids = from.array();
    const Operand x = plain_operand(view, "x", Order::rows);
    options.set_inner_format(plain_format(view, "x"));
    const Operand gate_up = next_operand(from, "gate_up", Order::rows, nullptr);
    const Operand down = next_operand(from, "down", Order::rows, nullptr);
    mxq::routing routing = routing_of(ids, flags & has_weights ? std::optional<View>(from.array()) : std::nullopt, experts);
    if (flags & has_bias) {
        const View bias = checked_bias(from.array(), experts, gate_up.shape[gate_up.shape.size() - 2]);
        options.set_gate_up_bias(plain_format(bias, "gate_up_bias"), bias.address(), bias.bytes());
    }
    if (flags & has_down_bias) {
        const View bias = checked_bias(from.array(), experts, down.shape[down.shape.size() - 2]);
        options.set_down_bias(plain_format(bias, "down_bias"), bias.address(), bias.bytes());
    }
    const uint64_t bytes = routing.required_bytes();
    routing.set_memory(place.allocate(bytes), bytes);
    expert_layer(place, options, x.tensor, routing, gate_up.tensor, down.tensor,
                 plain_operand(out, "out", Order::rows, true).tensor);
}

}  // namespace mxq_python

#endif
