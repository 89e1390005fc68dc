# Half of a compiler's time goes into headers of others. A build from nothing precompiles them
# (CULET_COLD_BUILD, which .ci/run sets): for the tests, for the commands, which are few sources then, and with
# sanitizers for the library, too. Without them the library is always compiled as users compile it.
option(CULET_COLD_BUILD "Precompile headers, for builds from nothing" $ENV{CULET_COLD_BUILD})

set(culet_precompiled <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem>
  <fstream> <functional> <limits> <map> <memory> <mutex> <optional> <random> <set> <span> <string>
  <string_view> <thread> <utility> <vector> <fmt/format.h>)

# ccache asks for both before it keeps what was compiled with precompiled headers; neither matters
# here, where no file reads the macros of time.
if(CULET_COLD_BUILD AND CULET_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CULET_CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

# The commands, or with sanitizers the library.
function(culet_precompile target)
  if(CULET_COLD_BUILD AND (CULET_SANITIZE OR NOT target STREQUAL "culet"))
    list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE headers)
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
endfunction()

# A test: all share one set. A program of no library of ours holds it, so that no test waits for them.
function(culet_precompile_test target)
  if(NOT CULET_COLD_BUILD)
    return()
  endif()
  if(NOT TARGET culet_test_headers)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc CONTENT "")
    add_executable(culet_test_headers ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc)
    target_link_libraries(culet_test_headers PRIVATE culet_flags GTest::gmock GTest::gtest_main fmt::fmt)
    # As the tests.
    target_compile_options(culet_test_headers PRIVATE -O0)
    set_target_properties(culet_test_headers PROPERTIES CULET_IS_TEST ON)
    target_precompile_headers(culet_test_headers PRIVATE
      ${culet_precompiled} <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM culet_test_headers)
endfunction()
