#!/usr/bin/env bash
# ./tests/fuzz/run.sh --seconds N [--target NAME]... [--jobs J] [--keep]
# Builds the CPU backend with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer (needs clang), and fuzzes each target
# for N seconds, beginning with the stored inputs. The targets are those of targets.cpp and `checkpoints`, which is Python.
#   --jobs J           as many targets at a time; default: one
#   --keep             writes what was found to corpus/, made small by libFuzzer's -merge, at most 500 inputs a target
#   MXQ_FUZZ_BUILD     the build; default: build/fuzz
#   MXQ_FUZZ_ENGINE    libFuzzer's archive (libclang_rt.fuzzer-x86_64.a): builds with the system's GCC, and needs no clang
# Ends with a table of executions. A fault leaves a file, and a line that runs it again.
set -u
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=${MXQ_FUZZ_BUILD:-$source/build/fuzz}
seconds='' jobs=1 keep=0 targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 && shift 2 ;;
    --target) targets+=("$2") && shift 2 ;;
    --jobs) jobs=$2 && shift 2 ;;
    --keep) keep=1 && shift ;;
    *) sed -n '2,10s/^# //p' "$0" && exit 2 ;;
    esac
done
[ -n "$seconds" ] || { sed -n '2,10s/^# //p' "$0" && exit 2; }
if [ -n "${MXQ_FUZZ_ENGINE:-}" ]; then
    compiler=("-DMXQ_SANITIZE=address,undefined" "-DMXQ_FUZZ_ENGINE=$MXQ_FUZZ_ENGINE") built=(mxq_fuzz mxq_fuzz_replay)
    # GCC's UndefinedBehaviorSanitizer calls nobody before it ends the process; libFuzzer hears of an abort.
    export UBSAN_OPTIONS=abort_on_error=1:print_stacktrace=1
else
    command -v clang++ >/dev/null || { echo "run.sh: clang++ is not here; install clang, or set MXQ_FUZZ_ENGINE" && exit 1; }
    compiler=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ "-DMXQ_SANITIZE=address,undefined,fuzzer-no-link")
    built=(mxq_fuzz mxq_fuzz_replay mxq)
fi
cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Debug "${compiler[@]}" '-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1' \
    -DMXQ_TESTS=ON -DMXQ_EXAMPLES=OFF -DMXQ_TOOLS=OFF -DMXQ_INSTALL=OFF -DMXQ_CUDA=OFF >/dev/null &&
    cmake --build "$build" --parallel "$(nproc)" --target "${built[@]}" || exit 1
programs=$build/tests/fuzz
[ "${#targets[@]}" -gt 0 ] || mapfile -t targets < <("$programs/mxq_fuzz_replay" --names && echo checkpoints)
found=$build/found
mkdir -p "$found" "$build/logs"

# Python's: the plain loop where atheris is not installed.
fuzz_checkpoints() {
    export PYTHONPATH=$source/bindings/python/src
    if python3 -c 'import atheris' 2>/dev/null; then
        timeout -k 10 $((seconds + 30)) python3 "$here/checkpoints.py" --atheris "-max_total_time=$seconds" -max_len=200 "$found/checkpoints"
    else
        local end=$((SECONDS + seconds)) seed=$RANDOM
        while [ "$SECONDS" -lt "$end" ]; do python3 "$here/checkpoints.py" --count 5000 --seed "$((seed++))" || return 1; done
    fi
}
fuzz() { # target
    mkdir -p "$found/$1"
    if [ "$1" = checkpoints ]; then
        fuzz_checkpoints
        return
    fi
    [ -e "$here/corpus/$1.bin" ] && "$programs/mxq_fuzz_replay" --split "$here/corpus/$1.bin" "$found/$1"
    "$programs/mxq_fuzz" "--target=$1" "-max_total_time=$seconds" -max_len=300 -len_control=20 -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 "-artifact_prefix=$build/$1-" "$found/$1"
}
for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    { fuzz "$target" >"$build/logs/$target" 2>&1; echo "$?" >"$build/logs/$target.code"; } &
done
wait

keep_inputs() { # target
    local small=$build/small/$1
    rm -rf "$small" && mkdir -p "$small"
    "$programs/mxq_fuzz" "--target=$1" -merge=1 "$small" "$found/$1" 2>/dev/null || return
    # shellcheck disable=SC2012  # names are hashes
    ls -S -r "$small" | tail -n +501 | sed "s|^|$small/|" | xargs -r rm
    "$programs/mxq_fuzz_replay" --join "$small" "$here/corpus/$1.bin"
}
executions() { # target: from libFuzzer's line, or those of the loop
    sed -n 's/^stat::number_of_executed_units: *//p; s/^Done \([0-9]*\) runs.*/\1/p; s/^\([0-9]*\) checkpoints: .*/\1/p' "$build/logs/$1" |
        awk -v once="$([ "$1" = checkpoints ] || echo 1)" '{ sum = once ? $1 : sum + $1 } END { print sum + 0 }'
}
total=0 failed=0
for target in "${targets[@]}"; do
    count=$(executions "$target")
    total=$((total + count))
    printf '%-20s %10d executions\n' "$target" "$count"
    if [ "$(cat "$build/logs/$target.code")" != 0 ]; then
        failed=$((failed + 1))
        grep -E '^FAIL|ERROR: |runtime error|Test unit written' "$build/logs/$target" | head -n 5
        echo "      again: $programs/mxq_fuzz_replay --only $target FILE, with the file named above; all of it is in $build/logs/$target"
    elif [ "$keep" = 1 ] && [ "$target" != checkpoints ]; then
        keep_inputs "$target"
    fi
done
echo "$total executions of ${#targets[@]} targets"
echo "$((${#targets[@]} - failed)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
