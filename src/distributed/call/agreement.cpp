#include "distributed/call/agreement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <type_traits>

#include "core/check.h"
#include "distributed/call/key_rows.h"
#include "saccade/attention_options.h"
#include "saccade/runtime.h"

namespace saccade::distributed {
namespace {

enum class Status : std::uint32_t { fine, invalid_argument, no_memory, other };

/// The outcome of a call on one rank.
struct Outcome {
  Status status = Status::fine;
  char message[252] = {};

  void set(Status kind, const char* text) {
    status = kind;
    std::strncpy(message, text, sizeof message - 1);
  }
};

/// A hash of numbers, FNV-1a by 64-bit words: about one difference in 2^64 goes unnoticed.
class Hash {
 public:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001B3;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325;
};

void add(Hash& hash, double number) { hash.add(std::bit_cast<std::uint64_t>(number)); }
template <class T>
requires(std::is_integral_v<T> || std::is_enum_v<T>) void add(Hash& hash, T number) {
  hash.add(static_cast<std::uint64_t>(number));
}
template <class T>
void add(Hash& hash, const std::optional<T>& number) {
  hash.add(number.has_value());
  if (number) add(hash, *number);
}
/// Hashes only whether a pointer is null: addresses of functions and their data differ between ranks.
template <class T>
requires std::is_pointer_v<T>
void add(Hash& hash, T pointer) { hash.add(pointer != nullptr); }
void add(Hash& hash, const BackendChoice& choice) {
  for (const char c : choice.names()) add(hash, c);
}
void add(Hash& hash, const Origin& origin) { hash.add(origin == Origin{}); }

/// Hashes shape, type and numbers; of a large tensor, an evenly spaced sample of its numbers.
void add(Hash& hash, const TensorView& view) {
  constexpr std::int64_t kMost = 4096;
  hash.add(view.rank);
  if (!view) return;
  add(hash, view.dtype);
  for (const std::int64_t length : view.dims()) add(hash, length);
  const std::int64_t size = view.size(), step = std::max<std::int64_t>(1, size / kMost);
  if (view.data == nullptr) return;
  for (std::int64_t i = 0; i < size; i += step) {
    std::array<std::int64_t, kMaxRank> index{};
    for (std::int64_t dim = view.rank - 1, rest = i; dim >= 0; --dim) {
      const auto at = static_cast<std::size_t>(dim);
      index[at] = rest % view.shape[at];
      rest /= view.shape[at];
    }
    add(hash, value_at(view, std::span<const std::int64_t>(index).first(view.rank)));
  }
}
void add(Hash& hash, const MutableTensorView& view) { hash.add(static_cast<bool>(view)); }

void add(Hash& hash, const Sharding& sharding) {
  add(hash, sharding.ranks());
  for (int rank = 0; rank < sharding.ranks(); ++rank) {
    add(hash, static_cast<std::uint64_t>(sharding.runs(rank).size()));
    for (const Run& run : sharding.runs(rank)) add(hash, run.begin), add(hash, run.end);
  }
}

/// Whether each rank may set an option differently.
bool is_own(std::string_view option) { return option == "num_threads" || option == "layout"; }

std::uint64_t hash_of(const AttentionOption& option, const AttentionOptions& options) {
  Hash hash;
  const auto visit = [&](auto member) {
    if constexpr (std::is_same_v<decltype(member), OptionPair>) {
      add(hash, options.*member.first);
      add(hash, options.*member.second);
    } else if constexpr (std::is_same_v<decltype(member), TensorView AttentionOptions::*>) {
      // What belongs to a rank's keys is its own, but every rank must have it.
      const TensorView& view = options.*member;
      is_of_keys(member, view) ? add(hash, static_cast<bool>(view)) : add(hash, view);
    } else {
      add(hash, options.*member);
    }
  };
  if (!is_own(option.name)) std::visit(visit, option.member);
  return hash.value();
}

std::uint64_t hash_of(const ParallelConfig& division) {
  Hash hash;
  add(hash, division.rows);
  add(hash, division.keys);
  add(hash, division.method);
  add(hash, division.head_groups);
  add(hash, division.chunk);
  add(hash, division.exact);
  add(hash, division.memory);
  const CostParameters& m = division.machine;
  for (const double number : {m.forward, m.backward, m.copying, m.per_step, m.per_message, m.bandwidth, m.latency})
    add(hash, number);
  return hash.value();
}

constexpr std::array kFacts{
    "function",          "instruction set", "element type of q", "element type of k", "element type of v",
    "element type of o", "batch",           "num_heads",         "num_kv_heads",      "head_dim",
    "head_dim_v"};

struct Header {
  Outcome outcome;
  std::array<std::uint64_t, kFacts.size()> facts{};
  std::uint64_t division = 0;
  std::array<std::uint64_t, std::size(kAttentionOptions)> options{};
};
static_assert(std::is_trivially_copyable_v<Header>);

void fill(const Agreement& a, Header& header) {
  Hash function;
  for (const char c : a.function) function.add(static_cast<unsigned char>(c));
  const auto last = [](const TensorView& view) {
    return view.rank > 0 ? static_cast<std::uint64_t>(view.shape[view.rank - 1U]) : 0;
  };
  header.facts = {function.value(),
                  static_cast<std::uint64_t>(active_isa()),
                  static_cast<std::uint64_t>(a.q.dtype),
                  static_cast<std::uint64_t>(a.k.dtype),
                  static_cast<std::uint64_t>(a.v.dtype),
                  static_cast<std::uint64_t>(a.o.dtype),
                  static_cast<std::uint64_t>(a.sizes.batch),
                  static_cast<std::uint64_t>(a.sizes.num_heads),
                  static_cast<std::uint64_t>(a.sizes.num_kv_heads),
                  last(a.q),
                  last(a.v)};
  header.division = hash_of(*a.division);
  for (std::size_t i = 0; i < std::size(kAttentionOptions); ++i)
    header.options[i] = hash_of(kAttentionOptions[i], *a.options);
}

/// The value of a fact as text for messages.
std::string text_of(std::size_t fact, std::uint64_t value) {
  if (fact == 1) return std::string(name_of(static_cast<Isa>(value)));
  if (fact >= 2 && fact <= 5) return std::string(name_of(static_cast<DType>(value)));
  return std::to_string(value);
}

template <class T>
std::vector<T> gathered(Messages& messages, const T& own, const std::string& what) {
  const std::vector<std::byte> bytes = messages.all_gather(std::as_bytes(std::span(&own, 1)), what);
  std::vector<T> all(static_cast<std::size_t>(messages.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

Outcome outcome_of(const std::function<void()>& f) {
  Outcome outcome;
  try {
    f();
  } catch (const std::invalid_argument& error) {
    outcome.set(Status::invalid_argument, error.what());
  } catch (const std::bad_alloc&) {
    outcome.set(Status::no_memory, "memory ran out");
  } catch (const std::exception& error) {
    outcome.set(Status::other, error.what());
  } catch (...) {
    outcome.set(Status::other, "an exception of unknown type");
  }
  return outcome;
}

void refuse_failure(std::string_view function, int rank, const Outcome& outcome) {
  if (outcome.status == Status::fine) return;
  std::string message = outcome.message;
  if (message.starts_with('[')) message.erase(0, message.find("] ") + 2);
  if (outcome.status == Status::invalid_argument) refuse(function, "rank ", rank, ": ", message);
  throw std::runtime_error("[" + std::string(function) + "] rank " + std::to_string(rank) + ": " + message);
}

void refuse_difference(std::string_view function, int rank, const Header& header, const Header& first) {
  if (header.facts[0] != first.facts[0]) refuse(function, "rank ", rank, " calls another function than rank 0");
  for (std::size_t i = 1; i < kFacts.size(); ++i)
    if (header.facts[i] != first.facts[i])
      refuse(function, kFacts[i], " must be the same on every rank, but it is ", text_of(i, header.facts[i]),
             " on rank ", rank, " and ", text_of(i, first.facts[i]), " on rank 0");
  if (header.division != first.division)
    refuse(function, "the division must be the same on every rank, but rank ", rank,
           " has another one than rank 0");
  for (std::size_t i = 0; i < header.options.size(); ++i)
    if (header.options[i] != first.options[i])
      refuse(function, kAttentionOptions[i].name, " must be the same on every rank, but rank ", rank,
             " has another one than rank 0");
}

}  // namespace

void agree(Messages& messages, const Agreement& agreement, const std::function<void()>& check) {
  Header own;
  own.outcome = outcome_of([&] {
    check();
    if (messages.size() > 1) fill(agreement, own);
  });
  const auto refuse_failures = [&](const std::vector<Header>& all) {
    if (own.outcome.status == Status::no_memory) throw std::bad_alloc();
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      refuse_failure(agreement.function, static_cast<int>(rank), all[rank].outcome);
  };
  if (messages.size() == 1) return refuse_failures({own});
  const std::vector<Header> all = gathered(messages, own, "the arguments of other ranks");
  messages.in_agreement([&] {
    refuse_failures(all);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      refuse_difference(agreement.function, static_cast<int>(rank), all[rank], all.front());
  });
}

void agree_on_end(Messages& messages, std::string_view function, std::exception_ptr error) {
  const Outcome own = outcome_of([&] {
    if (error) std::rethrow_exception(error);
  });
  const std::vector<Outcome> all = gathered(messages, own, "the end of the call on other ranks");
  messages.end();
  if (own.status == Status::no_memory) throw std::bad_alloc();
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    refuse_failure(function, static_cast<int>(rank), all[rank]);
}

}  // namespace saccade::distributed
