// The tour as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/output/table.h"
#include "story.h"

namespace saccade::cli {
namespace {

struct Words {
  const char *introduction, *printed, *computed, *numbers, *one_number, *many_numbers, *exact, *absolute,
      *relative, *all_hold, *some_fail, *tutorial;
};

constexpr Words kEnglish{
    .introduction =
        "Attention, number by number. Each step shows what its author printed, what saccade computes, and whether "
        "the two are as close as the printed digits allow.",
    .printed = "printed",
    .computed = "saccade",
    .numbers = "{} {} {}, {}; largest difference {:.1e}",
    .one_number = "number",
    .many_numbers = "numbers",
    .exact = "to be met exactly",
    .absolute = "tolerance {:.0e}",
    .relative = "tolerance {:.0e} of each number",
    .all_hold = "{} {} numbers, all within tolerance; {} further claims, all hold.",
    .some_fail = "{} {} of {} numbers beyond their tolerance; {} of {} further claims do not hold.",
    .tutorial = "The same with code, pictures and exercises: docs/tutorial in saccade's repository.",
};

constexpr Words kChinese{
    .introduction =
        "一个数一个数地看注意力。每一步都列出作者印出的数和 saccade 算得的数，"
        "并核对两者的差是否在印出的位数所允许的范围之内。",
    .printed = "印出",
    .computed = "算得",
    .numbers = "{} {} {}，{}；最大相差 {:.1e}",
    .one_number = "个数",
    .many_numbers = "个数",
    .exact = "须完全相同",
    .absolute = "容差 {:.0e}",
    .relative = "容差为各数的 {:.0e}",
    .all_hold = "{} 共 {} 个数，全部在容差之内；另有 {} 条断言，全部成立。",
    .some_fail = "{} {}/{} 个数超出容差；另有 {}/{} 条断言不成立。",
    .tutorial = "配有代码、图和练习的教程：saccade 仓库中的 docs/tutorial/zh-CN。",
};

class StoryPrinter {
 public:
  StoryPrinter(Language language, const Terminal& terminal)
      : words_(language == Language::english ? kEnglish : kChinese), terminal_(terminal) {}

  std::string print(const Tour& tour) {
    print_text(words_.introduction);
    text_ += "\n";
    std::size_t number = 0;
    for (const Chapter& chapter : tour.chapters) {
      text_ += fmt::format("{}\n\n", terminal_.heading(fmt::format("{}. {}", ++number, chapter.title)));
      for (const Step& step : chapter.steps) print(step);
    }
    print_summary(tour);
    return std::move(text_);
  }

 private:
  std::string mark(bool holds) const { return holds ? terminal_.good("✓") : terminal_.bad("✗"); }

  void print_text(std::string_view text) {
    constexpr int kWidest = 96;
    for (const std::string& line : wrapped(text, std::min(terminal_.width, kWidest))) text_ += line + "\n";
  }

  void print(const Step& step) {
    print_text(step.text);
    if (!step.formula.empty()) text_ += fmt::format("    {}\n", terminal_.bold(step.formula));
    for (const Check& check : step.checks) print(check);
    if (step.picture) {
      text_ +=
          "\n" + heatmap_terminal(step.picture->weights, step.picture->options, terminal_.color, terminal_.width);
    }
    for (const Claim& claim : step.claims) {
      text_ += fmt::format("  {} {}\n", mark(claim.holds), claim.text);
      if (!claim.seen.empty()) text_ += fmt::format("    {}\n", terminal_.faint(claim.seen));
    }
    text_ += "\n";
  }

  void print(const Check& check) {
    Table table(2);
    if (!check.column_names.empty()) {
      std::vector<std::string> heading{"", ""};
      const std::string under_digits(check.scientific || check.decimals == 0 ? 0 : 2, ' ');
      for (const std::string& name : check.column_names) heading.push_back(name + under_digits);
      table.add_row(std::move(heading), Table::Tone::faint);
    }
    for (std::int64_t row = 0; row < check.printed.shape(0); ++row) add_row(table, check, row);
    text_ += table.to_string(terminal_);
    const std::int64_t wrong = check.count_wrong();
    text_ += "  " +
             fmt::format(fmt::runtime(words_.numbers), mark(wrong == 0), check.count(),
                         check.count() == 1 ? words_.one_number : words_.many_numbers, tolerance(check.tolerance),
                         check.largest_difference()) +
             "\n";
  }

