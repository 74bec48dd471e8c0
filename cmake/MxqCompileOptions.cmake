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
