"""A call of a verb: prepared once, then run, or asked for its plan."""
import ctypes
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

from . import _raw
from ._arrays import CUDA, Device, Plain
from ._context import Context, context_for
from ._library import Handle, check, lib, raise_last
from ._qtensor import new_tensor

_BOUNDS = {value: name for name, value in _raw.FAMILIES["mxq_bound"].items()}
Function = TypeVar("Function", bound=Callable[..., Any])
Options = List[Tuple[str, Tuple[Any, ...]]]  # the setters that are called, with their values


class Plan(NamedTuple):
    """How a call would run: the implementation, why no better one takes it, device bytes of workspace, and for a product the
    class of bound that its error keeps."""

    implementation: str
    reason: str
    workspace_bytes: int
    bound: str


class Call:
    """context, options, tensors: what the C function gets. keep: what must live until it has run. finish: makes the result."""

    __slots__ = ("verb", "context", "options", "tensors", "device", "kind", "keep", "finish")

    def __init__(self, verb: str, context: Optional[Context], options: Optional[Handle], tensors: Tuple[int, ...], device: Device,
                 kind: Any, keep: Any, finish: Callable[[], Any]):
        self.verb, self.context = verb, context_for(device, context)
        self.options, self.tensors, self.device, self.kind, self.keep, self.finish = options, tensors, device, kind, keep, finish

    def run(self) -> Any:
        options = self.options.value if self.options else None
        workspace, size = None, 0
        if self.device[0] == CUDA:
            plan = self._query()
            size = lib.mxq_plan_workspace_bytes(plan)
            lib.mxq_plan_destroy(plan)
            if size:
                memory = self.kind.empty((size + 255,), "uint8", self.device)
                self.keep = (self.keep, memory)
                workspace = -(-memory.data_ptr() // 256) * 256
        status = getattr(lib, self.verb)(self.context.address, options, *self.tensors, workspace, size, self.kind.stream(self.device))
        if status:
            raise_last(status)
        return self.finish()

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
    handle = Handle(address, getattr(lib, f"mxq_{family}_options_destroy"))
    for name, values in setters:
        check(getattr(lib, f"mxq_{family}_options_set_{name}")(handle.value, *values))
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
    from ._library import Error

    prepare = VERBS.get(function)
    if prepare is None:
        known = ", ".join(f"mxq.{known.__name__}" for known in VERBS)
        raise Error(f"plan got {function!r}, expected one of {known}")
    return prepare(*arguments, **options).plan()
