#include "call.h"

#include <fmt/format.h>
#include <saccade/io.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace saccade::cli {
namespace {

// ---- Tensors in files ----------------------------------------------------------------------------------------

/// The file and the tensor in it that an argument names: "model.safetensors:name"; else the file alone.
struct Place {
  explicit Place(const std::string& argument) : file(argument) {
    static constexpr std::string_view kEnding = ".safetensors";
    const std::size_t ending = argument.find(std::string(kEnding) + ":");
    if (ending == std::string::npos) {
      is_safetensors = argument.ends_with(kEnding);
      return;
    }
    is_safetensors = true;
    file = argument.substr(0, ending + kEnding.size());
    tensor = argument.substr(ending + kEnding.size() + 1);
  }

  std::string file, tensor;
  bool is_safetensors = false;
};

/// Reads tensors; each safetensors file once.
class TensorFiles {
 public:
  Tensor load(const NamedPath& input) {
    const Place place(*input.path);
    if (!place.is_safetensors) return load_npy(place.file);
    const auto [contents, is_new] = safetensors_.try_emplace(place.file);
    if (is_new) contents->second = load_safetensors(place.file).tensors;
    const auto found = contents->second.find(place.tensor);
    if (found != contents->second.end()) return found->second;
    const std::string has = "it holds " + names_of(contents->second);
    if (place.tensor.empty()) refuse("{}: {}:NAME wanted; {}", input.option, place.file, has);
    refuse("{}: {} has no tensor '{}'; {}", input.option, place.file, place.tensor, has);
  }

 private:
  using Tensors = std::map<std::string, Tensor>;

  static std::string names_of(const Tensors& tensors) {
    constexpr std::size_t kMost = 20;
    std::string names;
    std::size_t count = 0;
    for (const auto& [name, tensor] : tensors) {
      if (count++ == kMost) return names + fmt::format(" and {} more", tensors.size() - kMost);
      names += (names.empty() ? "" : ", ") + name;
    }
    return names.empty() ? "none" : names;
  }

  std::map<std::string, Tensors> safetensors_;
};

/// Loads what the arguments name into a call.
class Loader {
 public:
  Loader(const CallArguments& arguments, Call& call) : arguments_(arguments), call_(call) {}

  void load() {
    call_.q = load_floating(arguments_.q);
    call_.k = load_floating(arguments_.k);
    if (arguments_.v.path) call_.v = load_floating(arguments_.v);
    check_ranks();
    AttentionOptions& options = call_.options;
    load_masks(options);
    load_integers(arguments_.kv_lengths, DType::i64, call_.kv_lengths, options.kv_lengths);
    load_integers(arguments_.cu_seqlens_q, DType::i64, call_.cu_seqlens_q, options.cu_seqlens_q);
    load_integers(arguments_.cu_seqlens_k, DType::i64, call_.cu_seqlens_k, options.cu_seqlens_k);
    load_integers(arguments_.block_table, DType::i32, call_.block_table, options.block_table);
    load_f32(arguments_.alibi, call_.alibi_slopes, options.alibi_slopes);
    load_f32(arguments_.sinks, call_.sinks, options.sinks);
    check_sequences();
    if (arguments_.standard_alibi)
      options.alibi_slopes = call_.alibi_slopes = alibi_slopes(call_.axes().num_heads);
  }

 private:
  Tensor converted(Tensor tensor, DType dtype, const NamedPath& input) {
    if (tensor.dtype() == dtype) return tensor;
    call_.notes.push_back(
        fmt::format("{} is {}, converted to {}", input.option, name_of(tensor.dtype()), name_of(dtype)));
    return Tensor::copy_of(tensor, dtype);
  }

  Tensor load_floating(const NamedPath& input) {
    Tensor tensor = files_.load(input);
    if (!is_floating(tensor.dtype()))
      refuse("{}: {} holds {}, floating-point numbers wanted", input.option, *input.path, name_of(tensor.dtype()));
    if (tensor.rank() < 2 || tensor.rank() > 4)
      refuse("{}: {} has shape {}, 2, 3 or 4 dimensions wanted", input.option, *input.path,
             to_string(tensor.shape()));
    if (!arguments_.dtype) return tensor;
    return converted(std::move(tensor), dtype_from_name(*arguments_.dtype), input);
  }

  // Masks as attention() takes them: boolean, or numbers to add.
  void load_masks(AttentionOptions& options) {
    if (arguments_.mask.path) {
      call_.mask = files_.load(arguments_.mask);
      const bool is_short = call_.mask.dtype() == DType::f16 || call_.mask.dtype() == DType::bf16;
      if (is_short) call_.mask = converted(std::move(call_.mask), DType::f32, arguments_.mask);
      options.mask = call_.mask;
    }
    if (arguments_.block_mask.path) options.block_mask = call_.block_mask = files_.load(arguments_.block_mask);
  }

