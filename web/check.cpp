// The command check.wasm, which compares the kernels of WebAssembly with the reference and times them. `saccade
// check` and `saccade bench` need libraries that a browser lacks.
//   check SEED COUNT     random problems, forward and backward, on every instruction set
//   check speed          attention() beside the peak of multiply-adds
#include <saccade/saccade.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "cases/gradient_case.h"
#include "cases/random_case.h"

namespace {

using namespace saccade;

/// What was compared of one instruction set.
struct Tally {
  int cases = 0, results = 0, failures = 0;
  double worst = 0;

  void add(const std::vector<cases::Finding>& findings, const std::string& of_case) {
    for (const cases::Finding& finding : findings) {
      ++results;
      worst = std::max(worst, finding.comparison.worst_ratio);
      if (finding.comparison.holds) continue;
      ++failures;
      std::printf("FAILED %s\n  %s: %s\n", of_case.c_str(), finding.result.c_str(),
                  to_string(finding.comparison).c_str());
    }
  }
};

void check_case(std::uint64_t seed, std::map<Isa, Tally>& tallies) {
  cases::AttentionCase drawn = cases::draw_case(seed);
  cases::CheckedCase checked(drawn);
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    const std::string name =
        "seed " + std::to_string(seed) + " on " + std::string(name_of(isa)) + ": " + cases::describe(drawn);
    ++tallies[isa].cases;
    tallies[isa].add(checked.run(), name);
    // Gradients cost the reference more.
    if (seed % 4 == 0 && cases::has_gradients(drawn))
      tallies[isa].add(cases::CheckedGradients(drawn, seed).run(), name);
  }
}

int check(std::uint64_t seed, std::uint64_t count) {
  std::map<Isa, Tally> tallies;
  for (std::uint64_t i = 0; i < count; ++i) check_case(seed + i, tallies);
  int failures = 0;
  for (const auto& [isa, tally] : tallies) {
    std::printf("%s: %d problems, %d results, %d failed, worst %.2f of what is allowed\n", name_of(isa).data(),
                tally.cases, tally.results, tally.failures, tally.worst);
    failures += tally.failures;
  }
  return failures == 0 ? 0 : 1;
}

/// The best time of a call, in seconds, over a third of a second.
template <class Call>
double best_time(const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  double best = 1e9;
  for (const Clock::time_point start = Clock::now(); since(start) < 0.33;) {
    const Clock::time_point begin = Clock::now();
    call();
    best = std::min(best, since(begin));
  }
  return best;
}

Tensor normal_numbers(const Shape& shape, std::uint64_t seed) { return TorchGenerator(seed).randn(shape); }

/// Forward and backward of `heads` heads on each instruction set.
void time_problem(std::int64_t heads, std::int64_t seqlen, std::int64_t dim, Causal causal) {
  const Shape shape{1, heads, seqlen, dim};
  const Tensor q = normal_numbers(shape, 1), k = normal_numbers(shape, 2), v = normal_numbers(shape, 3);
  Tensor o(DType::f32, shape), lse(DType::f32, {1, heads, seqlen}), dq(DType::f32, shape), dk(DType::f32, shape),
      dv(DType::f32, shape);
  AttentionOptions options{.causal = causal};
  const double operations = attention_operations(q, k, v, options);
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    const double peak = measure_peak_flops(1, 0.5);
    AttentionOptions with_lse = options;
    with_lse.lse = lse;
    const double forward = best_time([&] { attention(q, k, v, o, with_lse); });
    const double backward = best_time([&] {
      attention_backward(q, k, v, {.o = o, .lse = lse, .dout = q}, {.dq = dq, .dk = dk, .dv = dv}, options);
    });
    std::printf(
        "%-16s %lld x %lld x %lld%s: forward %.2f ms, %.1f GFLOP/s, %.2f of the peak of %.1f; backward %.2f ms\n",
        name_of(isa).data(), static_cast<long long>(heads), static_cast<long long>(seqlen),
        static_cast<long long>(dim), causal == Causal::none ? "" : " causal", 1e3 * forward,
        operations / forward / 1e9, operations / forward / peak, peak / 1e9, 1e3 * backward);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "speed") {
    time_problem(1, 1024, 64, Causal::none);
    time_problem(1, 1024, 64, Causal::bottom_right);
    time_problem(12, 128, 64, Causal::none);
    time_problem(1, 512, 128, Causal::none);
    return 0;
  }
  if (argc != 3) return std::fputs("usage: check SEED COUNT | check speed\n", stderr), 2;
  return check(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
}
