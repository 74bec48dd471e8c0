#!/usr/bin/env bash
# ./tests/bindings/run.sh build-dir
# Checks that the generated parts of the bindings are those of the header, and that the generator notices what it cannot read.
# Makes a wheel of the built library and runs the tests of the Python package from it in a fresh environment. Tests the Rust
# crates.
#   MXQ_TEST_PIP     packages that the environment gets beside numpy, such as "torch torchao ml_dtypes jax mypy"
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"

if ! command -v python3 >/dev/null || ! python3 -c 'import sys, ctypes; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    skip "bindings" "python3 3.9 or later is not here"
    finish
fi

generate() { python3 "$source/bindings/generate.py" "$@"; }
check "the raw parts of the bindings are what mxq.h gives" generate --check

# Adds a constant and a function to a copy of the header, or a declaration of a kind that the header does not have.
header_with() { # text
    sed "s|^/\* ---- Options -.*|$1\n&|" "$source/include/mxq/mxq.h" >"$work/mxq.h" && ! cmp -s "$work/mxq.h" "$source/include/mxq/mxq.h"
}
follows() {
    header_with '#define MXQ_STATUS_NEW 11 /\* new *\/\n/* Tells news. *\/\nMXQ_API mxq_status mxq_news(const mxq_tensor* in, float* out);' &&
        generate --header "$work/mxq.h" --to "$work/new" && generate --header "$work/mxq.h" --to "$work/new" --check &&
        grep -q '"new": MXQ_STATUS_NEW' "$work/new/python/src/mxq/_raw.py" &&
        grep -qF '"mxq_news": (c_int32, [c_void_p, c_void_p]),' "$work/new/python/src/mxq/_raw.py" &&
        grep -qF 'pub fn mxq_news(input: *const mxq_tensor, out: *mut f32) -> mxq_status;' "$work/new/rust/mxq-sys/src/raw.rs" &&
        grep -qF 'mxq_news(input, out) = @ccall' "$work/new/julia/src/raw.jl"
}
check "a new constant and a new function reach every binding" follows
notices() { ! generate --header "$work/mxq.h" --check 2>"$work/said" && [ "$(grep -c 'is not what the header gives' "$work/said")" = 4 ]; }
check "a changed header is noticed" notices
refuses() {
    header_with 'struct mxq_point { int32_t x; };' && ! generate --header "$work/mxq.h" --to "$work/refused" 2>"$work/said" &&
        grep -q 'cannot read' "$work/said" && [ ! -e "$work/refused" ]
}
check "a declaration that cannot be read is refused" refuses

library=$(find "$build/src" -maxdepth 1 -name 'libmxq.so.0' | head -n 1)
if [ -z "$library" ] || ldd "$library" | grep -q 'lib[atu][a-z]*san'; then
    skip "the raw part of Python" "needs the shared library, built without sanitizers"
else
    check "ctypes finds every function, and the library has every constant" python3 "$here/raw.py" "$source" "$library"
fi

# ---- Python ----------------------------------------------------------------------------------------------------------

