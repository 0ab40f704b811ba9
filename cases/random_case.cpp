#include "cases/random_case.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>

#include "cases/options.h"
#include "cases/quantized_case.h"
#include "cases/random.h"

namespace saccade::cases {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The sizes of a problem; for a packed batch, of the whole.
struct Sizes {
  std::int64_t batch = 1, kv_heads = 1, heads = 1, seqlen_q = 1, seqlen_k = 1, head_dim = 1, head_dim_v = 1;

  std::int64_t work() const { return batch * heads * seqlen_q * seqlen_k * (head_dim + head_dim_v); }
};

/// How keys are stored: per batch entry, packed, or in pages.
enum class Memory : std::uint8_t { entries, packed, paged };

/// The random numbers with which each part of a problem begins. A simpler problem begins its parts with those of
/// the whole problem, so that a part that draws less leaves the later ones as they are.
using PartBegins = std::map<std::string_view, Random>;

class RandomDrawing {
 public:
  explicit RandomDrawing(std::uint64_t seed, const Simplification& simpler = {}, const PartBegins& begins = {})
      : seed_(seed), random_(seed), simpler_(simpler), begins_(begins) {}

  AttentionCase draw() {
    draw_types();
    draw_sizes();
    draw_memory();
    begin("kv_lengths");
    if (has_pages_ || (!is_plain_ && chance(0.3))) draw_lengths();
    begin("kv_starts");
    if (!is_plain_ && chance(0.15)) draw_starts();
    if (!is_plain_) {
      draw_positions();
      draw_masks();
      draw_biases();
      draw_outputs();
    }
    leave_out_options();
    begin("tensors");
    if (simpler_.numbers) random_ = Random(*simpler_.numbers);
    draw_tensors();
    if (q_type_ != DType::f64 && !simpler_.f32) {
      quantize_randomly(c_, seed_, simpler_, [&](std::string_view part, Random& random) { begin(part, random); });
    }
    c_.has_few_rows = sizes_.seqlen_q <= 8;
    return std::move(c_);
  }

  const PartBegins& begins() const { return begins_; }

 private:
  void begin(std::string_view part) { begin(part, random_); }
  void begin(std::string_view part, Random& random) {
    const auto [found, is_new] = begins_.try_emplace(part, random);
    if (!is_new) random = found->second;
  }

  bool chance(double p) { return random_.chance(p); }
  std::int64_t uniform(std::int64_t low, std::int64_t high) { return random_.uniform(low, high); }

  // ---- Types and sizes ---------------------------------------------------------------------------------------

  void draw_types() {
    draw_any_types();
    if (simpler_.f32) q_type_ = k_type_ = v_type_ = o_type_ = DType::f32;
  }

  void draw_any_types() {
    const auto set = [&](DType q, DType k, DType v, DType o) {
      q_type_ = q, k_type_ = k, v_type_ = v, o_type_ = o;
    };
    const auto any = [&] { return random_.pick({DType::f32, DType::bf16, DType::f16}); };
    const double kind = random_.unit();
    if (kind < 0.35) return;
    if (kind < 0.45) return set(DType::f64, DType::f64, DType::f64, DType::f64);
    if (kind < 0.6) return set(DType::bf16, DType::bf16, DType::bf16, chance(0.7) ? DType::bf16 : DType::f32);
    if (kind < 0.7) return set(DType::f16, DType::f16, DType::f16, chance(0.7) ? DType::f16 : DType::f32);
    const DType q = any(), cache = any();
    if (kind < 0.85) return set(q, cache, cache, q);
    // Not in the call: compilers evaluate the arguments of a function in orders of their own.
    const DType o = any(), v = any(), k = any();
    set(q, k, v, o);
  }

  void draw_sizes() {
    draw_any_sizes();
    Sizes& s = sizes_;
    const std::int64_t group = s.heads / s.kv_heads;
    s.batch = Simplification::capped(s.batch, simpler_.batch);
    s.kv_heads = Simplification::capped(s.kv_heads, simpler_.kv_heads);
    if (simpler_.heads) s.kv_heads = std::min(s.kv_heads, *simpler_.heads);
    s.heads = Simplification::capped(s.kv_heads * group, simpler_.heads) / s.kv_heads * s.kv_heads;
    s.seqlen_q = Simplification::capped(s.seqlen_q, simpler_.seqlen_q);
    s.seqlen_k = Simplification::capped(s.seqlen_k, simpler_.seqlen_k);
    s.head_dim = Simplification::capped(s.head_dim, simpler_.head_dim);
    s.head_dim_v = Simplification::capped(s.head_dim_v, simpler_.head_dim_v);
  }

