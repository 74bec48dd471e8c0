"""Doxygen's input filter for mxq.h: prints the header with the comments that Doxygen reads.

The header is a manual for people, in plain comments. What its comments say goes through unchanged: prose as paragraphs, in which
names of the header become links, and tables, which are lines that are indented or aligned in columns, as they are. Sections
become groups, from which the pages of the reference are made.
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings"))

from generator.header import Alias, Callback, Constant, CType, Function, Handle, comment_text, read  # noqa: E402


def c_type(type_: CType) -> str:
    text = type_.base
    for const in type_.pointees_const:
        text = (f"{text} const*" if "*" in text else f"const {text}*") if const else f"{text}*"
    return text


def declaration(item) -> str:
    if isinstance(item, Constant):
        return f"#define {item.name} {item.value}"
    if isinstance(item, Alias):
        return f"typedef {item.base} {item.name};"
    if isinstance(item, Handle):
        return f"typedef struct {item.name}_s {item.name};"
    parameters = ", ".join(f"{c_type(p.type)} {p.name}" for p in item.parameters) or "void"
    if isinstance(item, Callback):
        return f"typedef {c_type(item.result)} (*{item.name})({parameters});"
    return f"{c_type(item.result)} {item.name}({parameters});"


def is_table(line: str) -> bool:
    return line.startswith("  ") or re.search(r"\S  +\S", line) is not None


def prose(line: str, names: set) -> str:
    line = re.sub(r'([\\@&$#<>%"])', r"\\\1", line)
    line = re.sub(r"`([^`]+)`", r"<code>\1</code>", line)
    return re.sub(r"\b(mxq|MXQ)_\w+", lambda name: rf'\ref {name[0]} "{name[0]}"' if name[0] in names else name[0], line)


def documented(text: str, names: set) -> list:
    """Returns the lines of a Doxygen comment. A prose line between lines of a table belongs to it."""
    out, in_table = [], False
    for line in text.split("\n"):
        if is_table(line) != in_table and (line or in_table):
            in_table = not in_table
            out.append("\\verbatim" if in_table else "\\endverbatim")
        out.append(line if in_table else prose(line, names))
    return ["/** " + out[0]] + out[1:] + (["\\endverbatim"] if in_table else []) + ["*/"]


def about(item, above: str) -> str:
    """Returns the comment of an item, or where else the header says what it is."""
    if item.doc:
        return item.doc
    see = getattr(item, "see", "") or getattr(item, "family", "") or above
    return f"See {see}."


def main(path: str) -> None:
    text = Path(path).read_text(encoding="utf-8")
    items = read(text).items
    names = {item.name for item in items}
    manual = documented(comment_text(text[:text.index("*/") + 2]), names)
    out = ["/** \\file mxq.h The interface. */", "/** \\page manual The header as a whole"] + [manual[0][4:]] + manual[1:]
    section, above = "", ""
    for index, item in enumerate(items):
        if item.section != section:
            out += ["/** @} */"] if section else []
            section, above = item.section, next(other.name for other in items[index:] if other.doc)
            out += [f"/** \\defgroup {re.sub('[^a-z]+', '_', section.lower())} {section}", "@{", "*/"]
        out += documented(about(item, above), names) + [declaration(item)]
        above = item.name if item.doc else above
    print("\n".join(out + ["/** @} */"]))


if __name__ == "__main__":
    main(sys.argv[1])
