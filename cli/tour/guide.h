// Writes a tour in one language: compares the published numbers with the computed ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/output/json.h"
#include "story.h"

namespace saccade::cli {

/// One sentence in each language of the tour.
struct Text {
  const char* english;
  const char* chinese;
};

class Guide {
 public:
  explicit Guide(Language language);

  /// Starts a chapter.
  void chapter(Text title);

  /// Starts a step of the chapter.
  void step(Text text, std::string formula = "");

  /// Numbers to compute with, by their path in published_examples.json: f64, [rows, columns] or [columns].
  Tensor input(const std::string& path);
  std::vector<std::string> input_tokens(const std::string& path);

  /// Compares the computed numbers with those printed at `path`. The tolerance is the one given there or in an
  /// enclosing object, else half a unit in the last printed digit; whole numbers without a tolerance must be
  /// equal.
  Check& check(const std::string& path, const TensorView& computed, std::vector<std::string> row_names,
               std::vector<std::string> column_names = {});

  /// Adds a condition that must hold, and what was observed.
  void claim(Text text, bool holds, std::string seen = "");

  /// Adds a call that must be refused: holds if `attempt` throws std::invalid_argument and the message contains
  /// all of `wanted`.
  template <class Attempt>
  void refusal(Text text, Attempt attempt, std::initializer_list<std::string_view> wanted) {
    try {
      attempt();
      claim(text, false);
    } catch (const std::invalid_argument& error) {
      claim_refused(text, error.what(), wanted);
    }
  }

  void picture(Tensor weights, HeatmapOptions options);

  /// The text in the tour's language, with {} filled in.
  template <class... Args>
  std::string say(Text text, const Args&... args) const {
    return fmt::format(fmt::runtime(say(text)), args...);
  }
  std::string say(Text text) const { return language_ == Language::english ? text.english : text.chinese; }

  Tour finish() && { return std::move(tour_); }

 private:
  const Json& at(const std::string& path) const;
  Tolerance tolerance_of(const std::string& path, int decimals) const;
  void claim_refused(Text text, const std::string& message, std::initializer_list<std::string_view> wanted);
  Step& current() { return tour_.chapters.back().steps.back(); }

  Language language_;
  std::shared_ptr<const Json> examples_;
  Tour tour_;
};

/// Whether two contiguous arrays of one type and size hold the same bits.
bool same_bits(const TensorView& a, const TensorView& b);

}  // namespace saccade::cli
