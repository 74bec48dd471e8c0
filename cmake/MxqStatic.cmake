# The static library: one object, in which the names of the version script alone are global. So neither the library's own
# names, nor the functions of the standard library that were compiled for AVX-512 with its kernels, nor its copy of the CUDA
# runtime meet those of the program that links it, which needs no CUDA toolkit. Any linker and any objcopy can make it, those of
# GNU and of LLVM.

# Libraries that a program links with it, whatever its language, as -l options.
set(MXQ_STATIC_LIBRARIES ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_ITEM MXQ_STATIC_LIBRARIES ${CMAKE_C_IMPLICIT_LINK_LIBRARIES})
list(APPEND MXQ_STATIC_LIBRARIES ${CMAKE_DL_LIBS})
if(MXQ_HAVE_CUDA)
  list(APPEND MXQ_STATIC_LIBRARIES rt)
endif()
list(REMOVE_DUPLICATES MXQ_STATIC_LIBRARIES)

function(mxq_add_static_library name symbols)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/lib${name}.o)
  file(STRINGS ${symbols} lines REGEX "^ *mxq_[a-z0-9_]+;$")
  string(REGEX MATCHALL "mxq_[a-z0-9_]+" names "${lines}")
  list(JOIN names "\n" names)
  file(CONFIGURE OUTPUT ${object}.names CONTENT "${names}\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${symbols})

  # Without its group a section of an inline function stays with its object, whatever the program has under the same name.
  set(hide_names ${CMAKE_OBJCOPY} --remove-section=.group --keep-global-symbols=${object}.names ${object}.whole ${object})
  if(NOT CMAKE_OBJCOPY)
    message(WARNING "No objcopy was found, so that names of libmxq's own are global in lib${name}.a and may meet those of a "
                    "program. Install binutils or LLVM's objcopy, or name one in CMAKE_OBJCOPY.")
    set(hide_names ${CMAKE_COMMAND} -E copy ${object}.whole ${object})
  endif()
  if(MXQ_HAVE_CUDA)
    set(runtime $<TARGET_FILE:CUDA::cudart_static>)
  endif()
  add_library(${name} STATIC ${ARGN})
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND ${CMAKE_LINKER} -r -o ${object}.whole --whole-archive $<TARGET_FILE:${name}> --no-whole-archive ${runtime}
    COMMAND ${hide_names}
    COMMAND ${CMAKE_COMMAND} -E rm $<TARGET_FILE:${name}> ${object}.whole
    COMMAND ${CMAKE_AR} qcsD $<TARGET_FILE:${name}> ${object}
    VERBATIM)
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${symbols})
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:mxq_compile_options> Threads::Threads ${MXQ_STATIC_LIBRARIES})
endfunction()
