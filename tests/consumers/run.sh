#!/usr/bin/env bash
# ./tests/consumers/run.sh build-dir
# Uses the library as its users do: installed, through pkg-config, static, from Python. Checks the symbols that it exports.
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"
. "$source/tests/consumers/static.sh"

if ! command -v cmake >/dev/null || ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$source" "$build/CMakeCache.txt" 2>/dev/null; then
    skip "consumers" "the build directory was made elsewhere, so it cannot install"
    finish
fi

if grep -qiE '^BUILD_SHARED_LIBS:[A-Z]+=(OFF|NO|FALSE|0)$' "$build/CMakeCache.txt"; then
    skip "consumers" "the build is of the static library; from one of the shared library they check both"
    finish
fi

prefix=$work/prefix
check "cmake --install" cmake --install "$build" --prefix "$prefix"
library=$(find "$prefix" -name libmxq.so.0 | head -n 1)
library_dir=$(dirname "${library:-$prefix/none}")

check "a C program through find_package(mxq)" find_package "$prefix"
check "a C++ program, without C, through find_package(mxq)" find_package "$prefix" cpp

with_pkg_config() {
    export PKG_CONFIG_PATH=$library_dir/pkgconfig
    local flags
    flags=$(pkg-config --cflags --libs libmxq) &&
        "${CC:-cc}" -std=c99 -Wall -Wextra -pedantic -Werror "$here/program/main.c" -o "$work/pc" $flags &&
        LD_LIBRARY_PATH=$library_dir "$work/pc"
}
if command -v pkg-config >/dev/null; then
    check "a C program through pkg-config" with_pkg_config
else
    skip "a C program through pkg-config" "pkg-config is not here"
fi

# Compiles and runs the C++ programs with every compiler and language version that is here.
cpp() { # compiler standard program options
    "$1" "-std=$2" "${@:4}" -Wall -Wextra -Wpedantic -Werror "$here/cpp/$3.cpp" -o "$work/cpp" -I"$prefix/include" -L"$library_dir" -lmxq &&
        LD_LIBRARY_PATH=$library_dir "$work/cpp"
}
cpp_refuses() { # compiler code message options: it does not compile, and the compiler says why
    printf '#include <mxq/mxq.hpp>\nvoid f(mxq::tensor& t, double* d, float* f, char* c) { %s; (void)t, (void)d, (void)f, (void)c; }' \
        "$2" >"$work/refused.cpp"
    ! "$1" -std=c++20 "${@:4}" -fsyntax-only -I"$prefix/include" "$work/refused.cpp" 2>"$work/said" && cat "$work/said" &&
        grep -qF "$3" "$work/said"
}
cpp_elements() { # compiler
    local part="t.set_part(MXQ_PART_ROWWISE, std::span"
    ! cpp_refuses "$1" "t.set_data(std::span(f, 1)), $part(c, 1), std::span(f, 1))" "" &&
        cpp_refuses "$1" "t.set_data(std::span(d, 1))" "elements are float for F32" &&
        cpp_refuses "$1" "$part(f, 1), std::span(f, 1))" "codes are bytes" &&
        cpp_refuses "$1" "$part(c, 1), std::span(d, 1))" "scales are float for FP8"
}
readme_cpp() { # compiler: the program of README.md, as it says
    awk '/^```/ { if (inside) exit; inside = $0 == "```cpp"; next } inside' "$source/README.md" >"$work/experts.cpp" &&
        sed -n 's/^    c++ \(.*experts.cpp.*\)/\1/p' "$source/README.md" >"$work/arguments" && [ "$(wc -l <"$work/arguments")" = 1 ] &&
        (cd "$work" && PKG_CONFIG_PATH=$library_dir/pkgconfig bash -ec "$1 $(cat arguments)" && LD_LIBRARY_PATH=$library_dir ./experts) |
        grep -x '64 to 64'
}
for compiler in g++ clang++; do
    if ! command -v "$compiler" >/dev/null; then
        skip "mxq.hpp with $compiler" "$compiler is not here"
        continue
    fi
    for standard in c++17 c++20; do
        check "mxq.hpp with $compiler -std=$standard" cpp "$compiler" "$standard" main
        check "mxq.hpp with $compiler -std=$standard -fno-exceptions" cpp "$compiler" "$standard" no_exceptions -fno-exceptions
    done
    check "mxq.hpp with $compiler: -fno-exceptions without MXQ_THROW is refused" cpp_refuses "$compiler" "" "define MXQ_THROW(error)" -fno-exceptions
    check "mxq.hpp with $compiler: elements of no format are refused" cpp_elements "$compiler"
    if command -v pkg-config >/dev/null; then
        check "README.md's program with $compiler" readme_cpp "$compiler"
    else
        skip "README.md's program with $compiler" "pkg-config is not here"
    fi
done

installed_pages() {
    local doc=$prefix/share/doc/mxq file
    for file in LICENSE README.md CHANGELOG.md docs/numerics.md examples/quantize.c examples/moe_layer/layer.cpp; do
        cmp "$source/$file" "$doc/$file" || return 1
    done
    for file in mxq.h mxq.hpp dlpack.h; do cmp "$source/include/mxq/$file" "$prefix/include/mxq/$file" || return 1; done
}
check "headers, pages and examples are installed" installed_pages
examples() { # as a project of their own
    cmake -S "$prefix/share/doc/mxq/examples" -B "$work/examples" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$work/examples" --parallel "$(nproc)" && "$work/examples/quantize" &&
        "$work/examples/moe_layer/moe_layer" --device cpu --data "$source/tests/data/moe.safetensors" --check
}
check "the installed examples build and run" examples

