#!/usr/bin/env bash
# ./tests/bench/run.sh build-dir
# Runs mxq_bench on the CPU, on operands so small that no figure means anything: what it takes, prints, writes and compares.
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"

program=$build/tests/bench/mxq_bench
library=$build/src/libmxq.so
if [ ! -x "$program" ]; then
    skip "mxq_bench" "not in this build"
    finish
fi

bench() { "$program" --threads 1 --repeats 1 --copied 1 "$@"; }
conversions=quantize,requantize,dequantize,amax,pad_groups,unpad_groups,swizzle_scales,unswizzle_scales

rows() { # count arguments...: as many rows, all of them with figures
    local count=$1
    shift
    bench "$@" --json "$work/rows.json" && ! grep -q '"left_out"' "$work/rows.json" &&
        [ "$(grep -c '"reproduce"' "$work/rows.json")" = "$count" ] &&
        [ "$(grep -c '"of_copy"\|"us_with_query"' "$work/rows.json")" = "$count" ]
}
check "every conversion" rows 8 --verb $conversions --shape 48x160
check "every conversion, in groups" rows 14 --verb $conversions --parts rowwise,columnwise --shape 67x64 --groups 3
check "products, dense and grouped" rows 12 --verb gemm,grouped_gemm --transpose nt,nn,tn --size 32x64x96 --swizzled no,yes
check "every format and option" rows 111 --suite formats --shape 64x128
check "groups" rows 8 --suite groups --shape 70x64
check "products of every pair" rows 14 --suite gemm --size 32x64x128 --peer none
check "products of few rows" rows 22 --suite few_rows --size 3x64x128
check "products of any number of rows" rows 7 --suite rows --size 3x64x128
check "shares against size" rows 36 --suite sizes --shape 64x128,128x128,256x128
check "the host's cost of every verb" rows 10 --suite host
check "weights that rotate" rows 2 --verb gemm,grouped_gemm --size 32x64x96 --rotate
check "scalings, experts, scopes" rows 8 --verb quantize --to fp8_e4m3,nvfp4 --scaling tensor,row,1x16,16x16 --experts 3 \
    --scope tensor,expert --shape 32x64
check "roundings of scales, and a call for each expert" rows 4 --verb quantize --to mxfp8_e4m3,mxfp8_e4m3:32x32 --rounding floor,rceil \
    --parts columnwise --swizzled --experts 3 --shape 64x96 --peer experts
check "starts and ends of padded groups" rows 2 --verb pad_groups,unpad_groups --padded-groups --shape 64x96 --groups 3
check "a layer" rows 4 --verb forward,training --b mxfp8_e4m3:32x32,bf16 --size 32x64x96 --groups 3
check "a size with commas" rows 1 --verb gemm --size 32,64,128

# Random products: the CPU has one implementation, so that the choice loses nothing.
draws() { # count arguments...: as many problems, all with a time
    local count=$1
    shift
    bench --suite dispatch --count "$count" "$@" --json "$work/dispatch.json" >"$work/out" &&
        [ "$(grep -c '"choice": "cpu".*"times": "turns", "us": {"cpu": [0-9.]*}, "failed": {}' "$work/dispatch.json")" = "$count" ] &&
        [ "$(grep -c '^    mxq_bench ' "$work/out")" = "$count" ] &&
        grep -q "^$count problems, 0 without times; 0 lose more than 10%; geometric mean of the ratios 1.000" "$work/out"
}
problems() { grep -o '"reproduce": .*"choice"' "$work/dispatch.json"; }
draws_again() { # the same problems for the same seed, others for another
    local first again other
    draws 3 && first=$(problems) && draws 3 --seed 0 && again=$(problems) && draws 3 --seed 1 && other=$(problems) &&
        [ "$first" = "$again" ] && [ "$first" != "$other" ]
}
check "random products" draws 3
check "random products are those of their seed" draws_again
reproduces_draw() {
    local command
    command=$(sed -n 's/.*"reproduce": "mxq_bench \([^"]*\)".*/\1/p' "$work/dispatch.json" | head -1)
    # shellcheck disable=SC2086  # words are meant to split
    rows 1 $command
}
check "the command of a random product" reproduces_draw

refuses() { # text arguments...: exit code 2 and the text on stderr, nothing on stdout
    local text=$1
    shift
    bench "$@" >"$work/out" 2>"$work/err"
    [ $? = 2 ] && [ ! -s "$work/out" ] && grep -q -- "$text" "$work/err"
}
check "no rows are asked for" refuses "needs --suite or --verb"
check "an unknown option" refuses "no option --verbs" --verbs quantize
check "an unknown suite" refuses "there are formats groups users origins gemm" --suite all-of-it
check "an unknown format" refuses "there are f32 f16" --verb quantize --to mxfp7
check "a scaling that the format has not" refuses "nvfp4 has no scaling 1x32" --verb quantize --to nvfp4:1x32
check "both parts to dequantize" refuses "reads one part" --verb dequantize --parts both
check "two ways to take one time" refuses "choose one" --verb gemm --host --rotate
check "conversions do not rotate" refuses "--rotate means nothing" --verb amax --rotate
check "experts of one matrix" refuses "needs --experts" --verb quantize --peer experts
check "a peer of a graph" refuses "in turns" --verb gemm --graph --peer bf16
check "operands of random products" refuses "draws its own operands, got --size" --suite dispatch --size 1x1x1
check "random products beside others" refuses "dispatch stands alone" --suite dispatch,gemm
check "a number of problems of no suite" refuses "are of the suite dispatch" --suite gemm --count 3
check "no problems" refuses "--count takes a number from 1" --suite dispatch --count 0
check "an option of another verb" refuses "--size means nothing" --verb quantize --size 1x1x1
check "a library that is none" refuses "no/such" --verb amax --library no/such.so
helps() { bench --help | grep -q -- '--check FILE'; }
check "--help" helps

