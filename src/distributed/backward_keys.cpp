// run_key_backward(): dk and dv of a rank's keys from all rows that see them, bit for bit as in one process.
#include <cstring>

#include "distributed/backward.h"
#include "distributed/flow/flow.h"
#include "distributed/plan/runs.h"

namespace saccade::distributed {
namespace {

class KeyBackward {
 public:
  KeyBackward(Call& call, const LocalGradients& local)
      : call_(call),
        local_(local),
        plan_(call.sizes, division_of(call), call.options),
        rows_(call.messages, needed_rows(), local.rows) {}

  void run() {
    if (plan_.steps() == 0) return;  // no batch entry: there is nothing to post
    call_.messages.guard([&] {
      post(0);
      for (std::int64_t step = 0; step < plan_.steps(); ++step) {
        rows_.wait(step);
        if (step + 1 < plan_.steps()) post(step + 1);
        compute(step);
      }
      rows_.finish();
    });
  }

 private:
  /// Ranks do not share rows here.
  static ParallelConfig division_of(const Call& call) {
    ParallelConfig division = call.plan->division();
    division.method = Method::gather;
    return division;
  }

  Needs needed_rows() const {
    return {.plan = &plan_,
            .sharding = &plan_.division().rows,
            .heads = call_.group(),
            .clears_gaps = true,
            .rows = [this](int rank, std::int64_t step) {
              return plan_.rows_of_keys(rank, plan_.unit(rank, step).batch);
            }};
  }

  void post(std::int64_t step) {
    Run room;
    for (const Plan::Piece& piece : pieces(step)) room = hull_of(room, piece.rows);
    rows_.post(step, room);
  }

  std::vector<Plan::Piece> pieces(std::int64_t step) const {
    return plan_.pieces_of_keys(call_.rank(), plan_.unit(call_.rank(), step).batch);
  }

  void compute(std::int64_t step) {
    call_.error.attempt([&] {
      for (const Plan::Piece& piece : pieces(step)) compute(step, piece);
    });
  }

  void compute(std::int64_t step, const Plan::Piece& piece) {
    const Plan::Unit unit = plan_.unit(call_.rank(), step);
    const bool packed = call_.is_packed();
    // Dropout is drawn for 64 keys at a time: the keys before the first are hidden.
    const std::int64_t before = call_.options.dropout_p > 0.0 ? piece.key % 64 : 0;
    const Run held{piece.keys.begin - before, piece.keys.end};
    PieceOptions options(call_.options, call_.params(), piece, held, piece.keys, call_.query_heads(unit));
    std::vector<TensorView> rows;
    for (std::size_t i = 0; i < local_.rows.size(); ++i) rows.push_back(rows_.rows(i, step, piece.rows));
    const MutableTensorView dk = own(local_.dk, unit, piece.keys), dv = own(local_.dv, unit, piece.keys);
    AttentionGradients gradients;
    gradients.dk = as_call(with_room(dk, before, dk_), packed);
    gradients.dv = as_call(with_room(dv, before, dv_), packed);
    saccade::attention_backward(as_call(rows[0], packed), keys(call_.local.k, unit, piece.keys, before, k_),
                                keys(call_.local.v, unit, piece.keys, before, v_), attention_outcome(rows, packed),
                                gradients, options.options);
    if (before == 0) return;
    copy(dk_.numbers.slice(1, before, held.size()), dk);
    copy(dv_.numbers.slice(1, before, held.size()), dv);
  }

  template <class View>
  View own(const View& tensor, const Plan::Unit& unit, Run keys) const {
    const std::int64_t key = plan_.division().keys.local_row(call_.rank(), keys.begin);
    return tensor.select(0, unit.batch).slice(0, unit.kv_head, unit.kv_head + 1).slice(1, key, key + keys.size());
  }

  /// Where to write the gradients of this rank's keys, with room for `before` more keys in front.
  static MutableTensorView with_room(const MutableTensorView& own, std::int64_t before, ReceiveBuffer& room) {
    if (before == 0) return own;
    room.resize(own.dtype, 1, before + own.shape[1], own.shape[2]);
    return room.numbers;
  }

  TensorView keys(const TensorView& tensor, const Plan::Unit& unit, Run keys, std::int64_t before,
                  ReceiveBuffer& room) const {
    const TensorView held = own(tensor, unit, keys);
    if (before > 0) {
      room.resize(held.dtype, 1, before + keys.size(), held.shape[2]);
      std::memset(room.numbers.mutable_data(), 0,
                  static_cast<std::size_t>(before * held.shape[2]) * size_of(held.dtype));
      copy(held, room.numbers.slice(1, before, before + keys.size()));
    }
    return as_call(before > 0 ? TensorView(room.numbers) : held, call_.is_packed());
  }

  Call& call_;
  const LocalGradients& local_;
  Plan plan_;
  Gather rows_;
  ReceiveBuffer k_, v_, dk_, dv_;
};

}  // namespace

void run_key_backward(Call& call, const LocalGradients& local) { KeyBackward(call, local).run(); }

}  // namespace saccade::distributed
