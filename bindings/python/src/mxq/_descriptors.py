"""Descriptors, which tell the library of tensors, and the shapes of the arrays that it wants for their parts."""
import ctypes
import functools
from typing import NamedTuple, Optional

from . import _raw
from ._groups import Groups, group_count, set_groups
from ._library import Error, Handle, Idle, check, lib
from ._memory import HOST, Device, Shape
from ._names import FORMATS, PARTS, SCALINGS, default_scaling, quantized_format, value_of
from ._shapes import code_shape, scale_shape, stored_rows

_destroy = lib.mxq_tensor_destroy


class Spec(NamedTuple):
    """Describes a quantized tensor: its format and options, not its memory."""

    format: str
    scaling: str
    swizzled: bool = False
    scope: str = "tensor"
    scale_max: int = 448


def checked_spec(format: str, scaling: Optional[str], swizzled: bool, scope: str, scale_max: int) -> Spec:
    quantized_format(format)
    scaling = scaling or default_scaling(format)
    value_of("mxq_scaling", scaling, "scaling")
    value_of("mxq_scope", scope, "scope")
    return Spec(format, scaling, bool(swizzled), scope, scale_max)


make_spec = functools.lru_cache(maxsize=256)(checked_spec)  # torch.compile wants the function itself


def new_tensor(format: int, shape: Shape, idle: Optional[Idle] = None) -> Handle:
    """A descriptor of a 2-D or 3-D tensor. idle: where it goes when it is not needed any more."""
    handle = ctypes.c_void_p()
    if len(shape) == 2:
        check(lib.mxq_tensor_create_2d(format, shape[0], shape[1], ctypes.byref(handle)))
    elif len(shape) == 3:
        check(lib.mxq_tensor_create_3d(format, shape[0], shape[1], shape[2], ctypes.byref(handle)))
    else:
        raise Error(f"shape is {shape}, expected (rows, cols) or (experts, rows, cols)")
    return Handle(handle.value or 0, _destroy, idle)


def used_before(idle: Idle) -> Optional[Handle]:
    """A descriptor that no object owns now, if there is one."""
    try:
        return Handle(idle.pop(), _destroy, idle)
    except IndexError:
        return None


@functools.lru_cache(maxsize=256)
def _idle_plain(format: int, shape: Shape) -> Idle:
    return Idle()


def plain_descriptor(format: int, shape: Shape) -> Handle:
    """A descriptor of a plain tensor, new or used before. The caller sets its memory, and nothing else."""
    idle = _idle_plain(format, shape)
    return used_before(idle) or new_tensor(format, shape, idle)


def describe(spec: Spec, shape: Shape, groups: Optional[Groups], device: Device, idle: Optional[Idle] = None) -> Handle:
    """A descriptor without memory."""
    handle = new_tensor(FORMATS[spec.format], shape, idle)
    tensor = handle.value
    if spec.scaling != default_scaling(spec.format):
        check(lib.mxq_tensor_set_scaling(tensor, SCALINGS[spec.scaling]))
    if spec.scope != "tensor":
        check(lib.mxq_tensor_set_scope(tensor, _raw.FAMILIES["mxq_scope"][spec.scope]))
    if spec.scale_max != 448:
        check(lib.mxq_tensor_set_scale_max(tensor, spec.scale_max))
    if groups is not None:
        set_groups(tensor, groups, device)
    if spec.swizzled:
        check(lib.mxq_tensor_set_swizzled(tensor, 1))
    return handle


class Sizes(NamedTuple):
    """Shapes and bytes of the arrays of a part."""

    codes: Shape
    scales: Shape
    code_bytes: int
    scale_bytes: int
    amax_bytes: int
    scale_type: str


def _stored_rows(tensor: int, shape: Shape, part: str) -> int:
    """The rows of a part of a described tensor, with the padding of its groups."""
    rowwise, columnwise, type_, groups = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32()
    ends, size = ctypes.c_void_p(), ctypes.c_uint64()
    check(lib.mxq_tensor_get_group_alignment(tensor, rowwise, columnwise))
    check(lib.mxq_tensor_get_groups(tensor, ends, size, type_, groups))
    return stored_rows(shape[-2], groups.value, (rowwise if part == "rowwise" else columnwise).value)


def part_sizes(tensor: int, spec: Spec, shape: Shape, part: str, grouped: bool) -> Sizes:
    """What the library says that a part of a described tensor needs."""
    codes, scales, amax = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    check(lib.mxq_tensor_required_bytes(tensor, PARTS[part], codes, scales))
    if spec.format == "nvfp4":
        check(lib.mxq_tensor_required_amax_bytes(tensor, PARTS[part], amax))
    codes_shape = code_shape(spec.format, shape, part, _stored_rows(tensor, shape, part) if grouped else None)
    flat = spec.swizzled or (grouped and spec.scaling in ("32x32", "128x128"))
    scales_shape = scale_shape(spec.format, shape, part, spec.scaling, flat, scales.value, codes_shape)
    scale_type = "float32" if spec.format.startswith("fp8") else "uint8"
    return Sizes(codes_shape, scales_shape, codes.value, scales.value, amax.value, scale_type)


@functools.lru_cache(maxsize=1024)
def sizes_without_groups(spec: Spec, shape: Shape, part: str) -> Sizes:
    described = describe(spec, shape, None, HOST)
    return part_sizes(described.value, spec, shape, part, False)


def number_shape(spec: Spec, shape: Shape, groups: Optional[Groups]) -> Shape:
    """The shape of an amax, a decode scale or a quantization scale: one number, or one for each expert or group."""
    if spec.scope == "tensor":
        return (1,)
    return (shape[0],) if len(shape) == 3 else (1,) if groups is None else (group_count(groups),)
