"""compatible.py old.h new.h: tells what of an old interface is gone or different in a new one, and fails if anything is.

What is new must say "Since 0.3", or whichever release brought it, in its comment.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings"))
from generator import header  # noqa: E402


def things(path):
    """What a program or a binary can depend on, by name, in a form that can be compared."""
    parsed = header.read(Path(path).read_text(encoding="utf-8"))
    out = {}
    for item in parsed.items:
        if isinstance(item, header.Function):  # callbacks too
            out[item.name] = (item.result, tuple(parameter.type for parameter in item.parameters))
        elif isinstance(item, header.Constant):
            out[item.name] = item.value
        elif isinstance(item, header.Alias):
            out[item.name] = item.base
        else:
            out[item.name] = "handle"
    return out


def since(path):
    """The names whose comment says since when they are there."""
    items = header.read(Path(path).read_text(encoding="utf-8")).items
    comments = {item.name: item.doc or "" for item in items}
    said = {item.name: comments[item.name] or comments.get(getattr(item, "see", ""), "") for item in items}
    return {name for name, comment in said.items() if re.search(r"Since \d+\.\d+", comment)}


VERSION = {"MXQ_VERSION", "MXQ_VERSION_MAJOR", "MXQ_VERSION_MINOR", "MXQ_VERSION_PATCH"}
old, new = things(sys.argv[1]), things(sys.argv[2])
wrong = [f"{name} is gone" for name in old if name not in new]
wrong += [f"{name} was {old[name]} and is {new[name]}" for name in old if name in new and name not in VERSION and old[name] != new[name]]
silent = sorted(new.keys() - old.keys() - since(sys.argv[2]))
wrong += [f"{name} is new, and its comment does not say since which release" for name in silent]
print(*wrong or [f"{len(old)} names of {sys.argv[1]} are as they were"], sep="\n")
sys.exit(bool(wrong) or len(old) < 100)