  void draw_any_sizes() {
    Sizes& s = sizes_;
    const double kind = random_.unit();
    is_plain_ = kind < 0.15 && chance(0.7);
    const auto any_dim = [&] {
      return random_.pick<std::int64_t>(
          {1, 3, 8, 16, 31, 40, 59, 60, 64, 64, 72, 80, 96, 111, 128, 128, 192, 256, 300});
    };
    s.seqlen_q = random_.pick<std::int64_t>({1, 2, 3, 7, 16, 17, 63, 64, 65, 97, 129, 193, 257});
    s.seqlen_k = random_.pick<std::int64_t>({1, 2, 3, 7, 17, 31, 33, 64, 65, 129, 255, 257, 300, 513});
    s.head_dim = any_dim();
    s.head_dim_v = chance(0.6) ? s.head_dim : any_dim();
    if (kind < 0.15) {
      s.seqlen_q = uniform(0, 20);
      s.seqlen_k = uniform(0, 20);
      s.head_dim = uniform(1, 16);
      s.head_dim_v = chance(0.6) ? s.head_dim : uniform(1, 16);
    } else if (kind < 0.4) {
      s.seqlen_q = uniform(1, 8);
      s.seqlen_k = chance(0.2) ? uniform(600, 1100) : chance(0.1) ? uniform(1100, 5000) : uniform(0, 600);
    } else if (kind < 0.5) {
      s.seqlen_k = uniform(600, 1100);
      if (chance(0.5)) s.seqlen_q = uniform(600, 1100);
    }
    s.kv_heads = uniform(1, 3);
    s.heads = s.kv_heads * uniform(1, 4);
    s.batch = uniform(1, 4);
    if (kind >= 0.15) shrink(kind >= 0.4 && kind < 0.5 ? 8'000'000 : 2'000'000);
  }

  /// Shrinks a problem until the reference is fast; f64, computed in long double, takes longer.
  void shrink(std::int64_t most) {
    Sizes& s = sizes_;
    if (q_type_ == DType::f64) most /= 4;
    while (s.work() > most) {
      if (s.batch > 1) {
        --s.batch;
      } else if (s.heads > s.kv_heads && s.heads > 2) {
        s.heads -= s.kv_heads;
      } else if (s.kv_heads > 1) {
        s.heads = s.heads / s.kv_heads * (s.kv_heads - 1);
        --s.kv_heads;
      } else if (s.head_dim + s.head_dim_v > 48) {
        s.head_dim = (s.head_dim + 1) / 2;
        s.head_dim_v = (s.head_dim_v + 1) / 2;
      } else if (s.seqlen_q > 16) {
        s.seqlen_q = s.seqlen_q / 2 + 1;
      } else {
        s.seqlen_k = s.seqlen_k / 2 + 1;
      }
    }
  }

  void draw_memory() {
    Sizes& s = sizes_;
    begin("memory");
    c_.options.layout = random_.pick({Layout::bhsd, Layout::bshd});
    if (simpler_.leaves_out("layout")) c_.options.layout = Layout::bhsd;
    c_.options.num_threads = static_cast<int>(uniform(1, 3));
    if (simpler_.one_thread) c_.options.num_threads = 1;
    rank_ = static_cast<int>(uniform(2, 4));
    const double kind = is_plain_ ? 0.0 : random_.unit();
    if (kind >= 0.65) {
      memory_ = kind < 0.82 ? Memory::packed : Memory::paged;
      rank_ = 4;
    }
    has_pages_ = memory_ == Memory::paged;
    if (simpler_.leaves_out(has_pages_ ? "block_table" : "cu_seqlens_q")) memory_ = Memory::entries;
    if (memory_ == Memory::packed) return draw_documents();
    if (rank_ < 4) s.batch = 1;
    if (rank_ < 3) s.heads = s.kv_heads = 1;
    seqlens_q_.assign(static_cast<std::size_t>(s.batch), s.seqlen_q);
    seqlens_k_.assign(static_cast<std::size_t>(s.batch), s.seqlen_k);
    if (memory_ == Memory::paged) draw_pages();
  }

