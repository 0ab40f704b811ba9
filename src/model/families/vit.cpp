// ViT (arXiv:2010.11929): an encoder of an image's patches, with layer norms before each half.
#include "model/families/common.h"

namespace saccade::model {

ModelTable vit(const Config& config) {
  ModelTable table{.prefixes = {"vit."}};
  StackTable& stack = table.stack = usual_sizes(config);
  const bool has_bias = config.flag_or("qkv_bias", true);
  stack.norm_eps = config.number_or("layer_norm_eps", 1e-12);
  stack.activation = config.activation("hidden_act");
  stack.image = {.patches = "embeddings.patch_embeddings.projection",
                 .class_token = "embeddings.cls_token",
                 .positions = "embeddings.position_embeddings",
                 .size = config.size("image_size"),
                 .patch_size = config.size("patch_size"),
                 .channels = config.size_or("num_channels", 3)};
  if (stack.image.size % stack.image.patch_size != 0)
    config.refuse("image_size", "must be a multiple of patch_size, ", stack.image.patch_size, ", but it is ",
                  stack.image.size);
  stack.block = {.prefix = "encoder.layer.{}.",
                 .attention = {.query = {"attention.attention.query", has_bias},
                               .key = {"attention.attention.key", has_bias},
                               .value = {"attention.attention.value", has_bias},
                               .output = {"attention.output.dense", true}},
                 .before_attention = "layernorm_before",
                 .up = {"intermediate.dense", true},
                 .down = {"output.dense", true},
                 .before_mlp = "layernorm_after"};
  stack.final_norm = "layernorm";
  if (has_architecture(config, "ForImageClassification")) {
    table.vocab_size = config.has("id2label") ? config.part("id2label").count() : 2;
    table.head = {.decoder = "classifier.weight", .bias = "classifier.bias"};
  }
  return table;
}

}  // namespace saccade::model
