// saccade bench: the speed of attention on this machine, compared with its peak measured at the same time.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "gpt2.h"
#include "report.h"
#include "sections.h"

namespace saccade::cli {
namespace {

struct BenchArguments {
  std::vector<int> threads;
  std::vector<std::string> only;
  std::optional<std::string> shapes;
  bool gpt2 = false, quick = false, json = false, markdown = false;
};

std::vector<bench::Section> all_sections() {
  return {bench::f32_section(),
          bench::bf16_section(),
          bench::f16_section(),
          bench::backward_section(),
          bench::backward_options_section(),
          bench::backward_long_section(),
          bench::decode_section(),
          bench::window_section(),
          bench::packed_section(),
          bench::long_section(),
          bench::inspect_section(),
          bench::modifier_section(),
          bench::loop_section()};
}

std::vector<bench::Section> sections_of(const BenchArguments& arguments) {
  if (arguments.shapes) return {bench::shapes_section(load_shapes(*arguments.shapes))};
  std::vector<bench::Section> sections = all_sections();
  if (arguments.only.empty()) return sections;
  std::vector<std::string> names;
  names.reserve(sections.size());
  for (const bench::Section& section : sections) names.push_back(section.name);
  for (const std::string& name : arguments.only) {
    if (std::ranges::count(names, name) == 0)
      refuse("--only: there is no section {}; sections are {}", name, fmt::join(names, ", "));
  }
  std::erase_if(sections,
                [&](const auto& section) { return std::ranges::count(arguments.only, section.name) == 0; });
  return sections;
}

std::vector<bench::Results> measure_all(const std::vector<bench::Section>& sections,
                                        const bench::Conditions& conditions) {
  std::int64_t total = 0, done = 0;
  for (const bench::Section& section : sections) total += static_cast<std::int64_t>(section.items.size());
  ProgressBar progress(total);
  std::vector<bench::Results> results;
  for (const bench::Section& section : sections) {
    results.push_back({&section, {}});
    for (const bench::Item& item : section.items) {
      progress.show(done++, section.name);
      for (bench::Line& line : item(conditions)) results.back().lines.push_back(std::move(line));
    }
  }
  return results;
}

ExitCode run_bench(const BenchArguments& arguments) {
  bench::Conditions conditions{arguments.threads, arguments.quick ? bench::kQuick : bench::kUsual};
  if (conditions.threads.empty()) {
    conditions.threads = {1};
    if (num_threads() > 1) conditions.threads.push_back(num_threads());
  }
  std::ranges::sort(conditions.threads);
  if (arguments.gpt2) return bench::bench_gpt2(conditions, arguments.json);
  const std::vector<bench::Section> sections = sections_of(arguments);
  std::vector<bench::Limits> limits;
  for (const int threads : conditions.threads) limits.push_back(bench::measure_limits(threads));
  const std::vector<bench::Results> results = measure_all(sections, conditions);
  if (arguments.json)
    print_json(bench::report_json(limits, results));
  else if (arguments.markdown)
    bench::print_markdown(limits, results);
  else
    bench::print_text(limits, results);
  const bool all_agree = std::ranges::all_of(
      results, [](const auto& part) { return std::ranges::all_of(part.lines, &bench::Line::agrees); });
  return all_agree ? kGood : kCheckFailed;
}

}  // namespace

void add_bench(Command app, Action& action) {
  const Command command =
      app.add_subcommand("bench", "The speed tables, compared with this machine's measured limits");
  const auto arguments = std::make_shared<BenchArguments>();
  command
      .add_option("--threads", arguments->threads,
                  "Numbers of threads to measure with; without, 1 and the default")
      .delimiter(',')
      .between(1, 1024)
      .type_name("N,...");
  const Option only = command.add_option("--only", arguments->only, "These sections only");
  only.delimiter(',').type_name("SECTION,...");
  const Option shapes =
      command.add_option("--shapes", arguments->shapes, "Time the problems of this file instead, one a line");
  shapes.type_name("FILE").excludes(only);
  command.add_flag("--gpt2", arguments->gpt2, "One layer of GPT-2 small only, every number of it checked")
      .excludes(only)
      .excludes(shapes);
  command
      .add_flag_callback(
          "--backward",
          [arguments] {
            arguments->only = {"backward", "backward-options", "backward-long"};
          },
          "The sections of gradients only")
      .excludes(only)
      .excludes(shapes);
  command.add_flag("--quick", arguments->quick, "Fewer repetitions");
  const Option json = command.add_flag("--json", arguments->json, "Print the figures as JSON");
  command.add_flag("--markdown", arguments->markdown, "Print the tables in Markdown").excludes(json);
  command.footer(
      "Sections: f32, bf16, f16, backward (share of the peak of multiply-adds), backward-options, decode (share "
      "of the\n"
      "bandwidth of memory), window, packed, long, inspect, modifiers, loop. Every time is a median, and what it "
      "is compared with is\n"
      "timed right before it, with the same threads and instruction set (SACCADE_ISA chooses another). Rows of\n"
      "each result are compared with the reference; exit code 1 if one is wrong.\n\n"
      "Examples:\n"
      "  saccade bench\n"
      "  saccade bench --only decode,bf16 --threads 1 --quick\n"
      "  saccade bench --shapes shapes.txt --json\n"
      "  SACCADE_ISA=avx2 saccade bench --only f32 --threads 1");
  command.callback([=, &action] { action = [=] { return run_bench(*arguments); }; });
}

}  // namespace saccade::cli
