// saccade tour: every published example, number by number.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "chapters.h"
#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"

namespace saccade::cli {
namespace {

struct TourArguments {
  std::string language = "en";
  bool json = false;
};

ExitCode run_tour(const TourArguments& arguments) {
  const Language language = arguments.language == "zh" ? Language::chinese : Language::english;
  const Tour tour = make_tour(language);
  if (arguments.json) {
    print_json(tour_json(tour));
  } else {
    fmt::print("{}", tour_text(tour, language, Terminal::of_standard_output()));
  }
  return tour.holds() ? kGood : kCheckFailed;
}

}  // namespace

Tour make_tour(Language language) {
  Guide guide(language);
  tell_dot_products(guide);
  tell_one_query(guide);
  tell_all_pairs(guide);
  tell_hello_shiny_sun(guide);
  tell_trainable_weights(guide);
  tell_linear_layers(guide);
  tell_causal_mask(guide);
  tell_dropout(guide);
  tell_causal_module(guide);
  tell_many_heads(guide);
  tell_numpy_example(guide);
  tell_five_tokens(guide);
  tell_repeated_row(guide);
  return std::move(guide).finish();
}

void add_tour(Command app, Action& action) {
  const Command command =
      app.add_subcommand("tour", "Attention by hand, no input: every published number beside the computed one");
  const auto arguments = std::make_shared<TourArguments>();
  command.add_option("--lang", arguments->language, "Language: en or zh")
      .one_of({"en", "zh"})
      .capture_default_str();
  command.add_flag("--json", arguments->json, "Print JSON");
  command.footer(
      "tour explains the published examples; explain does the same for your own vectors, look shows a trained "
      "model,\n"
      "inspect gives statistics of your own q and k.\n\n"
      "Exit code 1 when a number is farther from the printed one than the tolerance given with it.\n\n"
      "Examples:\n"
      "  saccade tour\n"
      "  saccade tour --lang zh\n"
      "  saccade tour --json > tour.json");
  command.callback([=, &action] { action = [=] { return run_tour(*arguments); }; });
}

}  // namespace saccade::cli
