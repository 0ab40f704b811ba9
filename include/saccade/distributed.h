// Attention across several processes or machines. Each function says which results are bit-identical to one
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/communicator.h"

#pragma GCC visibility push(default)
namespace saccade::distributed {

/// Consecutive rows or keys [begin, end) of a sequence.
struct Run {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Run&) const = default;
};

/// Which rows (or keys) of a sequence each rank holds. A rank's tensor has its rows in the order of its runs, one
/// run after the other. In a packed batch the sequence is all documents, one after the other; otherwise every
/// batch entry is divided in the same way. Ranks may have different numbers of rows, or none.
class Sharding {
 public:
  /// An empty sharding.
  Sharding() = default;

  /// Of `length` rows, one run for each of as many `ranks`, as equal as possible.
  static Sharding contiguous(std::int64_t length, int ranks);
  /// Of `length` rows, 2 * ranks runs, as equal as possible; rank r gets the r-th from either end. With a causal
  /// mask every rank has nearly the same work.
  static Sharding zigzag(std::int64_t length, int ranks);
  /// Of `length` rows, runs of `stripe` rows, assigned to the `ranks` in turn. (Striped Attention,
  /// arXiv:2311.09431, has stripes of one row; long ones are faster.)
  static Sharding striped(std::int64_t length, int ranks, std::int64_t stripe = 512);
  /// One run for each rank, cut so that all ranks have the same number of pairs of a row and a key that it sees by
  /// position and length. seqlen_q, seqlen_k and the options are those of the whole problem.
  static Sharding balanced(std::int64_t seqlen_q, std::int64_t seqlen_k, int ranks,
                           const AttentionOptions& options);
  /// Any division: the runs of each rank, in ascending order. Every row must be in one run.
  static Sharding of_runs(std::vector<std::vector<Run>> runs);
  // All of these throw std::invalid_argument for a negative length, fewer than one rank, and runs that overlap or
  // leave gaps.

  int ranks() const { return static_cast<int>(runs_.size()); }
  std::int64_t length() const { return length_; }
  /// The runs of a rank, in ascending order. These three throw std::invalid_argument for a rank that does not
  /// exist.
  const std::vector<Run>& runs(int rank) const;
  /// The number of rows of a rank.
  std::int64_t rows(int rank) const;
  /// The index, in the rank's tensor, of a row of the sequence, which must be in one of the rank's runs.
  std::int64_t local_row(int rank, std::int64_t row) const;

  bool operator==(const Sharding&) const = default;

 private:
  std::int64_t length_ = 0;
  std::vector<std::vector<Run>> runs_;
};

/// How ranks divide the work. Only what some row of the receiver sees by position and length is sent.
enum class Method : std::uint8_t {
  /// The fastest of gather, heads and grid by the cost model (cost_model.h); stream if gather would take more than
  /// ParallelConfig::memory. With all of them o is bit-identical to one process. Plan::division() tells which was
  /// chosen.
  automatic,
  gather,  ///< each rank computes its own rows. Keys and values arrive a kv head at a time, during the one before
  heads,   ///< each rank computes some kv heads for all rows: rows travel, and results return
  grid,    ///< ranks in groups of `head_groups`: heads within a group, gather among the groups
  stream,  ///< as gather, but a head's keys arrive `chunk` at a time, in ascending order: least memory
  ring,    ///< as stream, but rank r begins with its own keys, then those of rank r - 1, and so on
  pass_q,  ///< rows travel instead of keys: for few rows over many keys
};

/// The name of a method: "automatic", "gather", ...
std::string_view name_of(Method method);

/// What a rank and the network can do, for the cost model (cost_model.h). docs/distributed.md describes how the
/// defaults were measured, with one thread of a Zen 5 (AMD EPYC, a virtual machine) and Open MPI 4.1 over TCP;
/// those of the network are not measured but assume 10 Gbit/s Ethernet.
struct CostParameters {
  /// Floating-point operations per second of attention() by all threads of a rank, in f32. The model assumes twice
  /// as many for 16-bit types and half as many for f64.
  double forward = 2.0e11;
  double backward = 2.2e11;   ///< the same of attention_backward()
  double copying = 1e9;       ///< bytes/s at which a rank packs what it sends, and adds up what it receives
  double per_step = 20e-6;    ///< fixed cost of a step in seconds
  double per_message = 2e-6;  ///< seconds of a rank's time for each message that it sends or receives
  double bandwidth = 1.25e9;  ///< bytes/s that a rank can send, and receive at the same time
  double latency = 50e-6;     ///< seconds from sending a message to the arrival of its first byte
};
using Machine [[deprecated("renamed CostParameters")]] = CostParameters;