wheel() { # with the operators of torch and the handlers of XLA, where the environment has these libraries
    local name
    if [ -x "$work/venv/bin/python" ]; then
        for name in native native_again; do
            "$work/venv/bin/python" "$source/bindings/python/native/build.py" "$library" "$work/$name" || return 1
        done
    fi
    "$source/bindings/python/make_wheel.py" --native "$work/native" mxq "$library" "$work/wheel" &&
        "$source/bindings/python/make_wheel.py" --native "$work/native_again" mxq "$library" "$work/again" && cmp "$work"/wheel/*.whl "$work"/again/*.whl
}
refuses_wheels() { # a library that needs others, and a wheel that is too large; each leaves no file
    ! "$source/bindings/python/make_wheel.py" --most 0.1 mxq "$library" "$work/large" 2>"$work/said" && grep -q 'larger than 0.1 MB' "$work/said" &&
        ! ls "$work"/large/*.whl 2>/dev/null && echo 'int x; int mxq_f(void) { return x; }' >"$work/f.c" &&
        cc -shared -fPIC -o "$work/f.so" "$work/f.c" -Wl,--no-as-needed -lm -L"$(dirname "$library")" -l:libmxq.so.0 &&
        ! "$source/bindings/python/make_wheel.py" --portable mxq "$work/f.so" "$work/foreign" 2>"$work/said" && grep -q 'needs libmxq.so.0' "$work/said" &&
        [ ! -e "$work/foreign" ]
}
# shellcheck disable=SC2086  # packages are words
environment() { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy pytest ${MXQ_TEST_PIP:-}; }
package() { # from the wheel: neither the source nor another library is in sight
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "$work"/wheel/*.whl && cd "$source/bindings/python/tests" &&
        env -u MXQ_LIBRARY -u PYTHONPATH MXQ_TEST_DATA_DIR="$source/tests/data" "$work/venv/bin/python" -m pytest -q -p no:cacheprovider
}
types() { "$work/venv/bin/python" -m mypy --strict --cache-dir "$work/mypy" "$source/bindings/python/src/mxq"; }
# A checkpoint of one weight, and the folders that the commands of docs/checkpoints.md name.
tool_folder() {
    mkdir "$work/tool" && cd "$work/tool" && "$source/bindings/python/make_wheel.py" mxq-cpu "$library" dist && mkdir IN && ln -s "$source/tests" . &&
        python3 -m venv env
}
tool_input='from pathlib import Path; import numpy; from mxq.tools.writer import FileWriter, Output
file = FileWriter(Path("IN/model.safetensors"), [Output("a.weight", "F32", (64, 64))], {})
file.add("a.weight", numpy.ones((64, 64), "float32")); file.finish()'
tool() ( # the lines of docs/checkpoints.md as they stand, but for the one that builds the wheel
    tool_folder && export PATH=$PWD/env/bin:$PATH PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 && unset MXQ_LIBRARY PYTHONPATH
    grep '^    pip install ' "$source/docs/checkpoints.md" >install && grep '^    mxq-quantize ' "$source/docs/checkpoints.md" >commands &&
        [ "$(wc -l <install) $(wc -l <commands)" = "1 4" ] && bash -e install && python -c "$tool_input" && bash -ex commands &&
        [ -e OUT/quantization_report.html ]
)
if [ -z "$library" ] || ldd "$library" | grep -q 'lib[atu][a-z]*san'; then
    skip "the Python package" "needs the shared library, built without sanitizers"
else
    environment >"$work/pip" 2>&1 && made=1 || made=0
    check "two wheels of one library are the same bytes" wheel
    check "wheels that are too large or need other libraries are refused" refuses_wheels
    if [ "$made" = 1 ]; then
        check "the Python package, from its wheel with numpy${MXQ_TEST_PIP:+ and $MXQ_TEST_PIP}" package
        check "the lines of docs/checkpoints.md that install and run mxq-quantize" tool
        check "4,000 random checkpoints are read, or refused by name" "$work/venv/bin/python" "$source/tests/fuzz/checkpoints.py" --count 4000
        "$work/venv/bin/python" -c 'import mypy' 2>/dev/null && check "the types of the Python package" types
    else
        skip "the Python package" "no environment with numpy and pytest can be made here: $(tail -n 1 "$work/pip")"
    fi
fi

# ---- Rust ------------------------------------------------------------------------------------------------------------

blocks() { python3 "$source/tests/pages/blocks.py" "$@"; }
rust() { (cd "$source/bindings/rust" && CARGO_TARGET_DIR=$work/cargo cargo "$@"); }
rust_tests() {
    export MXQ_LIB_DIR=$build/src
    rust test --offline --quiet && rust run --offline --quiet --example quantize && rust run --offline --quiet --example decode_graph
}
rust_pkg_config() { # in a program of its own, with the blocks of the pages, which print what the pages say
    local page line number=0
    mkdir -p "$work/app/src/bin" "$work/pc" && printf 'Name: libmxq\nDescription: x\nVersion: 0\nLibs: -L%s -lmxq\n' "$build/src" >"$work/pc/libmxq.pc" &&
        printf '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nmxq = { path = "%s/bindings/rust/mxq" }\n' "$source" >"$work/app/Cargo.toml" &&
        blocks list rust >"$work/rust_blocks" || return 1
    while read -r page line _; do
        number=$((number + 1))
        blocks code "$page" "$line" >"$work/app/src/bin/block$number.rs" && blocks printed "$page" "$line" >"$work/says" &&
            (cd "$work/app" && unset MXQ_LIB_DIR && PKG_CONFIG_PATH=$work/pc LD_LIBRARY_PATH=$build/src CARGO_TARGET_DIR=$work/cargo cargo run --offline --quiet --bin "block$number" </dev/null) >"$work/printed" &&
            if [ -s "$work/says" ]; then diff "$work/says" "$work/printed"; else
                grep -x 'Mxfp8E4m3 128 x 512 times Mxfp4 256 x 512, y\[0\] = -\?[0-9.]*' "$work/printed"
            fi || return 1
    done <"$work/rust_blocks"
    [ "$number" = 3 ]
}
rust_readme() ( # what README.md says after the library is built
    grep '^    c.*app/' "$source/README.md" >"$work/lines" && cat "$work/lines" && [ "$(wc -l <"$work/lines")" = 2 ] && mkdir "$work/clone" &&
        ln -s "$source/bindings" "$work/clone" && cd "$work/clone" &&
        MXQ_LIB_DIR=$build/src LD_LIBRARY_PATH=$build/src CARGO_TARGET_DIR=$work/cargo CARGO_NET_OFFLINE=true bash -e "$work/lines" | grep 'y\[0\] = '
)
rust_pages() { RUSTDOCFLAGS="-D warnings" rust doc --offline --quiet --no-deps; }
rust_form() { rust fmt --check; }
if [ -z "$library" ] || ldd "$library" | grep -q 'lib[atu][a-z]*san' || ! command -v cargo >/dev/null; then
    skip "the Rust crates" "need cargo, and the shared library built without sanitizers"
else
    check "the Rust crates: tests and examples" rust_tests
    check "the Rust crates: pages without warnings" rust_pages
    check "the lines of README.md that make a Rust program" rust_readme
    if cargo fmt --version >/dev/null 2>&1; then
        check "the Rust crates: rustfmt" rust_form
    else
        skip "the Rust crates: rustfmt" "it is not here"
    fi
    if command -v pkg-config >/dev/null; then
        check "the programs of bindings/rust/README.md, through pkg-config" rust_pkg_config
    else
        skip "the programs of bindings/rust/README.md" "pkg-config is not here"
    fi
fi
finish
