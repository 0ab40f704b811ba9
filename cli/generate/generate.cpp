// saccade generate: a trained model continues a text.
#include <fmt/format.h>
#include <saccade/sampling.h>

#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "cli/output/terminal.h"
#include "pretrained.h"

namespace saccade::cli {
namespace {

struct GenerateArguments {
  std::string model;
  std::optional<std::string> prompt, audio, dtype, dtype_v;
  std::optional<bool> rotate;
  std::optional<std::int64_t> count, top_k, seed;
  std::optional<double> temperature, top_p;
};

/// The element type of a cache, by saccade's name or by that of Python.
DType dtype_named(const char* option, const std::string& name) {
  static const std::map<std::string, DType> kTypes = {{"f32", DType::f32},
                                                      {"float32", DType::f32},
                                                      {"bf16", DType::bf16},
                                                      {"bfloat16", DType::bf16},
                                                      {"f16", DType::f16},
                                                      {"float16", DType::f16},
                                                      {"i8", DType::i8},
                                                      {"int8", DType::i8},
                                                      {"i4", DType::i4},
                                                      {"int4", DType::i4},
                                                      {"f8e4m3", DType::f8e4m3},
                                                      {"fp8", DType::f8e4m3},
                                                      {"float8_e4m3fn", DType::f8e4m3}};
  const auto found = kTypes.find(name);
  if (found == kTypes.end())
    refuse("{}: expected float32, bfloat16, float16, int8, int4 or float8_e4m3fn, got '{}'", option, name);
  return found->second;
}

KvCacheFormat format_of(const GenerateArguments& arguments) {
  KvCacheFormat format;
  if (arguments.dtype) format.dtype = dtype_named("--kv-cache-dtype", *arguments.dtype);
  if (arguments.dtype_v) format.dtype_v = dtype_named("--kv-cache-dtype-v", *arguments.dtype_v);
  format.rotate = arguments.rotate;
  if (format.rotate == true && !is_quantized(format.dtype) && format.dtype_v != DType::i4)
    refuse("--kv-cache-rotate is for keys that are quantized, or values of int4: give --kv-cache-dtype too");
  return format;
}

ExitCode generate(const GenerateArguments& arguments) {
  if (!arguments.prompt && !arguments.audio) refuse("give --prompt, or --audio for a model of speech");
  const std::string prompt = arguments.prompt ? text_or_standard_input(*arguments.prompt) : "";
  TokenSampler sampler({.temperature = arguments.temperature.value_or(1.0),
                        .top_k = arguments.top_k.value_or(0),
                        .top_p = arguments.top_p.value_or(1.0),
                        .seed = static_cast<std::uint64_t>(arguments.seed.value_or(0))});
  const std::int64_t count = arguments.count.value_or(200);
  [[maybe_unused]] const KvCacheFormat format = format_of(arguments);
  TextWriter text;
  if (is_hugging_face_folder(arguments.model)) {
#ifdef SACCADE_HAS_TOKENIZER
    generate_pretrained({arguments.model, prompt, arguments.audio, format}, count, sampler,
                        [&](const std::string& piece) { text.add(piece); });
    text.end();
    return kGood;
#else
    refuse("this saccade was built without saccade::tokenizer, which models of Hugging Face folders need");
#endif
  }
  if (arguments.dtype || arguments.dtype_v || arguments.rotate)
    refuse("--kv-cache-dtype and the like are for models in Hugging Face folders, which have a cache");
  if (arguments.audio) refuse("--audio is for models of speech in Hugging Face folders");
  const SavedModel saved = load_model(arguments.model);
  std::vector<std::int64_t> tokens = saved.tokens_of(prompt, "--prompt");
  for (const std::int64_t token : tokens) text.add(saved.text_of(token));
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(sampler.next(saved.model->next_logits(tokens).values<float>()));
    text.add(saved.text_of(tokens.back()));
  }
  text.end();
  return kGood;
}

}  // namespace

void add_generate(Command app, Action& action) {
  const Command command = app.add_subcommand("generate", "Continue a text with a trained model");
  const auto arguments = std::make_shared<GenerateArguments>();
  add_model_option(command, arguments->model);
  command
      .add_option("-p,--prompt", arguments->prompt,
                  "What to continue; - reads standard input. For a model of the induction task: numbers")
      .type_name("TEXT");
  command.add_option("--audio", arguments->audio, "Speech to write down: 16,000 samples a second")
      .type_name("FILE.wav")
      .deprecated("--sound");
  add_integer(command, "-n,--max-new-tokens", arguments->count, "How many tokens to add at most [200]", 0)
      .deprecated("--tokens");
  add_number(command, "--temp,--temperature", arguments->temperature,
             "0: always the most likely token; 1: as the model has learnt [1]");
  add_integer(command, "--top-k", arguments->top_k, "Draw from the k most likely tokens only; 0: from all [0]", 0);
  add_number(command, "--top-p", arguments->top_p,
             "Draw from the most likely tokens that together have this probability; 1: from all [1]");
  add_integer(command, "--seed", arguments->seed, "Another seed draws other tokens [0]", 0);
  command
      .add_option(
          "--kv-cache-dtype", arguments->dtype,
          "Type of the cached keys and values: float32, bfloat16, float16, int8, int4, float8_e4m3fn [float32]")
      .type_name("TYPE");
  command.add_option("--kv-cache-dtype-v", arguments->dtype_v, "Another type for the values").type_name("TYPE");
  command.add_flag_callback(
      "--kv-cache-rotate", [arguments] { arguments->rotate = true; },
      "Cache Hadamard transforms of int8, int4 or fp8 keys and of int4 values [if either is int4]");
  command.add_flag_callback(
      "--no-kv-cache-rotate", [arguments] { arguments->rotate = false; }, "Do not, whatever their types");
  command.footer(
      "Prompt and continuation go to standard output as the model makes them; on a terminal, control characters\n"
      "other than line ends and tabs are shown as '?'.\n\n"
      "A folder with config.json, model.safetensors and tokenizer.json is read as Hugging Face's: GPT-2, "
      "GPT-NeoX,\n"
      "Llama, Mistral, Qwen, Gemma; T5, which answers the prompt; Whisper, which writes down English speech. It\n"
      "ends when the model ends the text.\n\n"
      "Examples:\n"
      "  saccade generate -m licences -p 'You may ' --temp 0.7 --top-p 0.9\n"
      "  saccade generate -m induction -p '5 17 99 3 42 17 99' -n 2 --temp 0\n"
      "  saccade generate -m SmolLM2-135M -p 'The capital of Germany is' -n 20 --temp 0\n"
      "  saccade generate -m whisper-base --audio speech.wav --temp 0");
  command.callback([=, &action] { action = [=] { return generate(*arguments); }; });
}

}  // namespace saccade::cli
