// saccade bench: how fast attention is here, beside what this machine could do at best in the same minute.
#include <fmt/format.h>
#include <saccade/attention.h>
#include <saccade/compare.h>
#include <saccade/cpu.h>
#include <saccade/limits.h>
#include <saccade/linear.h>
#include <saccade/random.h>
#include <saccade/reference.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "commands.h"
#include "common.h"
#include "table.h"

namespace saccade::cli {
namespace {

struct BenchArguments {
  std::vector<int> threads;
  bool gpt2 = false;
  bool json = false;
};

// One line of the table: an attention problem with equal lengths.
struct Problem {
  std::int64_t batch, heads, seqlen, head_dim;
  bool causal;

  // Floating-point operations as the field counts them: half of the square when causal.
  double flops() const {
    const double pairs = static_cast<double>(batch * heads) * static_cast<double>(seqlen * seqlen);
    return 4.0 * pairs * static_cast<double>(head_dim) * (causal ? 0.5 : 1.0);
  }
  std::string name() const {
    return fmt::format("batch {}, heads {}, seqlen {}, head_dim {}{}", batch, heads, seqlen, head_dim,
                       causal ? ", causal" : "");
  }
};

constexpr Problem kGpt2 = {1, 12, 1024, 64, true};
constexpr std::array kProblems = {
    Problem{1, 8, 1024, 128, false}, Problem{1, 8, 4096, 128, false}, Problem{1, 8, 1024, 64, false},
    Problem{1, 8, 4096, 64, false},  Problem{1, 8, 1024, 128, true},  Problem{1, 8, 4096, 128, true},
    Problem{1, 8, 1024, 64, true},   Problem{1, 8, 4096, 64, true},   Problem{8, 12, 128, 64, false},
    Problem{1, 1, 4096, 64, false},
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Tensors {
  explicit Tensors(const Problem& problem)
      : q(draw(problem, 1)), k(draw(problem, 2)), v(draw(problem, 3)), o(DType::f32, q.shape()) {}

  static Tensor draw(const Problem& problem, std::uint64_t seed) {
    return TorchGenerator(seed).uniform({problem.batch, problem.heads, problem.seqlen, problem.head_dim}, -1.0f,
                                        1.0f);
  }

  Tensor q, k, v, o;
};

AttentionOptions options_of(const Problem& problem, int threads) {
  return {.causal = problem.causal ? Causal::top_left : Causal::none, .num_threads = threads};
}

struct Measurement {
  double seconds = 0.0;
  double share = 0.0;  // of the peak
};

// Medians over repetitions, each with the peak measured right before it, so that a clock that changes changes
// both.
Measurement measure(const Problem& problem, Tensors& tensors, int threads) {
  const AttentionOptions options = options_of(problem, threads);
  attention(tensors.q, tensors.k, tensors.v, tensors.o, options);
  std::vector<double> seconds, shares;
  constexpr double kEnough = 1.5;
  constexpr std::size_t kFewest = 5, kMost = 200;
  for (const double start = now();
       seconds.size() < kFewest || (now() - start < kEnough && seconds.size() < kMost);) {
    const double peak = measure_peak_flops(threads, 0.005);
    const double begin = now();
    attention(tensors.q, tensors.k, tensors.v, tensors.o, options);
    seconds.push_back(now() - begin);
    shares.push_back(problem.flops() / seconds.back() / peak);
  }
  return {median(seconds), median(shares)};
}

// Whether the last rows of the last head agree with the reference: all of a long problem would take it minutes.
bool rows_agree(const Problem& problem, const Tensors& tensors) {
  const std::int64_t first = problem.seqlen - 8;
  const auto last_head = [&](const Tensor& tensor) {
    return tensor.view().select(0, problem.batch - 1).select(0, problem.heads - 1);
  };
  const TensorView q = last_head(tensors.q).slice(0, first, problem.seqlen);
  AttentionOptions options = options_of(problem, 1);
  options.query_offset = first;
  const auto exact = reference::attention(q, last_head(tensors.k), last_head(tensors.v), options);
  const auto naive = reference::naive_attention(q, last_head(tensors.k), last_head(tensors.v), options, exact);
  return compare(last_head(tensors.o).slice(0, first, problem.seqlen), {exact.o, naive.o, exact.bound}).holds;
}

// The timing loop that was published with the repeated-row example: a 6 x 3 input, three 3 x 4 projections,
// attention. Nanoseconds of one turn, through the same public functions that everybody calls.
double measure_published_loop() {
  const Tensor input = TorchGenerator(1).rand({6, 3});
  std::array<Tensor, 3> weights, projected;
  std::array<TensorView, 3> weight_views;
  std::array<MutableTensorView, 3> projected_views;
  for (std::size_t i = 0; i < 3; ++i) {
    weights[i] = TorchGenerator(i + 2).rand({3, 4});
    projected[i] = Tensor(DType::f32, {6, 4});
    weight_views[i] = weights[i];
    projected_views[i] = projected[i];
  }
  Tensor out(DType::f32, {6, 4});
  const TensorView x = input;
  const MutableTensorView o = out;
  constexpr int kTurns = 100000;
  std::vector<double> turns;
  for (int repetition = 0; repetition < 11; ++repetition) {
    const double begin = now();
    for (int turn = 0; turn < kTurns; ++turn) {
      for (std::size_t i = 0; i < 3; ++i)
        linear(x, weight_views[i], projected_views[i], {.weight_layout = WeightLayout::in_out});
      attention(projected_views[0], projected_views[1], projected_views[2], o);
    }
    turns.push_back((now() - begin) / kTurns);
  }
  return median(turns) * 1e9;
}

Json machine_of(int threads) {
  return {{"cpu", cpu_name()},
          {"isa", std::string(name_of(active_isa()))},
          {"version", std::string(version())},
          {"threads", threads},
          {"peak_gflops", measure_peak_flops(threads, 0.2) * 1e-9},
          {"read_gbytes", measure_read_bandwidth(threads) * 1e-9}};
}

ExitCode bench_table(const BenchArguments& arguments) {
  Json report = {{"machines", Json::array()}, {"lines", Json::array()}};
  for (const int threads : arguments.threads) report["machines"].push_back(machine_of(threads));
  bool all_agree = true;
  Table table(1);
  table.add_row({"forward, f32", "threads", "time", "GFLOP/s", "of peak"});
  for (const Problem& problem : kProblems) {
    Tensors tensors(problem);
    for (const int threads : arguments.threads) {
      const Measurement result = measure(problem, tensors, threads);
      const double gflops = problem.flops() / result.seconds * 1e-9;
      const bool agrees = rows_agree(problem, tensors);
      all_agree = all_agree && agrees;
      report["lines"].push_back({{"problem", problem.name()},
                                 {"threads", threads},
                                 {"seconds", result.seconds},
                                 {"gflops", gflops},
                                 {"share_of_peak", result.share},
                                 {"agrees", agrees}});
      table.add_row({problem.name(), std::to_string(threads), duration(result.seconds),
                     fmt::format("{:.1f}", gflops), fmt::format("{:.3f}", result.share)},
                    Table::Tone::normal, agrees ? "" : "  WRONG");
    }
  }
  report["published_loop_ns"] = measure_published_loop();
  if (arguments.json) {
    print_json(report);
    return all_agree ? kGood : kCheckFailed;
  }
  fmt::print("{} ({}), saccade {}\n", cpu_name(), name_of(active_isa()), version());
  for (const Json& machine : report["machines"])
    fmt::print("{} {}: {:.1f} GFLOP/s of multiply-adds, {:.1f} GB/s read from memory\n",
               machine["threads"].get<int>(), machine["threads"] == 1 ? "thread" : "threads",
               machine["peak_gflops"].get<double>(), machine["read_gbytes"].get<double>());
  fmt::print("\n{}\n", table.to_string(Terminal::of_standard_output()));
  fmt::print("6 x 3 input, three 3 x 4 projections and attention, 1 thread: {:.0f} ns a turn\n",
             report["published_loop_ns"].get<double>());
  return all_agree ? kGood : kCheckFailed;
}

// One layer's attention of GPT-2 small: timed, checked, compared with the peak.
ExitCode bench_gpt2(const BenchArguments& arguments) {
  Tensors tensors(kGpt2);
  Json report = {{"problem", kGpt2.name()}, {"lines", Json::array()}};
  for (const int threads : arguments.threads) {
    const Measurement result = measure(kGpt2, tensors, threads);
    report["lines"].push_back({{"threads", threads},
                               {"seconds", result.seconds},
                               {"gflops", kGpt2.flops() / result.seconds * 1e-9},
                               {"share_of_peak", result.share}});
  }
  const AttentionOptions options = options_of(kGpt2, 0);
  const auto exact = reference::attention(tensors.q, tensors.k, tensors.v, options);
  const auto naive = reference::naive_attention(tensors.q, tensors.k, tensors.v, options, exact);
  const Comparison comparison = compare(tensors.o, {exact.o, naive.o, exact.bound});
  report["check"] = {{"holds", comparison.holds},
                     {"largest_difference", comparison.largest_difference},
                     {"worst_ratio", comparison.worst_ratio}};
  if (arguments.json) {
    print_json(report);
    return comparison.holds ? kGood : kCheckFailed;
  }
  for (const Json& line : report["lines"])
    fmt::print("{} {:<8} {:>9}  {:6.1f} GFLOP/s  {:.3f} of this machine's peak\n", line["threads"].get<int>(),
               line["threads"] == 1 ? "thread" : "threads", duration(line["seconds"].get<double>()),
               line["gflops"].get<double>(), line["share_of_peak"].get<double>());
  fmt::print("checked against the f64 reference: largest difference {:.1e}, {:.2f} of what rounding may do: {}\n",
             comparison.largest_difference, comparison.worst_ratio, comparison.holds ? "good" : "WRONG");
  return comparison.holds ? kGood : kCheckFailed;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("bench", "The speed table, beside this machine's own measured limits");
  const auto arguments = std::make_shared<BenchArguments>();
  command
      ->add_option("--threads", arguments->threads,
                   "Numbers of threads to measure with; without, 1 and the default")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->type_name("N,...");
  command->add_flag("--gpt2", arguments->gpt2, "One layer of GPT-2 small only, and check its result");
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->footer(
      "Every time is a median, and every share of the peak is taken against multiply-adds on registers that were\n"
      "timed right before it, with the same threads and instruction set (SACCADE_ISA chooses another). "
      "Operations\n"
      "are counted as 4 batch heads seqlen^2 head_dim, half of that when causal.\n\n"
      "Examples:\n"
      "  saccade bench\n"
      "  SACCADE_ISA=avx2 saccade bench --threads 1 --json");
  command->callback([=, &action] {
    if (arguments->threads.empty()) {
      arguments->threads = {1};
      if (num_threads() > 1) arguments->threads.push_back(num_threads());
    }
    action = [=] { return arguments->gpt2 ? bench_gpt2(*arguments) : bench_table(*arguments); };
  });
}

}  // namespace saccade::cli