# A row's command alone gives the row again.
reproduces() {
    bench --verb $conversions,gemm,grouped_gemm --shape 160x64 --size 16x32x64 --scaling 32x32,1x16 --swizzled --host \
        --parts columnwise --from-part columnwise --groups 3 --alignment 64x64 --transpose nn --d f32 \
        --json "$work/all.json" || return 1
    local commands=0 line
    while read -r line; do
        commands=$((commands + 1))
        # shellcheck disable=SC2046,SC2086  # words are meant to split
        bench $(sed 's/.*"reproduce": "mxq_bench \([^"]*\)".*/\1/' <<<"$line") --json "$work/one.json" || return 1
        [ "$(row_names "$work/one.json")" = "$(row_names <(echo "$line"))" ] || return 1
    done < <(grep '"reproduce"' "$work/all.json")
    [ "$commands" = 10 ] || { echo "$commands commands"; return 1; }
}
row_names() { grep -o '"reproduce": "[^"]*", "verb": "[^"]*", "case": "[^"]*", "shape": "[^"]*"' "$1"; }
check "a row's command gives the row" reproduces

# The times that are compared are far from one another, so that no noise brings them near.
bench --verb quantize,amax --shape 32x64 --json "$work/now.json" >/dev/null
compares() { # exit code, text, earlier report, arguments...
    local code=$1 text=$2 report=$3
    shift 3
    bench --verb quantize,amax --shape 32x64 --check "$report" "$@" >"$work/out"
    [ $? = "$code" ] && grep -q "$text" "$work/out"
}
all_at() { sed -E "s/\"us\": [^,}]+/\"us\": $1/g" "$work/now.json"; }
all_at 1e9 >"$work/slow.json"
all_at 1e-3 >"$work/fast.json"
sed -E '/"verb": "amax"/s/"us": [^,}]+/"us": 1e-3/g' "$work/slow.json" >"$work/one_fast.json"
sed 's/32x64/64x32/g' "$work/now.json" >"$work/others.json"
check "--check against its own times" compares 0 "2 rows compared, 0 fell" "$work/now.json" --tolerance 99
check "--check against slower times" compares 0 "2 rows compared, 0 fell" "$work/slow.json"
check "--check against faster times" compares 1 "2 rows compared, 2 fell" "$work/fast.json"
check "--check where one row fell" compares 1 "2 rows compared, 1 fell" "$work/one_fast.json"
check "--check against other rows" compares 1 "0 rows compared" "$work/others.json"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; json.dump(json.load(open(sys.argv[1])), open(sys.argv[2], "w"), indent=2)' \
        "$work/fast.json" "$work/indented.json"
    check "--check of a report that another program wrote" compares 1 "2 rows compared, 2 fell" "$work/indented.json"
else
    skip "--check of a report that another program wrote" "python3 is not here"
fi

# Pictures of reports: of the CPU's, as far as it has them, and of the stored run.
pictures_of() { python3 "$here/pictures_test.py" "$@"; }
if python3 -c 'import matplotlib' 2>/dev/null; then
    bench --suite sizes --shape 64x128,128x128,256x128 --json "$work/sizes.json" >/dev/null
    bench --suite gemm --size 32x64x128 --peer none --json "$work/products.json" >/dev/null
    check "pictures of this run" pictures_of "$work/sizes.json" "$work/products.json"
    check "pictures of the stored run" pictures_of "$here/runs/h200.json" "$here/runs/h200.json"
else
    skip "pictures" "matplotlib is not here"
fi

# Two libraries, the first without one function, as an older one would be.
LC_ALL=C sed 's/mxq_amax_query/mxq_amax_querX/g' "$library" >"$work/old.so"
two_libraries() {
    bench --library "$work/old.so" --library "$library" --verb quantize,amax --shape 32x64 --json "$work/two.json" || return 1
    [ "$(grep -c '"figures": \[{[^}]*"implementation": "cpu", "us": [^}]*}, {[^}]*"us"' "$work/two.json")" = 1 ] &&
        [ "$(grep -c 'old.so", "left_out": "the library has no mxq_amax_query"}, {[^}]*"us"' "$work/two.json")" = 1 ]
}
check "two libraries, one without a function" two_libraries
check "--check where a row is left out now" compares 1 "2 rows compared, 1 fell" "$work/slow.json" --library "$work/old.so"
finish
