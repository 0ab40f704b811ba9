#include "cases/score_functions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace saccade::cases {
namespace {

/// score = change(score, row, key) for every score of a tile, in the tile's type.
template <class Change>
void change_each(const ScoreTile& tile, const Change& change) {
  const auto in_type = [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      T* const scores = tile.row<T>(i);
      for (std::int64_t j = 0; j < tile.keys; ++j)
        scores[j] = change(scores[j], tile.first_row + i, tile.first_key + j);
    }
  };
  if (tile.dtype == DType::f64) return in_type(0.0);
  in_type(0.0F);
}

/// The smallest and the largest distance from a row's position to a key of the block.
struct Distances {
  explicit Distances(const ScoreBlock& block)
      : least(block.first_key - (block.first_row + block.rows - 1 + block.offset)),
        most(block.first_key + block.keys - 1 - (block.first_row + block.offset)) {}
  std::int64_t least, most;
};

/// A bias for each head and distance up to `reach`, none beyond.
class RelativeBias : public ScoreFunction {
 public:
  RelativeBias(Random& random, std::int64_t heads, std::int64_t reach) : reach_(reach) {
    for (std::int64_t i = 0; i < heads * (2 * reach - 1); ++i) bias_.push_back(static_cast<float>(random.bell()));
  }

  std::string name() const override { return "relative bias up to " + std::to_string(reach_); }

  void change(const ScoreTile& tile) const override {
    const float* const middle = bias_.data() + tile.head * (2 * reach_ - 1) + reach_ - 1;
    change_each(tile, [&](auto score, std::int64_t row, std::int64_t key) {
      const std::int64_t distance = key - (row + tile.offset);
      return distance <= -reach_ || distance >= reach_ ? score : score + middle[distance];
    });
  }

  BlockEffect effect(const ScoreBlock& block) const override {
    const Distances distances(block);
    const bool is_far = distances.least >= reach_ || distances.most <= -reach_;
    return is_far ? BlockEffect::full : BlockEffect::partial;
  }

 private:
  std::int64_t reach_;
  std::vector<float> bias_;  // [heads, 2 reach - 1]
};

/// Splits rows and keys into documents at the same indices; a row sees only its document's keys.
class DocumentMask : public ScoreFunction {
 public:
  DocumentMask(Random& random, std::int64_t seqlen) {
    for (std::int64_t i = random.uniform(1, 6); i > 0; --i) begins_.push_back(random.uniform(0, seqlen));
    std::ranges::sort(begins_);
  }

  std::string name() const override { return "mask of " + std::to_string(begins_.size() + 1) + " documents"; }

  void change(const ScoreTile& tile) const override {
    change_each(tile, [&](auto score, std::int64_t row, std::int64_t key) {
      return document_of(row) == document_of(key) ? score : -std::numeric_limits<decltype(score)>::infinity();
    });
  }

  BlockEffect effect(const ScoreBlock& block) const override {
    const auto first_of_rows = document_of(block.first_row);
    const auto last_of_rows = document_of(block.first_row + block.rows - 1);
    const auto first_of_keys = document_of(block.first_key);
    const auto last_of_keys = document_of(block.first_key + block.keys - 1);
    if (last_of_rows < first_of_keys || last_of_keys < first_of_rows) return BlockEffect::skip;
    const bool is_one = first_of_rows == last_of_keys && last_of_rows == first_of_keys;
    return is_one ? BlockEffect::full : BlockEffect::partial;
  }

 private:
  std::ptrdiff_t document_of(std::int64_t index) const {
    return std::ranges::upper_bound(begins_, index) - begins_.begin();
  }

  std::vector<std::int64_t> begins_;
};

/// The relative position bias of T5 (arXiv:1910.10683): each near distance has its own bias, and far distances
/// share biases.
class T5Buckets : public ScoreFunction {
 public:
  T5Buckets(Random& random, std::int64_t heads) {
    for (std::int64_t i = 0; i < heads * kBuckets; ++i) bias_.push_back(static_cast<float>(random.bell()));
  }

  std::string name() const override { return "T5 buckets"; }

  void change(const ScoreTile& tile) const override {
    const float* const bias = bias_.data() + tile.head * kBuckets;
    change_each(tile, [&](auto score, std::int64_t row, std::int64_t key) {
      return score + bias[bucket_of(key - (row + tile.offset))];
    });
  }

 private:
  static constexpr std::int64_t kBuckets = 32, kFarthest = 128;

  static std::int64_t bucket_of(std::int64_t distance) {
    constexpr std::int64_t kSide = kBuckets / 2, kExact = kSide / 2;
    const std::int64_t side = distance > 0 ? kSide : 0, length = std::abs(distance);
    if (length < kExact) return side + length;
    const double far = std::log(static_cast<double>(length) / kExact) / std::log(double{kFarthest} / kExact);
    return side + std::min<std::int64_t>(kExact + static_cast<std::int64_t>(far * kExact), kSide - 1);
  }

  std::vector<float> bias_;  // [heads, kBuckets]
};

}  // namespace

void ScoreFunction::add_to(AttentionOptions& options, bool with_effect) {
  options.score_context = this;
  options.score_modifier = [](void* context, const ScoreTile& tile) {
    static_cast<const ScoreFunction*>(context)->change(tile);
  };
  if (!with_effect) return;
  options.score_block_effect = [](void* context, const ScoreBlock& block) {
    return static_cast<const ScoreFunction*>(context)->effect(block);
  };
}

std::unique_ptr<ScoreFunction> draw_score_function(Random& random, std::int64_t heads, std::int64_t seqlen) {
  switch (random.uniform(0, 2)) {
    case 0:
      return std::make_unique<RelativeBias>(random, heads, random.uniform(1, 100));
    case 1:
      return std::make_unique<DocumentMask>(random, seqlen);
    default:
      return std::make_unique<T5Buckets>(random, heads);
  }
}

}  // namespace saccade::cases
