// The calls that XLA makes for saccade_jax: attention and its gradients.
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include <xla/ffi/api/ffi.h>
#include "call.h"
#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"

namespace saccade::jax {
namespace {

using Attention = void (*)(const TensorView&, const TensorView&, const TensorView&, const MutableTensorView&,
                           const AttentionOptions&);

/// Runs a call; exceptions become XLA's errors, which reach Python as exceptions with the same text.
template <class Run>
ffi::Error guarded(Run run) {
  try {
    run();
    return ffi::Error::Success();
  } catch (const std::invalid_argument& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::bad_alloc&) {
    return {ffi::ErrorCode::kResourceExhausted, "[attention] memory ran out"};
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

bool suits_decode(const TensorView& q, const TensorView& k, Layout layout) {
  const bool bshd = layout == Layout::bshd;
  const std::size_t heads = bshd ? 2 : 1, rows = bshd ? 1 : 2;
  return k.shape[heads] > 0 && is_decode_faster(q.shape[rows], k.shape[rows], q.shape[heads] / k.shape[heads]);
}

ffi::Error forward(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return guarded([&] {
    const Call call(operands, results, attributes, Pass::forward);
    const bool may_decode = call.attribute<std::int64_t>("may_decode") != 0;
    for (std::int64_t part = 0; part < call.parts(); ++part) {
      AttentionOptions options = call.options(part);
      options.lse = call.result("lse", part);
      const TensorView q = call.operand("q", part), k = call.operand("k", part), v = call.operand("v", part);
      const bool decodes = may_decode && suits_decode(q, k, options.layout);
      (decodes ? Attention(&decode) : Attention(&attention))(q, k, v, call.result("o", part), options);
    }
  });
}

ffi::Error backward(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  return guarded([&] {
    const Call call(operands, results, attributes, Pass::backward);
    for (std::int64_t part = 0; part < call.parts(); ++part) {
      AttentionGradients gradients{
          .dq = call.result("dq", part), .dk = call.result("dk", part), .dv = call.result("dv", part)};
      for (const auto& option : kOptionGradients<MutableTensorView>)
        gradients.*option.gradient = call.result(option.name, part);
      attention_backward(call.operand("q", part), call.operand("k", part), call.operand("v", part),
                         {.o = call.operand("o", part),
                          .lse = call.operand("lse", part),
                          .dout = call.operand("dout", part),
                          .dlse = call.operand("dlse", part)},
                         gradients, call.options(part));
    }
  });
}

}  // namespace
}  // namespace saccade::jax

extern "C" [[gnu::visibility("default")]] XLA_FFI_Error* saccade_jax_forward(XLA_FFI_CallFrame* frame);
extern "C" [[gnu::visibility("default")]] XLA_FFI_Error* saccade_jax_backward(XLA_FFI_CallFrame* frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(saccade_jax_forward, saccade::jax::forward,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(saccade_jax_backward, saccade::jax::backward,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
