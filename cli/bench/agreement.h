// Checks the results of timed calls.
#pragma once

#include <saccade/reference.h>

#include <vector>

namespace saccade::cli::bench {

/// Whether these rows of o [batch, heads, seqlen, dim] agree with the reference.
bool rows_agree(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& o,
                const AttentionOptions& options, const std::vector<reference::RowIndex>& rows);

}  // namespace saccade::cli::bench
