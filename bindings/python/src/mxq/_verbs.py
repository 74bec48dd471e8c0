"""Verbs that change formats: quantize, dequantize, requantize, amax, convert."""
import functools
import math
import sys
from typing import Any, Dict, Optional, Tuple, Union

from ._arguments import array_argument, integer, number
from ._arrays import kind_of, plain, plain_list
from ._call import Call, Options, make_options, plain_source, plain_tensor, set_plain_data, verb
from ._context import Context
from ._descriptors import make_spec, new_tensor, number_shape
from ._groups import Groups, Padded, as_groups, set_groups
from ._library import Error, Handle, check, lib
from ._memory import Device, count, same_device
from ._names import PARTS, plain_dtype, value_of
from ._parts import float_array, float_memory, hadamard_mask
from ._qtensor import QTensor, Transposed, allocate, allocate_plainly

Hadamard = Union[None, int, Dict[str, int]]


_PARTS: Dict[str, Tuple[str, ...]] = {"rowwise": ("rowwise",), "columnwise": ("columnwise",), "both": ("rowwise", "columnwise")}


def parts_of(parts: Any) -> Tuple[str, ...]:
    """("rowwise",), ("columnwise",) or both, from a name, "both", or several names."""
    names = _PARTS.get(parts) if isinstance(parts, str) else tuple(parts) if isinstance(parts, (tuple, list)) else None
    if not names or any(name not in PARTS for name in names):
        raise Error(f"parts is {parts!r}, expected \"rowwise\", \"columnwise\" or \"both\"")
    return names


def _masks(hadamard: Hadamard, parts: Tuple[str, ...]) -> Dict[str, int]:
    if hadamard is None:
        return {}
    if not isinstance(hadamard, dict):
        mask = hadamard_mask(hadamard, "hadamard")
        return {part: mask for part in parts}
    if any(part not in PARTS for part in hadamard):
        raise Error(f"hadamard is {hadamard!r}, expected a mask for \"rowwise\", \"columnwise\" or both")
    return {part: hadamard_mask(mask, f"hadamard[{part!r}]") for part, mask in hadamard.items()}


def _seed_and_offset(stochastic: Any, kind: Any, device: Device) -> Any:
    """The array of two integers that stochastic rounding reads, from such an array or from two numbers."""
    if isinstance(stochastic, (tuple, list)):
        if len(stochastic) != 2:
            raise Error(f"stochastic is {stochastic!r}, expected two integers: (seed, offset)")
        names = ("the seed of stochastic", "the offset of stochastic")
        stochastic = kind.make([integer(value, name, 0, 2**64 - 1) for name, value in zip(names, stochastic)], "uint64", device)
    return array_argument(stochastic, "stochastic", ("uint64", "int64"), (2,), device)


def _quantize_options(kind: Any, device: Device, scale_rounding: Optional[str] = None, nonfinite: Optional[str] = None,
                      four_over_six: Optional[str] = None, stochastic: Any = None, compute_amax: bool = True,
                      power_of_two_scales: bool = False, amax_epsilon: float = 0.0, source_part: Optional[str] = None,
                      implementation: Optional[str] = None) -> Tuple[Optional[Handle], Any]:
    """The options that quantize, requantize and amax share, and the array that these point to."""
    setters: Options = []
    random = None
    if scale_rounding is not None:
        setters.append(("scale_rounding", (value_of("mxq_scale_rounding", scale_rounding, "scale_rounding"),)))
    if nonfinite is not None:
        setters.append(("nonfinite", (value_of("mxq_nonfinite", nonfinite, "nonfinite"),)))
    if four_over_six is not None:
        setters.append(("four_over_six", (value_of("mxq_four_over_six", four_over_six, "four_over_six"),)))
    if stochastic is not None:
        random = _seed_and_offset(stochastic, kind, device)
        setters.append(("stochastic_rounding", (random.address, 16)))
    if not compute_amax:
        setters.append(("compute_amax", (0,)))
    if power_of_two_scales:
        setters.append(("power_of_two_scales", (1,)))
    epsilon = number(amax_epsilon, "amax_epsilon")
    if epsilon:
        setters.append(("amax_epsilon", (epsilon,)))
    if source_part is not None:
        setters.append(("source_part", (PARTS[parts_of(source_part)[0]],)))
    if implementation:
        setters.append(("implementation", (implementation.encode(),)))
    return make_options("quantize", setters), random


