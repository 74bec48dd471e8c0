#!/usr/bin/env python3
"""Writes the raw part of every binding from include/mxq/mxq.h.

    python3 bindings/generate.py            writes the files
    python3 bindings/generate.py --check    writes nothing, and fails where a file is not what the header gives
    python3 bindings/generate.py --to DIR   writes them below DIR instead, or checks those there
"""
import argparse
import sys
from pathlib import Path

from generator import header, julia, python, rust

HERE = Path(__file__).resolve().parent
OUTPUTS = {
    "python/src/mxq/_raw.py": python.write,
    "rust/mxq-sys/src/raw.rs": rust.write,
    "rust/mxq/src/enums.rs": rust.write_enums,
    "julia/src/raw.jl": julia.write,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--header", type=Path, default=HERE.parent / "include/mxq/mxq.h")
    parser.add_argument("--to", type=Path, default=HERE, help="the folder that stands for bindings/")
    arguments = parser.parse_args()

    parsed = header.read(arguments.header.read_text(encoding="utf-8"))
    value = {constant.name: constant.value for constant in parsed.all(header.Constant)}
    version = ".".join(str(value[f"MXQ_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
    stale = 0
    for name, write in OUTPUTS.items():
        path, text = arguments.to / name, write(parsed, version)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            print(f"bindings/{name} is not what the header gives; run python3 bindings/generate.py", file=sys.stderr)
            stale += 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
