"""compatible.py old.h new.h: tells what of an old interface is gone or different in a new one, and fails if anything is."""
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


VERSION = {"MXQ_VERSION", "MXQ_VERSION_MAJOR", "MXQ_VERSION_MINOR", "MXQ_VERSION_PATCH"}
old, new = things(sys.argv[1]), things(sys.argv[2])
wrong = [f"{name} is gone" for name in old if name not in new]
wrong += [f"{name} was {old[name]} and is {new[name]}" for name in old if name in new and name not in VERSION and old[name] != new[name]]
print(*wrong or [f"{len(old)} names of {sys.argv[1]} are as they were"], sep="\n")
sys.exit(bool(wrong) or len(old) < 100)
