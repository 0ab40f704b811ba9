// The interface between the public functions and the code that computes. A public function checks its arguments
// and passes plain parameters to the back end. The CPU's back end is cpu/cpu_backend.cpp; one for a GPU, or one
// that distributes work over several machines, would implement this class.
#pragma once

#include <cstddef>
#include <memory>

#include "backend/attention_params.h"
#include "backend/layer_params.h"

namespace saccade {

/// The rows of an attention whose keys arrive in parts, on a back end; see AttentionState. All calls have the same
/// rows, heads, dimensions and element types as the first, and its options but for positions and lengths.
class ForwardState {
 public:
  virtual ~ForwardState() = default;
  virtual void add(const AttentionParams&) = 0;
  /// Reads no query, key, value or mask, but which options change scores.
  virtual void finish(const AttentionParams&) = 0;
  virtual std::size_t bytes() const = 0;
};

/// The matrix b of products, kept as the kernels read it.
class PackedProduct {
 public:
  virtual ~PackedProduct() = default;
  /// c = f(a b), of an f32 a with at least one row. b, the depth, the columns and b's type are those it was made
  /// of.
  virtual void run(const ProductParams&) const = 0;
  /// The numbers of b in f32, [depth, columns].
  virtual void unpack(float* to) const = 0;
  virtual std::size_t bytes() const = 0;
};

/// A back end. Parameters are checked and point into the caller's memory, which stays valid until the call
/// returns; but for try_small_attention(), no batch, head count or query length is 0. Results must have the same
/// bits for any division of the work. Several threads may call at once. A back end that uses threads of its own
/// takes at most max_threads() (core/parallel.h).
class Backend {
 public:
  /// A fast path for a call without options. Returns whether it has computed all of o; if not, which it may do for
  /// any call, attention() is called next.
  virtual bool try_small_attention(const AttentionOperands&) const { return false; }

  virtual void attention(const AttentionParams&) const = 0;
  /// The state before the first key of calls with these parameters.
  virtual std::unique_ptr<ForwardState> attention_state(const AttentionParams&) const = 0;
  /// The same for few rows over many keys.
  virtual void decode(const AttentionParams&) const = 0;
  /// decode() in two steps: writes the states of the splits of the keys, and merges those of any splits. The
  /// parameters of the second have the first's types and options.
  virtual void decode_states(const AttentionParams&, const DecodeStates&) const = 0;
  virtual void merge_decode_states(const AttentionParams&, const DecodeStates&) const = 0;
  /// Merges results over different keys. Some of o or lse exists.
  virtual void merge(const MergeParams&) const = 0;
  virtual void attention_backward(const BackwardParams&) const = 0;
  virtual void inspect(const InspectParams&) const = 0;
  /// A matrix product, for projections and their gradients. It has at least one row and column.
  virtual void product(const ProductParams&) const = 0;
  /// Packs b, which has at least one row and column.
  virtual std::unique_ptr<PackedProduct> pack_product(const ProductParams&) const = 0;

 protected:
  ~Backend() = default;
};

/// The back end that calls use: the CPU's, so far the only one (backend.cpp). Inlined: two calls more cost a turn
/// of a loop over six tokens, of 95 ns, 3 ns (Zen 5).
extern const Backend* const chosen_backend;
inline const Backend& active_backend() { return *chosen_backend; }

}  // namespace saccade
