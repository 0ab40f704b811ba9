// The tensors and options of one attention call, as `saccade run` and `saccade inspect` take them.
#pragma once

#include <saccade/attention_options.h>
#include <saccade/io.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"
#include "common.h"

namespace saccade::cli {

/// The arguments for a call's tensors and options. A tensor is a .npy file, or one in a safetensors file:
/// FILE.safetensors:NAME.
struct CallArguments {
  /// A given option of the table, and its file if it is a tensor.
  struct Given {
    const AttentionOption* option;
    NamedPath file;
  };

  NamedPath q{"--q", {}}, k{"--k", {}}, v{"--v", {}};
  std::optional<std::string> dtype;
  AttentionOptions options;  // numbers and names
  std::vector<Given> given;
  bool standard_alibi = false;  // --alibi without a file

  /// Adds --q, --k and --v, the last of which is required or not, and --dtype.
  void add_tensors(Command command, bool wants_v);
  /// Adds the options of the table that are inputs; `for_run`: also those that `saccade inspect` has no use for.
  void add_options(Command command, bool for_run);

  /// The option of that name in C++, as far as it was given.
  const Given* find(std::string_view name) const;
  /// Every file that is read; safetensors files without the tensor's name.
  std::vector<NamedPath> inputs() const;
};

/// The sizes of a call: for a packed batch, its documents and the lengths of the longest; with pages, the number
/// of keys that they can hold.
struct Axes {
  std::int64_t batch = 1, num_heads = 1, seqlen_q = 0, seqlen_k = 0;
};

/// The tensors that one call reads, and its options, whose views point into them.
struct Call {
  TensorView q, k, v;  // v: empty where it was not given
  std::deque<Tensor> tensors;
  std::deque<MappedFile> files;
  AttentionOptions options;
  std::vector<std::string> notes;  // what was converted

  Axes axes() const;
  /// Threads that the call uses.
  int threads() const;
  /// The shape of what has one number a row: [batch, num_heads, seqlen_q] without the axes that q does not have;
  /// packed [num_heads, total_q].
  Shape rows_shape() const;
  /// The type of what is computed beside o: f64 for f64 inputs, else f32.
  DType result_dtype() const { return q.dtype == DType::f64 ? DType::f64 : DType::f32; }
  /// The dimension of q, k, v and o that counts rows or keys.
  int sequence_axis() const;
};

enum class Loading {
  whole,   ///< q, k and v are read, and converted as --dtype says
  mapped,  ///< they are views of mapped files as stored: nothing but what is used is read, and --dtype is ignored
};

/// Reads the files. Throws std::invalid_argument and std::runtime_error that name the option.
std::unique_ptr<Call> load_call(const CallArguments& arguments, Loading loading = Loading::whole);

/// Adds an option that names a file.
void add_file(Command command, NamedPath& path, const std::string& help, const std::string& type = "FILE.npy");

}  // namespace saccade::cli
