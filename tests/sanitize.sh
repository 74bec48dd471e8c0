#!/usr/bin/env bash
# ./tests/sanitize.sh address|thread [build-dir] [more arguments of cmake]
# Builds the CPU backend and its tests with AddressSanitizer and UndefinedBehaviorSanitizer, or with ThreadSanitizer, and runs
# what they can see: the first runs every test program, the second those with threads.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in
address) sanitizers=address,undefined ;;
thread) sanitizers=thread ;;
*) sed -n '2,4s/^# //p' "$0" && exit 2 ;;
esac
build=${2:-$source/build/$1}
shift $(($# < 2 ? $# : 2))
cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMXQ_CUDA=OFF -DMXQ_TESTS=ON -DMXQ_EXAMPLES=OFF \
    "-DMXQ_SANITIZE=$sanitizers" "$@" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target mxq_tests mxq_unit_tests mxq_search mxq_fuzz_replay
cd "$build/tests"
failed=0
run() { echo "== $*" && "$@" | tail -n 1 || failed=1; }
set -o pipefail
if [ "$sanitizers" = thread ]; then
    export TSAN_OPTIONS=halt_on_error=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}
    run ./mxq_tests "contracts*,threads*,shared threads*,host threads*"
    run ./mxq_unit_tests "thread pool*"
    run ./search/mxq_search --calls 3000
else
    export UBSAN_OPTIONS=print_stacktrace=1
    run ./mxq_tests "~[cuda]~[.]"
    run ./mxq_unit_tests "~[cuda]~[.]"
    run ./search/mxq_search --list "$source/tests/search/calls.txt" --calls 20000
    run ./fuzz/mxq_fuzz_replay "$source/tests/fuzz/corpus" --random 2000
fi
[ "$failed" = 0 ]
