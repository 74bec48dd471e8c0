"""A module that holds a quantized tensor: it moves with a model, and is in its state_dict."""
import json
from typing import Any, Callable, Dict, Mapping, Optional

import torch
from torch import Tensor

from . import _kind_torch
from ._library import Error
from ._parts import Part, is_list
from ._qtensor import QTensor

_STATE = torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX
_FIELDS = ("codes", "scales", "amax", "decode_scale")


class Weights(torch.nn.Module):
    """A module that holds a quantized tensor of torch as buffers, for a model that uses `weights.q`:

        self.weights = mt.Weights(mxq.quantize(linear.weight, "mxfp4"))
        ...
        y = x @ self.weights.q.T

    q: the tensor, on the device where the module is. module.half() and the like leave its bytes and scales as they are.

    state_dict has a tensor for each array of a part, such as rowwise_codes and rowwise_scales. One more, of bytes, tells format,
    shape and the rest. load_state_dict takes that of a module of the same format and shape; from_state_dict makes the module.
    """

    def __init__(self, q: QTensor):
        super().__init__()
        if not isinstance(q, QTensor) or q._kind is not _kind_torch:
            raise Error(f"q is a {type(q).__name__}, expected a QTensor of torch tensors")
        if q.groups is not None or any(is_list(part.codes) for part in q.parts.values()):
            raise Error(f"q is {q!r}, expected one without groups and lists: weights, with experts in one array")
        self._q = q
        for part_name, part in q.parts.items():
            for name, field in zip(_FIELDS, part):
                if field is not None:
                    self.register_buffer(f"{part_name}_{name}", field)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], prefix: str = "") -> "Weights":
        """The module whose tensors stand in a state_dict under names that begin with the prefix, such as "layer.weights."."""
        if prefix + _STATE not in state:
            raise Error(f"the state has no {prefix + _STATE!r}, expected one with the tensors of a Weights; look at the prefix")
        about = _read(state[prefix + _STATE])
        arguments = {name: about[name] for name in ("format", "scaling", "swizzled", "scope", "scale_max", "dtype")}
        for name, mask in about["parts"].items():
            arguments[name] = _part(state, f"{prefix}{name}_", mask)
        return cls(QTensor.from_parts(shape=tuple(about["shape"]), **arguments))

    @property
    def q(self) -> QTensor:
        parts = {name: _part(self._buffers, f"{name}_", part.hadamard) for name, part in self._q.parts.items()}
        if any(new is not old for name, part in self._q.parts.items() for new, old in zip(parts[name][:4], part[:4])):
            q = self._q
            self._q = QTensor(q.spec, q.shape, None, parts, q.dtype, q._device, _kind_torch)
        return self._q

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Weights":
        """What module.to, cuda and half call for each tensor. Only the device changes: the bytes mean what they are."""
        for name, old in self._buffers.items():
            if old is not None:
                new = fn(old)
                self._buffers[name] = new if new.dtype == old.dtype else old.to(new.device)
        return self

    def get_extra_state(self) -> Tensor:
        q = self._q
        about: Dict[str, Any] = {**q.spec._asdict(), "shape": list(q.shape), "dtype": q.dtype,
                                 "parts": {name: part.hadamard for name, part in q.parts.items()}}
        return torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        if prefix + _STATE in state_dict:
            self.set_extra_state(state_dict[prefix + _STATE])  # refuses before any tensor is written
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[no-untyped-call,unused-ignore]

    def set_extra_state(self, state: Tensor) -> None:
        """Refuses the state of a tensor of another format or shape."""
        own, given = _read(self.get_extra_state()), _read(state)
        for name, value in own.items():
            if given.get(name) != value:
                raise Error(f"the state has {name} {given.get(name)!r}, expected {value!r}, as the module has; "
                            f"Weights.from_state_dict makes a module of any")

    def extra_repr(self) -> str:
        return repr(self.q)


def _part(tensors: Mapping[str, Any], prefix: str, hadamard: Optional[int]) -> Part:
    codes, scales, amax, decode_scale = [tensors.get(prefix + field) for field in _FIELDS]
    return Part(codes, scales, amax, decode_scale, hadamard)


def _read(state: Tensor) -> Dict[str, Any]:
    """What get_extra_state wrote."""
    about: Dict[str, Any] = json.loads(bytes(state.tolist()))
    return about
