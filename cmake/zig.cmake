# Cross-compiles with Zig, which is Clang with the headers and libraries of every system (script/bootstrap
# --windows, --macos or --linux installs it into build/ziglang). A toolchain file sets zig_target and includes this one.
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/cc)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/c++)
set(CMAKE_C_COMPILER_TARGET ${zig_target})
set(CMAKE_CXX_COMPILER_TARGET ${zig_target})
# Zig would check code that is compiled without optimization.
set(CMAKE_C_FLAGS_INIT -fno-sanitize=undefined)
set(CMAKE_CXX_FLAGS_INIT -fno-sanitize=undefined)
foreach(tool AR RANLIB)
  string(TOLOWER ${tool} file)
  set(CMAKE_${tool} ${CMAKE_CURRENT_LIST_DIR}/zig/${file} CACHE FILEPATH "Of Zig")
endforeach()
# Clang 14 and later of any distribution reads every system's programs.
find_program(CMAKE_NM NAMES llvm-nm llvm-nm-14 llvm-nm-18)
find_program(CMAKE_OBJDUMP NAMES llvm-objdump llvm-objdump-14 llvm-objdump-18)
# The libraries that script/cross_libraries built, and nothing of this machine.
set(SACCADE_CROSS_LIBRARIES ${CMAKE_CURRENT_LIST_DIR}/../build/libraries/${zig_target} CACHE PATH "Libraries for the system of the programs")
list(APPEND CMAKE_FIND_ROOT_PATH ${SACCADE_CROSS_LIBRARIES})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${SACCADE_CROSS_LIBRARIES}/lib/pkgconfig)
