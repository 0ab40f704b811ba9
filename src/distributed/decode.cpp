// distributed::decode(), and attention() by pass_q: rows are sent to the ranks that own the keys, and the states
// of the splits of all ranks are merged in ascending order.
#include <algorithm>
#include <array>

#include "backend/visibility.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "distributed/call/call.h"
#include "distributed/pass_q.h"
#include "distributed/plan/runs.h"
#include "saccade/decode.h"
#include "saccade/runtime.h"

namespace saccade::distributed {
namespace {

/// A run of one rank's keys, over one or several splits of kDecodeSplitKeys keys (pieces()).
struct Segment {
  int rank = 0;
  Run keys{};

  std::int64_t first_piece() const { return keys.begin / kDecodeSplitKeys; }
  std::int64_t pieces() const { return (keys.end - 1) / kDecodeSplitKeys + 1 - first_piece(); }
};

/// The keys that any row of any batch entry sees.
Run visible_keys(const AttentionParams& p) {
  Run all;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = p.rows(b) > 0 ? Visibility(p, b).visible(0, p.rows(b)) : KeyRange{};
    all = hull_of(all, {keys.begin, keys.end});
  }
  return all;
}

/// The segments of all ranks in the order in which they are merged. If a run of keys begins within a split, the
/// keys in that split are a segment of their own.
std::vector<Segment> segments_of(const AttentionParams& p, const Sharding& keys) {
  const Run visible = visible_keys(p);
  std::vector<Segment> segments;
  for (int rank = 0; rank < keys.ranks(); ++rank) {
    for (const Run& run : merged(overlap_of(keys.runs(rank), {visible}))) {
      const std::int64_t whole = (run.begin + kDecodeSplitKeys - 1) / kDecodeSplitKeys * kDecodeSplitKeys;
      const std::int64_t cut = run.begin == whole ? run.end : std::min(run.end, whole);
      segments.push_back({rank, {run.begin, cut}});
      if (cut < run.end) segments.push_back({rank, {cut, run.end}});
    }
  }
  std::ranges::sort(segments, {}, [](const Segment& segment) { return segment.keys.begin; });
  return segments;
}

class PassQ {
 public:
  PassQ(const PassQCall& call)
      : call_(call), segments_(segments_of(call.params, call.keys)), heads_{0, call.params.num_heads} {}

  void run() {
    const ProgressHook hook([this] { call_.messages.make_progress(); });
    call_.messages.guard([&] {
      gather_rows();
      compute();
      exchange_states();
      call_.error.attempt([&] { merge(); });
    });
  }

 private:
  int rank() const { return call_.messages.rank(); }
  DType type_of_states() const { return call_.q.dtype == DType::f64 ? DType::f64 : DType::f32; }
  Shape shape_of_states(std::int64_t pieces, std::int64_t rows) const {
    return {pieces, call_.q.shape[0], call_.q.shape[1], rows, DecodeStates::row_size(call_.v.dim)};
  }

  /// Gathers the rows of all ranks in the order of the sequence.
  void gather_rows() {
    if (!call_.rows) {
      all_rows_ = call_.q;
      return;
    }
    gathered_ =
        Tensor(call_.q.dtype, {call_.q.shape[0], call_.q.shape[1], call_.rows->length(), call_.q.shape[3]});
    std::vector<std::pair<Run, Parcel>> parts;
    for (int other = 0; other < call_.messages.size(); ++other) {
      for (const Run& run : call_.rows->runs(other)) {
        if (other == rank()) {
          copy(own_rows(call_.q, run), gathered_.mutable_view().slice(2, run.begin, run.end));
          continue;
        }
        const Parcel part(gathered_.dtype(),
                          {gathered_.shape(0), gathered_.shape(1), run.size(), gathered_.shape(3)});
        parts.emplace_back(run, part);
        call_.messages.receive(messages_, other, part);
      }
      for (const Run& run : call_.rows->runs(rank()))
        if (other != rank()) call_.messages.send(messages_, other, own_rows(call_.q, run));
    }
    call_.messages.wait(messages_, "rows");
    for (const auto& [run, part] : parts)
      copy(part.numbers, gathered_.mutable_view().slice(2, run.begin, run.end));
    all_rows_ = gathered_;
  }

