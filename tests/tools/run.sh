#!/usr/bin/env bash
# ./tests/tools/run.sh build-dir
# Runs mxq-info: its exit codes, its text, and its JSON as a JSON reader sees it. Checks that the lists of mutants fit the sources.
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"

if command -v python3 >/dev/null; then
    check "mutants: each fits its source" "$source/tests/mutants/run.sh" --check
else
    skip "mutants" "python3 is not here"
fi

info=$build/src/tools/mxq-info
if [ ! -x "$info" ]; then
    skip "mxq-info" "not in this build"
    finish
fi

tells_text() {
    "$info" >"$work/text" && cat "$work/text" &&
        grep -qE '^libmxq +[0-9]+\.[0-9]+\.[0-9]+$' "$work/text" && grep -qE '^build +.*CUDA' "$work/text" &&
        grep -qE '^device +CPU, [0-9]+ threads?, ' "$work/text" && grep -qE '^  cuBLASLt ' "$work/text" &&
        grep -qE '^quantize +mxfp8_e4m3 +cpu$' "$work/text" &&
        grep -qE '^swizzle_scales +fp8_e4m3 +no \(row, tensor\): ' "$work/text"
}
check "mxq-info" tells_text

refuses() { # arguments...: exit code 2, usage on stderr, nothing on stdout
    "$info" "$@" >"$work/out" 2>"$work/err"
    [ $? = 2 ] && [ ! -s "$work/out" ] && grep -q '^usage: mxq-info' "$work/err"
}
check "mxq-info --jason is refused" refuses --jason
check "mxq-info --json more is refused" refuses --json more
helps() { "$info" --help | grep -q '^usage: mxq-info'; }
check "mxq-info --help" helps

# mxq-info must answer on a machine with wrong settings, too.
tells_of_settings() {
    MXQ_IMPL=gemm:none "$info" >"$work/text" && cat "$work/text" && grep -q '^environment *MXQ_IMPL=gemm:none$' "$work/text" &&
        grep -q '^no CPU .*MXQ_IMPL.*implementation of gemm' "$work/text"
}
check "mxq-info under a wrong MXQ_IMPL" tells_of_settings

read_json() { # what must hold, in Python with the document as `d`
    "$info" --json >"$work/json" && python3 - "$work/json" "$1" <<'PYTHON'
import json, sys
d = json.load(open(sys.argv[1]))
answers = d["support"]
def ask(**wanted):
    return [a for a in answers if all(a[name] == value for name, value in wanted.items())]
for line in sys.argv[2].strip().splitlines():
    assert eval(line), line
PYTHON
}
if command -v python3 >/dev/null; then
    check "mxq-info --json: the machine" read_json '
        d["version"].count(".") == 2 and "CUDA" in d["build"]
        d["devices"][0]["type"] == "cpu" and d["devices"][0]["threads"] >= 1 and d["devices"][0]["instruction_set"]
        all(("unavailable" in x) != ("cublaslt" in x) for x in d["devices"])
        any(x["type"] == "cuda" for x in d["devices"])'
    check "mxq-info --json: every verb and format, each with an implementation or a reason" read_json '
        len({a["verb"] for a in answers}) == 11
        len({(a["verb"], a["format"]) for a in ask(device=0)}) == 11 * 11
        {a["device"] for a in answers} == {i for i, x in enumerate(d["devices"]) if "cublaslt" in x}
        all(a["implementation"] or a["reason"] for a in answers)
        all(a["implementation"] in ("cpu", None) for a in ask(device=0))
        {a["implementation"] for a in ask(device=0, verb="quantize")} == {"cpu"}
        {a["bound"] for a in ask(device=0) if a["implementation"] and "gemm" in a["verb"]} == {"exact_products"}
        {a["bound"] for a in ask(device=0) if "gemm" not in a["verb"]} == {None}
        ask(device=0, verb="swizzle_scales", format="fp8_e5m2", scaling="1x128")[0]["implementation"] == "cpu"
        "row" in ask(device=0, verb="swizzle_scales", format="fp8_e5m2", scaling="row")[0]["reason"]
        [a["use"] for a in ask(device=0, verb="gemm", format="bf16") if a["implementation"]] == ["(N,T)", "(N,N)", "(T,N)"]
        [a["use"] for a in ask(device=0, verb="grouped_gemm", format="nvfp4", scaling="16x16")] == ["(N,T)", "(N,N)", "(T,N)"]'
    forced() { MXQ_IMPL='gemm:mma_bf16,amax:"\' "$info" --json >"$work/json" && python3 -m json.tool "$work/json"; }
    check "mxq-info --json: quotes in the environment" forced
else
    skip "mxq-info --json" "python3 is not here"
fi
finish
