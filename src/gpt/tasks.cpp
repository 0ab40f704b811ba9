#include "saccade/tasks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "saccade/random.h"

namespace saccade {
namespace {

/// Uniform in [0, count): with 64 random bits the bias is negligible.
std::int64_t draw(TorchGenerator& generator, std::int64_t count) {
  return static_cast<std::int64_t>(generator.next64() % static_cast<std::uint64_t>(count));
}

void check_sizes(const char* task, std::int64_t batch_size, std::int64_t seqlen) {
  if (batch_size < 1 || seqlen < 1)
    refuse(task, "batch_size and seqlen must be at least 1, got ", batch_size, " and ", seqlen);
}

TokenBatch empty_batch(std::int64_t batch_size, std::int64_t seqlen) {
  return {.inputs = Tensor(DType::i64, {batch_size, seqlen}),
          .targets = Tensor(DType::i64, {batch_size, seqlen}),
          .repeated = {},
          .unseen = {}};
}

/// Row `row` of a batch, from the seqlen + 1 tokens of its sequence.
template <class T>
void fill_row(TokenBatch& batch, std::int64_t row, const T* sequence) {
  const std::int64_t seqlen = batch.inputs.shape(1);
  std::int64_t* const inputs = batch.inputs.values<std::int64_t>().data() + row * seqlen;
  std::int64_t* const targets = batch.targets.values<std::int64_t>().data() + row * seqlen;
  for (std::int64_t i = 0; i < seqlen; ++i) {
    inputs[i] = static_cast<std::int64_t>(sequence[i]);
    targets[i] = static_cast<std::int64_t>(sequence[i + 1]);
  }
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// Draws tokens of the vocabulary without repetition.
class FreshTokens {
 public:
  FreshTokens(TorchGenerator& generator, std::vector<std::int64_t>& tokens)
      : generator_(generator), tokens_(tokens) {}

  std::int64_t operator()() {
    const std::int64_t at = used_ + draw(generator_, std::ssize(tokens_) - used_);
    std::swap(tokens_[static_cast<std::size_t>(used_)], tokens_[static_cast<std::size_t>(at)]);
    return tokens_[static_cast<std::size_t>(used_++)];
  }
  std::vector<std::int64_t> operator()(std::int64_t count) {
    std::vector<std::int64_t> result(static_cast<std::size_t>(count));
    std::ranges::generate(result, std::ref(*this));
    return result;
  }

 private:
  TorchGenerator& generator_;
  std::vector<std::int64_t>& tokens_;  // in any order
  std::int64_t used_ = 0;
};

/// A piece of a sequence in which a segment alternates with other tokens.
std::vector<std::int64_t> repetitive_sequence(TorchGenerator& generator, FreshTokens fresh, std::int64_t length) {
  const std::int64_t longest = length / 4;
  const std::vector<std::int64_t> segment = fresh(2 + draw(generator, longest - 1));
  std::vector<std::int64_t> all;
  while (std::ssize(all) < length + 2 * longest) {
    const std::vector<std::int64_t> between = fresh(draw(generator, longest + 1));
    all.insert(all.end(), between.begin(), between.end());
    all.insert(all.end(), segment.begin(), segment.end());
  }
  const auto begin = all.begin() + draw(generator, 2 * longest);
  return {begin, begin + length};
}

}  // namespace

// ---- InductionTask -------------------------------------------------------------------------------------------

InductionTask::InductionTask(std::int64_t vocab_size) : vocab_size_(vocab_size) {
  if (vocab_size < 2 || vocab_size > kMaxLength)
    refuse("InductionTask", "vocab_size must be from 2 to 2^40, got ", vocab_size);
}

std::string InductionTask::description() const {
  return "induction over " + std::to_string(vocab_size_) + " tokens";
}

TokenBatch InductionTask::batch(std::uint64_t seed, std::int64_t batch_size, std::int64_t seqlen) const {
  constexpr const char* kName = "InductionTask";
  check_sizes(kName, batch_size, seqlen);
  if (seqlen < 7 || seqlen > vocab_size_ / 2)
    refuse(kName, "seqlen must be from 7 to vocab_size / 2 = ", vocab_size_ / 2, ", got ", seqlen);
  TorchGenerator generator(derived_seed(seed, 0));
  TokenBatch batch = empty_batch(batch_size, seqlen);
  batch.repeated = Tensor(DType::boolean, {batch_size, seqlen});
  batch.unseen = Tensor(DType::boolean, {batch_size, seqlen});
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(vocab_size_));
  std::iota(tokens.begin(), tokens.end(), 0);
  for (std::int64_t row = 0; row < batch_size; ++row) {
    const std::vector<std::int64_t> sequence =
        repetitive_sequence(generator, FreshTokens(generator, tokens), seqlen + 1);
    fill_row(batch, row, sequence.data());
    std::map<std::int64_t, std::int64_t> follower;  // of each token so far; -1 if it has none yet
    for (std::int64_t i = 0; i < seqlen; ++i) {
      const std::int64_t token = sequence[static_cast<std::size_t>(i)];
      const std::int64_t target = sequence[static_cast<std::size_t>(i + 1)];
      std::int64_t& known = follower.try_emplace(token, -1).first->second;
      batch.repeated.at<bool>(row, i) = known == target;
      batch.unseen.at<bool>(row, i) = !follower.contains(target);
      known = target;
    }
  }
  return batch;
}

// ---- TextTask ------------------------------------------------------------------------------------------------

TextTask::TextTask(std::string text) : text_(std::move(text)), training_size_(text_.size() - text_.size() / 10) {}

std::string TextTask::description() const {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char byte : text_) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return "text of " + std::to_string(text_.size()) + " bytes with FNV-1a hash " + std::to_string(hash);
}

TokenBatch TextTask::batch(std::uint64_t seed, std::int64_t batch_size, std::int64_t seqlen) const {
  check_sizes("TextTask", batch_size, seqlen);
  const auto size = static_cast<std::int64_t>(training_size_);
  if (seqlen >= size)
    refuse("TextTask", "the text has ", text_.size(), " bytes, ", size,
           " of them to train on, too few for pieces of ", seqlen, " and one more");
  TorchGenerator generator(derived_seed(seed, 0));
  TokenBatch batch = empty_batch(batch_size, seqlen);
  for (std::int64_t row = 0; row < batch_size; ++row)
    fill_row(batch, row, bytes_of(text_) + draw(generator, size - seqlen));
  return batch;
}

TokenBatch TextTask::held_out(std::int64_t seqlen) const {
  check_sizes("TextTask", 1, seqlen);
  const std::string_view text = held_out_part();
  const std::int64_t pieces = (static_cast<std::int64_t>(text.size()) - 1) / seqlen;
  if (text.empty() || pieces < 1)
    refuse("TextTask", "the text has ", text_.size(), " bytes, ", text.size(),
           " of them held out, too few for a piece of ", seqlen, " and one more");
  TokenBatch batch = empty_batch(pieces, seqlen);
  for (std::int64_t row = 0; row < pieces; ++row) fill_row(batch, row, bytes_of(text) + row * seqlen);
  return batch;
}

double TextTask::unigram_bits_per_byte() const {
  std::array<double, 256> counts;
  counts.fill(1.0);
  for (const char byte : training_part()) ++counts[static_cast<unsigned char>(byte)];
  const double total = static_cast<double>(training_size_) + 256.0;
  double bits = 0.0;
  for (const char byte : held_out_part()) bits -= std::log2(counts[static_cast<unsigned char>(byte)] / total);
  return bits / static_cast<double>(held_out_part().size());
}

}  // namespace saccade
