"""Quantized tensors: codes and scales of one or two parts, and the descriptor that tells the library of them."""
import ctypes
import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._arrays import kind_named, kind_of, memory_keys
from ._descriptors import Sizes, Spec, describe, make_spec, number_shape, part_sizes, sizes_without_groups, used_before
from ._groups import Groups, as_groups
from ._library import Error, Handle, Idle, check, lib
from ._memory import Device, Shape, count, device_name
from ._names import CODE_DTYPES, PARTS, plain_dtype, scale_dtype
from ._operators import Functions, Operators
from ._parts import Part, array_bytes, as_part, check_part, first_of, float_array, is_list, set_numbers, set_part
from ._views import experts, on_device


class QTensor(Operators):
    """A quantized tensor. Made by quantize and requantize, or by QTensor.from_parts around memory that is there.

    q.dequantize() gives an array of its values, numpy.asarray(q) one of numpy. q.rowwise.codes and q.rowwise.scales are bytes.

    format, shape, scaling, swizzled, scope, scale_max, groups, device: what it is.
    rowwise, columnwise: its parts, or None. None of these can be assigned: from_parts makes a tensor of other parts.
    dtype: what dequantize and products give by default: the type that was quantized.

    Arrays of a part may move, as a torch tensor does whose `data` is assigned: each call reads them where they are then. Of a
    tensor of experts, q[i] and q[i:j] are views of some.
    """

    __slots__ = ("_spec", "_shape", "_groups", "_parts", "dtype", "_device", "_kind", "_arrays", "_described", "_native", "_eager")

    def __init__(self, spec: Spec, shape: Shape, groups: Optional[Groups], parts: Dict[str, Part], dtype: str, device: Device,
                 kind: Any, handle: Optional[Handle] = None, arrays: Optional[Sequence[Any]] = None):
        self._spec, self._shape, self._groups, self._parts, self.dtype = spec, shape, groups, parts, dtype
        self._device, self._kind = device, kind
        self._arrays = arrays or [array for part in parts.values() for array in part[:4] if array is not None]
        if groups is not None:
            self._arrays = [*self._arrays, groups.ends, *([] if groups.host_ends is None else [groups.host_ends])]
        # The descriptor, and the keys of the arrays whose addresses it has.
        self._described = None if handle is None else (handle, memory_keys(self._arrays))
        # Cache the arguments of torch's operators: in graphs (_native) and in eager calls (_eager), transposed ones too.
        self._native: Any = None
        self._eager: Any = None

    @staticmethod
    def from_parts(format: str, shape: Shape, *, rowwise: Any = None, columnwise: Any = None, scaling: Optional[str] = None,
                   swizzled: bool = False, groups: Any = None, scope: str = "tensor", scale_max: int = 448,
                   dtype: Any = "float32") -> "QTensor":
        """A tensor over codes and scales that are there, as a checkpoint or another library has them. Copies no codes or scales.

        rowwise, columnwise: a Part, or (codes, scales), of bytes or of types such as float8_e4m3fn and float8_e8m0fnu.
        """
        spec = make_spec(format, scaling, swizzled, scope, scale_max)
        both = {"rowwise": rowwise, "columnwise": columnwise}
        given = {name: as_part(part, name) for name, part in both.items() if part is not None}
        if not given:
            raise Error("from_parts got no part, expected rowwise=(codes, scales), columnwise=(codes, scales) or both")
        like = first_of(next(iter(given.values())).codes)
        kind = kind_of(like, "codes")
        device = kind.memory(like, "codes").device
        shape = tuple(int(size) for size in shape)
        grouped = as_groups(groups, kind, device)
        grouped = grouped and grouped.owned(device)
        given = {name: part._replace(amax=float_array(part.amax, kind, device),
                                     decode_scale=float_array(part.decode_scale, kind, device)) for name, part in given.items()}
        out = QTensor(spec, shape, grouped, given, plain_dtype(dtype), device, kind)
        out._descriptor()
        return out

    def _descriptor(self) -> Handle:
        """The descriptor of the arrays as they are now. The caller keeps it until its call has run."""
        keys, described = memory_keys(self._arrays), self._described
        if described is None or described[1] != keys:
            described = self._described = (self._describe(), keys)
        return described[0]

    def _describe(self) -> Handle:
        """A new descriptor with the memory of the arrays, whose types and shapes are checked."""
        spec, shape, like = self._spec, self._shape, self._like
        device = self._device = kind_of(like, "codes").memory(like, "codes").device
        handle = describe(spec, shape, self._groups, device)
        numbers, keep = number_shape(spec, shape, self._groups), []
        for name, part in self._parts.items():
            if self._groups is None:
                sizes = sizes_without_groups(spec, shape, name)
            else:
                sizes = part_sizes(handle.value, spec, shape, name, True)
            check_part(spec.format, shape, name, part, {"codes": sizes.codes, "scales": sizes.scales}, spec.swizzled)
            keep.append(set_part(handle.value, name, part, shape, numbers, device))
        handle.keep = keep
        return handle

    def _forget_descriptor(self) -> None:
        self._described = None

    def _each_array(self) -> List[Any]:
        return [array for arrays in self._arrays for array in (arrays if is_list(arrays) else [arrays])]

    @property
    def _like(self) -> Any:
        """An array of the library that results are handed to."""
        return first_of(next(iter(self._parts.values())).codes)

    def _handed_over(self, like: Any) -> "QTensor":
        """This tensor with arrays of the library that `like` is of."""
        if self._kind.name != "dlpack":
            return self
        parts = {name: Part(*[self._kind.give(field, like) if hasattr(field, "shape") else field for field in part])
                 for name, part in self.parts.items()}
        return QTensor(self.spec, self.shape, self.groups, parts, self.dtype, self._device, self._kind)

    @property
    def parts(self) -> Dict[str, Part]:
        return dict(self._parts)

    @property
    def rowwise(self) -> Optional[Part]:
        return self._parts.get("rowwise")

    @property
    def columnwise(self) -> Optional[Part]:
        return self._parts.get("columnwise")

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def groups(self) -> Optional[Groups]:
        return self._groups

    @property
    def format(self) -> str:
        return self._spec.format

    @property
    def scaling(self) -> str:
        return self._spec.scaling

    @property
    def swizzled(self) -> bool:
        return self._spec.swizzled

    @property
    def scope(self) -> str:
        return self._spec.scope

    @property
    def scale_max(self) -> int:
        return self._spec.scale_max

    @property
    def device(self) -> str:
        """ "cpu", or "cuda:0" with the ordinal."""
        self._descriptor()
        return device_name(self._device)

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all codes and scales."""
        return sum(array_bytes(part.codes, "codes") + array_bytes(part.scales, "scales") for part in self.parts.values())

    def typed(self, part: str = "rowwise") -> Tuple[Any, Any]:
        """Codes and scales as the types that torch or ml_dtypes have for them, such as float8_e4m3fn and float8_e8m0fnu."""
        chosen, scales = self.part(part), scale_dtype(self.format)
        return (self._viewed(chosen.codes, CODE_DTYPES.get(self.format)),
                self._viewed(chosen.scales, scales if scales != "float32" else None))

    def _viewed(self, arrays: Any, dtype: Optional[str]) -> Any:
        if dtype is None:
            return arrays
        return [self._kind.view(array, dtype) for array in arrays] if is_list(arrays) else self._kind.view(arrays, dtype)

    def part(self, name: str) -> Part:
        found = self._parts.get(name)
        if found is None:
            raise Error(f"the tensor has no {name} part, only {' and '.join(self._parts)}; quantize with parts=\"both\"")
        return found

    def to(self, device: Any) -> "QTensor":
        """The tensor on a device of torch, such as "cuda:1"; itself where it is there already. The type that it was quantized
        from is its dtype; requantize changes the format."""
        parts = {name: on_device(part, device) for name, part in self._parts.items()}
        groups = self._groups and self._groups._replace(ends=on_device(self._groups.ends, device))
        out = QTensor(self._spec, self._shape, groups, parts, self.dtype, self._device, self._kind)
        if all(new is old for new, old in zip(out._each_array(), self._each_array())):
            return self
        out._descriptor()
        return out

    def __getitem__(self, index: Any) -> "QTensor":
        """A view of an expert, q[i], or of some, q[i:j], of a tensor of three dimensions. Nothing is copied."""
        shape, parts = experts(self._spec, self._shape, self._parts, index)
        out = QTensor(self._spec, shape, None, parts, self.dtype, self._device, self._kind)
        out._descriptor()
        return out

    def grouped(self, groups: Any) -> "QTensor":
        """The rows of a tensor without groups as groups of rows, around the same memory: its rowwise part, which has the same bytes.
        groups: Groups without padding, or their ends."""
        one_number = self.scope == "tensor" or (self.format != "nvfp4" and self.scaling != "tensor")
        part, rows_apart = self.rowwise, self.scaling in ("1x32", "1x16", "1x128", "row", "tensor")
        if self.groups is not None or part is None or len(self.shape) != 2 or self.swizzled or not one_number or not rows_apart:
            raise Error(f"the tensor is {self!r}, whose rows cannot be read as groups; quantize it with groups")
        found = as_groups(groups, self._kind, self._device)
        if found is None or found.alignment[0] != 1:
            raise Error(f"groups is {groups!r}, expected rows without padding; quantize with groups where they are padded")
        return QTensor(self._spec, self._shape, found, {"rowwise": part}, self.dtype, self._device, self._kind)

    @property
    def T(self) -> "Transposed":
        """The transpose, for products: matmul(x, w.T). Nothing is moved. Of experts, mT is meant."""
        if len(self._shape) != 2:
            raise Error(f"T of shape {self.shape} is not defined; mT swaps the rows and columns of each expert")
        return Transposed(self)

    @property
    def mT(self) -> "Transposed":
        """The transpose of the matrix, or of each expert's."""
        return Transposed(self)

    def dequantize(self, dtype: Any = None, *, part: Optional[str] = None, undo_hadamard: bool = True, out: Any = None) -> Any:
        """The values as an array of `dtype`, by default what was quantized: mxq.dequantize(self, dtype, ...)."""
        return Functions.dequantize(self, dtype, part=part, undo_hadamard=undo_hadamard, out=out)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        """The values for numpy.asarray(self), of host memory."""
        import numpy

        if copy is False:
            raise ValueError("the values are not in memory as they are, expected copy=None or copy=True")
        if self.device != "cpu":
            raise Error(f"the tensor is on {self.device}, expected host memory; dequantize it and copy the result to the host")
        values = self.dequantize("float32")
        values = numpy.asarray(values) if hasattr(values, "__array__") else numpy.from_dlpack(values)
        return values.astype(dtype or ("float16" if self.dtype == "float16" else "float32"), copy=False)

    def sqnr(self, x: Any, part: Optional[str] = None) -> float:
        """Decibels between x and what was lost of it: 20 dB are a tenth of the signal, 40 dB a hundredth."""
        return Functions.sqnr(self, x, part)

    def __repr__(self) -> str:
        text = ctypes.create_string_buffer(512)
        handle = self._descriptor()
        lib.mxq_tensor_describe(handle.value, text, len(text))
        elements = count(self.shape)
        bits = f", {8 * self.nbytes / elements:.4g} bits an element" if elements else ""
        return f"QTensor({text.value.decode()}, {self._kind.name} on {device_name(self._device)}{bits})"

    def __getstate__(self) -> Tuple[Any, ...]:
        return (self.spec, self.shape, self.groups, self.parts, self.dtype, self._device, self._kind.name)

    def __setstate__(self, state: Tuple[Any, ...]) -> None:
        spec, shape, groups, parts, dtype, device, kind = state
        self.__init__(spec, shape, groups, parts, dtype, device, kind_named(kind))  # type: ignore[misc]


