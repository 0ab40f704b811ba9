// The interface between the public functions and the code that computes. A public function checks its arguments
// and passes plain parameters to the back end. This build has the CPU (src/cpu/cpu_backend.cpp) and the reference
// (src/reference/backend/); registry.h lists them, and the public backend.h chooses one.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>

#include "backend/attention_params.h"
#include "backend/layer_params.h"

namespace saccade {

/// Attention whose keys arrive in parts, on one back end; see AttentionState. Every call has the rows, heads,
/// dimensions and element types of the first, and its options except positions and lengths.
class ForwardState {
 public:
  virtual ~ForwardState() = default;
  virtual void add(const AttentionParams&) = 0;
  /// Reads which options change scores, but no query, key, value or mask.
  virtual void finish(const AttentionParams&) = 0;
  virtual std::size_t bytes() const = 0;
};

/// The matrix b of products, in the layout that the kernels read.
class PackedProduct {
 public:
  virtual ~PackedProduct() = default;
  /// c = f(a b), with an f32 a of at least one row. b, its type, the depth and the columns are those of packing;
  /// the parameters do not repeat them.
  virtual void run(const ProductParams&) const = 0;
  /// Writes b in f32, [depth, columns].
  virtual void unpack(float* to) const = 0;
  virtual std::size_t bytes() const = 0;
};

/// The function that is called with an AttentionParams.
enum class Operation : std::uint8_t { attention, attention_state, decode, decode_states, merge_decode_states };

/// A back end. Parameters are checked and point into memory that stays valid until the call returns; except in
/// try_small_attention(), no batch, head count or query length is 0. Results must have the same bits however the
/// work is split. Several threads may call at once. A back end that uses threads of its own takes at most
/// max_threads() (core/parallel.h).
class Backend {
 public:
  /// Lower case, without a comma; and a one-line description.
  virtual std::string_view name() const = 0;
  virtual std::string_view description() const = 0;

  /// Whether it can compute such a call. Others are never passed to it.
  virtual bool supports(Operation, const AttentionParams&) const { return true; }
  virtual bool supports(const MergeParams&) const { return true; }
  virtual bool supports(const BackwardParams&) const { return true; }
  virtual bool supports(const InspectParams&) const { return true; }
  virtual bool supports(const ProductParams&) const { return true; }  // pack_product() too

  /// Whether argument checks, which run on the CPU, may read a device's memory.
  virtual bool reads(Device device) const { return device == Device::cpu; }

  /// A fast path for a call without options. Returns whether it computed all of o. It may always decline;
  /// attention() is called then.
  virtual bool try_small_attention(const AttentionOperands&) const { return false; }

  virtual void attention(const AttentionParams&) const = 0;
  /// The state of calls with these parameters, before their first key.
  virtual std::unique_ptr<ForwardState> attention_state(const AttentionParams&) const = 0;
  /// The same for few rows over many keys.
  virtual void decode(const AttentionParams&) const = 0;
  /// decode() in two steps: the first writes a state for each split of the keys, the second merges any of them,
  /// whichever back end wrote them. The second gets the types and options of the first.
  virtual void decode_states(const AttentionParams&, const DecodeStates&) const = 0;
  virtual void merge_decode_states(const AttentionParams&, const DecodeStates&) const = 0;
  /// Merges results over different keys. At least one of o and lse is requested.
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

/// The back end of every call; nullptr: none has been chosen yet, or some thread is in a BackendScope;
/// backend_of_this_call() decides.
extern std::atomic<const Backend*> backend_of_every_call;
const Backend& backend_of_this_call();

/// The back end of a call that begins now. Inlined: two more calls add 3 ns to the 95 ns of a step over six tokens
/// (Zen 5). Throws std::invalid_argument where SACCADE_BACKEND names a back end that does not exist.
inline const Backend& active_backend() {
  const Backend* const found = backend_of_every_call.load(std::memory_order_acquire);
  return found ? *found : backend_of_this_call();
}

}  // namespace saccade
