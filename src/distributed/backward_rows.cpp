// run_row_backward(): dq of a rank's rows, and their partial dk and dv, which are sent back to the owners of the
// keys.
#include <algorithm>
#include <cstring>

#include "distributed/backward.h"
#include "distributed/flow/keys.h"
#include "distributed/flow/rows.h"
#include "distributed/plan/runs.h"
#include "distributed/sums.h"

namespace saccade::distributed {
namespace {

class RowBackward {
 public:
  RowBackward(Call& call, const LocalGradients& local, OptionGradients& options)
      : call_(call),
        keys_(call),
        rows_(call, local.rows),
        inputs_(local.rows.size()),
        dq_(call, {local.dq}),
        dkv_(call.messages, needed_keys(call), {local.dk, local.dv}, types_of_sums(call)),
        options_(options),
        wants_dq_(static_cast<bool>(local.dq)),
        wants_dkv_(static_cast<bool>(local.dk)) {}

  void run() {
    call_.messages.guard([&] {
      post(0);
      for (std::int64_t step = 0; step < call_.steps(); ++step) {
        keys_.wait(step);
        rows_.wait(step);
        if (step + 1 < call_.steps()) post(step + 1);
        if (wants_dq_) dq_.begin(step);
        compute(step);
        if (wants_dq_) dq_.post(step);
        if (wants_dkv_) dkv_.post(step, {dk_.numbers, dv_.numbers}, sums_.begin);
        if (step > 0) finish(step - 1);
      }
      if (call_.steps() > 0) finish(call_.steps() - 1);
      keys_.finish();
      rows_.finish();
      dq_.finish();
      dkv_.finish();
      options_.add_up();
    });
  }

 private:
  static std::vector<DType> types_of_sums(const Call& call) {
    return {type_of_sums(call.local.k.dtype), type_of_sums(call.local.v.dtype)};
  }

  void post(std::int64_t step) {
    keys_.post(step);
    rows_.post(step);
  }
  void finish(std::int64_t step) {
    if (wants_dq_) dq_.wait(step);
    if (wants_dkv_) dkv_.wait(step);
  }

  void compute(std::int64_t step) {
    const Plan::Unit unit = call_.unit(step);
    if (!unit.exists) return;
    const std::vector<Plan::Piece> pieces = call_.plan->pieces(call_.rank(), unit.batch);
    make_room(pieces);
    call_.error.attempt([&] {
      // Starts the sums with the piece that covers all keys, if there is one.
      const auto widest = std::ranges::find(pieces, sums_, &Plan::Piece::keys);
      if (widest == pieces.end()) clear(dk_), clear(dv_);
      if (widest != pieces.end()) compute(step, unit, *widest, dk_.numbers, dv_.numbers);
      for (auto piece = pieces.begin(); piece != pieces.end(); ++piece)
        if (piece != widest) add(step, unit, *piece);
    });
  }

  /// Room for dk and dv of all keys that the kernels are called with.
  void make_room(const std::vector<Plan::Piece>& pieces) {
    sums_ = {};
    for (const Plan::Piece& piece : pieces) sums_ = hull_of(sums_, piece.keys);
    dk_.resize(type_of_sums(call_.local.k.dtype), 1, sums_.size(), call_.local.k.shape[3]);
    dv_.resize(type_of_sums(call_.local.v.dtype), 1, sums_.size(), call_.local.v.shape[3]);
  }

  static void clear(ReceiveBuffer& room) {
    std::memset(room.numbers.mutable_data(), 0,
                static_cast<std::size_t>(room.numbers.size()) * size_of(room.numbers.dtype));
  }

  void add(std::int64_t step, const Plan::Unit& unit, const Plan::Piece& piece) {
    more_dk_.resize(dk_.numbers.dtype, 1, piece.keys.size(), dk_.numbers.shape[2]);
    more_dv_.resize(dv_.numbers.dtype, 1, piece.keys.size(), dv_.numbers.shape[2]);
    compute(step, unit, piece, more_dk_.numbers, more_dv_.numbers);
    if (piece.keys.size() == 0) return;
    const std::int64_t first = piece.keys.begin - sums_.begin, end = first + piece.keys.size();
    add_numbers(more_dk_.numbers, dk_.numbers.slice(1, first, end));
    add_numbers(more_dv_.numbers, dv_.numbers.slice(1, first, end));
  }

  void compute(std::int64_t step, const Plan::Unit& unit, const Plan::Piece& piece, const MutableTensorView& dk,
               const MutableTensorView& dv) {
    const bool packed = call_.is_packed();
    PieceOptions options(call_.options, call_.params(), piece, piece.keys, piece.keys, call_.query_heads(unit));
    std::vector<TensorView> rows;
    for (std::size_t i = 0; i < inputs_; ++i) rows.push_back(rows_.rows(i, step, piece.rows));
    OptionGradients::Part part = options_.part(options);
    if (wants_dq_) part.gradients.dq = as_call(dq_.rows(0, step, piece.rows), packed);
    if (wants_dkv_) {
      part.gradients.dk = as_call(dk, packed);
      part.gradients.dv = as_call(dv, packed);
    }
    saccade::attention_backward(as_call(rows[0], packed), keys_.k(step, piece.keys), keys_.v(step, piece.keys),
                                attention_outcome(rows, packed), part.gradients, options.options);
    options_.add(part, options);
  }

  Call& call_;
  Keys keys_;
  Rows rows_;
  std::size_t inputs_;  // number of input tensors of rows
  Results dq_;
  Reduce dkv_;
  OptionGradients& options_;
  bool wants_dq_, wants_dkv_;
  Run sums_{};  // the keys of dk_ and dv_
  ReceiveBuffer dk_, dv_, more_dk_, more_dv_;
};

}  // namespace

void run_row_backward(Call& call, const LocalGradients& local, OptionGradients& options) {
  RowBackward(call, local, options).run();
}

}  // namespace saccade::distributed