def plain_input(x: Any, what: str) -> Tuple[Handle, Tuple[int, ...], str, Device, Any, Optional[Groups]]:
    """The descriptor of an array, of a list of experts or of a Padded, and what there is to know of it."""
    if isinstance(x, (QTensor, Transposed)):
        raise Error(f"{what} is a quantized tensor, expected an array; requantize changes the format of one")
    if not isinstance(x, Padded):
        view, like = (plain_list(x, what), x[0]) if isinstance(x, (list, tuple)) else (plain(x, what), x)
        return plain_source(view, what), view.shape, view.memory.dtype, view.memory.device, kind_of(like), None
    view, kind = plain(x.values, f"{what}.values"), kind_of(x.values, f"{what}.values")
    groups = as_groups(x.groups, kind, view.memory.device)
    shape = (x.rows, view.shape[-1])
    return padded_tensor(view, shape, groups, False), shape, view.memory.dtype, view.memory.device, kind, groups


def first_of(x: Any) -> Any:
    """An array of the library that results are handed to."""
    return x.values if isinstance(x, Padded) else x[0] if isinstance(x, (list, tuple)) else x


def padded_tensor(view: Any, shape: Tuple[int, ...], groups: Optional[Groups], written: bool) -> Handle:
    """The descriptor of a plain tensor whose memory has rows of padding."""
    handle = new_tensor(view.format, shape)
    check(lib.mxq_tensor_set_row_stride(handle.value, view.row_stride))
    if groups is not None:
        set_groups(handle.value, groups, view.memory.device)
    set_plain_data(handle.value, view, written)
    return handle


def _quantize(x: Any, format: str = "mxfp8_e4m3", parts: Any = "rowwise", scaling: Optional[str] = None, groups: Any = None,
              swizzled: bool = False, scope: str = "tensor", scale_max: int = 448, hadamard: Hadamard = None, amax: Any = None,
              quantization_scale: Any = None, scale_rounding: Optional[str] = None, nonfinite: Optional[str] = None,
              four_over_six: Optional[str] = None, stochastic: Any = None, power_of_two_scales: bool = False,
              amax_epsilon: float = 0.0, implementation: Optional[str] = None, context: Optional[Context] = None) -> Call:
    source, shape, dtype, device, kind, padded = plain_input(x, "x")
    spec, names = make_spec(format, scaling, swizzled, scope, scale_max), parts_of(parts)
    grouped = as_groups(groups, kind, device) or padded
    factor = None
    if grouped is None and hadamard is None and amax is None and quantization_scale is None:
        out, target = allocate_plainly(spec, shape, names, dtype, kind, device)
    else:
        given, numbers = None if amax is None else float_array(amax, kind, device), number_shape(spec, shape, grouped)
        if given is not None:
            float_memory(given, "amax", numbers, device)
        out, target = allocate(spec, shape, names, grouped, _masks(hadamard, names), dtype, kind, device, given)
    if quantization_scale is not None:
        factor = float_memory(float_array(quantization_scale, kind, device), "quantization_scale", numbers, device)
        check(lib.mxq_tensor_set_quantization_scale(target.value, factor.address, 4 * count(factor.shape)))
        out._forget_descriptor()  # the next one has no address of this array
    options, random = _quantize_options(kind, device, scale_rounding, nonfinite, four_over_six, stochastic, amax is None,
                                        power_of_two_scales, amax_epsilon, None, implementation)
    return Call("mxq_quantize", context, options, (source.value, target.value), device, kind, (x, source, target, random, factor),
                functools.partial(out._handed_over, first_of(x)))


