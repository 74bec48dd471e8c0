"""The expert layer: routing, the weighted sum of rows, and the whole layer as one call."""
import ctypes
from typing import Any, NamedTuple, Optional, Tuple

from . import _raw
from ._arguments import array_argument, integer
from ._arrays import dense, kind_of, plain
from ._call import Call, Options, make_options, plain_source, verb
from ._context import Context
from ._groups import Groups
from ._library import Error, Handle, check, lib
from ._memory import Device, count
from ._names import FORMAT_OF_DTYPE, ITEM_BYTES, SCALINGS, quantized_format, value_of
from ._products import _operand
from ._verbs import _quantize_options, plain_output, result_dtype

_TYPES = {"int32": _raw.MXQ_TYPE_INT32, "int64": _raw.MXQ_TYPE_INT64}


class Routing(NamedTuple):
    """Which row of which expert each choice of each token has, as `route` computes it. Rows are sorted by expert.

    tokens, choices, experts: the shape of the routing; `experts` counts those of all ranks.
    ends: int32, one past the last row of each expert of this rank: the groups of the rows.
    row_tokens: int32, the token of each row; -1 past the last end.
    choice_rows: int32 (tokens, choices), the row of each choice; -1 where it is dropped.
    row_weights: float32, the weight of each row, or None without weights.
    """

    tokens: int
    choices: int
    experts: int
    ends: Any
    row_tokens: Any
    choice_rows: Any
    row_weights: Any
    handle: Handle
    keep: Any

    @property
    def groups(self) -> Groups:
        """The groups of its rows, for quantize and grouped_matmul."""
        return Groups(self.ends)


def _aligned(kind: Any, size: int, device: Device) -> Any:
    """Bytes at a multiple of 256."""
    block = kind.empty((size + 255,), "uint8", device)
    first = -dense(block, "memory").address % 256
    return block[first:first + size]


def _array(memory: Any, kind: Any, address: int, shape: Tuple[int, ...], text: str, device: Device) -> Any:
    """The array at an address of the memory."""
    first = address - dense(memory, "memory").address if count(shape) else 0
    like = kind.empty((0,), text, device)
    return memory[first:first + 4 * count(shape)].view(like.dtype).reshape(shape)


def _computed(handle: Handle, name: str) -> int:
    address, size = ctypes.c_void_p(), ctypes.c_uint64()
    getter = getattr(lib, f"mxq_routing_get_{name}")
    pointer = getter.argtypes[1]._type_
    check(getter(handle.value, ctypes.cast(ctypes.byref(address), ctypes.POINTER(pointer)), size))
    return address.value or 0


def _new_routing(ids: Any, experts: int, weights: Any, local_experts: Optional[Tuple[int, int]]) -> Tuple[Handle, Any, Any]:
    """The handle with its inputs, the kind of array, and the memory of the ids."""
    memory, kind = dense(ids, "ids"), kind_of(ids, "ids")
    if memory.dtype not in _TYPES or len(memory.shape) != 2:
        raise Error(f"ids has shape {memory.shape} and dtype {memory.dtype}, expected (tokens, choices) of int32 or int64")
    made = ctypes.c_void_p()
    integer(experts, "experts", 1, _raw.MXQ_MAX_GROUPS)
    check(lib.mxq_routing_create(memory.shape[0], memory.shape[1], experts, ctypes.byref(made)))
    handle = Handle(made.value or 0, lib.mxq_routing_destroy)
    if count(memory.shape):
        check(lib.mxq_routing_set_ids(handle.value, memory.address, ITEM_BYTES[memory.dtype] * count(memory.shape), _TYPES[memory.dtype]))
    _set_weights(handle, weights, memory.shape, memory.device)
    if local_experts is not None:
        check(lib.mxq_routing_set_local_experts(handle.value, *local_experts))
    return handle, kind, memory


