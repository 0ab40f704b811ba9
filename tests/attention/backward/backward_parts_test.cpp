// attention_backward() for parts of a problem: the bits of the whole.
#include <gtest/gtest.h>
#include <saccade/backward.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "support/each_isa.h"
#include "support/environment.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr std::int64_t kHeads = 2, kDim = 24, kDimV = 40;

/// Rows [row, end_row) and keys [key, end_key) of each batch entry, or of one document.
struct Part {
  std::int64_t row, end_row, key, end_key, document = 0;
};

/// A problem: the lengths of its documents, or of every batch entry, and the parts whose gradients are compared.
struct Case {
  const char* name;
  std::int64_t batch;
  std::vector<std::int64_t> rows, keys;
  AttentionOptions options;
  std::vector<Part> of_keys, of_rows;
  bool has_strangers = true;  ///< whether some row sees none of the keys of a part

  bool is_packed() const { return rows.size() > 1; }
};

Tensor starts_of(const std::vector<std::int64_t>& lengths) {
  Tensor starts(DType::i64, {static_cast<std::int64_t>(lengths.size()) + 1});
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    starts.at<std::int64_t>(at + 1) = starts.at<std::int64_t>(at) + lengths[i];
  }
  return starts;
}

/// Elementwise, with a derivative that depends on the score.
void square(void*, const ScoreTile& tile) {
  const auto change = [&](auto number) {
    for (std::int64_t i = 0; i < tile.rows; ++i)
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        auto& score = tile.row<decltype(number)>(i)[j];
        score -= score * score / 8;
      }
  };
  tile.dtype == DType::f64 ? change(double{}) : change(float{});
}
void square_backward(void*, const ScoreTile& scores, const ScoreTile& gradients) {
  const auto change = [&](auto number) {
    for (std::int64_t i = 0; i < scores.rows; ++i)
      for (std::int64_t j = 0; j < scores.keys; ++j)
        gradients.row<decltype(number)>(i)[j] *= 1 - scores.row<decltype(number)>(i)[j] / 4;
  };
  scores.dtype == DType::f64 ? change(double{}) : change(float{});
}

/// The tensors of a problem, and its gradients.
class Whole {
 public:
  Whole(const Case& c, DType dtype) : c_(c), options_(c.options), dtype_(dtype) {
    if (c.is_packed()) {
      starts_q_ = starts_of(c.rows), starts_k_ = starts_of(c.keys);
      options_.cu_seqlens_q = starts_q_, options_.cu_seqlens_k = starts_k_;
    }
    const std::int64_t rows = total(c.rows), keys = total(c.keys);
    q = random_tensor(shape(rows, kHeads, kDim), 1, dtype);
    k = random_tensor(shape(keys, 1, kDim), 2, dtype);
    v = random_tensor(shape(keys, 1, kDimV), 3, dtype);
    dout = random_tensor(shape(rows, kHeads, kDimV), 4, dtype);
    // Numbers that AMX tiles do not hold, which are computed without them.
    put_every(q, 97, 1e-35);
    put_every(k, 61, 1e-35);
    o = Tensor(dtype, dout.shape());
    const DType precision = dtype == DType::f64 ? DType::f64 : DType::f32;
    lse = Tensor(precision, c.is_packed() ? Shape{kHeads, rows} : Shape{c.batch, kHeads, rows});
    dlse = random_tensor(lse.shape(), 5, precision);
    dq = Tensor(dtype, q.shape()), dk = Tensor(dtype, k.shape()), dv = Tensor(dtype, v.shape());
    options_.lse = lse;
    attention(q, k, v, o, options_);
    attention_backward(q, k, v, {o, lse, dout, dlse}, {.dq = dq, .dk = dk, .dv = dv}, options_);
  }

  /// dk and dv of a part with all rows that see its keys. What the others hold is NaN; returns whether there are
  /// others.
  bool expect_keys(const Part& part) const {
    SCOPED_TRACE(text(part));
    Given given(*this, part);
    const bool any = hide_rows(given, part);
    Tensor dk_of_part(dtype_, given.k.shape()), dv_of_part(dtype_, given.v.shape());
    attention_backward(given.q, given.k, given.v, given.outcome(), {.dk = dk_of_part, .dv = dv_of_part},
                       given.options);
    EXPECT_TRUE(same_bits(dk_of_part, keys_of(dk, part)));
    EXPECT_TRUE(same_bits(dv_of_part, keys_of(dv, part)));
    return any;
  }

