#!/usr/bin/env bash
# Builds the library and runs examples/moe_layer; installs a missing compiler, CMake or make with the system's package
# manager. Arguments go to moe_layer: --device cpu|cuda, --data FILE, --check.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. examples/install_missing.sh
install_missing build

build=build/quickstart
architecture=$(gpu_architecture)
if [ -n "$architecture" ]; then
    cuda=(-DMXQ_CUDA=AUTO "-DMXQ_CUDA_ARCHITECTURES=$architecture")
else
    echo "No NVIDIA GPU is visible (nvidia-smi): building for the CPU alone, with MXQ_CUDA=OFF"
    cuda=(-DMXQ_CUDA=OFF)
fi
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMXQ_EXAMPLES=ON -DMXQ_TESTS=OFF "${cuda[@]}"
cmake --build "$build" --parallel "$(nproc)" --target moe_layer
exec "$(find "$build" -type f -name moe_layer -perm -u+x | head -n 1)" "$@"
