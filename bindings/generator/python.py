"""Writes the raw part of the Python package: constants, and the types of every function for ctypes."""
from .header import Alias, Callback, Constant, CType, Function, Header

_SCALARS = {
    "int32_t": "c_int32", "int64_t": "c_int64", "uint8_t": "c_uint8", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
    "float": "c_float", "double": "c_double", "char": "c_char",
}

_HEAD = '''"""Constants, callbacks and prototypes of libmxq {version} for ctypes, with the comments of its header.

Made by bindings/generate.py from include/mxq/mxq.h; change the header, not this file.
"""
# fmt: off
# flake8: noqa
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_float, c_int32, c_int64, c_uint64, c_void_p
'''


def _scalar(header: Header, base: str) -> str:
    bases = {alias.name: alias.base for alias in header.all(Alias)}
    return _SCALARS[bases.get(base, base)]


def _ctypes(header: Header, type_: CType) -> str:
    """Memory is an address; text and numbers that a function writes have pointers of their own type."""
    callbacks = {callback.name for callback in header.all(Callback)}
    if type_.base in callbacks:
        return "POINTER(%s)" % type_.base if type_.depth else type_.base
    if type_.depth == 0:
        return "None" if type_.base == "void" else _scalar(header, type_.base)
    if type_.base == "char" and type_.pointees_const[0]:
        return "c_char_p" if type_.depth == 1 else "POINTER(c_char_p)"
    if type_.depth == 1:
        numbers = type_.base in ("int32_t", "int64_t", "uint64_t") or type_.base in {alias.name for alias in header.all(Alias)}
        return "POINTER(%s)" % _scalar(header, type_.base) if numbers and not type_.pointees_const[0] else "c_void_p"
    written = not type_.pointees_const[-1]
    return "POINTER(c_void_p)" if written else "c_void_p"


def _comment(text: str, indent: str = "") -> list:
    return [f"{indent}# {line}".rstrip() for line in text.split("\n")] if text else []


def _signature(header: Header, function: Function) -> str:
    return ", ".join(_ctypes(header, parameter.type) for parameter in function.parameters)


def write(header: Header, version: str) -> str:
    out = _HEAD.format(version=version).split("\n")
    out += [f'VERSION = "{version}"']
    section = ""
    for item in header.all(Constant):
        if item.section != section:
            section = item.section
            out += ["", f"# ---- {section} ----", ""]
        out += _comment(item.doc) + [f"{item.name} = {item.value}"]

    out += ["", "# ---- Values of each family, by the short name ----", "", "FAMILIES = {"]
    for alias in header.all(Alias):
        members = [c for c in header.all(Constant) if c.family == alias.name]
        out.append(f'    "{alias.name}": {{')
        out += [f'        "{short_name(constant)}": {constant.name},' for constant in members]
        out.append("    },")
    out += ["}", "", "# ---- Callbacks ----", ""]
    for callback in header.all(Callback):
        arguments = ", ".join([_ctypes(header, callback.result), _signature(header, callback)])
        out += _comment(callback.doc) + [f"{callback.name} = CFUNCTYPE({arguments})"]

    out += ["", "# ---- Functions: the type of the result, and those of the parameters ----", "", "PROTOTYPES = {"]
    for function in header.functions:
        names = ", ".join(parameter.name for parameter in function.parameters)
        out += _comment(function.doc, "    ") or _comment(f"See {function.see}." if function.see else "", "    ")
        out.append(f"    # {function.name}({names})")
        parameters = _signature(header, function)
        out.append(f'    "{function.name}": ({_ctypes(header, function.result)}, [{parameters}]),')
    return "\n".join(out + ["}", ""])


def short_name(constant: Constant) -> str:
    """MXQ_FORMAT_MXFP8_E4M3 of the family mxq_format is mxfp8_e4m3."""
    family = "mxq_log" if constant.family == "mxq_log_level" else constant.family
    return constant.name[len(family) + 1:].lower()
