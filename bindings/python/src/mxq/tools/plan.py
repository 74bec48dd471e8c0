"""What happens to each tensor of a checkpoint: which tensors are quantized, under which names, and which are copied."""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .._library import Error
from . import layouts
from .families import MATRICES, STACKS, first_match, included, kept
from .layouts import Layout
from .reader import Checkpoint, Entry, is_quantized, read_config, refuse
from .stored import Stored, find
from .writer import Output

EXPERTS = ("keep", "split", "stack")
MEASURE = ("sample", "all", "none")
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"))  # what engines join into one matrix
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.(.*)")
_SCALED = ("F8_", "F6_", "F4")  # the types whose values need scales, as their names begin
OTHERS = ("qweight", "weight_packed", "qzeros", "absmax", "quant_state", "weight_shape", "weight_zero_point")  # of integer quantization


class Recipe(NamedTuple):
    """What is asked for: how weights are stored, and which tensors are weights.

    exclude: empty for the table of families.py.
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

    sources: what is read; matrices of one shape if it is quantized, one below another in the output.
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
    """include, exclude: patterns of the shell, instead of those of families.py."""
    row = layouts.choose(layout, format, scaling)
    if experts == "split" and row.rank == 3:
        raise Error(f"{layout}: expected experts in a stack, found experts split; its names are of stacks")
    usual = STACKS if row.rank == 3 and experts != "stack" else MATRICES
    return Recipe(row, tuple(include) or usual, tuple(exclude), experts, share_global, measure)


def fp8_source(source: Stored) -> bool:
    return source.format == "fp8_e4m3" and source.scaling == "128x128" and len(source.shape) in (2, 3)


def _excluded(name: str, recipe: Recipe, config: Dict[str, Any]) -> str:
    """Which pattern keeps a tensor, or nothing."""
    if recipe.exclude:
        pattern = first_match(recipe.exclude, name)
        return f"excluded by {pattern}" if pattern else ""
    row = kept(name, config)
    return f"excluded by {row.pattern}: {row.what}" if row else ""


def _note(source: Stored, recipe: Recipe, config: Dict[str, Any]) -> str:
    """Why a tensor is not quantized, or nothing."""
    layout, stacked = recipe.layout, recipe.experts == "stack" and bool(_EXPERT.fullmatch(source.name))
    excluded = _excluded(source.name, recipe, config)
    if not included(recipe.include, source.name, len(source.shape)):
        of_stack = "experts" in source.name.split(".") or source.name.endswith(".weight")
        stack = len(source.shape) == 3 and of_stack and not excluded
        reason = ": 3 dimensions, and a stack of experts needs an --include of its own" if stack else ""
        return "not included" + reason
    if excluded:
        return excluded
    if layout.rank == 2 and len(source.shape) == 2 and not source.name.endswith(".weight"):
        return "its name does not end with .weight"
    shape = source.shape
    if stacked and len(shape) == 2:
        shape = (1, *shape[::-1]) if layout.rank == 3 else (1, *shape)
    return layouts.unfit(layout, "BF16" if fp8_source(source) else source.codes.dtype, shape)


def check_scales(source: Stored, scaled: bool, wanted: str) -> None:
    """Refuses codes without the scales that belong to them. scaled: something says that there are scales."""
    where, dtype = f"tensor {source.name!r}", source.codes.dtype
    if source.scales is None and source.name.endswith(OTHERS):
        refuse(source.codes.path, where, wanted, "integer quantization; dequantize it first")
    named = dtype in ("U8", "I8") and source.name.endswith(".weight")
    if source.scales is None and scaled and (dtype.startswith(_SCALED) or named):
        refuse(source.codes.path, where, wanted, f"{dtype} without scales of a known name; dequantize it first")


def _check(source: Stored, scaled: bool) -> None:
    """Refuses codes whose scales would lose their meaning. scaled: something says that there are scales."""
    wanted = "F32, F16, BF16, or FP8 with a scale for each 128x128"
    if source.scales is not None and not fp8_source(source):
        found = f"{source.format} {source.scaling} {source.convert}".strip()
        refuse(source.codes.path, f"tensor {source.name!r}", wanted, found)
    check_scales(source, scaled, wanted)


def _cut(source: Stored, entry: Entry, number: int) -> Entry:
    """What one expert has of the codes or scales of a stack; all of a scale that the experts share."""
    if entry.shape[:1] != source.shape[:1]:
        return entry
    size = entry.nbytes // source.shape[0]
    return entry._replace(shape=entry.shape[1:], start=entry.start + number * size, end=entry.start + (number + 1) * size)


def matrices(source: Stored) -> Tuple[Stored, ...]:
    """The matrices of a tensor, in its order."""
    if len(source.shape) == 2:
        return (source,)
    return tuple(
        source._replace(
            shape=source.shape[1:],
            codes=_cut(source, source.codes, i),
            scales=source.scales and _cut(source, source.scales, i),
        )
        for i in range(source.shape[0])
    )


def name_of_expert(stack: str, number: int) -> str:
    """The name of an expert's tensor."""
    base = stack.removesuffix(".weight")
    head, dot, tail = base.rpartition(".experts.")
    return f"{head}.experts.{number}.{tail}.weight" if dot else f"{base}.{number}.weight"


