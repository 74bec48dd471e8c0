#!/usr/bin/env bash
# ./bindings/python/wheel.sh OUTDIR
# Builds libmxq and puts the wheel with it inside into OUTDIR: mxq, for CPUs and GPUs, which needs a CUDA toolkit to build and
# none to run. Installs a missing compiler or CMake on Debian and Ubuntu. Fails where the wheel gets larger than 25 MB, 3 MB without
# CUDA, or would need more of a system than manylinux has.
#   MXQ_CUDA=OFF      the wheel mxq-cpu, without the CUDA backend
#   MXQ_CMAKE_ARGS    more arguments for cmake, such as -DMXQ_CUDA_ARCHITECTURES=90a-real
#   MXQ_PYTHON        the Python whose torch and jaxlib the operators of mxq.torch and the handlers of mxq.jax are compiled for
#                     (default: python3); the wheel has none where it has neither
#   MXQ_BUILD_DIR     where to build (default: build/wheel-mxq or build/wheel-mxq-cpu)
set -euo pipefail
mkdir -p "${1:?the folder that gets the wheel}"
outdir=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
# shellcheck source=/dev/null
. examples/install_missing.sh
install_missing build

name=mxq cuda=ON most=25
[ "${MXQ_CUDA:-ON}" = OFF ] && name=mxq-cpu cuda=OFF most=3
build=${MXQ_BUILD_DIR:-build/wheel-$name}

# The C++ library goes inside, less what is not called, since that would ask for a newer C library.
# shellcheck disable=SC2086  # words are meant to split
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMXQ_CUDA=$cuda -DMXQ_TESTS=OFF -DMXQ_EXAMPLES=OFF -DMXQ_TOOLS=OFF \
    "-DCMAKE_SHARED_LINKER_FLAGS=-static-libstdc++ -Wl,--gc-sections" ${MXQ_CMAKE_ARGS:-}
cmake --build "$build" --parallel "$(nproc)"
cmake --install "$build" --strip --prefix "$build/prefix" >/dev/null
library=$(find "$build/prefix" -name libmxq.so.0 | head -n 1)
rm -rf "$build/native"
"${MXQ_PYTHON:-python3}" "$here/native/build.py" "$library" "$build/native"
python3 "$here/make_wheel.py" --portable --most "$most" --native "$build/native" "$name" "$library" "$outdir"
