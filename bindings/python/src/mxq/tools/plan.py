"""What happens to each tensor of a checkpoint: which tensors are quantized, under which names, and which are copied."""

import re
from fnmatch import fnmatchcase
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .._library import Error
from . import layouts
from .layouts import Layout
from .reader import Checkpoint, refuse
from .stored import Stored, find
from .writer import Output

INCLUDE = {2: ("*.weight",), 3: ("*.experts.gate_up_proj", "*.experts.down_proj")}
EXCLUDE = ("*embed*", "*lm_head*", "*norm*", "*router*", "*.gate.weight")
EXPERTS = ("keep", "split", "stack")
MEASURE = ("sample", "all", "none")
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"))  # what engines join into one matrix
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.(.*)")


class Recipe(NamedTuple):
    """What is asked for: how weights are stored, and which tensors are weights.

    experts: "split" makes a tensor of each expert of a stack, "stack" a stack of the tensors of all experts.
    share_global: NVFP4 tensors that engines join share a global scale.
    measure: which rows SQNR, clipped elements and scales are measured of.
    """

    layout: Layout
    include: Tuple[str, ...]
    exclude: Tuple[str, ...]
    experts: str = "keep"
    share_global: bool = False
    measure: str = "sample"


class Step(NamedTuple):
    """What happens to a tensor: it is quantized to a layout, widened from FP8 to BF16, or copied, for the reason in `note`.

    sources: what is read; matrices of one shape if it is quantized, which stand one below another in the output.
    transposed: the sources have inputs as rows.
    group: the same text for all tensors that share an amax.
    """

    name: str
    shape: Tuple[int, ...]
    sources: Tuple[Stored, ...]
    layout: Optional[Layout]
    note: str
    outputs: List[Output]
    transposed: bool = False
    group: str = ""

    @property
    def bytes_before(self) -> int:
        return sum(source.codes.nbytes + (source.scales.nbytes if source.scales else 0) for source in self.sources)


def recipe(
    layout: str,
    format: str,
    scaling: Optional[str] = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    experts: str = "keep",
    share_global: bool = False,
    measure: str = "sample",
) -> Recipe:
    """include, exclude: patterns of the shell, in place of INCLUDE and EXCLUDE."""
    row = layouts.choose(layout, format, scaling)
    if experts == "split" and row.rank == 3:
        raise Error(f"{layout}: expected experts in a stack, found experts split; its names are of stacks")
    usual = INCLUDE[2] if experts == "stack" else INCLUDE[row.rank]
    return Recipe(row, tuple(include) or usual, tuple(exclude) or EXCLUDE, experts, share_global, measure)


def fp8_source(source: Stored) -> bool:
    return source.format == "fp8_e4m3" and source.scaling == "128x128" and len(source.shape) == 2


def _any(patterns: Sequence[str], name: str) -> Optional[str]:
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


def _note(source: Stored, recipe: Recipe) -> str:
    """Why a tensor is not quantized, or nothing."""
    layout, stacked = recipe.layout, recipe.experts == "stack" and bool(_EXPERT.fullmatch(source.name))
    if not _any(recipe.include, source.name):
        return "not included"
    excluded = _any(recipe.exclude, source.name)
    if excluded:
        return f"excluded by {excluded}"
    if layout.rank == 2 and len(source.shape) == 2 and not source.name.endswith(".weight"):
        return "its name does not end with .weight"
    shape = source.shape
    if stacked and len(shape) == 2:
        shape = (1, *shape[::-1]) if layout.rank == 3 else (1, *shape)
    return layouts.unfit(layout, "BF16" if fp8_source(source) else source.codes.dtype, shape)


def _check(source: Stored) -> None:
    if source.scales is not None and not fp8_source(source):
        refuse(
            source.codes.path,
            f"tensor {source.name!r}",
            "F32, F16, BF16, or FP8 with a scale for each 128x128",
            f"{source.format} {source.scaling} {source.convert}".strip(),
        )


