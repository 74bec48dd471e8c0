#!/usr/bin/env bash
# ./tests/packages/run.sh build-dir
# Makes the packages of cpack and builds a program with each, from wherever it is unpacked. Reads the headers with every compiler
# and language version that is here, and compares the interface with the frozen one of each release. Embeds the library in a
# project, and builds it once more from another folder by the lines of README.md, with the same bytes, then as a static library.
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"
. "$source/tests/consumers/static.sh"

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

# ---- The version -----------------------------------------------------------------------------------------------------

# It is that of mxq.h wherever it stands: CMake and the generated parts of the bindings read it there.
version=$(sed -n 's/^#define MXQ_VERSION_[A-Z]* //p' "$source/include/mxq/mxq.h" | paste -sd .)
minor=${version%.*}
same_version() (
    local file
    cd "$source" && echo "mxq.h has $version" && [ "$(sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' CHANGELOG.md | head -n 1)" = "$version" ] &&
        grep -qx "version: $version" CITATION.cff && grep -qx "MXQ_$minor {" src/libmxq.map && [ -e "tests/abi/frozen/mxq-$minor.h" ] || return 1
    for file in bindings/rust/mxq/Cargo.toml bindings/rust/mxq-sys/Cargo.toml bindings/julia/Project.toml; do
        echo "$file" && grep -qx "version = \"$version\"" "$file" || return 1
    done
    for file in examples/CMakeLists.txt tests/consumers/program/CMakeLists.txt tests/consumers/cpp/CMakeLists.txt; do
        echo "$file" && grep -q "find_package(mxq $minor " "$file" || return 1
    done
)
check "the version of mxq.h stands everywhere" same_version

# ---- The frozen interface --------------------------------------------------------------------------------------------

# Checks that what a release had stays: every constant with its value, every function with its signature.
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
            breaks 's/^typedef int32_t mxq_scope/typedef int64_t mxq_scope/' 'mxq_scope' &&
            breaks 's/^MXQ_API int32_t mxq_version(void);/&\nMXQ_API int32_t mxq_news(void);/' 'mxq_news is new' &&
            breaks 's/^#define MXQ_FORMAT_MXFP4 8 /#define MXQ_FORMAT_NEW 108\n&/' 'MXQ_FORMAT_NEW is new' &&
            ! breaks 's|^MXQ_API int32_t mxq_version(void);|&\n/* Tells news. Since 0.3. */\nMXQ_API int32_t mxq_news(void);|' ''
    }
    check "a broken interface is noticed" all_breaks
else
    skip "the frozen interface" "python3 is not here"
fi

if ! command -v cmake >/dev/null || ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$source" "$build/CMakeCache.txt" 2>/dev/null; then
    skip "packages" "the build directory was made elsewhere, so it cannot pack"
    finish
fi

# ---- Embedded, and built again elsewhere -----------------------------------------------------------------------------

# Debug builds, which compile fastest and have what abidiff reads. A cache that makes paths relative would change them.
unset CCACHE_BASEDIR CCACHE_NOHASHDIR
headers_once=-DCMAKE_PROJECT_mxq_INCLUDE=$source/tests/consumers/headers_once.cmake
embedded() {
    cmake -S "$here/embed" -B "$work/embed" -DMXQ_SOURCE="$source" -DCMAKE_BUILD_TYPE=Debug "$headers_once" &&
        cmake --build "$work/embed" --parallel "$(nproc)" && "$work/embed/consumer"
}
nothing_installed() { cmake --install "$work/embed" --prefix "$work/none" && [ -z "$(find "$work/none" -type f 2>/dev/null)" ]; }
# Runs the lines of README.md that build and install: in a copy of the source, as on a machine without Catch2, and as the build
# above in all that changes bytes.
readme_installs() {
    local tree="$work/some where/else"
    mkdir -p "$tree" && (cd "$source" && cp -r CHANGELOG.md CMakeLists.txt LICENSE README.md cmake docs examples include libmxq.pc.in src "$tree") &&
        sed -n '/^## Building and linking/,/^CMake/s/^    cmake/cmake/p' "$source/README.md" |
        sed -e "1s|\$| -DCMAKE_BUILD_TYPE=Debug -DMXQ_CUDA=OFF -DMXQ_EXAMPLES=OFF -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON '$headers_once'|" \
            -e "s|/usr/local|'$work/readme-prefix'|" >"$work/lines" &&
        cat "$work/lines" && [ "$(wc -l <"$work/lines")" = 3 ] && (cd "$tree" && bash -e "$work/lines") &&
        "$work/readme-prefix/bin/mxq-info" && find_package "$work/readme-prefix"
}
same_bytes() { cmp "$work/embed/mxq/src/libmxq.so.0" "$work/some where/else/build/src/libmxq.so.0"; }

