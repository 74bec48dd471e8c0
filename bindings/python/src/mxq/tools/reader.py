"""Reads checkpoints: .safetensors files, single or sharded with an index. Tensors are read one at a time, or in chunks.

Everything that a header or an index claims is checked when a checkpoint is opened, before any tensor is read, duplicate names
too. Reader and writer are here, instead of a package's, so that memory is bounded by one tensor.
"""

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, NoReturn, Tuple

import numpy

from .._library import Error

# Bits of an element of each type that safetensors names.
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
MAX_JSON_BYTES = 100_000_000  # the limit of safetensors for a header
MAX_RANK = 32
_AHEAD = 1 << 26  # how far before a read the disk is asked for it
INDEX_NAME = "model.safetensors.index.json"
_INDEX = re.compile(r".+\.safetensors\.index(\.[A-Za-z0-9_-]+)?\.json")  # diffusers and variants have other names
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\.safetensors")


class CheckpointError(Error):
    """A file that is not what it should be. The text names the file, the field in it, what was expected and what was found."""


def refuse(path: Any, where: str, expected: str, found: Any) -> NoReturn:
    """found: a description as text, a value of the file as repr() gives it."""
    text = str(found)
    text = text if len(text) <= 200 else text[:197] + "..."
    raise CheckpointError(f"{path}: {where}: expected {expected}, found {text}")


def unreadable(path: Any, error: OSError) -> NoReturn:
    """Refuses a path that cannot be opened."""
    missing = isinstance(error, FileNotFoundError)
    refuse(path, "file", "a file that can be read", "nothing of this name" if missing else error.strerror or error)


class Entry(NamedTuple):
    """A tensor in a file. start, end: the offsets of its bytes in the file."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    start: int
    end: int
    path: Path

    @property
    def nbytes(self) -> int:
        return self.end - self.start


class File(NamedTuple):
    """A .safetensors file whose header was checked. entries: its tensors by name, in the order of their bytes."""

    path: Path
    metadata: Dict[str, str]
    entries: Dict[str, Entry]


class Checkpoint(NamedTuple):
    """The files of a checkpoint and the tensors of all of them.

    index_name: that of the index, or nothing. whole: False where one file of a folder was asked for.
    """

    folder: Path
    files: List[File]
    entries: Dict[str, Entry]
    index_name: str = ""
    whole: bool = True


def parse_object(data: bytes, path: Path, where: str) -> Dict[str, Any]:
    """Parses a JSON object; refuses names that occur twice, nesting without end, and numbers that JSON does not have."""

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            names = [name for name, _ in pairs]
            refuse(path, where, "each name once", next(f"{name!r} twice" for name in out if names.count(name) > 1))
        return out

    def no_constant(text: str) -> NoReturn:
        refuse(path, where, "JSON", repr(text))

    try:
        out = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
    except RecursionError:
        refuse(path, where, "JSON of little depth", "objects or lists nested too deep")
    except ValueError as error:  # also bad UTF-8, and numbers with thousands of digits
        refuse(path, where, "JSON", f"text that is none ({error})")
    if not isinstance(out, dict):
        refuse(path, where, "an object", type(out).__name__)
    return out


def _sizes(values: Any, least: int, most: int) -> bool:
    """True for a list of integers from 0 to 2^63 - 1 whose length is between two bounds."""
    return isinstance(values, list) and least <= len(values) <= most and all(type(v) is int and 0 <= v < 2**63 for v in values)


def _entry(name: str, value: Any, data_start: int, data_bytes: int, path: Path) -> Entry:
    where = f"tensor {name!r}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        refuse(path, where, "dtype, shape and data_offsets", repr(value))
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        refuse(path, where, f"a dtype of {', '.join(BITS)}", repr(dtype))
    if not _sizes(shape, 0, MAX_RANK):
        refuse(path, where, f"a shape of up to {MAX_RANK} sizes", repr(shape))
    if not _sizes(offsets, 2, 2) or not offsets[0] <= offsets[1] <= data_bytes:
        refuse(path, where, f"data_offsets [begin, end] in {data_bytes} bytes of data", repr(offsets))
    bits = math.prod(shape) * BITS[dtype]
    if bits != 8 * (offsets[1] - offsets[0]):
        refuse(
            path, where, f"{bits / 8:g} bytes for {dtype} of shape {shape}", f"data_offsets of {offsets[1] - offsets[0]} bytes"
        )
    return Entry(name, dtype, tuple(shape), data_start + offsets[0], data_start + offsets[1], path)


def _check_order(entries: List[Entry], data_start: int, file_bytes: int, path: Path) -> None:
    """Refuses bytes that belong to two tensors or to none."""
    end = data_start
    for entry in entries:
        if entry.start != end:
            what = "an overlap with the one before" if entry.start < end else "a gap before it"
            refuse(
                path,
                f"tensor {entry.name!r}",
                f"bytes that begin at {end - data_start} of the data",
                f"{entry.start - data_start}: {what}",
            )
        end = entry.end
    if end != file_bytes:
        refuse(path, "data", f"{end - data_start} bytes, up to the end of the last tensor", f"{file_bytes - data_start} bytes")


def _at_once(path: str, flags: int) -> int:
    """Opens a file without waiting, which the open of a pipe does until another process writes it."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_file(path: Path) -> File:
    """Reads and checks the header of a .safetensors file."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                refuse(path, "file", "a regular file", stat.filemode(status.st_mode))
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or not 2 <= length <= min(MAX_JSON_BYTES, status.st_size - 8):
                found = f"{length} in a file of {status.st_size} bytes" if len(head) == 8 else f"a file of {len(head)} bytes"
                refuse(
                    path, "length of the header", f"8 bytes with a number from 2 to {MAX_JSON_BYTES}, inside of the file", found
                )
            header = file.read(length)
    except OSError as error:
        unreadable(path, error)
    fields = parse_object(header, path, "header")
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        refuse(path, "__metadata__", "an object of texts", repr(metadata))
    start = 8 + length
    entries = sorted(
        (_entry(name, value, start, status.st_size - start, path) for name, value in fields.items()),
        key=lambda entry: (entry.start, entry.end),
    )
    _check_order(entries, start, status.st_size, path)
    return File(path, metadata, {entry.name: entry for entry in entries})


def read_json(path: Path) -> Dict[str, Any]:
    """Reads a JSON object from a file of bounded size."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            data = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        unreadable(path, error)
    if len(data) > MAX_JSON_BYTES:
        refuse(path, "file", f"at most {MAX_JSON_BYTES} bytes", "more")
    return parse_object(data, path, "file")


