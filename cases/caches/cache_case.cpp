#include "cases/caches/cache_case.h"

#include <saccade/rope.h>

#include <algorithm>

#include "cases/options.h"
#include "cases/random.h"

namespace saccade::cases {
namespace {

using StepKind = CacheStep::Kind;

constexpr std::string_view kStepNames[] = {"append to all", "append",    "truncate", "clear",
                                           "share prefix",  "set start", "restore"};

}  // namespace

// ---- Drawing ---------------------------------------------------------------------------------------------------
// Everything is drawn, and then made simpler, so that what is left out changes nothing else.

class CacheCase::Drawing {
 public:
  Drawing(CacheCase& drawn, std::uint64_t seed, const Simplification& simpler)
      : c_(drawn), random_(seed ^ 0xcac4e5), simpler_(simpler) {}

  void draw() {
    draw_types();
    draw_sizes();
    draw_cache_options();
    draw_call();
    draw_steps();
  }

 private:
  bool keeps(const char* name) const { return !simpler_.leaves_out(name); }

  void draw_types() {
    const auto any = [&] { return random_.pick({DType::f32, DType::bf16, DType::f16}); };
    const auto quantized = [&] { return random_.pick({DType::i8, DType::i4, DType::f8e4m3}); };
    const double kind = random_.unit();
    DType q = any(), k = any(), v = random_.chance(0.7) ? k : any();
    const DType k_quantized = quantized(), v_quantized = random_.chance(0.6) ? k_quantized : quantized();
    if (kind > 0.35) k = k_quantized, v = v_quantized;
    if (kind > 0.8) (kind > 0.9 ? k : v) = q;
    const bool is_wide = kind < 0.08;
    if (is_wide) q = k = v = DType::f64;
    if (simpler_.f32) q = k = v = DType::f32;
    c_.q_type_ = q;
    c_.o_type_ = !is_wide && random_.chance(0.2) ? DType::f32 : q;
    c_.cache_.dtype = k;
    c_.cache_.dtype_v = v;
    const double rotate = random_.unit();
    if (rotate < 0.4) c_.cache_.rotate = rotate < 0.2;
    if (!keeps("k_rotated")) c_.cache_.rotate = false;
    if (!is_quantized(k) && v != DType::i4) c_.cache_.rotate.reset();
  }

  void draw_sizes() {
    const auto any_dim = [&] { return random_.pick<std::int64_t>({1, 4, 8, 16, 24, 48, 64, 64, 80, 128}); };
    KvCacheOptions& o = c_.cache_;
    o.batch = Simplification::capped(random_.uniform(1, 3), simpler_.batch);
    o.num_kv_heads = Simplification::capped(random_.uniform(1, 3), simpler_.kv_heads);
    if (simpler_.heads) o.num_kv_heads = std::min(o.num_kv_heads, *simpler_.heads);
    const std::int64_t group = random_.uniform(1, 4);
    c_.heads_ = Simplification::capped(o.num_kv_heads * group, simpler_.heads) / o.num_kv_heads * o.num_kv_heads;
    o.head_dim = Simplification::capped(any_dim(), simpler_.head_dim);
    const std::int64_t other = any_dim();
    o.head_dim_v = random_.chance(0.6) ? o.head_dim : Simplification::capped(other, simpler_.head_dim_v);
    c_.rows_ = random_.chance(0.5) ? 1 : random_.uniform(1, 20);
    c_.rows_ = Simplification::capped(c_.rows_, simpler_.seqlen_q);
  }

  void draw_cache_options() {
    KvCacheOptions& o = c_.cache_;
    o.page_size = random_.pick<std::int64_t>({0, 0, 0, 1, 3, 16, 16, 64, 100});
    const std::int64_t window = random_.uniform(0, 60);
    const bool has_window = random_.chance(0.3), is_causal = random_.chance(0.85);
    o.causal = (is_causal || has_window) && keeps("causal");
    o.window = has_window && o.causal && keeps("window_left") ? window : -1;
    const bool has_rope = random_.chance(0.3);
    const RopePairs pairs = random_.pick({RopePairs::half, RopePairs::interleaved});
    if (has_rope && o.head_dim % 2 == 0 && keeps("rope")) o.rope = Rope(o.head_dim, {.pairs = pairs});
    o.capacity = random_.pick<std::int64_t>({0, 0, 5, 300});
    if (!keeps("block_table")) o.page_size = 0;
    if (simpler_.contiguous) o.capacity = 0;
  }

  void draw_call() {
    for (const AttentionOption& option : kAttentionOptions) {
      const bool is_drawn = option.draw.probability > 0 && random_.chance(option.draw.probability);
      if (is_drawn) draw_option(option, c_.heads_, random_, c_.call_, c_.head_numbers_);
    }
    if (random_.chance(0.2)) {
      c_.head_numbers_.push_back(alibi_slopes(c_.heads_));
      c_.call_.alibi_slopes = c_.head_numbers_.back();
    }
    c_.call_.num_threads = static_cast<int>(random_.uniform(1, 3));
    if (simpler_.one_thread) c_.call_.num_threads = 1;
    for (const std::string& name : simpler_.without) leave_out(name, c_.call_);
    c_.q_seed_ = simpler_.numbers.value_or(random_.bits());
  }

