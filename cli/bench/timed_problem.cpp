#include "timed_problem.h"

#include <fmt/format.h>
#include <saccade/decode.h>
#include <saccade/limits.h>
#include <saccade/operations.h>

#include <algorithm>
#include <set>

#include "measure.h"

namespace saccade::cli::bench {
namespace {

/// The last sequence and how many rows it has.
std::pair<std::int64_t, std::int64_t> last_sequence(const cases::Problem& problem, const Tensor& cu_seqlens_q) {
  if (problem.documents == 0) return {problem.batch - 1, problem.seqlen_q};
  const auto begins = cu_seqlens_q.values<std::int64_t>();
  auto document = static_cast<std::size_t>(problem.documents - 1);
  while (document > 0 && begins[document + 1] == begins[document]) --document;
  return {static_cast<std::int64_t>(document), begins[document + 1] - begins[document]};
}

}  // namespace

TimedProblem::TimedProblem(const cases::Problem& problem)
    : problem_(problem),
      drawn_(cases::draw_case(problem, 1)),
      flops_(attention_operations(drawn_.q.view(), drawn_.k.view(), drawn_.v.view(), drawn_.options)) {
  const auto length = [](const Tensor& begins, std::int64_t b) {
    return begins.at<std::int64_t>(b + 1) - begins.at<std::int64_t>(b);
  };
  cases::Problem sequence = problem;
  sequence.batch = 1;
  sequence.documents = 0;
  for (std::int64_t b = 0; b < std::max(problem.documents, problem.batch); ++b) {
    if (problem.documents > 0) sequence.seqlen_k = length(drawn_.cu_seqlens_k, b);
    if (problem.has_lengths) sequence.seqlen_k = drawn_.kv_lengths.at<std::int64_t>(b);
    kv_bytes_ += sequence.kv_bytes();
  }
}

void TimedProblem::run(int threads) {
  drawn_.options.num_threads = threads;
  if (problem_.calls_decode)
    decode(drawn_.q.view(), drawn_.k.view(), drawn_.v.view(), drawn_.o.view(), drawn_.options);
  else
    attention(drawn_.q.view(), drawn_.k.view(), drawn_.v.view(), drawn_.o.view(), drawn_.options);
}

double TimedProblem::seconds_at_peak(int threads) const {
  constexpr double kSeconds = 0.005;
  const bool in_bf16 = cases::naive_rounding(drawn_.q.view(), drawn_.k.view(), drawn_.v.view(), drawn_.o.view())
                           .exponentials.has_value();
  const double peak = measure_peak_flops(threads, kSeconds, in_bf16 ? DType::bf16 : DType::f32);
  // A vector holds half as many f64 numbers.
  return flops_ / (problem_.q_type == DType::f64 ? peak / 2 : peak);
}

double TimedProblem::seconds_of_reading(int threads) const {
  return kv_bytes_ / measure_read_bandwidth(threads, kUncachedBytes);
}

bool TimedProblem::agrees() {
  const auto [sequence, rows] = last_sequence(problem_, drawn_.cu_seqlens_q);
  if (sequence < 0 || rows == 0) return true;
  std::vector<reference::RowIndex> compared;
  for (const std::int64_t row : std::set{std::int64_t{0}, rows / 2, rows - 1})
    compared.push_back({sequence, problem_.num_heads - 1, row});
  cases::CheckedCase checked(drawn_, compared);
  return std::ranges::all_of(checked.compare_last(problem_.calls_decode ? "decode" : "attention"),
                             [](const cases::Finding& finding) { return finding.comparison.holds; });
}

std::vector<Line> measure_beside_peak(const std::string& name, const cases::Problem& problem,
                                      const Conditions& conditions) {
  TimedProblem timed(problem);
  std::vector<Line> lines;
  for (const int threads : conditions.threads) {
    const Timing timing = measure(
        conditions.effort, [&] { timed.run(threads); }, [&] { return timed.seconds_at_peak(threads); });
    lines.push_back({name,
                     threads,
                     timing.seconds,
                     {{"gflops", timed.flops() / timing.seconds * 1e-9, 1}, {"share_of_peak", timing.share, 3}},
                     timed.agrees()});
  }
  return lines;
}

std::string words_of(const cases::Problem& problem) {
  return fmt::format("batch {}, heads {}, seqlen {}, head_dim {}{}", problem.batch, problem.num_heads,
                     problem.seqlen_q, problem.head_dim, problem.options.causal == Causal::none ? "" : ", causal");
}

}  // namespace saccade::cli::bench
