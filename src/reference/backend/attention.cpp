#include "reference/backend/call.h"
#include "reference/backend/functions.h"

namespace saccade::reference {

void run_attention(const AttentionParams& p) {
  attend_each_row(p, [&p](const auto& row, std::int64_t b, std::int64_t head, std::int64_t i) {
    const std::int64_t at = p.first_row(b) + i;
    store_row(row.o, p.o, b, head, at);
    if (p.lse.data) store(static_cast<double>(row.lse), p.lse, b, head, at);
    if (p.weights.data)
      store_row(p.weights_after_dropout ? row.weights : row.probabilities, p.weights, b, head, at);
    if (p.scores.data) store_row(row.scores(), p.scores, b, head, at);
  });
}

}  // namespace saccade::reference
