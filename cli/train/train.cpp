// saccade train: trains a small language model and shows how its attention develops.
#include <fmt/format.h>
#include <saccade/chart.h>
#include <saccade/heatmap.h>
#include <saccade/io.h>
#include <saccade/training.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "cli/commands.h"
#include "cli/models/model_file.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/output/terminal.h"
#include "head_report.h"
#include "run_options.h"

namespace saccade::cli {
namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  RunOptionArguments run;
  std::string out;
  bool resume = false;
  std::string heatmaps_at;
  std::optional<std::int64_t> checkpoint_every;
  bool json = false;
};

/// The files of a run, all in one folder.
class RunFolder {
 public:
  explicit RunFolder(fs::path folder) : folder_(std::move(folder)) {}

  std::string path(const char* file) const { return (folder_ / file).string(); }
  std::string options() const { return path("config.json"); }
  std::string checkpoint() const { return path("checkpoint.safetensors"); }
  std::string model() const { return model_path(folder_.string()); }
  std::string heatmap(std::int64_t step) const { return path(fmt::format("heads_step_{:06}.svg", step).c_str()); }
  bool holds_run() const { return fs::exists(options()); }
  std::string name() const { return folder_.string(); }

  void create() const {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw std::runtime_error(fmt::format("--output: {}: {}", folder_.string(), error.message()));
  }

 private:
  fs::path folder_;
};

constexpr const char* kDescription = "run";  // metadata of a checkpoint

void save_checkpoint(const RunFolder& folder, const Trainer& trainer) {
  save_safetensors(folder.checkpoint(),
                   {.tensors = trainer.state_dict(), .metadata = {{kDescription, trainer.description()}}});
}

void load_checkpoint(const RunFolder& folder, Trainer& trainer) {
  const Safetensors file = load_safetensors(folder.checkpoint());
  const auto description = file.metadata.find(kDescription);
  const std::string path = folder.checkpoint();
  if (description == file.metadata.end()) throw std::runtime_error(path + " is no checkpoint of saccade train");
  if (description->second != trainer.description())
    throw std::runtime_error(fmt::format("{} is of another run: expected {}, got {}", path, trainer.description(),
                                         description->second));
  try {
    trainer.load_state_dict(file.tensors);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + ": " + message_line(error.what()));
  }
}

// ---- Pictures -------------------------------------------------------------------------------------------------

std::string csv_of(const std::vector<TrainingStep>& history) {
  std::string text = "step,loss,loss_repeated,loss_unseen,lr,gradient_norm\n";
  const auto number = [](double value) { return std::isnan(value) ? std::string() : fmt::format("{}", value); };
  for (const TrainingStep& step : history)
    text += fmt::format("{},{},{},{},{},{}\n", step.step, number(step.loss), number(step.loss_repeated),
                        number(step.loss_unseen), number(step.lr), number(step.gradient_norm));
  return text;
}

std::string chart_of(const std::vector<TrainingStep>& history, const RunOptions& run) {
  const bool induction = run.task == "induction";
  std::vector<ChartSeries> series(induction ? 2 : 1);
  const std::vector<double TrainingStep::*> columns =
      induction ? std::vector{&TrainingStep::loss_unseen, &TrainingStep::loss_repeated}
                : std::vector{&TrainingStep::loss};
  series[0].name = induction ? "unseen tokens" : "training text";
  if (induction) series[1].name = "repeated tokens";
  for (const TrainingStep& step : history) {
    for (std::size_t i = 0; i < series.size(); ++i) {
      series[i].x.push_back(static_cast<double>(step.step));
      series[i].y.push_back(step.*columns[i]);
    }
  }
  return chart_svg(
      series,
      {.title = "Loss of each step", .x_label = "step", .y_label = "cross-entropy, nats", .log_y = induction});
}

/// Draws the weights of all heads on one sequence that is not in the training data.
class HeatmapsOfSample {
 public:
  HeatmapsOfSample(const RunOptions& run, const TrainingTask& task) {
    constexpr std::int64_t kMaxText = 64;  // more letters would not be legible
    const auto* text = dynamic_cast<const TextTask*>(&task);
    tokens_ = text ? text->held_out(std::min(run.model.context_length, kMaxText)).inputs
                   : task.batch(~run.training.seed, 1, run.model.context_length).inputs;
    tokens_ = Tensor::copy_of(tokens_.view().slice(0, 0, 1));
  }

