#!/usr/bin/env python3
"""The code blocks of the pages, and who tests them.

A block is what stands between two lines of ``` in a page. Its first word is the language, the others are marks:

    c, cpp              a program, which is compiled and run
    c NAME, cpp NAME    a fragment, which is put into tests/pages/NAME.c or .cpp in place of the line "// page"
    sh                  a script, run at the top of the source with the build's programs on PATH
    text                what the block before it prints
    python              run by bindings/python/tests/test_pages.py, one page from top to bottom
    python NAME         the same, where the Python module NAME is there
    rust                run by tests/bindings/run.sh

    blocks.py check                 every block is one of these; prints how many each page has
    blocks.py list LANGUAGE...      a line "page line language mark" for each block of these languages
    blocks.py code PAGE LINE        what to compile or run; a fragment with the code around it
    blocks.py printed PAGE LINE     what the page says that the block prints; nothing if it says nothing
"""
import re
import sys
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PAGES = ("*.md", "docs/*.md", "bindings/*/README.md", "src/**/README.md", "tests/**/README.md", "examples/**/*.md")
TESTED = ("c", "cpp", "sh", "text", "python", "rust")
# Where no test can run the block, and why.
UNTESTED = {("bindings/julia/README.md", "julia"): "no Julia is at hand"}


class Block(NamedTuple):
    page: str
    line: int
    language: str
    mark: str
    code: str
    after: str  # the page behind the block


def pages() -> List[str]:
    found = {path.relative_to(ROOT).as_posix() for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(found)


def blocks(page: str) -> Iterator[Block]:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines(keepends=True)
    begin: Optional[int] = None
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("```"):
            continue
        if begin is None:
            begin = number
        elif line.strip() == "```":
            info = lines[begin - 1].strip()[3:].split()
            language, mark = (info + ["", ""])[:2]
            yield Block(page, begin, language, mark, "".join(lines[begin:number - 1]), "".join(lines[number:]))
            begin = None
        else:
            raise ValueError(f"{page}:{number}: a block begins in the block of line {begin}")
    if begin is not None:
        raise ValueError(f"{page}:{begin}: a block without an end")


def at(page: str, line: str) -> Block:
    return next(block for block in blocks(page) if block.line == int(line))


def code(block: Block) -> str:
    """Returns the program: the block, or the code around it with the block inside, whose lines keep the page's numbers."""
    if not block.mark or block.language not in ("c", "cpp"):
        return block.code
    around = (HERE / f"{block.mark}.{block.language}").read_text(encoding="utf-8").split("// page\n")
    if len(around) != 2:
        raise ValueError(f"tests/pages/{block.mark}.{block.language}: expected one line '// page', got {len(around) - 1}")
    return f'{around[0]}#line {block.line + 1} "{block.page}"\n{block.code}{around[1]}'


def printed(block: Block) -> str:
    """Returns the text block that follows at once, or the line of "It prints `...`" that does."""
    text = re.match(r"\s*```text[^\n]*\n(.*?)^```$", block.after, re.DOTALL | re.MULTILINE)
    if text:
        return text[1]
    line = re.match(r"\s*It prints `([^`]*)`", block.after)
    return f"{line[1]}\n" if line else ""


def check() -> None:
    for page in pages():
        counts: dict = {}
        before: Optional[Block] = None
        for block in blocks(page):
            if block.language == "text" and not (before and before.after.lstrip().startswith("```text")):
                raise ValueError(f"{page}:{block.line}: this text follows no block that could print it")
            if not block.code.strip():
                raise ValueError(f"{page}:{block.line}: a block with nothing in it")
            before = block
            reason = UNTESTED.get((page, block.language))
            if block.language not in TESTED and not reason:
                what = block.language or "no language"
                raise ValueError(f"{page}:{block.line}: nobody tests a block of {what!r}; see tests/pages/blocks.py")
            if block.mark and block.language in ("c", "cpp"):
                code(block)
            if reason:
                print(f"skip  {page}:{block.line}, {block.language}: {reason}")
            counts[block.language] = counts.get(block.language, 0) + 1
        if counts:
            print(f"{page}: " + ", ".join(f"{count} {language}" for language, count in counts.items()))


def main(command: str, *arguments: str) -> None:
    if command == "check":
        check()
    elif command == "list":
        for page in pages():
            for block in blocks(page):
                if block.language in arguments:
                    print(page, block.line, block.language, block.mark)
    elif command == "code":
        sys.stdout.write(code(at(*arguments)))
    elif command == "printed":
        sys.stdout.write(printed(at(*arguments)))
    else:
        raise ValueError(__doc__)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"blocks.py: {error}")
