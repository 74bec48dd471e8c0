#!/usr/bin/env bash
# ./tests/blackwell.sh [build-dir [report]]
# Runs the ten commands of docs/blackwell.md in order on a chip that nobody of the project has, and writes a report to send back.
# It runs anywhere: what a machine lacks is skipped and said so. The last line counts the commands.
#   build-dir   a build of the tests; default: build/tests, where ./tests/run.sh builds
#   report      default: blackwell-report.txt
#   MXQ_CUBLASLT_PATH        the cuBLASLt to take, as for the library
#   MXQ_STRESS_REPETITIONS   of each product of the eighth command; default: 1000
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:-$here/../build/tests}" && pwd) || exit 1
report=${2:-blackwell-report.txt}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0 number=0

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd 0-9)

say() { printf '%s\n' "$*" | tee -a "$report"; }

# Writes the result of the command whose output is in $log. `said`: pass, FAIL or skip, and why.
conclude() { # title said command...
    local title=$1 said=$2
    shift 2
    { echo && echo "==== $number. $title" && echo "\$ $*" && cat "$log"; } >>"$report"
    case $said in
        pass*) passed=$((passed + 1)) ;;
        FAIL*) failed=$((failed + 1)) ;;
        *) skipped=$((skipped + 1)) ;;
    esac
    say "$said  $number. $title: $(grep -v '^ *$' "$log" | tail -n 1)"
}

# Runs a program whose last line counts its tests. One that ran none is skipped.
tests() { # title program arguments...
    local title=$1 code said
    shift
    number=$((number + 1))
    if [ ! -x "$1" ]; then
        echo "not in this build" >"$log"
        conclude "$title" skip "$@"
        return
    fi
    "$@" >"$log" 2>&1
    code=$?
    if [ "$code" != 0 ]; then said=FAIL
    elif tail -n 1 "$log" | grep -q '^0 passed, 0 failed'; then said=skip
    else said=pass; fi
    conclude "$title" "$said" "$@"
}

# Runs a program that says nothing of tests, where there is a GPU.
program() { # title program arguments...
    local title=$1
    shift
    number=$((number + 1))
    if [ -z "$capability" ]; then
        echo "no CUDA device" >"$log"
        conclude "$title" skip "$@"
    elif [ ! -x "$1" ]; then
        echo "not in this build" >"$log"
        conclude "$title" skip "$@"
    elif "$@" >"$log" 2>&1; then
        conclude "$title" pass "$@"
    else
        conclude "$title" FAIL "$@"
    fi
}

: >"$report" || exit 1
{
    echo "libmxq on a chip that it has not run on"
    date -u
    uname -srm
    git -C "$here" describe --always --dirty 2>/dev/null
    nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total --format=csv 2>/dev/null || echo "no GPU"
} >>"$report"
if [ -z "$capability" ]; then say "There is no GPU here: what needs one is skipped, and nothing is said of Blackwell."
elif [ "$capability" -lt 100 ]; then say "This is no Blackwell GPU: what passes here says nothing of one."; fi

unit=$build/tests/mxq_unit_tests suite=$build/tests/mxq_tests
tests "the library's attributes" "$unit" "cublaslt library*,cublaslt session: a library that is here*"
number=$((number + 1))
if [ ! -x "$build/src/tools/mxq-info" ]; then
    said=skip
    echo "not in this build" >"$log"
elif "$build/src/tools/mxq-info" >"$log" 2>&1; then
    said=pass
    library=$(sed -n 's/^ *cuBLASLt  *//p' "$log" | tail -n 1)
    echo "cuBLASLt: ${library:-none}" >>"$log"
else
    said=FAIL
fi
conclude "what runs by which implementation" "$said" "$build/src/tools/mxq-info"
tests "conversions and passes" "$unit" "device numerics*,block scaled*"
tests "dense products" "$suite" "cublaslt products: every kind of scales and transpose*"
tests "factors and bias" "$suite" "gemm options*,grouped gemm options*"
tests "groups: ragged, one, 256, empty" "$suite" "cublaslt products: groups*"
program "random calls" "$build/tests/search/mxq_search" --device cuda --calls 20000 --list "$here/search/calls.txt"
tests "a thousand times, beside Tensor Memory" "$unit" "stress*"
tests "graphs" "$build/tests/mxq_graph_test"
program "speed" "$build/tests/bench/mxq_bench" --device cuda --suite block_scaled

say "$passed passed, $failed failed, $skipped skipped; the report is $report"
[ "$failed" = 0 ]