# The static library of the same tree, whose objects serve as they are.
static_tree="$work/some where/else/build"
static_library() {
    cmake "$static_tree" -DBUILD_SHARED_LIBS=OFF && cmake --build "$static_tree" --parallel "$(nproc)" >"$work/said" && cat "$work/said" &&
        ! grep 'Building CXX object' "$work/said" && cmake --install "$static_tree" --prefix "$work/static-prefix"
}
static_without_objcopy() { # only configured and archived anew
    cmake "$static_tree" -DCMAKE_OBJCOPY= 2>"$work/said" && grep -q "No objcopy was found" "$work/said" &&
        rm -f "$static_tree"/src/libmxq.a && cmake --build "$static_tree" --target mxq &&
        cmake --install "$static_tree" --prefix "$work/plain" && static_pkg_config "$(find "$work/plain" -name libmxq.a)"
}
# A Rust program has the library inside, found in its folder or through pkg-config.
static_rust() { # archive
    local crates=$source/bindings/rust/Cargo.toml folder
    folder=$(dirname "$1") && export CARGO_TARGET_DIR=$work/cargo
    MXQ_LIB_DIR=$folder cargo test --offline --quiet --manifest-path "$crates" --package mxq --features static &&
        env -u MXQ_LIB_DIR PKG_CONFIG_PATH="$folder/pkgconfig" cargo build --offline --quiet --manifest-path "$crates" \
            --features static --example quantize &&
        "$work/cargo/debug/examples/quantize" && ldd "$work/cargo/debug/examples/quantize" >"$work/needs" && ! grep mxq "$work/needs"
}

# The types and functions that are in the library: nothing of a release goes or changes.
compare_abi() { "$here/abi.sh" "$work/embed/mxq/src/libmxq.so.0" "$1"; }
as_stored() {
    local stored
    for stored in "$source"/tests/abi/frozen/mxq-*.abi; do compare_abi "$stored" || return 1; done
}
notices_changes() { # of a name and of a result's type; a function that the stored interface lacks is no change
    local stored=$source/tests/abi/frozen/mxq-0.2.abi text
    text=$(sed -n "/function-decl name='mxq_version_string'/,/<return/s/.*<return type-id='\([^']*\)'.*/\1/p" "$stored")
    sed 's/mxq_plan_destroy/mxq_plan_free/' "$stored" >"$work/renamed.abi"
    sed "/function-decl name='mxq_version'/,/<return/s/<return type-id='[^']*'/<return type-id='$text'/" "$stored" >"$work/returns.abi"
    sed "/function-decl name='mxq_version'/,/<.function-decl/d; /elf-symbol name='mxq_version'/d" "$stored" >"$work/fewer.abi"
    ! compare_abi "$work/renamed.abi" >"$work/said" && grep -q '1 Removed' "$work/said" &&
        ! compare_abi "$work/returns.abi" >"$work/said" && grep -q '1 Changed' "$work/said" &&
        ! cmp -s "$work/fewer.abi" "$stored" && compare_abi "$work/fewer.abi"
}
if check "embedded with add_subdirectory" embedded; then
    check "embedded, it installs nothing" nothing_installed
    check "README.md's lines build and install without Catch2" readme_installs
    check "built from another folder, the library is the same bytes" same_bytes
    if command -v abidiff >/dev/null && [ "$(uname -m)" = x86_64 ]; then
        check "abidiff: the library has the stored interface" as_stored
        check "abidiff: a changed interface is noticed" notices_changes
    else
        skip "abidiff" "it is not here, or this is not x86-64, whose interface is stored"
    fi
    if check "the same tree with BUILD_SHARED_LIBS=OFF compiles nothing anew" static_library; then
        check_static "$work/static-prefix" static
        if command -v pkg-config >/dev/null && command -v cargo >/dev/null; then
            check "static: the Rust crates with the feature static" static_rust "$(find "$work/static-prefix" -name libmxq.a)"
        else
            skip "static: the Rust crates with the feature static" "pkg-config and cargo are not here"
        fi
        if command -v pkg-config >/dev/null; then
            check "static: without objcopy it is made with a warning" static_without_objcopy
        else
            skip "static: without objcopy it is made with a warning" "pkg-config is not here"
        fi
    fi
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

pack() { (cd "$build" && SOURCE_DATE_EPOCH=1700000000 cpack -G "$1" -B "$2"); }
generators=TGZ
command -v dpkg-deb >/dev/null && generators="TGZ;DEB"

if check "cpack" pack "$generators" "$work/packages"; then
    twice() { # with a file of another time
        local package
        touch "$build/libmxq.pc" && pack "$generators" "$work/again" && for package in "$work"/packages/*.tar.gz "$work"/packages/*.deb; do
            [ ! -e "$package" ] || cmp "$package" "$work/again/$(basename "$package")" || return 1
        done
    }
    check "packed again, the packages are the same bytes" twice
    anywhere() { # a path that nobody configured
        mkdir -p "$work/some where" && tar xzf "$work"/packages/*.tar.gz -C "$work/some where" && mv "$work/some where"/libmxq-* "$work/some where/mxq" &&
            find_package "$work/some where/mxq" && { [ ! -e "$work/some where/mxq/bin/mxq-info" ] || env -u LD_LIBRARY_PATH "$work/some where/mxq/bin/mxq-info"; }
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
                cp -a "$work/libmxq0/usr" "$work/root" && cp -a "$work/libmxq-dev/usr/." "$work/root" && find_package "$work/root"
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
