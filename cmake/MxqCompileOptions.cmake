# Compile options of every C++ and CUDA source of the library. They are attached to targets: there are no global flags.
#
# -ffp-contract=off and -fmad=false: each rounding of docs/numerics.md is one operation, never fused.
set(MXQ_SANITIZE "" CACHE STRING "Sanitizers for the whole build, such as address,undefined or thread")
set(MXQ_FUZZ_ENGINE "" CACHE FILEPATH "libFuzzer's archive, for a compiler without libFuzzer: tests/fuzz")

add_library(mxq_compile_options INTERFACE)
target_compile_features(mxq_compile_options INTERFACE cxx_std_20)
target_compile_options(mxq_compile_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -Xcompiler=-ffp-contract=off,-Wall>)
# No path of this machine goes into what is built, so that the same source gives the same bytes from any folder. A debugger finds
# the sources when it is started in their folder.
target_compile_options(mxq_compile_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>
  $<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_BINARY_DIR}=./build>)
# Hardening, of what is linked and of every C and C++ source but the kernels of the CPU: their loops have no buffer whose size a
# caller chooses, and a stack protector would cost them time. Fortified functions need an optimising build, and no sanitizer.
include(CheckCXXCompilerFlag)
add_library(mxq_hardening INTERFACE)
add_library(mxq_linked_hard INTERFACE)
target_compile_options(mxq_hardening INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>)
foreach(flag IN ITEMS -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
  string(MAKE_C_IDENTIFIER "MXQ_HAVE${flag}" have)
  check_cxx_compiler_flag(${flag} ${have})
  if(${have})
    target_compile_options(mxq_linked_hard INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:${flag}>)
  endif()
endforeach()
if(NOT MXQ_SANITIZE)
  target_compile_options(mxq_hardening INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3>)
endif()
target_link_options(mxq_linked_hard INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
target_link_libraries(mxq_compile_options INTERFACE mxq_linked_hard)

if(MXQ_SANITIZE)
  target_compile_options(mxq_compile_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX,C>:-fsanitize=${MXQ_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(mxq_compile_options INTERFACE -fsanitize=${MXQ_SANITIZE})
endif()
if(MXQ_FUZZ_ENGINE)
  target_compile_options(mxq_compile_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize-coverage=trace-pc,trace-cmp>)
endif()

# Has ptxas' reports of slow code fail the build of a target (refuse) or not printed (allow).
function(mxq_slow_code target what)
  set(launcher sh ${PROJECT_SOURCE_DIR}/cmake/slow_code.sh ${what} ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()

# Fails the build of a target if ptxas reports register spills, an ignored setmaxnreg or serialised wgmma instructions. It is
# meant for kernels that are written for the registers and pipelines of one chip.
function(mxq_refuse_slow_code target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warning-as-error>)
  mxq_slow_code(${target} refuse)
endfunction()

# Compiles kernels fast, to show that they compile, where there is no GPU. The code is slow and not to be run: no test tells whether
# it is right. With --Ofast-compile, nvcc 13.0 aligns extern __shared__ memory to 16 bytes alone, whatever a kernel asks for.
# ptxas still makes machine code of each kernel; builds without the option refuse one that spills.
option(MXQ_QUICK_KERNELS "Compile kernels fast, to show that they compile: not to be run" OFF)
if(MXQ_QUICK_KERNELS AND MXQ_HAVE_CUDA)
  include(CheckCompilerFlag)
  check_compiler_flag(CUDA --Ofast-compile=max MXQ_HAVE_OFAST_COMPILE)
endif()
function(mxq_quick_kernels target)
  if(MXQ_QUICK_KERNELS AND MXQ_HAVE_OFAST_COMPILE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>)
    mxq_slow_code(${target} allow)
  endif()
endfunction()
