# CUDA is optional: KITBASH_CUDA is AUTO, ON or OFF. Every function here does nothing when CUDA is not built, so that a
# plugin's CMakeLists.txt calls them unconditionally. KITBASH_HAS_CUDA says which it is. The first two also work out of the tree, after
# find_package(kitbash CONFIG REQUIRED OPTIONAL_COMPONENTS cuda); the last two do nothing there.
#
#   kitbash_cuda_objects(<target> SOURCES a.cpp b.cu [LIBRARIES ...])         an object library, for a plugin and its tests
#   kitbash_add_cuda_kernels(<kind>_<name> SOURCES a.cpp b.cu [LIBRARIES ..]) libkb_<kind>_<name>.cuda.so beside the plugin
#   kitbash_cuda_test(<name> SOURCES a.cpp b.cu [LIBRARIES ...])              test_<name>_cuda, with gtest, in ctest
#   kitbash_cuda_bench(<name> SOURCES a.cpp b.cu [LIBRARIES ...])             bench_<name>_cuda
set(KITBASH_CUDA_GENCODE "-gencode=arch=compute_90a,code=sm_90a" CACHE STRING "code to generate for CUDA sources")
set(KITBASH_HAS_CUDA OFF)
if(NOT KITBASH_CUDA STREQUAL OFF)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER)  # nvcc is often installed without being in PATH
    find_program(KITBASH_NVCC nvcc HINTS $ENV{CUDA_PATH}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
    if(KITBASH_NVCC)
      set(ENV{CUDACXX} ${KITBASH_NVCC})
    endif()
  endif()
  # Off: the code to generate is named below. A default would be one for which this CMake may know no name.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # an older CMake does not know that nvcc has it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
    string(APPEND CMAKE_CUDA_FLAGS_RELEASE " --compress-mode=size")  # a third of the size of the default
    set(KITBASH_HAS_CUDA ON)
  elseif(KITBASH_CUDA STREQUAL ON)
    message(FATAL_ERROR "KITBASH_CUDA is ON but there is no nvcc of CUDA 13: put one into PATH, set CUDACXX, or set KITBASH_CUDA to OFF")
  elseif(CMAKE_CUDA_COMPILER)
    message(STATUS "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}; the kernels need CUDA 13")
  endif()
endif()
if(KITBASH_HAS_CUDA)  # where the toolkit's libraries are found at run time, here and on most machines
  list(APPEND CMAKE_BUILD_RPATH ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)
  list(APPEND CMAKE_INSTALL_RPATH /usr/local/cuda/lib64)
endif()
message(STATUS "CUDA kernels: ${KITBASH_HAS_CUDA}")

# What all code of a CUDA target is compiled with.
function(kitbash_cuda_flags target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${KITBASH_CUDA_GENCODE}>
                                           $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
                                           $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>)
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                             CUDA_ARCHITECTURES OFF POSITION_INDEPENDENT_CODE ON)
endfunction()

function(kitbash_cuda_objects target)
  if(NOT KITBASH_HAS_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(${target} OBJECT ${ARG_SOURCES})
  target_link_libraries(${target} PUBLIC kitbash::sdk ${ARG_LIBRARIES})
  target_include_directories(${target} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  kitbash_cuda_flags(${target})
endfunction()

function(kitbash_add_cuda_kernels name)
  if(NOT KITBASH_HAS_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(target kb_${name}_cuda)
  add_library(${target} MODULE ${ARG_SOURCES})
  target_link_libraries(${target} PUBLIC kitbash::sdk ${ARG_LIBRARIES})
  kitbash_cuda_flags(${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME kb_${name}.cuda)
  if(PROJECT_NAME STREQUAL kitbash)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/kitbash/plugins)
    install(TARGETS ${target} LIBRARY DESTINATION lib/kitbash/plugins)
  endif()
  target_link_options(${target} PRIVATE -Wl,--version-script=${KITBASH_PLUGIN_MAP} -Wl,--exclude-libs,ALL)
  if(NOT KITBASH_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

# tests/support is found as "tests/support/device_call.h". A test skips itself where there is no CUDA device.
function(kitbash_cuda_test name)
  if(NOT KITBASH_HAS_CUDA OR NOT KITBASH_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(target test_${name}_cuda)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PUBLIC kitbash::sdk ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  kitbash_cuda_flags(${target})
  add_test(NAME ${name}_cuda COMMAND ${target})
endfunction()

function(kitbash_cuda_bench name)
  if(NOT KITBASH_HAS_CUDA OR NOT KITBASH_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(target bench_${name}_cuda)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PUBLIC kitbash::sdk ${ARG_LIBRARIES})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  kitbash_cuda_flags(${target})
endfunction()