def _torch_eager(x: Any, context: Optional[Context]) -> Any:
    """The calls of torch's operators in C++ where mxq.torch was imported and they take x, a tensor as it is; None otherwise."""
    eager = sys.modules.get("mxq._torch_eager")
    return eager if eager is not None and context is None and type(x) in eager.PLAIN and eager.quiet() and not x.is_neg() else None


@verb(_quantize)
def quantize(x: Any, format: str = "mxfp8_e4m3", *, parts: Any = "rowwise", scaling: Optional[str] = None, groups: Any = None,
             swizzled: bool = False, scope: str = "tensor", scale_max: int = 448, hadamard: Hadamard = None, amax: Any = None,
             quantization_scale: Any = None, scale_rounding: Optional[str] = None, nonfinite: Optional[str] = None,
             four_over_six: Optional[str] = None, stochastic: Any = None, power_of_two_scales: bool = False,
             amax_epsilon: float = 0.0, implementation: Optional[str] = None, context: Optional[Context] = None) -> QTensor:
    """Quantizes a matrix, or a stack of experts, to a microscaling format.

    x: (rows, cols) or (experts, rows, cols) of float32, float16 or bfloat16, a list with an array for each expert, or a Padded.
    format: "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "nvfp4", "fp8_e4m3" or "fp8_e5m2".
    parts: "rowwise" (blocks along a row), "columnwise" (down a column), or "both" from one read of x.
    scaling: which elements share a scale, such as "1x32", "32x32", "1x128", "128x128", "1x16", "16x16", "row", "tensor".
    groups: Groups, or their ends: rows are quantized group by group.
    swizzled: scales in the layout of block-scaled tensor cores.
    scope: "tensor", or "expert" for an amax and a TENSOR scale of each expert or group.
    hadamard: the mask of a random Hadamard transform, or one for each part by name.
    amax: NVFP4's, if it is known; otherwise it is computed. quantization_scale: FP8's, of delayed scaling. Numbers, or arrays of
        float32 on the device of x: (1,), or with scope="expert" one for each expert or group.
    stochastic: (seed, offset) of stochastic rounding, or an array of the two, of uint64 or int64 on the device of x.
    The other options are the header's: mxq_quantize_options_set_*.
    """
    if (groups is None and scale_max == 448 and hadamard is None and amax is None and quantization_scale is None and nonfinite is None
            and four_over_six is None and stochastic is None and not power_of_two_scales and amax_epsilon == 0 and implementation is None):
        eager = _torch_eager(x, context)
        found = eager and eager.quantize(x.detach() if x.requires_grad else x, format, parts, scaling, swizzled, scope, scale_rounding)
        if found is not None:
            return found  # type: ignore[no-any-return]
    made: QTensor = _quantize(x, format, parts, scaling, groups, swizzled, scope, scale_max, hadamard, amax, quantization_scale,
                              scale_rounding, nonfinite, four_over_six, stochastic, power_of_two_scales, amax_epsilon,
                              implementation, context).run()
    return made


def quantized_input(q: Any, what: str) -> Tuple[QTensor, Handle]:
    """The tensor and its descriptor, which the caller keeps until the call has run."""
    if isinstance(q, Transposed):
        raise Error(f"{what} is a transposed view, which only products take; pass the tensor itself")
    if not isinstance(q, QTensor):
        raise Error(f"{what} is a {type(q).__name__}, expected a QTensor, as quantize makes them")
    return q, q._descriptor()


def _requantize(q: Any, format: str, *, parts: Any = "rowwise", scaling: Optional[str] = None, swizzled: bool = False,
                scope: str = "tensor", scale_max: int = 448, hadamard: Hadamard = None, part: Optional[str] = None,
                groups: Any = None, context: Optional[Context] = None, **options: Any) -> Call:
    (q, handle), names = quantized_input(q, "q"), parts_of(parts)
    grouped = as_groups(groups, q._kind, q._device) or (q.groups and q.groups._replace(alignment=(1, 0)))
    out, target = allocate(make_spec(format, scaling, swizzled, scope, scale_max), q.shape, names, grouped,
                           _masks(hadamard, names), q.dtype, q._kind, q._device)
    chosen, random = _quantize_options(q._kind, q._device, source_part=part, **options)
    like = q._like
    return Call("mxq_requantize", context, chosen, (handle.value, target.value), q._device, q._kind, (q, handle, target, random),
                functools.partial(out._handed_over, like))


