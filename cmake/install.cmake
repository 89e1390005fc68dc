# `cmake --install`: headers, library, CLI, and find_package(culet) -> culet::culet.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS culet EXPORT culetTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS culet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/culet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(culet_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/culet)
install(EXPORT culetTargets NAMESPACE culet:: DESTINATION ${culet_cmake_dir})
configure_package_config_file(cmake/culetConfig.cmake.in ${PROJECT_BINARY_DIR}/culetConfig.cmake
  INSTALL_DESTINATION ${culet_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/culetConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/culetConfig.cmake
  ${PROJECT_BINARY_DIR}/culetConfigVersion.cmake DESTINATION ${culet_cmake_dir})
