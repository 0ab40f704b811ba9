// saccade generate: a trained model continues a text.
#include <fmt/format.h>
#include <saccade/sampling.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "pretrained.h"

namespace saccade::cli {
namespace {

struct GenerateArguments {
  std::string model;
  std::optional<std::string> prompt, sound;
  std::optional<std::int64_t> count, top_k, seed;
  std::optional<double> temperature;
};

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw std::runtime_error("standard output could not be written");
  std::fflush(stdout);
}

ExitCode generate(const GenerateArguments& arguments) {
  if (!arguments.prompt && !arguments.sound) refuse("give --prompt, or --sound for a model of speech");
  const std::string prompt = arguments.prompt ? text_or_standard_input(*arguments.prompt) : "";
  TokenSampler sampler({.temperature = arguments.temperature.value_or(1.0),
                        .top_k = arguments.top_k.value_or(0),
                        .seed = static_cast<std::uint64_t>(arguments.seed.value_or(0))});
  const std::int64_t count = arguments.count.value_or(200);
  if (is_hugging_face_folder(arguments.model)) {
#ifdef SACCADE_HAS_TOKENIZER
    generate_pretrained({arguments.model, prompt, arguments.sound}, count, sampler, print);
    print("\n");
    return kGood;
#else
    refuse("this saccade was built without saccade::tokenizer, which models of Hugging Face folders need");
#endif
  }
  if (arguments.sound) refuse("--sound is for models of speech in Hugging Face folders");
  const SavedModel saved = load_model(arguments.model);
  std::vector<std::int64_t> tokens = saved.tokens_of(prompt, "--prompt");
  for (const std::int64_t token : tokens) print(saved.text_of(token));
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(sampler.next(saved.model->next_logits(tokens).values<float>()));
    print(saved.text_of(tokens.back()));
  }
  print("\n");
  return kGood;
}

}  // namespace

void add_generate(Command app, Action& action) {
  const Command command = app.add_subcommand("generate", "Continue a text with a trained model");
  const auto arguments = std::make_shared<GenerateArguments>();
  add_model_option(command, arguments->model);
  command
      .add_option("--prompt", arguments->prompt,
                  "What to continue; - reads standard input. For a model of the induction task: numbers")
      .type_name("TEXT");
  command.add_option("--sound", arguments->sound, "Speech to write down: 16,000 samples a second")
      .type_name("FILE.wav");
  add_integer(command, "--tokens", arguments->count, "How many tokens to add [200]", 0);
  add_number(command, "--temperature", arguments->temperature,
             "0: always the most likely token; 1: as the model has learnt [1]");
  add_integer(command, "--top-k", arguments->top_k, "Draw from the k most likely tokens only; 0: from all [0]", 0);
  add_integer(command, "--seed", arguments->seed, "Another seed draws other tokens [0]", 0);
  command.footer(
      "Prompt and continuation go to standard output as the model makes them.\n\n"
      "A folder with config.json, model.safetensors and tokenizer.json is read as Hugging Face's: GPT-2, "
      "GPT-NeoX,\n"
      "Llama, Mistral, Qwen, Gemma; T5, which answers the prompt; Whisper, which writes down English speech. It\n"
      "ends when the model ends the text.\n\n"
      "Examples:\n"
      "  saccade generate --model licences --prompt 'You may ' --temperature 0.7\n"
      "  saccade generate --model induction --prompt '5 17 99 3 42 17 99' --tokens 2 --temperature 0\n"
      "  saccade generate --model SmolLM2-135M --prompt 'The capital of Germany is' --tokens 20 --temperature 0\n"
      "  saccade generate --model whisper-base --sound speech.wav --temperature 0");
  command.callback([=, &action] { action = [=] { return generate(*arguments); }; });
}

}  // namespace saccade::cli
