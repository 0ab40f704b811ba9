#include "distributed/option_gradients.h"

#include <iterator>

#include "distributed/sums.h"

namespace saccade::distributed {
namespace {

constexpr auto& kGradients = kOptionGradients<MutableTensorView>;

}  // namespace

OptionGradients::OptionGradients(Call& call, const AttentionGradients& gradients)
    : call_(call), wanted_(gradients), sums_(std::size(kGradients)) {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const MutableTensorView& wanted = gradients.*kGradients[i].gradient;
    if (wanted) sums_[i] = Tensor(wanted.dtype, Shape(wanted.dims().begin(), wanted.dims().end()));
  }
}

OptionGradients::Part OptionGradients::part(const PieceOptions& piece) const {
  Part part;
  part.memory.resize(sums_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (sums_[i].rank() == 0) continue;
    const TensorView option = piece.options.*kGradients[i].value;
    part.memory[i] = Tensor(sums_[i].dtype(), Shape(option.dims().begin(), option.dims().end()));
    part.gradients.*kGradients[i].gradient = part.memory[i];
  }
  return part;
}

void OptionGradients::add(const Part& part, const PieceOptions& piece) {
  for (std::size_t i = 0; i < sums_.size(); ++i)
    if (sums_[i].rank() > 0) add_numbers(part.memory[i], piece.cut(kGradients[i].value, sums_[i].mutable_view()));
}

void OptionGradients::add_up() {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (sums_[i].rank() == 0) continue;
    const Buffer memory = make_buffer(sums_[i].bytes());
    const MutableTensorView other(memory.get(), sums_[i].dtype(), sums_[i].shape());
    Batch batch;
    const auto wait = [&] { call_.messages.wait(batch, "gradients of " + std::string(kGradients[i].option)); };
    for (int rank = 1; rank < call_.messages.size() && call_.rank() == 0; ++rank) {
      call_.messages.receive(batch, rank, other, memory);
      wait();
      add_numbers(other, sums_[i].mutable_view());
    }
    for (int rank = 1; rank < call_.messages.size() && call_.rank() == 0; ++rank)
      call_.messages.send(batch, rank, sums_[i]);
    if (call_.rank() > 0) {
      call_.messages.send(batch, 0, sums_[i]);
      call_.messages.receive(batch, 0, other, memory);
    }
    wait();
    copy(call_.rank() == 0 ? sums_[i].view() : TensorView(other), wanted_.*kGradients[i].gradient);
  }
}

}  // namespace saccade::distributed
