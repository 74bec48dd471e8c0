"""mxq.jax.expert_layer: a mixture of experts with gradients, from the steps that the layer of torch has (_torch_layer.py)."""
import functools
from typing import Any, NamedTuple, Optional, Tuple

import jax
import jax.numpy as jnp

from . import _raw
from ._activation import _WITHOUT_GATE, Clamp
from ._arguments import number
from ._descriptors import Spec, checked_spec
from ._jax_calls import (Activation, QTensor, activate, activate_backward, combine, combine_backward, dequantize, multiply, quantize, route,
                         run_layer)
from ._jax_products import group_sums
from ._library import Error
from ._names import ROW_SCALINGS, value_of

_WEIGHT_GRADIENTS = ("quantized", "dequantized", "high_precision")


class _Settings(NamedTuple):
    """What is known when a program is traced. spec: of weights that are quantized in the call; None of those that already are."""

    how: Activation
    spec: Optional[Spec]
    scale_rounding: Optional[str]
    weight_gradient: str

    @property
    def rows(self) -> Optional[Spec]:
        return self.spec and self.spec._replace(scaling=ROW_SCALINGS.get(self.spec.scaling, self.spec.scaling))

    @property
    def input_parts(self) -> str:
        """The parts of inputs of products that forward keeps."""
        return "both" if self.weight_gradient == "quantized" else "rowwise"


def _weights(settings: _Settings, gate_up: Any, down: Any, parts: str) -> Any:
    if settings.spec is None:
        return gate_up, down
    return tuple(quantize(each, settings.spec, parts, settings.scale_rounding) for each in (gate_up, down))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _layer(settings: _Settings, x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, gate_up_bias: Any, down_bias: Any) -> Any:
    first, second = _weights(settings, gate_up, down, "rowwise")
    return run_layer(settings.how, x, ids, weights, first, second, gate_up_bias, down_bias, settings.rows, settings.scale_rounding)


def _forward(settings: _Settings, x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, gate_up_bias: Any,
             down_bias: Any) -> Tuple[Any, Any]:
    how, rows, parts = settings.how, settings.rows, settings.input_parts
    routing, operands = route(ids, gate_up.shape[0]), _weights(settings, gate_up, down, "both")
    tokens: Any = x
    if rows is None:
        halves = multiply(x, operands[0].mT, ends=routing.ends, bias=gate_up_bias, rows=routing.row_tokens)
        inner = activate(how, halves, routing.ends)
    else:
        tokens = quantize(x, rows, parts, settings.scale_rounding, routing.ends, routing.row_tokens)
        halves = multiply(tokens, operands[0].mT, ends=routing.ends, bias=gate_up_bias, dtype=x.dtype)
        inner = activate(how, halves, routing.ends, rows, parts, settings.scale_rounding)
    summed = multiply(inner, operands[1].mT, ends=routing.ends, bias=down_bias, dtype=x.dtype)
    of_weights = None if settings.spec is None else (jnp.zeros((0,), gate_up.dtype), jnp.zeros((0,), down.dtype))
    kept = (x, weights, gate_up_bias, down_bias, routing, operands, tokens, halves, inner, summed, of_weights)
    return combine(routing, summed, weights), kept


def _weight_gradient(settings: _Settings, ends: Any, gradient: Any, quantized: Any, plain: Any, input: Any, dtype: Any) -> Any:
    """The gradient of the weights of a product. gradient, quantized: that of its result. plain, input: what it multiplied."""
    if settings.weight_gradient == "quantized":
        return multiply(quantized, input, ends=ends, dtype=dtype, transposed=True)
    if settings.weight_gradient == "dequantized":
        gradient, plain = (dequantize(q, gradient.dtype) for q in (quantized, input))
    else:
        plain = plain()
    return multiply(gradient, plain, ends=ends, dtype=dtype, transposed=True)


