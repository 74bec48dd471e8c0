#!/usr/bin/env bash
# ./tests/search/run.sh [--calls N | --minutes N] [--seed S] [--only CALL] [--device cpu|cuda] [--implementation NAME] [--verb NAME]
#   [--divided]
# Draws calls of the library at random, runs each by every implementation that takes it, and compares all that they leave behind
# with the oracle. A failure prints a line that makes the call again, is shrunk, and the search goes on.
#   --calls N, --minutes N   how long; without either and without --only: what the suite runs, which is the calls that once
#                            failed (calls.txt) and 20,000 by a fixed seed
#   --only CALL              one call: a printed line, or a number under the seed
#   --divided                each buffer on a GPU is an allocation of its own, for compute-sanitizer
#   MXQ_BUILD_DIR=dir        a build of the tests; default: build/tests, where ./tests/run.sh builds
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${MXQ_BUILD_DIR:-$here/../../build/tests}

program=$build/tests/search/mxq_search
if [ ! -x "$program" ]; then
    echo "skip  mxq_search: not in this build"
    echo "0 passed, 0 failed, 1 skipped"
    exit
fi
suite=1
for argument in "$@"; do
    case $argument in --calls | --minutes | --only | --list | --help) suite=0 ;; esac
done
if [ "$suite" = 1 ]; then set -- --list "$here/calls.txt" --calls 20000 "$@"; fi
exec "$program" "$@"
