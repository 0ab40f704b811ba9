// saccade run: attention on a user's tensors.
#include "run.h"

#include <fmt/format.h>
#include <saccade/attention.h>
#include <saccade/backend.h>
#include <saccade/compare.h>
#include <saccade/decode.h>
#include <saccade/io.h>
#include <saccade/operations.h>
#include <saccade/reference.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cases/attention_case.h"
#include "cli/common/common.h"
#include "cli/output/json.h"

namespace saccade::cli {
namespace {

struct RunResults {
  Tensor o, lse, weights, scores;
  double seconds = 0.0;  // the time of the fastest call
  int calls = 0;
};

// Calls once, and repeats quick calls: the first call starts threads and touches memory for the first time.
void time_calls(const Call& call, bool decodes, RunResults& results) {
  constexpr double kEnough = 0.05;  // seconds
  constexpr int kMaxCalls = 100;
  results.seconds = std::numeric_limits<double>::infinity();
  for (double total = 0.0; results.calls == 0 || (total < kEnough && results.calls < kMaxCalls); ++results.calls) {
    const auto start = std::chrono::steady_clock::now();
    if (decodes)
      decode(call.q, call.k, call.v, results.o, call.options);
    else
      attention(call.q, call.k, call.v, results.o, call.options);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    results.seconds = std::min(results.seconds, seconds);
    total += seconds;
  }
}

RunResults compute(Call& call, const RunArguments& arguments) {
  const Shape rows = call.rows_shape();
  Shape pairs = rows;
  pairs.push_back(call.axes().seqlen_k);
  Shape out(call.q.dims().begin(), call.q.dims().end());
  out.back() = call.v.dims().back();

  RunResults results;
  results.o = Tensor(call.q.dtype, out);
  if (arguments.lse.path || arguments.check) results.lse = Tensor(call.result_dtype(), rows);
  if (arguments.weights.path) results.weights = Tensor(call.result_dtype(), pairs);
  if (arguments.scores.path) results.scores = Tensor(call.result_dtype(), pairs);
  call.options.lse = results.lse;
  call.options.weights = results.weights;
  call.options.scores = results.scores;
  time_calls(call, arguments.decode, results);
  return results;
}

double gflops(const Call& call, const RunResults& results) {
  return attention_operations(call.q, call.k, call.v, call.options) / results.seconds * 1e-9;
}

struct CheckedResult {
  std::string result;
  Comparison comparison;
};

std::vector<CheckedResult> check(const Call& call, const RunResults& results) {
  const auto rounding = cases::naive_rounding(call.q, call.k, call.v, results.o);
  const auto exact = reference::attention(call.q, call.k, call.v, call.options);
  const auto naive = reference::naive_attention(call.q, call.k, call.v, call.options, exact, rounding);
  std::vector<CheckedResult> checks{
      {"o", compare(results.o, {exact.o, naive.o, exact.bound, rounding.coarsest()})},
      {"lse", compare(results.lse, {exact.lse, naive.lse})}};
  if (results.weights.rank() > 0)
    checks.push_back({"weights", compare(results.weights, {exact.weights, naive.weights})});
  if (results.scores.rank() > 0)
    checks.push_back({"scores", compare(results.scores, {exact.scores, naive.scores})});
  return checks;
}

ExitCode report_checks(const std::vector<CheckedResult>& checks) {
  ExitCode code = kGood;
  for (const auto& [result, comparison] : checks) {
    note("run", fmt::format("check of {} {}: largest difference {:.2g}, at worst {:.2f} of what is allowed{}",
                            result, comparison.holds ? "holds" : "fails", comparison.largest_difference,
                            comparison.worst_ratio, comparison.holds ? "" : ": " + to_string(comparison)));
    if (!comparison.holds) code = kCheckFailed;
  }
  return code;
}

std::string backend_of(const Call& call) {
  return std::string(call.options.backend ? call.options.backend.names() : active_backend_name());
}

Json report_json(const Call& call, const RunResults& results, const std::vector<CheckedResult>& checks) {
  Json list = Json::array();
  for (const auto& [result, comparison] : checks) {
    list.push_back({{"result", result},
                    {"holds", comparison.holds},
                    {"largest_difference", json_number(comparison.largest_difference)},
                    {"worst_ratio", json_number(comparison.worst_ratio)}});
  }
  return {{"shape", results.o.shape()},
          {"dtype", std::string(name_of(results.o.dtype()))},
          {"seconds", results.seconds},
          {"calls", results.calls},
          {"gflops", gflops(call, results)},
          {"backend", backend_of(call)},
          {"isa", std::string(name_of(active_isa()))},
          {"threads", call.threads()},
          {"checks", list}};
}

void report(const Call& call, const RunResults& results) {
  const int threads = call.threads();
  const std::string backend = backend_of(call);
  for (const std::string& text : call.notes) note("run", text);
  const auto tensor = [](const TensorView& t) {
    return fmt::format("{} {}", name_of(t.dtype), to_string(t.dims()));
  };
  note("run",
       fmt::format("q {} k {} v {} -> o {} in {}, {:.3g} GFLOP/s ({}, {} {}, fastest of {})", tensor(call.q),
                   tensor(call.k), tensor(call.v), tensor(results.o), duration(results.seconds),
                   gflops(call, results), backend == "cpu" ? name_of(active_isa()) : backend, threads,
                   threads == 1 ? "thread" : "threads", results.calls));
}

// .npy has no bf16 type; f32 represents each bf16 number exactly.
void save_output(const NamedPath& path, const Tensor& o, Call& call) {
  if (o.dtype() != DType::bf16) return save_npy(*path.path, o);
  save_npy(*path.path, Tensor::copy_of(o, DType::f32));
  call.notes.push_back("o is bf16, written as f32: .npy has no bf16");
}

ExitCode run(const RunArguments& arguments) {
  if (arguments.call.find("score_stage") && !arguments.scores.path) refuse("--score-stage needs --scores");
  if (arguments.ranks.distributed) return run_distributed(arguments);
  const std::vector<NamedPath> inputs = arguments.call.inputs();
  require_one_standard_input(inputs);
  require_writable({arguments.out, arguments.lse, arguments.weights, arguments.scores}, inputs);
  const std::unique_ptr<Call> call = load_call(arguments.call);
  const RunResults results = compute(*call, arguments);
  std::vector<CheckedResult> checks;
  if (arguments.check) checks = check(*call, results);

  save_output(arguments.out, results.o, *call);
  if (arguments.lse.path) save_npy(*arguments.lse.path, results.lse);
  if (arguments.weights.path) save_npy(*arguments.weights.path, results.weights);
  if (arguments.scores.path) save_npy(*arguments.scores.path, results.scores);
  report(*call, results);
  if (arguments.json) print_json(report_json(*call, results, checks));
  return report_checks(checks);
}

}  // namespace

void add_run(Command app, Action& action) {
  const Command command = app.add_subcommand("run", "Fast attention on your tensors: npy in, npy out");
  const auto arguments = std::make_shared<RunArguments>();
  arguments->call.add_tensors(command, true);
  command.add_option("-o,--output", arguments->out.path, "The result, of q's type; bf16 is written as f32")
      .type_name("O.npy")
      .required()
      .deprecated("--out");
  arguments->call.add_options(command, true);
  command.add_flag("--decode", arguments->decode, "The way for few queries and many keys: each key is read once");
  add_file(command, arguments->lse, "Write the logarithm of each row's softmax denominator", "L.npy");
  add_file(command, arguments->weights, "Write the attention weights (memory: queries times keys)", "W.npy");
  add_file(command, arguments->scores, "Write the scores (memory: queries times keys)", "S.npy");
  command.add_flag("--check", arguments->check, "Compare with the reference in f64; exit code 1 if they differ");
  command.add_flag("--json", arguments->json, "Print time, GFLOP/s and the check as JSON");
  arguments->ranks.add_options(command);
  command.add_option("--sharding", arguments->sharding, "With --distributed: which rows each process computes")
      .one_of({"balanced", "contiguous", "zigzag", "striped"})
      .capture_default_str();
  command.add_option("--method", arguments->method, "With --distributed: what travels, and when")
      .one_of({"automatic", "gather", "heads", "grid", "stream", "ring", "pass-q"})
      .capture_default_str();
  add_integer(command, "--head-groups", arguments->head_groups,
              "With --method grid: processes of a group, which divides heads within it", 1);
  command.footer(
      "q, k and v may be f32, bf16 and f16 in any combination, or all f64. The time is that of the fastest of a\n"
      "few calls where one is quick. GFLOP/s count 2 (dim + dim_v) operations for each pair of a query and a key\n"
      "that it sees by causal, window, offset and lengths; masks make a call faster, not its count smaller.\n\n"
      "Examples:\n"
      "  saccade run --q Q.npy --k K.npy --v V.npy -o O.npy --causal bottom-right\n"
      "  saccade run --q Q.npy --k K.npy --v V.npy -o O.npy --window 256,0 --threads 2 --check\n"
      "  saccade run --q Q.npy --k K.npy --v V.npy -o O.npy --mask M.npy --lse L.npy --weights W.npy\n"
      "  saccade run --q t.safetensors:q --k t.safetensors:k --v t.safetensors:v -o O.npy --alibi --dtype "
      "bf16\n"
      "  saccade run --q Q.npy --k POOL_K.npy --v POOL_V.npy -o O.npy --block-table T.npy --kv-lengths N.npy "
      "--decode\n"
      "  mpirun -n 4 saccade run --distributed --q Q.npy --k K.npy --v V.npy -o O.npy --causal top-left\n"
      "The last one divides the rows among four processes, on one machine or several: each maps its part of the\n"
      "files, which every machine must have, and the first one writes the result.");
  command.callback([=, &action] { action = [=] { return run(*arguments); }; });
}

}  // namespace saccade::cli
