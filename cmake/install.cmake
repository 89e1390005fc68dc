# `cmake --install`: headers, libraries, CLI; find_package(culet) -> culet::culet (C++, static) and
# culet::shared (C), pkg-config culet (C) and culet-cxx. `--component wheel`: what the Python package
# carries.
include(CMakePackageConfigHelpers)

# The package is relocatable: what it knows of itself is relative to the prefix.
foreach(dir IN ITEMS LIBDIR INCLUDEDIR BINDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    message(FATAL_ERROR "CMAKE_INSTALL_${dir} is ${CMAKE_INSTALL_${dir}}; give a folder relative to "
      "CMAKE_INSTALL_PREFIX")
  endif()
endforeach()

# Debug information is half of an installation; Debug builds keep theirs.
option(CULET_STRIP "Install libraries and programs without debug information" ON)
if(CULET_STRIP)
  install(CODE [[
    if(NOT CMAKE_INSTALL_CONFIG_NAME STREQUAL "Debug")
      set(CMAKE_INSTALL_DO_STRIP TRUE)
    endif()
  ]] ALL_COMPONENTS)
endif()

install(TARGETS culet EXPORT culet_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS culet_shared EXPORT culet_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(CULET_CLI)
  install(TARGETS culet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/culet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# CMake itself strips no archives.
install(CODE "
  if(CMAKE_INSTALL_DO_STRIP)
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:culet>\"
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
")

# Measured choices for classes of devices.
file(GLOB culet_tables CONFIGURE_DEPENDS tuned/*.jsonl)
install(FILES ${culet_tables} DESTINATION ${CMAKE_INSTALL_DATADIR}/culet/tuned)

# Of others, for culet alone.
set(culet_own_libraries ${CMAKE_INSTALL_LIBDIR}/culet)
if(CULET_HAVE_CUDA)
  file(REAL_PATH "${CUDA_cudart_static_LIBRARY}" culet_cudart)
  install(FILES ${culet_cudart} DESTINATION ${culet_own_libraries} RENAME libcudart_static.a)
  set(culet_pc_cudart "\${libdir}/culet/libcudart_static.a -ldl -lrt")
endif()

set(culet_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/culet)
foreach(component IN ITEMS static shared)
  install(EXPORT culet_${component} NAMESPACE culet:: DESTINATION ${culet_cmake_dir}
    FILE culet-${component}.cmake)
endforeach()
configure_package_config_file(cmake/culetConfig.cmake.in ${PROJECT_BINARY_DIR}/culetConfig.cmake
  INSTALL_DESTINATION ${culet_cmake_dir} PATH_VARS culet_own_libraries)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/culetConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/culetConfig.cmake
  ${PROJECT_BINARY_DIR}/culetConfigVersion.cmake DESTINATION ${culet_cmake_dir})
# Some distributions' libraries lie a folder deeper.
file(RELATIVE_PATH culet_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
foreach(name IN ITEMS culet culet-cxx)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

if(CULET_CLI)
  # The package's machine may lack the libraries that distributions call fmt and highway; libculet.so
  # finds these copies beside itself.
  install(TARGETS culet_shared COMPONENT wheel EXCLUDE_FROM_ALL
    LIBRARY DESTINATION culet NAMELINK_SKIP)
  install(TARGETS culet_cli COMPONENT wheel EXCLUDE_FROM_ALL RUNTIME DESTINATION culet)
  install(FILES ${culet_tables} DESTINATION culet/tuned COMPONENT wheel EXCLUDE_FROM_ALL)
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
endif()

include(cmake/licenses.cmake)
