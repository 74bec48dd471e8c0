#!/usr/bin/env bash
# ./tests/search/soak.sh --seconds S [--device cpu|cuda] [--calls N] [--seed S] [--alone 0|1]
# The long run: two processes of two threads each compare random calls of every verb on a GPU with the oracle and with the CPU,
# and fail where memory grows once they are warm. Twenty minutes: --seconds 1200.
#   --alone 0            other programs use the GPU: its memory is compared only where the driver tells that of a process
#   MXQ_BUILD_DIR=dir    a build of the tests; default: build/tests, where ./tests/run.sh builds
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=${MXQ_BUILD_DIR:-$here/../../build/tests}/tests/search/mxq_soak
if [ ! -x "$program" ]; then
    echo "skip  mxq_soak: not in this build"
    echo "0 passed, 0 failed, 1 skipped"
    exit
fi
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
seed=$RANDOM
for number in 1 2; do "$program" --seed "$((seed + number))" "$@" >"$logs/$number" 2>&1 & done
failed=0
for job in $(jobs -p); do wait "$job" || failed=$((failed + 1)); done
cat "$logs/1" "$logs/2" | grep -v ' passed, '
echo "$((2 - failed)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
