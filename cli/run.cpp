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

#include "commands.h"
#include "common.h"

namespace saccade::cli {
namespace {

struct RunArguments {
  NamedPath q{"--q", {}}, k{"--k", {}}, v{"--v", {}}, mask{"--mask", {}}, kv_lengths{"--kv-lengths", {}};
  NamedPath out{"--out", {}}, lse{"--lse", {}}, weights{"--weights", {}};
  std::string causal = "none";
  std::string layout = "bhld";
  std::optional<std::int64_t> query_offset, threads;
  std::optional<std::string> window;
  std::optional<double> scale, softcap;
  bool check = false;
  bool json = false;
};

// The tensors that one call reads, and its options, whose views point into them.
struct Call {
  Tensor q, k, v, mask, kv_lengths;
  AttentionOptions options;
  std::vector<std::string> notes;  // what was converted
};

struct Results {
  Tensor o, lse, weights;
  double seconds = 0.0;  // of the fastest call
  int calls = 0;
};

Tensor converted(Tensor tensor, DType dtype, const NamedPath& input, Call& call) {
  if (tensor.dtype() == dtype) return tensor;
  call.notes.push_back(
      fmt::format("{} is {}, converted to {}", input.option, name_of(tensor.dtype()), name_of(dtype)));
  return Tensor::copy_of(tensor, dtype);
}

Tensor load_floating(const NamedPath& input, Call& call) {
  Tensor tensor = load_npy(*input.path);
  if (!is_floating(tensor.dtype())) {
    refuse("{}: {} holds {}, floating-point numbers wanted", input.option, *input.path, name_of(tensor.dtype()));
  }
  if (tensor.rank() < 2 || tensor.rank() > 4) {
    refuse("{}: {} has shape {}, 2, 3 or 4 dimensions wanted", input.option, *input.path,
           to_string(tensor.shape()));
  }
  return converted(std::move(tensor), DType::f32, input, call);
}

// A mask as attention() takes it: boolean, or numbers to add.
Tensor load_mask(const NamedPath& input, Call& call) {
  Tensor mask = load_npy(*input.path);
  return mask.dtype() == DType::f16 ? converted(std::move(mask), DType::f32, input, call) : mask;
}

Tensor load_lengths(const NamedPath& input) {
  Tensor lengths = load_npy(*input.path);
  const bool is_other_integer = !is_floating(lengths.dtype()) && lengths.dtype() != DType::boolean;
  return is_other_integer ? Tensor::copy_of(lengths, DType::i64) : lengths;
}

void parse_window(const std::string& text, AttentionOptions& options) {
  const std::size_t comma = text.find(',');
  const auto left = parse_integer(std::string_view(text).substr(0, comma));
  const auto right =
      comma == std::string::npos ? std::nullopt : parse_integer(std::string_view(text).substr(comma + 1));
  if (!left || !right || *left < -1 || *right < -1) {
    refuse("--window: two whole numbers L,R of at least -1 wanted (-1 leaves the side open), not '{}'", text);
  }
  options.window_left = *left;
  options.window_right = *right;
}

Causal causal_of(const std::string& name) {
  if (name == "top-left") return Causal::top_left;
  return name == "bottom-right" ? Causal::bottom_right : Causal::none;
}

AttentionOptions options_of(const RunArguments& arguments) {
  constexpr std::int64_t kMostThreads = 1024;
  const std::int64_t threads = arguments.threads.value_or(0);
  if (threads > kMostThreads) refuse("--threads: at most {} wanted, not {}", kMostThreads, threads);
  AttentionOptions options;
  options.scale = arguments.scale;
  options.softcap = arguments.softcap.value_or(0.0);
  options.causal = causal_of(arguments.causal);
  options.query_offset = arguments.query_offset;
  if (arguments.window) parse_window(*arguments.window, options);
  options.layout = arguments.layout == "blhd" ? Layout::blhd : Layout::bhld;
  options.num_threads = static_cast<int>(threads);
  return options;
}

std::unique_ptr<Call> load_call(const RunArguments& arguments) {
  auto call = std::make_unique<Call>();
  call->options = options_of(arguments);
  call->q = load_floating(arguments.q, *call);
  call->k = load_floating(arguments.k, *call);
  call->v = load_floating(arguments.v, *call);
  if (arguments.mask.path) {
    call->mask = load_mask(arguments.mask, *call);
    call->options.mask = call->mask;
  }
  if (arguments.kv_lengths.path) {
    call->kv_lengths = load_lengths(arguments.kv_lengths);
    call->options.kv_lengths = call->kv_lengths;
  }
  if (call->k.rank() != call->q.rank() || call->v.rank() != call->q.rank()) {
    refuse("--q, --k and --v have {}, {} and {} dimensions: as many wanted in each", call->q.rank(),
           call->k.rank(), call->v.rank());
  }
  return call;
}

// Where batch, heads and sequence stand in the shapes of a call.
struct Axes {
  std::int64_t batch = 1, num_heads = 1, seqlen_q = 0, seqlen_k = 0;
};

Axes axes_of(const Call& call) {
  const bool sequence_first = call.options.layout == Layout::blhd && call.q.rank() > 2;
  const int sequence_axis = sequence_first ? -3 : -2;
  Axes axes{.seqlen_q = call.q.shape(sequence_axis), .seqlen_k = call.k.shape(sequence_axis)};
  if (call.q.rank() > 2) axes.num_heads = call.q.shape(sequence_first ? -2 : -3);
  if (call.q.rank() > 3) axes.batch = call.q.shape(0);
  return axes;
}

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
  const Axes axes = axes_of(call);
  Shape rows{axes.batch, axes.num_heads, axes.seqlen_q};
  rows.erase(rows.begin(), rows.begin() + (4 - call.q.rank()));
  Shape pairs = rows;
  pairs.push_back(axes.seqlen_k);
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
  const Axes axes = axes_of(call);
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
          {"threads", call.options.num_threads > 0 ? call.options.num_threads : num_threads()},
          {"checks", list}};
}

