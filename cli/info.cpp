// saccade info: what was built, what this machine supports, and what calls will use.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <saccade/backend.h>
#include <saccade/runtime.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

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

/// A name that calls will use, or why there is none: an environment variable may name one that is not available.
struct Active {
  std::optional<std::string> name;
  std::string error;
};

template <class F>
Active find_active(const F& name) {
  try {
    return {.name = std::string(name()), .error = ""};
  } catch (const std::invalid_argument& error) {
    return {.name = std::nullopt, .error = message_line(error.what())};
  }
}

Json json_of(const Active& active) { return active.name ? Json(*active.name) : Json(nullptr); }

Json names_of_backends() {
  Json names = Json::array();
  for (const BackendInfo& backend : available_backends()) names.push_back(backend.name);
  return names;
}

void print_backends(const Active& active) {
  const char* what = "back ends";
  for (const BackendInfo& backend : available_backends())
    fmt::print("{:<18} {:<10} {}\n", std::exchange(what, ""), backend.name, backend.description);
  fmt::print("{:<18} active     {}\n", "", active.name.value_or("none"));
}

ExitCode info(bool json) {
  const Active isa = find_active([] { return name_of(active_isa()); });
  const Active backend = find_active([] { return active_backend_name(); });
  const bool emulated = isa.name && is_emulated(active_isa());
  const bool has_f16 = isa.name && multiplies_f16(active_isa());
  const std::vector<std::string> built = names_of(built_isas());
  const std::vector<std::string> available = names_of(available_isas());
  if (json) {
    print_json({{"version", std::string(version())},
                {"cpu", cpu_name()},
                {"built_isas", built},
                {"available_isas", available},
                {"active_isa", json_of(isa)},
                {"emulated", emulated},
                {"multiplies_f16", has_f16},
                {"available_backends", names_of_backends()},
                {"active_backend", json_of(backend)},
                {"threads", num_threads()},
                {"threading_layer", std::string(threading_layer())},
                {"compiler", compiler()}});
  } else {
    fmt::print("saccade            {}\n", version());
    fmt::print("processor          {}\n", cpu_name().empty() ? "unknown" : cpu_name());
    fmt::print("instruction sets   built      {}\n", fmt::join(built, ", "));
    fmt::print("                   available  {}\n", fmt::join(available, ", "));
    fmt::print("                   active     {}{}{}\n", isa.name.value_or("none"),
               has_f16 ? " with AMX-FP16" : "", emulated ? " (emulated)" : "");
    print_backends(backend);
    fmt::print("threads            {} ({})\n", num_threads(), threading_layer());
    fmt::print("compiler           {}\n", compiler());
  }
  if (!isa.name) note("info", isa.error);
  if (!backend.name) note("info", backend.error);
  return isa.name && backend.name ? kGood : kBadUsage;
}

}  // namespace

void add_info(Command app, Action& action) {
  const Command command =
      app.add_subcommand("info", "Version, instruction sets, back ends, threads, processor, compiler");
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON");
  command.footer(
      "Examples:\n"
      "  saccade info\n"
      "  saccade info --json\n"
      "  SACCADE_ISA=avx2 saccade info     what a forced instruction set gives\n"
      "  SACCADE_BACKEND=reference saccade info    what another back end gives\n"
      "  OMP_NUM_THREADS=4 saccade info    what a default for threads gives");
  command.callback([=, &action] { action = [=] { return info(*json); }; });
}

}  // namespace saccade::cli