refuses_tests() { # where Catch2 is missing, and says what to do
    ! cmake -S "$source" -B "$work/refused" -DMXQ_CUDA=OFF -DMXQ_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON 2>"$work/error" &&
        cat "$work/error" && grep -q "MXQ_TESTS=ON, but Catch2 was not found" "$work/error" && grep -q "MXQ_TESTS=OFF" "$work/error"
}
check "MXQ_TESTS=ON without Catch2 is refused" refuses_tests

# The installing step of tests/run.sh where no Python is, with an apt-get that only notes what it is asked for.
installs_python() (
    # shellcheck source=/dev/null
    mkdir "$work/bare" && find /usr/bin ! -type d -exec ln -s -t "$work/bare" {} + &&
        rm -f "$work"/bare/{python3*,apt-get,sudo} && . "$source/examples/install_missing.sh" || return 1
    printf '#!/bin/sh\necho "$@" >>"%s"\n' "$work/asked" >"$work/bare/apt-get"
    printf '#!/bin/sh\nexec "$@"\n' >"$work/bare/sudo"
    chmod +x "$work/bare/apt-get" "$work/bare/sudo"
    # shellcheck disable=SC2123  # it is the shell's, of this subshell
    PATH=$work/bare && hash -r && [[ $(missing_packages build) != *python* ]] && ! install_missing tests && cat "$work/asked" &&
        grep '^install .* python3 python3-venv$' "$work/asked"
)
check "tests/run.sh installs Python where it is missing" installs_python

# The static library of Clang, without CUDA, which is faster: CMake takes LLVM's linker and objcopy. tests/packages has GCC's.
static_library() {
    cmake -S "$source" -B "$work/static" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DBUILD_SHARED_LIBS=OFF -DMXQ_CUDA=OFF \
        -DMXQ_TESTS=OFF -DMXQ_EXAMPLES=OFF -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_PROJECT_mxq_INCLUDE=$here/headers_once.cmake" &&
        cmake --build "$work/static" --parallel "$(nproc)" && cmake --install "$work/static" --prefix "$work/static-prefix"
}
if ! command -v clang >/dev/null || ! command -v clang++ >/dev/null; then
    skip "a static library with Clang" "it is not here"
elif check "a static library with BUILD_SHARED_LIBS=OFF and Clang" static_library; then
    check_static "$work/static-prefix" "static, Clang"
fi

python() {
    python3 "$source/examples/python/quantize.py" "$library" >"$work/python" && cat "$work/python" &&
        grep -qx "row 0, block 0: scale 124 = 2^-3; first codes 50 D8 5C; first values 1 -2 3, was 1 -2 3" "$work/python"
}
if command -v python3 >/dev/null && python3 -c 'import ctypes' 2>/dev/null; then
    if ldd "$library" 2>/dev/null | grep -q 'lib[atu][a-z]*san'; then
        skip "the Python example through ctypes" "a sanitizer's library cannot be loaded late"
    else
        check "the Python example through ctypes" python
    fi
else
    skip "the Python example through ctypes" "python3 is not here"
fi

soname() { readelf -d "$library" | grep -q 'SONAME.*\[libmxq\.so\.0\]'; }
check "SONAME is libmxq.so.0" soname
needs_no_nvidia() { ! readelf -d "$library" | grep NEEDED | grep -iE 'cuda|cublas|nv|\bstub'; }
check "needs no NVIDIA library" needs_no_nvidia

exported() { nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort; }
same_names() {
    exported >"$work/exported" && listed >"$work/listed" && [ -s "$work/listed" ] && diff "$work/listed" "$work/exported"
}
check "exports exactly the names of src/libmxq.map" same_names
only_ours() { ! grep -v '^mxq_' "$work/exported"; }
check "every exported name starts with mxq_" only_ours
# Lists the functions that the header declares with MXQ_API, some of them on two lines.
header_names() {
    tr '\n' ' ' <"$source/include/mxq/mxq.h" | grep -oE 'MXQ_API [^;]*\(' | grep -oE '\bmxq_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$work/header" &&
        diff "$work/header" "$work/exported"
}
check "exports exactly the functions of mxq.h" header_names
# Lists the functions that mxq.hpp has nothing to add to: a program calls them as they are.
as_they_are() {
    printf 'mxq_%s\n' build_string constant constant_name format_name format_property last_error set_log_callback status_name version version_string
}
all_in_cpp() { # a function that only the C header has is missing here
    grep -oE '\bmxq_[a-z0-9_]+\b' "$source/include/mxq/mxq.hpp" | cat - <(as_they_are) | sort -u | comm -23 "$work/header" - >"$work/missing" &&
        cat "$work/missing" && [ -s "$work/header" ] && [ ! -s "$work/missing" ]
}
check "mxq.hpp has every function of mxq.h" all_in_cpp

finish