def _backward(settings: _Settings, kept: Any, dy: Any) -> Tuple[Any, ...]:
    x, weights, gate_up_bias, down_bias, routing, operands, tokens, halves, inner, summed, of_weights = kept
    how, spec, rows, ends = settings.how, settings.spec, settings.rows, routing.ends
    of_summed, d_weights = combine_backward(routing, dy, weights, summed)
    second, parts = of_summed, "rowwise" if spec is None else settings.input_parts
    if rows is not None:
        second = quantize(of_summed, rows, parts, settings.scale_rounding, ends)
    of_inner = multiply(second, operands[1], ends=ends, dtype=x.dtype)
    bias = gate_up_bias is not None
    if rows is not None and parts == "both":
        of_halves, d_bias = activate_backward(how, of_inner, halves, ends, rows, parts, settings.scale_rounding, bias)
        first = of_halves
    else:
        of_halves, d_bias = activate_backward(how, of_inner, halves, ends, bias=bias)
        first = of_halves if rows is None else quantize(of_halves, rows, "rowwise", settings.scale_rounding, ends)
    dx = combine(routing, multiply(first, operands[0], ends=ends, dtype=x.dtype))
    d_gate_up = d_down = None
    if spec is not None:
        d_gate_up = _weight_gradient(settings, ends, of_halves, first, lambda: jnp.take(x, routing.row_tokens, axis=0, mode="clip"), tokens,
                                     of_weights[0].dtype)
        d_down = _weight_gradient(settings, ends, of_summed, second, lambda: activate(how, halves, ends), inner, of_weights[1].dtype)
    return (dx, None, None if weights is None else d_weights.astype(weights.dtype), d_gate_up, d_down,
            None if not bias else d_bias.astype(gate_up_bias.dtype),
            None if down_bias is None else group_sums(of_summed, ends).astype(down_bias.dtype))


_layer.defvjp(_forward, _backward)


def _checked(gate_up: Any, down: Any, given: Any) -> bool:
    """Whether the weights are quantized already."""
    for name, weight, shape in (("gate_up", gate_up, "(experts, 2 I, K)"), ("down", down, "(experts, K, I)")):
        if len(weight.shape) != 3:
            raise Error(f"{name} has shape {tuple(weight.shape)}, expected {shape}")
    frozen = isinstance(gate_up, QTensor)
    if frozen != isinstance(down, QTensor):
        raise Error("one of gate_up and down is quantized, expected both or none")
    for name, value in given.items():
        if frozen and value is not None:
            raise Error(f"{name} is {value!r}, expected None with quantized weights, where x stays as it is")
    return frozen


def expert_layer(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, gate_up_bias: Any = None, down_bias: Any = None, *,
                 format: Optional[str] = None, scaling: Optional[str] = None, scale_rounding: Optional[str] = None,
                 activation: str = "swiglu", gate_layout: Optional[str] = None, clamp: Optional[Clamp] = None,
                 weight_gradient: str = "quantized") -> Any:
    """A mixture of experts, from tokens to tokens: each token goes to the experts that its ids choose, and gets the sum of what
    these give, times the router's weights.

    The arguments are those of mxq.torch.expert_layer. x: (tokens, K). ids: (tokens, choices) of int32 or int64; -1 drops a choice.
    weights: the same shape, or None for 1. gate_up: (experts, 2 I, K), down: (experts, K, I). Plain ones are quantized to `format`, by
    default "mxfp8_e4m3", and so are the rows that enter each product; quantized ones are frozen, and rows stay as they are.
    """
    if weight_gradient not in _WEIGHT_GRADIENTS:
        raise Error(f"weight_gradient is {weight_gradient!r}, expected \"quantized\", \"dequantized\" or \"high_precision\"")
    frozen = _checked(gate_up, down, {"format": format, "scaling": scaling, "scale_rounding": scale_rounding})
    if len(x.shape) != 2 or len(ids.shape) != 2 or ids.shape[0] != x.shape[0]:
        raise Error(f"x has shape {tuple(x.shape)} and ids {tuple(ids.shape)}, expected (tokens, K) and (tokens, choices)")
    numbers = () if clamp is None else tuple(number(value, "clamp") for value in clamp)
    layout = 0 if gate_layout is None else value_of("mxq_gate_layout", gate_layout, "gate_layout")
    how = Activation(value_of("mxq_activation", activation, "activation"), layout, numbers, activation not in _WITHOUT_GATE)
    spec = None if frozen else checked_spec(format or "mxfp8_e4m3", scaling, False, "tensor", 448)
    made: Any = _layer(_Settings(how, spec, scale_rounding, weight_gradient), x, ids, weights, gate_up, down, gate_up_bias, down_bias)
    return made
