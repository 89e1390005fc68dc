# Half of a compiler's time goes into headers of others. They are precompiled for the tests and, with
# sanitizers, for the library too. The commands and the library's folders without kernels are compiled several
# files at a time.
option(CULET_PRECOMPILE "Precompile headers, compile commands together: less work for a build from nothing" ON)

set(culet_precompiled <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem>
  <fstream> <functional> <limits> <map> <memory> <mutex> <optional> <random> <set> <span> <string>
  <string_view> <thread> <utility> <vector> <fmt/format.h>)

if(CULET_PRECOMPILE AND CULET_CCACHE)
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

# The library, with sanitizers alone: without them headers of others are a small part of its work.
function(culet_precompile target)
  if(CULET_PRECOMPILE AND CULET_SANITIZE)
    list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE headers)
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
endfunction()

# Files of a folder whose names begin alike are one translation unit, whichever others are added, so that names
# in unnamed namespaces seldom meet. Files with options of their own are left out by CMake.
function(culet_compile_together target)
  if(NOT CULET_PRECOMPILE)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # Types of an unnamed namespace are one file's here, too, though it is included.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "src/(base|doctor|gemm|graph|model|ranks|verify)/[a-z0-9_]+[.]cc$")
  foreach(source IN LISTS sources)
    string(REGEX MATCH "([a-z]+)/([a-z0-9_]+)[.]cc$" name ${source})
    set(folder ${CMAKE_MATCH_1})
    set(name ${CMAKE_MATCH_2})
    foreach(range IN ITEMS "[ab]|ca" c "[de]" "[f-j]" "[k-o]" p "[qr]" s "[t-z]")
      if(name MATCHES "^(${range})")
        string(REGEX REPLACE "[^a-z]+" "_" group "${folder}_${range}")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
        break()
      endif()
    endforeach()
  endforeach()
endfunction()

# A test: all share one set. A program of no library of ours holds it, so that no test waits for them.
function(culet_precompile_test target)
  if(NOT CULET_PRECOMPILE)
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
