"""Contexts: one for each device, made when it is first needed, or the caller's own."""
import contextvars
import ctypes
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _raw
from ._library import Error, Handle, check, lib
from ._memory import CPU, Device, device_name

ParallelFor = Callable[[int, Callable[[int], None]], Any]


class Context:
    """A device that functions run on, with options of your own:

        context = mxq.Context("cpu", threads=4)
        q = mxq.quantize(x, context=context)     # this call
        with context:                            # all calls of this thread until the end of the block, q @ w.T too
            ...

    Without one, functions use a context of their own for the device of their arrays.

    device, ordinal: "cpu", or "cuda" and which one.
    threads: of the CPU, the calling one included; 0 is as many as the process may use.
    own_threads: the threads are not shared with other contexts.
    parallel_for: runs the work on threads of yours: parallel_for(count, task) calls task(i) for each i below count, on any
        threads, and returns when all have returned, such as lambda count, task: list(pool.map(task, range(count))).
    cublaslt: the file of the cuBLASLt that products on CUDA may use.
    """

    def __init__(self, device: str = "cpu", ordinal: int = 0, *, threads: int = 0, own_threads: bool = False,
                 parallel_for: Optional[ParallelFor] = None, cublaslt: str = ""):
        types = _raw.FAMILIES["mxq_device"]
        if device not in types:
            raise Error(f"device is {device!r}, expected one of {', '.join(types)}")
        self._device: Device = (types[device], ordinal)
        options = ctypes.c_void_p()
        check(lib.mxq_context_options_create(options))
        try:
            if threads:
                check(lib.mxq_context_options_set_threads(options, threads))
            if own_threads:
                check(lib.mxq_context_options_set_own_threads(options, 1))
            if parallel_for is not None:
                self._parallel_for = _parallel_for(parallel_for)
                check(lib.mxq_context_options_set_parallel_for(options, self._parallel_for, None))
            if cublaslt:
                check(lib.mxq_context_options_set_cublaslt_path(options, cublaslt.encode()))
            handle = ctypes.c_void_p()
            check(lib.mxq_context_create(self._device[0], ordinal, options, handle))
        finally:
            lib.mxq_context_options_destroy(options)
        self._handle = Handle(handle.value or 0, lib.mxq_context_destroy)
        self.address = self._handle.value

    def __enter__(self) -> "Context":
        _entered.set((self, _entered.get()))
        for enter, _ in followers:
            enter(*self._device, self.address)
        return self

    def __exit__(self, *exception: Any) -> None:
        entered = _entered.get()
        if entered is not None:
            _entered.set(entered[1])
        for _, leave in followers:
            leave(self.address)

    @property
    def device(self) -> str:
        """ "cpu", or "cuda:0" with the ordinal."""
        return device_name(self._device)

    @property
    def description(self) -> str:
        """One line about the device, such as "CPU, 8 threads, avx2"."""
        text: str = lib.mxq_context_description(self.address).decode()
        return text

    @property
    def cublaslt(self) -> str:
        """One line about the cuBLASLt that products may use, or why there is none."""
        text: str = lib.mxq_context_cublaslt(self.address).decode()
        return text

    def __repr__(self) -> str:
        return f"Context({self.description})"


def _parallel_for(run: ParallelFor) -> Any:
    """A C callback that calls a function of Python. Tasks that an exception leaves out are run by the library."""

    def call(user: Optional[int], count: int, task: Any, data: Optional[int]) -> None:
        run(count, lambda index: task(data, index))

    return _raw.mxq_parallel_for(call)


_contexts: Dict[Device, Context] = {}
_lock = threading.Lock()
_Entered = Optional[Tuple[Context, Any]]  # the innermost context, and those around it
_entered: "contextvars.ContextVar[_Entered]" = contextvars.ContextVar("mxq", default=None)
# Pairs of functions of compiled libraries. A `with` block calls the first with (device type, ordinal, address of the context) as it
# begins, and the second with (address) as it ends.
followers: List[Tuple[Callable[..., None], Callable[..., None]]] = []


def entered_contexts() -> List[Context]:
    """The contexts of the `with` blocks around this call, the outermost first."""
    found: List[Context] = []
    entered = _entered.get()
    while entered is not None:
        found.insert(0, entered[0])
        entered = entered[1]
    return found


def context_for(device: Device, given: Optional[Context] = None) -> Context:
    """The context of a device: the caller's own, which must be of that device, or the innermost one of a `with` block."""
    if given is not None:
        if not isinstance(given, Context):
            raise Error(f"context is {given!r}, expected a Context, such as mxq.Context(\"cpu\", threads=4)")
        if given._device != device:
            raise Error(f"the arrays are on {device_name(device)}, but the context is of {device_name(given._device)}")
        return given
    entered = _entered.get()
    while entered is not None:
        if entered[0]._device == device:
            return entered[0]
        entered = entered[1]
    found = _contexts.get(device)
    if found is None:
        with _lock:
            found = _contexts.get(device)
            if found is None:
                found = _contexts[device] = Context("cpu" if device[0] == CPU else "cuda", device[1])
    return found
