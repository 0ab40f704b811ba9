# Whether to build saccade::mpi: SACCADE_HAS_MPI. A project that adds this folder gets it on request only.
set(SACCADE_HAS_MPI OFF)
if(SACCADE_MPI STREQUAL "ON" OR (SACCADE_MPI STREQUAL "AUTO" AND PROJECT_IS_TOP_LEVEL AND NOT SKBUILD AND NOT CMAKE_CROSSCOMPILING))
  set(MPI_CXX_SKIP_MPICXX ON)  # the C functions only
  if(SACCADE_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS CXX)
  else()
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  set(SACCADE_HAS_MPI ${MPI_CXX_FOUND})
elseif(NOT SACCADE_MPI MATCHES "^(AUTO|OFF)$")
  message(FATAL_ERROR "SACCADE_MPI must be AUTO, ON or OFF, but it is ${SACCADE_MPI}")
endif()
