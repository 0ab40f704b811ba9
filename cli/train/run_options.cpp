#include "run_options.h"

#include <saccade/io.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace saccade::cli {
namespace {

// One row for each option: its name, its variable, and the allowed values.
struct IntegerOption {
  const char* name;
  const char* help;
  std::int64_t min;
  std::int64_t& (*of)(RunOptions&);
};

struct NumberOption {
  const char* name;
  const char* help;
  double& (*of)(RunOptions&);
};

std::int64_t& layers(RunOptions& r) { return r.model.num_layers; }
std::int64_t& heads(RunOptions& r) { return r.model.num_heads; }
std::int64_t& d_model(RunOptions& r) { return r.model.d_model; }
std::int64_t& context(RunOptions& r) { return r.model.context_length; }
std::int64_t& vocab(RunOptions& r) { return r.vocab_size; }
std::int64_t& steps(RunOptions& r) { return r.training.steps; }
std::int64_t& batch(RunOptions& r) { return r.training.batch_size; }
std::int64_t& warmup(RunOptions& r) { return r.training.warmup_steps; }
double& lr(RunOptions& r) { return r.training.lr; }
double& dropout(RunOptions& r) { return r.model.dropout; }
double& weight_decay(RunOptions& r) { return r.training.weight_decay; }
double& momentum(RunOptions& r) { return r.training.momentum; }
double& clip(RunOptions& r) { return r.training.clip_norm; }

constexpr std::array kIntegers{
    IntegerOption{"layers", "Transformer blocks", 1, &layers},
    IntegerOption{"heads", "Attention heads of a layer", 1, &heads},
    IntegerOption{"d-model", "Width of the model, a multiple of --heads", 1, &d_model},
    IntegerOption{"context", "Tokens of a sequence", 1, &context},
    IntegerOption{"vocab", "Tokens of the induction task", 2, &vocab},
    IntegerOption{"steps", "Steps to make", 1, &steps},
    IntegerOption{"batch", "Sequences of a step", 1, &batch},
    IntegerOption{"warmup", "Steps until the learning rate is reached", 0, &warmup},
};

constexpr std::array kNumbers{
    NumberOption{"lr", "The highest learning rate; it falls along half a cosine to a tenth", &lr},
    NumberOption{"dropout", "The probability of dropping, from 0 to below 1", &dropout},
    NumberOption{"weight-decay", "Weight decay of matrices", &weight_decay},
    NumberOption{"momentum", "Momentum of sgd", &momentum},
    NumberOption{"clip", "The longest gradient; 0: any", &clip},
};

constexpr const char* kAdamW = "adamw";
constexpr const char* kSgd = "sgd";

const char* name_of_optimizer(OptimizerKind kind) { return kind == OptimizerKind::sgd ? kSgd : kAdamW; }
OptimizerKind optimizer_named(std::string_view name) {
  return name == kSgd ? OptimizerKind::sgd : OptimizerKind::adamw;
}

/// Sets what follows from the options: induction needs only attention, a text needs a larger model.
void complete_model(RunOptions& run) {
  const bool is_text = run.task == "text";
  run.model.vocab_size = is_text ? 256 : run.vocab_size;
  run.model.d_hidden = is_text ? 4 * run.model.d_model : 0;
  run.model.attention_only = !is_text;
  run.model.init = GPTInitialization::sinusoidal;
}

std::vector<std::string> absolute(const std::vector<std::string>& files) {
  std::vector<std::string> result;
  result.reserve(files.size());
  for (const std::string& file : files)
    result.push_back(std::filesystem::absolute(file).lexically_normal().string());
  return result;
}

}  // namespace

