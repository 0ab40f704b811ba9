// distributed::attention_backward(): a rank computes dq of its rows, and what they add to dk and dv, which returns
// to the holders of the keys.
#include <algorithm>
#include <cstring>
#include <exception>

#include "attention/backward_arguments.h"
#include "core/check.h"
#include "distributed/keys.h"
#include "distributed/option_gradients.h"
#include "distributed/rows.h"
#include "distributed/runs.h"
#include "distributed/sums.h"
#include "saccade/runtime.h"

namespace saccade::distributed {
namespace {

constexpr std::string_view kBackward = "distributed::attention_backward";

DType type_of_sums(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// The rank's tensors of a backward pass, [batch, heads, rows, dim].
struct LocalGradients {
  TensorView dout;
  TensorView lse, dlse;  // as they were given
  MutableTensorView dq, dk, dv;
};

class Backward {
 public:
  Backward(Call& call, const LocalGradients& local, const AttentionGradients& gradients)
      : call_(call),
        keys_(call),
        rows_(call, inputs_of(call, local)),
        dq_(call, {local.dq}),
        dkv_(call.messages, needed_keys(call), {local.dk, local.dv}, types_of_sums(call)),
        options_(call, gradients),
        has_dlse_(static_cast<bool>(local.dlse)) {}

  void run() {
    const ProgressHook hook([this] { call_.messages.make_progress(); });
    call_.messages.guard({keys_.open(), rows_.open(), dq_.open(), dkv_.open()}, [&] {
      post(0);
      for (std::int64_t step = 0; step < call_.steps(); ++step) {
        keys_.wait(step);
        rows_.wait(step);
        if (step + 1 < call_.steps()) post(step + 1);
        dq_.begin(step);
        compute(step);
        dq_.post(step);
        dkv_.post(step, {dk_.numbers, dv_.numbers}, sums_.begin);
        if (step > 0) finish(step - 1);
      }
      if (call_.steps() > 0) finish(call_.steps() - 1);
      keys_.finish();
      rows_.finish();
      dq_.finish();
      dkv_.finish();
      options_.add_up();
    });
    call_.end(error_);
  }

 private:
  enum Input : std::size_t { kQ, kO, kDout, kLse, kDlse };

  static std::vector<TensorView> inputs_of(const Call& call, const LocalGradients& local) {
    std::vector<TensorView> inputs{call.local.q, call.local.o, local.dout, as_column(local.lse)};
    if (local.dlse) inputs.push_back(as_column(local.dlse));
    return inputs;
  }
  static std::vector<DType> types_of_sums(const Call& call) {
    return {type_of_sums(call.local.k.dtype), type_of_sums(call.local.v.dtype)};
  }

  void post(std::int64_t step) {
    keys_.post(step);
    rows_.post(step);
  }
  void finish(std::int64_t step) {
    dq_.wait(step);
    dkv_.wait(step);
  }

  void compute(std::int64_t step) {
    const Plan::Unit unit = call_.unit(step);
    if (!unit.exists) return;
    const std::vector<Plan::Piece> pieces = call_.plan->pieces(call_.rank(), unit.batch);
    make_room(pieces);
    if (error_) return;
    try {
      // The sums begin with the piece that covers all keys, if there is one.
      const auto widest = std::ranges::find(pieces, sums_, &Plan::Piece::keys);
      if (widest == pieces.end()) clear(dk_), clear(dv_);
      if (widest != pieces.end()) compute(step, unit, *widest, dk_.numbers, dv_.numbers);
      for (auto piece = pieces.begin(); piece != pieces.end(); ++piece)
        if (piece != widest) add(step, unit, *piece);
    } catch (const CommunicationError&) {
      throw;
    } catch (...) {
      error_ = std::current_exception();  // others still wait for this rank
    }
  }

  /// Room for dk and dv of all keys that the kernels are called with.
  void make_room(const std::vector<Plan::Piece>& pieces) {
    sums_ = {};
    for (const Plan::Piece& piece : pieces) sums_ = hull_of(sums_, piece.keys);
    dk_.resize(type_of_sums(call_.local.k.dtype), 1, sums_.size(), call_.local.k.shape[3]);
    dv_.resize(type_of_sums(call_.local.v.dtype), 1, sums_.size(), call_.local.v.shape[3]);
  }

  static void clear(Room& room) {
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
    const Run heads = call_.query_heads(unit);
    PieceOptions options(call_.options, call_.params(), piece, piece.keys, piece.keys, heads);
    const auto rows = [&](Input i) { return rows_.rows(i, step, piece.rows); };
    const auto column = [&](Input i) { return lse_as_call(rows(i).select(2, 0), packed); };
    AttentionOutcome outcome{
        .o = as_call(rows(kO), packed), .lse = column(kLse), .dout = as_call(rows(kDout), packed), .dlse = {}};
    if (has_dlse_) outcome.dlse = column(kDlse);
    OptionGradients::Part part = options_.part(options);
    AttentionGradients& gradients = part.gradients;
    gradients.dq = as_call(dq_.rows(0, step, piece.rows), packed);
    gradients.dk = as_call(dk, packed);
    gradients.dv = as_call(dv, packed);
    saccade::attention_backward(as_call(rows(kQ), packed), keys_.k(step, piece.keys), keys_.v(step, piece.keys),
                                outcome, gradients, options.options);
    options_.add(part, options);
  }

  Call& call_;
  Keys keys_;
  Rows rows_;
  Results dq_;
  Return dkv_;
  OptionGradients options_;
  bool has_dlse_;
  Run sums_{};  // the keys of dk_ and dv_
  Room dk_, dv_, more_dk_, more_dv_;
  std::exception_ptr error_;
};

void check_option_gradients(const AttentionGradients& gradients, const AttentionOptions& options, DType dtype) {
  for (const auto& row : kOptionGradients<MutableTensorView>) {
    const MutableTensorView& gradient = gradients.*row.gradient;
    const TensorView& option = options.*row.value;
    if (!gradient) continue;
    if (!option || option.dtype == DType::boolean)
      refuse(kBackward, row.name, " was given without ", option ? "numbers in " : "", row.option);
    check_dtype(kBackward, row.name, gradient, dtype);
    if (!std::ranges::equal(gradient.dims(), option.dims()))
      refuse(kBackward, row.name, " must have the shape of ", row.option, ", ", to_string(option.dims()),
             ", but it has shape ", to_string(gradient.dims()));
    if (gradient.data == nullptr && gradient.size() > 0)
      refuse(kBackward, row.name, " has no data (null pointer)");
  }
}

}  // namespace

void attention_backward(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const Division& division, const AttentionOptions& given) {
  AttentionOptions options = given;
  options.lse = {};
  Call call(communicator, kBackward, q, k, v, outcome.o, division, options, [&] {
    const BackwardArguments own(q, k, v, outcome,
                                {.dq = gradients.dq,
                                 .dk = gradients.dk,
                                 .dv = gradients.dv,
                                 .dmask = {},
                                 .dsinks = {},
                                 .dalibi_slopes = {}},
                                own_options(options));
    check_option_gradients(gradients, options, type_of_sums(q.dtype));
  });
  if (communicator.size() == 1) return saccade::attention_backward(q, k, v, outcome, gradients, options);
  LocalGradients local{.dout = as_headed(outcome.dout, options),
                       .lse = outcome.lse,
                       .dlse = outcome.dlse,
                       .dq = as_headed(gradients.dq, options),
                       .dk = as_headed(gradients.dk, options),
                       .dv = as_headed(gradients.dv, options)};
  Backward(call, local, gradients).run();
}

}  // namespace saccade::distributed
