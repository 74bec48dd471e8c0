#!/usr/bin/env bash
# ./tests/other_toolkits.sh folder [architecture]
# Builds with the CUDA toolkit that is installed and with the newest, and compiles the host code against the headers of 12.9 and
# 12.8. What it fetches (3 GB of NVIDIA's Python packages) and what it builds lie in `folder`, to be used again; nothing is installed.
#   architecture      what to build for: 90a-real
#   MXQ_TOOLKITS      which of "installed newest 12.9 12.8", in any order: all
#   MXQ_CMAKE_ARGS    more arguments for cmake
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
mkdir -p "$1" || exit 1
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/checks.sh" # for which the folder is the build directory
folder=$build
architecture=${2:-90a-real}
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
toolkits=${MXQ_TOOLKITS:-installed newest 12.9 12.8}
includes=()
# shellcheck source=/dev/null
. "$source/examples/install_missing.sh" # for has_catch2
tests=OFF
has_catch2 && tests=ON

# Fetches packages once, since headers with a new date would have everything built again. Takes wheels alone, so that nothing of
# theirs is run, and not what they depend on.
fetch() { # name package...
    local to=$folder/$1
    shift
    [ -e "$to/complete" ] || {
        python3 -m pip install --quiet --no-deps --only-binary=:all: --upgrade --target "$to" "$@" && touch "$to/complete"
    }
}

# Compiles sources for their errors and warnings alone; a warning is a failure.
compile_host() { # source...: against the toolkit headers that `includes` names
    printf '%s\0' "$@" | xargs -0 -n 1 -P "$jobs" "${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror -fsyntax-only \
        -DMXQ_BUILD_CUDA='""' -DMXQ_BUILT_PORTABLE=1 -DMXQ_BUILT_SM90=0 -I"$source/src" -I"$source/include" "${includes[@]}"
}

# ---- Building --------------------------------------------------------------------------------------------------------

build() { # name nvcc
    local targets="mxq mxq_info"
    [ $tests = ON ] && targets="$targets mxq_unit_tests"
    # shellcheck disable=SC2086  # words are meant to split
    cmake --fresh -S "$source" -B "$folder/build-$1" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_COMPILER="$2" -DMXQ_CUDA=ON \
        -DMXQ_CUDA_ARCHITECTURES="$architecture" -DMXQ_TESTS=$tests -DMXQ_EXAMPLES=OFF ${MXQ_CMAKE_ARGS:-} &&
        cmake --build "$folder/build-$1" --parallel "$jobs" --target $targets
}

version_of() { "$1" --version | sed -n 's/.*, V//p'; } # nvcc

tells_version() { # name nvcc
    "$folder/build-$1/src/tools/mxq-info" | tee /dev/stderr | grep -qF "CUDA $(version_of "$2") for"
}

needs_no_nvidia() { # name
    local library=$folder/build-$1/src/libmxq.so
    readelf -d "$library" | grep -q 'SONAME' && ! readelf -d "$library" | grep NEEDED | grep -iE 'cuda|cublas|nv|\bstub'
}

build_and_look() { # name nvcc
    check "$1: builds with $(version_of "$2")" build "$1" "$2" || return
    check "$1: mxq-info tells the toolkit" tells_version "$1" "$2"
    check "$1: needs no NVIDIA library" needs_no_nvidia "$1"
    if [ $tests = ON ]; then
        check "$1: mxq_unit_tests" "$folder/build-$1/tests/mxq_unit_tests"
    else
        skip "$1: mxq_unit_tests" "Catch2 is not here"
    fi
}

try_installed() {
    local nvcc
    nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
    if [ -x "$nvcc" ]; then
        build_and_look installed "$nvcc"
    else
        skip "installed" "no nvcc is on the PATH or in /usr/local/cuda"
    fi
}

# ---- The newest toolkit ----------------------------------------------------------------------------------------------

fetch_newest() {
    fetch newest nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cublas
}

# CMake looks for lib64 and for libraries without a version; were they missing, it would take another toolkit's.
complete_newest() { # toolkit
    local library
    ln -sfn lib "$1/lib64"
    for library in "$1"/lib/*.so.*; do
        ln -sf "$(basename "$library")" "${library%%.so.*}.so"
    done
}

has_own_runtime() { # toolkit
    local cache=$folder/build-newest/CMakeCache.txt
    grep '^CUDA_cudart_static_LIBRARY' "$cache"
    grep -qF "CUDA_cudart_static_LIBRARY:FILEPATH=$1/" "$cache"
}

try_newest() {
    local toolkit
    check "newest: fetched" fetch_newest || return
    toolkit=$(dirname "$(dirname "$(find "$folder/newest" -path '*/bin/nvcc' | head -n 1)")")
    complete_newest "$toolkit"
    includes=(-isystem "$toolkit/include")
    check "newest: cublaslt.h declares what cublasLt.h does" compile_host "$source/tests/cuda/cublaslt_names.cpp"
    build_and_look newest "$toolkit/bin/nvcc"
    check "newest: links its own CUDA runtime" has_own_runtime "$toolkit"
}

# ---- The headers of older toolkits -----------------------------------------------------------------------------------

# nvidia-cuda-nvcc has the headers of crt/, which those of the runtime include.
fetch_headers() { # release
    fetch "$1" "nvidia-cuda-runtime-cu12==$1.*" "nvidia-cublas-cu12==$1.*" "nvidia-cuda-nvcc-cu12==$1.*"
}

are_of() { # release
    local major=${1%.*} minor=${1#*.}
    cat >"$folder/version.cpp" <<CODE
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
static_assert(CUDA_VERSION == ${major}0${minor}0 && CUDART_VERSION == ${major}0${minor}0);
static_assert(CUBLAS_VER_MAJOR == $major && CUBLAS_VER_MINOR == $minor);
CODE
    compile_host "$folder/version.cpp"
}

try_headers() { # release
    local name
    check "$1: fetched" fetch_headers "$1" || return
    includes=()
    for name in cuda_runtime cublas cuda_nvcc; do
        includes+=(-isystem "$folder/$1/nvidia/$name/include")
    done
    check "$1: these are its headers" are_of "$1" || return
    check "$1: host code compiles" compile_host "$source"/src/{api,core,dispatch,cuda,cuda/*}/*.cpp
    if [ $tests = ON ]; then
        check "$1: tests/cuda compile" compile_host "$source"/tests/cuda/{block_scaled,chips,cublaslt_bound,cublaslt_declines,cublaslt_rebase,cublaslt_recorder,cublaslt_releases,cublaslt_session}_test.cpp
    else
        skip "$1: tests/cuda" "Catch2 is not here"
    fi
}

for toolkit in $toolkits; do
    case $toolkit in
        installed) try_installed ;;
        newest) try_newest ;;
        12.9 | 12.8) try_headers "$toolkit" ;;
        *) check "MXQ_TOOLKITS names $toolkit, expected installed, newest, 12.9 or 12.8" false ;;
    esac
done

echo
finish