  void draw(GPTModel& model, TokenKind kind, std::int64_t step, const std::string& path) const {
    const HeadReport report(model, tokens_);
    const auto values = tokens_.values<std::int64_t>();
    const SavedModel names{.model = nullptr, .tokens = kind};
    write_file(
        path, heatmap_svg(report.weights(), report.picture_options(names.labels_of({values.begin(), values.end()}),
                                                                   fmt::format("After {} steps", step))));
  }

 private:
  Tensor tokens_;
};

std::set<std::int64_t> heatmap_steps(const std::string& text, std::int64_t steps) {
  if (text.empty()) return {0, steps / 4, steps / 2, steps};
  std::set<std::int64_t> result;
  if (text == "none") return result;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const auto step = parse_integer(rest.substr(0, comma));
    if (!step || *step < 0)
      refuse("--heatmaps-at: expected steps from 0 on, as in 0,500,1000, or none, got '{}'", text);
    result.insert(*step);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return result;
}

// ---- The loop -------------------------------------------------------------------------------------------------

/// Reports the progress of the run: a bar on a terminal, else a line from time to time.
class TrainingProgress {
 public:
  TrainingProgress(const Trainer& trainer, std::int64_t tokens_per_step)
      : bar_(trainer.options().steps, trainer.steps()), first_(trainer.steps()), tokens_(tokens_per_step) {}

  void show(const Trainer& trainer) {
    const std::int64_t done = trainer.steps();
    std::string remark = fmt::format("loss {:.4f}, {:.0f} tokens/s", trainer.history().back().loss, rate(done));
    bar_.show(done, remark);
    const std::int64_t interval = std::max<std::int64_t>(trainer.options().steps / 20, 1);
    if (!bar_.is_on_terminal() && done % interval == 0) note("train", bar_.plain(done, remark));
  }
  void hide() { bar_.hide(); }

  double rate(std::int64_t done) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return static_cast<double>((done - first_) * tokens_) / std::max(seconds, 1e-9);
  }

 private:
  using Clock = std::chrono::steady_clock;

  ProgressBar bar_;
  Clock::time_point start_ = Clock::now();
  std::int64_t first_, tokens_;
};

/// The checkpoint comes last: a run that is killed before it repeats the steps, and so writes the other files
/// again.
void save_all(const RunFolder& folder, const RunOptions& run, Trainer& trainer, TokenKind kind) {
  save_model(folder.model(), trainer.model(), kind);
  write_file(folder.path("loss.csv"), csv_of(trainer.history()));
  if (trainer.steps() > 0) write_file(folder.path("loss.svg"), chart_of(trainer.history(), run));
  save_checkpoint(folder, trainer);
}

/// Returns tokens per second.
double run_steps(const TrainArguments& arguments, const RunFolder& folder, const RunOptions& run,
                 const TrainingTask& task, Trainer& trainer) {
  const TokenKind kind = run.task == "text" ? TokenKind::bytes : TokenKind::numbers;
  const std::set<std::int64_t> heatmaps = heatmap_steps(arguments.heatmaps_at, run.training.steps);
  const std::int64_t interval = arguments.checkpoint_every.value_or(100);
  const HeatmapsOfSample sample(run, task);
  const auto draw = [&] {
    if (!heatmaps.contains(trainer.steps())) return;
    sample.draw(trainer.model(), kind, trainer.steps(), folder.heatmap(trainer.steps()));
    save_model(kept_model_path(folder.name(), trainer.steps()), trainer.model(), kind);
  };
  if (trainer.steps() == 0) draw();
  TrainingProgress progress(trainer, run.training.batch_size * run.model.context_length);
  while (!trainer.is_done()) {
    trainer.step();
    progress.show(trainer);
    draw();
    if (trainer.is_done() || trainer.steps() % interval == 0) save_all(folder, run, trainer, kind);
  }
  progress.hide();
  return progress.rate(trainer.steps());
}

// ---- Results --------------------------------------------------------------------------------------------------

struct Outcome {
  Json json;
  std::string text;
};

Outcome outcome_of_text(GPTModel& model, const TextTask& task) {
  const double bits = evaluate(model, task.held_out(model.options().context_length)) / std::numbers::ln2;
  const double order_0 = task.unigram_bits_per_byte();
  return {
      .json = {{"held_out_bytes", task.held_out_part().size()},
               {"bits_per_byte", json_number(bits)},
               {"unigram_bits_per_byte", json_number(order_0)}},
      .text = fmt::format("held-out text: {:.3f} bits a byte; knowing only how often each byte occurs: {:.3f}\n",
                          bits, order_0)};
}

