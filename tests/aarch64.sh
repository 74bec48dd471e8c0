#!/usr/bin/env bash
# ./tests/aarch64.sh [build-dir]
# Cross-compiles the library, its tools and its tests for 64-bit Arm without CUDA, and runs the tests under qemu-user. It needs
# g++-aarch64-linux-gnu, qemu-user, and Catch2 2.13, whose one header serves every machine. Ends with the line of counts.
#   MXQ_CMAKE_ARGS    more arguments for cmake, such as -DCatch2_DIR=folder for a Catch2 3 of that machine
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build/aarch64}
cores=$(nproc)
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v $tool >/dev/null || { echo "$tool is not here: on Debian and Ubuntu, apt-get install g++-aarch64-linux-gnu qemu-user" && exit 1; }
done

# Catch2's folder holds headers of this machine as well, so that its own header is taken alone.
mkdir -p "$build/catch2/include" || exit 1
ln -sfn /usr/include/catch2 "$build/catch2/include/catch2"
cat >"$build/catch2/Catch2Config.cmake" <<'END'
add_library(Catch2::Catch2 INTERFACE IMPORTED)
target_include_directories(Catch2::Catch2 INTERFACE ${CMAKE_CURRENT_LIST_DIR}/include)
END
programs="mxq_tests mxq_unit_tests mxq_unload_test mxq_copies_test"
# shellcheck disable=SC2086  # words are meant to split
cmake -S . -B "$build" --toolchain cmake/toolchains/aarch64-linux-gnu.cmake -DCMAKE_BUILD_TYPE=Release -DMXQ_CUDA=OFF \
    -DMXQ_TESTS=ON "-DCatch2_DIR=$(cd "$build" && pwd)/catch2" ${MXQ_CMAKE_ARGS:-} &&
    cmake --build "$build" --parallel "$cores" --target mxq mxq_info quantize_c $programs || exit 1

arm() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"; }
arm "$build/src/tools/mxq-info" && arm "$build/examples/quantize" || exit 1

# Cases that fork, or that start this program again, need more than qemu-user can do.
part() { # program part
    arm "$build/tests/$1" --shard "$2" "~[.]" "~*fork*" "~MXQ_LOG*" >"$logs/$1.${2%/*}" 2>&1 || cat "$logs/$1.${2%/*}"
}
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
export MXQ_TEST_DATA_DIR=$PWD/tests/data build logs
export -f part arm
parts=$((8 * cores))
for program in $programs; do
    for ((i = 1; i <= parts; i++)); do echo "$program $i/$parts"; done
done | xargs -P "$cores" -L 1 bash -c 'part "$@"' part

# Adds the counts of all parts; one without a line of counts is a failure.
cat "$logs"/* | awk -v parts="$(find "$logs" -type f | wc -l)" '
    / passed, .* failed, .* skipped$/ { passed += $1; failed += $3; skipped += $5; counted += 1 }
    END { failed += parts - counted; print passed " passed, " failed " failed, " skipped " skipped"; exit failed > 0 }'