  /// dq of a part with all keys that its rows see. What the others hold is NaN.
  void expect_rows(const Part& part) const {
    SCOPED_TRACE(text(part));
    Given given(*this, part);
    hide_keys(given, part);
    Tensor dq_of_part(dtype_, given.q.shape());
    attention_backward(given.q, given.k, given.v, given.outcome(), {.dq = dq_of_part}, given.options);
    EXPECT_TRUE(same_bits(dq_of_part, rows_of(dq, part)));
  }

  Tensor q, k, v, dout, o, lse, dlse, dq, dk, dv;

  /// Compares all parts.
  void expect_parts() const {
    bool any_strangers = false;
    for (const Part& part : c_.of_keys) any_strangers |= expect_keys(part);
    EXPECT_EQ(any_strangers, c_.has_strangers);
    for (const Part& part : c_.of_rows) expect_rows(part);
  }

 private:
  /// The arguments of a call for a part.
  struct Given {
    Given(const Whole& whole, const Part& part)
        : q(whole.rows_of(whole.q, part)),
          k(whole.keys_of(whole.k, part)),
          v(whole.keys_of(whole.v, part)),
          o(whole.rows_of(whole.o, part)),
          dout(whole.rows_of(whole.dout, part)),
          lse(whole.numbers_of(whole.lse, part)),
          dlse(whole.numbers_of(whole.dlse, part)),
          starts_q(starts_of({part.end_row - part.row})),
          starts_k(starts_of({part.end_key - part.key})),
          options(whole.options_) {
      const Case& c = whole.c_;
      const auto document = static_cast<std::size_t>(part.document);
      if (options.causal == Causal::bottom_right && !options.query_offset)
        options.query_offset = c.keys[document] - c.rows[document];
      options.origin = {.batch = part.document, .row = part.row, .key = part.key};
      if (options.mask) {
        options.mask = options.mask.slice(options.mask.rank - 1, part.key, part.end_key);
        if (options.mask.rank > 1 && options.mask.shape[options.mask.rank - 2] > 1)
          options.mask = options.mask.slice(options.mask.rank - 2, part.row, part.end_row);
      }
      if (options.kv_lengths) {
        lengths = Tensor::copy_of(options.kv_lengths, DType::i64);
        for (std::int64_t& length : lengths.values<std::int64_t>()) length = std::min(length, part.end_key);
        options.kv_lengths = lengths;
      }
      if (c.is_packed()) options.cu_seqlens_q = starts_q, options.cu_seqlens_k = starts_k;
      options.lse = {};
    }

    AttentionOutcome outcome() const { return {o, lse, dout, dlse}; }

    Tensor q, k, v, o, dout, lse, dlse, starts_q, starts_k, lengths;
    AttentionOptions options;
  };

  static std::int64_t total(const std::vector<std::int64_t>& lengths) {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += length;
    return sum;
  }
  static std::int64_t first_of(const std::vector<std::int64_t>& lengths, std::int64_t document) {
    return total({lengths.begin(), lengths.begin() + document});
  }
  static std::string text(const Part& part) {
    return "rows " + std::to_string(part.row) + " to " + std::to_string(part.end_row) + ", keys " +
           std::to_string(part.key) + " to " + std::to_string(part.end_key);
  }
  Shape shape(std::int64_t rows, std::int64_t heads, std::int64_t dim) const {
    return c_.is_packed() ? Shape{rows, heads, dim} : Shape{c_.batch, heads, rows, dim};
  }

  Tensor cut(const Tensor& tensor, int axis, std::int64_t first, std::int64_t begin, std::int64_t end) const {
    return Tensor::copy_of(tensor.view().slice(axis, first + begin, first + end), tensor.dtype());
  }
  Tensor rows_of(const Tensor& tensor, const Part& part) const {
    return cut(tensor, c_.is_packed() ? 0 : 2, first_of(c_.rows, part.document), part.row, part.end_row);
  }
  Tensor keys_of(const Tensor& tensor, const Part& part) const {
    return cut(tensor, c_.is_packed() ? 0 : 2, first_of(c_.keys, part.document), part.key, part.end_key);
  }
  Tensor numbers_of(const Tensor& tensor, const Part& part) const {
    return cut(tensor, c_.is_packed() ? 1 : 2, first_of(c_.rows, part.document), part.row, part.end_row);
  }

