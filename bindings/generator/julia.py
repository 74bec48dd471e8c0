"""Writes the raw part of the Julia package: constants, and a function around each ccall."""
from .header import Alias, Callback, Constant, CType, Function, Handle, Header, Item

_SCALARS = {
    "int32_t": "Int32", "int64_t": "Int64", "uint8_t": "UInt8", "uint32_t": "UInt32", "uint64_t": "UInt64",
    "float": "Cfloat", "double": "Cdouble", "char": "Cchar", "void": "Cvoid",
}
_KEYWORDS = {"in": "input", "type": "kind", "end": "last"}

_HEAD = '''# Made by bindings/generate.py from include/mxq/mxq.h of libmxq {version}; change the header, not this file.
'''


def _type(header: Header, type_: CType) -> str:
    if type_.base in {callback.name for callback in header.all(Callback)}:
        return "Ptr{" * type_.depth + "Ptr{Cvoid}" + "}" * type_.depth
    base = _SCALARS.get(type_.base, type_.base)
    if type_.base == "char" and type_.depth:
        return "Ptr{" * (type_.depth - 1) + ("Cstring" if type_.pointees_const[0] else "Ptr{Cchar}") + "}" * (type_.depth - 1)
    return "Ptr{" * type_.depth + base + "}" * type_.depth


def _doc(item: Item) -> list:
    text = item.doc or (f"See `{item.see}`." if getattr(item, "see", "") else "")
    return ['@doc raw"""', *text.replace('"""', "'''").split("\n"), '"""'] if text else []


def _wrapper(header: Header, function: Function) -> str:
    names = [_KEYWORDS.get(parameter.name, parameter.name) for parameter in function.parameters]
    typed = ", ".join(f"{name}::{_type(header, parameter.type)}" for name, parameter in zip(names, function.parameters))
    return f"{function.name}({', '.join(names)}) = @ccall libmxq.{function.name}({typed})::{_type(header, function.result)}"


def write(header: Header, version: str) -> str:
    out = _HEAD.format(version=version).split("\n")
    for item in header.items:
        comment = [f"# {line}".rstrip() for line in item.doc.split("\n")] if item.doc else []
        if type(item) is Alias:
            out += comment + [f"const {item.name} = {_SCALARS[item.base]}"]
        elif type(item) is Constant:
            out += comment + [f"const {item.name} = {item.family or 'Int32'}({item.value})"]
        elif type(item) is Handle:
            out += comment + [f"mutable struct {item.name} end"]
    for function in header.functions:
        out += [""] + _doc(function) + [_wrapper(header, function)]
    return "\n".join(out + [""])
