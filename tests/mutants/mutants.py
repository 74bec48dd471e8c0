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
import collections
import concurrent.futures
import contextlib
import heapq
import itertools
import json
import os
import pathlib
import random
import re
import select
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
CALLS = HERE.parent / "search/calls.txt"
IMPLEMENTATION = re.compile(r"^MXQ_IMPLEMENTATION\((?:portable|sm90), \w+, (\w+)\)", re.M)
VERBS = re.compile(r"verbs = \{(.*?)\}", re.S)
MARK = re.compile(r"\{\{(.*?) => (.*?)\}\}(?!\})")

SERVE_CASES = """\
    if (result == 0 && mutants::are_served())
        return mutants::serve([&](const std::string& name) {
            auto data = session.configData();
            data.testsOrTags = {filter_of(name)};
            data.abortAfter = 1;
            session.useConfigData(data);
            passed = failed = skipped = 0;
            const int status = session.run();
            return std::string(status != 0 || failed != 0 ? "fails" : passed + skipped != 1 ? "did not run" : "");
        });
"""
SERVE_CALLS = """\
    if (mutants::are_served()) {
        std::vector<Runner> runners = make_runners(options, 0);
        search::Counts counts;
        return mutants::serve([&](std::string& item) -> std::string {
            std::vector<std::string> words{"mxq_search", "--device", options.device};
            for (size_t begin = 0, end; begin < item.size(); begin = end + 1) {
                end = std::min(item.find('\\t', begin), item.size());
                words.push_back(item.substr(begin, end - begin));
            }
            std::vector<char*> arguments;
            for (std::string& word : words) arguments.push_back(word.data());
            try {
                const Call call = only(read_options(static_cast<int>(arguments.size()), arguments.data()), runners);
                item = "--only\\t" + search::text_of(call);
                return search::check_call(call, runners, counts);
            } catch (const std::exception& error) {
                return error.what();
            }
        });
    }
"""

