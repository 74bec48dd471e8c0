"""Writes checkpoints: a file or a folder is complete under its name, or not there.

Everything is written into a folder NAME.partial, which gets its name at the end. An interrupted run leaves it, and the next
run of the same recipe goes on behind the files that are complete.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy

from .reader import BITS, INDEX_NAME, open_file, read_json, refuse

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
    """Writes a .safetensors file tensor by tensor, in any order. The header is written first, so memory holds no tensor.

    Tensors of wide elements come first, so that each is aligned to its elements.
    """

    def __init__(self, path: Path, outputs: Sequence[Output], metadata: Dict[str, str]):
        self.path, self._part = path, path.with_name(path.name + ".part")
        header: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        self._places: Dict[str, Tuple[int, int]] = {}
        end = 0
        for output in sorted(outputs, key=lambda output: (-BITS[output.dtype], output.name)):
            if output.name in self._places:
                refuse(path, f"tensor {output.name!r}", "a name that is written once", "it twice")
            begin, end = end, end + output.nbytes
            header[output.name] = {"dtype": output.dtype, "shape": list(output.shape), "data_offsets": [begin, end]}
            self._places[output.name] = begin, end
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
        text += b" " * (-len(text) % 8)
        self._start, self._missing = 8 + len(text), set(self._places)
        self._file: BinaryIO = open(self._part, "wb")
        self._file.write(len(text).to_bytes(8, "little") + text)
        self._file.truncate(self._start + end)

    def add(self, name: str, array: "numpy.ndarray[Any, Any]") -> None:
        """Writes the bytes of a tensor to their place."""
        if name not in self._missing:
            refuse(self.path, f"tensor {name!r}", "a tensor that the header has and that is not yet written", "it")
        begin, end = self._places[name]
        if array.nbytes != end - begin:
            refuse(self.path, f"tensor {name!r}", f"{end - begin} bytes", array.nbytes)
        self._file.seek(self._start + begin)
        self._file.write(numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data)
        self._missing.discard(name)

    def finish(self) -> None:
        """Gives the file its name. All tensors must have been written."""
        if self._missing:
            refuse(self.path, f"tensor {sorted(self._missing)[0]!r}", "its bytes", "none written")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        os.replace(self._part, self.path)

    def close(self) -> None:
        self._file.close()


class Folder:
    """The folder of a checkpoint that is being written."""

    def __init__(self, out: Path, recipe: Dict[str, Any]):
        """recipe: what is made from what. A folder of an interrupted run is taken up if it has the same."""
        self.out, self.part = out, out.with_name(out.name + ".partial")
        if out.exists():
            refuse(out, "output", "a name that is not taken", "a file or folder; remove it, or choose another name")
        self.part.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.part / "lock", "wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse(self.part, "output", "no other run that writes it", "one")
        place = self.part / _RECIPE
        if place.exists() and read_json(place) != json.loads(json.dumps(recipe)):
            refuse(
                self.part,
                "interrupted run",
                "one of the same input and options",
                "another; remove the folder, or take its options",
            )
        write_json(place, recipe)

    def rows(self, name: str) -> Optional[List[Dict[str, Any]]]:
        """What an earlier run reported of a file that it completed, or None."""
        place = self.part / (name + _ROWS)
        if not (self.part / name).exists() or not place.exists():
            return None
        rows: List[Dict[str, Any]] = read_json(place)["rows"]
        return rows

    def file(self, name: str, outputs: Sequence[Output], metadata: Dict[str, str]) -> FileWriter:
        return FileWriter(self.part / name, outputs, metadata)

    def complete(self, writer: FileWriter, rows: List[Dict[str, Any]]) -> None:
        """Finishes a file, and keeps what is reported of it for a run that goes on from here."""
        write_json(writer.path.with_name(writer.path.name + _ROWS), {"rows": rows})
        writer.finish()

    def finish(self, index: bool) -> None:
        """Writes the index of the files, if one is wanted, and gives the folder its name."""
        written = sorted(self.part.glob("*.safetensors"))
        if index:
            entries = [(entry, path.name) for path in written for entry in open_file(path).entries.values()]
            places = {entry.name: file for entry, file in sorted(entries, key=lambda pair: pair[0].name)}
            write_json(
                self.part / INDEX_NAME,
                {"metadata": {"total_size": sum(entry.nbytes for entry, _ in entries)}, "weight_map": places},
            )
        own: Set[Path] = {self.part / _RECIPE, self.part / "lock", *(path.with_name(path.name + _ROWS) for path in written)}
        for path in own:
            path.unlink()
        if self.out.exists():
            refuse(self.out, "output", "a name that is not taken", "a file or folder that came meanwhile")
        os.rename(self.part, self.out)
        self.close()

    def close(self) -> None:
        self._lock.close()