def _group(name: str) -> str:
    """The name with all that engines join instead of one of them."""
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


def _plain(source: Stored, note: str) -> Step:
    """A step that copies a tensor, or widens FP8."""
    if fp8_source(source):
        return Step(source.name, source.shape, matrices(source), None, note, [Output(source.name, "BF16", source.shape)])
    return Step(source.name, source.shape, (source,), None, note, [Output(source.name, source.codes.dtype, source.shape)])


def _check_names(steps: Sequence[Step]) -> None:
    """Refuses a tensor that a name of the output would replace."""
    names: Dict[str, str] = {}
    for step in steps:
        for output in step.outputs:
            if output.name in names:
                found = f"it from {names[output.name]!r}, too"
                refuse(step.sources[0].codes.path, f"tensor {step.name!r}", f"{output.name!r} once in the output", found)
            names[output.name] = step.name


def steps_of(checkpoint: Checkpoint, recipe: Recipe, config: Dict[str, Any]) -> List[Step]:
    """The steps for all tensors, in the order of the files. config: the content of config.json."""
    out: List[Step] = []
    stacks: Dict[str, Dict[int, Stored]] = {}
    quantized = is_quantized(config)
    modules = {name.rpartition(".")[0] for name in checkpoint.entries if "scale" in name.rpartition(".")[2]}
    for source in find(checkpoint):
        _check(source, quantized or source.name.rpartition(".")[0] in modules)
        note, expert = _note(source, recipe, config), _EXPERT.fullmatch(source.name)
        if note:
            out.append(_plain(source, note))
        elif recipe.experts == "stack" and expert and len(source.shape) == 2:
            stacks.setdefault(expert[1] + expert[3], {})[int(expert[2])] = source
        elif recipe.experts == "split" and len(source.shape) == 3:
            for number, one in enumerate(matrices(source)):
                out.append(_quantized(name_of_expert(source.name, number), one.shape, (one,), recipe, False))
        else:
            transposed = recipe.layout.rank == 3
            out.append(_quantized(source.name, source.shape, matrices(source), recipe, transposed))
    out += [_stacked(experts, name, recipe) for name, experts in stacks.items()]
    _check_names(out)
    return out


def plain_modules(steps: Sequence[Step]) -> List[str]:
    """Modules with weights of two dimensions or more that stay plain: what readers must not take for quantized.

    A weight whose name is not X.weight is told by its module, or by its full name where that has quantized weights, too.
    """
    quantized = {output.name.rpartition(".")[0] for step in steps if step.layout for output in step.outputs}
    within = {name[:end] for name in quantized for end in [*(dot.start() for dot in re.finditer(r"\.", name)), len(name)]}
    out = set()
    for step in steps:
        module, _, last = step.name.rpartition(".")
        if step.layout or len(step.shape) < 2 or last.endswith("bias") or not step.outputs[0].dtype.startswith(("F", "BF")):
            continue
        out.add(module if module and (last == "weight" or module not in within) else step.name)
    return sorted(out)


def _reasons(steps: Sequence[Step]) -> str:
    """Why no tensor is quantized."""
    notes = [(step.name, step.note) for step in steps if step.note != "not included"]
    if not notes:
        return f"no such name among {len(steps)}" + (f", such as {steps[0].name!r}" if steps else "")
    more = f"; and {len(notes) - 3} more" if len(notes) > 3 else ""
    return "none: " + "; ".join(f"{name!r}: {note}" for name, note in notes[:3]) + more


def plan(checkpoint: Checkpoint, recipe: Recipe) -> Dict[str, List[Step]]:
    """The steps for each file."""
    every = steps_of(checkpoint, recipe, read_config(checkpoint))
    out: Dict[str, List[Step]] = {file.path.name: [] for file in checkpoint.files}
    for step in every:
        out[step.sources[0].codes.path.name].append(step)
    if not any(step.layout for step in every):
        wanted = f"a weight named {' or '.join(recipe.include)} that fits the layout"
        refuse(checkpoint.folder, "tensors", wanted, _reasons(every))
    return out
