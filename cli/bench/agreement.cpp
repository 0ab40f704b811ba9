#include "agreement.h"

#include <saccade/compare.h>

#include "cases/attention_case.h"

namespace saccade::cli::bench {

bool rows_agree(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& o,
                const AttentionOptions& options, const std::vector<reference::RowIndex>& rows) {
  reference::NaiveRounding rounding = cases::naive_rounding(q, k, v, o);
  rounding.rows = rows;
  const auto exact = reference::attention_of_rows(q, k, v, options, rows);
  const auto naive = reference::naive_attention(q, k, v, options, exact, rounding);
  Tensor compared(o.dtype, {static_cast<std::int64_t>(rows.size()), o.shape[3]});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [batch, head, row] = rows[i];
    copy(o.select(0, batch).select(0, head).select(0, row),
         compared.mutable_view().select(0, static_cast<std::int64_t>(i)));
  }
  return compare(compared, {exact.o, naive.o, exact.bound, rounding.coarsest()}).holds;
}

}  // namespace saccade::cli::bench
