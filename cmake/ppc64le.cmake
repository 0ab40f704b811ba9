# Cross-compiles for Linux on ppc64le, with the scalar kernels, and runs the programs under qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ppc64le)
set(zig_target powerpc64le-linux-musl)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
# The libunwind of Zig 0.17.1 does not restore vector registers that a function keeps while it catches an exception.
string(APPEND CMAKE_CXX_FLAGS_INIT " -mno-power8-vector -mno-power9-vector -mno-direct-move -mno-vsx -mno-altivec")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-ppc64le)