/// How a call is divided. It must be the same on all ranks.
struct ParallelConfig {
  Sharding rows{};                    ///< of q and o
  Sharding keys{};                    ///< of k and v; default: that of the rows
  Method method = Method::automatic;  ///< what travels, and when
  int head_groups = 0;                ///< grid: ranks per group; divides the number of ranks and of kv heads
  std::int64_t chunk = 16384;         ///< stream: keys that arrive together, a multiple of kOriginAlignment
  /// dk and dv are bit-identical to one process: the owners of the keys compute them from all rows that see them,
  /// which takes 7 matrix products instead of 5. false: partial dk and dv are sent to the owners and added up in
  /// the order of the ranks, with the same bits in every run.
  bool exact = false;
  /// automatic: the most bytes that the keys and values of two kv heads, as gather keeps them, may take on a rank.
  /// If some rank needs more, they arrive in chunks (stream). attention_backward() ignores this limit.
  std::int64_t memory = std::int64_t{4} << 30;
  CostParameters machine{};  ///< automatic: what the cost model assumes
  /// For progress bars: called on this rank after each step of attention(), unless the method is pass_q. What it
  /// throws leaves the call on this rank, which is then gone for the others.
  std::function<void(std::int64_t done, std::int64_t steps)> on_step{};
};
using Division [[deprecated("renamed ParallelConfig")]] = ParallelConfig;

/// The sizes of a whole problem that a plan depends on; the sequence lengths come from the division.
struct Sizes {
  std::int64_t batch = 1;                         ///< ignored in a packed batch
  std::int64_t num_heads = 1, num_kv_heads = 1;   ///< heads of q, and of k and v
  std::int64_t head_dim = 128, head_dim_v = 128;  ///< for the cost model
  std::int64_t element_bytes = 4;                 ///< the size of a number of k, v, q and o; for the cost model
};

/// The sizes of a call, from the shapes of its tensors q, k and v, whole or of one rank. `function`: the name in
/// errors.
Sizes sizes_of(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options = {},
               std::string_view function = "distributed::sizes_of");

/// Which rank computes what from which keys, and so what is sent: a pure function of sizes, division and options,
/// the same on every rank. A call proceeds in steps; in each, a rank works on one kv head of one batch entry.
///
/// Functions throw std::invalid_argument for a rank or a batch entry that does not exist, and for a negative step.
/// Nothing is computed in steps after the last.
class Plan {
 public:
  /// What a rank computes in a step.
  struct Unit {
    bool exists = false;                  ///< ranks with fewer heads than others have fewer units
    std::int64_t batch = 0, kv_head = 0;  ///< the batch entry and its head of k and v
    std::int64_t part = 0;  ///< of the head's keys, from 0 on: stream and ring compute them in several steps
    bool is_last = true;    ///< whether it is the last part
  };

  /// Rows that one call of the kernels computes, in batch entry `batch`, or in documents [batch, batch + entries)
  /// of a packed batch. Rows and keys count in the sequence, through all documents.
  struct Piece {
    std::int64_t batch = 0, entries = 1;
    Run rows{};            ///< its rows
    Run keys{};            ///< from the first to the last that the rows see; begins at a multiple of
                           ///< kOriginAlignment of the entry
    std::int64_t row = 0;  ///< the index of its first row in the batch entry or document
    std::int64_t key = 0;  ///< that of its first key
  };

  /// `options`: those of the whole problem. Throws std::invalid_argument, with `function` as the caller's name,
  /// for divisions and options that do not fit, and for sizes that are negative, above 2^40, or those of tensors
  /// with more than 2^59 bytes.
  Plan(const Sizes& sizes, const ParallelConfig& division, const AttentionOptions& options,
       std::string_view function = "distributed::Plan");
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// The division, with Method::automatic replaced by the chosen method.
  const ParallelConfig& division() const;
  const Sizes& sizes() const;
  int ranks() const;
  std::int64_t steps() const;  ///< the same for all ranks
  /// What a rank computes in a step.
  Unit unit(int rank, std::int64_t step) const;
  /// Whether ranks compute rows of other ranks: those of their group, for some of the heads.
  bool shares_rows() const;
  /// The rows that a rank computes in a step: ascending, not adjacent.
  std::vector<Run> rows(int rank, std::int64_t step) const;
  /// The pieces of a rank in a batch entry (all of a packed batch), in ascending order of rows.
  std::vector<Piece> pieces(int rank, std::int64_t batch) const;
  /// The keys that a rank needs in a step: ascending, not adjacent. Those that other ranks hold are sent to it.
  std::vector<Run> keys(int rank, std::int64_t step) const;
  /// For exact dk and dv: the keys of a rank in a batch entry (all of a packed batch), each piece with all rows
  /// that see them, from a multiple of kRowAlignment of the entry on. Ranks do not share rows here.
  std::vector<Piece> pieces_of_keys(int rank, std::int64_t batch) const;
  /// The rows that see a rank's keys in a batch entry: ascending, not adjacent.
  std::vector<Run> rows_of_keys(int rank, std::int64_t batch) const;
  /// The keys to call the kernels with, in order to compute a piece over `keys`: they may begin earlier, at a
  /// multiple of kOriginAlignment, with keys that no row sees.
  Run keys_of_call(const Piece& piece, Run keys) const;

