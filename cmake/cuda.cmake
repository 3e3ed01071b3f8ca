# The CUDA toolkit, if it is installed. Only the plugin is built with it; every program builds and runs without it.
set(TRAINYARD_CUDA AUTO CACHE STRING "the CUDA plugin: AUTO = where nvcc is found | ON | OFF")
set_property(CACHE TRAINYARD_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TRAINYARD_CUDA_LIBRARIES ${PROJECT_SOURCE_DIR}/build/cuda CACHE PATH
    "where ./dev cuda has put cuBLASLt, cuDNN and NCCL (nvidia/*/include, nvidia/*/lib)")

set(CUDA_FOUND OFF)
# Sanitizers and libFuzzer instrument the host compiler's output, not that of nvcc.
if(NOT TRAINYARD_CUDA STREQUAL "OFF" AND NOT TRAINYARD_SANITIZE AND NOT TRAINYARD_FUZZ)
  find_program(NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(NVCC)
    set(CMAKE_CUDA_COMPILER ${NVCC})
    # Machine code for A100 and H100/H200; PTX for later GPUs. No kernel needs a feature newer than 8.0, so one
    # intermediate code serves two of the three.
    set(CMAKE_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "")
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo")
    find_package(CUDAToolkit REQUIRED)
    set(CUDA_FOUND ON)
  elseif(TRAINYARD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TRAINYARD_CUDA is ON, but there is no nvcc in PATH nor in /usr/local/cuda/bin")
  endif()
endif()

# Libraries that NVIDIA ships apart from the toolkit: in the system, in the toolkit, or in the folder of ./dev cuda. If
# one is missing, the files that need it are left out.
if(CUDA_FOUND)
  file(GLOB CUDA_LIBRARY_ROOTS ${TRAINYARD_CUDA_LIBRARIES}/nvidia/*)
  foreach(library cublasLt cudnn nccl)
    string(TOUPPER ${library} name)
    find_path(${name}_INCLUDE ${library}.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDA_LIBRARY_ROOTS} PATH_SUFFIXES include)
    if(NOT ${name}_INCLUDE)
      message(STATUS "no ${library}.h: the CUDA plugin is built without it (./dev cuda fetches it)")
    endif()
  endforeach()
  find_path(CUPTI_INCLUDE cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDA_LIBRARY_ROOTS}
            PATH_SUFFIXES include ../extras/CUPTI/include)
  find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDA_LIBRARY_ROOTS}
               PATH_SUFFIXES lib)
endif()