std::shared_ptr<const TrainingTask> RunOptions::make_task() const {
  if (task == "induction") return std::make_shared<InductionTask>(vocab_size);
  std::string text;
  for (const std::string& file : files) {
    const std::vector<std::byte> bytes = read_file(file);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return std::make_shared<TextTask>(std::move(text));
}

void RunOptionArguments::add_to(Command app) {
  integers_.resize(kIntegers.size() + 1);
  numbers_.resize(kNumbers.size());
  const Option task =
      app.add_option("--task", task_, "induction: random tokens in which a segment of random length comes again")
          .one_of({"induction"});
  app.add_option("--text", files_, "The bytes of these files, one after the other")
      .type_name("FILE")
      .excludes(task);
  RunOptions defaults;
  const auto with_default = [](const char* help, const auto& value) {
    return fmt::format("{} [{}]", help, value);
  };
  for (std::size_t i = 0; i < kIntegers.size(); ++i) {
    const IntegerOption& option = kIntegers[i];
    add_integer(app, std::string("--") + option.name, integers_[i], with_default(option.help, option.of(defaults)),
                option.min);
  }
  add_integer(app, "--seed", integers_.back(), "Parameters, batches and dropout follow from it [0]", 0);
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    add_number(app, std::string("--") + kNumbers[i].name, numbers_[i],
               with_default(kNumbers[i].help, kNumbers[i].of(defaults)));
  }
  app.add_option("--optimizer", optimizer_, "adamw or sgd [adamw]").one_of({kAdamW, kSgd});
}

RunOptions RunOptionArguments::fresh() const {
  RunOptions run;
  if (!task_ && files_.empty()) refuse("--task induction or --text FILE... is needed: what to learn");
  run.task = files_.empty() ? *task_ : "text";
  run.files = absolute(files_);
  for (std::size_t i = 0; i < kIntegers.size(); ++i)
    if (integers_[i]) kIntegers[i].of(run) = *integers_[i];
  if (integers_.back()) run.training.seed = static_cast<std::uint64_t>(*integers_.back());
  for (std::size_t i = 0; i < kNumbers.size(); ++i)
    if (numbers_[i]) kNumbers[i].of(run) = *numbers_[i];
  if (optimizer_) run.training.optimizer = optimizer_named(*optimizer_);
  complete_model(run);
  return run;
}

void RunOptionArguments::require_same(const RunOptions& run, const std::string& folder) const {
  const Json saved = to_json(run);
  const auto require = [&](const std::string& name, const Json& given) {
    if (saved.at(name) == given) return;
    refuse("--{} is {}, but the run in {} has {}", name, given.dump(), folder, saved.at(name).dump());
  };
  if (task_) require("task", *task_);
  if (!files_.empty()) require("text", absolute(files_));
  for (std::size_t i = 0; i < kIntegers.size(); ++i)
    if (integers_[i]) require(kIntegers[i].name, *integers_[i]);
  if (integers_.back()) require("seed", *integers_.back());
  for (std::size_t i = 0; i < kNumbers.size(); ++i)
    if (numbers_[i]) require(kNumbers[i].name, *numbers_[i]);
  if (optimizer_) require("optimizer", *optimizer_);
}

Json to_json(const RunOptions& run) {
  RunOptions values = run;
  Json json;
  json["task"] = run.task;
  json["text"] = run.files;
  for (const IntegerOption& option : kIntegers) json[option.name] = option.of(values);
  for (const NumberOption& option : kNumbers) json[option.name] = option.of(values);
  json["optimizer"] = name_of_optimizer(run.training.optimizer);
  json["seed"] = run.training.seed;
  return json;
}

RunOptions load_run_options(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  try {
    const Json json = Json::parse(begin, begin + bytes.size());
    RunOptions run;
    run.task = json.at("task").get<std::string>();
    if (run.task != "induction" && run.task != "text") refuse("task is {}", run.task);
    run.files = json.at("text").get<std::vector<std::string>>();
    for (const IntegerOption& option : kIntegers) option.of(run) = json.at(option.name).get<std::int64_t>();
    for (const NumberOption& option : kNumbers) option.of(run) = json.at(option.name).get<double>();
    run.training.optimizer = optimizer_named(json.at("optimizer").get<std::string>());
    run.training.seed = json.at("seed").get<std::uint64_t>();
    complete_model(run);
    return run;
  } catch (const std::exception& error) {
    throw std::runtime_error(path + " is not what saccade train writes: " + error.what());
  }
}

}  // namespace saccade::cli
