#!/usr/bin/env bash
# ./tests/packages/run.sh build-dir
# Makes the packages of cpack and builds a program with each, from wherever it is unpacked. Reads the headers with every compiler
# and language version that is here, and compares the interface with the frozen one of each release.
set -u
build=$(cd "${1:?the build directory}" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=/dev/null
. "$here/../checks.sh"
export PYTHONDONTWRITEBYTECODE=1

# ---- The header ------------------------------------------------------------------------------------------------------

# Each compiler reads the headers in each language version that it knows, and warns of nothing.
c_warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wstrict-prototypes -Wmissing-prototypes"
cpp_warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wold-style-cast -Wzero-as-null-pointer-constant"
# shellcheck disable=SC2086  # the warnings are words
reads() { # compiler language standard header warnings: a standard that the compiler lacks counts as read
    local compiler=$1 language=$2 standard=$3 header=$4 warnings=$5
    "$compiler" "-std=$standard" -x "$language" -fsyntax-only /dev/null 2>/dev/null || { echo "$compiler lacks $standard" && return; }
    echo "#include <mxq/$header>" | "$compiler" "-std=$standard" $warnings -Werror -I"$source/include" -x "$language" -fsyntax-only -
}
all_versions() { # c-compiler c++-compiler
    local standard count=0
    for standard in c99 c11 c17 c2x; do reads "$1" c $standard mxq.h "$c_warnings" || return 1; count=$((count + 1)); done
    for standard in c++11 c++14 c++17 c++20 c++2b; do reads "$2" c++ $standard mxq.h "$cpp_warnings" || return 1; count=$((count + 1)); done
    for standard in c++17 c++20 c++2b; do reads "$2" c++ $standard mxq.hpp "$cpp_warnings" || return 1; count=$((count + 1)); done
    [ "$count" = 12 ]
}
for pair in "gcc g++" "clang clang++"; do
    if command -v "${pair% *}" >/dev/null && command -v "${pair#* }" >/dev/null; then
        # shellcheck disable=SC2086  # two words
        check "the headers with $pair, C99 to C23 and C++11 to C++23, without warnings" all_versions $pair
    else
        skip "the headers with $pair" "they are not here"
    fi
done

# ---- The frozen interface --------------------------------------------------------------------------------------------

# What a release had stays: every constant with its value, every function with its signature.
if command -v python3 >/dev/null; then
    for frozen in "$source"/tests/abi/frozen/mxq-*.h; do
        check "everything of $(basename "$frozen" .h) is in mxq.h as it was" python3 "$here/compatible.py" "$frozen" "$source/include/mxq/mxq.h"
    done
    breaks() { # a header in which one thing of the frozen one changed is noticed
        sed "$1" "$source/include/mxq/mxq.h" >"$work/changed.h" && ! cmp -s "$work/changed.h" "$source/include/mxq/mxq.h" &&
            ! python3 "$here/compatible.py" "$source/include/mxq/mxq.h" "$work/changed.h" >"$work/said" 2>&1 && grep -q "$2" "$work/said"
    }
    all_breaks() {
        breaks 's/MXQ_FORMAT_MXFP4 8 /MXQ_FORMAT_MXFP4 18 /' 'MXQ_FORMAT_MXFP4 was 8 and is 18' &&
            breaks 's/mxq_tensor_set_swizzled(mxq_tensor\* tensor, int32_t/mxq_tensor_set_swizzled(mxq_tensor* tensor, int64_t/' 'mxq_tensor_set_swizzled' &&
            breaks 's/mxq_plan_destroy/mxq_plan_free/' 'mxq_plan_destroy is gone' &&
            breaks 's/^typedef int32_t mxq_scope/typedef int64_t mxq_scope/' 'mxq_scope'
    }
    check "a broken interface is noticed" all_breaks
else
    skip "the frozen interface" "python3 is not here"
fi

if ! command -v cmake >/dev/null || ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$source" "$build/CMakeCache.txt" 2>/dev/null; then
    skip "packages" "the build directory was made elsewhere, so it cannot pack"
    finish
fi
library=$(find "$build/src" -maxdepth 1 -name 'libmxq.so.0' | head -n 1)
if [ -z "$library" ] || ldd "$library" | grep -q 'lib[atu][a-z]*san'; then
    skip "packages" "they are of the shared library, built without sanitizers"
    finish
fi
old_program() { # a program that was compiled with the frozen header runs with this library
    local frozen
    for frozen in "$source"/tests/abi/frozen/mxq-*.h; do
        mkdir -p "$work/frozen/mxq" && cp "$frozen" "$work/frozen/mxq/mxq.h" &&
            "${CC:-cc}" -std=c99 -Wall -Werror "$source/tests/consumers/program/main.c" -o "$work/old" -I"$work/frozen" "$library" &&
            LD_LIBRARY_PATH=$build/src "$work/old" || return 1
    done
}
check "a program of each frozen header runs with this library" old_program

# ---- Packages --------------------------------------------------------------------------------------------------------

program() { # prefix: builds and runs a program through find_package
    cmake --fresh -S "$source/tests/consumers/program" -B "$work/program" -DCMAKE_PREFIX_PATH="$1" && cmake --build "$work/program" &&
        LD_LIBRARY_PATH=$1/lib "$work/program/consumer"
}
pack() { (cd "$build" && SOURCE_DATE_EPOCH=1700000000 cpack -G "$1" -B "$2"); }
generators=TGZ
command -v dpkg-deb >/dev/null && generators="TGZ;DEB"

if check "cpack" pack "$generators" "$work/packages"; then
    twice() {
        local package
        pack "$generators" "$work/again" && for package in "$work"/packages/*.tar.gz "$work"/packages/*.deb; do
            [ ! -e "$package" ] || cmp "$package" "$work/again/$(basename "$package")" || return 1
        done
    }
    check "packed again, the packages are the same bytes" twice
    anywhere() { # a path that nobody configured
        mkdir -p "$work/some where" && tar xzf "$work"/packages/*.tar.gz -C "$work/some where" && mv "$work/some where"/libmxq-* "$work/some where/mxq" &&
            program "$work/some where/mxq" && { [ ! -e "$work/some where/mxq/bin/mxq-info" ] || env -u LD_LIBRARY_PATH "$work/some where/mxq/bin/mxq-info"; }
    }
    check "the .tar.gz, unpacked somewhere" anywhere
    if [ "$generators" != TGZ ]; then
        debian() {
            local name
            for name in libmxq0 libmxq-dev mxq-tools; do
                [ "$(find "$work/packages" -maxdepth 1 -name "${name}_*.deb" | wc -l)" = 1 ] && dpkg-deb -x "$work"/packages/${name}_*.deb "$work/$name" || return 1
            done
            # Each has its own: the library alone to run, the rest to build.
            [ "$(find "$work/libmxq0" -type f | wc -l)" = 1 ] && [ "$(find "$work/mxq-tools" -type f | wc -l)" = 1 ] &&
                [ -e "$work/libmxq-dev/usr/include/mxq/mxq.h" ] && [ -z "$(find "$work/libmxq-dev" -name 'libmxq.so.*')" ] &&
                dpkg-deb -f "$work"/packages/libmxq-dev_*.deb Depends | grep -q '^libmxq0 (= ' &&
                dpkg-deb -f "$work"/packages/libmxq0_*.deb Depends | grep -q libc6 &&
                cp -a "$work/libmxq0/usr" "$work/root" && cp -a "$work/libmxq-dev/usr/." "$work/root" && program "$work/root"
        }
        check "the Debian packages, each with its part" debian
    else
        skip "the Debian packages" "dpkg-deb is not here"
    fi
fi

fetched() { # configures alone: what it builds is what add_subdirectory builds
    mkdir -p "$work/fetching" && cat >"$work/fetching/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(fetching LANGUAGES C CXX)
include(FetchContent)
set(MXQ_CUDA OFF)
FetchContent_Declare(mxq SOURCE_DIR "$source")
FetchContent_MakeAvailable(mxq)
add_executable(consumer "$source/tests/consumers/program/main.c")
target_link_libraries(consumer PRIVATE mxq::mxq)
END
    cmake -S "$work/fetching" -B "$work/fetched" && [ ! -e "$work/fetched/CPackConfig.cmake" ]
}
check "FetchContent" fetched
finish
