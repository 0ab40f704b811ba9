# Builds the core alone, as a shared library, on a machine where CMake finds nothing but OpenMP, and then checks it as
# install_test.cmake does. Takes the same variables, without BUILD_DIR and WITH.
cmake_minimum_required(VERSION 3.25)
set(BUILD_DIR ${WORK_DIR}_build)
set(not_found "")
foreach(package ZLIB PkgConfig nlohmann_json fmt CLI11 GTest benchmark MPI)
  list(APPEND not_found -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
foreach(part GPT IO HEATMAP CLI TESTS)
  list(APPEND not_found -DSACCADE_BUILD_${part}=OFF)
endforeach()
if(TOOLCHAIN)
  list(APPEND not_found -DCMAKE_TOOLCHAIN_FILE=${TOOLCHAIN})
endif()
execute_process(COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET COMMAND ${CMAKE_COMMAND} --no-warn-unused-cli -S ${SOURCE_DIR} -B ${BUILD_DIR}
  -G ${GENERATOR} -DBUILD_SHARED_LIBS=ON -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DSACCADE_KERNEL_OPTIMIZATION=-O0 ${not_found})  # what is built is not about speed
execute_process(COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET COMMAND ${CMAKE_COMMAND} --build ${BUILD_DIR})

# The library exports the names of cmake/libsaccade.symbols, and no others. (Another compiler's names may differ in details.)
if(NM AND COMPILER_ID STREQUAL "GNU" AND NOT TOOLCHAIN)
  execute_process(COMMAND ${NM} -D -C -j --defined-only --without-symbol-versions ${BUILD_DIR}/src/libsaccade.so
    COMMAND grep -v "^SACCADE_0$" COMMAND env LC_ALL=C sort -u COMMAND_ERROR_IS_FATAL ANY OUTPUT_FILE ${BUILD_DIR}/libsaccade.symbols)
  execute_process(COMMAND diff ${SOURCE_DIR}/cmake/libsaccade.symbols ${BUILD_DIR}/libsaccade.symbols
    RESULT_VARIABLE differs OUTPUT_VARIABLE difference)
  if(differs)
    message(FATAL_ERROR "libsaccade.so exports other names (>) than cmake/libsaccade.symbols lists (<):\n${difference}"
      "If that is wanted, replace the file by ${BUILD_DIR}/libsaccade.symbols; docs/versioning.md says what may go.")
  endif()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/install_test.cmake)
