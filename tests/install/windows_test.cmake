# Installs a build for Windows and uses it from there: through CMake and through pkg-config. Run by ctest as
# `cmake -D... -P windows_test.cmake`.
#
#   SOURCE_DIR  the repository    BUILD_DIR  the build tree to install    WORK_DIR  erased, then used
#   TOOLCHAIN, EMULATOR, CXX, NM, TARGET, PKG_CONFIG  of the build 
cmake_minimum_required(VERSION 3.25)
set(example ${SOURCE_DIR}/examples/using_from_cmake)
set(expected "[[0.4300, 0.1500, 0.8900],\n [0.5058, 0.6050, 0.7447],\n [0.5302, 0.6979, 0.7049]]\n")
set(prefix ${WORK_DIR}/prefix)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(expect_output program)
  execute_process(COMMAND ${EMULATOR} ${program} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output)
  string(REPLACE "\r\n" "\n" output "${output}")  # programs that write text
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "${program} printed\n${output}and not\n${expected}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
foreach(file bin/saccade.exe lib/libsaccade.a include/saccade/saccade.h)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${example} -B ${WORK_DIR}/example -G Ninja -DCMAKE_TOOLCHAIN_FILE=${TOOLCHAIN} -Dsaccade_ROOT=${prefix}
  -DCMAKE_FIND_ROOT_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/example)
expect_output(${WORK_DIR}/example/using_saccade.exe)

execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_LIBDIR=${prefix}/lib/pkgconfig ${PKG_CONFIG} --cflags --libs saccade
  COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE flags)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX} --target=${TARGET} -std=c++20 -O1 ${example}/main.cpp ${flags} -o ${WORK_DIR}/by_pkg_config.exe)
expect_output(${WORK_DIR}/by_pkg_config.exe)

# The DLL and its import library, from C and from C++.
run(${CMAKE_COMMAND} -E make_directory ${WORK_DIR}/dll)
file(GLOB_RECURSE objects ${BUILD_DIR}/src/CMakeFiles/saccade.dir/*.obj)
file(WRITE ${WORK_DIR}/dll/objects "${objects}")
run(${CMAKE_COMMAND} -D NM=${NM} -D OBJECTS=${WORK_DIR}/dll/objects -D DLL=saccade.dll -D RESULT=${WORK_DIR}/dll/saccade.def
  -P ${SOURCE_DIR}/cmake/export_names.cmake)
run(${CXX} --target=${TARGET} -shared ${objects} ${WORK_DIR}/dll/saccade.def -o ${WORK_DIR}/dll/saccade.dll -Wl,--out-implib,${WORK_DIR}/dll/libsaccade.dll.a)
run(${CXX} --target=${TARGET} -std=c++20 -O1 -I${prefix}/include ${example}/main.cpp ${WORK_DIR}/dll/libsaccade.dll.a
  -o ${WORK_DIR}/dll/by_dll.exe)
expect_output(${WORK_DIR}/dll/by_dll.exe)
run(${CXX} --target=${TARGET} -x c -std=c99 -O1 -I${prefix}/include ${SOURCE_DIR}/examples/using_from_c/main.c -x none
  ${WORK_DIR}/dll/libsaccade.dll.a -o ${WORK_DIR}/dll/c_by_dll.exe)
expect_output(${WORK_DIR}/dll/c_by_dll.exe)
