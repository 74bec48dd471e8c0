"""No file of the package imports one that imports it, whether directly, through others or inside of a function."""
import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import mxq

ROOT = Path(mxq.__file__).parent


def imports(sources):
    """The modules that each module imports, anywhere in its code. sources: by the names of modules."""
    return {name: sorted({module for node in ast.walk(ast.parse(text)) for module in imported(node, name, sources)})
            for name, text in sources.items()}


def imported(node, name, sources):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in sources]
    if not isinstance(node, ast.ImportFrom):
        return []
    is_package = any(other.startswith(name + ".") for other in sources)
    package = name if is_package else name.rpartition(".")[0]
    above = package.rsplit(".", node.level - 1)[0] if node.level else ""
    base = ".".join(part for part in (above, node.module) if part)
    modules = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in sources else base for alias in node.names]
    return [module for module in modules if module in sources]


def circle(graph):
    """The modules of one circle, or []."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def module_name(path):
    parts = ("mxq", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def test_imports_have_no_circle():
    graph = imports({module_name(path): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")})
    assert len(graph) > 40 and "mxq._qtensor" in graph["mxq"] and "mxq._kind_torch" in graph["mxq._arrays"]
    assert "mxq" in graph["mxq.tools.measure"] and "mxq.tools.layouts" in graph["mxq.tools.plan"]
    assert circle(graph) == []


def test_circles_are_found():
    package = {"m": "from . import a", "m.a": "from .b import f", "m.b": "def f():\n    from m import c", "m.c": "import m.d"}
    graph = imports({**package, "m.d": "from .a import g"})
    assert graph == {"m": ["m.a"], "m.a": ["m.b"], "m.b": ["m.c"], "m.c": ["m.d"], "m.d": ["m.a"]}
    assert set(circle(graph)) == {"m.a", "m.b", "m.c", "m.d"}
    assert set(circle(imports({**package, "m.d": "from m import x"}))) == {"m", "m.a", "m.b", "m.c", "m.d"}
    assert circle(imports({**package, "m.d": "import os"})) == []


def test_libraries_of_arrays_are_imported_when_they_are_needed():
    code = "import sys, mxq; assert not {'numpy', 'torch', 'ml_dtypes'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
