"""A call of a verb: prepared once, then run, or asked for its plan."""
import ctypes
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple, TypeVar

from . import _raw
from ._arrays import Plain
from ._context import Context, context_for
from ._descriptors import new_tensor, plain_descriptor
from ._library import Error, Handle, check, lib, raise_last
from ._memory import CUDA, Device

_BOUNDS = {value: name for name, value in _raw.FAMILIES["mxq_bound"].items()}
Function = TypeVar("Function", bound=Callable[..., Any])
Options = List[Tuple[str, Tuple[Any, ...]]]  # the setters that are called, with their values


class Plan(NamedTuple):
    """How a call would run: the implementation, why no better one takes it, and device bytes of workspace. bound: the class of the
    error bound of a product."""

    implementation: str
    reason: str
    workspace_bytes: int
    bound: str


_with_workspace: Set[str] = set()  # verbs whose last call on a CUDA device needed a workspace


class Call:
    """context, options, tensors: what the C function gets. keep: what must live until it has run. finish: makes the result."""

    __slots__ = ("verb", "context", "options", "tensors", "device", "kind", "keep", "finish")

    def __init__(self, verb: str, context: Optional[Context], options: Optional[Handle], tensors: Tuple[int, ...], device: Device,
                 kind: Any, keep: Any, finish: Callable[[], Any]):
        self.verb, self.context = verb, context_for(device, context)
        self.options, self.tensors, self.device, self.kind, self.keep, self.finish = options, tensors, device, kind, keep, finish

    def run(self) -> Any:
        function, stream = getattr(lib, self.verb), self.kind.stream(self.device)
        options = self.options.value if self.options else None
        if self.device[0] != CUDA:
            status = function(self.context.address, options, *self.tensors, None, 0, stream)
        else:
            status = self._run_on_cuda(function, options, stream)
        if status:
            raise_last(status)
        return self.finish()

    def _run_on_cuda(self, function: Any, options: Optional[int], stream: Optional[int]) -> int:
        """Calls the function with the workspace that it needs. It is asked only where it, or the last call of the verb, needed
        some: the library refuses a missing one before it does anything."""
        if self.verb not in _with_workspace:
            status: int = function(self.context.address, options, *self.tensors, None, 0, stream)
            if status != _raw.MXQ_STATUS_BUFFER_TOO_SMALL:
                return status
        plan = self._query()
        size = lib.mxq_plan_workspace_bytes(plan)
        lib.mxq_plan_destroy(plan)
        (_with_workspace.add if size else _with_workspace.discard)(self.verb)
        workspace = None
        if size:
            memory = self.kind.empty((size + 255,), "uint8", self.device)
            self.keep = (self.keep, memory)
            workspace = -(-memory.data_ptr() // 256) * 256
        status = function(self.context.address, options, *self.tensors, workspace, size, stream)
        return status

    def _query(self) -> ctypes.c_void_p:
        """The plan of the library, for the caller to destroy."""
        plan = ctypes.c_void_p()
        options = self.options.value if self.options else None
        check(getattr(lib, self.verb + "_query")(self.context.address, options, *self.tensors, ctypes.byref(plan)))
        return plan

    def plan(self) -> Plan:
        plan = self._query()
        try:
            return Plan(lib.mxq_plan_implementation(plan).decode(), lib.mxq_plan_reason(plan).decode(),
                        lib.mxq_plan_workspace_bytes(plan), _BOUNDS[lib.mxq_plan_bound(plan)])
        finally:
            lib.mxq_plan_destroy(plan)


def make_options(family: str, setters: Options) -> Optional[Handle]:
    """Options with these setters called, "quantize" or "gemm"; None where there are none, which means all defaults."""
    if not setters:
        return None
    address = ctypes.c_void_p()
    check(getattr(lib, f"mxq_{family}_options_create")(address))
    handle = Handle(address.value or 0, getattr(lib, f"mxq_{family}_options_destroy"))
    for name, values in setters:
        check(getattr(lib, f"mxq_{family}_options_set_{name}")(handle.value, *values))
    return handle


def plain_source(plain: Plain, what: str) -> Handle:
    """The descriptor of a plain tensor that is read, to which the caller adds nothing."""
    if plain.row_stride != plain.shape[-1] or plain.experts is not None:
        return plain_tensor(plain, what)
    handle = plain_descriptor(plain.format, plain.shape)
    check(lib.mxq_tensor_set_const_data(handle.value, plain.memory.address if plain.bytes else None, plain.bytes))
    return handle


def plain_tensor(plain: Plain, what: str, written: bool = False) -> Handle:
    """The descriptor of a plain tensor with its memory."""
    handle = new_tensor(plain.format, plain.shape)
    if plain.experts is not None:
        handle.keep = plain
    if plain.row_stride != plain.shape[-1]:
        check(lib.mxq_tensor_set_row_stride(handle.value, plain.row_stride))
    set_plain_data(handle.value, plain, written)
    return handle


def set_plain_data(tensor: int, plain: Plain, written: bool) -> None:
    if plain.experts is not None:
        check(lib.mxq_tensor_set_data_list(tensor, plain.shape[0], plain.experts.address, plain.bytes))
        return
    read_only = plain.memory.read_only or not written
    setter = lib.mxq_tensor_set_const_data if read_only else lib.mxq_tensor_set_data
    check(setter(tensor, plain.memory.address if plain.bytes else None, plain.bytes))


VERBS: Dict[Any, Callable[..., Call]] = {}  # a public function to the one that prepares its call


def verb(prepare: Callable[..., Call]) -> Callable[[Function], Function]:
    """Registers how the call of a public function is prepared, so that mxq.plan can ask instead of run."""

    def register(function: Function) -> Function:
        VERBS[function] = prepare
        return function

    return register


def plan(function: Any, *arguments: Any, **options: Any) -> Plan:
    """How a call would run, without running it: plan(mxq.matmul, a, b.T) for mxq.matmul(a, b.T)."""
    prepare = VERBS.get(function)
    if prepare is None:
        known = ", ".join(f"mxq.{known.__name__}" for known in VERBS)
        raise Error(f"plan got {function!r}, expected one of {known}")
    return prepare(*arguments, **options).plan()