def _set_weights(handle: Handle, weights: Any, shape: Tuple[int, ...], device: Device) -> None:
    if weights is None:
        return
    given = array_argument(weights, "weights", ("float32", "bfloat16"), shape, device)
    size = ITEM_BYTES[given.dtype] * count(shape)
    check(lib.mxq_routing_set_weights(handle.value, FORMAT_OF_DTYPE[given.dtype], given.address if size else None, size))


def _route(ids: Any, experts: int, weights: Any = None, *, local_experts: Optional[Tuple[int, int]] = None,
           context: Optional[Context] = None) -> Call:
    handle, kind, memory = _new_routing(ids, experts, weights, local_experts)
    size = ctypes.c_uint64()
    check(lib.mxq_routing_required_bytes(handle.value, size))
    block = _aligned(kind, size.value, memory.device)
    check(lib.mxq_routing_set_memory(handle.value, dense(block, "memory").address, size.value))

    def finish() -> Routing:
        rows = count(memory.shape)
        here = experts if local_experts is None else local_experts[1]

        def array(name: str, shape: Tuple[int, ...], text: str = "int32") -> Any:
            return kind.give(_array(block, kind, _computed(handle, name), shape, text, memory.device), ids)

        row_weights = None if weights is None else array("row_weights", (rows,), "float32")
        return Routing(memory.shape[0], memory.shape[1], experts, array("ends", (here,)), array("row_tokens", (rows,)),
                       array("choice_rows", memory.shape), row_weights, handle, (block, ids, weights))

    return Call("mxq_route", context, None, (handle.value,), memory.device, kind, (block, ids, weights, handle), finish)


def computed_routing(ends: Any, row_tokens: Any, choice_rows: Any, weights: Any = None) -> Routing:
    """A routing around arrays that are there, as `route` computed them, with the weights of its choices, or none of them."""
    kind, device = kind_of(ends, "ends"), dense(ends, "ends").device
    experts, shape = dense(ends, "ends").shape[0], dense(choice_rows, "choice_rows").shape
    made = ctypes.c_void_p()
    check(lib.mxq_routing_create(shape[0], shape[1], experts, ctypes.byref(made)))
    handle, rows = Handle(made.value or 0, lib.mxq_routing_destroy), count(shape)
    memories = [array_argument(ends, "ends", ("int32",), (experts,), device),
                array_argument(row_tokens, "row_tokens", ("int32",), (rows,), device),
                array_argument(choice_rows, "choice_rows", ("int32",), shape, device)]
    arrays = [value for memory in memories for value in (memory.address if count(memory.shape) else None, 4 * count(memory.shape))]
    check(lib.mxq_routing_set_computed(handle.value, *arrays, None, 0))
    _set_weights(handle, weights, shape, device)
    return Routing(shape[0], shape[1], experts, ends, row_tokens, choice_rows, None, handle, (kind, weights))


@verb(_route)
def route(ids: Any, experts: int, weights: Any = None, *, local_experts: Optional[Tuple[int, int]] = None,
          context: Optional[Context] = None) -> Routing:
    """Sorts the choices of tokens by expert. ids: (tokens, choices) of int32 or int64; -1 drops a choice. weights: the same shape,
    float32 or bfloat16. local_experts: (first, count) of this rank; choices of other experts are dropped."""
    result: Routing = _route(ids, experts, weights, local_experts=local_experts, context=context).run()
    return result


def _combine(routing: Routing, rows: Any, *, residual: Any = None, dtype: Any = None, out: Any = None,
             context: Optional[Context] = None) -> Call:
    view, kind = plain(rows, "rows"), kind_of(rows, "rows")
    source, given = plain_source(view, "rows"), out is not None
    added = None if residual is None else plain_source(plain(residual, "residual"), "residual")
    shape = (routing.tokens, view.shape[-1])
    target, out = plain_output(out, shape, result_dtype(dtype, out, view.memory.dtype), kind, view.memory.device, False)
    tensors: Any = (routing.handle.value, source.value, added.value if added else None, target.value)
    return Call("mxq_combine", context, None, tensors, view.memory.device, kind, (routing, rows, residual, source, added, target),
                lambda: out if given else kind.give(out, rows))