@verb(_requantize)
def requantize(q: QTensor, format: str, *, parts: Any = "rowwise", part: Optional[str] = None, scaling: Optional[str] = None,
               groups: Any = None, swizzled: bool = False, scope: str = "tensor", scale_max: int = 448,
               hadamard: Hadamard = None, scale_rounding: Optional[str] = None, nonfinite: Optional[str] = None,
               four_over_six: Optional[str] = None, stochastic: Any = None, power_of_two_scales: bool = False, amax_epsilon: float = 0.0,
               implementation: Optional[str] = None, context: Optional[Context] = None) -> QTensor:
    """Quantizes a quantized tensor to another format or other parts, with the bytes of dequantize to float32 and quantize.

    part: which part of q is read; by default the rowwise one if there is one. The other options are those of quantize.
    """
    made: QTensor = _requantize(q, format, parts=parts, part=part, scaling=scaling, groups=groups, swizzled=swizzled, scope=scope,
                                scale_max=scale_max, hadamard=hadamard, context=context, scale_rounding=scale_rounding,
                                nonfinite=nonfinite, four_over_six=four_over_six, stochastic=stochastic,
                                power_of_two_scales=power_of_two_scales, amax_epsilon=amax_epsilon,
                                implementation=implementation).run()
    return made


def result_dtype(dtype: Any, out: Any, default: str) -> str:
    """The dtype of a result: what the caller asks for, which must be that of `out`, or the default."""
    if dtype is None or out is None:
        return plain_dtype(dtype or default)
    asked, has = plain_dtype(dtype), kind_of(out, "out").memory(out, "out").dtype
    if asked != has:
        raise Error(f"out has dtype {has}, expected {asked}, as dtype says")
    return asked


def plain_output(out: Any, shape: Tuple[int, ...], dtype: str, kind: Any, device: Device, zero: bool) -> Tuple[Handle, Any]:
    """The descriptor and the array of a plain result: the caller's `out`, or a new one."""
    if out is None:
        out = (kind.zeros if zero else kind.empty)(shape, dtype, device)
    elif kind_of(out).name == "dlpack":
        raise Error(f"out is a {type(out).__name__}, whose library may not expect that it changes; pass a numpy array or a torch tensor")
    view = plain(out, "out")
    same_device(view.memory, device, "out")
    if view.shape != shape:
        raise Error(f"out has shape {view.shape}, expected {shape}")
    return plain_tensor(view, "out", written=True), out


def loose(groups: Optional[Groups]) -> bool:
    """True where rows may be in no group: what is written for them is nothing, so it is zero from the start."""
    return groups is not None and not groups.cover_rows


def _dequantize(q: Any, dtype: Any = None, *, part: Optional[str] = None, undo_hadamard: bool = True, out: Any = None,
                implementation: Optional[str] = None, context: Optional[Context] = None) -> Call:
    q, handle = quantized_input(q, "q")
    given = out is not None
    target, out = plain_output(out, q.shape, result_dtype(dtype, out, q.dtype), q._kind, q._device, loose(q.groups))
    setters: Options = []
    if part is not None:
        setters.append(("source_part", (PARTS[parts_of(part)[0]],)))
    if not undo_hadamard:
        setters.append(("undo_hadamard", (0,)))
    if implementation:
        setters.append(("implementation", (implementation.encode(),)))
    like = q._like
    return Call("mxq_dequantize", context, make_options("quantize", setters), (handle.value, target.value), q._device, q._kind,
                (q, handle, target), lambda: out if given else q._kind.give(out, like))


