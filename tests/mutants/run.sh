#!/usr/bin/env bash
# ./tests/mutants/run.sh [--device cpu|cuda] [--only NAME]... [--jobs N] [--part I/N] [--seconds S]
#   [--patience P] [--quick S | --slow] [--share FOLDER] [--list | --check | --build | --measure | --run]
# Shows that the tests can see: builds the library once with over 400 mutants in it, a constant, comparison, offset, rounding,
# mask, check or message that is wrong, and runs the tests and 20,000 calls of the search under each until one fails. A line
# says what caught it; the last one counts those that were caught, are equivalent to the library, SURVIVED, or were not reached.
#   --device cuda     the mutants of the CUDA backend, which need a GPU; default: those of the CPU
#   --only NAME       one mutant; may be repeated
#   --jobs N          mutants that run at once, and compilers; default: one for each core
#   --part I/N        the I-th of N parts of the mutants
#   --seconds S       begins no mutant after so many seconds
#   --patience P      a program hangs that takes P times as long as without a mutant, and 6 P seconds; default: 10
#   --share FOLDER    takes the mutants that no other run with this folder has taken, such as one on another GPU
#   --leave-out FILE  leaves out the mutants of src/..., which may not compile; may be repeated
#   --quick S         the search and quick cases alone, those that end in the first S seconds of a part without a mutant
#   --slow            what --quick leaves out alone, for mutants that survived it
#   --list            names, numbers and meanings; a program of the build is a mutant under MXQ_MUTANT=number
#   --check           whether every mutant still fits its source; builds nothing
#   --build, --run    builds alone; runs what was built before
#   --measure         runs what was built before without a mutant, so that parts that follow need not
#   MXQ_BUILD_DIR=dir default: build/mutants
#   MXQ_CMAKE_ARGS    more arguments for cmake, such as -DMXQ_CUDA_ARCHITECTURES=90a-real. MXQ_QUICK_KERNELS stays OFF, since
#                     what it compiles is not to be run
exec python3 "$(dirname "$0")/mutants.py" "$@"
