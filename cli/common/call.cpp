#include "call.h"

#include <fmt/format.h>
#include <saccade/io.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "cases/options.h"

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

template <class T>
std::string names_of(const std::map<std::string, T>& tensors) {
  constexpr std::size_t kMost = 20;
  std::string names;
  std::size_t count = 0;
  for (const auto& [name, tensor] : tensors) {
    if (count++ == kMost) return names + fmt::format(" and {} more", tensors.size() - kMost);
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "none" : names;
}

/// The tensor of a safetensors file that an argument names.
template <class T>
T find(const NamedPath& input, const Place& place, const std::map<std::string, T>& tensors) {
  const auto found = tensors.find(place.tensor);
  if (found != tensors.end()) return found->second;
  const std::string has = "it holds " + names_of(tensors);
  if (place.tensor.empty()) refuse("{}: {}:NAME expected; {}", input.option, place.file, has);
  refuse("{}: {} has no tensor '{}'; {}", input.option, place.file, place.tensor, has);
}

/// Reads tensors; opens each safetensors file once.
class TensorFiles {
 public:
  Tensor load(const NamedPath& input) {
    const Place place(*input.path);
    if (!place.is_safetensors) return load_npy(place.file);
    const auto [contents, is_new] = safetensors_.try_emplace(place.file);
    if (is_new) contents->second = load_safetensors(place.file).tensors;
    return find(input, place, contents->second);
  }

 private:
  std::map<std::string, std::map<std::string, Tensor>> safetensors_;
};

/// The tensor that an argument names, as stored in its file.
TensorView mapped(const NamedPath& input, const MappedFile& file) {
  const Place place(*input.path);
  if (!place.is_safetensors) return view_npy(file.bytes(), place.file);
  return find(input, place, view_safetensors(file.bytes(), place.file));
}

/// Loads what the arguments name into a call.
class Loader {
 public:
  Loader(const CallArguments& arguments, Loading loading, Call& call)
      : arguments_(arguments), loading_(loading), call_(call) {}

  void load() {
    call_.q = load_operand(arguments_.q, false);
    call_.k = load_operand(arguments_.k, true);
    if (arguments_.v.path) call_.v = load_operand(arguments_.v, true);
    check_ranks();
    for (const CallArguments::Given& given : arguments_.given) {
      if (const auto* const member = std::get_if<TensorView AttentionOptions::*>(&given.option->member))
        if (given.file.path) call_.options.*(*member) = call_.tensors.emplace_back(load_option(given));
    }
    check_sequences();
    if (arguments_.standard_alibi)
      call_.options.alibi_slopes = call_.tensors.emplace_back(alibi_slopes(call_.axes().num_heads));
  }

 private:
  Tensor converted(Tensor tensor, DType dtype, const NamedPath& input) {
    if (tensor.dtype() == dtype) return tensor;
    call_.notes.push_back(
        fmt::format("{} is {}, converted to {}", input.option, name_of(tensor.dtype()), name_of(dtype)));
    return Tensor::copy_of(tensor, dtype);
  }

  /// `may_be_quantized`: of k and v, which stay as they are.
  TensorView load_operand(const NamedPath& input, bool may_be_quantized) {
    if (loading_ == Loading::mapped) {
      const TensorView view = mapped(input, call_.files.emplace_back(Place(*input.path).file));
      check_operand(input, view, may_be_quantized);
      return view;
    }
    Tensor tensor = files_.load(input);
    check_operand(input, tensor, may_be_quantized);
    if (arguments_.dtype && is_floating(tensor.dtype()))
      tensor = converted(std::move(tensor), dtype_from_name(*arguments_.dtype), input);
    return call_.tensors.emplace_back(std::move(tensor));
  }

  static void check_operand(const NamedPath& input, const TensorView& tensor, bool may_be_quantized) {
    if (!is_floating(tensor.dtype) && !(may_be_quantized && is_quantized(tensor.dtype)))
      refuse("{}: {} holds {}, expected floating-point numbers{}", input.option, *input.path,
             name_of(tensor.dtype), may_be_quantized ? ", i8 or f8e4m3" : "");
    if (tensor.rank < 2 || tensor.rank > 4)
      refuse("{}: {} has shape {}, expected 2, 3 or 4 dimensions", input.option, *input.path,
             to_string(tensor.dims()));
  }

  // Converts a tensor for attention(); one that attention() refuses is left unchanged.
  Tensor load_option(const CallArguments::Given& given) {
    Tensor tensor = files_.load(given.file);
    if (tensor.rank() == 0) refuse("{} has no dimensions: expected one or more", given.file.option);
    const DType dtype = tensor.dtype();
    switch (given.option->elements) {
      case OptionElements::integers:
        return in_integers(std::move(tensor), DType::i64, given.file);
      case OptionElements::i32:
        return in_integers(std::move(tensor), DType::i32, given.file);
      case OptionElements::numbers:
      case OptionElements::mask:
        if (dtype == DType::f16 || dtype == DType::bf16)
          return converted(std::move(tensor), DType::f32, given.file);
        return tensor;
      case OptionElements::f32:
        if (is_floating(dtype) && dtype != DType::f32) return converted(std::move(tensor), DType::f32, given.file);
        return tensor;
      case OptionElements::boolean:
      case OptionElements::i8:
      case OptionElements::none:
        break;
    }
    return tensor;
  }

  static Tensor in_integers(Tensor tensor, DType dtype, const NamedPath& input) {
    const bool is_integer = !is_floating(tensor.dtype()) && tensor.dtype() != DType::boolean;
    if (!is_integer)
      refuse("{}: {} holds {}, expected integers", input.option, *input.path, name_of(tensor.dtype()));
    return tensor.dtype() == dtype ? std::move(tensor) : Tensor::copy_of(tensor, dtype);
  }

  void check_ranks() const {
    if (arguments_.find("block_table")) return;  // pages always have four
    if (!arguments_.v.path && call_.k.rank != call_.q.rank)
      refuse("--q and --k have {} and {} dimensions: expected as many in each", call_.q.rank, call_.k.rank);
    if (arguments_.v.path && (call_.k.rank != call_.q.rank || call_.v.rank != call_.q.rank))
      refuse("--q, --k and --v have {}, {} and {} dimensions: expected as many in each", call_.q.rank,
             call_.k.rank, call_.v.rank);
  }

  // Checks what determines the shapes of results; attention() checks the rest.
  void check_sequences() const {
    const AttentionOptions& options = call_.options;
    if (options.cu_seqlens_k && !options.cu_seqlens_q) refuse("--cu-seqlens-k needs --cu-seqlens-q");
    if (options.cu_seqlens_q && !options.cu_seqlens_k && !options.block_table)
      refuse("--cu-seqlens-q needs --cu-seqlens-k or --block-table");
    if (options.cu_seqlens_q && call_.q.rank != 3)
      refuse("--q has {} dimensions: [total, heads, dim] expected with --cu-seqlens-q", call_.q.rank);
    for (const auto& [name, begins] :
         {std::pair("--cu-seqlens-q", options.cu_seqlens_q), {"--cu-seqlens-k", options.cu_seqlens_k}}) {
      if (begins && (begins.rank != 1 || begins.size() < 1))
        refuse("{} has shape {}: expected [documents + 1]", name, to_string(begins.dims()));
    }
    if (options.block_table && (call_.k.rank != 4 || options.block_table.rank != 2))
      refuse("--block-table has shape {} and --k {}: expected [batch, pages] and 4 dimensions",
             to_string(options.block_table.dims()), to_string(call_.k.dims()));
  }

  const CallArguments& arguments_;
  const Loading loading_;
  Call& call_;
  TensorFiles files_;
};

/// The length of the longest sequence that `cu_seqlens`, i64, cuts from `total` rows. Does not validate
/// `cu_seqlens`: attention() does.
std::int64_t longest_sequence(const TensorView& cu_seqlens, std::int64_t total) {
  const std::int64_t* const begins = cu_seqlens.as<std::int64_t>();
  std::int64_t longest = 0;
  for (std::int64_t i = 1; i < cu_seqlens.size(); ++i) {
    if (begins[i - 1] >= 0 && begins[i] <= total) longest = std::max(longest, begins[i] - begins[i - 1]);
  }
  return longest;
}

void check_companions(const CallArguments& arguments) {
  for (const auto& [option, file] : arguments.given) {
    if (option->needs.empty() || arguments.find(option->needs)) continue;
    const auto* const needed = std::ranges::find(kAttentionOptions, option->needs, &AttentionOption::name);
    refuse("{} needs {}", option->command_name(), needed->command_name());
  }
}

}  // namespace

