# Compiles the kernels for NVIDIA's devices and puts them into the library. Building and running need
# no device and no driver: nvcc alone makes the image, and the driver is opened at run time.
#
#   KVANT_CUDA=OFF   never; the default, because the kernels take over a minute to compile
#   KVANT_CUDA=ON    an error where nvcc 12 or 13 is not found
#   KVANT_CUDA=AUTO  where nvcc is found
#
# `./dev test --night` compiles them on a machine with nvcc.
set(KVANT_CUDA OFF CACHE STRING "Compile kernels for NVIDIA's devices: ON, OFF, or AUTO, where nvcc is found")
set_property(CACHE KVANT_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT KVANT_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KVANT_CUDA: expected ON, OFF or AUTO, found ${KVANT_CUDA}")
endif()
# Machine code for these compute capabilities (that of 8.0 runs on 8.6 and 8.9), and PTX of 9.0, which
# newer devices compile.
set(kvant_cuda_architectures 75 80 90a)
set(kvant_cuda_ptx 90)

set(kvant_cuda_image "")
if(KVANT_CUDA STREQUAL AUTO AND (KVANT_SANITIZE OR KVANT_FUZZ))
  message(STATUS "CUDA kernels: not compiled for this build, which runs them on the host alone")
elseif(NOT KVANT_CUDA STREQUAL OFF)
  find_program(KVANT_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin
    DOC "NVIDIA's compiler, 12 or 13")
  mark_as_advanced(KVANT_NVCC)
  set(found "no nvcc")
  if(KVANT_NVCC)
    execute_process(COMMAND ${KVANT_NVCC} --version OUTPUT_VARIABLE said ERROR_QUIET)
    if(said MATCHES "release ([0-9]+)\\.")
      set(found "nvcc ${CMAKE_MATCH_1}")
      if(CMAKE_MATCH_1 EQUAL 12 OR CMAKE_MATCH_1 EQUAL 13)
        set(kvant_cuda_image ${CMAKE_BINARY_DIR}/kvant_cuda.fatbin)
      endif()
    endif()
  endif()
  if(kvant_cuda_image)
    message(STATUS "CUDA kernels: compiled by ${found} (${KVANT_NVCC})")
  elseif(KVANT_CUDA STREQUAL ON)
    message(FATAL_ERROR "KVANT_CUDA=ON: expected nvcc 12 or 13, found ${found}")
  else()
    message(STATUS "CUDA kernels: not compiled, found ${found} (expected nvcc 12 or 13)")
  endif()
endif()

if(kvant_cuda_image)
  set(codes)
  foreach(architecture ${kvant_cuda_architectures})
    list(APPEND codes -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(APPEND codes -gencode arch=compute_${kvant_cuda_ptx},code=compute_${kvant_cuda_ptx})
  file(GLOB kernel_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cuda/kernels/*.h)
  add_custom_command(OUTPUT ${kvant_cuda_image}
    COMMAND ${KVANT_NVCC} -std=c++20 -O3 --threads 2 -I ${CMAKE_SOURCE_DIR} ${codes} -Xfatbin=-compress-all -fatbin
            ${CMAKE_SOURCE_DIR}/cuda/kernels.cu -o ${kvant_cuda_image}
    DEPENDS ${CMAKE_SOURCE_DIR}/cuda/kernels.cu ${kernel_headers}
    COMMENT "Compiling the kernels for CUDA devices" VERBATIM)
  add_custom_target(kvant_cuda_kernels DEPENDS ${kvant_cuda_image})
  add_dependencies(kvant kvant_cuda_kernels)
  set_source_files_properties(cuda/kernel_image.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
    OBJECT_DEPENDS ${kvant_cuda_image} COMPILE_DEFINITIONS KVANT_CUDA_IMAGE="${kvant_cuda_image}")
endif()
