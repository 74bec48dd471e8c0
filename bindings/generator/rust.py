"""Writes the raw part of the Rust crate mxq-sys."""
import re

from .header import Alias, Callback, Constant, CType, Function, Handle, Header, Item

_SCALARS = {
    "int32_t": "i32", "int64_t": "i64", "uint8_t": "u8", "uint32_t": "u32", "uint64_t": "u64",
    "float": "f32", "double": "f64", "char": "c_char", "void": "c_void",
}
_KEYWORDS = {"in": "input", "type": "kind", "ref": "reference"}

_HEAD = '''// Made by bindings/generate.py from include/mxq/mxq.h of libmxq {version}; change the header, not this file.
'''


def _type(header: Header, type_: CType) -> str:
    text = _SCALARS.get(type_.base, type_.base)
    for const in type_.pointees_const:
        text = f"*{'const' if const else 'mut'} {text}"
    return text


def _escaped(line: str) -> str:
    """Keeps rustdoc from seeing links, HTML and emphasis outside of `code`, and lists where a line begins with a sign."""
    line = re.sub(r"^([+-]) ", r"\\\1 ", line)
    pieces = line.split("`")
    if len(pieces) % 2 == 0:  # a span that ends on another line
        return re.sub(r"([\[\]<>*_`])", r"\\\1", line)
    return "`".join(re.sub(r"([\[\]<>*_])", r"\\\1", piece) if i % 2 == 0 else piece for i, piece in enumerate(pieces))


def _doc(text: str, indent: str = "") -> list:
    """Turns a comment into rustdoc: paragraphs as they are, indented lines as tables of plain text."""
    out = []
    for block in re.split(r"\n\n", text) if text else []:
        lines = block.split("\n")
        for i, line in enumerate(lines):
            table = line.startswith("    ")
            if table and (i == 0 or not lines[i - 1].startswith("    ")):
                out.append("```text")
            out.append(line[4:] if table else _escaped(line))
            if table and (i + 1 == len(lines) or not lines[i + 1].startswith("    ")):
                out.append("```")
        out.append("")
    return [f"{indent}/// {line}".rstrip() for line in out[:-1]]


def _documented(item: Item, indent: str = "") -> list:
    see = getattr(item, "see", "")
    return _doc(item.doc, indent) or ([f"{indent}/// See [`{see}`]."] if see else [])


def _parameters(header: Header, function: Function) -> str:
    return ", ".join(f"{_KEYWORDS.get(p.name, p.name)}: {_type(header, p.type)}" for p in function.parameters)


def _result(header: Header, function: Function) -> str:
    return "" if function.result == CType("void") else f" -> {_type(header, function.result)}"


def write(header: Header, version: str) -> str:
    out = _HEAD.format(version=version).split("\n")
    for item in header.items:
        if type(item) is Alias:
            out += _documented(item) + [f"pub type {item.name} = {_SCALARS[item.base]};"]
        elif type(item) is Constant:
            out += _documented(item) + [f"pub const {item.name}: {item.family or 'i32'} = {item.value};"]
        elif type(item) is Handle:
            out += _documented(item) + ["#[repr(C)]", f"pub struct {item.name} {{", "    _opaque: [u8; 0],",
                                        "    _marker: PhantomData<(*mut u8, PhantomPinned)>,", "}"]
        elif type(item) is Callback:
            signature = f'unsafe extern "C" fn({_parameters(header, item)}){_result(header, item)}'
            out += _documented(item) + [f"pub type {item.name} = Option<{signature}>;"]
    out += ["", 'extern "C" {']
    for function in header.functions:
        out += _documented(function, "    ")
        out.append(f"    pub fn {function.name}({_parameters(header, function)}){_result(header, function)};")
    return "\n".join(out + ["}", ""])


# ---- Enums for the safe crate -------------------------------------------------------------------------------------------


def _variant(constant: Constant) -> str:
    """MXQ_FORMAT_MXFP8_E4M3 is Mxfp8E4m3, and MXQ_SCALING_1X32, which begins with a digit, is Block1x32."""
    family = "mxq_log" if constant.family == "mxq_log_level" else constant.family
    words = constant.name[len(family) + 1:].lower().split("_")
    name = "".join(word[0].upper() + word[1:] for word in words)
    return f"Block{name}" if name[0].isdigit() else name


def write_enums(header: Header, version: str) -> str:
    """Writes an enum for each family of constants."""
    out = _HEAD.format(version=version).split("\n")
    for alias in header.all(Alias):
        members = [constant for constant in header.all(Constant) if constant.family == alias.name]
        name = "".join(word.capitalize() for word in alias.name.split("_")[1:])
        out += _documented(alias) or [f"/// Values of {alias.name}."]
        out += ["#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]", "#[non_exhaustive]", "#[repr(i32)]", f"pub enum {name} {{"]
        for constant in members:
            out += _documented(constant, "    ") or [f"    /// {constant.name}."]
            out.append(f"    {_variant(constant)} = {constant.value},")
        out += ["}", "", f"impl {name} {{", "    /// The value with this number, as the C functions give it.",
                f"    pub fn from_raw(number: i32) -> Option<{name}> {{", "        match number {"]
        out += [f"            {constant.value} => Some({name}::{_variant(constant)})," for constant in members]
        out += ["            _ => None,", "        }", "    }", "}", ""]
    return "\n".join(out)
