# `cmake --install`: headers, library, CLI, and find_package(culet).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS culet EXPORT culetTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS culet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/culet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
