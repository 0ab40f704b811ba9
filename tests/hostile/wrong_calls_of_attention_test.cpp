// Wrong calls of attention and of what belongs to it: states, gradients, caches, inspection, embeddings of
// positions.
#include <utility>

#include "hostile/attention_arguments.h"
#include "hostile/wrong_calls.h"
#include "saccade/attention_options.h"
#include "saccade/attention_state.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/head_scores.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/layer_attention.h"
#include "saccade/operations.h"
#include "saccade/quantize.h"
#include "saccade/rope.h"

namespace saccade::test {
namespace {

AttentionOptions options_for_attention(Arguments& a) {
  AttentionOptions options;
  draw_options(a, options);
  draw_reports(a, options);
  return options;
}

void call_packed(Arguments& a) {
  AttentionOptions options;
  options.cu_seqlens_q = a.view_of("cu_seqlens_q", Tensor::of<std::int64_t>({0, 2, 2, 6}));
  options.cu_seqlens_k = a.view_of("cu_seqlens_k", Tensor::of<std::int32_t>({0, 4, 5, 9}));
  if (a.below(2) == 0) options.causal = a.choice("causal", {Causal::top_left, Causal::bottom_right});
  if (a.below(2) == 0) options.kv_lengths = a.view_of("kv_lengths", Tensor::of<std::int64_t>({3, 1, 0}));
  attention(a.tensor("q", {6, 4, 16}), a.tensor("k", {9, 2, 16}), a.tensor("v", {9, 2, 8}),
            a.result("o", {6, 4, 8}), options);
}

void call_paged(Arguments& a) {
  AttentionOptions options;
  options.layout = a.choice("layout", {Layout::bshd});
  options.block_table = a.view_of("block_table", Tensor::copy_of(Tensor::of<std::int32_t>({{3, 1}, {0, 2}})));
  options.kv_lengths = a.view_of("kv_lengths", Tensor::of<std::int64_t>({7, 5}));
  if (a.below(2) == 0) options.window_left = a.number("window_left", 3);
  decode(a.tensor("q", {2, 1, 4, 16}), a.tensor("k", {4, 4, 2, 16}), a.tensor("v", {4, 4, 2, 8}),
         a.result("o", {2, 1, 4, 8}), options);
}

/// Keys and values of 8 or 4 bits, with their scales.
void call_quantized(Arguments& a) {
  const QuantizedTensor k = quantize(random_tensor(kK, 1), a.one_of({DType::i8, DType::f8e4m3, DType::i4})),
                        v = quantize(random_tensor(kV, 2), DType::i8);
  AttentionOptions options;
  options.k_scale = a.view_of("k_scale", k.scale);
  options.v_scale = a.view_of("v_scale", v.scale);
  options.k_rotated = a.below(2) == 0;
  if (k.multipliers.rank() != 0) options.k_multipliers = a.view_of("k_multipliers", k.multipliers);
  const TensorView keys = k.dtype == DType::i4 ? k.view() : a.view_of("k", k.numbers);
  attention(a.tensor("q", kQ), keys, a.view_of("v", v.numbers), a.result("o", kO), options);
}

void call_backward(Arguments& a) {
  AttentionOptions options;
  draw_options(a, options);
  AttentionOutcome outcome{a.tensor("o", kO), a.tensor("lse", kLse), a.tensor("dout", kO)};
  if (a.below(4) == 0) outcome.dlse = a.tensor("dlse", kLse);
  AttentionGradients gradients{a.result("dq", kQ), a.result("dk", kK), a.result("dv", kV)};
  if (options.mask && options.mask.dtype == DType::f32 && a.below(2) == 0)
    gradients.dmask = a.result("dmask", Shape(options.mask.dims().begin(), options.mask.dims().end()));
  if (options.sinks && a.below(2) == 0) gradients.dsinks = a.result("dsinks", {4});
  if (options.alibi_slopes && a.below(2) == 0) gradients.dalibi_slopes = a.result("dalibi_slopes", {4});
  attention_backward(a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), outcome, gradients, options);
}

void call_state(Arguments& a) {
  AttentionState state(a.below(2) == 0 ? std::optional(a.dtype("output", DType::f32)) : std::nullopt);
  AttentionOptions options;
  draw_options(a, options);
  const TensorView q = a.tensor("q", kQ);
  state.add(q, a.tensor("k", kK), a.tensor("v", kV), options);
  if (a.below(2) == 0) {  // later keys, with the options of the first
    options.origin.key += a.number("origin", 0);
    state.add(q, a.tensor("k", kK), a.tensor("v", kV), options);
  }
  AttentionState moved = std::move(state);
  AttentionOptions of_finish;
  if (a.below(2) == 0) of_finish.lse = a.result("lse", kLse);
  moved.finish(a.result("o", kO), of_finish);
  moved.bytes();
}

InspectOptions inspection_of(Arguments& a) {
  const auto is_given = [&] { return a.below(3) == 0; };
  InspectOptions wanted;
  if (is_given()) wanted.rows = a.numbers("rows", {0, 5});
  if (is_given()) wanted.top_k = a.number("top_k", 3);
  if (is_given()) wanted.index_dtype = a.dtype("index_dtype", DType::i32);
  wanted.entropy = is_given();
  wanted.received = is_given();
  wanted.distance = is_given();
  if (is_given()) {
    wanted.pool_rows = a.number("pool_rows", 2);
    wanted.pool_keys = a.number("pool_keys", 3);
    wanted.pooling = a.choice("pooling", {Pooling::mean, Pooling::max});
  }
  if (is_given()) wanted.lse = a.tensor("lse", kLse);
  return wanted;
}

void call_states_of_splits(Arguments& a) {
  AttentionOptions options;
  draw_options(a, options);
  const TensorView q = a.tensor("q", kQ), k = a.tensor("k", kK), v = a.tensor("v", kV);
  decode_states(q, k, v, a.result("states", {1, 2, 4, 6, 11}), options);
  const Tensor states = decode_states(q, k, v, options);
  merge_decode_states(q, k, v, a.view_of("states", states), a.result("o", kO), options);
}

void call_merge(Arguments& a) {
  const TensorView o = a.tensor("o_a", kO), lse = a.tensor("lse_a", kLse);
  merge_states(o, lse, a.tensor("o_b", kO), a.tensor("lse_b", kLse), a.result("o", kO), a.result("lse", kLse),
               a.choice("layout", {Layout::bhsd}));
}
void call_merge_of_parts(Arguments& a) {
  const PartialResult parts[] = {{a.tensor("parts", kO), a.tensor("parts", kLse)},
                                 {a.tensor("parts", kO), a.tensor("parts", kLse)}};
  merge_states(std::span(parts, a.below(3)), a.result("o", kO), a.result("lse", kLse), Layout::bhsd);
}

// ---- Caches --------------------------------------------------------------------------------------------------

KvCacheOptions options_of_cache(Arguments& a) {
  const auto is_given = [&] { return a.below(4) == 0; };
  KvCacheOptions options{.batch = a.number("batch", 2),
                         .num_kv_heads = a.number("num_kv_heads", 2),
                         .head_dim = a.number("head_dim", 16)};
  if (is_given()) options.head_dim_v = a.number("head_dim_v", 8);
  if (is_given()) options.dtype = a.dtype("dtype", DType::i8);
  if (is_given()) options.dtype_v = a.dtype("dtype_v", DType::bf16);
  if (is_given()) options.page_size = a.number("page_size", 4);
  if (is_given()) options.window = a.number("window", 4);
  if (is_given()) options.causal = false, options.window = -1;
  if (is_given()) options.rope = Rope(a.is_wrong("rope") ? 8 : 16);
  if (is_given()) options.capacity = a.number("capacity", 10);
  return options;
}

KvCache filled_cache(Arguments& a) {
  KvCache cache({.batch = 2,
                 .num_kv_heads = 2,
                 .head_dim = 16,
                 .dtype = a.one_of({DType::f32, DType::bf16, DType::i8, DType::i4}),
                 .page_size = a.one_of<std::int64_t>({0, 4}),
                 .window = a.one_of<std::int64_t>({-1, 4})});
  cache.append(random_tensor({2, 2, 5, 16}, 1), random_tensor({2, 2, 5, 16}, 2));
  return cache;
}

void call_new_cache(Arguments& a) {
  KvCache cache(options_of_cache(a));
  const KvCacheOptions& config = cache.config();
  cache.append(random_tensor({config.batch, config.num_kv_heads, 3, config.head_dim}, 1),
               random_tensor({config.batch, config.num_kv_heads, 3, config.head_dim_v}, 2));
  KvCache moved = std::move(cache);
  cache = KvCache({.head_dim = 4});
  moved.dequantize_k();
}

void call_append(Arguments& a) {
  KvCache cache = filled_cache(a);
  const Layout layout = a.choice("layout", {Layout::bhsd});
  if (a.below(2) == 0) return cache.append(a.tensor("k", {2, 2, 3, 16}), a.tensor("v", {2, 2, 3, 16}), layout);
  cache.append(a.number("sequence", 1), a.tensor("k", {2, 3, 16}), a.tensor("v", {2, 3, 16}), layout);
}

void call_numbers_of_cache(Arguments& a) {
  KvCache cache = filled_cache(a);
  cache.length(a.number("sequence", 0));
  cache.first_kept(a.number("sequence", 1));
  cache.start(a.number("sequence", 1));
  cache.set_start(a.number("sequence", 1), a.number("start", 2));
  cache.positions(a.number("count", 3));
  cache.k(a.choice("layout", {Layout::bhsd, Layout::bshd}));
  cache.v(a.choice("layout", {Layout::bhsd, Layout::bshd}));
  cache.share_prefix(a.number("from", 0), a.number("to", 1), a.number("length", 5));
  cache.truncate(a.number("sequence", 0), a.number("length", 5));
  cache.clear(a.number("sequence", 1));
}

void call_over_cache(Arguments& a) {
  a.name("block_table");  // the cache's, which a q of another batch does not fit
  const KvCache cache = filled_cache(a);
  AttentionOptions options;
  if (a.below(3) == 0) options.softcap = a.real("softcap", 5.0);
  if (a.below(3) == 0) options.window_left = a.number("window_left", 3);
  if (a.below(4) == 0 && a.is_wrong("options")) contradict(a, options);
  const Shape one{2, 4, 1, 16};
  cache.options(options);
  attention(a.tensor("q", one), cache, a.result("o", one), options);
  attention(a.tensor("q", one), cache, options);
  decode(a.tensor("q", one), cache, a.result("o", one), options);
  decode(a.tensor("q", one), cache, options);
}

void call_from_state(Arguments& a) {
  a.name("i4");  // Tensor::copy_of() does not read it
  KvCacheState state = filled_cache(a).state();
  for (auto& [name, tensor] : state.tensors)
    if (a.is_wrong(name)) {
      Tensor other = a.owned(name, tensor.shape(), tensor.dtype());
      tensor = a.below(2) == 0 ? std::move(other) : Tensor::copy_of(a.view_of(name, tensor));
    }
  for (auto& [name, text] : state.metadata) text = a.text(name, text);
  if (a.below(4) == 0 && a.is_wrong("surplus")) state.tensors.emplace("surplus", Tensor(DType::f32, {1}));
  if (a.below(4) == 0 && a.is_wrong("lengths")) state.tensors.erase(state.tensors.begin());
  KvCache::from_state(state).dequantize_v();
}

// ---- Everything else -------------------------------------------------------------------------------------------

void call_edit(Arguments& a) {
  LayerAttention layer;
  layer.layer = 1;
  const Tensor q = random_tensor({6, 4, 16}, 1), k = random_tensor({9, 2, 16}, 2), v = random_tensor({9, 2, 8}, 3);
  layer.q = q, layer.k = k, layer.v = v;
  layer.options.layout = Layout::bshd;
  layer.o = a.result("o", {6, 4, 8});
  if (layer.o.rank != 3) return;  // a model's hook gets a whole layer
  HeadEdit edit{.place = {a.number("layer", 1), a.number("head", 3)},
                .replaced_by = a.choice("replaced_by", {Ablation::zero, Ablation::mean})};
  if (a.below(2) == 0) edit.weights = a.tensor("weights", {6, 9});
  const HeadEdit edits[] = {edit};
  Tensor o(DType::f32, {6, 4, 8});
  layer.o = o;
  edit_heads(layer, edits);
}

RopeOptions options_of_rope(Arguments& a) {
  RopeOptions options;
  if (a.below(2) == 0) options.base = a.real("base", 1e4);
  if (a.below(2) == 0) options.scaling_factor = a.real("scaling_factor", 2.0);
  if (a.below(2) == 0) options.rotary_dim = a.number("rotary_dim", 8);
  options.pairs = a.choice("pairs", {RopePairs::half, RopePairs::interleaved});
  if (a.below(3) == 0) options.frequencies.assign(options.rotary_dim == 8 ? 4 : 8, a.real("frequencies", 0.5));
  if (a.below(8) == 0 && a.is_wrong("frequencies")) options.frequencies.push_back(1.0);
  return options;
}

std::vector<Caller> attention_callers() {
  return {
      {{"attention(q, k, v, o)"},
       [](Arguments& a) {
         const AttentionOptions options = options_for_attention(a);
         attention(a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), a.result("o", kO), options);
       }},
      {{"attention(q, k, v)"},
       [](Arguments& a) {
         attention(a.tensor("q", {3, 4}), a.tensor("k", {5, 4}), a.tensor("v", {5, 2}));
       }},
      {{"attention(q, k, v, o)", "attention(q, k, v)"}, call_packed},
      {{"decode(q, k, v, o)"}, call_paged},
      {{"attention(q, k, v, o)"}, call_quantized},
      {{"decode(q, k, v, o)", "decode(q, k, v)"},
       [](Arguments& a) {
         const AttentionOptions options = options_for_attention(a);
         if (a.below(2) == 0)
           decode(a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), a.result("o", kO), options);
         else
           decode(a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), options);
       }},
      {{"attention_backward(q, k, v, outcome, gradients)"}, call_backward},
      {{"AttentionState::add(q, k, v)", "AttentionState::finish(o)", "AttentionState::AttentionState(output)"},
       call_state},
      {{"inspect(q, k)"},
       [](Arguments& a) {
         const InspectOptions wanted = inspection_of(a);
         AttentionOptions options;
         draw_options(a, options);
         inspect(a.tensor("q", kQ), a.tensor("k", kK), wanted, options);
       }},
      {{"decode_states(q, k, v, states)", "decode_states(q, k, v)", "merge_decode_states(q, k, v, states, o)"},
       call_states_of_splits},
      {{"merge_states(o_a, lse_a, o_b, lse_b, o, lse, layout)"}, call_merge},
      {{"merge_states(parts, o, lse, layout)"}, call_merge_of_parts},
      {{"is_decode_faster(seqlen_q, seqlen_k, group)"},
       [](Arguments& a) {
         is_decode_faster(a.number("seqlen_q", 1), a.number("seqlen_k", 600), a.number("group", 1));
       }},
      {{"attention_operations(q, k, v)"},
       [](Arguments& a) {
         AttentionOptions options;
         draw_options(a, options);
         attention_operations(a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), options);
       }},
      {{"alibi_slopes(num_heads)"}, [](Arguments& a) { alibi_slopes(a.number("num_heads", 12)); }},
      {{"KvCache::KvCache()"}, call_new_cache},
      {{"KvCache::append(k, v, layout)", "KvCache::append(sequence, k, v, layout)"}, call_append},
      {{"KvCache::length(sequence)", "KvCache::first_kept(sequence)", "KvCache::start(sequence)",
        "KvCache::set_start(sequence, start)", "KvCache::positions(count)", "KvCache::k(layout)",
        "KvCache::v(layout)", "KvCache::share_prefix(from, to, length)", "KvCache::truncate(sequence, length)",
        "KvCache::clear(sequence)"},
       call_numbers_of_cache},
      {{"attention(q, cache, o)", "attention(q, cache)", "decode(q, cache, o)", "decode(q, cache)",
        "KvCache::options()"},
       call_over_cache},
      {{"KvCache::from_state(state)"}, call_from_state, Throws::invalid_argument, {"copy"}},
      {{"edit_heads(layer, edits)"}, call_edit},
      {{"Rope::Rope(dim)"}, [](Arguments& a) { Rope(a.number("dim", 16), options_of_rope(a)).options(); }},
      {{"Rope::rotate(x, y, start, layout)"},
       [](Arguments& a) {
         const TensorView x = a.tensor("x", kQ);
         Rope(16).rotate(x, a.result("y", kQ), a.number("start", 7),
                         a.choice("layout", {Layout::bhsd, Layout::bshd}));
       }},
      {{"Rope::rotate(x, y, positions, layout)"},
       [](Arguments& a) {
         const TensorView x = a.tensor("x", kQ);
         const Tensor positions = Tensor::of<std::int64_t>({0, 1, 2, 5, 5, 9});
         Rope(16).rotate(x, a.result("y", kQ), a.view_of("positions", positions), Layout::bhsd);
       }},
      {{"induction_scores(weights, tokens)"},
       [](Arguments& a) {
         induction_scores(a.tensor("weights", {2, 3, 4, 4}),
                          a.view_of("tokens", Tensor::of<std::int64_t>({{1, 2, 1, 2}, {3, 1, 2, 3}})));
       }},
      {{"previous_token_scores(weights)"},
       [](Arguments& a) {
         previous_token_scores(a.tensor("weights", {2, 3, 4, 4}));
       }},
      {{"head_statistics(weights, tokens)"},
       [](Arguments& a) {
         head_statistics(a.tensor("weights", {4, 4}), a.numbers("tokens", {1, 2, 1, 2}));
       }},
      {{"head_statistics(weight, tokens)"},
       [](Arguments& a) {
         std::function<double(std::int64_t, std::int64_t)> weight = [](std::int64_t, std::int64_t) { return 0.5; };
         if (a.is_wrong("weight")) weight = {};
         head_statistics(weight, a.numbers("tokens", {1, 2, 1, 2}));
       }},
  };
}

const std::map<std::string, std::string> kNotCalled{
    {"ScoreTile::row(i)", "an address in a tile that the library made"},
    {"option_use(name)", "a constant of the compiler"},
    {"current_option_name(name)", "a look-up of text"},
    {"option_name(value)", "a look-up of an enumeration"},
    {"option_value(name)", "a look-up of text"},
    {"OptionDraw::OptionDraw(chance, list)", "a constant of the compiler"},
    {"AttentionOption::name_or(given)", "a look-up of text"},
    {"options_of_role(role)", "a copy of options"},
};

TEST(WrongCallsOfAttention, AreRefusedInTheHousesForm) { make_wrong_calls(attention_callers(), 10'000); }

TEST(WrongCallsOfAttention, CoverEveryFunction) {
  expect_all_called(
      {"attention.h", "attention_conflicts.h", "attention_options.h", "attention_state.h", "backward.h",
       "decode.h", "head_scores.h", "inspect.h", "kv_cache.h", "layer_attention.h", "operations.h", "rope.h"},
      attention_callers(), kNotCalled);
}

}  // namespace
}  // namespace saccade::test
