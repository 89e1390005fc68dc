# libculet.so: the C interface of include/culet/culet.h and no other symbol, for C programs, other
# languages' bindings and the Python package. It is the static library linked once more.
file(GLOB CULET_CAPI_SOURCES CONFIGURE_DEPENDS src/capi/*.cc)
add_library(culet_shared SHARED ${CULET_CAPI_SOURCES})
add_library(culet::shared ALIAS culet_shared)
set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
# The libraries that a wheel carries beside libculet.so are found there.
set_target_properties(culet_shared PROPERTIES OUTPUT_NAME culet EXPORT_NAME shared
  SOVERSION ${PROJECT_VERSION_MAJOR} CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  INSTALL_RPATH "$ORIGIN" LINK_DEPENDS ${exports})
target_include_directories(culet_shared PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_include_directories(culet_shared PRIVATE src)
target_link_libraries(culet_shared PRIVATE culet culet_flags fmt::fmt)
target_link_options(culet_shared PRIVATE "LINKER:--version-script=${exports}")
# Shipped tables of measured choices lie beside the library in a build and in a wheel
# (include/culet/cache_layers.h).
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/tuned ${PROJECT_BINARY_DIR}/tuned SYMBOLIC)
target_compile_definitions(culet_shared PRIVATE CULET_VERSION="${PROJECT_VERSION}")
