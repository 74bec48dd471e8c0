# Checks of an installed library that tests/consumers and tests/packages share, to be sourced after tests/checks.sh.
# shellcheck shell=bash disable=SC2154  # checks.sh makes source and work

find_package() { # prefix project
    cmake --fresh -S "$source/tests/consumers/${2:-program}" -B "$work/package" -DCMAKE_PREFIX_PATH="$1" && cmake --build "$work/package" &&
        LD_LIBRARY_PATH=$1/lib "$work/package/consumer"
}

listed() { # the names of the version script
    sed 's:/\*.*\*/::; s:#.*::' "$source/src/libmxq.map" | tr -s ' \t{};' '\n' | grep -E '^mxq_[a-z0-9_]+$' | sort
}

static_alone() { # prefix: its program runs, and there is no shared library
    "$1/bin/mxq-info" && [ -z "$(find "$1" -name '*.so*')" ]
}
# A C program links it though it is C++ inside.
static_pkg_config() { # archive
    local flags
    flags=$(PKG_CONFIG_PATH=$(dirname "$1")/pkgconfig pkg-config --static --cflags --libs libmxq) &&
        "${CC:-cc}" -std=c99 "$source/tests/consumers/program/main.c" -o "$work/static-pc" $flags && "$work/static-pc"
}
# No other name is global, of whatever kind, so that none can meet one of the program. No section is of a group, which a linker
# would take from another object that has one of this name.
static_names() { # archive
    nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort >"$work/archived" && listed | diff - "$work/archived" &&
        [ -s "$work/archived" ] && readelf -gW "$1" >"$work/section_groups" && ! grep 'group section \[' "$work/section_groups"
}
check_static() { # prefix name
    local archive
    archive=$(find "$1" -name libmxq.a)
    check "$2: mxq-info, and no shared library" static_alone "$1"
    check "$2: a C program through find_package(mxq)" find_package "$1"
    if command -v pkg-config >/dev/null; then
        check "$2: a C program through pkg-config" static_pkg_config "$archive"
    else
        skip "$2: a C program through pkg-config" "pkg-config is not here"
    fi
    check "$2: exactly the names of src/libmxq.map are global" static_names "$archive"
}
