#!/usr/bin/env python3
"""Shows that the tests can see: builds the library once with all mutants in it, and runs each in processes of its own.

A mutant is a block of lines in host.txt, cpu.txt or cuda.txt:

    name: what is wrong with it
        core/layout.h                                   a file below src/
        return {{(row % 32) => (row % 16)}} * 16 +      an edit: the text around it, and "{{what is there => what it becomes}}"

An edit's text occurs exactly once in the file, white space aside; a backslash carries it on to the next line. It replaces an
expression, or statements where it ends with a semicolon. Further edits and files may follow. A line "equivalent: reason" says
why no test can see the mutant; such a mutant is not run.

run.sh has the options.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
LISTS = {"cpu": ["host.txt", "cpu.txt"], "cuda": ["cuda.txt"]}
COPIED = ["CMakeLists.txt", "libmxq.pc.in", "cmake", "examples", "include", "src", "tests"]
MARK = re.compile(r"\{\{(.*?) => (.*?)\}\}(?!\})")

# Changes that the copied tree needs besides the mutants, each as (file, text to replace, text in its place).
CHANGES = [
    ("src/cuda/device.cpp", "    load(context);",
     "    set_mutant_on_device();\n    load(context);"),
    ("tests/main.cpp", "    Catch::Session session;", "    set_mutant_on_device();\n    Catch::Session session;"),
    # Mutants may cost registers.
    ("cmake/MxqCompileOptions.cmake", ":-Xptxas=--warn-on-spills,--warning-as-error>", ":-Xptxas=--warn-on-spills>"),
    ("cmake/MxqCompileOptions.cmake", "CUDA_COMPILER_LAUNCHER \"${launcher}\"",
     "CUDA_COMPILER_LAUNCHER \"${CMAKE_CUDA_COMPILER_LAUNCHER}\""),
]


# ---- The lists -----------------------------------------------------------------------------------------------------------


class Mutant:
    def __init__(self, number, device, block):
        self.number, self.device, self.equivalent, self.edits = number, device, "", []
        self.name, self.meaning = block[0].split(": ", 1)
        file = None
        for line in block[1:]:
            if re.fullmatch(r"[\w/]+\.(h|cpp|cu|cuh)", line):
                file = "src/" + line
            elif line.startswith("equivalent: "):
                self.equivalent = line.split(": ", 1)[1]
            else:
                self.edits.append((file, line))


def read_lists():
    """Returns the mutants of all lists. Their numbers begin with 1."""
    mutants = []
    for device, names in LISTS.items():
        for name in names:
            text = re.sub(r"\\\n\s*", "", (HERE / name).read_text())
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            for block in re.split(r"\n\s*\n", "\n".join(lines).strip()):
                mutants.append(Mutant(len(mutants) + 1, device, [line.strip() for line in block.splitlines()]))
    return mutants


def pattern_of(text):
    """Returns an expression for a piece of code, whatever its white space."""
    return r"\s*".join(re.escape(word) for word in text.split())


def places_of(edit, source):
    """Returns (first, last, mutated text) of each mark of an edit, or raises ValueError."""
    parts = MARK.split(edit)  # text, original, mutated, text, ...
    if len(parts) < 4:
        raise ValueError("has no {{original => mutated}}")
    pattern = ""
    for i in range(0, len(parts), 3):
        pattern += pattern_of(parts[i]) + r"\s*"
        if i + 1 < len(parts):
            pattern += "(" + pattern_of(parts[i + 1]) + r")\s*"
    for original, mutated in zip(parts[1::3], parts[2::3]):
        if not re.search(r"[\w)\]}\"';]$", original):
            raise ValueError(f"{original} is no expression, and no statement that ends with a semicolon")
        if not original.endswith(";") and not mutated.strip():
            raise ValueError(f"{original} becomes nothing, which no expression is")
        if any(original.count(pair[0]) != original.count(pair[1]) for pair in ("()", "[]", "{}")):
            raise ValueError(f"{original} has a bracket without its other half; put a space before its mark")
    found = list(re.finditer(pattern, source))
    if len(found) != 1:
        raise ValueError(f"occurs {len(found)} times, not once")
    return [(*found[0].span(i + 1), parts[3 * i + 2]) for i in range(len(parts) // 3)]


def check(mutants):
    """Returns what is wrong with the lists."""
    wrong = []
    names = [mutant.name for mutant in mutants]
    wrong += [f"{name}: two mutants have this name" for name in set(names) if names.count(name) > 1]
    for mutant in mutants:
        if not mutant.edits:
            wrong.append(f"{mutant.name}: has no edit")
        for file, edit in mutant.edits:
            try:
                places_of(edit, (SOURCE / file).read_text())
            except (ValueError, OSError, TypeError) as error:
                wrong.append(f"{mutant.name}: {file}: {edit}: {error}")
    return wrong


# ---- The copy of the tree ------------------------------------------------------------------------------------------------


def chosen_text(original, choices):
    """Returns code that is the original, or what a mutant makes of it."""
    if original.endswith(";"):
        code = original
        for number, mutated in choices:
            code = f"if (is_mutant({number})) {{ {mutated} }} else {{ {code} }}"
        return code
    code = f"({original})"
    for number, mutated in choices:
        code = f"(is_mutant({number}) ? ({mutated}) : {code})"
    return code


def mutated_sources(mutants):
    """Returns the files that have mutants, by name, with all of them in."""
    places = {}  # by file and place
    for mutant in mutants:
        for file, edit in mutant.edits:
            for first, last, text in places_of(edit, (SOURCE / file).read_text()):
                places.setdefault(file, {}).setdefault((first, last), []).append((mutant.number, text))
    sources = {}
    for file, of_file in places.items():
        source = (SOURCE / file).read_text()
        before = len(source) + 1
        for (first, last), choices in sorted(of_file.items(), reverse=True):
            if last > before:
                raise ValueError(f"{file}: two mutants overlap at {source[first:last]}")
            source = source[:first] + chosen_text(source[first:last], choices) + source[last:]
            before = first
        sources[file] = source
    return sources


def write_tree(tree, mutants):
    """Writes the copy. Files that stay as they were keep their times."""
    texts = mutated_sources(mutants)
    for file, old, new in CHANGES:
        text = texts.get(file) or (SOURCE / file).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{file}: {old} occurs {text.count(old)} times, not once")
        texts[file] = text.replace(old, new)
    wanted = set()
    for name in COPIED:
        for path in [SOURCE / name] if (SOURCE / name).is_file() else sorted((SOURCE / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                wanted.add(str(path.relative_to(SOURCE)))
    for file in wanted:
        content = texts[file].encode() if file in texts else (SOURCE / file).read_bytes()
        target = tree / file
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(SOURCE / file, target)
    for path in [path for path in tree.rglob("*") if path.is_file() and str(path.relative_to(tree)) not in wanted]:
        path.unlink()


def build(place, device, mutants, jobs):
    tree, out = place / "tree", place / device
    (out / "measured.json").unlink(missing_ok=True)
    write_tree(tree, mutants)
    include = f"-include {tree}/tests/mutants/mutant.h"
    configure = ["cmake", "-S", tree, "-B", out, "-DCMAKE_BUILD_TYPE=Release", "-DMXQ_TESTS=ON", "-DMXQ_EXAMPLES=OFF",
                 "-DMXQ_INSTALL=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",  # which cannot follow another -include
                 f"-DMXQ_CUDA={'ON' if device == 'cuda' else 'OFF'}", f"-DCMAKE_CXX_FLAGS={include}",
                 f"-DCMAKE_CUDA_FLAGS={include}", *os.environ.get("MXQ_CMAKE_ARGS", "").split(),
                 "-DMXQ_QUICK_KERNELS=OFF"]  # last: what it compiles is not to be run
    targets = ["mxq_unit_tests", "mxq_tests", "mxq_search", "mxq_graph_test" if device == "cuda" else "mxq_fault_test"]
    subprocess.run(configure, check=True)
    is_ninja = "CMAKE_GENERATOR:INTERNAL=Ninja" in (out / "CMakeCache.txt").read_text()
    on = ["-k", "0"] if is_ninja else ["-k"]  # so that the log has every mutant that does not compile
    subprocess.run(["cmake", "--build", out, "--parallel", str(jobs), "--target", *targets, "--", *on], check=True)


# ---- Running -------------------------------------------------------------------------------------------------------------

QUICK = 0.3  # seconds that a case takes at most to run before the others
QUICK_ALONE = 1.0  # and where no others run
SHARDS = 4


def filter_of(name):
    """Returns a Catch2 filter that matches this name only. A comma would end the name, and the rest would match nothing."""
    return re.sub(r"([\\,\[])", r"\\\1", name) + ","


def first_failure(line, before):
    """Returns what a line of output says of the first failure, or an empty string. `before` is the line before it."""
    if line.startswith("FAIL  "):
        return line[6:]
    if before.startswith("-" * 79) and line and not line.startswith("-"):
        return line
    return ""


def run_command(command, environment, seconds, look=lambda line: None):
    """Runs a command until it fails. Returns why it failed, or an empty string. Calls look with every line of its output."""
    process = subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    late = threading.Event()

    def stop():
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, stop)
    timer.start()
    failure = before = last = ""
    for line in process.stdout:
        line = line.rstrip("\n")
        look(line)
        failure = failure or first_failure(line, before)
        if line.startswith("FAIL  "):  # the search would go on
            os.killpg(process.pid, signal.SIGKILL)
            break
        before, last = line, line or last
    code = process.wait()
    timer.cancel()
    if late.is_set():
        return f"hangs after {seconds:.0f} s"
    if failure or code == 0:
        return failure
    return signal.Signals(-code).name if code < 0 else f"exit code {code}: {last}"


class Runner:
    """Runs the programs of the build as they are, and under each mutant."""

    def __init__(self, place, device, patience, quick_seconds, slow_alone):
        self.out, self.device, self.patience = place / device, device, patience
        self.quick_seconds = quick_seconds  # 0: all cases
        self.slow_alone = slow_alone
        self.cases = ["~[.]~[cpu]" if device == "cuda" else "~[.]~[cuda]"]
        self.fault = "mxq_graph_test" if device == "cuda" else "mxq_fault_test"
        self.seconds, self.quick = {}, {}  # that programs take without a mutant; cases by program

    def environment(self, number):
        folders = [str(self.out / "src"), os.environ.get("LD_LIBRARY_PATH", "")]
        environment = dict(os.environ, MXQ_TEST_DATA_DIR=str(SOURCE / "tests/data"), MXQ_MUTANT=str(number),
                           MXQ_TEST_HEADER=str(SOURCE / "include/mxq/mxq.h"), LD_LIBRARY_PATH=":".join(filter(None, folders)))
        return environment

    def command(self, program, *arguments):
        return [self.out / "tests" / program, *arguments]

    def search(self):
        return self.command("search/mxq_search", "--list", HERE.parent / "search/calls.txt", "--calls", "20000",
                            "--device", self.device)

    def shards(self, program, count):
        return [self.command(program, "-a", "-d", "yes", *self.cases, "--shard", f"{i}/{count}") for i in range(1, count + 1)]

    def measure(self, jobs):
        """Runs everything without a mutant. Returns what fails, or an empty string."""
        kept = self.out / "measured.json"
        if kept.is_file():
            self.seconds, self.quick = json.loads(kept.read_text())
            return ""
        commands = {name: self.shards(name, max(jobs, SHARDS)) for name in ["mxq_tests", "mxq_unit_tests"]}
        commands |= {"search": [self.search()]}
        if not self.quick_seconds:
            commands[self.fault] = [self.command(self.fault)]
        durations = {name: {} for name in commands}  # of cases

        def run(name, command):
            def look(line):
                if match := re.fullmatch(r"([0-9.]+) s: (.*)", line):
                    durations[name][match[2]] = float(match[1])

            begin = time.monotonic()
            most = 3600 if name == "search" else self.quick_seconds or 3600
            failure = run_command(command, self.environment(0), most, look)
            return name, failure, time.monotonic() - begin

        # Programs that are one process take longest, so they begin.
        parts = [(name, part) for name in sorted(commands, key=lambda name: len(commands[name])) for part in commands[name]]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(run, *zip(*parts)))
        for name in commands:
            failures = [failure for program, failure, seconds in results if program == name and failure]
            if failures and (not self.quick_seconds or name == "search"):  # else each mutant would seem caught
                return f"{name}: {failures[0]}"
            for failure in failures:
                print(f"without a mutant {name}: {failure}", flush=True)
            longest = max(seconds for program, failure, seconds in results if program == name)
            self.seconds[name] = max(longest, sum(durations[name].values()))
            self.quick[name] = {case: seconds for case, seconds in durations[name].items()
                                if seconds <= (QUICK_ALONE if self.quick_seconds else QUICK) and case not in failures}
            print(f"without a mutant {name} passes in {self.seconds[name]:.1f} s", flush=True)
        kept.write_text(json.dumps([self.seconds, self.quick]))
        return ""

    def steps(self):
        """Returns what a mutant must get through, cheap first: the program, the seconds without a mutant, the command."""
        def step(name, command):
            return name, self.seconds[name], command

        steps = [(name, sum(self.quick[name].values()), self.command(name, "-a", *map(filter_of, self.quick[name])))
                 for name in ["mxq_tests", "mxq_unit_tests"]]
        # A GPU gets through the search sooner than through the quick cases.
        steps.insert(0 if self.device == "cuda" or self.quick_seconds else len(steps), step("search", self.search()))
        if self.quick_seconds:
            return steps
        slow = [step(self.fault, self.command(self.fault, "-a")),
                step("mxq_unit_tests", self.command("mxq_unit_tests", "-a", *self.cases)),
                *(step("mxq_tests", command) for command in self.shards("mxq_tests", SHARDS))]
        return slow if self.slow_alone else steps + slow

    def run(self, number):
        """Returns (program, failure) of the first step that fails under a mutant, or two empty strings."""
        for name, seconds, command in self.steps():
            failure = run_command(command, self.environment(number), self.patience * seconds + 6 * self.patience)
            if failure:
                return name, failure
        return "", ""


def take(folder, name):
    """Returns whether no other run that has the folder has taken the mutant. A file there says so to the next."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def run_all(runner, mutants, jobs, seconds, share):
    """Runs the mutants and prints a line for each. Returns how many were caught, are equivalent, survived, or were not begun."""
    counts = {"caught": 0, "equivalent": 0, "survived": 0, "not reached": 0} | ({"elsewhere": 0} if share else {})
    end = time.monotonic() + seconds

    def one(mutant):
        if mutant.equivalent:
            return "equivalent", f"equivalent  {mutant.name}: {mutant.equivalent}"
        begin = time.monotonic()
        if begin > end:
            return "not reached", f"not reached {mutant.name}"
        if share and not take(share, mutant.name):
            return "elsewhere", ""
        program, failure = runner.run(mutant.number)
        seconds = time.monotonic() - begin
        if program:
            return "caught", f"caught      {mutant.name}: {program}, {seconds:.1f} s: {failure[:100]}"
        return "survived", f"SURVIVED    {mutant.name}: {mutant.meaning} ({seconds:.1f} s)"

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for result in concurrent.futures.as_completed([pool.submit(one, mutant) for mutant in mutants]):
            outcome, line = result.result()
            counts[outcome] += 1
            if line:
                print(line, flush=True)
    return counts