@verb(_dequantize)
def dequantize(q: QTensor, dtype: Any = None, *, part: Optional[str] = None, undo_hadamard: bool = True, out: Any = None,
               implementation: Optional[str] = None, context: Optional[Context] = None) -> Any:
    """The values of a quantized tensor as an array of `dtype`: float32, float16 or bfloat16; by default what was quantized.

    part: which part is read; by default the rowwise one if there is one. Rows that are in no group are zero.
    """
    eager = sys.modules.get("mxq._torch_eager") if undo_hadamard and out is None and implementation is None and context is None else None
    found = eager and eager.dequantize(q, dtype, part)
    if found is not None:
        return found
    return _dequantize(q, dtype, part=part, undo_hadamard=undo_hadamard, out=out, implementation=implementation, context=context).run()


def sqnr(q: QTensor, x: Any, part: Optional[str] = None) -> float:
    """QTensor.sqnr: the signal-to-noise ratio of a quantized tensor of x, in decibels."""
    kind = kind_of(x, "x")
    shape = tuple(kind.memory(x, "x").shape)
    if shape != q.shape:
        raise Error(f"x has shape {shape}, expected {q.shape}, that of the tensor")
    values = kind.as_float64(convert(x, "float32") if kind.name == "dlpack" else x)  # numpy's from_dlpack takes no bfloat16
    noise = float(((values - kind.as_float64(dequantize(q, "float32", part=part))) ** 2).sum())
    if noise == 0:
        return float("inf")
    ratio = float((values**2).sum()) / noise
    return 10 * math.log10(ratio) if ratio else float("-inf")


def _amax(x: Any, format: str = "nvfp4", *, part: str = "rowwise", scope: str = "tensor", groups: Any = None,
          hadamard: Optional[int] = None, context: Optional[Context] = None) -> Call:
    source, shape, dtype, device, kind, padded = plain_input(x, "x")
    names = parts_of(part)
    grouped = as_groups(groups, kind, device) or padded
    out, target = allocate(make_spec(format, None, False, scope, 448), shape, names, grouped, _masks(hadamard, names), dtype, kind,
                           device)
    result = out.part(names[0]).amax
    if result is None:
        numbers = number_shape(out.spec, shape, out.groups)
        result = kind.empty(numbers, "float32", device)
        memory = float_memory(result, "amax", numbers, device)
        check(lib.mxq_tensor_set_amax(target.value, PARTS[names[0]], memory.address, 4 * numbers[0]))
    return Call("mxq_amax", context, None, (source.value, target.value), device, kind, (x, source, out, target, result),
                lambda: kind.give(result, first_of(x)))


@verb(_amax)
def amax(x: Any, format: str = "nvfp4", *, part: str = "rowwise", scope: str = "tensor", groups: Any = None,
         hadamard: Optional[int] = None, context: Optional[Context] = None) -> Any:
    """The largest magnitude of x, as quantize to "nvfp4", "fp8_e4m3" or "fp8_e5m2" needs it: one, or with scope="expert" one for
    each expert or group. NaN is ignored."""
    return _amax(x, format, part=part, scope=scope, groups=groups, hadamard=hadamard, context=context).run()


def _convert(x: Any, dtype: Any, *, out: Any = None, implementation: Optional[str] = None, context: Optional[Context] = None) -> Call:
    if isinstance(x, Padded):
        raise Error("x is Padded, expected an array; convert its values")
    source, shape, _, device, kind, _ = plain_input(x, "x")
    given = out is not None
    target, out = plain_output(out, shape, result_dtype(dtype, out, ""), kind, device, False)
    options = make_options("quantize", [("implementation", (implementation.encode(),))] if implementation else [])
    return Call("mxq_convert", context, options, (source.value, target.value), device, kind, (x, source, target),
                lambda: out if given else kind.give(out, first_of(x)))


@verb(_convert)
def convert(x: Any, dtype: Any, *, out: Any = None, implementation: Optional[str] = None, context: Optional[Context] = None) -> Any:
    """x as float32, float16 or bfloat16, rounded once to nearest even."""
    return _convert(x, dtype, out=out, implementation=implementation, context=context).run()