  template <class View>
  View own_rows(const View& view, Run run) const {
    const std::int64_t row = call_.rows ? call_.rows->local_row(rank(), run.begin) : 0;
    return view.slice(2, row, row + run.size());
  }
  /// The rows that a rank merges.
  std::vector<Run> rows_of(int other) const {
    return call_.rows ? call_.rows->runs(other) : std::vector<Run>{{0, call_.q.shape[2]}};
  }

  Plan::Piece piece_of(Run rows, Run keys) const {
    return {.batch = 0,
            .entries = call_.params.batch,
            .rows = rows,
            .keys = keys,
            .row = rows.begin,
            .key = keys.begin};
  }

  void compute() {
    for (const Segment& segment : segments_) {
      if (segment.rank != rank()) continue;
      states_.push_back(Tensor(type_of_states(), shape_of_states(segment.pieces(), all_rows_.shape[2])));
      call_.error.attempt([&] { compute(segment, states_.back()); });
    }
  }

  void compute(const Segment& segment, Tensor& states) {
    const Run held{segment.first_piece() * kDecodeSplitKeys, segment.keys.end};
    PieceOptions options(call_.options, call_.params, piece_of({0, all_rows_.shape[2]}, held), held, segment.keys,
                         heads_);
    std::vector<Tensor> memory;
    const std::vector<TensorView> k = keys_of(call_.k, segment.keys, held, memory),
                                  v = keys_of(call_.v, segment.keys, held, memory);
    describe(k, v, options.options);
    decode_states(all_rows_, call_.k.numbers_of(k[0]), call_.v.numbers_of(v[0]), states, options.options);
  }

  /// This rank's keys, with room in front for the first keys of the split, which other ranks hold.
  std::vector<TensorView> keys_of(const KeyRows& all, Run keys, Run held, std::vector<Tensor>& memory) const {
    const std::int64_t key = call_.keys.local_row(rank(), keys.begin);
    std::vector<TensorView> result;
    for (const TensorView& tensor : all.tensors) {
      const TensorView own = tensor.slice(2, key, key + keys.size());
      result.push_back(own);
      if (keys.begin == held.begin) continue;
      Tensor& room =
          memory.emplace_back(tensor.dtype, Shape{own.shape[0], own.shape[1], held.size(), own.shape[3]});
      copy(own, room.mutable_view().slice(2, held.size() - keys.size(), held.size()));
      result.back() = room;
    }
    return result;
  }
  static std::vector<TensorView> no_keys_of(const KeyRows& all) {
    std::vector<TensorView> result;
    for (const TensorView& tensor : all.tensors) result.push_back(tensor.slice(2, 0, 0));
    return result;
  }
  /// Sets the options that belong to these rows of k and v.
  void describe(const std::vector<TensorView>& k, const std::vector<TensorView>& v,
                AttentionOptions& options) const {
    call_.k.describe(k, call_.k.channels, options.k_scale, options.k_multipliers);
    call_.v.describe(v, call_.v.channels, options.v_scale, options.v_multipliers);
  }

  void exchange_states() {
    for (int other = 0; other < call_.messages.size(); ++other) {
      std::size_t index = 0;
      for (const Segment& segment : segments_) {
        if (segment.rank != rank()) continue;
        for (const Run& run : rows_of(other))
          if (other != rank())
            call_.messages.send(messages_, other, states_[index].view().slice(3, run.begin, run.end));
        ++index;
      }
    }
    std::size_t index = 0;
    for (const Segment& segment : segments_) {
      for (const Run& run : rows_of(rank())) {
        const Parcel& part = parts_.emplace_back(type_of_states(), shape_of_states(segment.pieces(), run.size()));
        if (segment.rank == rank())
          copy(states_[index].view().slice(3, run.begin, run.end), part.numbers);
        else
          call_.messages.receive(messages_, segment.rank, part);
      }
      index += segment.rank == rank();
    }
    call_.messages.wait(messages_, "states of other ranks' keys");
  }