  /// Documents of random lengths whose longest are seqlen_q and seqlen_k.
  void draw_documents() {
    const auto draw = [&](std::int64_t& longest, std::vector<std::int64_t>& lengths, Tensor& begins) {
      lengths.resize(static_cast<std::size_t>(sizes_.batch));
      for (std::int64_t& length : lengths) length = uniform(0, longest);
      longest = *std::ranges::max_element(lengths);
      begins = integers(sizes_.batch + 1);
      std::int64_t sum = 0;
      set(begins, 0, 0);
      for (std::size_t b = 0; b < lengths.size(); ++b) set(begins, b + 1, sum += lengths[b]);
    };
    draw(sizes_.seqlen_q, seqlens_q_, c_.cu_seqlens_q);
    draw(sizes_.seqlen_k, seqlens_k_, c_.cu_seqlens_k);
    c_.options.cu_seqlens_q = c_.cu_seqlens_q;
    c_.options.cu_seqlens_k = c_.cu_seqlens_k;
  }

  void draw_pages() {
    Sizes& s = sizes_;
    page_size_ = random_.pick<std::int64_t>({1, 2, 3, 16, 16, 17, 64, 100, 128});
    max_pages_ = (s.seqlen_k + page_size_ - 1) / page_size_;
    s.seqlen_k = max_pages_ * page_size_;
    std::ranges::fill(seqlens_k_, s.seqlen_k);
    const std::int64_t used = s.batch * max_pages_;
    num_pages_ = used + uniform(0, 3);
    std::vector<std::int32_t> pages(static_cast<std::size_t>(num_pages_));
    std::iota(pages.begin(), pages.end(), 0);
    random_.shuffle(pages);
    c_.block_table = Tensor(DType::i32, {s.batch, max_pages_});
    std::copy_n(pages.begin(), used, c_.block_table.values<std::int32_t>().begin());
    if (chance(0.2)) {  // a prefix that the sequences share
      const std::int64_t shared = uniform(0, max_pages_);
      for (std::int64_t b = 1; b < s.batch; ++b)
        copy(c_.block_table.view().select(0, 0).slice(0, 0, shared),
             c_.block_table.mutable_view().select(0, b).slice(0, 0, shared));
    }
  }

  // ---- Options -----------------------------------------------------------------------------------------------

  void draw_lengths() {
    c_.kv_lengths = integers(sizes_.batch);
    for (std::size_t b = 0; b < seqlens_k_.size(); ++b) {
      const std::int64_t least = chance(0.7) ? seqlens_k_[b] / 2 : 0;
      set(c_.kv_lengths, b, kv_lengths_.emplace_back(uniform(least, seqlens_k_[b])));
    }
    c_.options.kv_lengths = c_.kv_lengths;
  }

  void draw_starts() {
    c_.kv_starts = integers(sizes_.batch);
    for (std::size_t b = 0; b < seqlens_k_.size(); ++b) {
      const std::int64_t most = chance(0.8) ? seqlens_k_[b] / 2 : seqlens_k_[b];
      set(c_.kv_starts, b, kv_starts_.emplace_back(uniform(0, most)));
    }
    c_.options.kv_starts = c_.kv_starts;
  }

  /// Options that only a few parts of the drawing know are drawn first and then left out.
  void leave_out_options() {
    for (const std::string& name : simpler_.without) {
      if (name == "kv_lengths" && memory_ == Memory::paged) continue;  // pages need them
      if (name == "score_context") continue;                           // it goes with the functions that need it
      if (name != "layout" && name != "num_threads") leave_out(name, c_.options);
      if (name == "kv_lengths") kv_lengths_.clear();
      if (name == "kv_starts") kv_starts_.clear();
      if (name == "mask") hidden_keys_.clear();
      if (name != "score_modifier") continue;
      for (const char* other : {"score_modifier_backward", "score_block_effect", "score_context"})
        leave_out(other, c_.options);
      c_.score_function.reset();
    }
  }

  void draw_positions() {
    AttentionOptions& o = c_.options;
    begin("positions");
    o.causal = random_.pick({Causal::none, Causal::none, Causal::top_left, Causal::bottom_right});
    if (chance(0.2)) {
      o.query_offset = uniform(-20, 300);
    } else if (chance(0.2)) {
      c_.query_offsets = integers(sizes_.batch);
      for (std::size_t b = 0; b < seqlens_k_.size(); ++b) set(c_.query_offsets, b, uniform(-20, 300));
      o.query_offsets = c_.query_offsets;
    }
    begin("window");
    if (chance(0.3)) o.window_left = uniform(0, 200);
    if (chance(0.3)) o.window_right = uniform(0, 200);
  }

