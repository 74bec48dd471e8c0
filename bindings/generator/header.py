"""Reads mxq.h into lists of constants, types and functions with their comments.

The header keeps a narrow form of C: numbers in #define, typedefs of integers, of opaque structs and of function pointers, and
functions behind MXQ_API. Anything else is an error, so that nothing is left out in silence.
"""
import re
from dataclasses import dataclass, field
from typing import List, Tuple


@dataclass(frozen=True)
class CType:
    """A base name and its pointer levels, from the base outwards: True where the level points to something const."""

    base: str
    pointees_const: Tuple[bool, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.pointees_const)


@dataclass(frozen=True)
class Parameter:
    name: str
    type: CType


@dataclass
class Item:
    name: str
    doc: str = ""
    section: str = ""


@dataclass
class Constant(Item):
    value: int = 0
    family: str = ""  # the alias whose values it belongs to, such as mxq_format; "" for none


@dataclass
class Alias(Item):
    """typedef int32_t mxq_status;"""

    base: str = ""


@dataclass
class Handle(Item):
    """typedef struct mxq_tensor_s mxq_tensor;"""


@dataclass
class Function(Item):
    result: CType = CType("void")
    parameters: List[Parameter] = field(default_factory=list)
    see: str = ""  # the function above whose comment is also about this one


@dataclass
class Callback(Function):
    """typedef void (*mxq_task)(void* data, int32_t index);"""


@dataclass
class Header:
    items: List[Item]
    functions: List[Function]

    def all(self, kind: type) -> list:
        return [item for item in self.items if type(item) is kind]


_TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/)"
    r"|(?P<directive>^[ \t]*\#(?:[^\n/]|/(?!\*))*)"
    r'|(?P<brace>extern\s+"C"\s*\{|\})'
    r"|(?P<declaration>[^;{}\#/]+;)",
    re.DOTALL | re.MULTILINE,
)
_DEFINE = re.compile(r"\#\s*define\s+(MXQ_[A-Z0-9_]+)\s+(-?[0-9]+)\s*$")
_SECTION = re.compile(r"/\* -{2,} (.*?) -{2,} \*/$")
_BASES = ("void", "char", "float", "double", "int32_t", "int64_t", "uint8_t", "uint32_t", "uint64_t")


def comment_text(comment: str) -> str:
    """Returns the lines of a C comment without its stars."""
    lines = comment[2:-2].strip("*").split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^\s*\* ?|^\s+", "", line).rstrip() for line in lines[1:]]
    return "\n".join(lines).strip()


class _Reader:
    def __init__(self, text: str):
        self.text = text
        self.items: List[Item] = []
        self.aliases: dict = {}
        self.handles: set = set()
        self.callbacks: set = set()
        self.section = ""

    def read(self) -> Header:
        comment, item, end = "", None, 0  # the comment or the item just before, and where it ended
        for match in _TOKEN.finditer(self.text):
            between = self.text[end:match.start()]
            if between.strip():
                raise ValueError(f"mxq.h: cannot read {between.strip()[:80]!r}")
            start, end = match.start(), match.end()
            kind, token = match.lastgroup, match.group()
            start += len(token) - len(token.lstrip())
            before = self.text[:start]
            gap = before[len(before.rstrip()):].count("\n")  # line ends since whatever stands before
            if kind == "comment":
                section = _SECTION.match(token)
                if section:
                    self.section, comment, item = section.group(1), "", None
                elif item is not None and gap == 0:
                    item.doc = comment_text(token)
                else:
                    comment, item = comment_text(token), None
                continue
            made = self._item(kind, token.strip())
            if made is not None:
                made.section = self.section
                if comment and gap == 1:
                    made.doc = comment
                elif isinstance(made, Function) and isinstance(item, Function) and gap == 1:
                    made.see = item.see or (item.name if item.doc else "")
                self.items.append(made)
            comment, item = "", made
        if self.text[end:].strip():
            raise ValueError(f"mxq.h: cannot read {self.text[end:].strip()[:80]!r}")
        self._find_families()
        return Header(self.items, [item for item in self.items if type(item) is Function])

    def _item(self, kind: str, token: str):
        if kind == "brace":
            return None
        if kind == "directive":
            define = _DEFINE.match(token)
            return Constant(define.group(1), value=int(define.group(2))) if define else None
        words = " ".join(token[:-1].split())
        alias = re.fullmatch(r"typedef (\w+) (mxq_\w+)", words)
        if alias and alias.group(1) in _BASES:
            self.aliases[alias.group(2)] = alias.group(1)
            return Alias(alias.group(2), base=alias.group(1))
        handle = re.fullmatch(r"typedef struct (mxq_\w+)_s (mxq_\w+)", words)
        if handle and handle.group(1) == handle.group(2):
            self.handles.add(handle.group(2))
            return Handle(handle.group(2))
        callback = re.fullmatch(r"typedef (.+?)\(\*(mxq_\w+)\)\((.*)\)", words)
        if callback:
            self.callbacks.add(callback.group(2))
            return Callback(callback.group(2), result=self._type(callback.group(1)), parameters=self._parameters(callback.group(3)))
        function = re.fullmatch(r"MXQ_API (.+?)\b(mxq_\w+)\((.*)\)", words)
        if function:
            return Function(function.group(2), result=self._type(function.group(1)), parameters=self._parameters(function.group(3)))
        raise ValueError(f"mxq.h: cannot read the declaration {words!r}")

    def _type(self, text: str) -> CType:
        tokens = re.findall(r"\w+|\*", text)
        const, pointees, base = False, [], ""
        for token in tokens:
            if token == "const":
                const = True
            elif token == "*":
                pointees.append(const)
                const = False
            elif not base:
                base = token
            else:
                raise ValueError(f"mxq.h: cannot read the type {text!r}")
        if base not in _BASES and base not in self.aliases and base not in self.handles and base not in self.callbacks:
            raise ValueError(f"mxq.h: unknown type {base!r} in {text!r}")
        return CType(base, tuple(pointees))

    def _parameters(self, text: str) -> List[Parameter]:
        if text.strip() == "void":
            return []
        out = []
        for part in text.split(","):
            match = re.fullmatch(r"(.*[\s*])(\w+)", part.strip())
            if not match:
                raise ValueError(f"mxq.h: cannot read the parameter {part!r}")
            out.append(Parameter(match.group(2), self._type(match.group(1))))
        return out

    def _find_families(self):
        """A constant belongs to the alias whose name it begins with: MXQ_SCALE_ROUNDING_EVEN to mxq_scale_rounding."""
        for item in self.items:
            if isinstance(item, Constant):
                fits = [alias for alias in self.aliases if item.name.startswith(alias.upper() + "_")]
                fits += ["mxq_log_level"] if item.name.startswith("MXQ_LOG_") and "mxq_log_level" in self.aliases else []
                item.family = max(fits, key=len, default="")


def read(text: str) -> Header:
    """Reads the text of mxq.h."""
    return _Reader(text).read()
