# Three components: runtime (the shared library), dev (all that a compiler needs, and the pages), tools.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS mxq EXPORT mxqTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(MXQ_TOOLS)
  install(TARGETS mxq_info RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mxq DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

# The pages stand beside each other as in the source, so that the links between them hold.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev
        PATTERN site EXCLUDE PATTERN build.sh EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev
        PATTERN __pycache__ EXCLUDE PATTERN quickstart.sh EXCLUDE PATTERN install_missing.sh EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mxq)
install(EXPORT mxqTargets NAMESPACE mxq:: FILE mxqTargets.cmake DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/mxqConfig.cmake.in ${PROJECT_BINARY_DIR}/mxqConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mxqConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mxqConfig.cmake ${PROJECT_BINARY_DIR}/mxqConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# The pkg-config file finds the prefix relative to its own folder. With an absolute libdir the prefix is written into it.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(prefix_for_pc ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH up /prefix/${pc_dir} /prefix)
  string(REGEX REPLACE "/$" "" prefix_for_pc "\${pcfiledir}/${up}")
endif()
cmake_path(APPEND libdir_for_pc "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")
cmake_path(APPEND includedir_for_pc "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")
set(private_for_pc "")
if(NOT MXQ_SHARED)
  list(TRANSFORM MXQ_STATIC_LIBRARIES PREPEND -l OUTPUT_VARIABLE private_for_pc)
  list(APPEND private_for_pc ${CMAKE_THREAD_LIBS_INIT})
  list(JOIN private_for_pc " " private_for_pc)
endif()
configure_file(${PROJECT_SOURCE_DIR}/libmxq.pc.in ${PROJECT_BINARY_DIR}/libmxq.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/libmxq.pc DESTINATION ${pc_dir} COMPONENT dev)
