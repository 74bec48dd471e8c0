#!/usr/bin/env bash
# ./tests/loader/run.sh build-dir
# Gives the library drivers and cuBLASLts that are missing, too old or incomplete, which it builds, through the loader's own
# ways: statuses and words. cuBLASLt is never taken from the current folder, nor from MXQ_CUBLASLT_PATH by a set-uid program.
# shellcheck source=/dev/null disable=SC2154  # it makes build, here, source and work
. "$(dirname "$0")/../checks.sh"

probe=$build/tests/mxq_cublaslt_probe library=$build/src/libmxq.so.0
if [ ! -x "$probe" ] || ! command -v "${CC:-cc}" >/dev/null; then
    skip "loader" "needs a C compiler, and a build with CUDA"
    finish
fi
# Makes a shared library of a source here in its own folder.
stub() { # folder name source flags...
    mkdir -p "$work/$1" && "${CC:-cc}" -shared -fPIC "${@:4}" "$here/$3" "-Wl,-soname,$2" -o "$work/$1/$2"
}
says() { grep -qF -- "$1" "$work/said" || { cat "$work/said" && return 1; }; }

# ---- The driver ------------------------------------------------------------------------------------------------------

# Starts a program that opens a CUDA context; NO_DEVICE is its exit code.
no_device=$(sed -n 's/^#define MXQ_STATUS_NO_DEVICE *\([0-9]*\).*/\1/p' "$source/include/mxq/mxq.h")
open_without() { # folder of the driver, words
    local code=0
    LD_LIBRARY_PATH=${1:+$work/$1} "$work/open" >"$work/said" 2>&1 || code=$?
    [ "$code" = "$no_device" ] && says "mxq_context_create: $2" && [ "$(wc -l <"$work/said")" = 1 ]
}
sanitized() { ldd "$library" | grep -q 'lib[atu][a-z]*san'; }
needed=$(sed -n 's/.*CUDA \([0-9]*\)\..* for .*/\1/p' <<<"$(strings "$library" 2>/dev/null | grep -m 1 'CUDA [0-9.]* for')")
needed=${needed:-13}
if [ ! -e "$library" ] || sanitized; then
    skip "the driver" "needs the shared library, built without sanitizers"
elif ! "${CC:-cc}" "$here/open.c" -o "$work/open" -I"$source/include" "$library" "-Wl,-rpath,$build/src"; then
    check "a program that opens a CUDA context" false
else
    if ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
        skip "no driver" "there is one"
    else
        check "no driver" open_without "" "no NVIDIA driver is installed, expected one for CUDA $needed.0; install it, or use MXQ_DEVICE_CPU"
    fi
    stub old libcuda.so.1 driver.c -DVERSION=11040
    check "an old driver" open_without old "the NVIDIA driver is for CUDA 11.4, expected $needed.0 or later; update it, or use MXQ_DEVICE_CPU"
    stub none libcuda.so.1 driver.c "-DVERSION=${needed}000"
    check "a driver without a device" open_without none "there is no CUDA device (CUDA says \"no CUDA-capable device is detected\"), expected one"
fi

# ---- cuBLASLt --------------------------------------------------------------------------------------------------------

probe() { # environment... : what the library finds, started in a folder that has a cuBLASLt of its own
    (cd "$work/current" && env -u MXQ_CUBLASLT_PATH "$@" "$probe") >"$work/said" 2>&1
}
for name in libcublasLt.so.13 libcublasLt.so.12 libcublasLt.so; do stub current "$name" cublaslt.c -DVERSION=990909; done
stub thirteen libcublasLt.so.13 cublaslt.c -DVERSION=130407
stub twelve libcublasLt.so.12 cublaslt.c -DVERSION=120008
stub without libcublasLt.so.13 cublaslt.c -DVERSION=130407 -DcublasLtMatmul=other
not_current() { probe "$@"; ! grep -q '99\.9\.9\|/current/' "$work/said" || { cat "$work/said" && return 1; }; }
finds() { # words, environment...
    probe "${@:2}" && says "$1"
}
lacks() { # words, environment...
    ! probe "${@:2}" && says "$1"
}
check "not from the current folder" not_current A=1
check "not from the current folder, with a folder to search" not_current "LD_LIBRARY_PATH=$work/twelve"
check "from a folder that the loader searches" finds "cuBLASLt 13.4.7, $work/thirteen/libcublasLt.so.13" "LD_LIBRARY_PATH=$work/thirteen"
check "13 before 12" finds "cuBLASLt 13.4.7" "LD_LIBRARY_PATH=$work/twelve:$work/thirteen"
check "a file that MXQ_CUBLASLT_PATH names" finds "cuBLASLt 12.0.8, $work/twelve/libcublasLt.so.12" "MXQ_CUBLASLT_PATH=$work/twelve/libcublasLt.so.12"
check "an empty MXQ_CUBLASLT_PATH is none" not_current MXQ_CUBLASLT_PATH=
check "a file that is not there, and no other instead" lacks \
    "needs libcublasLt.so.13 or .12 at MXQ_CUBLASLT_PATH, found none (/nowhere/x.so: cannot open shared object file" \
    MXQ_CUBLASLT_PATH=/nowhere/x.so "LD_LIBRARY_PATH=$work/thirteen"
check "one without a function" lacks "needs a cuBLASLt that has cublasLtMatmul, found one without" "LD_LIBRARY_PATH=$work/without"
check "one without a function, by its path" lacks \
    "needs a cuBLASLt that has cublasLtMatmul, found one without in $work/without/libcublasLt.so.13" \
    "MXQ_CUBLASLT_PATH=$work/without/libcublasLt.so.13"
if ldconfig -p 2>/dev/null | grep -q 'libcublasLt\.so\.1[23]'; then
    skip "no cuBLASLt at all" "the loader's cache has one"
else
    check "no cuBLASLt at all" lacks "needs libcublasLt.so.13 or .12 where the loader looks or at MXQ_CUBLASLT_PATH, found none (" A=1
fi

# ---- Rights ----------------------------------------------------------------------------------------------------------

as_nobody() { # program
    (cd "$work/current" && setpriv --reuid=65534 --regid=65534 --clear-groups env "MXQ_CUBLASLT_PATH=$work/thirteen/libcublasLt.so.13" \
        "LD_LIBRARY_PATH=$work/thirteen" "$1") >"$work/said" 2>&1
}
copy_probe() { mkdir -p "$work/bin" && cp "$probe" "$work/bin/probe" && chmod 755 "$work" "$work"/*/ "$work/bin/probe"; }
reads_path() { as_nobody "$work/bin/probe" && says "13.4.7, $work/thirteen"; }
ignores_path() {
    chmod u+s "$work/bin/probe" && { as_nobody "$work/bin/probe" || true; } && [ -s "$work/said" ] && ! grep -q '13\.4\.7\|99\.9\.9' "$work/said"
}
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && ! findmnt -no OPTIONS -T "$work" 2>/dev/null | grep -q nosuid && ! ldd "$probe" | grep -q san; then
    copy_probe
    check "MXQ_CUBLASLT_PATH is read in a program without more rights" reads_path
    check "MXQ_CUBLASLT_PATH and LD_LIBRARY_PATH are ignored in a set-uid program" ignores_path
else
    skip "cuBLASLt in set-uid programs" "needs root, setpriv, and a folder that allows set-uid"
fi
finish