class Transposed(Operators):
    """The transpose of a quantized tensor, for products. Nothing is moved."""

    __slots__ = ("base",)

    def __init__(self, base: QTensor):
        self.base = base

    @property
    def shape(self) -> Shape:
        of = self.base._shape
        return (*of[:-2], of[-1], of[-2])

    @property
    def T(self) -> QTensor:
        return self.base

    mT = T

    def __repr__(self) -> str:
        return f"{self.base!r}.T"


def _new_part(tensor: int, name: str, sizes: Sizes, kind: Any, device: Device, amax: Any = None, hadamard: Optional[int] = None,
              numbers: Shape = (1,)) -> Part:
    """A part with memory of its own, of which the descriptor is told. amax: one that is given, of the shape `numbers`."""
    codes, scales = kind.empty(sizes.codes, "uint8", device), kind.empty(sizes.scales, sizes.scale_type, device)
    _, _, code_bytes, scale_bytes, amax_bytes, _ = sizes
    check(lib.mxq_tensor_set_part(tensor, PARTS[name], kind.address(codes) if code_bytes else None, code_bytes,
                                  kind.address(scales) if scale_bytes else None, scale_bytes))
    if amax_bytes and amax is None:
        numbers = (amax_bytes // 4,)
        amax = kind.empty(numbers, "float32", device)
    part = Part(codes, scales, amax, None, hadamard)
    if amax is not None or hadamard is not None:
        set_numbers(tensor, name, part, numbers, device)
    return part


def allocate(spec: Spec, shape: Shape, parts: Tuple[str, ...], groups: Optional[Groups], hadamard: Dict[str, int], dtype: str,
             kind: Any, device: Device, amax: Any = None, codes: bool = True) -> Tuple[QTensor, Handle]:
    """A quantized tensor with memory of its own for the named parts, and its descriptor. amax: one that is given, for every part.
    codes: False for scales alone."""
    groups = groups and groups.owned(device)
    handle, numbers = describe(spec, shape, groups, device), number_shape(spec, shape, groups)
    made = {}
    for name in parts:
        sizes = part_sizes(handle.value, spec, shape, name, True) if groups is not None else sizes_without_groups(spec, shape, name)
        if not codes:
            sizes = sizes._replace(codes=(0,), code_bytes=0)
        made[name] = _new_part(handle.value, name, sizes, kind, device, amax, hadamard.get(name), numbers)
    return QTensor(spec, shape, groups, made, dtype, device, kind, handle), handle


class _Recipe:
    """What tensors without groups have in common that agree in spec, shape and parts: sizes, and descriptors that none uses."""

    __slots__ = ("sizes", "idle")

    def __init__(self, spec: Spec, shape: Shape, parts: Tuple[str, ...]):
        self.sizes = [(name, sizes_without_groups(spec, shape, name)) for name in parts]
        self.idle = Idle()


_recipe = functools.lru_cache(maxsize=256)(_Recipe)


def allocate_plainly(spec: Spec, shape: Shape, parts: Tuple[str, ...], dtype: str, kind: Any,
                     device: Device) -> Tuple[QTensor, Handle]:
    """Allocates a tensor without groups, transform and amax that is given, and tells its descriptor. That may have served another
    one before, so the caller adds nothing to it."""
    recipe = _recipe(spec, shape, parts)
    handle = used_before(recipe.idle) or describe(spec, shape, None, device, recipe.idle)
    made = {name: _new_part(handle.value, name, sizes, kind, device) for name, sizes in recipe.sizes}
    return QTensor(spec, shape, None, made, dtype, device, kind, handle), handle
