// The tensors and options of one attention call, as `saccade run` and `saccade inspect` take them.
#pragma once

#include <saccade/attention.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common.h"

namespace saccade::cli {

/// The arguments that say what a call reads and which options it has.
struct CallArguments {
  NamedPath q{"--q", {}}, k{"--k", {}}, v{"--v", {}}, mask{"--mask", {}}, kv_lengths{"--kv-lengths", {}};
  std::string causal = "none";
  std::string layout = "bhld";
  std::optional<std::int64_t> query_offset, threads;
  std::optional<std::string> window;
  std::optional<double> scale, softcap;

  /// Adds --q, --k and --v, the last of which is required or not.
  void add_tensors(CLI::App& command, bool wants_v);
  /// Adds the options, from --causal to --threads.
  void add_options(CLI::App& command);

  /// Every file that is read.
  std::vector<NamedPath> inputs() const { return {q, k, v, mask, kv_lengths}; }
};

/// Where batch, heads and sequence stand in the shapes of a call.
struct Axes {
  std::int64_t batch = 1, num_heads = 1, seqlen_q = 0, seqlen_k = 0;
};

/// The tensors that one call reads, and its options, whose views point into them.
struct Call {
  Tensor q, k, v, mask, kv_lengths;  // v: empty where it was not given
  AttentionOptions options;
  std::vector<std::string> notes;  // what was converted

  Axes axes() const;
  /// Threads that the call uses.
  int threads() const;
  /// The shape of what has one number a row: [batch, num_heads, seqlen_q] without the axes that q does not have.
  Shape rows_shape() const;
};

/// Reads the files. Throws std::invalid_argument and std::runtime_error that name the option.
std::unique_ptr<Call> load_call(const CallArguments& arguments);

/// Adds an option that names a file.
void add_file(CLI::App& command, NamedPath& path, const std::string& help, const std::string& type = "FILE.npy");

}  // namespace saccade::cli
