"""Calls of the library inside of jax programs: its verbs as foreign functions of XLA, which native/jax_handlers.cpp has.

Arrays are those of a trace or real ones; everything else is known when a program is traced. The handlers check, and their refusals are
errors of jax with the library's message.
"""
import ctypes
import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np

from . import _raw
from ._descriptors import Spec, describe, part_sizes, sizes_without_groups
from ._library import Error, Handle, check, lib
from ._memory import HOST, Shape
from ._names import FORMAT_OF_DTYPE, dtype_name
from ._operands import (COVERS_ROWS, EXACT, GROUPED, HAS_BIAS, HAS_DOWN_BIAS, HAS_ENDS, HAS_ROWS, HAS_WEIGHTS, INVARIANT, ROUNDINGS,
                        TRANSPOSED_PLAIN, quantized_operand, spec_word)
from ._parts import Part
from ._verbs import parts_of

_VERBS = ("quantize", "dequantize", "multiply", "route", "combine", "combine_backward", "activate", "activate_backward", "expert_layer")


def _register() -> None:
    """Tells jax of the handlers."""
    path = os.environ.get("MXQ_JAX_LIBRARY") or str(Path(__file__).with_name("libmxq_jax.so"))
    try:
        opened = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"mxq.jax: cannot open its handlers ({error}). Install the wheel that has them, or compile them with "
                          "bindings/python/native/build.py and name the file in the environment variable MXQ_JAX_LIBRARY") from None
    for verb in _VERBS:
        for platform, suffix in (("cpu", "cpu"), ("CUDA", "cuda")):
            handler = jax.ffi.pycapsule(getattr(opened, f"mxq_jax_{verb}_{suffix}"))  # type: ignore[no-untyped-call,unused-ignore]
            jax.ffi.register_ffi_target(f"mxq_{verb}", handler, platform=platform)


_register()


def _call(verb: str, arrays: Sequence[Any], results: Sequence[Any], words: Sequence[int], numbers: Sequence[float] = ()) -> List[Any]:
    made = jax.ffi.ffi_call(f"mxq_{verb}", list(results))(*arrays, words=np.array(words, np.int64), numbers=np.array(numbers, np.float32))
    return list(made)


def _struct(shape: Shape, dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call,unused-ignore]


def like(x: Any, shape: Shape) -> Any:
    return _struct(shape, x.dtype)


def plain_name(x: Any, what: str) -> str:
    """The name of the dtype of a plain array, which is checked."""
    name = dtype_name(x.dtype)
    if name not in FORMAT_OF_DTYPE:
        raise Error(f"{what} has dtype {name}, expected float32, float16 or bfloat16; convert it to one of them")
    return str(name)


# ---- Quantized tensors -------------------------------------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class QTensor:
    """A quantized tensor whose arrays are of jax: it goes through jit, grad and the other transformations as an argument or a result.

    rowwise, columnwise: a Part with codes, scales and, of NVFP4, amax, or None. ends: of its groups of rows, or None.
    q.mT is the transpose, for products; nothing is moved. q.dequantize() gives its values.
    """

    def __init__(self, spec: Spec, shape: Shape, parts: Dict[str, Part], dtype: str, ends: Any = None, transposed: bool = False):
        self.spec, self.stored_shape, self.parts, self.dtype, self.ends, self.transposed = spec, shape, parts, dtype, ends, transposed

    @staticmethod
    def from_parts(format: str, shape: Shape, *, rowwise: Any = None, columnwise: Any = None, scaling: Optional[str] = None,
                   swizzled: bool = False, scope: str = "tensor", dtype: Any = "float32") -> "QTensor":
        """A tensor over codes and scales that are there: each part a Part or (codes, scales), of bytes, and float32 scales of FP8."""
        from ._descriptors import make_spec

        both = {"rowwise": rowwise, "columnwise": columnwise}
        given = {name: Part(*part) for name, part in both.items() if part is not None}
        if not given:
            raise Error("from_parts got no part, expected rowwise=(codes, scales), columnwise=(codes, scales) or both")
        return QTensor(make_spec(format, scaling, swizzled, scope, 448), tuple(shape), given, str(dtype_name(dtype)))

    @property
    def rowwise(self) -> Optional[Part]:
        return self.parts.get("rowwise")

    @property
    def columnwise(self) -> Optional[Part]:
        return self.parts.get("columnwise")

    @property
    def format(self) -> str:
        return self.spec.format

    @property
    def shape(self) -> Shape:
        shape = self.stored_shape
        return (*shape[:-2], shape[-1], shape[-2]) if self.transposed else shape

    @property
    def mT(self) -> "QTensor":
        return QTensor(self.spec, self.stored_shape, self.parts, self.dtype, self.ends, not self.transposed)

    T = mT

    def dequantize(self, dtype: Any = None) -> Any:
        return dequantize(self, dtype)

    def __repr__(self) -> str:
        return f"QTensor({self.spec.format} {' x '.join(map(str, self.shape))} {self.spec.scaling} {' and '.join(self.parts)}, jax)"

    def tree_flatten(self) -> Tuple[Any, Any]:
        leaves = tuple((part.codes, part.scales, part.amax, part.decode_scale) for part in self.parts.values())
        return (leaves, self.ends), (self.spec, self.stored_shape, tuple(self.parts), self.dtype, self.transposed)

    @classmethod
    def tree_unflatten(cls, about: Any, leaves: Any) -> "QTensor":
        spec, shape, names, dtype, transposed = about
        return cls(spec, shape, {name: Part(*part) for name, part in zip(names, leaves[0])}, dtype, leaves[1], transposed)