  void load_integers(const NamedPath& input, DType dtype, Tensor& tensor, TensorView& option) {
    if (!input.path) return;
    tensor = files_.load(input);
    const bool is_integer = !is_floating(tensor.dtype()) && tensor.dtype() != DType::boolean;
    if (!is_integer)
      refuse("{}: {} holds {}, integers wanted", input.option, *input.path, name_of(tensor.dtype()));
    if (tensor.dtype() != dtype) tensor = Tensor::copy_of(tensor, dtype);
    option = tensor;
  }

  void load_f32(const NamedPath& input, Tensor& tensor, TensorView& option) {
    if (!input.path) return;
    tensor = files_.load(input);
    if (is_floating(tensor.dtype())) tensor = converted(std::move(tensor), DType::f32, input);
    option = tensor;
  }

  void check_ranks() const {
    if (arguments_.block_table.path) return;  // pages have four, whatever the queries have
    if (!arguments_.v.path && call_.k.rank() != call_.q.rank())
      refuse("--q and --k have {} and {} dimensions: as many wanted in each", call_.q.rank(), call_.k.rank());
    if (arguments_.v.path && (call_.k.rank() != call_.q.rank() || call_.v.rank() != call_.q.rank()))
      refuse("--q, --k and --v have {}, {} and {} dimensions: as many wanted in each", call_.q.rank(),
             call_.k.rank(), call_.v.rank());
  }

  // What the shapes of results are taken from; the rest attention() checks.
  void check_sequences() const {
    const bool is_packed = arguments_.cu_seqlens_q.path.has_value(),
               has_pages = arguments_.block_table.path.has_value();
    if (arguments_.cu_seqlens_k.path && !is_packed) refuse("--cu-seqlens-k wants --cu-seqlens-q");
    if (is_packed && !arguments_.cu_seqlens_k.path && !has_pages)
      refuse("--cu-seqlens-q wants --cu-seqlens-k or --block-table");
    if (is_packed && call_.q.rank() != 3)
      refuse("--q has {} dimensions: [total, heads, dim] wanted with --cu-seqlens-q", call_.q.rank());
    for (const auto& [input, tensor] : {std::pair(&arguments_.cu_seqlens_q, &call_.cu_seqlens_q),
                                        std::pair(&arguments_.cu_seqlens_k, &call_.cu_seqlens_k)}) {
      if (input->path && (tensor->rank() != 1 || tensor->size() < 1))
        refuse("{} has shape {}: [documents + 1] wanted", input->option, to_string(tensor->shape()));
    }
    if (has_pages && (call_.k.rank() != 4 || call_.block_table.rank() != 2))
      refuse("--block-table has shape {} and --k {}: [batch, pages] and 4 dimensions wanted",
             to_string(call_.block_table.shape()), to_string(call_.k.shape()));
  }

  const CallArguments& arguments_;
  Call& call_;
  TensorFiles files_;
};

// ---- Options -------------------------------------------------------------------------------------------------

/// Two whole numbers of at least `min` with a separator between them.
std::optional<std::pair<std::int64_t, std::int64_t>> parse_pair(const std::string& text, char separator,
                                                                std::int64_t min) {
  const std::size_t middle = text.find(separator);
  if (middle == std::string::npos) return std::nullopt;
  const auto first = parse_integer(std::string_view(text).substr(0, middle));
  const auto second = parse_integer(std::string_view(text).substr(middle + 1));
  if (!first || !second || *first < min || *second < min) return std::nullopt;
  return std::pair(*first, *second);
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
  if (arguments.window) {
    const auto window = parse_pair(*arguments.window, ',', -1);
    if (!window) {
      refuse("--window: two whole numbers L,R of at least -1 wanted (-1 leaves the side open), not '{}'",
             *arguments.window);
    }
    std::tie(options.window_left, options.window_right) = *window;
  }
  if (arguments.block_size) {
    const auto size = parse_pair(*arguments.block_size, 'x', 1);
    if (!size) refuse("--block-size: ROWSxKEYS wanted, as in 128x64, not '{}'", *arguments.block_size);
    if (!arguments.block_mask.path) refuse("--block-size wants --block-mask");
    std::tie(options.block_mask_q, options.block_mask_k) = *size;
  }
  if (arguments.dropout_seed && !arguments.dropout) refuse("--seed wants --dropout");
  options.dropout_p = arguments.dropout.value_or(0.0);
  options.dropout_seed = static_cast<std::uint64_t>(arguments.dropout_seed.value_or(0));
  options.layout = arguments.layout == "blhd" ? Layout::blhd : Layout::bhld;
  options.num_threads = static_cast<int>(threads);
  return options;
}

/// The longest of the sequences that `cu_seqlens` cuts `total` rows into. It may be wrong: attention() tells.
std::int64_t longest_sequence(const Tensor& cu_seqlens, std::int64_t total) {
  const auto begins = cu_seqlens.values<std::int64_t>();
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < begins.size(); ++i) {
    if (begins[i - 1] >= 0 && begins[i] <= total) longest = std::max(longest, begins[i] - begins[i - 1]);
  }
  return longest;
}

}  // namespace

