"""Opens libmxq and turns its refusals into exceptions."""
import ctypes
import os
from pathlib import Path
from typing import Any, List, NoReturn, Optional

from . import _raw

_STATUS_NAMES = {value: name.upper() for name, value in _raw.FAMILIES["mxq_status"].items()}


class Error(RuntimeError):
    """What libmxq refuses. `code` is the name of the status, such as "SHAPE_MISMATCH"; the text is the library's message."""

    def __init__(self, message: str, code: str = "INVALID_ARGUMENT"):
        super().__init__(message)
        self.code = code


def _open() -> ctypes.CDLL:
    """Opens the file that MXQ_LIBRARY names, or the one of this package, or else the system's."""
    inside = Path(__file__).with_name("libmxq.so.0")
    path = os.environ.get("MXQ_LIBRARY") or (str(inside) if inside.exists() else "libmxq.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"mxq: cannot open libmxq ({error}). Install the mxq wheel, which has it inside, install libmxq, or name its file "
            f"in the environment variable MXQ_LIBRARY"
        ) from None
    found = library.mxq_version()
    if found // 100 != _raw.MXQ_VERSION // 100:
        raise ImportError(f"mxq: {path} has version {found}, but this package is for version {_raw.MXQ_VERSION}")
    for name, (result, parameters) in _raw.PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, parameters
    return library


lib: Any = _open()


def raise_last(status: int) -> NoReturn:
    raise Error(lib.mxq_last_error().decode(), _STATUS_NAMES.get(status, str(status)))


def check(status: int) -> None:
    if status:
        raise_last(status)


class Idle(List[int]):
    """Descriptors of tensors of one kind that no object owns now, for the next ones."""

    MOST = 8
    _destroy = staticmethod(lib.mxq_tensor_destroy)

    def __del__(self) -> None:
        for address in self:
            self._destroy(address)


class Handle:
    """Owns a C handle and destroys it with the object. `value` is its address. `keep`: what its pointers need. idle: where the
    handle goes instead, while there is room. Whoever takes it from there sets its memory again."""

    __slots__ = ("value", "keep", "_destroy", "_idle")
    keep: Any

    def __init__(self, address: int, destroy: Any, idle: Optional[Idle] = None):
        self.value, self._destroy, self._idle = address, destroy, idle

    def __del__(self) -> None:
        idle = self._idle
        if idle is not None and len(idle) < Idle.MOST:
            idle.append(self.value)
        else:
            self._destroy(self.value)


def version() -> str:
    """The version of the library that was opened, such as "0.2.0"."""
    text: str = lib.mxq_version_string().decode()
    return text


def build() -> str:
    """What the library was built with, such as "GCC 12.2.0, without CUDA"."""
    text: str = lib.mxq_build_string().decode()
    return text
