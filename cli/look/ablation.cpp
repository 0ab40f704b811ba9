// saccade look --ablate: what changes when heads are switched off.
#include <fmt/format.h>
#include <saccade/ablation.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "cli/output/json.h"
#include "look.h"

namespace saccade::cli {
namespace {

std::string list_of(const TextExpectation& expected) {
  std::string list;
  for (const NextToken& next : expected.next)
    list += fmt::format("{}{:?} {:.3f}", list.empty() ? "" : ", ", next.text, next.probability);
  return list;
}

Json json_of(const TextExpectation& expected) {
  Json list = Json::array();
  for (const NextToken& next : expected.next)
    list.push_back({{"token", next.text}, {"probability", next.probability}});
  return {{"loss", json_number(expected.loss)},
          {"repeated_loss", json_number(expected.repeated_loss)},
          {"next", list}};
}

}  // namespace

void print_ablation(const LookArguments& arguments) {
  if (!arguments.text) refuse("give --text, which the model reads");
  AblationOptions options{.replaced_by = arguments.mean ? Ablation::mean : Ablation::zero,
                          .num_threads = arguments.num_threads()};
  const AblationOptions as_it_is = options;
  for (const std::string& name : arguments.ablated) options.heads.push_back(head_place(name, "--ablate"));
  const PretrainedModel pretrained = PretrainedModel::load(arguments.model);
  const std::string text = text_or_standard_input(*arguments.text);
  const TextExpectation after = text_expectation(pretrained, text, options),
                        before = text_expectation(pretrained, text, as_it_is);
  if (arguments.json)
    return print_json({{"ablated", arguments.ablated},
                       {"replaced_by", arguments.mean ? "mean" : "zero"},
                       {"tokens", before.num_tokens},
                       {"before", json_of(before)},
                       {"after", json_of(after)}});
  fmt::print("loss    {:.4f} -> {:.4f} ({:+.4f} nats a token, over {} tokens)\n", before.loss, after.loss,
             after.loss - before.loss, before.num_tokens);
  if (!std::isnan(before.repeated_loss))
    fmt::print("again   {:.4f} -> {:.4f} ({:+.4f}, over the {} tokens that follow as before)\n",
               before.repeated_loss, after.repeated_loss, after.repeated_loss - before.repeated_loss,
               before.num_repeated);
  fmt::print("next    {}\n     -> {}\n", list_of(before), list_of(after));
}

}  // namespace saccade::cli
