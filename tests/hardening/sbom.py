#!/usr/bin/env python3
"""sbom.py build-dir: prints what the built library is made of, as a CycloneDX 1.5 document.

The library with its version, digest and compiler; the libraries that it needs at run time; and what is linked into it (CUDA's
static runtime) or is opened while it runs (cuBLASLt, CUDA's driver) where the build has CUDA. Nothing else is in the library:
it has no third-party source. The same build gives the same bytes.
"""

import hashlib
import json
import re
import subprocess
import sys
import uuid
from pathlib import Path


def cache_of(build):
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    return dict(re.match(r"([^#/:][^:]*):[A-Z]+=(.*)", line).groups() for line in lines if re.match(r"[^#/:][^:]*:[A-Z]+=", line))


def needed(library):
    out = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", out)


def component(name, how, kind="library", **more):
    return {"type": kind, "name": name, "scope": "required" if how != "opened" else "optional", **more, "properties": [{"name": "mxq:use", "value": how}]}


def main():
    build = Path(sys.argv[1])
    cache = cache_of(build)
    library = (build / "src" / "libmxq.so.0").resolve()
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    version = library.name.split(".so.")[1]
    parts = [component(name, "loaded with the library") for name in needed(library)]
    cuda = next((path.read_text() for path in build.glob("CMakeFiles/*/CMakeCUDACompiler.cmake")), "")
    found = re.search(r'set\(CMAKE_CUDA_COMPILER_VERSION "([^"]*)"\)', cuda)
    if found:
        parts += [component("cudart_static", "linked into the library", version=found[1])]
        parts += [component(name, "opened") for name in ("libcublasLt.so.13", "libcublasLt.so.12", "libcuda.so.1")]
    compiler = next((path.read_text() for path in build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")), "")
    of_compiler = [re.search(rf'set\(CMAKE_CXX_COMPILER_{name} "([^"]*)"\)', compiler) for name in ("ID", "VERSION")]
    tools = [{"type": "application", "name": of_compiler[0][1], "version": of_compiler[1][1]}] if all(of_compiler) else []
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "tools": {"components": tools},
            "component": {
                "type": "library",
                "name": "libmxq",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "properties": [{"name": "mxq:build-type", "value": cache.get("CMAKE_BUILD_TYPE", "")}],
            },
        },
        "components": parts,
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