  void merge() {
    const std::vector<Run> runs = rows_of(rank());
    std::int64_t pieces = 0;
    for (const Segment& segment : segments_) pieces += segment.pieces();
    for (std::size_t r = 0; r < runs.size(); ++r) {
      Tensor all(type_of_states(), shape_of_states(pieces, runs[r].size()));
      std::int64_t at = 0;
      for (std::size_t s = 0; s < segments_.size(); ++s) {
        copy(parts_[s * runs.size() + r].numbers, all.mutable_view().slice(0, at, at + segments_[s].pieces()));
        at += segments_[s].pieces();
      }
      PieceOptions options(call_.options, call_.params, piece_of(runs[r], {}), {}, {}, heads_);
      if (call_.lse) options.options.lse = call_.lse.slice(2, own_row(runs[r]), own_row(runs[r]) + runs[r].size());
      const std::vector<TensorView> k = no_keys_of(call_.k), v = no_keys_of(call_.v);
      describe(k, v, options.options);
      merge_decode_states(own_rows(call_.q, runs[r]), call_.k.numbers_of(k[0]), call_.v.numbers_of(v[0]), all,
                          own_rows(call_.o, runs[r]), options.options);
    }
  }
  std::int64_t own_row(Run run) const { return call_.rows ? call_.rows->local_row(rank(), run.begin) : 0; }

  const PassQCall& call_;
  std::vector<Segment> segments_;  // of all ranks
  Run heads_;
  Tensor gathered_;
  TensorView all_rows_;         // [batch, heads, rows, dim]
  std::vector<Tensor> states_;  // of this rank's segments
  std::vector<Parcel> parts_;   // states of every segment, for each run of this rank's rows
  Batch messages_;
};

}  // namespace

void run_pass_q(const PassQCall& call) { PassQ(call).run(); }

void decode(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
            const MutableTensorView& o, const ParallelConfig& division, const AttentionOptions& options) {
  constexpr std::string_view kName = "distributed::decode";
  Messages messages(communicator, kName);
  ParallelConfig of_keys = division;
  if (of_keys.keys.ranks() == 0) of_keys.keys = of_keys.rows;
  of_keys.rows = {};
  Agreement agreement{
      .function = kName, .q = q, .k = k, .v = v, .o = o, .sizes = {}, .division = &of_keys, .options = &options};
  std::unique_ptr<WholeProblem> whole;
  agree(messages, agreement, [&] {
    check_options_of(AttentionCall::distributed, kName, options);
    check_options_of(AttentionCall::distributed_decode, kName, options);
    if (of_keys.keys.ranks() != communicator.size())
      refuse(kName, "the division is for ", of_keys.keys.ranks(), " ranks but the communicator has ",
             communicator.size());
    agreement.sizes = sizes_of(q, k, v, options, kName);
    check_tensors(kName, q, k, v, o, options);
    check_rows(kName, "k", k, options, of_keys.keys, communicator.rank());
    whole = std::make_unique<WholeProblem>(agreement.sizes, as_headed(q, options).shape[2], of_keys.keys.length(),
                                           options, kName);
  });
  if (communicator.size() == 1) return saccade::decode(q, k, v, o, options);
  const KeyRows keys(as_headed(k, options), options.k_scale, options.k_multipliers),
      values(as_headed(v, options), options.v_scale, options.v_multipliers);
  RankError error(messages, options);
  run_pass_q({.messages = messages,
              .error = error,
              .options = options,
              .params = whole->params,
              .keys = of_keys.keys,
              .rows = nullptr,
              .q = as_headed(q, options),
              .k = keys,
              .v = values,
              .o = as_headed(o, options),
              .lse = options.lse ? with_rank(options.lse, 3) : MutableTensorView()});
  error.end(messages, kName);
}

}  // namespace saccade::distributed
