// saccade info: what was built, what this machine supports, and what calls will use.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <saccade/runtime.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/common/common.h"
#include "cli/output/json.h"
#include "commands.h"

namespace saccade::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

std::vector<std::string> names_of(const std::vector<Isa>& isas) {
  std::vector<std::string> names;
  for (const Isa isa : isas) names.emplace_back(name_of(isa));
  return names;
}

// The active level, or why there is none: SACCADE_ISA may name one that is not available.
struct ActiveIsa {
  std::optional<std::string> name;
  std::string error;
  bool emulated;
};

ActiveIsa find_active_isa() {
  try {
    return {.name = std::string(name_of(active_isa())), .error = "", .emulated = is_emulated(active_isa())};
  } catch (const std::invalid_argument& error) {
    return {.name = std::nullopt, .error = message_line(error.what()), .emulated = false};
  }
}

ExitCode info(bool json) {
  const ActiveIsa active = find_active_isa();
  const std::vector<std::string> built = names_of(built_isas());
  const std::vector<std::string> available = names_of(available_isas());
  if (json) {
    print_json({{"version", std::string(version())},
                {"cpu", cpu_name()},
                {"built_isas", built},
                {"available_isas", available},
                {"active_isa", active.name ? Json(*active.name) : Json(nullptr)},
                {"emulated", active.emulated},
                {"threads", num_threads()},
                {"compiler", compiler()}});
  } else {
    fmt::print("saccade            {}\n", version());
    fmt::print("processor          {}\n", cpu_name().empty() ? "unknown" : cpu_name());
    fmt::print("instruction sets   built      {}\n", fmt::join(built, ", "));
    fmt::print("                   available  {}\n", fmt::join(available, ", "));
    fmt::print("                   active     {}{}\n", active.name.value_or("none"),
               active.emulated ? " (emulated)" : "");
    fmt::print("threads            {}\n", num_threads());
    fmt::print("compiler           {}\n", compiler());
  }
  if (active.name) return kGood;
  note("info", active.error);
  return kBadUsage;
}

}  // namespace

void add_info(Command app, Action& action) {
  const Command command = app.add_subcommand("info", "Version, instruction sets, threads, processor, compiler");
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON");
  command.footer(
      "Examples:\n"
      "  saccade info\n"
      "  saccade info --json\n"
      "  SACCADE_ISA=avx2 saccade info     what a forced instruction set gives\n"
      "  OMP_NUM_THREADS=4 saccade info    what a default for threads gives");
  command.callback([=, &action] { action = [=] { return info(*json); }; });
}

}  // namespace saccade::cli
