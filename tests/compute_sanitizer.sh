#!/usr/bin/env bash
# ./tests/compute_sanitizer.sh [--part I/N] [--tools "memcheck racecheck initcheck synccheck"] [--calls K] [--seconds S]
#   [--without "NAME..."] [--list] [build-dir]
# Runs each family of kernels under each tool of compute-sanitizer, on a GPU: random calls of the search that take the
# implementation, and a test case for the fused steps of an expert layer. Families are the implementations of src/cuda/implementations.def, each with its verb of src/dispatch/lists.cpp. One
# that has no verb here, or no call that it takes, is a failure, unless --without names it with the reason that a chip or a
# cuBLASLt has not what it needs.
#   --part I/N    the I-th of N parts of the families
#   --calls K     calls of a family under a tool; default: 20, of racecheck a fifth of it
#   --seconds S   the most that a tool may take for a family; default: 120
#   --list        prints the families, and needs no GPU
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
part=1/1 tools='memcheck racecheck initcheck synccheck' calls=20 seconds=120 without='' list=0
while [ $# -gt 0 ]; do
    case $1 in
    --part) part=$2 && shift 2 ;;
    --tools) tools=$2 && shift 2 ;;
    --calls) calls=$2 && shift 2 ;;
    --seconds) seconds=$2 && shift 2 ;;
    --without) without=$2 && shift 2 ;;
    --list) list=1 && shift ;;
    --*) sed -n '2,12s/^# //p' "$0" && exit 2 ;;
    *) break ;;
    esac
done
build=${1:-${MXQ_BUILD_DIR:-$source/build/tests}}
passed=0 failed=0 skipped=0
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}

layer=expert_layer

# ---- Families --------------------------------------------------------------------------------------------------------

# A line "verb implementation" for each implementation of CUDA in each list, by the verb that has the list first.
families_of_lists() {
    awk '
        /Implementation\* const [a-z_0-9]+_list\[\]/ { match($0, /[a-z_0-9]+_list/); list = substr($0, RSTART, RLENGTH - 5) }
        /^ *&cuda::/ && list { sub(/.*&cuda::/, ""); sub(/,.*/, ""); print verb(list), $0 }
        /^};/ { list = "" }
        function verb(of) {
            if (of == "pad") return "pad_groups"
            if (of == "swizzle") return "swizzle_scales"
            return of
        }' "$source/src/dispatch/lists.cpp"
}
# Rows by index have no verb: products gather them for the implementations that do not read them. Nor have fused steps of an
# expert layer.
families() { families_of_lists && printf '%s\n' "gemm gather_rows" "$layer "{mma_bf16_rows_activate,mma_bf16_rows_routed,combine_choices}; }

mapfile -t names < <(sed -n 's/^MXQ_IMPLEMENTATION([a-z0-9]*, [A-Za-z]*, \([a-z0-9_]*\))$/\1/p' "$source/src/cuda/implementations.def")
mapfile -t all < <(families)
for name in "${names[@]}"; do
    printf '%s\n' "${all[@]}" | grep -q " $name\$" || { echo "FAIL  $name: no verb has it" && failed=$((failed + 1)); }
done
[ "${#names[@]}" -ge 47 ] || { echo "FAIL  ${#names[@]} implementations, expected 47 or more" && failed=$((failed + 1)); }
if [ "$list" = 1 ]; then
    printf '%s\n' "${all[@]}"
    passed=${#all[@]}
    finish
fi

# racecheck instruments every kernel that is not left out, which takes minutes: part of the name of a family's own kernels.
kernels_of() {
    case $1 in
    cublaslt) echo fill_factors_kernel ;;
    cublaslt_grouped) echo prepare_groups_kernel ;;
    *_rebase) echo rebase_kernel ;;
    *_swizzle) echo widen_codes_kernel ;;
    *_widen) echo dequantize ;;
    *_transpose) [ "$1" = requantize_transpose ] && echo "$1" || echo transpose_codes_kernel ;;
    requantize_values) echo quantize_tile_kernel ;;
    activate_quantize) echo activate_kernel ;;
    activate_backward*) echo gradient_kernel ;;
    mma_bf16_rows_activate | mma_bf16_rows_routed) echo mma_bf16_rows ;;
    combine_choices) echo combine_kernel ;;
    swizzle_scales) echo swizzle_ ;;
    *) echo "$1" ;;
    esac
}

