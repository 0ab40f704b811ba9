// saccade run: attention on a user's tensors.
#include <fmt/format.h>
#include <saccade/attention.h>
#include <saccade/compare.h>
#include <saccade/cpu.h>
#include <saccade/io.h>
#include <saccade/reference.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "call.h"
#include "commands.h"

namespace saccade::cli {
namespace {

struct RunArguments {
  CallArguments call;
  NamedPath out{"--out", {}}, lse{"--lse", {}}, weights{"--weights", {}};
  bool check = false;
  bool json = false;
};

struct Results {
  Tensor o, lse, weights;
  double seconds = 0.0;  // of the fastest call
  int calls = 0;
};

// Calls once, and again while that is quick: the first call starts threads and touches memory for the first time.
void time_attention(const Call& call, Results& results) {
  constexpr double kEnough = 0.05;  // seconds
  constexpr int kMostCalls = 100;
  results.seconds = std::numeric_limits<double>::infinity();
  for (double total = 0.0; results.calls == 0 || (total < kEnough && results.calls < kMostCalls);
       ++results.calls) {
    const auto start = std::chrono::steady_clock::now();
    attention(call.q, call.k, call.v, results.o, call.options);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    results.seconds = std::min(results.seconds, seconds);
    total += seconds;
  }
}

Results compute(Call& call, const RunArguments& arguments) {
  const Shape rows = call.rows_shape();
  Shape pairs = rows;
  pairs.push_back(call.axes().seqlen_k);
  Shape out = call.q.shape();
  out.back() = call.v.shape(-1);

  Results results;
  results.o = Tensor(DType::f32, out);
  if (arguments.lse.path || arguments.check) results.lse = Tensor(DType::f32, rows);
  if (arguments.weights.path) results.weights = Tensor(DType::f32, pairs);
  call.options.lse = results.lse;
  call.options.weights = results.weights;
  time_attention(call, results);
  return results;
}

// Floating-point operations as the field counts them: every pair of query and key, half of them when causal.
double operations(const Call& call) {
  const Axes axes = call.axes();
  const auto pairs = static_cast<double>(axes.batch) * static_cast<double>(axes.num_heads) *
                     static_cast<double>(axes.seqlen_q) * static_cast<double>(axes.seqlen_k);
  const double all = 2.0 * pairs * static_cast<double>(call.q.shape(-1) + call.v.shape(-1));
  return call.options.causal == Causal::none ? all : all / 2.0;
}

struct Check {
  std::string result;
  Comparison comparison;
};

std::vector<Check> check(const Call& call, const Results& results) {
  AttentionOptions options = call.options;
  options.lse = {};
  options.weights = {};
  const auto exact = reference::attention(call.q, call.k, call.v, options);
  const auto naive = reference::naive_attention(call.q, call.k, call.v, options, exact);
  std::vector<Check> checks{{"o", compare(results.o, {exact.o, naive.o, exact.bound})},
                            {"lse", compare(results.lse, {exact.lse, naive.lse})}};
  if (results.weights.size() > 0)
    checks.push_back({"weights", compare(results.weights, {exact.weights, naive.weights})});
  return checks;
}

ExitCode report_checks(const std::vector<Check>& checks) {
  ExitCode code = kGood;
  for (const auto& [result, comparison] : checks) {
    note("run", fmt::format("check of {} {}: largest difference {:.2g}, at worst {:.2f} of what is allowed{}",
                            result, comparison.holds ? "holds" : "fails", comparison.largest_difference,
                            comparison.worst_ratio, comparison.holds ? "" : ": " + to_string(comparison)));
    if (!comparison.holds) code = kCheckFailed;
  }
  return code;
}

Json report_json(const Call& call, const Results& results, const std::vector<Check>& checks) {
  Json list = Json::array();
  for (const auto& [result, comparison] : checks) {
    list.push_back({{"result", result},
                    {"holds", comparison.holds},
                    {"largest_difference", json_number(comparison.largest_difference)},
                    {"worst_ratio", json_number(comparison.worst_ratio)}});
  }
  return {{"shape", results.o.shape()},
          {"seconds", results.seconds},
          {"calls", results.calls},
          {"gflops", operations(call) / results.seconds * 1e-9},
          {"isa", std::string(name_of(active_isa()))},
          {"threads", call.threads()},
          {"checks", list}};
}

void report(const Call& call, const Results& results) {
  const int threads = call.threads();
  for (const std::string& text : call.notes) note("run", text);
  note("run", fmt::format("q {} k {} v {} -> o {} in {}, {:.3g} GFLOP/s ({}, {} {}, fastest of {})",
                          to_string(call.q.shape()), to_string(call.k.shape()), to_string(call.v.shape()),
                          to_string(results.o.shape()), duration(results.seconds),
                          operations(call) / results.seconds * 1e-9, name_of(active_isa()), threads,
                          threads == 1 ? "thread" : "threads", results.calls));
}

ExitCode run(const RunArguments& arguments) {
  const std::vector<NamedPath> inputs = arguments.call.inputs();
  require_one_standard_input(inputs);
  require_writable({arguments.out, arguments.lse, arguments.weights}, inputs);
  const std::unique_ptr<Call> call = load_call(arguments.call);
  const Results results = compute(*call, arguments);
  std::vector<Check> checks;
  if (arguments.check) checks = check(*call, results);

  save_npy(*arguments.out.path, results.o);
  if (arguments.lse.path) save_npy(*arguments.lse.path, results.lse);
  if (arguments.weights.path) save_npy(*arguments.weights.path, results.weights);
  report(*call, results);
  if (arguments.json) print_json(report_json(*call, results, checks));
  return report_checks(checks);
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Fast attention on your tensors: npy in, npy out");
  const auto arguments = std::make_shared<RunArguments>();
  arguments->call.add_tensors(*command, true);
  command->add_option(arguments->out.option, arguments->out.path, "The result, f32")
      ->type_name("O.npy")
      ->required();
  arguments->call.add_options(*command);
  add_file(*command, arguments->lse, "Write the logarithm of each row's softmax denominator", "L.npy");
  add_file(*command, arguments->weights, "Write the attention weights (memory: queries times keys)", "W.npy");
  command->add_flag("--check", arguments->check, "Compare with the reference in f64; exit code 1 if they differ");
  command->add_flag("--json", arguments->json, "Print time, GFLOP/s and the check as JSON");
  command->footer(
      "Inputs that are not f32 are converted, and a note says so. The time is that of the fastest of a few calls\n"
      "where one is quick. GFLOP/s count every pair of query and key, half of them when causal.\n\n"
      "Examples:\n"
      "  saccade run --q Q.npy --k K.npy --v V.npy --out O.npy --causal bottom-right\n"
      "  saccade run --q Q.npy --k K.npy --v V.npy --out O.npy --window 256,0 --threads 2 --check\n"
      "  saccade run --q Q.npy --k K.npy --v V.npy --out O.npy --mask M.npy --lse L.npy --weights W.npy");
  command->callback([=, &action] { action = [=] { return run(*arguments); }; });
}

}  // namespace saccade::cli
