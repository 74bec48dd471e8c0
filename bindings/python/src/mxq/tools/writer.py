"""Writes checkpoints: a file or a folder is complete under its name, or not there.

Everything is written into a folder NAME.partial, which gets its name at the end. An interrupted run leaves it, and the next
run of the same recipe goes on behind the tensors that are complete.
"""

import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy

from .reader import BITS, open_file, read_json, refuse

_RECIPE = "recipe.json"
_ROWS = ".rows.json"


class Output(NamedTuple):
    """A tensor that a file will have."""

    name: str
    dtype: str
    shape: Tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(numpy.prod(self.shape, dtype=object)) * BITS[self.dtype] // 8


def write_json(path: Path, value: Any) -> None:
    """Writes JSON under another name, then gives it its name."""
    part = path.with_name(path.name + ".part")
    with open(part, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


class FileWriter:
    """Writes a .safetensors file tensor by tensor, or chunk by chunk from several threads, in any order. The header is written
    first, so memory holds no tensor.

    Tensors of wide elements come first, so that each is aligned to its elements.
    """

    def __init__(self, path: Path, outputs: Sequence[Output], metadata: Dict[str, str]):
        """Takes up what an interrupted run wrote under the name of a part, if that has the same header."""
        self.path, self._part = path, path.with_name(path.name + ".part")
        header: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        self._offsets: Dict[str, Tuple[int, int]] = {}
        end = 0
        for output in sorted(outputs, key=lambda output: (-BITS[output.dtype], output.name)):
            if output.name in self._offsets:
                refuse(path, f"tensor {output.name!r}", "a name that is written once", "it twice")
            begin, end = end, end + output.nbytes
            header[output.name] = {"dtype": output.dtype, "shape": list(output.shape), "data_offsets": [begin, end]}
            self._offsets[output.name] = begin, end
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
        text += b" " * (-len(text) % 8)
        text = len(text).to_bytes(8, "little") + text
        self._start, self._missing = len(text), {name: end - begin for name, (begin, end) in self._offsets.items()}
        self._lock, self._file = threading.Lock(), os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.resumed = os.fstat(self._file).st_size == self._start + end and os.pread(self._file, len(text), 0) == text
        if not self.resumed:
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, self._start + end)

    def add(self, name: str, array: "numpy.ndarray[Any, Any]") -> None:
        """Writes a whole tensor."""
        begin, end = self._offsets.get(name, (0, 0))
        if self._missing.get(name) == end - begin != array.nbytes:
            refuse(self.path, f"tensor {name!r}", f"{end - begin} bytes", array.nbytes)
        self.add_chunk(name, 0, array)

    def add_chunk(self, name: str, offset: int, array: "numpy.ndarray[Any, Any]") -> None:
        """Writes bytes of a tensor from its byte `offset` on. Each byte is written once."""
        with self._lock:
            if name not in self._missing:
                refuse(self.path, f"tensor {name!r}", "a tensor that the header has and that is not yet written", "it")
            if offset + array.nbytes > self._offsets[name][1] - self._offsets[name][0] or array.nbytes > self._missing[name]:
                refuse(self.path, f"tensor {name!r}", f"{self._missing[name]} more bytes", f"{array.nbytes} from {offset} on")
            self._count(name, array.nbytes)
        begin, data = self._start + self._offsets[name][0] + offset, numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
        done = 0
        while done < data.size:
            done += os.pwrite(self._file, data[done:].data, begin + done)

    def _count(self, name: str, nbytes: int) -> None:
        self._missing[name] -= nbytes
        if not self._missing[name]:
            del self._missing[name]

    def skip(self, name: str) -> None:
        """Counts a tensor as written, which an interrupted run wrote."""
        self._count(name, self._missing[name])

    def flush(self, name: str) -> None:
        """Tells the system that a tensor can go to the disk."""
        begin, end = self._offsets[name]
        os.posix_fadvise(self._file, self._start + begin, end - begin, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Waits until the disk has what was written, and frees the system's memory for it."""
        os.fdatasync(self._file)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def finish(self) -> None:
        """Gives the file its name. All tensors must have been written."""
        if self._missing:
            refuse(
                self.path,
                f"tensor {sorted(self._missing)[0]!r}",
                "its bytes",
                f"{self._missing[sorted(self._missing)[0]]} missing",
            )
        os.fsync(self._file)
        self.close()
        os.replace(self._part, self.path)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


class Folder:
    """The folder of a checkpoint that is being written."""

    def __init__(self, out: Path, recipe: Dict[str, Any]):
        """recipe: what is made from what. A folder of an interrupted run is taken up if it has the same."""
        if out.name in ("", "..") or os.path.lexists(out):  # "." has no name
            refuse(out, "output", "a name that is not taken", "a file or folder; remove it, or choose another name")
        self.out, self.part = out, out.with_name(out.name + ".partial")
        self.part.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.part / "lock", "wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse(self.part, "output", "no other run that writes it", "one")
        path = self.part / _RECIPE
        if path.exists() and read_json(path) != json.loads(json.dumps(recipe)):
            refuse(
                self.part,
                "interrupted run",
                "one of the same input and options",
                "another; remove the folder, or take its options",
            )
        write_json(path, recipe)

    def rows(self, name: str) -> Optional[List[Dict[str, Any]]]:
        """What an earlier run reported of a file that it completed, or None."""
        return self._saved(name) if (self.part / name).exists() else None

    def _saved(self, name: str) -> Optional[List[Dict[str, Any]]]:
        path = self.part / (name + _ROWS)
        rows: Optional[List[Dict[str, Any]]] = read_json(path)["rows"] if path.exists() else None
        return rows

    def file(self, name: str, outputs: Sequence[Output], metadata: Dict[str, str]) -> Tuple[FileWriter, List[Dict[str, Any]]]:
        """A file to write, and what an interrupted run reported of the tensors of it that it wrote."""
        writer = FileWriter(self.part / name, outputs, metadata)
        return writer, (self._saved(name) or []) if writer.resumed else []

    def save(self, writer: FileWriter, rows: List[Dict[str, Any]]) -> None:
        """Keeps what is reported of a file so far for a run that goes on from here, once the disk has the tensors themselves."""
        writer.sync()
        write_json(writer.path.with_name(writer.path.name + _ROWS), {"rows": rows})

    def complete(self, writer: FileWriter, rows: List[Dict[str, Any]]) -> None:
        """Finishes a file, and keeps what is reported of it."""
        self.save(writer, rows)
        writer.finish()

    def finish(self, index: str = "") -> None:
        """Writes the index of the files under a name, if there is one, and gives the folder its name."""
        written = sorted(self.part.glob("*.safetensors"))
        if index:
            entries = [(entry, path.name) for path in written for entry in open_file(path).entries.values()]
            weight_map = {entry.name: file for entry, file in sorted(entries, key=lambda pair: pair[0].name)}
            write_json(
                self.part / index,
                {"metadata": {"total_size": sum(entry.nbytes for entry, _ in entries)}, "weight_map": weight_map},
            )
        own: Set[Path] = {self.part / _RECIPE, self.part / "lock", *(path.with_name(path.name + _ROWS) for path in written)}
        for path in own:
            path.unlink()
        if os.path.lexists(self.out):
            refuse(self.out, "output", "a name that is not taken", "a file or folder that came meanwhile")
        os.rename(self.part, self.out)
        self.close()

    def close(self) -> None:
        self._lock.close()
