#!/usr/bin/env bash
# ./tests/sanitize.sh address|thread [--part I/N] [--seconds S] [--jobs J] [build-dir] [more arguments of cmake]
# Builds the CPU backend and its tests with AddressSanitizer (which looks for leaks, too) and UndefinedBehaviorSanitizer, or with
# ThreadSanitizer, and runs the whole suite: every case of the test programs, 1,000 cycles of every function and handle, the
# search, and the stored inputs of fuzzing; with ThreadSanitizer what has threads. A program that takes longer than its time fails.
#   --part I/N     the I-th of N parts of the cases; the search draws by another seed in each
#   --seconds S    the most that each program may take; default: 1800
#   --jobs J       for the build; default: one for each core
#   MXQ_BUILD_ONLY=1, MXQ_RUN_ONLY=1    one half of it
# Ends with "N passed, N failed, N skipped", each program counted once.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2,11s/^# //p' "$0" && exit 2; }
case ${1:-} in
address) sanitizers=address,undefined ;;
thread) sanitizers=thread ;;
*) usage ;;
esac
name=$1 part=1/1 seconds=1800 jobs=$(nproc)
shift
while [ $# -gt 0 ]; do
    case $1 in
    --part) part=$2 && shift 2 ;;
    --seconds) seconds=$2 && shift 2 ;;
    --jobs) jobs=$2 && shift 2 ;;
    --*) usage ;;
    *) break ;;
    esac
done
build=${1:-$source/build/$name}
shift $(($# < 1 ? $# : 1))
if [ -z "${MXQ_RUN_ONLY:-}" ]; then
    cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMXQ_CUDA=OFF -DMXQ_TESTS=ON -DMXQ_EXAMPLES=OFF \
        "-DMXQ_SANITIZE=$sanitizers" "$@" >/dev/null
    cmake --build "$build" --parallel "$jobs" --target mxq_tests mxq_unit_tests mxq_fault_test mxq_search mxq_fuzz_replay
fi
[ -z "${MXQ_BUILD_ONLY:-}" ] || exit 0

cd "$build/tests"
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { # program arguments...
    local begin=$SECONDS
    if timeout -k 10 "$seconds" "$@" >"$log" 2>&1; then
        echo "pass  $*: $(tail -n 1 "$log") ($((SECONDS - begin)) s)" && passed=$((passed + 1))
    else
        echo "FAIL  $* ($((SECONDS - begin)) s)" && failed=$((failed + 1))
        grep -A 30 -m 3 -E 'WARNING: ThreadSanitizer|ERROR: |runtime error|FAILED|^FAIL' "$log" || tail -n 30 "$log"
    fi
}
seed=${part%/*}
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
export ASAN_OPTIONS=detect_leaks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
# Children of fork() would be told to stop, since threads of the parent are not in them.
export TSAN_OPTIONS=halt_on_error=1:die_after_fork=0${TSAN_OPTIONS:+:$TSAN_OPTIONS}
run ./mxq_fault_test --shard "$part" "~[.]"
if [ "$name" = thread ]; then
    # Cases with one thread show nothing here that AddressSanitizer's build does not, and take as long again.
    run ./mxq_tests --shard "$part" "contracts*,threads*,shared threads*,host threads*,fork*"
    run ./mxq_unit_tests --shard "$part" "thread pool*,usable cores*,guard*"
    run ./search/mxq_search --calls 3000 --seed "$seed"
else
    run ./mxq_tests --shard "$part" "~[cuda]~[.]"
    run ./mxq_unit_tests --shard "$part" "~[cuda]~[.]"
    run ./search/mxq_search --list "$source/tests/search/calls.txt" --calls 20000 --seed "$seed"
    run ./fuzz/mxq_fuzz_replay "$source/tests/fuzz/corpus" --random 2000
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
