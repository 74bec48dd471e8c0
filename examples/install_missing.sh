# To be sourced. `install_missing build|tests` installs missing packages with apt-get, and touches none if all are there.
#   build   GCC >= 12 or Clang, CMake >= 3.25, make
#   tests   those, Catch2, and Python >= 3.9 with what makes a virtual environment with pip

compiles() { # C++20 source
    command -v "${CXX:-c++}" >/dev/null && echo "$1" | "${CXX:-c++}" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null
}

has_compiler() { # C++20, and a builtin that GCC has since version 12
    compiles '#include <span>
              typedef int Four __attribute__((vector_size(16)));
              Four turned(Four x) { return __builtin_shufflevector(x, x, 3, 2, 1, 0); }'
}

has_cmake() {
    command -v cmake >/dev/null &&
        [ "$(printf '3.25\n%s\n' "$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')" | sort -V | head -n 1)" = 3.25 ]
}

has_catch2() {
    dpkg -s catch2 2>/dev/null | grep -q '^Status: install ok installed' || [ -d "${Catch2_DIR:-}" ] ||
        compiles '#include <catch2/catch_all.hpp>' || compiles '#include <catch2/catch.hpp>'
}

has_python() {
    command -v python3 >/dev/null &&
        python3 -c 'import ctypes, ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null
}

missing_packages() { # build|tests; each with a blank before it
    has_compiler || printf ' g++'
    has_cmake || printf ' cmake'
    command -v make >/dev/null || printf ' make'
    [ "$1" = tests ] || return 0
    has_catch2 || printf ' catch2'
    has_python || printf ' python3 python3-venv'
}

install_missing() { # build|tests
    local packages sudo=""
    packages=$(missing_packages "$1")
    [ -z "$packages" ] && return 0

    if ! command -v apt-get >/dev/null; then
        echo "Missing:$packages. This script installs with apt-get, which is not here: please install them yourself." >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        sudo=sudo
        if ! command -v sudo >/dev/null; then
            echo "Missing:$packages. Installing them needs root: run as root, or install them yourself." >&2
            return 1
        fi
    fi
    echo "Installing$packages"
    # shellcheck disable=SC2086  # $packages is a list of words
    if ! { $sudo apt-get update -qq &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null; }; then
        echo "apt-get could not install$packages" >&2
        return 1
    fi
    hash -r
    packages=$(missing_packages "$1")
    if [ -n "$packages" ]; then
        echo "Installed, but not found or too old:$packages. Needed are GCC >= 12 or Clang, CMake >= 3.25, make and, for tests," \
            "Catch2 and Python >= 3.9 with venv and ensurepip, first on PATH" >&2
        return 1
    fi
}

# Prints the architecture of the visible GPU as CMake writes it, or nothing without a GPU.
gpu_architecture() {
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd 0-9)
    [ -n "$capability" ] || return 0
    [ "$capability" -ge 90 ] && capability=${capability}a # for the instructions that this chip alone has
    echo "$capability-real"
}