std::unique_ptr<Call> load_call(const CallArguments& arguments) {
  auto call = std::make_unique<Call>();
  call->options = options_of(arguments);
  Loader(arguments, *call).load();
  return call;
}

Axes Call::axes() const {
  const bool sequence_first = options.layout == Layout::blhd && q.rank() > 2;
  const int sequence_axis = sequence_first ? -3 : -2;
  Axes axes{.seqlen_q = q.shape(sequence_axis), .seqlen_k = k.shape(sequence_axis)};
  if (q.rank() > 2) axes.num_heads = q.shape(sequence_first ? -2 : -3);
  if (q.rank() > 3) axes.batch = q.shape(0);
  if (options.cu_seqlens_q) {
    axes.batch = cu_seqlens_q.size() - 1;
    axes.num_heads = q.shape(1);
    axes.seqlen_q = longest_sequence(cu_seqlens_q, q.shape(0));
  }
  if (options.cu_seqlens_k) axes.seqlen_k = longest_sequence(cu_seqlens_k, k.shape(0));
  if (options.block_table) axes.seqlen_k = block_table.shape(1) * k.shape(options.layout == Layout::blhd ? 1 : 2);
  return axes;
}

int Call::threads() const { return options.num_threads > 0 ? options.num_threads : num_threads(); }

Shape Call::rows_shape() const {
  if (options.cu_seqlens_q) return {q.shape(1), q.shape(0)};
  const Axes lengths = axes();
  Shape shape{lengths.batch, lengths.num_heads, lengths.seqlen_q};
  shape.erase(shape.begin(), shape.begin() + (4 - q.rank()));
  return shape;
}

// ---- Arguments -----------------------------------------------------------------------------------------------

std::vector<NamedPath> CallArguments::inputs() const {
  std::vector<NamedPath> all{q,     k,    v, mask, kv_lengths, block_mask, block_table, cu_seqlens_q, cu_seqlens_k,
                             alibi, sinks};
  for (NamedPath& input : all) {
    if (input.path) input.path = Place(*input.path).file;
  }
  return all;
}

void add_file(Command command, NamedPath& path, const std::string& help, const std::string& type) {
  command.add_option(path.option, path.path, help).type_name(type);
}

void CallArguments::add_tensors(Command command, bool wants_v) {
  for (NamedPath* input : {&q, &k, &v}) {
    const Option option = command.add_option(input->option, input->path,
                                             "[batch, heads, length, dim], or fewer axes; - reads standard input");
    option.type_name("FILE.npy|FILE.safetensors:NAME");
    if (input != &v || wants_v) option.required();
  }
  command.add_option("--dtype", dtype, "Convert these tensors first; without, they are taken as stored")
      .one_of({"f32", "f64", "bf16", "f16"});
}

void CallArguments::add_options(Command command) {
  command.add_option("--causal", causal, "Hide later keys, counted from the first or from the last row")
      .one_of({"none", "top-left", "bottom-right"})
      .capture_default_str();
  add_integer(command, "--query-offset", query_offset, "Position of query row 0, instead of --causal's");
  command.add_option("--window", window, "Keys seen to the left and right of the position; -1: all")
      .type_name("L,R");
  add_number(command, "--scale", scale, "Factor of the dot products; without, 1/sqrt(head_dim)");
  add_number(command, "--softcap", softcap, "Bound the scores: X tanh(score / X)");
  add_file(command, mask, "bool (true = attend) or numbers to add; broadcasts", "M.npy");
  add_file(command, block_mask, "bool for each block of rows and keys, true = attend; broadcasts", "B.npy");
  command.add_option("--block-size", block_size, "Rows and keys of a block of --block-mask; without, 128x128")
      .type_name("QxK");
  const auto read_alibi = [this](const std::string& path) {
    standard_alibi = path.empty();
    if (!standard_alibi) alibi.path = path;
  };
  command.add_option(alibi.option, read_alibi, "Linear biases: the standard slopes, or those of a file [heads]")
      .expected(0, 1)
      .type_name("[S.npy]");
  add_file(command, sinks, "One logit a head for the denominators: [heads]", "S.npy");
  add_file(command, kv_lengths, "Keys that count, for each batch entry: integers [batch]", "N.npy");
  add_file(command, block_table, "Pages of each batch entry: integers [batch, pages]; k and v are the pool",
           "T.npy");
  command.add_option("--layout", layout, "Order of the axes: batch, heads, length, dim or b, l, h, d")
      .one_of({"bhld", "blhd"})
      .capture_default_str();
  add_integer(command, "--threads", threads, "Threads; without, one a core or OMP_NUM_THREADS", 1);
}

void CallArguments::add_packing_and_dropout(Command command) {
  for (NamedPath* input : {&cu_seqlens_q, &cu_seqlens_k})
    add_file(command, *input, "Where each packed document begins: integers [documents + 1]", "C.npy");
  add_number(command, "--dropout", dropout, "Drop weights with this probability, drawn by position")
      .type_name("P");
  add_integer(command, "--seed", dropout_seed, "The seed of --dropout; without, 0", 0).type_name("S");
}

}  // namespace saccade::cli
