# The static library: one object, in which the names of the version script alone are global. So neither the library's own
# names, nor the functions of the standard library that were compiled for AVX-512 with its kernels, nor its copy of the CUDA
# runtime meet those of the program that links it, which needs no CUDA toolkit.

# Libraries that a program links with it, whatever its language, as -l options.
set(MXQ_STATIC_LIBRARIES ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_ITEM MXQ_STATIC_LIBRARIES ${CMAKE_C_IMPLICIT_LINK_LIBRARIES})
list(APPEND MXQ_STATIC_LIBRARIES ${CMAKE_DL_LIBS})
if(MXQ_HAVE_CUDA)
  list(APPEND MXQ_STATIC_LIBRARIES rt)
endif()
list(REMOVE_DUPLICATES MXQ_STATIC_LIBRARIES)

# Keeps GCC from making symbols unique in the process, which stay global.
function(mxq_prepare_for_static_library target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>
                           $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-gnu-unique>)
  endif()
endfunction()

function(mxq_add_static_library name symbols)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/lib${name}.o)
  file(STRINGS ${symbols} lines REGEX "^ *mxq_[a-z0-9_]+;$")
  string(REGEX MATCHALL "mxq_[a-z0-9_]+" names "${lines}")
  list(JOIN names "\n" names)
  file(CONFIGURE OUTPUT ${object}.names CONTENT "${names}\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${symbols})

  if(MXQ_HAVE_CUDA)
    set(runtime $<TARGET_FILE:CUDA::cudart_static>)
  endif()
  add_library(${name} STATIC ${ARGN})
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${object}.whole
            --whole-archive $<TARGET_FILE:${name}> --no-whole-archive ${runtime}
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=${object}.names ${object}.whole ${object}
    COMMAND ${CMAKE_COMMAND} -E rm $<TARGET_FILE:${name}> ${object}.whole
    COMMAND ${CMAKE_AR} qcsD $<TARGET_FILE:${name}> ${object}
    VERBATIM)
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${symbols})
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:mxq_compile_options> Threads::Threads ${MXQ_STATIC_LIBRARIES})
endfunction()
