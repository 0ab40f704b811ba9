#include "distributed/call/piece.h"

#include <algorithm>

#include "backend/visibility.h"
#include "core/axes.h"
#include "core/ceil_div.h"

namespace saccade::distributed {
namespace {

template <class View>
View headed(const View& view, const AttentionOptions& options) {
  if (!options.cu_seqlens_q) return as_bhsd(view, options.layout);
  return with_rank(view.transposed(0, 1), 4);
}

TensorView numbers(const std::vector<std::int64_t>& list) {
  return {list.data(), {static_cast<std::int64_t>(list.size())}};
}

}  // namespace

TensorView as_headed(const TensorView& view, const AttentionOptions& options) { return headed(view, options); }
MutableTensorView as_headed(const MutableTensorView& view, const AttentionOptions& options) {
  return headed(view, options);
}

PieceOptions::PieceOptions(const AttentionOptions& whole, const AttentionParams& params, const Plan::Piece& piece,
                           Run held, Run seen, Run heads)
    : options(whole), batch_{piece.batch, piece.batch + piece.entries}, heads_(heads) {
  const bool is_packed = params.cu_seqlens_q != nullptr;
  options.lse = {};
  options.layout = Layout::bhsd;
  const std::int64_t entry_key = held.begin - params.first_key(piece.batch);
  options.origin = {.batch = piece.batch,
                    .head = heads.begin,
                    .num_heads = params.num_heads,
                    .row = piece.row,
                    .key = is_packed && piece.entries > 1 ? 0 : entry_key};
  if (is_packed) cut_documents(params, piece, held);
  cut_positions(whole, params, piece);
  cut_lengths(whole, params, piece, held, seen);
  find_lengths(params, piece, held);
  for (TensorView AttentionOptions::*const option : {&AttentionOptions::mask, &AttentionOptions::block_mask,
                                                     &AttentionOptions::alibi_slopes, &AttentionOptions::sinks})
    if (options.*option) options.*option = cut(option, options.*option);
}

void PieceOptions::cut_documents(const AttentionParams& params, const Plan::Piece& piece, Run held) {
  for (std::int64_t d = piece.batch; d <= piece.batch + piece.entries; ++d) {
    cu_seqlens_q_.push_back(std::clamp(params.cu_seqlens_q[d], piece.rows.begin, piece.rows.end) -
                            piece.rows.begin);
    cu_seqlens_k_.push_back(std::clamp(params.cu_seqlens_k[d], held.begin, held.end) - held.begin);
  }
  cu_seqlens_q_.back() = piece.rows.size();  // documents end where the piece ends
  cu_seqlens_k_.back() = held.size();
  options.cu_seqlens_q = numbers(cu_seqlens_q_);
  options.cu_seqlens_k = numbers(cu_seqlens_k_);
}

void PieceOptions::cut_positions(const AttentionOptions& whole, const AttentionParams& params,
                                 const Plan::Piece& piece) {
  const bool counts = whole.causal != Causal::none || whole.window_left >= 0 || whole.window_right >= 0 ||
                      whole.alibi_slopes || whole.score_modifier;
  options.query_offset.reset();
  options.query_offsets = {};
  if (!counts) return;
  for (std::int64_t b = piece.batch; b < piece.batch + piece.entries; ++b)
    query_offsets_.push_back(position_of_first_row(params, b));
  options.query_offsets = numbers(query_offsets_);
}

void PieceOptions::cut_lengths(const AttentionOptions& whole, const AttentionParams& params,
                               const Plan::Piece& piece, Run held, Run seen) {
  for (std::int64_t i = 0; i < piece.entries; ++i) {
    const std::int64_t b = piece.batch + i;
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t keys = cu_seqlens_k_.empty() ? held.size() : cu_seqlens_k_[at + 1] - cu_seqlens_k_[at];
    const std::int64_t most = options.origin.key + keys;
    kv_lengths_.push_back(std::min(params.kv_length(b), most));
    kv_starts_.push_back(std::min(params.kv_start(b), most));
  }
  if (whole.kv_lengths) options.kv_lengths = numbers(kv_lengths_);
  for (std::size_t i = 0; i < kv_starts_.size() && seen.begin > held.begin; ++i)
    kv_starts_[i] = std::max(kv_starts_[i], seen.begin - params.first_key(piece.batch));
  if (whole.kv_starts || seen.begin > held.begin) options.kv_starts = numbers(kv_starts_);
}

void PieceOptions::find_lengths(const AttentionParams& params, const Plan::Piece& piece, Run held) {
  std::int64_t rows = piece.rows.size(), keys = held.size();  // of the longest document
  if (!cu_seqlens_q_.empty()) {
    rows = keys = 0;
    for (std::size_t i = 1; i < cu_seqlens_q_.size(); ++i) {
      rows = std::max(rows, cu_seqlens_q_[i] - cu_seqlens_q_[i - 1]);
      keys = std::max(keys, cu_seqlens_k_[i] - cu_seqlens_k_[i - 1]);
    }
  }
  rows_ = {options.origin.row, options.origin.row + rows};
  keys_ = {options.origin.key, options.origin.key + keys};
  block_rows_ = {0, ceil_div(rows_.end, params.block_mask_q)};
  block_keys_ = {0, ceil_div(keys_.end, params.block_mask_k)};
}

}  // namespace saccade::distributed