  void draw_masks() {
    begin("mask");
    if (chance(0.35)) draw_mask();
    begin("block_mask");
    if (chance(0.2)) draw_block_mask();
  }

  Shape broadcast_shape(std::int64_t rows, std::int64_t keys) {
    Shape shape = {sizes_.batch, sizes_.heads, rows, keys};
    for (std::int64_t& length : shape)
      if (chance(0.3)) length = 1;
    shape.erase(shape.begin(), shape.begin() + uniform(0, 3));
    return shape;
  }

  void draw_mask() {
    const Shape shape = broadcast_shape(sizes_.seqlen_q, sizes_.seqlen_k);
    c_.mask = Tensor(random_.pick({DType::boolean, DType::f32, DType::f64}), shape);
    Tensor numbers(DType::f64, c_.mask.shape());
    const double hidden = random_.pick({0.0, 0.1, 0.5, 0.95});
    const bool is_bool = c_.mask.dtype() == DType::boolean;
    const double hide = is_bool ? 0.0 : -std::numeric_limits<double>::infinity();
    for (double& number : numbers.values<double>())
      number = chance(hidden) ? hide : is_bool ? 1.0 : random_.bell();
    const bool covers_keys = sizes_.seqlen_k > 1 && numbers.shape(-1) == sizes_.seqlen_k;
    for (int i = covers_keys && chance(0.3) ? 3 : 0; i > 0; --i) {
      hidden_keys_.push_back(uniform(0, sizes_.seqlen_k - 1));
      fill(numbers.mutable_view().slice(numbers.rank() - 1, hidden_keys_.back(), hidden_keys_.back() + 1), hide);
    }
    copy(numbers, c_.mask);
    c_.options.mask = c_.mask;
  }

  void draw_block_mask() {
    AttentionOptions& o = c_.options;
    o.block_mask_q = random_.pick<std::int64_t>({1, 3, 16, 64, 100, 128});
    o.block_mask_k = random_.pick<std::int64_t>({1, 5, 16, 64, 77, 128, 256});
    const auto blocks = [](std::int64_t seqlen, std::int64_t block) { return (seqlen + block - 1) / block; };
    c_.block_mask = Tensor(DType::boolean, broadcast_shape(blocks(sizes_.seqlen_q, o.block_mask_q),
                                                           blocks(sizes_.seqlen_k, o.block_mask_k)));
    const double hidden = random_.pick({0.0, 0.2, 0.5, 0.9});
    for (bool& attend : c_.block_mask.values<bool>()) attend = !chance(hidden);
    o.block_mask = c_.block_mask;
  }

  /// The options that change scores and weights, in the order of the table.
  void draw_biases() {
    for (const AttentionOption& option : kAttentionOptions) {
      const std::string_view name = option.name;
      const bool is_of_table = option.draw.probability > 0;
      if (!is_of_table && name != "score_modifier" && name != "alibi_slopes" && name != "dropout_p") continue;
      begin(name);
      if (is_of_table && chance(option.draw.probability))
        draw_option(option, sizes_.heads, random_, c_.options, c_.head_numbers);
      if (name == "score_modifier") draw_function();
      if (name == "alibi_slopes" && chance(0.2)) draw_slopes();
      if (name == "dropout_p") draw_dropout();
    }
  }

  void draw_function() {
    if (!chance(0.25)) return;
    c_.score_function = draw_score_function(random_, sizes_.heads, std::max(sizes_.seqlen_q, sizes_.seqlen_k));
    c_.score_function->add_to(c_.options, chance(0.6));
  }

  void draw_dropout() {
    AttentionOptions& o = c_.options;
    if (!chance(0.2)) return;
    o.dropout_p = random_.pick({0.1, 0.5, 0.9});
    o.dropout_seed = random_.bits();
    o.dropout_offset = static_cast<std::uint32_t>(random_.bits());
  }

  void draw_slopes() {
    Tensor& slopes = c_.head_numbers.emplace_back();
    if (chance(0.4)) {
      slopes = alibi_slopes(sizes_.heads);
    } else {
      slopes = Tensor(DType::f32, chance(0.5) ? Shape{sizes_.heads} : Shape{sizes_.batch, sizes_.heads});
      draw_numbers(slopes, 0.1, random_);
    }
    c_.options.alibi_slopes = slopes;
  }

