"""Groups of rows, such as the tokens of each expert."""
from typing import Any, NamedTuple, Optional, Tuple

from . import _raw
from ._arguments import integer
from ._arrays import dense, kind_of
from ._library import Error, check, lib
from ._memory import HOST, Device, Memory, same_device


class Groups(NamedTuple):
    """Groups of rows: `ends[g]` is one past the last row of group g. Their number, not their size, is known to the host.

    ends: int32 or int64 on the device of the tensor, or a list. A quantized tensor copies them from host memory. On a CUDA device
        it keeps the array itself, since the library knows the same groups there by the address of their ends: leave them as they
        are while the tensor lives.
    alignment: rows, and columns of columnwise codes, that each group is padded to a multiple of; 0 is the least that the format
        takes.
    cover_rows: every row belongs to a group, which the CPU then checks.
    host_ends: the same ends in host memory, or a list, for products on CUDA devices. A quantized tensor copies them.
    """

    ends: Any
    alignment: Tuple[int, int] = (1, 0)
    cover_rows: bool = False
    host_ends: Any = None

    def on(self, kind: Any, device: Device) -> "Groups":
        """The groups with ends that are an array on the device, and host_ends that are one in host memory."""
        ends, host = self.ends, self.host_ends
        if isinstance(ends, (list, tuple)):
            ends = kind.make(_listed(ends, "groups.ends"), "int32", device)
        if isinstance(host, (list, tuple)):
            dtype = kind_of(ends, "groups.ends").memory(ends, "groups.ends").dtype
            host = kind.make(_listed(host, "groups.host_ends"), dtype, HOST)
        return self._replace(ends=ends, host_ends=host, alignment=alignments(self.alignment, "groups.alignment"))

    def owned(self, device: Device) -> "Groups":
        """The groups with copies of all ends in host memory."""
        ends = kind_of(self.ends, "groups.ends").copy(self.ends) if device == HOST else self.ends
        host = self.host_ends
        return self._replace(ends=ends, host_ends=None if host is None else kind_of(host, "groups.host_ends").copy(host))


def alignments(given: Any, what: str) -> Tuple[int, int]:
    """Alignments of rows and of columns, from the pair or from that of rows alone."""
    pair = given if isinstance(given, (tuple, list)) else (given, 0)
    if len(pair) != 2:
        raise Error(f"{what} is {given!r}, expected the alignment of rows, or (rows, columns of columnwise codes)")
    remedy = ": a power of two"
    return integer(pair[0], what, 1, 128, remedy), integer(pair[1], what, 0, 128, remedy + ", or 0 for the least")


def _listed(ends: Any, what: str) -> Any:
    most = 2**31 - 1
    remedy = ": one past the last row of each group; larger ends need an array of int64"
    return [integer(end, f"{what}[{i}]", 0, most, remedy) for i, end in enumerate(ends)]


def as_groups(groups: Any, kind: Any, device: Device) -> Optional[Groups]:
    if groups is None:
        return None
    return (groups if isinstance(groups, Groups) else Groups(groups)).on(kind, device)


class Padded(NamedTuple):
    """A plain tensor whose groups are padded to their alignment: the stored rows, and how many rows there are without padding.

    starts, ends: the first stored row of each group, and the one past its last with its padding.
    """

    values: Any
    rows: int
    groups: Groups
    starts: Any = None
    ends: Any = None


def _ends(array: Any, what: str) -> Tuple[Memory, int, int]:
    memory = dense(array, what)
    types = {"int32": (_raw.MXQ_TYPE_INT32, 4), "int64": (_raw.MXQ_TYPE_INT64, 8)}
    if memory.dtype not in types or len(memory.shape) != 1:
        raise Error(f"{what} has shape {memory.shape} and dtype {memory.dtype}, expected one dimension of int32 or int64")
    if memory.shape[0] == 0:
        raise Error(f"{what} is empty, expected one end for each group; pass None where there are no groups")
    return memory, types[memory.dtype][0], types[memory.dtype][1] * memory.shape[0]


def set_groups(tensor: int, groups: Groups, device: Device) -> None:
    """Gives a descriptor its groups."""
    memory, type_, size = _ends(groups.ends, "groups.ends")
    same_device(memory, device, "groups.ends")
    check(lib.mxq_tensor_set_groups(tensor, memory.address or None, size, type_, memory.shape[0]))
    if groups.alignment != (1, 0):
        check(lib.mxq_tensor_set_group_alignment(tensor, *groups.alignment))
    if groups.cover_rows:
        check(lib.mxq_tensor_set_groups_cover_rows(tensor, 1))
    if groups.host_ends is not None:
        host, _, size = _ends(groups.host_ends, "groups.host_ends")
        check(lib.mxq_tensor_set_host_ends(tensor, host.address, size))


def group_count(groups: Groups) -> int:
    memory: Memory = kind_of(groups.ends, "groups.ends").memory(groups.ends, "groups.ends")
    return memory.shape[0]