void report(const Call& call, const Results& results) {
  const int threads = call.options.num_threads > 0 ? call.options.num_threads : num_threads();
  for (const std::string& text : call.notes) note("run", text);
  note("run", fmt::format("q {} k {} v {} -> o {} in {}, {:.3g} GFLOP/s ({}, {} {}, fastest of {})",
                          to_string(call.q.shape()), to_string(call.k.shape()), to_string(call.v.shape()),
                          to_string(results.o.shape()), duration(results.seconds),
                          operations(call) / results.seconds * 1e-9, name_of(active_isa()), threads,
                          threads == 1 ? "thread" : "threads", results.calls));
}

ExitCode run(const RunArguments& arguments) {
  const std::vector<NamedPath> inputs{arguments.q, arguments.k, arguments.v, arguments.mask, arguments.kv_lengths};
  require_one_standard_input(inputs);
  require_writable({arguments.out, arguments.lse, arguments.weights}, inputs);
  const std::unique_ptr<Call> call = load_call(arguments);
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

void add_file(CLI::App& command, NamedPath& path, const std::string& help, const std::string& type = "FILE.npy") {
  command.add_option(path.option, path.path, help)->type_name(type);
}

void add_options(CLI::App& command, RunArguments& arguments) {
  command.add_option("--causal", arguments.causal, "Hide later keys, counted from the first or from the last row")
      ->check(CLI::IsMember({"none", "top-left", "bottom-right"}))
      ->capture_default_str();
  add_integer(command, "--query-offset", arguments.query_offset, "Position of query row 0, instead of --causal's");
  command.add_option("--window", arguments.window, "Keys seen to the left and right of the position; -1: all")
      ->type_name("L,R");
  add_number(command, "--scale", arguments.scale, "Factor of the dot products; without, 1/sqrt(head_dim)");
  add_number(command, "--softcap", arguments.softcap, "Bound the scores: X tanh(score / X)");
  add_file(command, arguments.mask, "bool (true = attend) or numbers to add; broadcasts", "M.npy");
  add_file(command, arguments.kv_lengths, "Keys that count, for each batch entry: integers [batch]", "N.npy");
  command.add_option("--layout", arguments.layout, "Order of the axes: batch, heads, length, dim or b, l, h, d")
      ->check(CLI::IsMember({"bhld", "blhd"}))
      ->capture_default_str();
  add_integer(command, "--threads", arguments.threads, "Threads; without, one a core or OMP_NUM_THREADS", 1);
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Fast attention on your tensors: npy in, npy out");
  const auto arguments = std::make_shared<RunArguments>();
  for (NamedPath* input : {&arguments->q, &arguments->k, &arguments->v}) {
    command
        ->add_option(input->option, input->path,
                     "[batch, heads, length, dim], or fewer axes; - reads standard input")
        ->type_name("FILE.npy")
        ->required();
  }
  command->add_option(arguments->out.option, arguments->out.path, "The result, f32")
      ->type_name("O.npy")
      ->required();
  add_options(*command, *arguments);
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
