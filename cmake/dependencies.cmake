# From the distribution; scripts/install-dependencies names the packages.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(fmt QUIET)
find_package(nlohmann_json QUIET)
find_package(CLI11 QUIET)
find_package(hwy QUIET CONFIG)
foreach(package IN ITEMS fmt nlohmann_json CLI11 hwy)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "culet needs ${package}, which CMake does not find. On Debian "
      "scripts/install-dependencies installs all that culet needs; elsewhere it names the packages.")
  endif()
endforeach()
