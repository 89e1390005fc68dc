# The licence texts of what culet's binaries hold or carry of others, as the distribution has them.
# libstdc++ and glibc are the machine's own: linked dynamically, not carried.
set(culet_licenses fmt:libfmt-dev highway:libhwy-dev nlohmann-json:nlohmann-json3-dev
  cli11:libcli11-dev)
if(CULET_HAVE_CUDA)
  # In a toolkit of NVIDIA's installer, Debian packages or wheels.
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH toolkit)
  file(REAL_PATH ${toolkit} toolkit)
  file(GLOB culet_cuda_texts ${toolkit}/EULA.txt
    ${toolkit}/dist-info/nvidia_cuda_runtime-*/licenses/License.txt
    /usr/share/doc/cuda-cudart-dev-*/copyright)
  list(APPEND culet_licenses cuda-runtime:)
endif()

foreach(entry IN LISTS culet_licenses)
  string(REGEX MATCH "^(.*):(.*)$" entry ${entry})
  set(name ${CMAKE_MATCH_1})
  set(found)
  if(name STREQUAL "cuda-runtime" AND culet_cuda_texts)
    list(GET culet_cuda_texts 0 found)
  elseif(EXISTS /usr/share/doc/${CMAKE_MATCH_2}/copyright)
    set(found /usr/share/doc/${CMAKE_MATCH_2}/copyright)
  endif()
  if(NOT CULET_LICENSE_${name})
    set(CULET_LICENSE_${name} "${found}" CACHE FILEPATH "The licence text of ${name}" FORCE)
  endif()
  set(text ${CULET_LICENSE_${name}})
  if(NOT text)
    message(STATUS "culet: no licence text of ${name} was found; before you give installations or "
      "wheels to others, set CULET_LICENSE_${name} to its file")
    continue()
  endif()
  file(REAL_PATH ${text} text)
  install(FILES ${text} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME ${name}.txt)
  install(FILES ${text} DESTINATION culet/licenses RENAME ${name}.txt
    COMPONENT wheel EXCLUDE_FROM_ALL)
endforeach()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME culet.txt)