# ---- Running ---------------------------------------------------------------------------------------------------------

sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
search=$build/tests/search/mxq_search
if [ ! -x "$sanitizer" ] || [ ! -x "$search" ]; then
    echo "skip  compute-sanitizer: needs it, and mxq_search"
    skipped=1
    finish
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() { # tool verb implementation
    local options=() count=$calls seed=$((RANDOM)) code=0 begin=$SECONDS
    case $1 in
    memcheck) options=(--leak-check full) ;;
    racecheck)
        options=(--kernel-name "kns=$(kernels_of "$3")" --force-blocking-launches)
        count=$(((calls + 4) / 5))
        ;;
    esac
    local asked=(--implementation "$3" --verb "$2" --calls "$count" --seed "$seed")
    [ "$3" = gather_rows ] && asked=(--list "$work/indexed")
    # initcheck sees bytes of a shared block that nothing sets; --divided would hide those before a buffer.
    [ "$1" = initcheck ] || asked+=(--divided)
    local program=("$search" --device cuda "${asked[@]}")
    [ "$2" = $layer ] && program=("$build/tests/mxq_tests" "expert layer: few tokens in three launches\\, the bits of single verbs · cuda")
    timeout -k 10 "$seconds" "$sanitizer" --tool "$1" --error-exitcode 99 --print-limit 5 "${options[@]}" \
        "${program[@]}" >"$log" 2>&1 || code=$?
    if [ "$code" = 0 ] && grep -q 'passed, 0 failed' "$log" && [ "$(said_runs "$2" "$3")" -gt 0 ]; then
        echo "pass  $1 $2:$3, $(said_runs "$2" "$3") runs ($((SECONDS - begin)) s)"
        passed=$((passed + 1))
    elif [[ $3 = cublaslt* ]] && grep -q 'Internal Sanitizer Error' "$log"; then
        # racecheck of CUDA 13.0 does not survive some kernels of cuBLASLt on an H200, though it is told to leave them alone.
        echo "skip  $1 $2:$3: the tool fails in itself, in a kernel of cuBLASLt"
        skipped=$((skipped + 1))
    else
        echo "FAIL  $1 $2:$3, exit code $code: $(grep -m 1 -E 'FAIL|no call that|no device|ERROR SUMMARY: [1-9]|hazard' "$log")"
        grep -m 12 '^=========' "$log" | sed 's/^/      /'
        failed=$((failed + 1))
    fi
}
# Runs of the implementation that the search counted; of rows by index all, and a test case is one.
said_runs() { # verb implementation
    [ "$1" = $layer ] && echo 1 && return
    awk -v name="$([ "$2" = gather_rows ] || echo "$2")" \
        '/^  [a-z_]+ [a-z0-9_]+ +[0-9]+$/ && (name == "" || $2 == name) { n += $3 } END { print n + 0 }' "$log"
}

work=$(mktemp -d)
trap 'rm -rf "$log" "$work"' EXIT
cat >"$work/indexed" <<'END'
verb=grouped_gemm a=bf16:groups=1/0:indexed=3 b=mxfp8_e4m3 d=bf16 shape=64x64x64 groups=10,20,30,4
verb=gemm a=f16:indexed=2 b=f16 d=f32 shape=70x96x64
verb=quantize in=f16:indexed=2 out=nvfp4:both shape=70x64
verb=quantize in=f32:indexed=1 out=fp8_e4m3:128x128:both shape=70x99
END

index=0
for family in "${all[@]}"; do
    index=$((index + 1))
    [ $((index % ${part#*/})) = $((${part%/*} % ${part#*/})) ] || continue
    name=${family#* }
    for tool in $tools; do
        if [[ " $without " == *" $name "* ]]; then
            echo "skip  $tool $family: --without"
            skipped=$((skipped + 1))
        else
            # shellcheck disable=SC2086  # a verb and a name
            run "$tool" $family
        fi
    done
done
finish