def operand(x: Any, what: str) -> Tuple[List[Any], List[int]]:
    """The arrays and the integers of an operand."""
    if not isinstance(x, QTensor):
        plain_name(x, what)
        return [x], [0]
    found = quantized_operand(x.spec, x.stored_shape, x.parts, None, x.transposed)
    if found is None:
        raise Error(f"{what} is {x!r}, expected codes and scales as arrays, with the same kind of numbers above the scales of each part")
    return found


def quantized_results(spec: Spec, shape: Shape, parts: Sequence[str], groups: Optional[int]) -> List[Any]:
    """The results of a call that quantizes: of each part codes, scales and, of NVFP4, amaxes. groups: how many rows have, if any."""
    described: Optional[Handle] = None
    if groups is not None:
        described = describe(spec, shape, None, HOST)
        check(lib.mxq_tensor_set_groups(described.value, None, 0, _raw.MXQ_TYPE_INT32, groups))
    out: List[Any] = []
    for part in parts:
        sizes = sizes_without_groups(spec, shape, part) if described is None else part_sizes(described.value, spec, shape, part, True)
        out += [_struct(sizes.codes, np.uint8), _struct(sizes.scales, np.dtype(sizes.scale_type))]
        out += [_struct((sizes.amax_bytes // 4,), np.float32)] if sizes.amax_bytes else []
    return out


def collected(spec: Spec, shape: Shape, parts: Sequence[str], dtype: str, arrays: Sequence[Any], ends: Any = None) -> QTensor:
    """The tensor of such results."""
    each = len(arrays) // len(parts)
    made = {name: Part(*arrays[each * i : each * (i + 1)]) for i, name in enumerate(parts)}
    return QTensor(spec, shape, made, dtype, ends)


def rounding_number(scale_rounding: Optional[str]) -> int:
    if scale_rounding is not None and scale_rounding not in ROUNDINGS:
        raise Error(f"scale_rounding is {scale_rounding!r}, expected one of {', '.join(ROUNDINGS)}")
    return 0 if scale_rounding is None else ROUNDINGS[scale_rounding]


def _bits(parts: Sequence[str]) -> int:
    return sum({"rowwise": 1, "columnwise": 2}[part] for part in parts)


def as_ends(ends: Any) -> Any:
    ends = jnp.asarray(ends)
    if ends.ndim != 1 or dtype_name(ends.dtype) not in ("int32", "int64"):
        raise Error(f"ends has shape {ends.shape} and dtype {ends.dtype}, expected one dimension of int32 or int64")
    return ends


def quantize(x: Any, spec: Spec, parts: Any = "rowwise", scale_rounding: Optional[str] = None, ends: Any = None, rows: Any = None) -> QTensor:
    """rows: the token of each row, where rows of x are read by index."""
    names, dtype, ends = parts_of(parts), plain_name(x, "x"), None if ends is None else as_ends(ends)
    shape = tuple(x.shape) if rows is None else (rows.shape[0], x.shape[-1])
    if len(shape) not in (2, 3):
        raise Error(f"x has shape {shape}, expected 2 dimensions (rows, cols) or 3 (experts, rows, cols); reshape it")
    word = spec_word(spec, _bits(names), len(shape), scale_rounding=rounding_number(scale_rounding))
    arrays = [x, *([] if rows is None else [rows]), *([] if ends is None else [ends])]
    flags = (HAS_ENDS if ends is not None else 0) | (HAS_ROWS if rows is not None else 0)
    results = quantized_results(spec, shape, names, None if ends is None else ends.shape[0])
    return collected(spec, shape, names, dtype, _call("quantize", arrays, results, [flags, word]), ends)


def within(rows: Any, ends: Any) -> Any:
    """The rows, with zeros in those of no group: nothing is written there."""
    return jnp.where(jnp.arange(rows.shape[0], dtype=ends.dtype)[:, None] < ends[-1], rows, jnp.zeros((), rows.dtype))


def dequantize(q: QTensor, dtype: Any = None) -> Any:
    """The values of a quantized tensor, from its rowwise part where there is one. Rows in no group are zero."""
    if not isinstance(q, QTensor) or q.transposed:
        raise Error(f"q is {q!r}, expected a QTensor of mxq.jax that is no transpose")
    arrays, words = operand(q, "q")
    grouped = [] if q.ends is None else [q.ends]
    out = _struct(q.stored_shape, jnp.dtype(dtype or q.dtype))
    plain_name(out, "the result")
    made = _call("dequantize", [*arrays, *grouped], [out], [HAS_ENDS if grouped else 0, *words])[0]
    return within(made, q.ends) if grouped else made


def multiply(a: Any, b: Any, *, ends: Any = None, bias: Any = None, dtype: Any = None, exact: bool = False, invariant: bool = False,
             rows: Any = None, transposed: bool = False, b_transposed: bool = False, covers: bool = False, alpha: float = 1.0) -> Any:
    """a b, or with ends one product for each group of rows of a. transposed: a^T b, for each group of rows of both. b_transposed: a
    plain b is read as its transpose. covers: no row is in no group, which the CPU then checks.

    rows: the token of each row, where rows of a plain a are read by index.
    """
    (left, of_left), (right, of_right) = operand(a, "a"), operand(b, "b")
    a_shape, b_shape = tuple(a.shape), tuple(b.shape)
    if rows is not None:
        a_shape = (rows.shape[0], a_shape[-1])
    if b_transposed:
        of_right, b_shape = [TRANSPOSED_PLAIN], (*b_shape[:-2], b_shape[-1], b_shape[-2])
    if transposed:
        of_left = operand(a.mT, "a")[1] if isinstance(a, QTensor) else [TRANSPOSED_PLAIN]
        shape: Shape = (*(() if ends is None else ends.shape), a_shape[1], b_shape[1])
    else:
        shape = (a_shape[-2], b_shape[-1])
        if ends is not None and len(b_shape) != 3:
            raise Error(f"b has shape {b_shape}, expected (groups, inputs, outputs): one matrix for each group")
    out = _struct(shape, jnp.dtype(dtype or a.dtype))
    flags = sum(flag for flag, given in ((HAS_ENDS | GROUPED, ends is not None), (HAS_BIAS, bias is not None), (HAS_ROWS, rows is not None),
                                         (EXACT, exact), (INVARIANT, invariant), (COVERS_ROWS, covers)) if given)
    arrays = [*left, *right, *(each for each in (bias, rows, ends) if each is not None)]
    made: Any = _call("multiply", arrays, [out], [flags, *of_left, *of_right], [alpha])[0]
    return made


# ---- Experts -----------------------------------------------------------------------------------------------------------


class Routing(NamedTuple):
    """Which row of which expert each choice of each token has, as mxq.Routing: the arrays that route computes."""

    ends: Any
    row_tokens: Any
    choice_rows: Any


def _offsets(tokens: int, choices: int, experts: int) -> Tuple[int, Dict[str, int]]:
    """How many int32 the memory of a routing has, and where in it the arrays begin."""
    made, size = ctypes.c_void_p(), ctypes.c_uint64()
    check(lib.mxq_routing_create(tokens, choices, experts, ctypes.byref(made)))
    routing = Handle(made.value or 0, lib.mxq_routing_destroy)
    check(lib.mxq_routing_required_bytes(routing.value, size))
    base, places = 1 << 20, {}
    check(lib.mxq_routing_set_memory(routing.value, base, size.value))
    for name in Routing._fields:
        getter = getattr(lib, f"mxq_routing_get_{name}")
        address, bytes_ = ctypes.c_void_p(), ctypes.c_uint64()
        check(getter(routing.value, ctypes.cast(ctypes.byref(address), getter.argtypes[1]), bytes_))
        places[name] = ((address.value or base) - base) // 4
    return -(-size.value // 4), places


def route(ids: Any, experts: int) -> Routing:
    size, places = _offsets(ids.shape[0], ids.shape[1], experts)
    memory = _call("route", [ids], [_struct((size,), np.int32)], [0, experts])[0]
    rows = ids.shape[0] * ids.shape[1]

    def taken(name: str, count: int) -> Any:
        return jax.lax.slice(memory, (places[name],), (places[name] + count,))

    return Routing(taken("ends", experts), taken("row_tokens", rows), taken("choice_rows", rows).reshape(ids.shape))


def combine(routing: Routing, rows: Any, weights: Any = None) -> Any:
    arrays = [*routing, *([] if weights is None else [weights]), rows]
    out = like(rows, (routing.choice_rows.shape[0], rows.shape[-1]))
    return _call("combine", arrays, [out], [HAS_WEIGHTS if weights is not None else 0])[0]


def combine_backward(routing: Routing, gradient: Any, weights: Any, rows: Any) -> Tuple[Any, Any]:
    """The gradients of the rows that were summed and, where there are weights, of these."""
    given = weights is not None
    arrays = [*routing, *([weights] if given else []), gradient, *([rows] if given else [])]
    results = [like(gradient, (routing.row_tokens.shape[0], gradient.shape[-1]))]
    results += [_struct(routing.choice_rows.shape, np.float32)] if given else []
    made = _call("combine_backward", arrays, results, [HAS_WEIGHTS | HAS_ROWS if given else 0])
    return made[0], made[1] if given else None


class Activation(NamedTuple):
    """The numbers of an activation, and how rows are quantized: word 0 leaves them as they are."""

    activation: int
    gate_layout: int
    clamp: Tuple[float, ...]
    gated: bool


def _activated(x: Any, shape: Shape, spec: Optional[Spec], parts: Any, scale_rounding: Optional[str], ends: Any) -> Any:
    """The word, the results and what collects them, of an activation that is quantized or plain."""
    if spec is None:
        return 0, [like(x, shape)], lambda made: made[0]
    names, dtype = parts_of(parts), plain_name(x, "x")
    word = spec_word(spec, _bits(names), 2, scale_rounding=rounding_number(scale_rounding))
    results = quantized_results(spec, shape, names, ends.shape[0])
    return word, results, lambda made: collected(spec, shape, names, dtype, made, ends)


def activate(how: Activation, x: Any, ends: Any, spec: Optional[Spec] = None, parts: Any = "rowwise",
             scale_rounding: Optional[str] = None) -> Any:
    """The activation of rows in groups, as an array or quantized."""
    columns = x.shape[1] // 2 if how.gated else x.shape[1]
    word, results, collect = _activated(x, (x.shape[0], columns), spec, parts, scale_rounding, ends)
    made = _call("activate", [x, ends], results, [0, how.activation, how.gate_layout, word, columns], how.clamp)
    return collect(made)


def activate_backward(how: Activation, gradient: Any, x: Any, ends: Any, spec: Optional[Spec] = None, parts: Any = "rowwise",
                      scale_rounding: Optional[str] = None, bias: bool = False) -> Tuple[Any, Any]:
    """The gradient of x, as an array or quantized, and of the bias that was added to it."""
    word, results, collect = _activated(x, tuple(x.shape), spec, parts, scale_rounding, ends)
    more = [_struct((ends.shape[0], x.shape[1]), np.float32)] if bias else []
    made = _call("activate_backward", [gradient, x, ends], [*results, *more],
                 [HAS_BIAS if bias else 0, how.activation, how.gate_layout, word], how.clamp)
    return collect(made[: len(results)]), made[-1] if bias else None


def run_layer(how: Activation, x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, gate_up_bias: Any, down_bias: Any,
              spec: Optional[Spec], scale_rounding: Optional[str]) -> Any:
    """The whole layer as one call. spec: of the rows that enter each product, or None for rows as they are."""
    (first, of_first), (second, of_second) = operand(gate_up, "gate_up"), operand(down, "down")
    experts = gate_up.shape[0]
    word = 0 if spec is None else spec_word(spec, 1, 2, scale_rounding=rounding_number(scale_rounding))
    flags = sum(flag for flag, given in ((HAS_WEIGHTS, weights), (HAS_BIAS, gate_up_bias), (HAS_DOWN_BIAS, down_bias)) if given is not None)
    arrays = [x, ids, *first, *second, *(each for each in (weights, gate_up_bias, down_bias) if each is not None)]
    return _call("expert_layer", arrays, [like(x, (x.shape[0], down.shape[-2]))], [flags, how.activation, how.gate_layout, word, experts, *of_first, *of_second],
                 how.clamp)[0]
