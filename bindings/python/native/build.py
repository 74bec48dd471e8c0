#!/usr/bin/env python3
"""build.py library outdir: compiles the operators of torch and the handlers of XLA for the libraries that this Python has.

Writes libmxq_torch.so where torch 2.10 or later is installed, and libmxq_jax.so where jaxlib is; says what is left out, and why.
Both link against the C interface of the given libmxq.so.0 and look for it in their own folder. Neither depends on a version of Python.
CXX, CXXFLAGS: the compiler, and more flags.
"""
import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
OLDEST_TORCH = (2, 10)  # whose interface the operators keep to, whatever they are compiled with


def folder(module: str):
    """Where a module is installed, which is not imported: that takes seconds."""
    found = importlib.util.find_spec(module)
    return None if found is None or not found.submodule_search_locations else Path(next(iter(found.submodule_search_locations)))


def torch_flags():
    """The flags for torch, or why there are none."""
    torch = folder("torch")
    if torch is None:
        return None, "torch is not installed"
    if not (torch / "include/torch/csrc/stable/library.h").exists():
        return None, "torch has no headers of the stable interface"
    version = (torch / "version.py").read_text().split("__version__ = ")[1].split("\n")[0].strip("'\"")
    if tuple(int(number) for number in version.split("+")[0].split(".")[:2]) < OLDEST_TORCH:
        return None, f"torch {version} is older than {'.'.join(map(str, OLDEST_TORCH))}"
    target = f"-DTORCH_TARGET_VERSION=0x{OLDEST_TORCH[0]:02x}{OLDEST_TORCH[1]:02x}000000000000ULL"
    return [target, "-isystem", str(torch / "include"), f"-L{torch / 'lib'}", "-ltorch_cpu"], f"torch {version}"


def jax_flags():
    """The flags for jaxlib, or why there are none."""
    jaxlib = folder("jaxlib")
    if jaxlib is None:
        return None, "jaxlib is not installed"
    if not (jaxlib / "include/xla/ffi/api/ffi.h").exists():
        return None, "jaxlib has no headers of XLA's foreign functions"
    return ["-isystem", str(jaxlib / "include")], "jaxlib"


def compiled(name: str, source: str, flags, library: Path, outdir: Path) -> None:
    out = outdir / name
    command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
               "-ffile-prefix-map=" + str(ROOT) + "=.", f"-I{ROOT / 'include'}", str(HERE / source), "-o", str(out),
               "-Wl,--no-undefined,--as-needed,-s,-rpath,$ORIGIN", str(library), *flags, "-ldl", *shlex.split(os.environ.get("CXXFLAGS", ""))]
    subprocess.run(command, check=True)
    print(out)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    library, outdir = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    outdir.mkdir(parents=True, exist_ok=True)
    for name, source, (flags, said) in (("libmxq_torch.so", "torch_operators.cpp", torch_flags()),
                                        ("libmxq_jax.so", "jax_handlers.cpp", jax_flags())):
        if flags is None:
            print(f"left out {name}: {said}", file=sys.stderr)
        elif (HERE / source).exists():
            compiled(name, source, flags, library, outdir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
