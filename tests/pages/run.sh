#!/usr/bin/env bash
# ./tests/pages/run.sh build-dir
# Compiles and runs the blocks of the pages in C, C++ and sh, and makes the site. Every block of every page has a test, here or in
# those of the bindings (blocks.py), and prints what its page says.
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"

if ! command -v python3 >/dev/null; then
    skip "pages" "python3 is not here"
    finish
fi
blocks() { python3 "$here/blocks.py" "$@"; }
every_block() { blocks check >"$work/check" 2>&1; local code=$?; cat "$work/check"; return $code; }
check "every block of the pages has a test" every_block
grep '^skip  ' "$work/check" && skipped=$((skipped + $(grep -c '^skip  ' "$work/check")))
fence='```'
# shellcheck disable=SC2059  # the page is a format of printf
notices() { # page, what is said of it
    local root=$work/root
    mkdir -p "$root/tests/pages" "$root/docs" && cp "$here/blocks.py" "$root/tests/pages" && printf "$1" >"$root/docs/a.md" &&
        ! python3 "$root/tests/pages/blocks.py" check 2>"$work/said" && cat "$work/said" && grep -qF "docs/a.md:$2" "$work/said"
}
check "a block that nobody tests is noticed" notices "${fence}fortran\nEND\n$fence\n" "1: nobody tests a block of 'fortran'"
check "a block without a language is noticed" notices "\n$fence\nx\n$fence\n" "2: nobody tests a block of 'no language'"
check "a block without an end is noticed" notices "${fence}c\nint x;\n" "1: a block without an end"
check "text that no block prints is noticed" notices "${fence}text\nx\n$fence\n" "1: this text follows no block"

# ---- The blocks ------------------------------------------------------------------------------------------------------

# The folder of the toolkit's headers, for blocks that name CUDA's types; nothing where there is none.
cuda_include() {
    local nvcc
    nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt" 2>/dev/null)
    for folder in "${nvcc%/bin/nvcc}/include" "${CUDA_HOME:-/usr/local/cuda}/include"; do
        [ -e "$folder/cuda_runtime_api.h" ] && echo "$folder" && return
    done
}
cuda=$(cuda_include)
export LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH=$build/src/tools:$build/examples:$PATH

warnings=(-Wall -Wno-unused -pedantic -Werror)
# Compiles a block; runs it too, unless the code around it says that it is compiled alone.
block() { # page line language
    local file=$work/block.$3 compile=("${CC:-cc}" -std=c99)
    [ "$3" = cpp ] && compile=("${CXX:-c++}" -std=c++20)
    blocks code "$1" "$2" >"$file" && blocks printed "$1" "$2" >"$work/says" || return 1
    if [ "$3" = sh ]; then
        (cd "$source" && bash -eu "$file") >"$work/printed" || { cat "$work/printed"; return 1; }
    elif grep -q '^// Compiled alone' "$file"; then
        "${compile[@]}" "${warnings[@]}" -fsyntax-only -I"$source/include" ${cuda:+-isystem "$cuda"} "$file"
        return
    else
        "${compile[@]}" "${warnings[@]}" "$file" -o "$work/block" -I"$source/include" -L"$build/src" -lmxq -ldl -pthread || return 1
        "$work/block" >"$work/printed" || { cat "$work/printed"; return 1; }
    fi
    [ ! -s "$work/says" ] || diff "$work/says" "$work/printed"
}
if [ ! -e "$build/src/libmxq.so" ] || ldd "$build/src/libmxq.so" | grep -q 'lib[atu][a-z]*san'; then
    skip "the blocks of the pages" "they need the shared library, built without sanitizers"
else
    blocks list c cpp sh >"$work/list"
    while read -r page line language mark; do
        if [ -n "$mark" ] && [ -z "$cuda" ] && grep -q 'cuda_runtime_api.h' "$here/$mark.$language"; then
            skip "$page:$line, $language" "the headers of CUDA are not here"
        else
            check "$page:$line, $language" block "$page" "$line" "$language"
        fi
    done <"$work/list"
fi

# ---- The site --------------------------------------------------------------------------------------------------------

site() {
    "$source/docs/build.sh" "$work/site" && grep -q mxq_quantize_query "$work/site/reference.html" &&
        grep -q set_padded_groups "$work/site/cpp.html" && grep -q unswizzle_scales_query "$work/site/cpp.html"
}
site >"$work/built" 2>&1
code=$?
shows_built() { cat "$work/built" && [ "$code" = 0 ]; }
if [ "$code" = 3 ]; then
    skip "the site" "$(tail -n 1 "$work/built")"
else
    check "docs/build.sh makes the site without a warning" shows_built
fi
finish
