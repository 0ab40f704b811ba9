#include "cases/conformance.h"

#include <saccade/attention_state.h>
#include <saccade/backend.h>
#include <saccade/decode.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "cases/gradient_case.h"
#include "cases/key_rows.h"

namespace saccade::cases {
namespace {

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  for (Finding& finding : more) findings.push_back(std::move(finding));
}

/// The options without the outputs that only attention() and decode() have.
AttentionOptions without_weights(const AttentionCase& c) {
  AttentionOptions options = c.options;
  options.weights = options.scores = {};
  return options;
}

void clear_results(AttentionCase& c) {
  c.o.clear();
  if (c.lse.rank() > 0) fill(c.lse, std::numeric_limits<double>::quiet_NaN());
}

/// Compares o and lse only.
std::vector<Finding> compare_results(AttentionCase& c, CheckedCase& checked, const std::string& function) {
  const AttentionOptions all = std::exchange(c.options, without_weights(c));
  std::vector<Finding> findings = checked.compare_last(function);
  c.options = all;
  return findings;
}

/// Whether the keys of the problem can be split: they are not paged, and positions do not depend on their number.
bool takes_parts(const AttentionCase& c) {
  const AttentionOptions& o = c.options;
  const bool knows_positions = o.causal != Causal::bottom_right || o.query_offset || o.query_offsets;
  return !o.block_table && !o.cu_seqlens_k && o.origin == Origin{} && knows_positions;
}

/// The keys of a view of rank 2 to 4.
TensorView keys(const TensorView& view, Layout layout, std::int64_t begin, std::int64_t end) {
  return view.slice(layout == Layout::bshd && view.rank > 2 ? -3 : -2, begin, end);
}

/// Counts of keys, at most `most`.
Tensor clamped(const TensorView& numbers, std::int64_t most) {
  if (!numbers) return {};
  Tensor result = Tensor::copy_of(numbers, DType::i64);
  for (std::int64_t& number : result.values<std::int64_t>()) number = std::min(number, most);
  return result;
}

/// The options of a call with keys [begin, end) only.
class OptionsOfPart {
 public:
  AttentionOptions options;

  OptionsOfPart(const AttentionOptions& whole, std::int64_t seqlen, std::int64_t begin, std::int64_t end)
      : options(whole), lengths_(clamped(whole.kv_lengths, end)), starts_(clamped(whole.kv_starts, end)) {
    const std::pair run{begin, end};
    scales_ = ScalesOfRows(options, {&run, 1});
    options.lse = {};
    options.origin.key = begin;
    options.kv_lengths = lengths_.view();
    options.kv_starts = starts_.view();
    if (options.mask && options.mask.shape[options.mask.rank - 1U] == seqlen)
      options.mask = options.mask.slice(-1, begin, end);
    const std::int64_t blocks = (end + options.block_mask_k - 1) / options.block_mask_k;
    if (options.block_mask && options.block_mask.shape[options.block_mask.rank - 1U] > 1)
      options.block_mask = options.block_mask.slice(-1, 0, blocks);
  }

 private:
  Tensor lengths_, starts_;
  ScalesOfRows scales_;
};

/// Adds some of the keys to a state, then the others.
void attend_in_parts(AttentionCase& c) {
  const AttentionOptions options = without_weights(c);
  const Layout layout = options.layout;
  const TensorView q = std::as_const(c.q).view(), k = std::as_const(c.k).view(), v = std::as_const(c.v).view();
  const std::int64_t seqlen = k.shape[layout == Layout::bshd && k.rank > 2 ? k.rank - 3U : k.rank - 2U];
  const std::int64_t middle = seqlen / 2 / 64 * 64;  // where a call with dropout may begin
  AttentionState state(c.o.view().dtype);
  if (middle > 0) {
    const OptionsOfPart first(options, seqlen, 0, middle);
    state.add(q, keys(k, layout, 0, middle), keys(v, layout, 0, middle), first.options);
  }
  const OptionsOfPart rest(options, seqlen, middle, seqlen);
  state.add(q, keys(k, layout, middle, seqlen), keys(v, layout, middle, seqlen), rest.options);
  state.finish(c.o.view(), options);
}

}  // namespace

std::vector<Finding> run_conformance(AttentionCase& c, CheckedCase& checked, std::uint64_t seed) {
  std::vector<Finding> findings = checked.run();
  if (has_gradients(c)) append(findings, CheckedGradients(c, seed).run());
  if (takes_parts(c)) {
    clear_results(c);
    attend_in_parts(c);
    append(findings, compare_results(c, checked, "AttentionState"));
  }
  if (!c.has_few_rows || c.options.cu_seqlens_q || c.options.cu_seqlens_k) return findings;
  const AttentionOptions options = without_weights(c);
  const TensorView q = std::as_const(c.q).view(), k = std::as_const(c.k).view(), v = std::as_const(c.v).view();
  AttentionOptions on_cpu = options;
  on_cpu.backend = "cpu";
  for (const auto& [writer, merger, name] :
       {std::tuple{options, on_cpu, "decode_states"}, {on_cpu, options, "merge_decode_states"}}) {
    clear_results(c);
    merge_decode_states(q, k, v, decode_states(q, k, v, writer), c.o.view(), merger);
    append(findings, compare_results(c, checked, name));
  }
  return findings;
}

}  // namespace saccade::cases
