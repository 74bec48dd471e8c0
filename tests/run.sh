#!/usr/bin/env bash
# ./tests/run.sh [build-dir]
# Installs what is missing to build (and only that), builds, runs every test, and ends with "N passed, N failed, N skipped".
#   MXQ_BUILD_DIR=dir   take a tree that is already built: no installing, no building
#   MXQ_CMAKE_ARGS      more arguments for cmake
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
cd "$source" || exit 1
passed=0 failed=0 skipped=0

if [ -n "${MXQ_BUILD_DIR:-}" ]; then
    build=$(cd "$MXQ_BUILD_DIR" && pwd) || exit 1
    # It may have been built under another path.
    export LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export MXQ_TEST_DATA_DIR=$source/tests/data MXQ_TEST_HEADER=$source/include/mxq/mxq.h
else
    build=${1:-build/tests}
    # shellcheck source=/dev/null
    . examples/install_missing.sh
    architecture=$(command -v cuda_architecture_argument >/dev/null && cuda_architecture_argument)
    # Without a GPU no kernel runs: that they compile shows on the oldest architecture and on a late one.
    : "${architecture:=-DMXQ_CUDA_ARCHITECTURES=80-real;90a-real}"
    # shellcheck disable=SC2086  # words are meant to split
    install_missing tests &&
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMXQ_TESTS=ON -DMXQ_EXAMPLES=ON $architecture ${MXQ_CMAKE_ARGS:-} &&
        cmake --build "$build" --parallel "$(nproc)" || {
        echo "The build failed."
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    }
fi

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

add() { # passed failed skipped
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

counted() { # name command...: the command's last line has the counts; no such line, or an exit code without a failure, is one
    local name=$1 code line
    shift
    echo "== $name"
    "$@" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    line=$(tail -n 1 "$log")
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        add "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
        if [ "$code" != 0 ] && [ "${BASH_REMATCH[2]}" = 0 ]; then
            echo "FAIL  $name: exit code $code"
            add 0 1 0
        fi
    else
        echo "FAIL  $name: exit code $code and no line of counts"
        add 0 1 0
    fi
}

for name in mxq_tests mxq_unit_tests mxq_fault_test mxq_graph_test mxq_cuda_error_test; do
    counted "$name" "$build/tests/$name"
done
counted tools ./tests/tools/run.sh "$build"
counted consumers ./tests/consumers/run.sh "$build"

moe_layer=$(find "$build/examples" -name moe_layer -type f -perm -u+x 2>/dev/null | head -n 1)
for device in cpu cuda; do
    echo "== moe_layer --device $device --check"
    if [ -z "$moe_layer" ]; then
        echo "skip  moe_layer: not in this build"
        add 0 0 1
    elif (set -o pipefail && "$moe_layer" --device "$device" --data "$source/tests/data/moe.safetensors" --check 2>&1 | tee "$log"); then
        add 1 0 0
    elif [ "$device" = cuda ] && grep -q NO_DEVICE "$log"; then
        echo "skip  moe_layer: no CUDA device"
        add 0 0 1
    else
        echo "FAIL  moe_layer --device $device --check"
        add 0 1 0
    fi
done

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
