#!/usr/bin/env bash
# ./tests/mutants/run.sh [--device cpu|cuda] [--only NAME]... [--jobs N] [--part I/N] [--seconds S]
#   [--patience P] [--budget S] [--cover S] [--share FOLDER] [--list | --check | --build | --run]
# Shows that the tests can see: builds the library once with over 400 mutants in it, a constant, comparison, offset, rounding,
# mask, check or message that is wrong. First it runs calls of the search and all test cases without a mutant, and records which
# mutants each reaches. Then it runs under each mutant what reaches it until something fails, fast ones first, and at last each case
# in a process of its own. A line says what caught a mutant; the last one counts those that were caught, are equivalent to the
# library, SURVIVED, are not reached by any test, or are left, since the time had ended.
#   --device cuda     the mutants of the CUDA backend, which need a GPU; default: those of the CPU
#   --only NAME       one mutant; may be repeated
#   --jobs N          processes that run at once, and compilers; default: one for each core
#   --part I/N        the I-th of N parts of the mutants
#   --seconds S       begins nothing after so many seconds
#   --patience P      a call or case hangs that takes P times as long as without a mutant, and 6 P seconds; default: 10
#   --budget S        seconds that a mutant may take for calls, and for cases; default: 60
#   --cover S         ends after S seconds to find what calls reach, and what cases reach; another run with FOLDER finds the rest
#   --share FOLDER    keeps there what is reached and what became of each mutant, from where another run goes on
#   --leave-out FILE  leaves out the mutants of src/..., which may not compile; may be repeated
#   --list            names, numbers and meanings; a program of the build is a mutant under MXQ_MUTANT=number
#   --check           whether every mutant still fits its source; builds nothing
#   --build, --run    builds alone; runs what was built before
#   MXQ_BUILD_DIR=dir default: build/mutants
#   MXQ_CMAKE_ARGS    more arguments for cmake, such as -DMXQ_CUDA_ARCHITECTURES=90a-real. MXQ_QUICK_KERNELS stays OFF, since
#                     what it compiles is not to be run
exec python3 "$(dirname "$0")/mutants.py" "$@"