# Changes that the copied tree needs besides the mutants, each as (file, text to replace, text in its place).
CHANGES = [
    ("src/cuda/device.cpp", "    load(context);", "    mutants::tell_device(ordinal);\n    load(context);"),
    ("src/libmxq.map", "global:\n    mxq_amax;", "global:\n    _ZN7mutants*;\n    mxq_amax;"),
    ("tests/main.cpp", '#include "catch.h"', '#include "catch.h"\n#include "mutants/serve.h"'),
    ("tests/main.cpp", "    Catch::Session session;", "    mutants::tell_device(0);\n    Catch::Session session;"),
    ("tests/main.cpp", "    if (result == 0) result = shard", SERVE_CASES + "    if (result == 0) result = shard"),
    ("tests/search/main.cpp", '#include "shrink.h"', '#include "shrink.h"\n#include "../mutants/serve.h"'),
    ("tests/search/main.cpp", "    Search search(options);", SERVE_CALLS + "    Search search(options);"),
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
    for what in RUNS:
        (out / f"{what}.json").unlink(missing_ok=True)
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
#
# An item is a test case, or a call of the search. First all items run without a mutant, and record which mutants they reach.
# Then each mutant runs what reaches it, the fast ones first, and calls as long as cases.

SEARCH = "search/mxq_search"
RECORD = -1  # in place of a mutant's number
LONGEST = 900  # seconds that an item may take without a mutant
DRAWS = 300  # calls of each verb, and a quarter of them of each implementation
RUNS = ["search", "cases"]
STEPS = ["reached", "alone"]  # what a mutant gets through: what reaches it, and cases in processes of their own


class Ended(Exception):
    """Says how a process ended that has not answered."""


class Worker:
    """A process that runs items, as serve.h says."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.rest = b""

    def ask(self, number, item, seconds):
        """Runs an item under a mutant. Returns its seconds, the mutants that it reached, its better name, and why it failed."""
        end = time.monotonic() + seconds
        try:
            self.process.stdin.write(f"{number} {item}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        while True:
            *lines, self.rest = self.rest.split(b"\n")
            for line in lines:
                if line.startswith(b"served\t"):
                    taken, reached, *name, failure = line.decode(errors="replace").split("\t")[1:]
                    return float(taken), [int(n) for n in reached.split()], "\t".join(name), failure
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Ended(f"hangs after {seconds:.0f} s")
            text = os.read(self.process.stdout.fileno(), 1 << 16)
            if not text:
                code = self.process.wait()
                raise Ended(signal.Signals(-code).name if code < 0 else f"exit code {code}")
            self.rest += text

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


Item = collections.namedtuple("Item", "program name seconds reached")


def in_turn(calls, cases):
    """Returns all, so that at any time the calls have taken about as long as the cases."""
    def timed(items):
        return zip(itertools.accumulate(item.seconds for item in items), items)

    return [item for seconds, item in heapq.merge(timed(calls), timed(cases), key=lambda pair: pair[0])]


class Runner:
    """Runs items of the programs of the build, as they are and under mutants. Each thread has processes of its own."""

    def __init__(self, out, device, patience):
        self.out, self.device, self.patience = out, device, patience
        self.own = threading.local()
        self.workers = []

    def environment(self, number):
        folders = [str(self.out / "src"), os.environ.get("LD_LIBRARY_PATH", "")]
        return dict(os.environ, MXQ_TEST_DATA_DIR=str(SOURCE / "tests/data"), MXQ_TEST_HEADER=str(SOURCE / "include/mxq/mxq.h"),
                    LD_LIBRARY_PATH=":".join(filter(None, folders)), MXQ_MUTANT=str(number), MXQ_MUTANTS_SERVED="1")

    def start(self, program, number):
        arguments = ["--list", CALLS, "--device", self.device] if program == SEARCH else []
        self.workers.append(Worker([self.out / "tests" / program, *arguments], self.environment(number)))
        return self.workers[-1]

    def end_all(self):
        for worker in self.workers:
            worker.end()
        self.workers.clear()

    def worker(self, program, number):
        """Returns the thread's process of a program, which begins as this mutant."""
        workers = self.own.__dict__
        if program not in workers:
            workers[program] = self.start(program, number)
        return workers[program]

    def end(self, program):
        self.own.__dict__.pop(program).end()

    def groups(self, what):
        """Returns (program, names) of all items, in groups that a process runs best one after another."""
        if what == "search":
            lines = [line for line in CALLS.read_text().splitlines() if line and line[0] != "#"]
            implementations = IMPLEMENTATION.findall((SOURCE / "src/cuda/implementations.def").read_text())
            yield from ((SEARCH, [f"--only\t{line}" for line in lines[i::64]]) for i in range(64))
            for name in implementations if self.device == "cuda" else []:
                yield SEARCH, [f"--implementation\t{name}\t--only\t{i}" for i in range(DRAWS // 4)]
            for verb in re.findall(r'"(\w+)"', VERBS.search((HERE.parent / "search/draw.cpp").read_text())[1]):
                yield from ((SEARCH, [f"--verb\t{verb}\t--only\t{i}" for i in range(part, DRAWS, 8)]) for part in range(8))
            return
        for program in ["mxq_graph_test" if self.device == "cuda" else "mxq_fault_test", "mxq_tests", "mxq_unit_tests"]:
            cases = "~[.]~[cpu]" if self.device == "cuda" else "~[.]~[cuda]"
            environment = self.environment(0)
            del environment["MXQ_MUTANTS_SERVED"]
            listed = subprocess.run([self.out / "tests" / program, "--list-test-names-only", cases], env=environment, text=True,
                                    stdout=subprocess.PIPE).stdout
            yield from ((program, [name]) for name in listed.splitlines()[:-1])  # the last line counts them

    def record(self, program, names, limit):
        """Runs items without a mutant. Returns those that pass, with what they reach, and what the others say."""
        items, failures = [], []
        for name in names:
            try:
                seconds, reached, name, failure = self.worker(program, RECORD).ask(RECORD, name, limit)
            except Ended as error:
                failure = str(error)
                self.end(program)
            if failure.startswith("no call that "):
                break
            if failure:
                failures.append(f"{program}: {name}: {failure}")
            else:
                items.append(Item(program, name, seconds, reached))
        return items, failures

    def failure(self, number, item):
        """Returns why an item fails under a mutant, or an empty string."""
        seconds = self.patience * (item.seconds + 6)
        try:
            worker = self.worker(item.program, 0)
            if not (failure := worker.ask(number, item.name, seconds)[3]):
                return ""
            if not worker.ask(0, item.name, seconds)[3]:
                return failure
        except Ended:
            pass
        # The process is of no more use. A mutant before this one may have spoilt it.
        self.end(item.program)
        return self.failure_alone(number, item)

    def failure_alone(self, number, item):
        """Returns the same of a process that is this mutant from its beginning."""
        worker = self.start(item.program, number)
        try:
            return worker.ask(number, item.name, self.patience * (item.seconds + 6))[3]
        except Ended as error:
            return str(error)
        finally:
            worker.end()


class Pass:
    """Runs mutants, and keeps what is known of them and of the items in a folder, so that another call goes on."""

    def __init__(self, runner, mutants, options):
        self.runner, self.mutants, self.jobs = runner, mutants, options.jobs
        self.end, self.budget, self.cover = time.monotonic() + options.seconds, options.budget, options.cover
        self.is_complete = True  # what is reached is known
        self.folder = options.share or runner.out
        self.folder.mkdir(parents=True, exist_ok=True)
        self.results = self.folder / "results.txt" if options.share else None
        self.lock = threading.Lock()
        self.outcomes = {mutant.name: "equivalent" for mutant in mutants if mutant.equivalent}
        self.passed = collections.defaultdict(dict)  # by name and step: how many items
        if self.results and self.results.is_file():
            for line in self.results.read_text().splitlines():
                self.note(*re.fullmatch(r"(not reached|\w+) +([\w.-]+): (.*)", line).groups())

    def note(self, outcome, name, text):
        if outcome == "passed":
            step, count = text.split(": ")
            self.passed[name][step] = count
        else:
            self.outcomes[name] = outcome

    def tell(self, outcome, mutant, text):
        line = f"{outcome:11} {mutant.name}: {text}"
        with self.lock:
            self.note(outcome, mutant.name, text)
            if outcome != "passed":
                print(line, flush=True)
            if self.results:
                with self.results.open("a") as results:
                    print(line, file=results)

    def on_all_cores(self, function, values):
        """Returns the results. Processes of the threads end with them."""
        try:
            with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
                return list(pool.map(function, values))
        finally:
            self.runner.end_all()

    def items(self, what):
        """Returns the calls of the search, or the cases, fast ones first. Those that have not run for it before run now."""
        file = self.folder / f"{what}.json"
        kept = json.loads(file.read_text()) if file.is_file() else {"groups": [], "items": []}
        groups = [group for group in self.runner.groups(what) if list(group) not in kept["groups"]]
        if groups:
            begin = time.monotonic()
            end = min(self.end, begin + self.cover)
            limit = min(LONGEST, self.cover)
            results = self.on_all_cores(lambda group: self.runner.record(*group, limit) if time.monotonic() < end else None, groups)
            for group, result in zip(groups, results):
                if not result:
                    continue
                kept["groups"].append(group)
                kept["items"] += result[0]
                for failure in result[1]:
                    print(f"without a mutant  {failure[:300]}", flush=True)
            file.write_text(json.dumps(kept))
            left = results.count(None)
            self.is_complete = self.is_complete and left == 0
            print(f"{what}: {len(kept['items'])} in {time.monotonic() - begin:.0f} s, {left} of {len(groups)} groups left", flush=True)
        chance = random.Random(1)  # calls differ more in this order than in that of their seconds
        items = [Item(program, name, seconds, set(reached)) for program, name, seconds, reached in kept["items"]]
        return sorted(items, key=lambda item: item.seconds * (chance.random() if what == "search" else 1))

    def run(self, mutant, step, items):
        """Runs what reaches a mutant until it fails, or has taken as long as a mutant may."""
        failure_of = self.runner.failure_alone if step == "alone" else self.runner.failure
        end, count = time.monotonic() + self.budget, 0
        for item in items:
            if time.monotonic() > self.end:
                return
            if time.monotonic() > end:
                break
            if failure := failure_of(mutant.number, item):
                name = item.name.replace("\t", " ")
                return self.tell("caught", mutant, f"{item.program}: {name}: {failure}"[:300])
            count += 1
        if self.is_complete:
            self.tell("passed", mutant, f"{step}: {count} of {len(items)}")

    def run_all(self):
        """Runs all mutants. Returns how many have which outcome."""
        calls, cases = self.items("search"), self.items("cases")
        for step in STEPS:
            left = [m for m in self.mutants if m.name not in self.outcomes and step not in self.passed[m.name]]
            reaching = [[[item for item in items if m.number in item.reached] for items in (calls, cases)] for m in left]
            orders = [in_turn(*both) if step == "reached" else both[1] for both in reaching]
            self.on_all_cores(lambda pair: self.run(pair[0], step, pair[1]),
                              sorted(zip(left, orders), key=lambda pair: sum(item.seconds for item in pair[1])))
        for mutant in self.mutants:
            passed = self.passed[mutant.name]
            if mutant.name in self.outcomes or len(passed) < len(STEPS):
                continue
            if all(count.endswith(" of 0") for count in passed.values()):
                self.tell("not reached", mutant, mutant.meaning)
            else:
                self.tell("SURVIVED", mutant, f"{mutant.meaning} " + ", ".join(f"{step}: {passed[step]}" for step in passed))
        return collections.Counter(self.outcomes.get(mutant.name, "left") for mutant in self.mutants)


def main():
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", metavar="NAME", action="append")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--patience", type=float, default=10)
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--cover", type=float, default=float("inf"))
    parser.add_argument("--share", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("--leave-out", metavar="FILE", action="append", default=[])
    options = parser.parse_args()

    everything = read_lists()
    wrong = [] if options.run else check(everything)  # sources may have changed since the build
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
    if not options.run:
        build(place, options.device, everything, options.jobs)
    if options.build:
        return 0
    number, count = map(int, options.part.split("/"))
    runner = Runner(place / options.device, options.device, options.patience)
    counts = Pass(runner, mutants[number - 1::count], options).run_all()
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return counts["SURVIVED"] > 0


if __name__ == "__main__":
    sys.exit(main())