std::unique_ptr<Call> load_call(const CallArguments& arguments, Loading loading) {
  auto call = std::make_unique<Call>();
  check_companions(arguments);
  call->options = arguments.options;
  Loader(arguments, loading, *call).load();
  return call;
}

int Call::sequence_axis() const {
  if (options.cu_seqlens_q) return 0;
  return q.rank - (options.layout == Layout::bshd && q.rank > 2 ? 3 : 2);
}

Axes Call::axes() const {
  const bool sequence_first = options.layout == Layout::bshd && q.rank > 2;
  const int sequence_axis = sequence_first ? 3 : 2;  // from the end
  Axes axes{.seqlen_q = q.shape[q.rank - sequence_axis], .seqlen_k = k.shape[k.rank - sequence_axis]};
  if (q.rank > 2) axes.num_heads = q.shape[q.rank - (sequence_first ? 2 : 3)];
  if (q.rank > 3) axes.batch = q.shape[0];
  if (options.cu_seqlens_q) {
    axes.batch = options.cu_seqlens_q.size() - 1;
    axes.num_heads = q.shape[1];
    axes.seqlen_q = longest_sequence(options.cu_seqlens_q, q.shape[0]);
  }
  if (options.cu_seqlens_k) axes.seqlen_k = longest_sequence(options.cu_seqlens_k, k.shape[0]);
  if (options.block_table)
    axes.seqlen_k = options.block_table.shape[1] * k.shape[options.layout == Layout::bshd ? 1 : 2];
  return axes;
}

