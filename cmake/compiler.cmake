# Compiler settings of every target of the project.
if(WIN32 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "GCC does not align the stack for vectors of 256 and 512 bits on 64-bit Windows (GCC bug 54412), so kernels "
    "would crash. Build with Clang: preset windows, or Clang for MinGW on Windows itself (docs/install.md)")
elseif(MSVC)
  message(FATAL_ERROR "The kernels are compiled for several instruction sets in one program, which needs attributes that only Clang "
    "and GCC have. Build with Clang for MinGW (docs/install.md); programs of Visual C++ can then call the DLL by saccade/c_api.h")
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "wasm32")  # a module has its memory to itself
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
endif()
# A shared library exports what the public headers declare: a pragma in each makes that visible. An attribute of the namespace
# would not do: for Clang it ends where a source opens the namespace again.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

add_library(saccade_compiler INTERFACE)
target_compile_options(saccade_compiler INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-align)
# A switch over an enumeration names every value, or has a default: a new one is an error wherever it has no case.
target_compile_options(saccade_compiler INTERFACE -Werror=switch)
# GCC has false warnings: 12 and 13 about std::string's operator+ (GCC bug 105651), 13 and 14 about copies of std::vector, and 12
# about these where sources are compiled together.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    target_compile_options(saccade_compiler INTERFACE -Wno-restrict)
  endif()
  if(CMAKE_UNITY_BUILD OR CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(saccade_compiler INTERFACE -Wno-stringop-overflow -Wno-array-bounds)
  endif()
endif()
# std::stable_sort of GCC 12's library and older calls a function that the library itself calls deprecated, and Clang says so from
# version 17 on.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 17)
  target_compile_options(saccade_compiler INTERFACE -Wno-deprecated-declarations)
endif()
# Every 64-bit Arm processor has fused multiply-adds, so compilers would fuse products and sums there, each in its own
# way. The sources decide what is fused, so that what is computed outside the kernels rounds as on x86-64.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  target_compile_options(saccade_compiler INTERFACE -ffp-contract=off)
endif()
if(SACCADE_WARNINGS_AS_ERRORS)
  target_compile_options(saccade_compiler INTERFACE -Werror)
endif()
if(SACCADE_SANITIZE)
  target_compile_options(saccade_compiler INTERFACE
    -fsanitize=${SACCADE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(saccade_compiler INTERFACE -fsanitize=${SACCADE_SANITIZE})
  # With the checks compiled in, GCC reports its own std::regex as uninitialised.
  target_compile_options(saccade_compiler INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(SACCADE_BUILD_FUZZERS)
  # Coverage of the libraries too, to guide libFuzzer.
  target_compile_options(saccade_compiler INTERFACE -fsanitize=fuzzer-no-link)
endif()
