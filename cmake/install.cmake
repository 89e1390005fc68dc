# `cmake --install`: headers, libraries, CLI; find_package(culet) -> culet::culet (C++, static) and
# culet::shared (C), pkg-config culet (C). `--component wheel`: what the Python package carries.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS culet culet_shared EXPORT culetTargets
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
configure_file(cmake/culet.pc.in ${PROJECT_BINARY_DIR}/culet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/culet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The package's machine may lack the libraries that distributions call fmt and highway; libculet.so
# finds these copies beside itself.
install(TARGETS culet_shared COMPONENT wheel EXCLUDE_FROM_ALL
  LIBRARY DESTINATION culet NAMELINK_SKIP)
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES "$<TARGET_FILE:culet_shared>"
    RESOLVED_DEPENDENCIES_VAR carried
    PRE_INCLUDE_REGEXES "^libfmt[.]" "^libhwy[.]" PRE_EXCLUDE_REGEXES ".")
  foreach(library IN LISTS carried)
    get_filename_component(soname "${library}" NAME)
    file(REAL_PATH "${library}" file)
    file(COPY_FILE "${file}" "${CMAKE_INSTALL_PREFIX}/culet/${soname}")
  endforeach()
]] COMPONENT wheel EXCLUDE_FROM_ALL)
