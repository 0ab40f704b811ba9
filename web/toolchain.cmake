# WebAssembly, compiled by the clang of PyPI's ziglang, which script/bootstrap --web installs. `zig c++` has no exceptions,
# but `zig clang` is a plain clang, and the wheel holds the sources of a C++ library to build with them (runtime/).
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

set(web_zig ${CMAKE_CURRENT_LIST_DIR}/../build/ziglang)
set(web_lib ${web_zig}/lib)
if(NOT EXISTS ${web_zig}/zig)
  message(FATAL_ERROR "build/ziglang is missing: script/bootstrap --web installs it")
endif()
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/runtime/clang++)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasip1)

# Instructions that every browser with 128-bit vectors has. Sizes matter: functions that nothing calls are left out.
set(web_flags -mexception-handling -fwasm-exceptions -mbulk-memory -mnontrapping-fptoint -msign-ext -mmutable-globals
  -mmultivalue -msimd128 -ffunction-sections -fdata-sections -nostdinc -nostdinc++)
foreach(folder libcxx/include libcxxabi/include include libc/include/wasm-wasi-musl libc/include/generic-musl)
  list(APPEND web_flags -isystem ${web_lib}/${folder})
endforeach()
# What a configured libc++ would have in its header __config_site.
foreach(setting ABI_VERSION=1 ABI_NAMESPACE=__1 HAS_THREADS=0 HAS_MONOTONIC_CLOCK=1 HAS_TERMINAL=1 HAS_MUSL_LIBC=1
        HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0 HAS_FILESYSTEM=1 HAS_RANDOM_DEVICE=1 HAS_LOCALIZATION=1 HAS_UNICODE=1
        HAS_WIDE_CHARACTERS=1 HAS_TIME_ZONE_DATABASE=0 DISABLE_VISIBILITY_ANNOTATIONS PSTL_BACKEND_SERIAL
        HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE)
  list(APPEND web_flags -D_LIBCPP_${setting})
endforeach()
list(APPEND web_flags -D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS)
list(JOIN web_flags " " CMAKE_CXX_FLAGS_INIT)

# Zig's own linker front end finds or builds the C library.
set(web_zig_tool "${CMAKE_COMMAND} -E env ZIG_GLOBAL_CACHE_DIR=${web_zig}-cache ZIG_LOCAL_CACHE_DIR=${web_zig}-cache ${web_zig}/zig")
set(CMAKE_CXX_ARCHIVE_CREATE "${web_zig_tool} ar qcs <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND "${web_zig_tool} ar q <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "")
set(CMAKE_CXX_LINK_EXECUTABLE
  "${web_zig_tool} cc -target wasm32-wasi -s -Wl,--gc-sections -Wl,-z,stack-size=1048576 <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
