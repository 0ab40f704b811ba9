// distributed::attention() by all methods but pass_q: the inputs of a step are transferred while the previous
// step is computed.
#include "distributed/flow/keys.h"
#include "distributed/flow/rows.h"
#include "distributed/pass_q.h"
#include "distributed/plan/runs.h"
#include "saccade/attention_state.h"
#include "saccade/decode.h"
#include "saccade/runtime.h"

namespace saccade::distributed {
namespace {

class Forward {
 public:
  /// `outputs`: o, and lse if requested.
  Forward(Call& call, const std::vector<MutableTensorView>& outputs)
      : call_(call),
        keys_(call),
        queries_(call, {call.local.q}),
        results_(call, outputs),
        has_lse_(outputs.size() > 1) {}

  void run() {
    const ProgressHook hook([this] { call_.messages.make_progress(); });
    call_.messages.guard([&] {
      post(0);
      for (std::int64_t step = 0; step < call_.steps(); ++step) {
        keys_.wait(step);
        queries_.wait(step);
        if (step + 1 < call_.steps()) post(step + 1);
        results_.begin(step);
        compute(step);
        results_.post(step);
        if (step > 0) results_.wait(step - 1);
        if (const auto& on_step = call_.plan->division().on_step) on_step(step + 1, call_.steps());
      }
      if (call_.steps() > 0) results_.wait(call_.steps() - 1);
      keys_.finish();
      queries_.finish();
      results_.finish();
    });
    call_.end();
  }

 private:
  void post(std::int64_t step) {
    keys_.post(step);
    queries_.post(step);
  }

  void compute(std::int64_t step) {
    const Plan::Unit unit = call_.unit(step);
    if (!unit.exists) return;
    call_.error.attempt([&] {
      const std::vector<Plan::Piece> pieces = call_.plan->pieces(call_.rank(), unit.batch);
      if (unit.part == 0) states_.clear();
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (unit.part == 0 && unit.is_last)
          compute(step, unit, pieces[i]);
        else
          add(step, unit, pieces[i], i);
      }
    });
  }

  void compute(std::int64_t step, const Plan::Unit& unit, const Plan::Piece& piece) {
    const bool is_packed = call_.is_packed();
    PieceOptions options(call_.options, call_.params(), piece, piece.keys, piece.keys, call_.query_heads(unit));
    keys_.describe(step, piece.keys, options.options);
    if (has_lse_) options.options.lse = lse_as_call(results_.rows(1, step, piece.rows).select(2, 0), is_packed);
    saccade::attention(as_call(queries_.rows(0, step, piece.rows), is_packed), keys_.k(step, piece.keys),
                       keys_.v(step, piece.keys), as_call(results_.rows(0, step, piece.rows), is_packed),
                       options.options);
  }

  /// Adds one part of a head's keys: the rows' states are kept from one step to the next.
  void add(std::int64_t step, const Plan::Unit& unit, const Plan::Piece& piece, std::size_t index) {
    if (unit.part == 0) states_.emplace_back(results_.rows(0, step, piece.rows).dtype);
    AttentionState& state = states_[index];
    const bool is_packed = call_.is_packed();
    const TensorView q = as_call(queries_.rows(0, step, piece.rows), is_packed);
    const auto add_keys = [&](Run held, Run seen) {
      PieceOptions options(call_.options, call_.params(), piece, held, seen, call_.query_heads(unit));
      keys_.describe(step, held, options.options);
      state.add(q, keys_.k(step, held), keys_.v(step, held), options.options);
    };
    const Run none{piece.keys.begin, piece.keys.begin};
    if (unit.part == 0) add_keys(none, {});  // rows may see no key at all
    for (const Run& run : call_.plan->keys(call_.rank(), step)) {
      const Run held = call_.plan->keys_of_call(piece, run);
      if (held.size() > 0) add_keys(held, overlap_of(piece.keys, run));
    }
    if (!unit.is_last) return;
    PieceOptions options(call_.options, call_.params(), piece, none, {}, call_.query_heads(unit));
    if (has_lse_) options.options.lse = lse_as_call(results_.rows(1, step, piece.rows).select(2, 0), is_packed);
    state.finish(as_call(results_.rows(0, step, piece.rows), is_packed), options.options);
  }

  Call& call_;
  Keys keys_;
  Rows queries_;
  Results results_;
  bool has_lse_;
  std::vector<AttentionState> states_;  // of the pieces of a unit
};

}  // namespace

void attention(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
               const MutableTensorView& o, const ParallelConfig& division, const AttentionOptions& options) {
  constexpr std::string_view kName = "distributed::attention";
  Messages messages(communicator, kName);
  Call call(messages, kName, q, k, v, o, division, options);
  const bool by_pass_q = call.plan->division().method == Method::pass_q;
  if (communicator.size() == 1)
    return by_pass_q ? saccade::decode(q, k, v, o, options) : saccade::attention(q, k, v, o, options);
  if (by_pass_q) {
    run_pass_q({.messages = call.messages,
                .error = call.error,
                .options = options,
                .params = call.params(),
                .keys = call.plan->division().keys,
                .rows = &call.plan->division().rows,
                .q = call.local.q,
                .k = call.local.key_rows,
                .v = call.local.value_rows,
                .o = as_headed(o, options),
                .lse = options.lse ? with_rank(options.lse, 3) : MutableTensorView()});
    return call.end();
  }
  std::vector<MutableTensorView> outputs{as_headed(o, options)};
  if (options.lse) outputs.push_back(as_column(options.lse));
  Forward(call, outputs).run();
}

}  // namespace saccade::distributed