@verb(_combine)
def combine(routing: Routing, rows: Any, *, residual: Any = None, dtype: Any = None, out: Any = None,
            context: Optional[Context] = None) -> Any:
    """The sum of the rows of each token's choices times their weights, on top of the residual: (tokens, columns of rows)."""
    return _combine(routing, rows, residual=residual, dtype=dtype, out=out, context=context).run()


class CombineGradients(NamedTuple):
    """The gradients of the rows that were summed and of the weights of choices, each where it was asked for."""

    rows: Any
    weights: Any


def _combine_backward(routing: Routing, gradient: Any, rows: Any = None, *, row_gradient: bool = True, weight_gradient: bool = False,
                      dtype: Any = None, out: Any = None, context: Optional[Context] = None) -> Call:
    view, kind = plain(gradient, "gradient"), kind_of(gradient, "gradient")
    device, given = view.memory.device, out is not None
    source, of_rows, of_weights, read, weights = plain_source(view, "gradient"), None, None, None, None
    if row_gradient:
        shape = (routing.tokens * routing.choices, view.shape[-1])
        of_rows, out = plain_output(out, shape, result_dtype(dtype, out, view.memory.dtype), kind, device, True)
    elif dtype is not None or given:
        raise Error("row_gradient is False, expected neither dtype nor out, which are of the gradient of rows")
    if weight_gradient:
        if rows is None:
            raise Error("rows is None, expected the rows that were summed: the gradient of weights reads them")
        read = plain_source(plain(rows, "rows"), "rows")
        of_weights, weights = plain_output(None, (routing.tokens, routing.choices), "float32", kind, device, False)
    tensors = (routing.handle.value, source.value, *(tensor.value if tensor else None for tensor in (read, of_rows, of_weights)))

    def give(array: Any) -> Any:
        return None if array is None else kind.give(array, gradient)

    return Call("mxq_combine_backward", context, None, tensors, device, kind,  # type: ignore[arg-type]
                (routing, gradient, rows, source, read, of_rows, of_weights),
                lambda: CombineGradients(out if given else give(out), give(weights)))


@verb(_combine_backward)
def combine_backward(routing: Routing, gradient: Any, rows: Any = None, *, row_gradient: bool = True, weight_gradient: bool = False,
                     dtype: Any = None, out: Any = None, context: Optional[Context] = None) -> CombineGradients:
    """The gradients of combine, from that of its result (tokens, columns). A residual has the gradient of the result.

    row_gradient: of the rows, (tokens x choices, columns), as an array of `dtype` or in `out`. Rows of no choice are zero in a new
    array, and left alone in `out`. weight_gradient: float32 (tokens, choices); it needs the rows that were summed.
    """
    made: CombineGradients = _combine_backward(routing, gradient, rows, row_gradient=row_gradient, weight_gradient=weight_gradient,
                                               dtype=dtype, out=out, context=context).run()
    return made


def _options(kind: Any, device: Device, biases: Tuple[Any, Any], shapes: Tuple[Tuple[int, ...], Tuple[int, ...]], activation: str,
             gate_layout: Optional[str], clamp: Optional[Tuple[float, float, float]], format: Optional[str], scaling: Optional[str],
             inner_dtype: str, residual: Optional[Handle], weights_first: bool, exact_products: bool, row_invariant: bool,
             quantize_options: Any) -> Tuple[Optional[Handle], Any]:
    """The options of the C function, and what they point to."""
    activate: Options = [("activation", (value_of("mxq_activation", activation, "activation"),))]
    if gate_layout is not None:
        activate.append(("gate_layout", (value_of("mxq_gate_layout", gate_layout, "gate_layout"),)))
    if clamp is not None:
        activate.append(("clamp", tuple(clamp)))
    of_activation = make_options("activate", activate)
    of_rows, random = _quantize_options(kind, device, **quantize_options)
    setters: Options = [("activate_options", (of_activation.value if of_activation else None,)),
                        ("inner_format", (FORMAT_OF_DTYPE[inner_dtype],)),
                        ("weights_first", (int(weights_first),)), ("exact_products", (int(exact_products),)),
                        ("row_invariant", (int(row_invariant),))]
    if format is not None:
        setters.append(("row_format", (quantized_format(format), SCALINGS[scaling] if scaling else 0)))
    if of_rows is not None:
        setters.append(("quantize_options", (of_rows.value,)))
    if residual is not None:
        setters.append(("residual", (residual.value,)))
    memories = []
    for name, bias, shape in zip(("gate_up_bias", "down_bias"), biases, shapes):
        if bias is not None:
            memory = array_argument(bias, name, tuple(FORMAT_OF_DTYPE), shape, device)
            memories.append(memory)
            setters.append((name, (FORMAT_OF_DTYPE[memory.dtype], memory.address, ITEM_BYTES[memory.dtype] * count(shape))))
    return make_options("expert_layer", setters), (of_activation, of_rows, random, memories)


