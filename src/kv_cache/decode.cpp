#include "kv_cache/storage.h"

namespace saccade {

void decode(const TensorView& q, const KvCache& cache, const MutableTensorView& o,
            const AttentionOptions& options) {
  decode(q, cache.k(options.layout), cache.v(options.layout), o, options_over("decode", q, cache, options));
}

Tensor decode(const TensorView& q, const KvCache& cache, const AttentionOptions& options) {
  return decode(q, cache.k(options.layout), cache.v(options.layout), options_over("decode", q, cache, options));
}

}  // namespace saccade
