// saccade: exact attention on the CPU. This header includes the whole core library (target saccade::saccade).
// Include language models (gpt_model.h, target saccade::gpt), files (io.h, saccade::io), pictures (heatmap.h,
// saccade::heatmap) and MPI (mpi.h, saccade::mpi) separately.
#pragma once

#include "saccade/attention.h"
#include "saccade/attention_modules.h"
#include "saccade/attention_state.h"
#include "saccade/backward.h"
#include "saccade/communicator.h"
#include "saccade/compare.h"
#include "saccade/decode.h"
#include "saccade/distributed.h"
#include "saccade/dtype.h"
#include "saccade/functional.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/layers.h"
#include "saccade/limits.h"
#include "saccade/linear.h"
#include "saccade/module.h"
#include "saccade/operations.h"
#include "saccade/optim.h"
#include "saccade/packed_linear.h"
#include "saccade/random.h"
#include "saccade/reference.h"
#include "saccade/rope.h"
#include "saccade/runtime.h"
#include "saccade/tensor.h"
