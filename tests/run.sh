#!/usr/bin/env bash
# ./tests/run.sh [build-dir]
# Installs what is missing to build and to test (and only that), builds, runs every test, and ends with "N passed, N failed, N skipped".
# Test programs run side by side, one for each core; the output of those that fail is shown at the end.
#   MXQ_BUILD_DIR=dir         take a tree that is already built: no installing, no building
#   MXQ_CMAKE_ARGS            more arguments for cmake
#   MXQ_MORE_ARCHITECTURES    compile kernels for these too, such as 80-real
#   MXQ_SLOWEST=N             also list the N cases that took longest
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
cd "$source" || exit 1
cores=$(nproc)
# shellcheck source=/dev/null
. examples/install_missing.sh

# The visible GPU's architecture; where there is none, one that proves that kernels compile.
architectures() {
    local first
    first=$(gpu_architecture)
    printf '%s\n' "${first:-90a-real}" ${MXQ_MORE_ARCHITECTURES:-} | sort -u | paste -sd ';'
}
# Where there is no GPU, no kernel runs, so that none needs to be fast.
quick_kernels() { [ -n "$(gpu_architecture)" ] && echo OFF || echo ON; }
# Ninja, where it is, compiles the tests while the last kernels of the library are compiled; make waits for them.
generator() { [ -n "${CMAKE_GENERATOR:-}" ] || [ -e "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || echo -GNinja; }

if [ -n "${MXQ_BUILD_DIR:-}" ]; then
    build=$(cd "$MXQ_BUILD_DIR" && pwd) || exit 1
    # It may have been built under another path.
    export LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export MXQ_TEST_DATA_DIR=$source/tests/data MXQ_TEST_HEADER=$source/include/mxq/mxq.h
else
    build=${1:-build/tests}
    # shellcheck disable=SC2046,SC2086  # words are meant to split
    install_missing tests &&
        cmake -S . -B "$build" $(generator) -DCMAKE_BUILD_TYPE=Release -DMXQ_TESTS=ON -DMXQ_EXAMPLES=ON \
            "-DMXQ_CUDA_ARCHITECTURES=$(architectures)" "-DMXQ_QUICK_KERNELS=$(quick_kernels)" ${MXQ_CMAKE_ARGS:-} &&
        cmake --build "$build" --parallel "$cores" || {
        echo "The build failed."
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    }
fi

logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
trap 'trap "" TERM; kill 0; exit 130' INT # what runs in the background does not hear of Ctrl-C

# ---- Running ---------------------------------------------------------------------------------------------------------

# Runs a command that writes what it has to say to $logs/name and its exit code to $logs/name.code.
run_one() { # name command...
    local name=$1 code begin=$SECONDS
    shift
    "$@" >"$logs/$name" 2>&1 </dev/null
    code=$?
    echo "$code" >"$logs/$name.code"
    echo "$name: $(tail -n 1 "$logs/$name") ($((SECONDS - begin)) s)"
}

names=()
start() { # name command...: once fewer commands than cores are running
    while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n; done
    names+=("$1")
    run_one "$@" &
}

# Cases of the CPU: more parts than cores, so that no core waits long for the last. Cases of a GPU: fewer processes, since their
# kernels take turns on it. [.] are cases that only --long and other tests ask for.
start_shards() { # program
    local i count=$((2 * cores < 32 ? 2 * cores : 32)) gpu_count=$((cores < 10 ? cores : 10))
    for ((i = 1; i <= gpu_count; i++)); do
        start "$1 [cuda] $i of $gpu_count" "$build/tests/$1" --shard "$i/$gpu_count" "[cuda]" ${MXQ_SLOWEST:+-d yes}
    done
    for ((i = 1; i <= count; i++)); do
        start "$1 $i of $count" "$build/tests/$1" --shard "$i/$count" "~[cuda]~[.]" ${MXQ_SLOWEST:+-d yes}
    done
}

moe_layer() { # device
    local program code
    program=$(find "$build/examples" -name moe_layer -type f -perm -u+x 2>/dev/null | head -n 1)
    if [ -z "$program" ]; then
        echo "skip  moe_layer: not in this build"
        echo "0 passed, 0 failed, 1 skipped"
        return
    fi
    "$program" --device "$1" --data tests/data/moe.safetensors --check 2>&1 | tee "$logs/moe_layer_$1"
    code=${PIPESTATUS[0]}
    if [ "$code" = 0 ]; then
        echo "1 passed, 0 failed, 0 skipped"
    elif [ "$1" = cuda ] && grep -q NO_DEVICE "$logs/moe_layer_$1"; then
        echo "skip  moe_layer: no CUDA device"
        echo "0 passed, 0 failed, 1 skipped"
    else
        echo "0 passed, 1 failed, 0 skipped"
        return 1
    fi
}

example() { # name, then nothing or cuda
    local name=$1 program said code
    program=$(find "$build/examples" -name "$name" -type f -perm -u+x 2>/dev/null | head -n 1)
    [ -n "$program" ] || { echo "skip  $name: not in this build" && echo "0 passed, 0 failed, 1 skipped" && return; }
    said=$("$program" "${@:2}" 2>&1)
    code=$?
    echo "$said"
    if [ "$code" = 0 ]; then
        echo "1 passed, 0 failed, 0 skipped"
    elif [ $# = 2 ] && grep -q NO_DEVICE <<<"$said"; then
        echo "skip  $name: no CUDA device"
        echo "0 passed, 0 failed, 1 skipped"
    else
        echo "0 passed, 1 failed, 0 skipped"
        return 1
    fi
}

# The layer of experts over several ranks: threads on the host or on a GPU, one process over NCCL, or one on each of two GPUs.
expert_parallel() { # host, threads, one, two
    local checks program gpus=0 said code
    checks=$(find "$build" -name "expert_parallel_$([ "$1" = host ] && echo host_)checks" -type f -perm -u+x 2>/dev/null | head -n 1)
    program=$(find "$build/examples" -name expert_parallel -type f -perm -u+x 2>/dev/null | head -n 1)
    [ -n "$checks" ] || { echo "skip  expert_parallel: not in this build" && echo "0 passed, 0 failed, 1 skipped" && return; }
    case $1 in
    host) "$checks" threads 256 ;;
    threads) "$checks" threads ;;
    one) env -u RANK -u WORLD_SIZE -u LOCAL_RANK "$checks" nccl ;;
    two)
        gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ')
        [ "$gpus" -ge 2 ] || { echo "skip  expert_parallel: two processes need two GPUs, found $gpus" && echo "0 passed, 0 failed, 1 skipped" && return; }
        said=$(examples/expert_parallel/launch.sh 2 timeout 60 "$program" --tokens 512 --width 256 --hidden 128 --experts 8 --top 2 \
            --timeout-ms 5000 --dies 1 2>&1)
        code=$?
        if [ "$code" = 0 ] || [ "$code" = 124 ] || ! grep -q 'rank 0 of 2: NCCL: ' <<<"$said"; then
            echo "FAIL  a rank that dies: exit code $code" && echo "$said" && echo "0 passed, 1 failed, 0 skipped" && return 1
        fi
        examples/expert_parallel/launch.sh 2 "$checks" nccl
        ;;
    esac
}

