include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS mxq EXPORT mxqTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(MXQ_TOOLS)
  install(TARGETS mxq_info RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/include/mxq/mxq.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mxq)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mxq)
install(EXPORT mxqTargets NAMESPACE mxq:: FILE mxqTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/mxqConfig.cmake.in ${PROJECT_BINARY_DIR}/mxqConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mxqConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mxqConfig.cmake ${PROJECT_BINARY_DIR}/mxqConfigVersion.cmake
        DESTINATION ${package_dir})

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
configure_file(${PROJECT_SOURCE_DIR}/libmxq.pc.in ${PROJECT_BINARY_DIR}/libmxq.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/libmxq.pc DESTINATION ${pc_dir})
