"""What stands between two products of a feed-forward layer: activations and their gradients."""
import functools
from typing import Any, Callable, NamedTuple, Optional, Tuple, Union

from ._arguments import array_argument, number
from ._arrays import kind_of, plain
from ._call import Call, Options, make_options, plain_source, plain_tensor, verb
from ._context import Context
from ._descriptors import make_spec
from ._groups import Groups, as_groups, group_count, set_groups
from ._library import Error, Handle
from ._memory import Device, count
from ._names import FORMAT_OF_DTYPE, ITEM_BYTES, value_of
from ._qtensor import QTensor, allocate
from ._verbs import _quantize_options, loose, parts_of, plain_output, result_dtype

_WITHOUT_GATE = ("silu", "gelu_erf", "gelu_tanh", "squared_relu")
Clamp = Tuple[float, float, float]


class Gradients(NamedTuple):
    """The gradients of gates and ups, and of the bias and of the weights of rows where they were asked for."""

    x: Any
    bias: Any
    row_weights: Any


class _Input(NamedTuple):
    """What an activation reads: the array, its groups and what is added to it or multiplies its rows."""

    view: Any
    kind: Any
    groups: Optional[Groups]
    bias_shape: Tuple[int, ...]
    rows_shape: Tuple[int, ...]

    @property
    def device(self) -> Device:
        device: Device = self.view.memory.device
        return device

    def source(self) -> Handle:
        if self.groups is None:
            return plain_source(self.view, "x")
        handle = plain_tensor(self.view, "x")
        set_groups(handle.value, self.groups, self.device)
        return handle


def _input(x: Any, groups: Any) -> _Input:
    view, kind = plain(x, "x"), kind_of(x, "x")
    grouped = as_groups(groups, kind, view.memory.device)
    several = (group_count(grouped),) if grouped is not None else view.shape[:-2]
    return _Input(view, kind, grouped, several + view.shape[-1:], view.shape[:-1])


def _numbers(given: Any, name: str, shape: Tuple[int, ...], device: Device, setters: Options) -> Any:
    """Adds numbers of any plain type to the setters."""
    if given is None:
        return None
    memory = array_argument(given, name, tuple(FORMAT_OF_DTYPE), shape, device)
    size = ITEM_BYTES[memory.dtype] * count(shape)
    setters.append((name, (FORMAT_OF_DTYPE[memory.dtype], memory.address if size else None, size)))
    return memory


def _options(x: _Input, activation: str, gate_layout: Optional[str], clamp: Optional[Clamp], bias: Any, row_weights: Any,
             implementation: Optional[str], more: Options) -> Tuple[Optional[Handle], Any]:
    """The options of the C function, and what they point to."""
    setters: Options = [("activation", (value_of("mxq_activation", activation, "activation"),)), *more]
    if gate_layout is not None:
        setters.append(("gate_layout", (value_of("mxq_gate_layout", gate_layout, "gate_layout"),)))
    if clamp is not None:
        if not isinstance(clamp, (tuple, list)) or len(clamp) != 3:
            raise Error(f"clamp is {clamp!r}, expected (alpha, limit, addend)")
        setters.append(("clamp", tuple(number(value, "clamp") for value in clamp)))
    keep = (_numbers(bias, "bias", x.bias_shape, x.device, setters), _numbers(row_weights, "row_weights", x.rows_shape, x.device, setters))
    if implementation:
        setters.append(("implementation", (implementation.encode(),)))
    return make_options("activate", setters), keep


def _output(x: _Input, shape: Tuple[int, ...], like: Any, format: Optional[str], scaling: Optional[str], parts: Any, swizzled: bool,
            dtype: Any, out: Any, quantize: Any) -> Tuple[Handle, Callable[[], Any], Options, Any]:
    """The descriptor of the result, what makes it, the options that it needs, and what these point to."""
    if format is None:
        if scaling is not None or swizzled or parts != "rowwise" or quantize:
            raise Error("scaling, parts, swizzled and options of quantize need a format, expected none of them without it")
        target, out_array = plain_output(out, shape, result_dtype(dtype, out, x.view.memory.dtype), x.kind, x.device, loose(x.groups))
        return target, (lambda: out_array if out is not None else x.kind.give(out_array, like)), [], None
    if dtype is not None or out is not None:
        raise Error("format was given with dtype or out, expected one of them: a quantized result has memory of its own")
    made, target = allocate(make_spec(format, scaling, swizzled, "tensor", 448), shape, parts_of(parts), x.groups, {},
                            x.view.memory.dtype, x.kind, x.device)
    options, random = _quantize_options(x.kind, x.device, **quantize)
    setters: Options = [("quantize_options", (options.value,))] if options else []
    return target, functools.partial(made._handed_over, like), setters, (options, random)