  void draw_outputs() {
    AttentionOptions& o = c_.options;
    begin("outputs");
    const DType type = q_type_ == DType::f64 ? DType::f64 : DType::f32;
    Shape rows{sizes_.batch, sizes_.heads, sizes_.seqlen_q};
    if (memory_ == Memory::packed) rows = {sizes_.heads, sum(seqlens_q_)};
    if (memory_ != Memory::packed) rows.erase(rows.begin(), rows.begin() + (4 - rank_));
    Shape pairs = rows;
    pairs.push_back(sizes_.seqlen_k);
    if (chance(0.7)) o.lse = c_.lse = Tensor(type, rows);
    if (chance(0.3)) {
      o.weights = c_.weights = Tensor(type, pairs);
      o.weights_after_dropout = chance(0.5);
    }
    if (chance(0.2)) {
      o.scores = c_.scores = Tensor(type, pairs);
      o.score_stage =
          random_.pick({ScoreStage::raw, ScoreStage::softcapped, ScoreStage::biased, ScoreStage::probabilities});
    }
  }

  // ---- Tensors -----------------------------------------------------------------------------------------------

  void draw_tensors() {
    const Sizes& s = sizes_;
    c_.q = scattered(q_type_, s.heads, s.batch, s.seqlen_q, sum(seqlens_q_), s.head_dim);
    c_.o = scattered(o_type_, s.heads, s.batch, s.seqlen_q, sum(seqlens_q_), s.head_dim_v);
    draw_numbers(c_.q.view(), random_scale(), random_);
    if (memory_ == Memory::paged) return draw_pool();
    c_.k = scattered(k_type_, s.kv_heads, s.batch, s.seqlen_k, sum(seqlens_k_), s.head_dim);
    c_.v = scattered(v_type_, s.kv_heads, s.batch, s.seqlen_k, sum(seqlens_k_), s.head_dim_v);
    draw_numbers(c_.k.view(), random_scale(), random_);
    draw_numbers(c_.v.view(), random_scale(), random_);
    if (!kv_lengths_.empty() && chance(0.7)) {
      for (std::size_t b = 0; b < seqlens_k_.size(); ++b) spoil_keys(b, kv_lengths_[b], seqlens_k_[b]);
    }
    if (!kv_starts_.empty() && chance(0.7)) {
      for (std::size_t b = 0; b < seqlens_k_.size(); ++b) spoil_keys(b, 0, kv_starts_[b]);
    }
    for (const std::int64_t key : hidden_keys_) {
      for (std::size_t b = 0; b < seqlens_k_.size(); ++b) spoil_keys(b, key, std::min(key + 1, seqlens_k_[b]));
    }
  }

  double random_scale() { return random_.pick({0.3, 1.0, 1.0, 2.0}); }

  ScatteredTensor scattered(DType dtype, std::int64_t heads, std::int64_t batch, std::int64_t seqlen,
                            std::int64_t total, std::int64_t dim) {
    Shape shape{batch, heads, seqlen};
    if (memory_ == Memory::packed) {
      shape = {total, heads};
    } else {
      if (c_.options.layout == Layout::bshd && rank_ > 2) std::swap(shape[1], shape[2]);
      shape.erase(shape.begin(), shape.begin() + (4 - rank_));
    }
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (chance(0.5)) random_.shuffle(order);
    shape.push_back(dim);
    std::int64_t gap = chance(0.5) ? 0 : uniform(1, 9);
    if (simpler_.contiguous) std::ranges::sort(order), gap = 0;
    return {dtype, shape, order, gap};
  }

  /// NaN in keys and values [begin, end) of a batch entry.
  void spoil_keys(std::size_t b, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    for (ScatteredTensor* tensor : {&c_.k, &c_.v}) {
      MutableTensorView view = tensor->view();
      if (memory_ == Memory::packed) {
        const std::int64_t first = std::accumulate(
            seqlens_k_.begin(), seqlens_k_.begin() + static_cast<std::ptrdiff_t>(b), std::int64_t{0});
        fill(view.slice(0, first + begin, first + end), kNan);
        continue;
      }
      if (rank_ == 4) view = view.select(0, static_cast<std::int64_t>(b));
      const bool keys_go_first = rank_ == 2 || c_.options.layout == Layout::bshd;
      fill(view.slice(keys_go_first ? 0 : 1, begin, end), kNan);
    }
  }