  /// Whether a row sees a key.
  bool sees(std::int64_t batch, std::int64_t row, std::int64_t key, const Part& part) const {
    const AttentionOptions& x = options_;
    const auto document = static_cast<std::size_t>(part.document);
    const std::int64_t natural =
        x.causal == Causal::bottom_right ? c_.keys[document] - c_.rows[document] : std::int64_t{0};
    const std::int64_t position = row + x.query_offset.value_or(natural);
    if (x.causal != Causal::none && key > position) return false;
    if (x.window_left >= 0 && key < position - x.window_left) return false;
    if (x.window_right >= 0 && key > position + x.window_right) return false;
    if (x.kv_lengths && static_cast<double>(key) >= number_at(x.kv_lengths, {batch})) return false;
    if (x.kv_starts && static_cast<double>(key) < number_at(x.kv_starts, {batch})) return false;
    if (!x.mask) return true;
    const double masked = x.mask.rank == 1 ? number_at(x.mask, {key}) : number_at(x.mask, {row, key});
    return x.mask.dtype == DType::boolean ? masked != 0 : masked != -std::numeric_limits<double>::infinity();
  }
  static void put_every(Tensor& tensor, std::int64_t step, double number) {
    const TensorView one(&number, DType::f64, {{1}});
    MutableTensorView all(tensor.data(), tensor.dtype(), Shape{tensor.size()});
    for (std::int64_t i = step; i < tensor.size(); i += step * kDim + 1) copy(one, all.slice(0, i, i + 1));
  }
  static double number_at(const TensorView& tensor, std::initializer_list<std::int64_t> index) {
    return value_at(tensor, std::span(index.begin(), index.size()));
  }

  static void fill_with_nan(const MutableTensorView& to) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr std::int64_t kStrides[kMaxRank] = {};
    copy(TensorView(&kNan, DType::f64, to.dims(), std::span(kStrides).first(to.rank)), to);
  }
  bool meet(std::int64_t batch, Part part) const {
    for (std::int64_t row = part.row; row < part.end_row; ++row)
      for (std::int64_t key = part.key; key < part.end_key; ++key)
        if (sees(batch, row, key, part)) return true;
    return false;
  }
  /// Row or key `at` of a part's tensor; `numbers`: of lse or dlse.
  MutableTensorView one(Tensor& tensor, std::int64_t batch, std::int64_t at, bool numbers = false) const {
    if (c_.is_packed()) return MutableTensorView(tensor).slice(numbers ? 1 : 0, at, at + 1);
    return MutableTensorView(tensor).select(0, batch).slice(1, at, at + 1);
  }
  /// Makes everything NaN of the rows that see none of the keys. Returns whether there are any.
  bool hide_rows(Given& given, const Part& part) const {
    bool any = false;
    for (std::int64_t batch = 0; batch < c_.batch; ++batch) {
      for (std::int64_t row = part.row; row < part.end_row; ++row) {
        if (meet(batch, {row, row + 1, part.key, part.end_key, part.document})) continue;
        any = true;
        for (Tensor* tensor : {&given.q, &given.o, &given.dout})
          fill_with_nan(one(*tensor, batch, row - part.row));
        for (Tensor* tensor : {&given.lse, &given.dlse}) fill_with_nan(one(*tensor, batch, row - part.row, true));
      }
    }
    return any;
  }
  /// The same for keys that no row sees.
  void hide_keys(Given& given, const Part& part) const {
    for (std::int64_t batch = 0; batch < c_.batch; ++batch)
      for (std::int64_t key = part.key; key < part.end_key; ++key)
        if (!meet(batch, {part.row, part.end_row, key, key + 1, part.document}))
          for (Tensor* tensor : {&given.k, &given.v}) fill_with_nan(one(*tensor, batch, key - part.key));
  }

  const Case& c_;
  AttentionOptions options_;
  DType dtype_;
  Tensor starts_q_, starts_k_;
};