# Starts the slowest first, which build, so that none runs alone at the end.
start packages ./tests/packages/run.sh "$build"
start consumers ./tests/consumers/run.sh "$build"
start bindings ./tests/bindings/run.sh "$build"
start pages ./tests/pages/run.sh "$build"
MXQ_BUILD_DIR=$build start search ./tests/search/run.sh
start fuzz "$build/tests/fuzz/mxq_fuzz_replay" tests/fuzz/corpus --random 1000
start_shards mxq_tests
start_shards mxq_unit_tests
of_cuda=''
[ -x "$build/tests/mxq_played_calls_test" ] && of_cuda='mxq_calls_test mxq_played_calls_test'
for name in mxq_fault_test $of_cuda mxq_unload_test mxq_copies_test mxq_graph_test mxq_cuda_error_test mxq_capture_test mxq_streams_test \
    mxq_two_devices_test mxq_large_test; do
    start "$name" "$build/tests/$name" ${MXQ_SLOWEST:+-d yes}
done
start tools ./tests/tools/run.sh "$build"
start hardening ./tests/hardening/run.sh "$build"
start loader ./tests/loader/run.sh "$build"
[ -x tests/bench/run.sh ] && start bench ./tests/bench/run.sh "$build"
for name in decode arrived gpt_oss expert_layer training_step; do start "$name on cpu" example "$name"; done
start "gpt_oss_block on cpu" example gpt_oss_block 2 2 4
start "gpt_oss_block on cuda" example gpt_oss_block_cuda check
for mode in host threads one two; do start "expert_parallel on $mode" expert_parallel "$mode"; done
start "moe_layer on cpu" moe_layer cpu
start "moe_layer on cuda" moe_layer cuda
wait

# ---- Counting --------------------------------------------------------------------------------------------------------

passed=0 failed=0 skipped=0

# Adds the counts of a log's last line. No such line, or an exit code without a failure, is a failure.
count() { # name
    local code passes=0 failures=0 skips=0 wrong=""
    code=$(cat "$logs/$1.code" 2>/dev/null)
    [ "$code" = 0 ] || wrong="exit code $code"
    if [[ $(tail -n 1 "$logs/$1") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passes=${BASH_REMATCH[1]} failures=${BASH_REMATCH[2]} skips=${BASH_REMATCH[3]}
    else
        wrong="exit code $code and no line of counts"
    fi
    if [ "$failures" = 0 ] && [ -n "$wrong" ]; then
        failures=1
        echo "FAIL  $1: $wrong" >>"$logs/$1"
    fi
    passed=$((passed + passes)) failed=$((failed + failures)) skipped=$((skipped + skips))
    [ "$failures" = 0 ]
}

echo
for name in "${names[@]}"; do
    count "$name" || { echo "== $name" && cat "$logs/$name"; }
done
echo "== skipped"
cat "$logs"/* | grep '^skip  '
cat "$logs"/* | sed -n 's/^skipped: .*: //p' | sort | uniq -c
if [ -n "${MXQ_SLOWEST:-}" ]; then
    echo "== the slowest"
    cat "$logs"/mxq_* | grep -E '^[0-9.]+ s: ' | sort -rn | head -n "$MXQ_SLOWEST"
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
