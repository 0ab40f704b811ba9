#include "gpt2.h"

#include <fmt/format.h>

#include <saccade/compare.h>
#include <saccade/limits.h>
#include <saccade/operations.h>
#include <saccade/random.h>
#include <saccade/reference.h>
#include <nlohmann/json.hpp>

namespace saccade::cli::bench {

ExitCode bench_gpt2(const Conditions& conditions, bool as_json) {
  constexpr std::int64_t kHeads = 12, kSeqlen = 1024, kHeadDim = 64;
  const Shape shape{1, kHeads, kSeqlen, kHeadDim};
  const auto draw = [&](std::uint64_t seed) { return TorchGenerator(seed).uniform(shape, -1.0F, 1.0F); };
  const Tensor q = draw(1), k = draw(2), v = draw(3);
  Tensor o(DType::f32, shape);
  AttentionOptions options{.causal = Causal::top_left};
  const double flops = attention_operations(q, k, v, options);
  Json report = {{"problem", "batch 1, heads 12, seqlen 1024, head_dim 64, causal"}, {"lines", Json::array()}};
  for (const int threads : conditions.threads) {
    options.num_threads = threads;
    const Timing timing = measure(
        conditions.effort, [&] { attention(q, k, v, o, options); },
        [&] { return flops / measure_peak_flops(threads, 0.005); });
    report["lines"].push_back({{"threads", threads},
                               {"seconds", timing.seconds},
                               {"gflops", flops / timing.seconds * 1e-9},
                               {"share_of_peak", timing.share}});
  }
  const auto exact = reference::attention(q, k, v, options);
  const auto naive = reference::naive_attention(q, k, v, options, exact);
  const Comparison comparison = compare(o, {exact.o, naive.o, exact.bound});
  report["check"] = {{"holds", comparison.holds},
                     {"largest_difference", comparison.largest_difference},
                     {"worst_ratio", comparison.worst_ratio}};
  const ExitCode code = comparison.holds ? kGood : kCheckFailed;
  if (as_json) {
    print_json(report);
    return code;
  }
  for (const Json& line : report["lines"])
    fmt::print("{} {:<8} {:>9}  {:6.1f} GFLOP/s  {:.3f} of this machine's peak\n", line["threads"].get<int>(),
               line["threads"] == 1 ? "thread" : "threads", duration(line["seconds"].get<double>()),
               line["gflops"].get<double>(), line["share_of_peak"].get<double>());
  fmt::print("checked against the f64 reference: largest difference {:.1e}, {:.2f} of what rounding may do: {}\n",
             comparison.largest_difference, comparison.worst_ratio, comparison.holds ? "good" : "WRONG");
  return code;
}

}  // namespace saccade::cli::bench
