# Installs a built saccade into a folder of its own and uses it from there, as a stranger's project would: through
# CMake, through pkg-config, and after the folder was moved. Run by ctest as `cmake -D... -P install_test.cmake`.
#
#   SOURCE_DIR   the repository      BUILD_DIR  the build tree to install
#   WORK_DIR     erased, then used   CC, CXX, CXX_FLAGS, GENERATOR, PKG_CONFIG   as the build was made
#   TOOLCHAIN, EMULATOR  of a build for another processor, else empty
#   WITH         the components that BUILD_DIR has besides saccade::saccade, e.g. "gpt;io;heatmap;cli"
#   MPI_INCLUDE  where mpi.h is   MPIRUN  what starts processes, if WITH has mpi
cmake_minimum_required(VERSION 3.25)
set(ENV{LD_LIBRARY_PATH} "")
set(example ${SOURCE_DIR}/examples/using_from_cmake)
set(expected "[[0.4300, 0.1500, 0.8900],\n [0.5058, 0.6050, 0.7447],\n [0.5302, 0.6979, 0.7049]]\n")
separate_arguments(flags UNIX_COMMAND "${CXX_FLAGS}")
separate_arguments(emulator UNIX_COMMAND "${EMULATOR}")
if(TOOLCHAIN)
  set(toolchain -DCMAKE_TOOLCHAIN_FILE=${TOOLCHAIN})
endif()

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(expect_output)
  execute_process(COMMAND ${emulator} ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output)
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "${ARGV} printed\n${output}and not\n${expected}")
  endif()
endfunction()

# Configures project SOURCE against the installed copy, with further arguments for CMake.
function(configure source build)
  run(${CMAKE_COMMAND} --no-warn-unused-cli -S ${source} -B ${build} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_PREFIX_PATH=${prefix} ${toolchain} ${ARGN})
endfunction()

function(compile_with_pkg_config source program)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${libdir}/pkgconfig
    ${PKG_CONFIG} --cflags --libs ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE package_flags)
  separate_arguments(package_flags UNIX_COMMAND "${package_flags}")
  if(source MATCHES "\\.c$")
    run(${CC} ${flags} -std=c99 -Wall -Wextra -Wpedantic -Werror ${source} ${package_flags} -Wl,-rpath,${libdir} -o ${program})
  else()
    run(${CXX} ${flags} -std=c++20 ${source} ${package_flags} -Wl,-rpath,${libdir} -o ${program})
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first)
set(prefix ${WORK_DIR}/moved)
file(RENAME ${WORK_DIR}/first ${prefix})
file(GLOB_RECURSE config ${prefix}/saccadeConfig.cmake)
cmake_path(GET config PARENT_PATH libdir)
cmake_path(SET libdir NORMALIZE ${libdir}/../..)

# The core asks for nothing but a compiler with OpenMP.
configure(${example} ${WORK_DIR}/example -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/example)
expect_output(${WORK_DIR}/example/using_saccade)
compile_with_pkg_config(${example}/main.cpp ${WORK_DIR}/by_pkg_config saccade)
expect_output(${WORK_DIR}/by_pkg_config)

# From C, by C99 without extensions.
configure(${SOURCE_DIR}/examples/using_from_c ${WORK_DIR}/c_example "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror")
run(${CMAKE_COMMAND} --build ${WORK_DIR}/c_example)
expect_output(${WORK_DIR}/c_example/using_saccade)
compile_with_pkg_config(${SOURCE_DIR}/examples/using_from_c/main.c ${WORK_DIR}/c_by_pkg_config saccade)
expect_output(${WORK_DIR}/c_by_pkg_config)
if(EXISTS ${libdir}/libsaccade.so)
  configure(${SOURCE_DIR}/tests/install/only_c ${WORK_DIR}/only_c)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/only_c)
  expect_output(${WORK_DIR}/only_c/only_c)
endif()

# As a part of another project, which gets the core alone. It is not built, which takes minutes.
set(example ${SOURCE_DIR}/examples/using_from_fetchcontent)
configure(${example} ${WORK_DIR}/fetched -DFETCHCONTENT_SOURCE_DIR_SACCADE=${SOURCE_DIR})
if(EXISTS ${WORK_DIR}/fetched/_deps/saccade-build/tests)
  message(FATAL_ERROR "a project that fetches saccade gets its tests too")
endif()
compile_with_pkg_config(${example}/main.cpp ${WORK_DIR}/fetched_main saccade)
expect_output(${WORK_DIR}/fetched_main)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${example} -B ${WORK_DIR}/fetched_from_nowhere -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} ${toolchain} RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE message)
if(result EQUAL 0 OR NOT message MATCHES "-DSACCADE_REPOSITORY")
  message(FATAL_ERROR "that nothing says where to fetch saccade was not refused with advice: ${message}")
endif()

# Every installed header compiles by itself, without a warning.
list(TRANSFORM MPI_INCLUDE PREPEND "-isystem" OUTPUT_VARIABLE mpi_flags)
file(GLOB headers RELATIVE ${prefix}/include ${prefix}/include/saccade/*.h)
foreach(header IN LISTS headers)
  file(WRITE ${WORK_DIR}/header.cpp "#include <${header}>\n#include <${header}>\n")
  run(${CXX} -std=c++20 -Wall -Wextra -Wshadow -Wpedantic -Werror -fsyntax-only -I${prefix}/include
    ${mpi_flags} ${WORK_DIR}/header.cpp)
endforeach()

# Components that are there are found and link; one that is not is refused by name.
set(components ${WITH})
list(REMOVE_ITEM components cli mpi)
if(components)
  configure(${SOURCE_DIR}/tests/install/components ${WORK_DIR}/components)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/components)
  run(${emulator} ${WORK_DIR}/components/use_components ${WORK_DIR}/components)
  compile_with_pkg_config(${SOURCE_DIR}/tests/install/components/main.cpp ${WORK_DIR}/components_by_pkg_config
    saccade-gpt saccade-page saccade-model saccade-heatmap)
  run(${emulator} ${WORK_DIR}/components_by_pkg_config ${WORK_DIR}/components)
endif()
file(WRITE ${WORK_DIR}/missing/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(missing CXX)\nfind_package(saccade REQUIRED COMPONENTS telepathy)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR}/missing -B ${WORK_DIR}/missing/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${prefix} ${toolchain} RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE message)
if(result EQUAL 0 OR NOT message MATCHES "no component 'telepathy'")
  message(FATAL_ERROR "a component that does not exist was not refused by name: ${message}")
endif()

# Distributed attention, in three processes.
if("mpi" IN_LIST WITH)
  set(example ${SOURCE_DIR}/examples/distributed)
  configure(${example} ${WORK_DIR}/distributed)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/distributed)
  run(${MPIRUN} 3 ${WORK_DIR}/distributed/distributed_attention)
  compile_with_pkg_config(${example}/main.cpp ${WORK_DIR}/distributed_by_pkg_config saccade-mpi)
  run(${MPIRUN} 3 ${WORK_DIR}/distributed_by_pkg_config)
endif()

if("cli" IN_LIST WITH)
  run(${emulator} ${prefix}/bin/saccade info)
endif()
