"""Copies the files of a checkpoint other than its weights: a tokenizer, a modelling file, the folders of other parts."""

import os
import shutil
from pathlib import Path
from typing import List, Sequence, Set

from .reader import Checkpoint
from .writer import Folder

# Lists files that hold the same weights for other programs. Subfolders have other parts of a model, whose weights are copied.
_OTHER_PROGRAMS = (".pth", ".gguf", ".onnx", ".onnx_data", ".h5", ".msgpack", ".ot")
_WEIGHTS = (".safetensors", ".bin", ".pt", *_OTHER_PROGRAMS)


def _index(name: str) -> bool:
    return ".index." in name and name.endswith(".json")


def _copied(path: Path, top: bool) -> bool:
    name = path.name
    return path.is_file() and not name.endswith(_WEIGHTS if top else _OTHER_PROGRAMS) and not (top and _index(name))


def _entered(path: Path) -> bool:
    """False for folders that are no part of a checkpoint: what this program writes, hidden ones, and links, which may form loops."""
    return not (
        path.name.startswith(".")
        or path.is_symlink()
        or path.name.endswith(".partial")
        or (path / "quantization_report.json").exists()
    )


def copy_other_files(source: Path, folder: Folder, but: Sequence[str], checkpoint: Checkpoint) -> List[str]:
    """Copies the files of a folder and of its subfolders. Gives the names of those that are not copied.

    but: names that are written anew. Nothing is copied where one file of the folder was asked for.
    """
    if not checkpoint.whole:
        return []
    left: List[str] = []
    read: Set[Path] = {file.path for file in checkpoint.files} | {source / checkpoint.index_name}
    for folder_path, folders, files in os.walk(source):
        here, inside = Path(folder_path), Path(folder_path).relative_to(source)
        left += [f"{inside / name}/" for name in folders if not _entered(here / name) and name != folder.part.name]
        folders[:] = sorted(name for name in folders if _entered(here / name))
        for name in sorted(files):
            if here == source and (name in but or here / name in read):
                continue
            if not _copied(here / name, here == source):
                left.append(str(inside / name))
                continue
            (folder.part / inside).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(here / name, folder.part / inside / name)
    return left
