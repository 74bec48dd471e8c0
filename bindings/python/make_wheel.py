#!/usr/bin/env python3
"""make_wheel.py [--portable] [--most MB] [--native FOLDER] name library outdir: zips the package and a library into a wheel.

Its tag says what the library needs. Two runs give the same bytes. --portable: refuses a library that needs more than the C library. --most: refuses a larger wheel.
--native: adds the operators of torch and the handlers of XLA that native/build.py put there; where they cannot be loaded, the package does without.
"""
import argparse
import base64
import hashlib
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEWEST_GCC = (4, 8, 0)  # of the symbols of libgcc_s in manylinux_2_17
C_LIBRARY = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s)\.so\.\d+|ld-linux.*\.so\.\d+")  # what every manylinux has


def needs(library: Path) -> set:
    """The shared libraries that a library needs, other than the C library."""
    text = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return {name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text) if not C_LIBRARY.fullmatch(name)}


def platform_tag(library: Path) -> str:
    """manylinux_2_N, N from the newest symbol of the C library; linux for a library that needs others, or newer symbols of
    libgcc_s than manylinux has."""
    machine = platform.machine()
    text = subprocess.run(["readelf", "-V", library], check=True, capture_output=True, text=True).stdout
    of_gcc = [tuple(int(number) for number in version.split(".")) for version in re.findall(r"GCC_([\d.]+)", text)]
    if needs(library) or max(of_gcc, default=(0,)) > NEWEST_GCC:
        return f"linux_{machine}"
    newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", text))
    return f"manylinux_2_{max(newest, 17)}_{machine}"


def project(key: str) -> str:
    return re.search(rf'^{key} = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.MULTILINE).group(1)


def section(name: str) -> list:
    """The names and values of a table of pyproject.toml."""
    text = (HERE / "pyproject.toml").read_text().split(f"[{name}]\n")[1].split("\n\n")[0]
    return re.findall(r"^([\w-]+) = (.*)$", text, re.MULTILINE)


def extras() -> list:
    """The lines of pip install mxq[numpy] and the like."""
    lines = []
    for name, needed in section("project.optional-dependencies"):
        lines += [f"Provides-Extra: {name}", *(f'Requires-Dist: {one}; extra == "{name}"' for one in re.findall(r'"(.*?)"', needed))]
    return lines


def commands() -> bytes:
    """The entry points of the commands."""
    return "".join(["[console_scripts]\n", *(f'{name} = {value.strip(chr(34))}\n' for name, value in section("project.scripts"))]).encode()


def metadata(name: str, version: str) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {project('description')}",
             "License: Apache-2.0", f"Requires-Python: {project('requires-python')}", *extras(),
             "Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text(encoding="utf-8")]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--portable", action="store_true")
    parser.add_argument("--most", type=float, default=float("inf"), metavar="MB")
    parser.add_argument("--native", type=Path, metavar="FOLDER")
    parser.add_argument("name")
    parser.add_argument("built", metavar="library", type=Path)
    parser.add_argument("outdir", type=Path)
    arguments = parser.parse_args()
    if arguments.portable and platform_tag(arguments.built).startswith("linux"):
        others = ", ".join(sorted(needs(arguments.built))) or "newer symbols of libgcc_s than manylinux has"
        print(f"{arguments.built} needs {others}", file=sys.stderr)
        return 1

    raw = (HERE / "src/mxq/_raw.py").read_text(encoding="utf-8")
    version = re.search(r'^VERSION = "(.*)"$', raw, re.MULTILINE).group(1)
    stem = f"{arguments.name.replace('-', '_')}-{version}"
    tag = f"py3-none-{platform_tag(arguments.built)}"
    files = {str(path.relative_to(HERE / "src")): path.read_bytes() for path in sorted((HERE / "src/mxq").rglob("*.py"))}
    files["mxq/py.typed"] = b""
    files["mxq/libmxq.so.0"] = arguments.built.read_bytes()
    for name in ("libmxq_torch.so", "libmxq_jax.so"):
        if arguments.native and (arguments.native / name).exists():
            files[f"mxq/{name}"] = (arguments.native / name).read_bytes()
    info = f"{stem}.dist-info"
    files[f"{info}/METADATA"] = metadata(arguments.name, version).encode()
    files[f"{info}/entry_points.txt"] = commands()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: libmxq\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items()) + f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = record.encode()

    arguments.outdir.mkdir(parents=True, exist_ok=True)
    wheel = arguments.outdir / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if name.endswith((".so.0", ".so")) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    size = wheel.stat().st_size / 1e6
    print(f"{wheel} ({size:.1f} MB)")
    if size > arguments.most:
        wheel.unlink()
        print(f"removed: it is larger than {arguments.most:g} MB", file=sys.stderr)
        return 1
    return 0


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
