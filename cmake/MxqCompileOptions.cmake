# What every C++ and CUDA source of the library is compiled with. Attached to targets: no global flags.
#
# -ffp-contract=off and -fmad=false: each rounding of docs/numerics.md is one operation, never fused.
set(MXQ_SANITIZE "" CACHE STRING "Sanitizers for the whole build, such as address,undefined or thread")

add_library(mxq_compile_options INTERFACE)
target_compile_features(mxq_compile_options INTERFACE cxx_std_20)
target_compile_options(mxq_compile_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -Xcompiler=-ffp-contract=off,-Wall>)
if(MXQ_SANITIZE)
  target_compile_options(mxq_compile_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX,C>:-fsanitize=${MXQ_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(mxq_compile_options INTERFACE -fsanitize=${MXQ_SANITIZE})
endif()

# Kernels for one chip are written for its registers and pipelines: what ptxas reports of spills, of an ignored setmaxnreg and
# of serialised wgmma fails the build of a target given to this.
set(MXQ_REFUSE_SLOW_CODE ${CMAKE_CURRENT_LIST_DIR}/refuse_slow_code.sh)
function(mxq_refuse_slow_code target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warning-as-error>)
  set(launcher sh ${MXQ_REFUSE_SLOW_CODE} ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()
