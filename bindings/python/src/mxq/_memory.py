"""Devices, and the memory of an array of any library."""
import functools
from typing import Any, NamedTuple, Tuple

from ._library import Error

CPU, CUDA = 1, 2  # MXQ_DEVICE_*, which are DLPack's

Shape = Tuple[int, ...]
Device = Tuple[int, int]  # type and ordinal
HOST: Device = (CPU, 0)


class Memory(NamedTuple):
    """The memory of the elements of an array. Strides count elements. `owner` keeps the memory alive.

    gapless: the strides are those of a row-major array without gaps.
    """

    owner: Any
    address: int
    shape: Shape
    strides: Tuple[int, ...]
    dtype: str
    device: Device
    read_only: bool
    gapless: bool


@functools.lru_cache(maxsize=256)
def compact(shape: Shape) -> Tuple[int, ...]:
    """The strides of a row-major array without gaps."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_gapless(shape: Shape, strides: Tuple[int, ...]) -> bool:
    return 0 in shape or all(size == 1 or got == want for size, got, want in zip(shape, strides, compact(shape)))


def count(shape: Shape) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def device_name(device: Device) -> str:
    """ "cpu", or "cuda:0" with the ordinal."""
    return "cpu" if device[0] == CPU else f"cuda:{device[1]}"


def same_device(memory: Memory, device: Device, what: str) -> None:
    if memory.device != device:
        raise Error(f"{what} is on {device_name(memory.device)}, expected {device_name(device)}, where the rest is; copy it there")