Outcome outcome_of_induction(GPTModel& model, const RunOptions& run, const InductionTask& task,
                             const Terminal& terminal) {
  const TokenBatch batch = task.batch(~run.training.seed, 64, run.model.context_length);
  const InductionLosses losses = induction_losses(model, batch);
  const HeadReport report(model, batch.inputs);
  return {.json = {{"loss_repeated", json_number(losses.repeated)},
                   {"loss_unseen", json_number(losses.unseen)},
                   {"heads", report.to_json()}},
          .text = fmt::format(
              "64 new sequences: loss {:.4f} on repeated tokens, {:.4f} on unseen ones, a ratio of "
              "{:.4f}\n{}",
              losses.repeated, losses.unseen, losses.repeated / losses.unseen, report.table(terminal))};
}

/// Every step allocates the same tensors again. Memory that is returned to the system between steps causes a page
/// fault per page: 102,000 tokens per second instead of 157,000 (induction, Zen 4).
void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

ExitCode train(const TrainArguments& arguments) {
  keep_freed_memory();
  const RunFolder folder(arguments.out);
  if (arguments.resume && !folder.holds_run()) refuse("--resume: {} holds no run", folder.name());
  if (!arguments.resume && folder.holds_run())
    refuse("--output: {} holds a run already; --resume goes on with it", folder.name());
  const RunOptions run = arguments.resume ? load_run_options(folder.options()) : arguments.run.fresh();
  if (arguments.resume) arguments.run.require_same(run, folder.name());
  heatmap_steps(arguments.heatmaps_at, run.training.steps);

  const std::shared_ptr<const TrainingTask> task = run.make_task();
  Trainer trainer(run.model, run.training, task);
  task->batch(0, 1, run.model.context_length);
  if (const auto* text = dynamic_cast<const TextTask*>(task.get())) text->held_out(run.model.context_length);
  if (arguments.resume && fs::exists(folder.checkpoint())) {
    load_checkpoint(folder, trainer);
    note("train", fmt::format("resuming after step {} of {}", trainer.steps(), run.training.steps));
  }
  if (!arguments.resume) {
    folder.create();
    write_file(folder.options(), to_json(run).dump(2) + "\n");
  }
  const std::int64_t first = trainer.steps();
  const double rate = run_steps(arguments, folder, run, *task, trainer);

  trainer.model().eval();
  const Terminal terminal = Terminal::of_standard_output();
  const auto* text = dynamic_cast<const TextTask*>(task.get());
  Outcome outcome =
      text ? outcome_of_text(trainer.model(), *text)
           : outcome_of_induction(trainer.model(), run, dynamic_cast<const InductionTask&>(*task), terminal);
  if (arguments.json) {
    outcome.json["steps"] = trainer.steps();
    outcome.json["tokens_per_second"] = json_number(rate);
    print_json(outcome.json);
    return kGood;
  }
  fmt::print("{} steps{}\n{}written to {}: model.safetensors, loss.csv, loss.svg, heat maps\n", trainer.steps(),
             trainer.steps() > first ? fmt::format(", {:.0f} tokens/s", rate) : " made before", outcome.text,
             visible(folder.name()));
  return kGood;
}

}  // namespace

void add_train(Command app, Action& action) {
  const Command command = app.add_subcommand("train", "Train a small language model and watch its heads form");
  const auto arguments = std::make_shared<TrainArguments>();
  arguments->run.add_to(command);
  command.add_option("-o,--output", arguments->out, "Folder of the run: model, checkpoint, loss curve, heat maps")
      .type_name("DIR")
      .required()
      .deprecated("--out");
  command.add_flag("--resume", arguments->resume,
                   "Go on with the run in DIR from its last checkpoint; other options may be left out");
  add_integer(command, "--checkpoint-every", arguments->checkpoint_every, "Steps between checkpoints [100]", 1);
  command
      .add_option("--heatmaps-at", arguments->heatmaps_at,
                  "Steps after which all heads are drawn on a sample, and the model is kept for saccade look, as "
                  "in 0,500,1000; "
                  "none [begin, quarter, half, end]")
      .type_name("S,S,...");
  command.add_flag("--json", arguments->json, "Print what was learnt as JSON");
  command.footer(
      "The same options give the same model to the bit on one machine, also when the run was killed and "
      "resumed.\n\n"
      "Examples:\n"
      "  saccade train --task induction -o induction\n"
      "  saccade train --text /usr/share/common-licenses/* --context 128 --d-model 128 --layers 4 --heads 4 -o "
      "licences\n"
      "  saccade train --resume -o licences");
  command.callback([=, &action] { action = [=] { return train(*arguments); }; });
}

}  // namespace saccade::cli
