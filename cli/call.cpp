#include "call.h"

#include <fmt/format.h>
#include <saccade/cpu.h>
#include <saccade/io.h>

#include <utility>

namespace saccade::cli {
namespace {

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

AttentionOptions options_of(const CallArguments& arguments) {
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

}  // namespace

std::unique_ptr<Call> load_call(const CallArguments& arguments) {
  auto call = std::make_unique<Call>();
  call->options = options_of(arguments);
  call->q = load_floating(arguments.q, *call);
  call->k = load_floating(arguments.k, *call);
  if (arguments.v.path) call->v = load_floating(arguments.v, *call);
  if (arguments.mask.path) {
    call->mask = load_mask(arguments.mask, *call);
    call->options.mask = call->mask;
  }
  if (arguments.kv_lengths.path) {
    call->kv_lengths = load_lengths(arguments.kv_lengths);
    call->options.kv_lengths = call->kv_lengths;
  }
  if (!arguments.v.path && call->k.rank() != call->q.rank()) {
    refuse("--q and --k have {} and {} dimensions: as many wanted in each", call->q.rank(), call->k.rank());
  }
  if (arguments.v.path && (call->k.rank() != call->q.rank() || call->v.rank() != call->q.rank())) {
    refuse("--q, --k and --v have {}, {} and {} dimensions: as many wanted in each", call->q.rank(),
           call->k.rank(), call->v.rank());
  }
  return call;
}

Axes Call::axes() const {
  const bool sequence_first = options.layout == Layout::blhd && q.rank() > 2;
  const int sequence_axis = sequence_first ? -3 : -2;
  Axes axes{.seqlen_q = q.shape(sequence_axis), .seqlen_k = k.shape(sequence_axis)};
  if (q.rank() > 2) axes.num_heads = q.shape(sequence_first ? -2 : -3);
  if (q.rank() > 3) axes.batch = q.shape(0);
  return axes;
}

int Call::threads() const { return options.num_threads > 0 ? options.num_threads : num_threads(); }

Shape Call::rows_shape() const {
  const Axes lengths = axes();
  Shape shape{lengths.batch, lengths.num_heads, lengths.seqlen_q};
  shape.erase(shape.begin(), shape.begin() + (4 - q.rank()));
  return shape;
}

void add_file(CLI::App& command, NamedPath& path, const std::string& help, const std::string& type) {
  command.add_option(path.option, path.path, help)->type_name(type);
}

void CallArguments::add_tensors(CLI::App& command, bool wants_v) {
  for (NamedPath* input : {&q, &k, &v}) {
    CLI::Option* option = command.add_option(input->option, input->path,
                                             "[batch, heads, length, dim], or fewer axes; - reads standard input");
    option->type_name("FILE.npy");
    if (input != &v || wants_v) option->required();
  }
}

void CallArguments::add_options(CLI::App& command) {
  command.add_option("--causal", causal, "Hide later keys, counted from the first or from the last row")
      ->check(CLI::IsMember({"none", "top-left", "bottom-right"}))
      ->capture_default_str();
  add_integer(command, "--query-offset", query_offset, "Position of query row 0, instead of --causal's");
  command.add_option("--window", window, "Keys seen to the left and right of the position; -1: all")
      ->type_name("L,R");
  add_number(command, "--scale", scale, "Factor of the dot products; without, 1/sqrt(head_dim)");
  add_number(command, "--softcap", softcap, "Bound the scores: X tanh(score / X)");
  add_file(command, mask, "bool (true = attend) or numbers to add; broadcasts", "M.npy");
  add_file(command, kv_lengths, "Keys that count, for each batch entry: integers [batch]", "N.npy");
  command.add_option("--layout", layout, "Order of the axes: batch, heads, length, dim or b, l, h, d")
      ->check(CLI::IsMember({"bhld", "blhd"}))
      ->capture_default_str();
  add_integer(command, "--threads", threads, "Threads; without, one a core or OMP_NUM_THREADS", 1);
}

}  // namespace saccade::cli
