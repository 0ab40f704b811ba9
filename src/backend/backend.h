// The interface between the public functions and the code that computes. A public function checks its arguments
// and passes plain parameters to the back end. Those of this build are the CPU's (src/cpu/cpu_backend.cpp) and the
// reference (src/reference/backend/); registry.h lists them, and the public backend.h chooses one.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>

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

/// What is asked for with an AttentionParams.
enum class Operation : std::uint8_t { attention, attention_state, decode, decode_states, merge_decode_states };

/// A back end. Parameters are checked and point into memory that stays valid until the call returns; but for
/// try_small_attention(), no batch, head count or query length is 0. Results must have the same bits for any
/// division of the work. Several threads may call at once. A back end that uses threads of its own takes at most
/// max_threads() (core/parallel.h).
class Backend {
 public:
  /// In small letters, without a comma, and a line about it.
  virtual std::string_view name() const = 0;
  virtual std::string_view description() const = 0;

  /// Whether it computes such a call. Those that it does not are never passed to it.
  virtual bool supports(Operation, const AttentionParams&) const { return true; }
  virtual bool supports(const MergeParams&) const { return true; }
  virtual bool supports(const BackwardParams&) const { return true; }
  virtual bool supports(const InspectParams&) const { return true; }
  virtual bool supports(const ProductParams&) const { return true; }  // pack_product() too

  /// Whether the checks of a call, which run on the CPU, may read a device's memory.
  virtual bool reads(Device device) const { return device == Device::cpu; }

  /// A fast path for a call without options. Returns whether it has computed all of o; if not, which it may do for
  /// any call, attention() is called next.
  virtual bool try_small_attention(const AttentionOperands&) const { return false; }

  virtual void attention(const AttentionParams&) const = 0;
  /// The state before the first key of calls with these parameters.
  virtual std::unique_ptr<ForwardState> attention_state(const AttentionParams&) const = 0;
  /// The same for few rows over many keys.
  virtual void decode(const AttentionParams&) const = 0;
  /// decode() in two steps: writes the states of the splits of the keys, and merges those of any splits, which any
  /// back end may have written. The parameters of the second have the first's types and options.
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

/// The back end of every call; nullptr: backend_of_this_call() finds out, since none has been chosen yet or some
/// thread is in a BackendScope.
extern std::atomic<const Backend*> backend_of_every_call;
const Backend& backend_of_this_call();

/// The back end of a call that begins now. Inlined: two calls more cost a step of a loop over six tokens, of 95
/// ns, 3 ns (Zen 5). Throws std::invalid_argument where SACCADE_BACKEND names a back end that does not exist.
inline const Backend& active_backend() {
  const Backend* const found = backend_of_every_call.load(std::memory_order_acquire);
  return found ? *found : backend_of_this_call();
}

}  // namespace saccade