  void add_row(Table& table, const Check& check, std::int64_t row) const {
    std::vector<std::string> printed{check.row_names[static_cast<std::size_t>(row)], words_.printed};
    std::vector<std::string> computed{"", words_.computed};
    bool holds = true;
    for (std::int64_t column = 0; column < check.printed.shape(1); ++column) {
      if (!check.is_printed(row, column)) break;
      printed.push_back(number(check, check.printed.at<double>(row, column), 0));
      computed.push_back(number(check, check.computed.at<double>(row, column), 2));
      holds = holds && check.holds_at(row, column);
    }
    table.add_row(std::move(printed), Table::Tone::faint);
    table.add_row(std::move(computed), Table::Tone::normal, mark(holds));
  }

  // A computed number has two digits more than the printed one; the decimal points are aligned.
  static std::string number(const Check& check, double value, int more_digits) {
    if (check.scientific) return fmt::format("{:.{}e}", value, check.decimals);
    if (check.decimals == 0 && value == std::round(value)) return fmt::format("{:.0f}", value);
    return fmt::format("{:.{}f}{}", value, check.decimals + more_digits, std::string(2 - more_digits, ' '));
  }

  std::string tolerance(Tolerance tolerance) const {
    if (tolerance.relative > 0.0) return fmt::format(fmt::runtime(words_.relative), tolerance.relative);
    if (tolerance.absolute > 0.0) return fmt::format(fmt::runtime(words_.absolute), tolerance.absolute);
    return words_.exact;
  }

  void print_summary(const Tour& tour) {
    std::int64_t claims = 0;
    for (const Chapter& chapter : tour.chapters) {
      for (const Step& step : chapter.steps) claims += static_cast<std::int64_t>(step.claims.size());
    }
    if (tour.holds()) {
      text_ += fmt::format(fmt::runtime(words_.all_hold), mark(true), tour.count(), claims);
    } else {
      text_ += fmt::format(fmt::runtime(words_.some_fail), mark(false), tour.count_wrong(), tour.count(),
                           tour.count_failed_claims(), claims);
    }
    text_ += fmt::format("\n{}\n", words_.tutorial);
  }

  const Words& words_;
  const Terminal& terminal_;
  std::string text_;
};

// The numbers at the places where a number was printed.
Json printed_places(const Check& check, const Tensor& numbers) {
  Json rows = Json::array();
  for (std::int64_t row = 0; row < numbers.shape(0); ++row) {
    Json& places = rows.emplace_back(Json::array());
    for (std::int64_t column = 0; column < numbers.shape(1); ++column) {
      if (check.is_printed(row, column)) places.push_back(numbers.at<double>(row, column));
    }
  }
  return rows;
}

Json check_json(const Check& check) {
  return {{"path", check.path},
          {"printed", printed_places(check, check.printed)},
          {"computed", printed_places(check, check.computed)},
          {"absolute_tolerance", check.tolerance.absolute},
          {"relative_tolerance", check.tolerance.relative},
          {"numbers", check.count()},
          {"wrong", check.count_wrong()},
          {"largest_difference", check.largest_difference()}};
}

Json step_json(const Step& step) {
  Json checks = Json::array();
  for (const Check& check : step.checks) checks.push_back(check_json(check));
  Json claims = Json::array();
  for (const Claim& claim : step.claims) {
    claims.push_back({{"text", claim.text}, {"seen", claim.seen}, {"holds", claim.holds}});
  }
  return {{"text", step.text}, {"formula", step.formula}, {"checks", checks}, {"claims", claims}};
}

}  // namespace

std::string tour_text(const Tour& tour, Language language, const Terminal& terminal) {
  return StoryPrinter(language, terminal).print(tour);
}

Json tour_json(const Tour& tour) {
  Json chapters = Json::array();
  for (const Chapter& chapter : tour.chapters) {
    Json steps = Json::array();
    for (const Step& step : chapter.steps) steps.push_back(step_json(step));
    chapters.push_back({{"title", chapter.title}, {"steps", steps}});
  }
  return {{"chapters", chapters},
          {"inputs", tour.inputs},
          {"numbers", tour.count()},
          {"wrong", tour.count_wrong()},
          {"failed_claims", tour.count_failed_claims()}};
}

}  // namespace saccade::cli
