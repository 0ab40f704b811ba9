#include "report.h"

#include <fmt/ranges.h>
#include <saccade/limits.h>
#include <saccade/runtime.h>

#include <nlohmann/json.hpp>

#include "cli/output/table.h"

namespace saccade::cli::bench {
namespace {

std::string threads_text(int threads) {
  return fmt::format("{} {}", threads, threads == 1 ? "thread" : "threads");
}

std::string machine_text() {
  return fmt::format("{} ({}), saccade {}", cpu_name(), name_of(active_isa()), version());
}

std::string limits_text(const Limits& limits) {
  const bool has_bf16 = multiplies_bf16(active_isa());
  const std::string bf16 = has_bf16 ? fmt::format(", {:.1f} of bf16 pairs", limits.bf16_flops * 1e-9) : "";
  return fmt::format("{}: {:.1f} GFLOP/s of f32 multiply-adds{}, {:.1f} GB/s read from memory",
                     threads_text(limits.threads), limits.flops * 1e-9, bf16, limits.read_bytes * 1e-9);
}

std::vector<std::string> cells_of(const Line& line) {
  std::vector<std::string> cells{line.problem, std::to_string(line.threads), duration(line.seconds)};
  for (const Figure& figure : line.figures) cells.push_back(fmt::format("{:.{}f}", figure.value, figure.decimals));
  return cells;
}

std::vector<std::string> headings_of(const Section& section) {
  std::vector<std::string> headings{section.title, "threads", "time"};
  headings.insert(headings.end(), section.headings.begin(), section.headings.end());
  return headings;
}

/// Empty if nothing was disturbed.
std::string disturbance_text() {
  const auto [all, disturbed] = repetitions_so_far();
  if (disturbed == 0) return "";
  return fmt::format(
      "{} of {} repetitions were disturbed by other programs or a lower clock; they count only for lines that "
      "have few others.",
      disturbed, all);
}

}  // namespace

Limits measure_limits(int threads) {
  constexpr double kSeconds = 0.1;
  return {threads, measure_peak_flops(threads, kSeconds), measure_peak_flops(threads, kSeconds, DType::bf16),
          measure_read_bandwidth(threads, kUncachedBytes)};
}

void print_text(const std::vector<Limits>& limits, const std::vector<Results>& results) {
  fmt::print("{}\n", machine_text());
  for (const Limits& of_threads : limits) fmt::print("{}\n", limits_text(of_threads));
  for (const Results& part : results) {
    Table table(1);
    table.add_row(headings_of(*part.section));
    for (const Line& line : part.lines)
      table.add_row(cells_of(line), Table::Tone::normal, line.agrees ? "" : "  WRONG");
    fmt::print("\n{}", table.to_string(Terminal::of_standard_output()));
  }
  if (const std::string text = disturbance_text(); !text.empty()) fmt::print("\n{}\n", text);
}

void print_markdown(const std::vector<Limits>& limits, const std::vector<Results>& results) {
  fmt::print("{}; ", machine_text());
  std::vector<std::string> texts;
  for (const Limits& of_threads : limits) texts.push_back(limits_text(of_threads));
  const std::string disturbance = disturbance_text();
  fmt::print("{}.{}{}\n", fmt::join(texts, "; "), disturbance.empty() ? "" : " ", disturbance);
  for (const Results& part : results) {
    const std::vector<std::string> headings = headings_of(*part.section);
    fmt::print("\n| {} |\n|---|", fmt::join(headings, " | "));
    for (std::size_t i = 1; i < headings.size(); ++i) fmt::print("---:|");
    fmt::print("\n");
    for (const Line& line : part.lines)
      fmt::print("| {}{} |\n", fmt::join(cells_of(line), " | "), line.agrees ? "" : " WRONG");
  }
}

Json report_json(const std::vector<Limits>& limits, const std::vector<Results>& results) {
  Json report = {{"cpu", cpu_name()},
                 {"isa", std::string(name_of(active_isa()))},
                 {"version", std::string(version())},
                 {"limits", Json::array()},
                 {"repetitions", repetitions_so_far().all},
                 {"disturbed", repetitions_so_far().disturbed},
                 {"sections", Json::array()}};
  for (const auto& [threads, flops, bf16_flops, read_bytes] : limits) {
    report["limits"].push_back({{"threads", threads},
                                {"peak_gflops", flops * 1e-9},
                                {"bf16_peak_gflops", bf16_flops * 1e-9},
                                {"read_gbytes", read_bytes * 1e-9}});
  }
  for (const Results& part : results) {
    Json lines = Json::array();
    for (const Line& line : part.lines) {
      Json entry = {{"problem", line.problem}, {"threads", line.threads}, {"seconds", line.seconds}};
      for (const Figure& figure : line.figures) entry[figure.key] = json_number(figure.value);
      entry["agrees"] = line.agrees;
      lines.push_back(std::move(entry));
    }
    report["sections"].push_back({{"name", part.section->name}, {"lines", std::move(lines)}});
  }
  return report;
}

}  // namespace saccade::cli::bench
