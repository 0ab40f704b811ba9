// The tensors and options of one attention call, as `saccade run` and `saccade inspect` take them.
#pragma once

#include <saccade/attention.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "common.h"

namespace saccade::cli {

/// The arguments that say what a call reads and which options it has. A tensor is a .npy file, or one of those of
/// a safetensors file: FILE.safetensors:NAME.
struct CallArguments {
  NamedPath q{"--q", {}}, k{"--k", {}}, v{"--v", {}}, mask{"--mask", {}}, kv_lengths{"--kv-lengths", {}};
  NamedPath block_mask{"--block-mask", {}}, block_table{"--block-table", {}};
  NamedPath cu_seqlens_q{"--cu-seqlens-q", {}}, cu_seqlens_k{"--cu-seqlens-k", {}};
  NamedPath alibi{"--alibi", {}}, sinks{"--sinks", {}};
  bool standard_alibi = false;  // --alibi without a file
  std::string causal = "none";
  std::string layout = "bhld";
  std::optional<std::int64_t> query_offset, threads, dropout_seed;
  std::optional<std::string> window, block_size, dtype;
  std::optional<double> scale, softcap, dropout;

  /// Adds --q, --k and --v, the last of which is required or not, and --dtype.
  void add_tensors(Command command, bool wants_v);
  /// Adds the options, from --causal to --threads.
  void add_options(Command command);
  /// Adds --cu-seqlens-q, --cu-seqlens-k, --dropout and --seed.
  void add_packing_and_dropout(Command command);

  /// Every file that is read, a safetensors file without the tensor's name.
  std::vector<NamedPath> inputs() const;
};

/// The sizes of a call: of a packed batch, its documents and the lengths of the longest; with pages, room for so
/// many keys.
struct Axes {
  std::int64_t batch = 1, num_heads = 1, seqlen_q = 0, seqlen_k = 0;
};

/// The tensors that one call reads, and its options, whose views point into them.
struct Call {
  Tensor q, k, v;  // v: empty where it was not given
  Tensor mask, block_mask, kv_lengths, cu_seqlens_q, cu_seqlens_k, block_table, alibi_slopes, sinks;
  AttentionOptions options;
  std::vector<std::string> notes;  // what was converted

  Axes axes() const;
  /// Threads that the call uses.
  int threads() const;
  /// The shape of what has one number a row: [batch, num_heads, seqlen_q] without the axes that q does not have;
  /// packed [num_heads, total_q].
  Shape rows_shape() const;
  /// The type of what is computed beside o: f64 for f64 inputs, else f32.
  DType result_dtype() const { return q.dtype() == DType::f64 ? DType::f64 : DType::f32; }
};

/// Reads the files. Throws std::invalid_argument and std::runtime_error that name the option.
std::unique_ptr<Call> load_call(const CallArguments& arguments);

/// Adds an option that names a file.
void add_file(Command command, NamedPath& path, const std::string& help, const std::string& type = "FILE.npy");

}  // namespace saccade::cli
