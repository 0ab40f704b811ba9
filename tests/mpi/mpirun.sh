#!/bin/sh
# Usage: mpirun.sh MPIEXEC RANKS PROGRAM [ARGUMENT...]
#
# Runs a program in several processes that share the processors of this machine: they have one thread each, are not
# bound to a core, and yield while they wait. MPICH takes the same settings; those of Open MPI mean nothing to it.
mpiexec=$1 ranks=$2
shift 2
export OMP_NUM_THREADS="${OMP_NUM_THREADS-1}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
# Containers often forbid to read the memory of another process.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
exec "$mpiexec" -n "$ranks" "$@"
