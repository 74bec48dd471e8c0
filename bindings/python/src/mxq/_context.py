"""Contexts: one for each device, made when it is first needed, or the caller's own."""
import ctypes
import threading
from typing import Dict, Optional

from . import _raw
from ._arrays import CPU, CUDA, Device
from ._library import Error, Handle, check, lib


class Context:
    """A device that verbs run on: Context("cpu", threads=4) or Context("cuda", 1). Verbs make one by themselves for the device
    of their arrays; one of your own chooses how many threads work, for instance."""

    def __init__(self, device: str = "cpu", ordinal: int = 0, *, threads: int = 0, own_threads: bool = False, cublaslt: str = ""):
        types = _raw.FAMILIES["mxq_device"]
        if device not in types:
            raise Error(f"device is {device!r}, expected one of {', '.join(types)}")
        self.device: Device = (types[device], ordinal)
        options = ctypes.c_void_p()
        check(lib.mxq_context_options_create(options))
        try:
            if threads:
                check(lib.mxq_context_options_set_threads(options, threads))
            if own_threads:
                check(lib.mxq_context_options_set_own_threads(options, 1))
            if cublaslt:
                check(lib.mxq_context_options_set_cublaslt_path(options, cublaslt.encode()))
            handle = ctypes.c_void_p()
            check(lib.mxq_context_create(self.device[0], ordinal, options, handle))
        finally:
            lib.mxq_context_options_destroy(options)
        self._handle = Handle(handle, lib.mxq_context_destroy)
        self.address = self._handle.value

    @property
    def description(self) -> str:
        """One line about the device, such as "CPU, 8 threads, avx2"."""
        return lib.mxq_context_description(self.address).decode()

    @property
    def cublaslt(self) -> str:
        """One line about the cuBLASLt that products may use, or why there is none."""
        return lib.mxq_context_cublaslt(self.address).decode()

    def __repr__(self) -> str:
        return f"Context({self.description})"


_contexts: Dict[Device, Context] = {}
_lock = threading.Lock()


def context_for(device: Device, given: Optional[Context] = None) -> Context:
    """The context of a device; the caller's own if there is one, which must be of that device."""
    if given is not None:
        if given.device != device:
            raise Error(f"the arrays are on {place(device)}, but the context is of {place(given.device)}")
        return given
    found = _contexts.get(device)
    if found is None:
        with _lock:
            found = _contexts.get(device)
            if found is None:
                found = _contexts[device] = Context("cpu" if device[0] == CPU else "cuda", device[1])
    return found


def place(device: Device) -> str:
    return "cpu" if device[0] == CPU else f"cuda:{device[1]}" if device[0] == CUDA else str(device)