  void draw_steps() {
    const KvCacheOptions& o = c_.cache_;
    const std::int64_t count = random_.uniform(1, 12);
    for (std::int64_t i = 0; i < count; ++i) draw_step();
    c_.steps_.resize(static_cast<std::size_t>(Simplification::capped(count, simpler_.steps)));
    // The last tokens of each sequence ask, and a window may have dropped what earlier ones saw.
    CacheStep& last = c_.steps_.back();
    if (appends_to_all(last) && o.window < 0) return;
    if (o.window >= 0 || random_.chance(0.5)) last.kind = StepKind::append_to_all;
    if (o.window >= 0) last.count = std::max<std::int64_t>(last.count, 1);
    if (o.window >= 0) c_.rows_ = std::min(c_.rows_, last.count);
  }

  static bool appends_to_all(const CacheStep& step) { return step.kind == StepKind::append_to_all; }

  void draw_step() {
    CacheStep step;
    const double kind = random_.unit();
    step.kind = kind < 0.35   ? StepKind::append_to_all
                : kind < 0.6  ? StepKind::append
                : kind < 0.72 ? StepKind::truncate
                : kind < 0.77 ? StepKind::clear
                : kind < 0.87 ? StepKind::share_prefix
                : kind < 0.95 ? StepKind::set_start
                              : StepKind::restore;
    if (!keeps("kv_starts") && step.kind == StepKind::set_start) step.kind = StepKind::append;
    step.sequence = random_.uniform(0, 2) % c_.cache_.batch;
    step.from = random_.uniform(0, 2) % c_.cache_.batch;
    const double length = random_.unit();
    const std::int64_t few = random_.uniform(0, 20), many = random_.uniform(0, 300),
                       most = random_.uniform(4000, 5000);
    step.count = length < 0.7 ? few : many;
    if (length > 0.95 && c_.cache_.head_dim + c_.cache_.head_dim_v <= 32) step.count = most;
    step.count = Simplification::capped(step.count, simpler_.seqlen_k);
    step.share = random_.chance(0.7) ? 1.0 - 0.2 * random_.unit() : random_.unit();
    if (step.kind == StepKind::set_start) step.share = 0.5 * random_.unit();
    step.layout = random_.pick({Layout::bhsd, Layout::bshd});
    if (simpler_.contiguous) step.layout = Layout::bhsd;
    step.seed = random_.bits() ^ simpler_.numbers.value_or(0);
    step.scale = random_.pick({0.3, 1.0, 1.0, 2.0});
    c_.steps_.push_back(step);
  }

  CacheCase& c_;
  Random random_;
  const Simplification& simpler_;
};

CacheCase::CacheCase(std::uint64_t seed, const Simplification& simpler) { Drawing(*this, seed, simpler).draw(); }

std::string CacheCase::describe() const {
  const KvCacheOptions& o = cache_;
  std::string line = "batch " + std::to_string(o.batch) + ", heads " + std::to_string(heads_) + " over " +
                     std::to_string(o.num_kv_heads) + ", q " + std::string(name_of(q_type_)) + ", o " +
                     std::string(name_of(o_type_)) + ", k " + std::string(name_of(o.dtype)) + " " +
                     std::to_string(o.head_dim) + ", v " + std::string(name_of(*o.dtype_v)) + " " +
                     std::to_string(o.head_dim_v);
  if (o.rotate) line += *o.rotate ? ", rotated" : ", not rotated";
  if (o.page_size > 0) line += ", pages of " + std::to_string(o.page_size);
  if (o.window >= 0) line += ", window " + std::to_string(o.window);
  if (!o.causal) line += ", not causal";
  if (o.rope) line += ", rope";
  if (o.capacity > 0) line += ", capacity " + std::to_string(o.capacity);
  for (const AttentionOption& option : kAttentionOptions)
    if (is_set(option, call_)) line += ", " + std::string(option.name) + " " + value_text(option, call_);
  line += ";";
  for (const CacheStep& step : steps_) {
    const bool appends = step.kind == StepKind::append_to_all || step.kind == StepKind::append;
    line += " " + std::string(kStepNames[static_cast<std::size_t>(step.kind)]);
    if (step.kind != StepKind::append_to_all) line += " " + std::to_string(step.sequence);
    if (appends) line += ": " + std::to_string(step.count);
    line += ",";
  }
  return line + " " + std::to_string(rows_) + (rows_ == 1 ? " row asks" : " rows ask");
}

std::vector<std::string> CacheCase::options() const {
  std::vector<std::string> names = names_of_set(call_);
  std::erase(names, "num_threads");
  names.emplace_back("kv_starts");
  const bool has_i4 = cache_.dtype == DType::i4 || cache_.dtype_v == DType::i4;
  if (cache_.rotate.value_or(has_i4)) names.emplace_back("k_rotated");
  if (cache_.page_size > 0) names.emplace_back("block_table");
  if (cache_.window >= 0) names.emplace_back("window_left");
  if (cache_.causal) names.emplace_back("causal");
  if (cache_.rope) names.emplace_back("rope");
  return names;
}

}  // namespace saccade::cases
