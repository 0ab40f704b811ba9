# What `cmake --install` installs: the libraries, their headers, the saccade command, and two ways to find them (a
# CMake package and pkg-config files). Each library is a separate export set, so that a program that uses only
# saccade::saccade needs only OpenMP, or threads, as SACCADE_THREADS says.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(saccade_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/saccade)

# Installs target TARGET with the CMake file saccade-NAME-targets.cmake and the pkg-config file PC_NAME.pc.
# REQUIRES and LIBS are what a program must link besides the library itself; CFLAGS is what its headers need, after a
# space.
function(saccade_install target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME;PC_NAME;DESCRIPTION;PUBLIC_REQUIRES;REQUIRES;LIBS;CFLAGS" "")
  install(TARGETS ${target} EXPORT saccade-${arg_NAME}-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(EXPORT saccade-${arg_NAME}-targets NAMESPACE saccade:: DESTINATION ${saccade_package_dir})

  # The user of a static library must link its dependencies too; a shared library links them itself.
  get_target_property(library_type ${target} TYPE)
  set(private_requires "")
  set(private_libs "")
  if(library_type STREQUAL "STATIC_LIBRARY")
    string(STRIP "${arg_PUBLIC_REQUIRES} ${arg_REQUIRES}" requires)
    string(STRIP "-l${target} ${arg_LIBS}" libs)
  else()
    set(requires "${arg_PUBLIC_REQUIRES}")
    set(libs "-l${target}")
    set(private_requires "${arg_REQUIRES}")
    set(private_libs "${arg_LIBS}")
  endif()
  file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
  file(RELATIVE_PATH libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
  file(RELATIVE_PATH includedir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/saccade.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/${arg_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${arg_PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

set(left_out_headers "")
# What a linker of C programs must be told beside a static library.
set(cxx_libs ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER cxx_libs EXCLUDE REGEX "^(c|gcc|gcc_s|/.*)$")
list(REMOVE_DUPLICATES cxx_libs)
list(TRANSFORM cxx_libs PREPEND "-l")
list(JOIN cxx_libs " " cxx_libs)
set(blas_libs "")
if(SACCADE_BLAS)
  list(JOIN BLAS_LIBRARIES " " blas_libs)
endif()
saccade_install(saccade NAME saccade PC_NAME saccade
  DESCRIPTION "Exact attention on the CPU" LIBS "${SACCADE_THREADS_LIBS} ${blas_libs} ${cxx_libs}")
if(TARGET saccade_gpt)
  saccade_install(saccade_gpt NAME gpt PC_NAME saccade-gpt
    DESCRIPTION "A small language model on saccade, and its training" PUBLIC_REQUIRES saccade)
else()
  list(APPEND left_out_headers PATTERN gpt_model.h EXCLUDE PATTERN tasks.h EXCLUDE PATTERN training.h EXCLUDE)
endif()
if(TARGET saccade_mpi)
  list(TRANSFORM MPI_CXX_INCLUDE_DIRS PREPEND " -I" OUTPUT_VARIABLE mpi_flags)
  list(JOIN mpi_flags "" mpi_flags)
  list(JOIN MPI_CXX_LIBRARIES " " mpi_libs)
  saccade_install(saccade_mpi NAME mpi PC_NAME saccade-mpi DESCRIPTION "Attention over several machines, by MPI"
    PUBLIC_REQUIRES saccade LIBS "${mpi_libs}" CFLAGS "${mpi_flags}")
else()
  list(APPEND left_out_headers PATTERN mpi.h EXCLUDE)
endif()
if(TARGET saccade_io)
  saccade_install(saccade_io NAME io PC_NAME saccade-io
    DESCRIPTION "Tensor files for saccade: npy, npz, safetensors, JSON, CSV" PUBLIC_REQUIRES saccade REQUIRES zlib)
else()
  list(APPEND left_out_headers PATTERN io.h EXCLUDE PATTERN kv_cache_file.h EXCLUDE)
endif()
if(TARGET saccade_page)
  saccade_install(saccade_page NAME page PC_NAME saccade-page DESCRIPTION "Attention heads as an HTML file"
    PUBLIC_REQUIRES saccade REQUIRES zlib)
else()
  list(APPEND left_out_headers PATTERN page.h EXCLUDE)
endif()
if(TARGET saccade_model)
  saccade_install(saccade_model NAME model PC_NAME saccade-model DESCRIPTION "Models of Hugging Face folders"
    PUBLIC_REQUIRES "saccade saccade-io")
else()
  list(APPEND left_out_headers PATTERN model.h EXCLUDE PATTERN sentence_embeddings.h EXCLUDE)
endif()
if(TARGET saccade_heatmap)
  set(png_requires "")
  if(SACCADE_HAS_PNG)
    set(png_requires librsvg-2.0)
  endif()
  saccade_install(saccade_heatmap NAME heatmap PC_NAME saccade-heatmap
    DESCRIPTION "Pictures of attention weights and of training curves" PUBLIC_REQUIRES saccade REQUIRES "${png_requires}")
else()
  list(APPEND left_out_headers PATTERN heatmap.h EXCLUDE PATTERN chart.h EXCLUDE)
endif()

if(TARGET saccade_tokenizer)
  saccade_install(saccade_tokenizer NAME tokenizer PC_NAME saccade-tokenizer
    DESCRIPTION "Text as the tokens of a model" REQUIRES "oniguruma libutf8proc")
else()
  list(APPEND left_out_headers PATTERN tokenizer.h EXCLUDE)
endif()

if(TARGET saccade_look)
  saccade_install(saccade_look NAME look PC_NAME saccade-look DESCRIPTION "Models of Hugging Face folders as pages of their heads"
    PUBLIC_REQUIRES "saccade-model saccade-page saccade-tokenizer")
else()
  list(APPEND left_out_headers PATTERN look.h EXCLUDE PATTERN ablation.h EXCLUDE PATTERN pretrained.h EXCLUDE)
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/saccade DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" ${left_out_headers})

set(beside_program "$ORIGIN")
if(APPLE)
  set(beside_program "@loader_path")
endif()
if(TARGET saccade_cli)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(saccade_cli PROPERTIES INSTALL_RPATH "${beside_program}/${bin_to_lib}")
  install(TARGETS saccade_cli DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(library saccade_gpt saccade_mpi saccade_io saccade_model saccade_page saccade_heatmap saccade_tokenizer saccade_look)
  if(TARGET ${library})
    set_target_properties(${library} PROPERTIES INSTALL_RPATH "${beside_program}")
  endif()
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/saccadeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/saccadeConfig.cmake INSTALL_DESTINATION ${saccade_package_dir}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may break its users.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/saccadeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/saccadeConfig.cmake ${PROJECT_BINARY_DIR}/saccadeConfigVersion.cmake
  DESTINATION ${saccade_package_dir})
