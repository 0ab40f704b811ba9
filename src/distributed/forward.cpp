// distributed::attention() by all methods but pass_q: the inputs of a step travel while the one before is
// computed.
#include <exception>

#include "core/parallel.h"
#include "distributed/exchange.h"
#include "distributed/runs.h"

namespace saccade::distributed {
namespace {

class Forward {
 public:
  explicit Forward(Call& call)
      : call_(call),
        plan_(*call.plan),
        local_(call.local),
        exchange_(call.messages, plan_, {local_.k, local_.v}, {local_.q}) {}

  void run() {
    call_.messages.guard(exchange_.open(), [&] {
      exchange_.post(0);
      for (std::int64_t step = 0; step < plan_.steps(); ++step) {
        exchange_.wait(step);
        if (step + 1 < plan_.steps()) exchange_.post(step + 1);
        compute(step);
      }
      exchange_.finish();
    });
    call_.end(error_);
  }

 private:
  /// Where this rank's rows are its own, results are written in place.
  void compute(std::int64_t step) {
    const Plan::Unit unit = plan_.unit(call_.messages.rank(), step);
    MutableTensorView o, lse;  // [heads, rows, dim], [heads, rows, 1]
    if (unit.exists) {
      make_results(unit, o, lse);
      for (const Plan::Piece& piece : plan_.pieces(call_.messages.rank(), unit.batch)) {
        if (error_) break;
        try {
          compute(step, unit, piece, o, lse);
        } catch (...) {
          error_ = std::current_exception();  // others still wait for this rank's keys
        }
      }
    }
    if (!exchange_.shares_rows()) return;
    exchange_.return_rows(step, o, local_.o);
    if (local_.lse) exchange_.return_rows(step, lse, lses());
  }

  /// lse as rows of one number.
  MutableTensorView lses() const {
    MutableTensorView view = local_.lse;
    view.shape[view.rank] = 1;
    view.strides[view.rank++] = 1;
    return view;
  }

  void make_results(const Plan::Unit& unit, MutableTensorView& o, MutableTensorView& lse) {
    const Run heads = exchange_.query_heads(unit);
    const auto of_unit = [&](const MutableTensorView& view) {
      return view.select(0, unit.batch).slice(0, heads.begin, heads.end);
    };
    if (!exchange_.shares_rows()) {
      o = of_unit(local_.o);
      if (local_.lse) lse = of_unit(lses());
      return;
    }
    const std::int64_t rows = exchange_.row_index().rows();
    o_.resize(local_.o.dtype, heads.size(), rows, local_.o.shape[3]);
    o = o_.numbers;
    if (!local_.lse) return;
    lse_.resize(local_.lse.dtype, heads.size(), rows, 1);
    lse = lse_.numbers;
  }

  void compute(std::int64_t step, const Plan::Unit& unit, const Plan::Piece& piece, const MutableTensorView& o,
               const MutableTensorView& lse) {
    const bool is_packed = call_.is_packed();
    const std::int64_t row = exchange_.row_index()[piece.rows.begin], end = row + piece.rows.size();
    const Run held = piece.keys, heads = exchange_.query_heads(unit);
    PieceOptions call(call_.options, call_.params(), piece, held, held, heads);
    if (lse) call.options.lse = lse_as_call(lse.slice(1, row, end).select(2, 0), is_packed);
    const auto keys = [&](std::size_t i) {
      const std::int64_t first = held.size() > 0 ? exchange_.first_key(step) : held.begin;
      return as_call(exchange_.keys(i, step).slice(1, held.begin - first, held.end - first), is_packed);
    };
    saccade::attention(as_call(exchange_.rows(0, step).slice(1, row, end), is_packed), keys(0), keys(1),
                       as_call(o.slice(1, row, end), is_packed), call.options);
  }

  Call& call_;
  const Plan& plan_;
  const LocalTensors& local_;
  Exchange exchange_;
  Room o_, lse_;
  std::exception_ptr error_;
};

}  // namespace

void attention(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
               const MutableTensorView& o, const Division& division, const AttentionOptions& options) {
  Call call(communicator, "distributed::attention", q, k, v, o, division, options);
  if (communicator.size() == 1) return saccade::attention(q, k, v, o, options);
  Forward(call).run();
}

}  // namespace saccade::distributed
