#!/usr/bin/env bash
# Builds the library and runs examples/moe_layer; installs a missing compiler, CMake or make with the system's package
# manager. Arguments go to moe_layer: --device cpu|cuda, --data FILE, --check.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. examples/install_missing.sh
install_missing build

build=build/quickstart
# shellcheck disable=SC2046  # no argument where there is no GPU
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMXQ_CUDA=AUTO -DMXQ_EXAMPLES=ON -DMXQ_TESTS=OFF $(cuda_architecture_argument)
cmake --build "$build" --parallel "$(nproc)" --target moe_layer
exec "$(find "$build" -type f -name moe_layer -perm -u+x | head -n 1)" "$@"