def _expert_layer(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, *, gate_up_bias: Any = None, down_bias: Any = None,
                  residual: Any = None, activation: str = "swiglu", gate_layout: Optional[str] = None,
                  clamp: Optional[Tuple[float, float, float]] = None, format: Optional[str] = None, scaling: Optional[str] = None,
                  inner_dtype: str = "bfloat16", weights_first: bool = False, exact_products: bool = False, row_invariant: bool = False,
                  experts: Optional[int] = None,
                  first_expert: int = 0, dtype: Any = None, out: Any = None, context: Optional[Context] = None, **quantize: Any) -> Call:
    view, kind = plain(x, "x"), kind_of(x, "x")
    device, given = view.memory.device, out is not None
    first, second = _operand(gate_up, "gate_up"), _operand(down, "down")
    here = first.shape[0]
    local = None if experts is None else (first_expert, here)
    handle, _, memory = _new_routing(ids, here if experts is None else experts, weights, local)
    size = ctypes.c_uint64()
    check(lib.mxq_routing_required_bytes(handle.value, size))
    block = _aligned(kind, size.value, device)
    check(lib.mxq_routing_set_memory(handle.value, dense(block, "memory").address, size.value))
    added = None if residual is None else plain_source(plain(residual, "residual"), "residual")
    shapes = ((here, first.shape[-2]), (here, second.shape[-2]))
    options, keep = _options(kind, device, (gate_up_bias, down_bias), shapes, activation, gate_layout, clamp, format, scaling,
                             inner_dtype, added, weights_first, exact_products, row_invariant, quantize)
    source = plain_source(view, "x")
    target, out = plain_output(out, view.shape, result_dtype(dtype, out, view.memory.dtype), kind, device, False)
    tensors = (source.value, handle.value, first.address, second.address, target.value)
    kept = (x, ids, weights, first.keep, second.keep, memory, block, handle, source, added, residual, target, keep)
    return Call("mxq_expert_layer", context, options, tensors, device, kind, kept, lambda: out if given else kind.give(out, x))


@verb(_expert_layer)
def expert_layer(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, **options: Any) -> Any:
    """An expert layer from tokens to tokens: route, product, activation, product, weighted sum.

    x: (tokens, K). ids: (tokens, choices) of int32 or int64. weights: the same shape, float32 or bfloat16, or None. gate_up:
    (experts, 2 I, K) and down: (experts, K, I), arrays or quantized tensors with their rowwise part.

    gate_up_bias, down_bias: (experts, 2 I) and (experts, K). residual: what each sum starts at. activation: "swiglu",
    "swiglu_clamped", "geglu_erf", ...; gate_layout; clamp: (alpha, limit, addend). format, scaling: of the rows that enter each
    product, with the options of quantize; by default they are plain. inner_dtype: what numbers between the steps are rounded to.
    weights_first: weights multiply the activation. row_invariant: a token's bits depend on no other token. experts, first_expert: of all ranks, where gate_up has those of this one.
    """
    return _expert_layer(x, ids, weights, gate_up, down, **options).run()
