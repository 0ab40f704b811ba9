// Training data for language models: random tokens that repeat themselves, and the bytes of a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Sequences and the next token at each position.
struct TokenBatch {
  Tensor inputs;   ///< i64 [batch, seqlen]
  Tensor targets;  ///< i64 [batch, seqlen]: the token after each of the inputs
  /// bool [batch, seqlen], for tasks in which some targets follow from earlier tokens (the last time that the
  /// current token occurred, the same target came next) and others are new; otherwise empty. Where a repetition
  /// begins, the target is neither.
  Tensor repeated, unseen;
};

/// A source of batches. A batch is a function of its seed, so a run can resume anywhere.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;
  /// Tokens are 0 ... vocab_size() - 1.
  virtual std::int64_t vocab_size() const = 0;
  /// One line, equal for tasks that give the same batches.
  virtual std::string description() const = 0;
  /// A batch of the training part: batch_size sequences of seqlen tokens, drawn by `seed`. Throws
  /// std::invalid_argument for sizes below 1 and a seqlen that the task cannot fill.
  virtual TokenBatch batch(std::uint64_t seed, std::int64_t batch_size, std::int64_t seqlen) const = 0;
};

/// Random tokens in which a segment of random length recurs at random distances. The only way to predict the next
/// token is to find the earlier occurrence of the current token, and what followed it. (Olsson et al.: In-context
/// learning and induction heads. 2022, arXiv:2209.11895.)
///
/// A sequence of n = seqlen + 1 tokens is cut at a random place from a longer one, in which a segment of 2 to n/4
/// tokens alternates with 0 to n/4 other ones. Outside the repetitions all tokens are different, so that none
/// recurs by chance.
class InductionTask final : public TrainingTask {
 public:
  /// Throws std::invalid_argument for a vocab_size below 2.
  explicit InductionTask(std::int64_t vocab_size = 128);

  std::int64_t vocab_size() const override { return vocab_size_; }
  std::string description() const override;
  /// seqlen from 7 to vocab_size / 2.
  TokenBatch batch(std::uint64_t seed, std::int64_t batch_size, std::int64_t seqlen) const override;

 private:
  std::int64_t vocab_size_;
};

/// The bytes of a text. The last tenth is held out: batch() never returns it.
class TextTask final : public TrainingTask {
 public:
  explicit TextTask(std::string text);

  std::int64_t vocab_size() const override { return 256; }
  std::string description() const override;
  /// Sequences from random places of the training part, which must be longer than seqlen.
  TokenBatch batch(std::uint64_t seed, std::int64_t batch_size, std::int64_t seqlen) const override;

  std::string_view training_part() const { return std::string_view(text_).substr(0, training_size_); }
  std::string_view held_out_part() const { return std::string_view(text_).substr(training_size_); }

  /// The held-out part from its start, cut into sequences of seqlen bytes with their targets, without an
  /// incomplete last one: i64 [sequences, seqlen]. Throws std::invalid_argument if there is no complete sequence.
  TokenBatch held_out(std::int64_t seqlen) const;

  /// The cross-entropy of the held-out part, in bits per byte, under a unigram model: the byte frequencies of the
  /// training part, with 1 added to each count.
  double unigram_bits_per_byte() const;
  [[deprecated("renamed unigram_bits_per_byte()")]] double order_0_bits_per_byte() const {
    return unigram_bits_per_byte();
  }

 private:
  std::string text_;
  std::size_t training_size_;
};

}  // namespace saccade
#pragma GCC visibility pop