int Call::threads() const { return options.num_threads > 0 ? options.num_threads : num_threads(); }

Shape Call::rows_shape() const {
  if (options.cu_seqlens_q) return {q.shape[1], q.shape[0]};
  const Axes lengths = axes();
  Shape shape{lengths.batch, lengths.num_heads, lengths.seqlen_q};
  shape.erase(shape.begin(), shape.begin() + (4 - q.rank));
  return shape;
}

// ---- Arguments -----------------------------------------------------------------------------------------------

std::vector<NamedPath> CallArguments::inputs() const {
  std::vector<NamedPath> all{q, k, v};
  for (const Given& option : given) all.push_back(option.file);
  for (NamedPath& input : all) {
    if (input.path) input.path = Place(*input.path).file;
  }
  return all;
}

const CallArguments::Given* CallArguments::find(std::string_view name) const {
  const auto found = std::ranges::find_if(given, [&](const Given& one) { return one.option->name == name; });
  return found == given.end() ? nullptr : &*found;
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

namespace {

std::string help_of(const AttentionOption& option) {
  return std::string(option.help) + (option.axes.empty() ? "" : ": ") + std::string(option.axes);
}

/// The names of an enum on the command line, or nothing.
std::vector<std::string> names_of(const AttentionOption& option) {
  std::vector<std::string> names;
  const auto visit = [&](const auto& member) {
    if constexpr (std::is_member_object_pointer_v<std::remove_cvref_t<decltype(member)>>) {
      using T = std::remove_cvref_t<decltype(std::declval<AttentionOptions>().*member)>;
      if constexpr (std::is_enum_v<T>) names.assign(OptionNames<T>::names.begin(), OptionNames<T>::names.end());
    }
  };
  std::visit(visit, option.member);
  for (std::string& name : names) std::ranges::replace(name, '_', '-');
  return names;
}

/// The old names of these values.
std::vector<std::string> old_names_of(const std::vector<std::string>& names) {
  std::vector<std::string> old_names;
  for (const DeprecatedName& deprecated : kDeprecatedOptionNames)
    if (std::ranges::count(names, deprecated.name)) old_names.emplace_back(deprecated.old_name);
  return old_names;
}

}  // namespace

void CallArguments::add_options(Command command, bool for_run) {
  for (const AttentionOption& option : kAttentionOptions) {
    const std::string flag = option.command_name();
    if (flag.empty() || (!for_run && option.is_of_run)) continue;
    const bool is_tensor = std::holds_alternative<TensorView AttentionOptions::*>(option.member);
    const bool is_alibi = option.name == "alibi_slopes";
    const bool is_causal = option.name == "causal";
    const auto read = [this, command, is_tensor, is_alibi, is_causal, flag, &option](const std::string& value) {
      given.push_back({&option, NamedPath{flag, {}}});
      Given& one = given.back();
      if (is_causal && value.empty()) refuse("{} needs one of two values; {}", flag, kCausalChoices);
      if (const std::string_view name = current_option_name(value); name != value)
        note(command.name(), fmt::format("{} {} is deprecated; use {}", flag, value, name));
      if (is_alibi && value.empty()) {
        standard_alibi = true;
      } else if (is_tensor) {
        one.file.path = value;
      } else if (const std::string wanted = cases::set_from_text(option, value, options); !wanted.empty()) {
        refuse("{}: expected {}, got '{}'", flag, wanted, value);
      }
    };
    if (const auto* const is_on = std::get_if<bool AttentionOptions::*>(&option.member))
      command.add_flag(flag, options.*(*is_on), help_of(option));
    if (!is_tensor && !cases::has_text(option)) continue;
    const Option added = command.add_option(flag, read, help_of(option));
    if (is_alibi) added.expected(0, 1);
    const std::vector<std::string> names = names_of(option);
    if (names.empty())
      added.type_name(std::string(option.placeholder));
    else if (is_causal)  // without a value, read() refuses it
      added.type_name("TEXT").one_of(names, kCausalChoices).expected(0, 1);
    else
      added.type_name("TEXT").one_of(names, "", old_names_of(names)).default_str(names.front());
  }
}

}  // namespace saccade::cli
