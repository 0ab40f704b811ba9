// The handle of a cache, for inspection too.
#pragma once

#include "saccade/c_api.h"
#include "saccade/kv_cache.h"

struct saccade_kv_cache {
  saccade::KvCache cache;
};
