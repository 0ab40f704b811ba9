#include "model/families.h"

#include <map>

namespace saccade::model {

ModelTable table_of(const Config& config) {
  static const std::map<std::string, ModelTable (*)(const Config&)> kFamilies{
      {"albert", albert},
      {"bert", bert},
      {"distilbert", distilbert},
      {"gemma", gemma},
      {"gemma2", gemma2},
      {"gemma3_text", gemma3},
      {"gpt2", gpt2},
      {"gpt_neox", gpt_neox},
      {"llama", llama},
      {"mistral", mistral},
      {"qwen2", qwen2},
      {"qwen3", qwen3},
      {"roberta", roberta},
      {"t5", t5},
      {"vit", vit},
      {"whisper", whisper},
  };
  const std::string type = config.text("model_type");
  const auto family = kFamilies.find(type);
  if (family != kFamilies.end()) return family->second(config);
  std::string known;
  for (const auto& [name, table] : kFamilies) known += (known.empty() ? "" : ", ") + name;
  config.refuse("model_type", "is '", type, "', which is not known; known are ", known);
}

}  // namespace saccade::model
