"""Where tensors are quantized: in host memory by several threads, or on a CUDA device."""

import os
import threading
from typing import Any, Optional, Tuple

import numpy

from .._context import Context
from .._library import Error


class Cpu:
    """The memory and the context of a thread that quantizes on the CPU. The library uses this thread alone."""

    chunk_bytes = 1 << 22  # what is read at once stays in a core's cache until it is written

    @staticmethod
    def check() -> None:
        """Refuses a device that is not there."""

    def __init__(self) -> None:
        self.context = Context("cpu", threads=1)
        self._buffers: Any = {}

    def buffer(self, name: str, nbytes: int) -> Any:
        """Memory that the next call of the same name takes again."""
        if len(self._buffers.get(name, b"")) < max(nbytes, 1):
            self._buffers[name] = self._new(max(nbytes, 1))
        return self._buffers[name][:nbytes]

    def _new(self, nbytes: int) -> Any:
        return numpy.empty(nbytes, numpy.uint8)

    def floats(self, name: str, shape: Tuple[int, int]) -> Any:
        return self.buffer(name, 4 * shape[0] * shape[1]).view(numpy.float32).reshape(shape)

    def on_device(self, array: Any) -> Any:
        """An array of host memory as the library takes it on this device."""
        return array

    def host(self, array: Any) -> Any:
        return array

    def filled(self, shape: Tuple[int, ...], byte: int) -> Any:
        return numpy.full(shape, byte, numpy.uint8)

    def rows(self, array: Any) -> Any:
        """Rows that may be columns of what was read, without gaps."""
        return numpy.ascontiguousarray(array)

    def sums(self, given: Any, back: Any, limit: Any) -> Tuple[float, float, int]:
        """The squares of `given`, those of its difference to `back`, and how many magnitudes are above `limit`. Changes all."""
        double: Any = {"dtype": numpy.float64}  # squares of float32 underflow; a dot product would use threads of its own
        signal = numpy.einsum("ij,ij->i", given, given, **double).sum()
        numpy.subtract(given, back, out=back)
        noise = numpy.einsum("ij,ij->i", back, back, **double).sum()
        return float(signal), float(noise), int(numpy.count_nonzero(numpy.abs(given, out=given) > limit))


class Cuda(Cpu):
    """The memory, the stream and the context of a thread that quantizes on a CUDA device. torch has the device's memory."""

    chunk_bytes = 1 << 25
    _device = "cuda"

    @staticmethod
    def check() -> None:
        try:
            import torch
        except ImportError:
            raise Error(
                "--device cuda: expected the package torch, whose tensors are in the device's memory, found none"
            ) from None
        if not torch.cuda.is_available():
            raise Error("--device cuda: expected a CUDA device, found none that torch sees")
        Context("cuda")

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self._buffers: Any = {}
        self.context = self._open()

    def _open(self) -> Context:
        self._torch.cuda.set_stream(self._torch.cuda.Stream())  # of this thread
        return Context("cuda")

    def _new(self, nbytes: int) -> Any:
        return self._torch.empty(nbytes, dtype=self._torch.uint8, pin_memory=self._device == "cuda").numpy()

    def floats(self, name: str, shape: Tuple[int, int]) -> Any:
        return self._torch.empty(shape, dtype=self._torch.float32, device=self._device)

    def on_device(self, array: Any) -> Any:
        torch = self._torch
        data = torch.from_numpy(array.reshape(-1).view(numpy.uint8)).to(self._device, non_blocking=True)
        return data.view(getattr(torch, array.dtype.name)).reshape(array.shape)

    def host(self, array: Any) -> Any:
        """A numpy array of the same bytes; bits for BF16, which torch does not hand to numpy."""
        torch = self._torch
        return (array.view(torch.int16) if array.dtype is torch.bfloat16 else array).cpu().numpy()

    def filled(self, shape: Tuple[int, ...], byte: int) -> Any:
        return self._torch.full(shape, byte, dtype=self._torch.uint8, device=self._device)

    def rows(self, array: Any) -> Any:
        return array.contiguous()

    def sums(self, given: Any, back: Any, limit: Any) -> Tuple[float, float, int]:
        noise = (given.double() - back.double()).square().sum()
        return float(given.double().square().sum()), float(noise), int((given.abs() > limit).sum())


KINDS = {"cpu": Cpu, "cuda": Cuda}


class Device:
    """Gives each thread its own Cpu or Cuda."""

    def __init__(self, name: str, threads: int = 0) -> None:
        """threads: by default one for each core; for CUDA at most 8, which read and write files."""
        KINDS[name].check()
        cores = len(os.sched_getaffinity(0))
        self.threads = threads or (cores if name == "cpu" else min(8, cores))
        self.chunk_bytes = KINDS[name].chunk_bytes
        self._kind, self._local = KINDS[name], threading.local()

    @property
    def here(self) -> Cpu:
        """That of the calling thread."""
        found: Optional[Cpu] = getattr(self._local, "device", None)
        if found is None:
            found = self._local.device = self._kind()
        return found