def _activate(x: Any, activation: str = "swiglu", *, gate_layout: Optional[str] = None, clamp: Optional[Clamp] = None, bias: Any = None,
              row_weights: Any = None, groups: Any = None, format: Optional[str] = None, parts: Any = "rowwise",
              scaling: Optional[str] = None, swizzled: bool = False, dtype: Any = None, out: Any = None,
              implementation: Optional[str] = None, context: Optional[Context] = None, **quantize: Any) -> Call:
    given = _input(x, groups)
    columns = given.view.shape[-1]
    if activation not in _WITHOUT_GATE and columns % 2:
        raise Error(f"x has {columns} columns, expected an even number: gates and ups")
    shape = given.view.shape[:-1] + (columns if activation in _WITHOUT_GATE else columns // 2,)
    target, finish, more, kept = _output(given, shape, x, format, scaling, parts, swizzled, dtype, out, quantize)
    source = given.source()
    options, keep = _options(given, activation, gate_layout, clamp, bias, row_weights, implementation, more)
    return Call("mxq_activate", context, options, (source.value, target.value), given.device, given.kind,
                (x, given, source, target, kept, keep), finish)


@verb(_activate)
def activate(x: Any, activation: str = "swiglu", *, gate_layout: Optional[str] = None, clamp: Optional[Clamp] = None, bias: Any = None,
             row_weights: Any = None, groups: Any = None, format: Optional[str] = None, parts: Any = "rowwise",
             scaling: Optional[str] = None, swizzled: bool = False, dtype: Any = None, out: Any = None,
             implementation: Optional[str] = None, context: Optional[Context] = None, **quantize: Any) -> Union[QTensor, Any]:
    """The activation of x, as an array or, where `format` names one, quantized from one read of x.

    x: (rows, 2 I) or (experts, rows, 2 I), gates and ups; (..., I) for activations without a gate.
    activation: "swiglu", "geglu_erf", "geglu_tanh", "swiglu_clamped" (gpt-oss), "silu", "gelu_erf", "gelu_tanh", "squared_relu".
    gate_layout: "gate_up" (default: I gates, then I ups), "up_gate", "interleaved_gate_up", "interleaved_up_gate".
    clamp: (alpha, limit, addend) of "swiglu_clamped"; by default (1.702, 7, 1).
    bias: a number for each column of x, or (groups or experts, columns). row_weights: a factor for each row of the result.
    groups: Groups, or their ends, with a bias and codes for each. Rows in no group are zero in an array.
    format, parts, scaling, swizzled and other options: those of quantize. dtype, out: of an array; by default x's type.
    """
    return _activate(x, activation, gate_layout=gate_layout, clamp=clamp, bias=bias, row_weights=row_weights, groups=groups,
                     format=format, parts=parts, scaling=scaling, swizzled=swizzled, dtype=dtype, out=out,
                     implementation=implementation, context=context, **quantize).run()


def _wanted(wanted: bool, name: str, shape: Tuple[int, ...], x: _Input, setters: Options) -> Any:
    """An array for a gradient that is asked for. Rows in no group have a gradient of 0."""
    if not wanted:
        return None
    array = x.kind.zeros(shape, "float32", x.device)
    size = 4 * count(shape)
    setters.append((name, (array_argument(array, name, ("float32",), shape, x.device).address if size else None, size)))
    return array


def _activate_backward(gradient: Any, x: Any, activation: str = "swiglu", *, gate_layout: Optional[str] = None,
                       clamp: Optional[Clamp] = None, bias: Any = None, row_weights: Any = None, bias_gradient: bool = False,
                       row_weight_gradient: bool = False, groups: Any = None, format: Optional[str] = None, parts: Any = "rowwise",
                       scaling: Optional[str] = None, swizzled: bool = False, dtype: Any = None, out: Any = None,
                       implementation: Optional[str] = None, context: Optional[Context] = None, **quantize: Any) -> Call:
    given, of_result = _input(x, groups), plain_source(plain(gradient, "gradient"), "gradient")
    target, finish, more, kept = _output(given, given.view.shape, x, format, scaling, parts, swizzled, dtype, out, quantize)
    of_bias = _wanted(bias_gradient, "bias_gradient", given.bias_shape, given, more)
    of_rows = _wanted(row_weight_gradient, "row_weight_gradient", given.rows_shape, given, more)
    source = given.source()
    options, keep = _options(given, activation, gate_layout, clamp, bias, row_weights, implementation, more)

    def give(array: Any) -> Any:
        return None if array is None else given.kind.give(array, x)

    return Call("mxq_activate_backward", context, options, (of_result.value, source.value, target.value), given.device, given.kind,
                (gradient, x, given, of_result, source, target, kept, keep),
                lambda: Gradients(finish(), give(of_bias), give(of_rows)))


@verb(_activate_backward)
def activate_backward(gradient: Any, x: Any, activation: str = "swiglu", *, bias_gradient: bool = False,
                      row_weight_gradient: bool = False, **options: Any) -> Gradients:
    """The gradients of gates and ups, in x's shape, from that of what activate makes of x.

    gradient: (rows, I) or (experts, rows, I). x and all options are those of activate, for activations with a gate; `format` and
    what goes with it say how the gradients are quantized. bias_gradient, row_weight_gradient: also compute these, in float32.
    """
    made: Gradients = _activate_backward(gradient, x, activation, bias_gradient=bias_gradient, row_weight_gradient=row_weight_gradient,
                                         **options).run()
    return made
