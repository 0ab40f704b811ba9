// Draws random problems, the same in every run, solves each on every instruction set of the machine and prints one
// line per problem: the problem as text and a hash of its results. `script/compare_bits` compiles this program
// against the libraries of two revisions and compares the outputs, so it uses only public headers that both have.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "call.h"
#include "count.h"

namespace saccade::bits {
namespace {

/// A problem during its drawing and solution.
struct Problem {
  Random random;
  Memory memory{random};
  std::ostringstream text;
  Hash hash;

  explicit Problem(std::uint64_t seed) : random(seed) { random.next(); }
};

void solve_attention(Problem& problem) {
  Call call(problem.random, problem.memory, problem.text, For::attention);
  call.draw_reports();
  attention(call.q, call.k, call.v, call.make_o(), call.options);
}

void solve_decode(Problem& problem) {
  Call call(problem.random, problem.memory, problem.text, For::decode);
  call.draw_reports();
  decode(call.q, call.k, call.v, call.make_o(), call.options);
}

void solve_backward(Problem& problem) {
  Random& random = problem.random;
  Memory& memory = problem.memory;
  Call call(random, memory, problem.text, For::backward);
  const MutableTensorView o = call.make_o(), lse = call.make_lse();
  call.options.lse = lse;
  attention(call.q, call.k, call.v, o, call.options);
  const auto like = [&](const TensorView& view, DType type) {
    return memory.output(Shape(view.dims().begin(), view.dims().end()), type);
  };
  const TensorView dout = memory.input(Shape(o.dims().begin(), o.dims().end()), call.any_type());
  AttentionGradients gradients;
  gradients.dq = like(call.q, call.any_type());
  gradients.dk = like(call.k, call.any_type());
  gradients.dv = like(call.v, call.any_type());
  const AttentionOptions& options = call.options;
  if (options.mask && options.mask.dtype != DType::boolean && random.chance(0.5))
    gradients.dmask = like(options.mask, call.wide_type());
  if (options.sinks && random.chance(0.7)) gradients.dsinks = like(options.sinks, call.wide_type());
  if (options.alibi_slopes && random.chance(0.7))
    gradients.dalibi_slopes = like(options.alibi_slopes, call.wide_type());
  attention_backward(call.q, call.k, call.v, {.o = o, .lse = lse, .dout = dout}, gradients, options);
}

void solve_inspect(Problem& problem) {
  Random& random = problem.random;
  Call call(random, problem.memory, problem.text, For::inspect);
  InspectOptions wanted;
  if (random.chance(0.4) && call.rows() > 0) {
    wanted.rows = {call.rows() - 1};
    if (call.rows() > 2) wanted.rows.push_back(call.rows() / 2);
  }
  if (random.chance(0.5)) wanted.top_k = random.from(1, 12);
  if (random.chance(0.3)) wanted.index_dtype = DType::i32;
  wanted.entropy = random.chance(0.5);
  wanted.max_weight = random.chance(0.5);
  wanted.received = random.chance(0.5);
  wanted.distance = random.chance(0.5);
  if (random.chance(0.4)) {
    wanted.pool_rows = random.from(1, 20);
    wanted.pool_keys = random.from(1, 20);
    wanted.pooling = random.one_of({Pooling::mean, Pooling::max});
  }
  const MutableTensorView lse = call.make_lse();
  if (random.chance(0.4)) {
    call.options.lse = lse;
    attention(call.q, call.k, call.v, call.make_o(), call.options);
    call.options.lse = {};
    wanted.lse = lse;
  }
  problem.text << " wanted=" << wanted.rows.size() << ',' << wanted.top_k << ',' << wanted.entropy
               << wanted.max_weight << wanted.received << wanted.distance << ',' << wanted.pool_rows << 'x'
               << wanted.pool_keys;
  const Inspection found = inspect(call.q, call.k, wanted, call.options);
  for (const Tensor* result : {&found.rows, &found.top_keys, &found.top_weights, &found.entropy, &found.max_weight,
                               &found.received, &found.distance, &found.mean_distance, &found.pooled})
    problem.hash.add(*result);
}

/// linear() and its gradients.
void solve_linear(Problem& problem) {
  Random& random = problem.random;
  Memory& memory = problem.memory;
  const std::int64_t rows = random.one_of({1, 2, 6, 33, 100, 260}), d_in = random.one_of({1, 3, 24, 64, 130, 300});
  const std::int64_t d_out = random.one_of({1, 4, 16, 65, 128, 310});
  LinearOptions options;
  options.weight_layout = random.one_of({WeightLayout::in_out, WeightLayout::out_in});
  options.num_threads = static_cast<int>(random.from(1, 3));
  const bool is_in_out = options.weight_layout == WeightLayout::in_out, is_rank_3 = random.chance(0.3);
  const auto shape = [&](std::int64_t width) { return is_rank_3 ? Shape{2, rows, width} : Shape{rows, width}; };
  const Shape weight_shape = is_in_out ? Shape{d_in, d_out} : Shape{d_out, d_in};
  const TensorView x = memory.input(shape(d_in), DType::f32), weight = memory.input(weight_shape, DType::f32);
  const Tensor bias = TorchGenerator(1).rand({d_out});
  if (random.chance(0.5)) options.bias = bias;
  problem.text << " rows=" << rows << " in=" << d_in << " out=" << d_out << (is_in_out ? " in_out" : "")
               << (is_rank_3 ? " rank=3" : "") << (options.bias ? " bias" : "")
               << " threads=" << options.num_threads;
  linear(x, weight, memory.output(shape(d_out), DType::f32), options);
  LinearGradients gradients;
  if (random.chance(0.8)) gradients.dx = memory.output(shape(d_in), DType::f32);
  if (random.chance(0.8)) gradients.dweight = memory.output(weight_shape, DType::f32);
  if (random.chance(0.8)) gradients.dbias = memory.output({d_out}, DType::f32);
  gradients.accumulate = random.chance(0.3);
  linear_backward(x, weight, memory.input(shape(d_out), DType::f32), gradients, options);
}

/// Appends new tokens to a cache, and computes their attention over it.
void solve_cache(Problem& problem) {
  Random& random = problem.random;
  Memory& memory = problem.memory;
  KvCacheOptions of{.batch = random.from(1, 3), .num_kv_heads = random.from(1, 3)};
  of.head_dim = random.one_of({8, 32, 64, 128});
  of.dtype = random.one_of({DType::f32, DType::bf16, DType::f16});
  of.page_size = random.one_of({0, 0, 4, 16});
  of.window = random.chance(0.3) ? random.from(1, 40) : -1;
  if (random.chance(0.3)) of.rope.emplace(of.head_dim);
  problem.text << " b=" << of.batch << " hkv=" << of.num_kv_heads << " d=" << of.head_dim
               << " dtype=" << name_of(of.dtype) << " page=" << of.page_size << " window=" << of.window
               << (of.rope ? " rope" : "");
  KvCache cache(of);
  const std::int64_t heads = of.num_kv_heads * random.from(1, 3);
  for (const std::int64_t tokens : {random.from(1, 120), std::int64_t{1}, random.from(1, 5)}) {
    const Shape new_keys{of.batch, of.num_kv_heads, tokens, of.head_dim};
    cache.append(memory.input(new_keys, DType::f32), memory.input(new_keys, DType::f32));
    const Shape shape{of.batch, heads, tokens, of.head_dim};
    const TensorView q = memory.input(shape, DType::f32);
    attention(q, cache, memory.output(shape, DType::f32));
    decode(q, cache, memory.output(shape, DType::f32), {.num_threads = static_cast<int>(random.from(1, 3))});
  }
}

/// A module with parameters, forward and backward, and a loss.
void solve_module(Problem& problem) {
  Random& random = problem.random;
  Memory& memory = problem.memory;
  const std::int64_t batch = random.from(1, 3), seqlen = random.one_of({1, 6, 40, 150});
  const std::int64_t heads = random.from(1, 4), width = heads * random.one_of({4, 16, 64});
  TorchGenerator generator(random.next());
  MultiHeadAttention heads_of({.d_in = width,
                               .d_out = width,
                               .num_heads = heads,
                               .causal = random.chance(0.5),
                               .dropout = random.chance(0.3) ? 0.2 : 0.0,
                               .qkv_bias = random.chance(0.5),
                               .add_bias_kv = random.chance(0.2),
                               .add_zero_attn = random.chance(0.2)},
                              generator);
  FeedForward feed_forward(width, 3 * width, generator);
  LayerNorm norm(width);
  problem.text << " b=" << batch << " s=" << seqlen << " h=" << heads << " width=" << width
               << " causal=" << heads_of.config().causal << " dropout=" << heads_of.config().dropout
               << " zero=" << heads_of.config().add_zero_attn;
  const TensorView x = memory.input({batch, seqlen, width}, DType::f32);
  const Tensor attended = heads_of.forward(x).output;
  const Tensor logits = feed_forward.forward(norm.forward(attended));
  Tensor gradient(DType::f32, logits.shape());
  const Tensor targets(DType::i64, {batch, seqlen});
  problem.hash.add(cross_entropy(logits, targets, {.dlogits = gradient}));
  problem.hash.add(logits);
  problem.hash.add(heads_of.backward(norm.backward(feed_forward.backward(gradient))).x);
  for (Module* module : std::initializer_list<Module*>{&heads_of, &norm, &feed_forward})
    for (const NamedParameter& parameter : module->parameters())
      if (parameter.gradient) problem.hash.add(Tensor::copy_of(parameter.gradient));
}

struct Kind {
  const char* name;
  void (*solve)(Problem&);
};

/// Problem i is of kind i modulo the number of kinds: kinds listed more often are drawn more often.
constexpr Kind kKinds[] = {
    {"attention", solve_attention}, {"attention", solve_attention}, {"attention", solve_attention},
    {"attention", solve_attention}, {"attention", solve_attention}, {"attention", solve_attention},
    {"backward", solve_backward},   {"backward", solve_backward},   {"backward", solve_backward},
    {"backward", solve_backward},   {"decode", solve_decode},       {"decode", solve_decode},
    {"decode", solve_decode},       {"inspect", solve_inspect},     {"inspect", solve_inspect},
    {"inspect", solve_inspect},     {"linear", solve_linear},       {"linear", solve_linear},
    {"cache", solve_cache},         {"module", solve_module},
};

void print_problem(std::uint64_t index) {
  const Kind& kind = kKinds[index % std::size(kKinds)];
  Problem problem(index);
  std::string outcome;
  try {
    kind.solve(problem);
    problem.memory.add_to(problem.hash);
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(problem.hash.value()));
    outcome = digits;
  } catch (const std::exception& error) {
    outcome = std::string("throws ") + error.what();
  }
  const std::string_view isa = name_of(active_isa());
  std::printf("%.*s %d %s%s: %s\n", static_cast<int>(isa.size()), isa.data(), static_cast<int>(index), kind.name,
              problem.text.str().c_str(), outcome.c_str());
}

}  // namespace
}  // namespace saccade::bits

// Usage: bits [PROBLEMS]
int main(int count, char** arguments) {
  const long problems = saccade::bits::count_of(count, arguments, 300);
  const bool has_isa = std::getenv("SACCADE_ISA") != nullptr;
  for (const saccade::Isa isa : has_isa ? std::vector{saccade::active_isa()} : saccade::available_isas()) {
    saccade::set_active_isa(isa);
    for (long index = 0; index < problems; ++index)
      saccade::bits::print_problem(static_cast<std::uint64_t>(index));
  }
}