  /// Keys in their pages, NaN in all unused rows, and invalid table entries for some pages that are never read.
  void draw_pool() {
    const auto pool = [&](DType dtype, std::int64_t dim) {
      return scattered(dtype, sizes_.kv_heads, num_pages_, page_size_, 0, dim);
    };
    c_.k = pool(k_type_, sizes_.head_dim);
    c_.v = pool(v_type_, sizes_.head_dim_v);
    const double k_scale = random_scale(), v_scale = random_scale();
    const int rows = c_.options.layout == Layout::bshd ? 0 : 1;  // of a page: its keys
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      const std::int64_t length = kv_lengths_[static_cast<std::size_t>(b)];
      for (std::int64_t page = 0; page * page_size_ < length; ++page) {
        const std::int64_t place = c_.block_table.at<std::int32_t>(b, page);
        const std::int64_t keys = std::min(page_size_, length - page * page_size_);
        draw_numbers(c_.k.view().select(0, place).slice(rows, 0, keys), k_scale, random_);
        draw_numbers(c_.v.view().select(0, place).slice(rows, 0, keys), v_scale, random_);
      }
    }
    for (std::int64_t b = 0; b < sizes_.batch; ++b) spoil_table(b);
    c_.options.block_table = c_.block_table;
  }

  void spoil_table(std::int64_t b) {
    const std::int64_t length = kv_lengths_[static_cast<std::size_t>(b)], first = first_key_read(b);
    for (std::int64_t page = 0; page < max_pages_; ++page) {
      const bool is_read = page * page_size_ < length && (page + 1) * page_size_ > first;
      if (is_read || chance(0.3)) continue;
      c_.block_table.at<std::int32_t>(b, page) =
          random_.pick<std::int32_t>({-1, std::numeric_limits<std::int32_t>::max(), -12345});
    }
  }

  /// The first key that is read: unless scores are requested, one that some row may see by kv_starts and
  /// window_left.
  std::int64_t first_key_read(std::int64_t b) {
    const AttentionOptions& o = c_.options;
    if (o.scores) return 0;
    const std::int64_t start = kv_starts_.empty() ? 0 : kv_starts_[static_cast<std::size_t>(b)];
    if (o.window_left < 0) return start;
    std::int64_t position = o.query_offset.value_or(0);
    if (o.query_offsets) position = static_cast<std::int64_t>(value_at(o.query_offsets, std::array{b}));
    const bool from_the_end = !o.query_offset && !o.query_offsets && o.causal == Causal::bottom_right;
    if (from_the_end) position = kv_lengths_[static_cast<std::size_t>(b)] - sizes_.seqlen_q;
    return std::max(position - o.window_left, start);
  }

  // ---- Small things ------------------------------------------------------------------------------------------

  Tensor integers(std::int64_t count) { return Tensor(random_.pick({DType::i32, DType::i64}), {count}); }

  static void set(Tensor& integers, std::size_t index, std::int64_t value) {
    if (integers.dtype() == DType::i64) {
      integers.values<std::int64_t>()[index] = value;
    } else {
      integers.values<std::int32_t>()[index] = static_cast<std::int32_t>(value);
    }
  }

  static std::int64_t sum(const std::vector<std::int64_t>& numbers) {
    return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
  }

  std::uint64_t seed_;
  Random random_;
  Simplification simpler_;
  PartBegins begins_;
  AttentionCase c_;
  DType q_type_ = DType::f32, k_type_ = DType::f32, v_type_ = DType::f32, o_type_ = DType::f32;
  Sizes sizes_;
  bool is_plain_ = false;  // no options
  int rank_ = 4;
  Memory memory_ = Memory::entries;
  bool has_pages_ = false;  // unless they are left out
  std::int64_t page_size_ = 0, max_pages_ = 0, num_pages_ = 0;
  std::vector<std::int64_t> seqlens_q_, seqlens_k_, kv_lengths_,
      kv_starts_;                          // [batch]; the last two empty: not given
  std::vector<std::int64_t> hidden_keys_;  // by the mask, from every row
};

}  // namespace

AttentionCase draw_case(std::uint64_t seed, const Simplification& simpler) {
  RandomDrawing whole(seed);
  AttentionCase drawn = whole.draw();
  return simpler.empty() ? std::move(drawn) : RandomDrawing(seed, simpler, whole.begins()).draw();
}

}  // namespace saccade::cases