def _matrices(source: Stored) -> Tuple[Stored, ...]:
    """The matrices of a tensor, in its order."""
    if len(source.shape) == 2:
        return (source,)
    entry, count = source.codes, source.shape[0]
    size = entry.nbytes // count
    return tuple(
        source._replace(
            shape=source.shape[1:],
            codes=entry._replace(shape=source.shape[1:], start=entry.start + i * size, end=entry.start + (i + 1) * size),
        )
        for i in range(count)
    )


def _group(name: str) -> str:
    """The name with all that engines join in place of one of them."""
    parts = name.split(".")
    return ".".join(next(("|".join(fused) for fused in FUSED if part in fused), part) for part in parts)


def _quantized(name: str, shape: Tuple[int, ...], sources: Tuple[Stored, ...], recipe: Recipe, transposed: bool) -> Step:
    layout = recipe.layout
    rows, cols = sources[0].shape[::-1] if transposed else sources[0].shape
    made = layouts.outputs(layout, name, shape[:-2], rows, cols)
    shared = recipe.share_global and layout.global_scale
    return Step(name, shape, sources, layout, "", made, transposed, _group(name) if shared else name)


def _stacked(experts: Dict[int, Stored], name: str, recipe: Recipe) -> Step:
    """One step for the tensors of all experts."""
    sources = tuple(experts[number] for number in sorted(experts))
    first = sources[0]
    kinds = {(source.shape, source.codes.dtype) for source in sources}
    if sorted(experts) != list(range(len(sources))) or len(kinds) > 1:
        found = f"experts {sorted(experts)} of {len(kinds)} shapes or types"
        refuse(first.codes.path, f"tensor {first.name!r}", "experts from 0 on without gaps, of one shape and type", found)
    return _quantized(name, (len(sources), *first.shape), sources, recipe, False)


def _steps(checkpoint: Checkpoint, recipe: Recipe) -> List[Step]:
    """The steps for all tensors, in the order of the files."""
    out: List[Step] = []
    stacks: Dict[str, Dict[int, Stored]] = {}
    for source in find(checkpoint):
        _check(source)
        note, expert = _note(source, recipe), _EXPERT.fullmatch(source.name)
        if note:
            dtype = "BF16" if fp8_source(source) else source.codes.dtype
            out.append(Step(source.name, source.shape, (source,), None, note, [Output(source.name, dtype, source.shape)]))
        elif recipe.experts == "stack" and expert and len(source.shape) == 2:
            stacks.setdefault(expert[1] + expert[3], {})[int(expert[2])] = source
        elif recipe.experts == "split" and len(source.shape) == 3:
            head, dot, tail = source.name.rpartition(".experts.")
            for number, one in enumerate(_matrices(source)):
                name = f"{head}.experts.{number}.{tail}" if dot else f"{source.name}.{number}"
                out.append(_quantized(name, one.shape, (one,), recipe, False))
        else:
            transposed = recipe.layout.rank == 3
            out.append(_quantized(source.name, source.shape, _matrices(source), recipe, transposed))
    return out + [_stacked(experts, name, recipe) for name, experts in stacks.items()]


def plan(checkpoint: Checkpoint, recipe: Recipe) -> Dict[str, List[Step]]:
    """The steps for each file. A tensor that a name of the output would replace is refused."""
    out: Dict[str, List[Step]] = {file.path.name: [] for file in checkpoint.files}
    names: Dict[str, str] = {}
    for step in _steps(checkpoint, recipe):
        path = step.sources[0].codes.path
        for output in step.outputs:
            if output.name in names:
                refuse(
                    path,
                    f"tensor {step.name!r}",
                    f"{output.name!r} once in the output",
                    f"it from {names[output.name]!r}, too",
                )
            names[output.name] = step.name
        out[path.name].append(step)
    if not any(step.layout for steps in out.values() for step in steps):
        refuse(
            checkpoint.folder, "tensors", f"a weight that {', '.join(recipe.include)} include and that fits the layout", "none"
        )
    return out
