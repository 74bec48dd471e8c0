"""Doxygen's input filter for mxq.hpp: prints its declarations with the comments that Doxygen reads.

A function that has no comment of its own is documented by the C function that it calls, and a struct by the one whose answer it
holds. Bodies, what is private, bases that own handles, and the second of two setters, for objects without a name, are left out.
"""
import re
import sys
from pathlib import Path
from typing import Any, List, NamedTuple, Tuple

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "bindings")]

from generator.header import Function, read  # noqa: E402
from header_for_doxygen import documented  # noqa: E402

SECTION = re.compile(r"// ---- (.*?) -+$")


class Item(NamedTuple):
    """A declaration: the section it is in, the comment above it or behind it, and its code with its body."""

    section: str
    comment: str
    code: str


def items(text: str, section: str = "") -> List[Item]:
    """Splits the inside of a namespace or of a class."""
    out, comment, code, depth = [], [], [], 0
    for line in map(str.strip, text.split("\n")):
        found = SECTION.match(line)
        if not code and (found or line.startswith("#") or line in ("", "public:")):
            section, comment = found[1] if found else section, []
        elif not code and line.startswith("//"):
            comment.append(line[3:])
        else:
            code.append(line)
            plain, _, behind = line.partition("//")
            depth += plain.count("{") - plain.count("}")
            if depth == 0 and plain.rstrip().endswith((";", "}")):
                out.append(Item(section, " ".join(comment) or behind.strip(), "\n".join(code)))
                comment, code = [], []
    return out


def declaration(item: Item) -> str:
    """Cuts the body of a function, what it initialises its members with, and the mark of a setter for objects with a name."""
    code, depth = item.code.partition("//")[0].rstrip(), 0
    for at, letter in enumerate(code):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if depth == 0 and ")" in code[:at] and (letter == "{" or re.match(r"\s: ", code[at:])):
            code = code[:at].rstrip() + ";"
            break
    return re.sub(r"\)\s*&\s*;$", ");", code)


def declarators(code: str) -> List[str]:
    """Splits variables that are declared together: each has a comment."""
    found = re.fullmatch(r"([\w:<> *]+ )(\w+ = \w+(?:, \w+ = \w+)+);|([\w:<> *]+ )(\w+(?:, \w+)+);", code)
    if not found:
        return [code]
    kind, names = found[1] or found[3], found[2] or found[4]
    return [f"{kind}{name};" for name in names.split(", ")]


def is_type(item: Item) -> bool:
    return re.match(r"(template <.*>\s)?(class|struct) ", item.code) is not None


def inside(item: Item) -> Tuple[str, List[Item]]:
    """Returns the head of a class without bases that own handles, and what is public in it."""
    head, _, body = item.code.partition("{")
    body = re.split(r"^(?:private|protected):$", body.rpartition("}")[0], flags=re.M)[0]
    return re.sub(r"\s*: public detail::.*", "", head, flags=re.S).strip(), items(body)


class Printer:
    def __init__(self, header: List[Any], everything: List[Item]) -> None:
        self.names = {item.name for item in header}
        self.functions = {item.name for item in header if type(item) is Function}
        members = [member for item in everything if is_type(item) for member in inside(item)[1]]
        self.answers = {member.code.split(" ")[0]: self.called(member) for member in members}  # by the type that it returns

    def called(self, item: Item, owner: str = "") -> str:
        """The C function of a function: it has the same name after the handle's, or else is the first that the code names."""
        name = re.search(r"(\w+)\(", item.code)
        helper = re.search(r"handle\((create\w*)\(", item.code)
        by_name = "_".join(filter(None, ("mxq", owner, helper[1] if helper else name[1] if name else "")))
        named = (word for word in re.findall(r"mxq_\w+", item.code) if word in self.functions)
        return by_name if by_name in self.functions else next(named, "")

    def print(self, text: str, code: str) -> None:
        print("\n".join(documented(text, self.names) + [code]) if text else code)

    def type(self, item: Item) -> None:
        head, members = inside(item)
        name = re.search(r"(?:class|struct) (\w+)", head)[1]
        answer = self.answers.get(name, "")
        self.print(item.comment or (f"What {answer} gives." if answer else f"Owns a mxq_{name}."), head + " {\npublic:")
        for member in members:
            if re.search(r"\) && {", member.code):
                continue
            called = self.called(member, name)
            said = member.comment or (f"Calls {called}." if called else f"Of {answer}." if answer else "")
            for one in declarators(declaration(member)):
                self.print(said, one)
        print("};")

    def function(self, item: Item) -> None:
        self.print(item.comment or f"Calls {self.called(item)}.", declaration(item))


def main(path: str) -> None:
    text = Path(path).read_text(encoding="utf-8")
    header = read(Path(path).with_name("mxq.h").read_text(encoding="utf-8")).items
    intro, _, rest = text.partition("\n#ifndef")
    body = rest.partition("\nnamespace mxq {\n")[2].rpartition("}  // namespace mxq")[0]
    everything = items(re.sub(r"^namespace detail {\n.*?^}  // namespace detail$", "", body, flags=re.M | re.S), "Errors")
    printer = Printer(header, everything)
    manual = documented(re.sub("^// ?", "", intro, flags=re.M), printer.names)
    print("/** \\file mxq.hpp The interface for C++. */\n/** \\page cpp The header for C++")
    print(manual[0][4:], *manual[1:], sep="\n")
    print("/** The library for C++. */\nnamespace mxq {")
    group = ""
    for item in everything:
        if re.match(r"(inline )?tensor& tensor::", item.code):
            continue  # a member that its class has declared
        name = re.sub("[^a-z]+", "_", f"cpp {'' if is_type(item) else 'functions of '}{item.section}".lower())
        if name != group:
            print(("/** @} */\n" if group else "") + f"/** \\defgroup {name} {item.section}\n@{{\n*/")
            group = name
        printer.type(item) if is_type(item) else printer.function(item)
    print("/** @} */\n}")


main(sys.argv[1])
