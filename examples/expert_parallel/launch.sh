#!/usr/bin/env bash
# ./launch.sh processes program [argument...]
# Starts so many processes of a program on this host, one for each GPU, as torchrun would. Fails if one of them does.
set -u
count=${1:?the number of processes}
shift
file=$(mktemp -u "${TMPDIR:-/tmp}/expert_parallel.XXXXXX")
pids=()
for ((rank = 0; rank < count; rank++)); do
    EP_ID_FILE=$file RANK=$rank WORLD_SIZE=$count LOCAL_RANK=$rank "$@" &
    pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null; rm -f "$file" "$file.new"' EXIT
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit "$code"
