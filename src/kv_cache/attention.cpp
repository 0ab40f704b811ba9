#include <algorithm>
#include <array>

#include "core/axes.h"
#include "core/check.h"
#include "kv_cache/storage.h"

namespace saccade {
namespace {

/// Query rows of a sequence; 0 if the arguments do not fit together, which attention() will report.
std::int64_t rows_of(const TensorView& q, const AttentionOptions& options, std::int64_t sequence) {
  const TensorView& begins = options.cu_seqlens_q;
  if (!begins) return q.rank < 2 || q.rank > 4 ? 0 : as_bhsd(q, options.layout).shape[2];
  if (begins.rank != 1 || begins.data == nullptr || sequence + 1 >= begins.shape[0]) return 0;
  const auto begin = [&](std::int64_t at) { return static_cast<std::int64_t>(value_at(begins, std::array{at})); };
  const std::int64_t first = begin(sequence), end = begin(sequence + 1);
  return first < 0 || end < first ? 0 : end - first;
}

}  // namespace

AttentionOptions options_over(std::string_view function, const TensorView& q, const KvCache& cache,
                              const AttentionOptions& options) {
  const AttentionOptions all = cache.options(options);
  if (cache.config().window < 0) return all;
  for (std::int64_t b = 0; b < cache.config().batch; ++b) {
    const std::int64_t seqlen_q = rows_of(q, options, b);
    const auto at_most = [&](std::int64_t rows) { return std::clamp<std::int64_t>(rows, 0, cache.length(b)); };
    const std::int64_t first =
        std::max<std::int64_t>(0, cache.length(b) - at_most(seqlen_q) - at_most(all.window_left));
    if (first < cache.first_kept(b))
      refuse(function, "q has seqlen ", seqlen_q, " and a window that begins at key ", first,
             ", but the cache has kept sequence ", b, " from ", cache.first_kept(b), " on only");
  }
  return all;
}

void attention(const TensorView& q, const KvCache& cache, const MutableTensorView& o,
               const AttentionOptions& options) {
  attention(q, cache.k(options.layout), cache.v(options.layout), o, options_over("attention", q, cache, options));
}

Tensor attention(const TensorView& q, const KvCache& cache, const AttentionOptions& options) {
  return attention(q, cache.k(options.layout), cache.v(options.layout),
                   options_over("attention", q, cache, options));
}

}  // namespace saccade