class PartsOnIsa : public EachIsa {
 protected:
  PartsOnIsa() {
    slopes_ = alibi_slopes(kHeads);
    sinks_ = random_tensor({kHeads}, 6);
    key_mask_ = random_tensor({kLong}, 7);
    mask_ = random_tensor({301, 700}, 8);
    for (float& x : mask_.values<float>())
      if (x < -0.5F) x = -std::numeric_limits<float>::infinity();
    // Row i sees keys [i, 2 i + 40).
    bools_ = Tensor(DType::boolean, {301, 700});
    for (std::int64_t i = 0; i < 301; ++i)
      for (std::int64_t j = i; j < std::min<std::int64_t>(2 * i + 40, 700); ++j) bools_.at<bool>(i, j) = true;
    lengths_ = Tensor::of<std::int64_t>({700, 391});
    starts_ = Tensor::of<std::int64_t>({65, 0});
  }

  static constexpr std::int64_t kLong = kRowAlignment + 300;

  std::vector<Case> cases() const {
    const std::vector<Part> anywhere{{0, 301, 0, 700}, {0, 301, 37, 700}, {0, 301, 250, 259}, {0, 301, 256, 513}};
    const std::vector<Part> rows{{0, 1, 0, 700}, {131, 133, 0, 700}, {17, 301, 0, 700}, {256, 300, 0, 700}};
    const std::vector<Part> late{{kRowAlignment, kLong, kRowAlignment + 52, kLong},
                                 {kRowAlignment, kLong, kRowAlignment + 61, kRowAlignment + 99},
                                 {0, kLong, 100, 333}};
    return {
        {"every row",
         2,
         {301},
         {700},
         {.softcap = 2, .mask = mask_, .alibi_slopes = slopes_},
         anywhere,
         rows,
         false},
        {"causal", 1, {301}, {700}, {.causal = Causal::bottom_right, .sinks = sinks_}, {{0, 301, 410, 650}}, rows},
        {"causal from the first row", 1, {301}, {700}, {.causal = Causal::top_left}, anywhere, rows},
        {"lengths",
         2,
         {301},
         {700},
         {.query_offset = 300,
          .window_left = 250,
          .window_right = 30,
          .kv_lengths = lengths_,
          .kv_starts = starts_},
         anywhere,
         rows},
        {"mask", 1, {301}, {700}, {.mask = bools_}, anywhere, rows},
        {"score modifier",
         1,
         {301},
         {700},
         {.causal = Causal::top_left,
          .window_left = 70,
          .score_modifier = square,
          .score_modifier_backward = square_backward},
         anywhere,
         rows},
        {"dropout",
         1,
         {301},
         {700},
         {.causal = Causal::top_left, .dropout_p = 0.3, .dropout_seed = 3},
         {{0, 301, 64, 200}, {0, 301, 192, 700}},
         rows},
        {"a window over many rows",
         1,
         {kLong},
         {kLong},
         {.softcap = 4, .window_left = 60, .window_right = 20, .mask = key_mask_, .sinks = sinks_},
         late,
         {{kRowAlignment - 100, kLong, 0, kLong}}},
        {"few keys",
         1,
         {kLong},
         {300},
         {.causal = Causal::top_left, .query_offset = 40 - kRowAlignment},
         {{kRowAlignment, kLong, 41, 300}, {0, kLong, 129, 130}},
         {{kRowAlignment + 5, kLong, 0, 300}}},
        {"documents",
         1,
         {130, kLong, 77},
         {90, kLong, 200},
         {.causal = Causal::top_left, .window_left = 40},
         {{kRowAlignment, kLong, kRowAlignment + 13, kLong, 1}, {0, 77, 11, 60, 2}},
         {{kRowAlignment + 1, kLong, 0, kLong, 1}, {9, 77, 0, 200, 2}}},
    };
  }

  Tensor slopes_, sinks_, key_mask_, mask_, bools_, lengths_, starts_;
};
SACCADE_FOR_EACH_ISA(PartsOnIsa);

TEST_P(PartsOnIsa, HaveTheBitsOfTheWhole) {
  constexpr std::array kDTypes{DType::f32, DType::bf16, DType::f64};
  for (std::size_t turn = 0; const Case& one : cases()) {
    for (const DType dtype : one_if_slow(kDTypes, ++turn)) {
      SCOPED_TRACE(std::string(one.name) + ", " + std::string(name_of(dtype)));
      Whole(one, dtype).expect_parts();
    }
  }
}

}  // namespace
}  // namespace saccade::test
