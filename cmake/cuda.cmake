# CUDA is used when nvcc is found and left out otherwise. Sets CULET_HAVE_CUDA.
set(CULET_HAVE_CUDA FALSE)
if(CULET_CUDA STREQUAL "AUTO" OR CULET_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # The sources name their own architectures below; this is for CMake's own check of nvcc.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    # Debian 12's CMake 3.25 does not know nvcc's flag for C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit REQUIRED)
    set(CULET_HAVE_CUDA TRUE)
  elseif(NOT CULET_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "CULET_CUDA is ${CULET_CUDA}, but no nvcc was found. "
      "Put nvcc on PATH, or configure with the preset 'cpu'.")
  endif()
endif()
message(STATUS "culet: CUDA parts: ${CULET_HAVE_CUDA}")

option(CULET_LINEINFO "Line numbers in kernels, for ncu and compute-sanitizer; nvcc takes a sixth longer" OFF)

# Half of nvcc's time goes into the kernels for any GPU, each compiled for every architecture here. What is
# released has machine code for all of them (and python/CMakeLists.txt audits it); a build with tests has
# it for the oldest and for the newest with kernels of its own, and the PTX serves the others.
set(culet_released_archs 80 86 89 90 100 120)
if(CULET_TESTS)
  set(culet_archs 80 90)
else()
  set(culet_archs ${culet_released_archs})
endif()
set(CULET_CUDA_ARCHS "${culet_archs}" CACHE STRING
  "GPUs that kernels for any GPU are compiled for; drivers compile them for others when they load them")
foreach(arch ${CULET_CUDA_ARCHS})
  if(NOT arch MATCHES "^[0-9]+$" OR arch LESS 80)
    message(FATAL_ERROR "CULET_CUDA_ARCHS names ${arch}; give compute capabilities from 80 on: 80;90")
  endif()
endforeach()

# The CUDA sources, each with the architectures that it is for. A family's instances lie in several
# .cu files, so that they compile in parallel.
function(culet_cuda_sources out)
  file(GLOB portable CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu
    ${PROJECT_SOURCE_DIR}/src/kernels/cublaslt/*.cu ${PROJECT_SOURCE_DIR}/src/kernels/cuda/*.cu
    ${PROJECT_SOURCE_DIR}/src/kernels/cuda_ops/*.cu)
  # Machine code for each kind of multiprocessor; the driver compiles the PTX for those to come.
  set(everywhere -gencode=arch=compute_80,code=compute_80)
  foreach(arch ${CULET_CUDA_ARCHS})
    list(APPEND everywhere -gencode=arch=compute_${arch},code=sm_${arch})
  endforeach()
  # Machine code compresses to between a quarter and a third; drivers from 550 (CUDA 12.4) on read it.
  set(small --compress-mode=size)
  set_source_files_properties(${portable} PROPERTIES COMPILE_OPTIONS "${everywhere};${small}")
  # wgmma and setmaxnreg exist in the architecture-specific target alone.
  file(GLOB hopper CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/sm90/*/*.cu
    ${PROJECT_SOURCE_DIR}/src/cuda/sm90a/*.cu ${PROJECT_SOURCE_DIR}/src/kernels/cuda_ops/sm90a/*.cu)
  set_source_files_properties(${hopper} PROPERTIES COMPILE_OPTIONS
    "-gencode=arch=compute_90a,code=sm_90a;${small}")
  file(GLOB host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cc
    ${PROJECT_SOURCE_DIR}/src/graph/cuda/*.cc
    ${PROJECT_SOURCE_DIR}/src/kernels/cublaslt/*.cc
    ${PROJECT_SOURCE_DIR}/src/kernels/cuda/*.cc ${PROJECT_SOURCE_DIR}/src/kernels/sm90/*/*.cc)
  set(${out} ${portable} ${hopper} ${host} PARENT_SCOPE)
endfunction()

# Keeps ptxas's report on each kernel beside the object file, for the audit in tests/cuda, and lists
# the object files in cuda_objects.txt.
function(culet_keep_reports target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CULET_LINEINFO}>>:-lineinfo>)
  set(launcher ${PROJECT_SOURCE_DIR}/cmake/keep-report ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/cuda_objects.txt
    CONTENT "$<JOIN:$<FILTER:$<TARGET_OBJECTS:${target}>,INCLUDE,[.]cu[.]o$>,\n>\n")
endfunction()