def _indexed(index: Path) -> List[File]:
    """The files that an index names. Each tensor that it lists must be in the file that it says."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        refuse(index, "weight_map", "an object of tensors and their files", repr(weight_map))
    for name, file in weight_map.items():
        if not isinstance(file, str) or not _FILE_NAME.fullmatch(file):
            refuse(index, f"tensor {name!r}", "the name of a .safetensors file in the folder of the index", repr(file))
    files = {name: open_file(index.parent / name) for name in sorted(set(weight_map.values()))}
    for name, file in weight_map.items():
        if name not in files[file].entries:
            refuse(index, f"tensor {name!r}", f"a tensor of {file}", "none of this name there")
    return list(files.values())


def _folders(path: Path) -> str:
    """Which subfolders have what the folder lacks, as text."""
    found = sorted({file.parent.name for file in path.glob("*/*.safetensors")})
    return f"; give one of its subfolders: {', '.join(found)}" if found else ""


def _locate(path: Path) -> Path:
    """The file or the index that a path means: itself, or the one in a folder."""
    if not path.is_dir():
        return path
    if (path / INDEX_NAME).exists():
        return path / INDEX_NAME
    names = sorted(one.name for one in path.iterdir())
    indexes = [one for one in names if _INDEX.fullmatch(one)]
    files = [one for one in names if one.endswith(".safetensors")]
    found = indexes or files
    if len(found) != 1:
        what = f"the indexes {', '.join(indexes)}" if indexes else f"{len(files)} .safetensors files and no index"
        refuse(path, "folder", f"{INDEX_NAME}, another index, or one .safetensors file", what + _folders(path))
    return path / found[0]


def open_checkpoint(path: Any) -> Checkpoint:
    """Opens a .safetensors file, an index, or the folder of one of them, and checks all headers."""
    found = _locate(Path(path))
    index = found.name if found.name.endswith(".json") else ""
    files = _indexed(found) if index else [open_file(found)]
    entries: Dict[str, Entry] = {}
    for file in files:
        for name, entry in file.entries.items():
            if name in entries:
                refuse(file.path, f"tensor {name!r}", "a name in one file alone", f"it in {entries[name].path.name}, too")
            entries[name] = entry
    return Checkpoint(found.parent, files, entries, index, bool(index) or found != Path(path))


def read_config(checkpoint: Checkpoint) -> Dict[str, Any]:
    """The config.json of a checkpoint; empty where there is none, and for one file of a folder."""
    config = checkpoint.folder / "config.json"
    return read_json(config) if checkpoint.whole and config.exists() else {}


_QUANTIZATION = ("quantization_config", "compression_config")  # the second is what older compressed-tensors wrote


def is_quantized(config: Dict[str, Any]) -> bool:
    """True if a config.json, or a part of it, says that weights are quantized."""
    parts = [part for part in config.values() if isinstance(part, dict)]
    return any(config.get(name) for name in _QUANTIZATION) or any(map(is_quantized, parts))


def without_quantization(config: Dict[str, Any]) -> Dict[str, Any]:
    """A config.json without what it or a part of it says of quantization."""
    parts = {name: value for name, value in config.items() if name not in _QUANTIZATION}
    return {name: without_quantization(value) if isinstance(value, dict) else value for name, value in parts.items()}


def read_into(entry: Entry, begin: int, out: "numpy.ndarray[Any, Any]", again: bool = True) -> None:
    """Reads bytes of a tensor from its byte `begin` on. Memory is the caller's: a file that shrinks cannot fault as mapped
    memory would. Asks the system for what comes behind, so that a disk reads while the caller computes.

    again: False where nothing reads the bytes again, so that the system's memory for them is free for what comes.
    """
    view, offset = out.data.cast("B"), entry.start + begin
    file = os.open(entry.path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, offset + _AHEAD, len(view), os.POSIX_FADV_WILLNEED)
        got, count = 0, -1
        while got < len(view) and count:
            count = os.preadv(file, [view[got:]], offset + got)
            got += count
        if not again:
            os.posix_fadvise(file, offset, len(view), os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    if got != len(view):
        refuse(entry.path, f"tensor {entry.name!r}", f"{entry.nbytes} bytes", f"{begin + got}: the file became shorter")


def read_bytes(entry: Entry) -> "numpy.ndarray[Any, Any]":
    """The bytes of a tensor."""
    out = numpy.empty(entry.nbytes, numpy.uint8)
    read_into(entry, 0, out)
    return out
