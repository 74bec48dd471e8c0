#!/usr/bin/env bash
# ./tests/search/coverage.sh [options of run.sh; default: --calls 20000]
# Says which lines of src/core, src/numerics and src/cpu the search alone reaches: a table, and lines.txt and branches.txt in the
# build directory. Builds the library with --coverage there, and runs the search that ./tests/run.sh built. Needs gcovr.
#   MXQ_BUILD_DIR=dir      the build of the search; default: build/tests
#   MXQ_COVERAGE_DIR=dir   where the library is built; default: build/coverage
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${MXQ_BUILD_DIR:-$source/build/tests}
coverage=${MXQ_COVERAGE_DIR:-$source/build/coverage}
if ! command -v gcovr >/dev/null; then
    echo "coverage.sh needs gcovr; install it with: pip install gcovr" >&2
    exit 2
fi

cmake -S "$source" -B "$coverage" -DCMAKE_BUILD_TYPE=Debug -DMXQ_CUDA=OFF -DMXQ_TESTS=OFF -DMXQ_EXAMPLES=OFF -DMXQ_TOOLS=OFF \
    "-DCMAKE_CXX_FLAGS=--coverage -O1 -fprofile-update=atomic" >/dev/null
cmake --build "$coverage" --target mxq --parallel "$(nproc)"
find "$coverage" -name '*.gcda' -delete

[ $# -gt 0 ] || set -- --calls 20000
LD_LIBRARY_PATH=$coverage/src "$build/tests/search/mxq_search" --device cpu "$@"

cd "$source"
merge=  # gcovr counts a line once for each instance of a template from release 8 on, unless it is asked not to
case $(gcovr --help) in *--merge-lines*) merge=--merge-lines ;; esac
report() { # file metric
    gcovr --root . --object-directory "$coverage/src" "$coverage/src" --filter 'src/(core|numerics|cpu)/' \
        --exclude-throw-branches ${merge:+"$merge"} --merge-mode-functions merge-use-line-min --txt-metric "$2" --txt "$coverage/$1"
}
report lines.txt line
report branches.txt branch
cat "$coverage/lines.txt"
echo "branches:"
tail -n 2 "$coverage/branches.txt"
