#include "cases/shrink.h"

#include <algorithm>
#include <utility>

namespace saccade::cases {
namespace {

class Shrinking {
 public:
  Shrinking(const std::vector<std::string>& options, const std::function<Attempt(const Simplification&)>& attempt,
            int most_attempts)
      : options_(options), attempt_(attempt), attempts_left_(most_attempts - 1) {}

  Simplification run() {
    problem_ = attempt_({}).problem;
    leave_out_all();
    std::string before;
    do {
      before = best_.text();
      for (const std::string& name : options_) leave_out_one(name);
      for (const auto& [word, flag] : kSimplerFlags) set_flag(flag);
      for (const auto& [word, cap] : kSizeCaps) make_smaller(cap);
    } while (best_.text() != before && attempts_left_ > 0);
    return best_;
  }

 private:
  /// Whether the form fails, too. If so, keeps it, unless it is the same problem in more words.
  bool keep(const Simplification& form, bool is_flag = false) {
    if (attempts_left_-- <= 0) return false;
    const Attempt tried = attempt_(form);
    if (!tried.fails) return false;
    if (tried.problem == problem_ && !is_flag) return true;
    best_ = form;
    problem_ = tried.problem;
    return true;
  }

  /// The same with its numbers or, because a smaller problem has others, with those of a few seeds.
  bool keep_with_any_numbers(Simplification form, bool is_flag = false) {
    constexpr std::uint64_t kSeeds = 3;
    if (keep(form, is_flag)) return true;
    for (form.numbers = 1; *form.numbers <= kSeeds; ++*form.numbers)
      if (keep(form, is_flag)) return true;
    return false;
  }

  void leave_out_all() {
    if (options_.empty()) return;
    Simplification form = best_;
    form.without = options_;
    keep(form);
  }

  void leave_out_one(const std::string& name) {
    if (best_.leaves_out(name)) return;
    Simplification form = best_;
    form.without.push_back(name);
    keep(form);
  }

  void set_flag(bool Simplification::*flag) {
    if (best_.*flag) return;
    Simplification form = best_;
    form.*flag = true;
    keep_with_any_numbers(form, true);
  }

  /// Finds the least power of two with which the problem fails, then less between it and the one before.
  void make_smaller(std::optional<std::int64_t> Simplification::*cap) {
    constexpr std::int64_t kMost = 8192;  // larger than any random problem
    const auto fails_with = [&](std::int64_t most) {
      Simplification form = best_;
      form.*cap = most;
      return keep_with_any_numbers(form);
    };
    std::int64_t high = 1;
    const std::int64_t now = (best_.*cap).value_or(kMost);
    while (high < now && !fails_with(high)) high *= 2;
    if (high >= now) return;
    for (std::int64_t low = high / 2; low + 1 < high;) {
      const std::int64_t middle = (low + high) / 2;
      (fails_with(middle) ? high : low) = middle;
    }
  }

  const std::vector<std::string>& options_;
  const std::function<Attempt(const Simplification&)>& attempt_;
  int attempts_left_;
  Simplification best_;
  std::string problem_;  // of the best form
};

}  // namespace

Simplification shrink(const std::vector<std::string>& options,
                      const std::function<Attempt(const Simplification&)>& attempt, int most_attempts) {
  return Shrinking(options, attempt, most_attempts).run();
}

}  // namespace saccade::cases