def main():
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", metavar="NAME", action="append")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--patience", type=float, default=10)
    parser.add_argument("--quick", type=float, default=0)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--share", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("--leave-out", metavar="FILE", action="append", default=[])
    options = parser.parse_args()

    everything = read_lists()
    wrong = check(everything)
    if options.check or wrong:
        print("\n".join(wrong) or f"{len(everything)} mutants")
        return bool(wrong)
    # Numbers stay, so that a build and a run name the same mutants.
    everything = [m for m in everything if not any(file in options.leave_out for file, edit in m.edits)]
    mutants = [m for m in everything if m.device == options.device and (not options.only or m.name in options.only)]
    if not mutants:
        sys.exit(f"no mutant of {options.device} has this name")
    if options.list:
        for mutant in mutants:
            print(f"{mutant.number:4} {mutant.name}: {mutant.meaning}")
        return 0
    place = pathlib.Path(os.environ.get("MXQ_BUILD_DIR") or SOURCE / "build/mutants").absolute()
    if not options.run and not options.measure:
        build(place, options.device, everything, options.jobs)
    if options.build:
        return 0
    runner = Runner(place, options.device, options.patience, options.quick, options.slow)
    if failure := runner.measure(options.jobs):
        print(f"FAIL  without a mutant: {failure}")
        return 1
    if options.measure:
        return 0
    number, count = map(int, options.part.split("/"))
    counts = run_all(runner, mutants[number - 1::count], options.jobs, options.seconds, options.share)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return counts["survived"] > 0


if __name__ == "__main__":
    sys.exit(main())