  /// The number of batch entries, which are computed one after the other: 1 in a packed batch.
  std::int64_t entries() const;
  /// Whether two steps, a and b, differ in their heads only: every rank works on the same rows and keys.
  bool are_alike(std::int64_t a, std::int64_t b) const;
  /// How many pairs of a row and a key that it sees by position and length a rank computes in a step, for one
  /// query head.
  double pairs(int rank, std::int64_t step) const;
  /// The same for pieces_of_keys() of a rank in a batch entry.
  double pairs_of_keys(int rank, std::int64_t batch) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// attention() of a problem whose sequences are divided among the ranks of a communicator. All ranks call it
/// together. `division`: how, the same on every rank.
///
/// q, k, v and o hold the rank's rows and keys: [batch, num_heads, rows, head_dim] and so on, with the ranks,
/// layouts, element types and head counts that attention() takes; in a packed batch [rows, num_heads, head_dim].
/// `options` are those of the whole problem, the same on every rank: masks, lengths, cu_seqlens and positions
/// count the whole sequences. Only lse, num_threads and the layout are the rank's own, and of quantized keys and
/// values the multipliers and scales, of the rank's keys; scales of channels are the same on every rank.
/// block_table, weights, scores and origin are refused.
///
/// Results are bit-identical to attention() in one process, with these exceptions: ring adds in another order (the
/// same in every run); pass_q is bit-identical to decode() if keys are cut at multiples of kOriginAlignment; and
/// stream on level avx512amx has the exception described at AttentionState::finish().
///
/// Memory in addition to the tensors: gather holds the keys and values of two kv heads, as far as the rank's rows
/// see them; heads also the rows; stream and ring hold two chunks and the unfinished rows of one kv head, in f32.
///
/// Throws the same exception on every rank: std::invalid_argument for an invalid argument on any rank, or
/// arguments that differ between ranks; std::runtime_error for what a score modifier of any rank throws; each
/// names the rank. Throws CommunicationError if a rank is gone or does not answer in time. A rank whose memory
/// runs out throws std::bad_alloc. The others throw std::runtime_error, which names it, if that happened while
/// arguments were checked or in a call with a score modifier; else CommunicationError, as if it were gone, unless
/// they have all that they need of it.
void attention(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
               const MutableTensorView& o, const ParallelConfig& division,
               const AttentionOptions& options = kDefaultAttentionOptions);

/// attention_backward() of a problem that attention() above divided, but for quantized keys and values: with the
/// same communicator, division and options, and the rank's rows and keys of all tensors, q, k, v and those of
/// `outcome`. dq belongs to its rows, dk and dv to its keys. Gradients of options are those of the whole problem,
/// on every rank: the ranks' parts are added up in f32 (f64 for f64), in the order of the ranks.
///
/// dq is bit-identical to one process. Unless ParallelConfig::exact is set, dk and dv are sums over ranks of
/// partial sums in f32 (f64), the same in every run; Method::heads is always bit-identical to one process, except
/// for gradients of options that heads share. Method::stream, ring and pass_q compute as gather does.
///
/// Throws as attention() does.
void attention_backward(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const ParallelConfig& division,
                        const AttentionOptions& options = kDefaultAttentionOptions);

/// decode() over a cache whose keys are divided among the ranks of a communicator. q and o are whole and the same
/// on every rank, as are the options, but for scales and multipliers, as in attention(); k and v hold the rank's
/// keys by division.keys (its rows are not read). Every rank computes what its keys contribute, sends it to all
/// others and merges: o is bit-identical to decode() in one process if keys are cut at multiples of
/// kOriginAlignment, and otherwise agrees with it up to rounding, with the same bits on every rank.
///
/// Each rank sends head_dim_v + 3 numbers in f32 (f64) for each row, query head and split of 4096 keys. Refuses
/// cu_seqlens. Throws as attention() does.
void decode(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
            const MutableTensorView& o, const ParallelConfig& division,
            const AttentionOptions& options = kDefaultAttentionOptions);

}  // namespace saccade::distributed
#pragma GCC visibility pop
