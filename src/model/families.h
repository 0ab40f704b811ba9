// The supported model families, by model_type of config.json.
#pragma once

#include "model/checkpoint/config.h"
#include "model/table.h"

namespace saccade::model {

/// The table of a model. Throws std::runtime_error for an unsupported family, architecture or switch.
ModelTable table_of(const Config& config);

// families/: one file for those that share most of their table.
ModelTable bert(const Config& config);
ModelTable roberta(const Config& config);
ModelTable distilbert(const Config& config);
ModelTable albert(const Config& config);
ModelTable gpt2(const Config& config);
ModelTable gpt_neox(const Config& config);
ModelTable llama(const Config& config);
ModelTable mistral(const Config& config);
ModelTable qwen2(const Config& config);
ModelTable qwen3(const Config& config);
ModelTable gemma(const Config& config);
ModelTable gemma2(const Config& config);
ModelTable gemma3(const Config& config);
ModelTable vit(const Config& config);
ModelTable t5(const Config& config);
ModelTable whisper(const Config& config);

}  // namespace saccade::model
