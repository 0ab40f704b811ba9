// Models of Hugging Face folders against what `transformers` computes with them: tests/data/models has small
// random ones of each family (goldens/make_models.py), and SACCADE_MODELS may name a folder of real ones
// (script/models).
#include "saccade/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "saccade/decode.h"
#include "saccade/io.h"
#include "saccade/runtime.h"
#include "support/expect_close.h"
#include "support/refusal.h"
#include "support/system.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using std::filesystem::path;
using ::testing::HasSubstr;

const path kModels = path(SACCADE_SOURCE_DIR) / "tests/data/models";

/// The folders with expected.safetensors.
std::vector<path> folders_of_models() {
  std::vector<path> result;
  std::vector<path> roots{kModels};
  if (const char* const real = std::getenv("SACCADE_MODELS")) roots.emplace_back(real);
  for (const path& root : roots)
    for (const auto& entry : std::filesystem::directory_iterator(root))
      if (exists(entry.path() / "expected.safetensors")) result.push_back(entry.path());
  std::ranges::sort(result);
  return result;
}

std::vector<std::int64_t> numbers_of(const Tensor& tensor) {
  const auto values = tensor.values<std::int64_t>();
  return {values.begin(), values.end()};
}

/// A model, its input and what `transformers` computed.
class ModelOfFolder : public ::testing::TestWithParam<path> {
 protected:
  void TearDown() override { set_num_threads(0); }

  Model model = Model::load(GetParam());
  std::map<std::string, Tensor> expected = load_safetensors(GetParam() / "expected.safetensors").tensors;
  bool is_encoder_decoder = model.sizes().num_encoder_layers > 0;
  ModelInput source{
      .tokens = numbers("source"), .lengths = numbers("source_lengths"), .features = tensor("features")};
  Tensor encoded = is_encoder_decoder ? model.encode(source) : Tensor();
  ModelInput input = this->all();

  std::vector<std::int64_t> numbers(const std::string& name) const {
    return expected.contains(name) ? numbers_of(expected.at(name)) : std::vector<std::int64_t>{};
  }
  TensorView tensor(const std::string& name) const {
    return expected.contains(name) ? expected.at(name).view() : TensorView();
  }
  ModelInput all() const {
    ModelInput result{.tokens = numbers("tokens"), .lengths = numbers("lengths"), .types = numbers("types")};
    if (is_encoder_decoder) {
      result.encoder_states = encoded;
      result.encoder_lengths = source.lengths;
      if (source.features.rank != 0)
        result.encoder_lengths.assign(result.lengths.size(), source.features.shape[2] / 2);
    } else {
      result.features = source.features;
    }
    return result;
  }

  /// The terms of all sums on the way are as large as the largest number, and not as the result that they give.
  void expect(const TensorView& result, const std::string& name, std::int64_t begin = 0, std::int64_t end = -1) {
    SCOPED_TRACE(name);
    const Tensor& reference = expected.at(name + ".reference");
    end = end < 0 ? reference.shape(0) : end;
    double largest = 0;
    for (const double number : reference.values<double>()) largest = std::max(largest, std::abs(number));
    Tensor bound(DType::f64, Shape(result.dims().begin(), result.dims().end()));
    std::ranges::fill(bound.values<double>(), largest);
    expect_close(result, {.reference = reference.view().slice(0, begin, end),
                          .naive = expected.at(name + ".naive").view().slice(0, begin, end),
                          .bound = bound});
  }
  /// One of the sequences.
  ModelInput sequence(std::size_t index) const {
    ModelInput result;
    if (input.features.rank != 0) {
      const auto at = static_cast<std::int64_t>(index);
      result.features = input.features.slice(0, at, at + 1);
      return result;
    }
    const auto begin = begin_of(input.lengths, index), end = begin + input.lengths[index];
    const auto part = [&](const std::vector<std::int64_t>& all) {
      return all.empty() ? all : std::vector(all.begin() + begin, all.begin() + end);
    };
    result.tokens = part(input.tokens), result.types = part(input.types);
    if (is_encoder_decoder) {
      const auto first = begin_of(input.encoder_lengths, index);
      result.encoder_states = input.encoder_states.slice(0, first, first + input.encoder_lengths[index]);
    }
    return result;
  }
  std::size_t num_sequences() const {
    return input.features.rank != 0 ? static_cast<std::size_t>(input.features.shape[0]) : input.lengths.size();
  }
  static std::int64_t begin_of(const std::vector<std::int64_t>& lengths, std::size_t index) {
    return std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(index), std::int64_t{0});
  }

  int checked = 0;

  /// The largest error, in parts of the largest number.
  static double relative_error(const Tensor& result, const Tensor& reference) {
    EXPECT_EQ(result.shape(), reference.shape());
    double error = 0, largest = 0;
    for (std::size_t i = 0; i < result.values<float>().size(); ++i) {
      const double wanted = reference.values<double>()[i];
      error = std::max(error, std::abs(result.values<float>()[i] - wanted));
      largest = std::max(largest, std::abs(wanted));
    }
    return error / largest;
  }

  /// The gradients with respect to weights: some rows, as expected.safetensors has them.
  Tensor gradient_of_weights(const LayerAttention& layer, const TensorView& dout) const {
    const std::int64_t heads = layer.q.shape[1], queries = layer.q.shape[0], keys = layer.k.shape[0],
                       step = std::max<std::int64_t>(1, queries / 6), group = heads / layer.k.shape[1];
    const Tensor gradients = Tensor::copy_of(dout), values = Tensor::copy_of(layer.v);
    Tensor result(DType::f32, {heads, (queries + step - 1) / step, keys});
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t i = 0; i < queries; i += step)
        for (std::int64_t j = 0; j < keys; ++j)
          for (std::int64_t d = 0; d < layer.v.shape[2]; ++d)
            result.at<float>(head, i / step, j) +=
                gradients.at<float>(i, head, d) * values.at<float>(j, head / group, d);
    return result;
  }

  /// The weights of a layer, which also gives o again.
  Tensor weights_of(const LayerAttention& layer) {
    Tensor weights(DType::f32, {layer.q.shape[1], layer.q.shape[0], layer.k.shape[0]});
    AttentionOptions options = layer.options;
    options.weights = weights;
    const Tensor o = attention(layer.q, layer.k, layer.v, options);
    EXPECT_TRUE(same_bits(o, Tensor::copy_of(layer.o)));
    return weights;
  }
};

INSTANTIATE_TEST_SUITE_P(Folder, ModelOfFolder, ::testing::ValuesIn(folders_of_models()), [](const auto& folder) {
  std::string name = folder.param.filename().string();
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST_P(ModelOfFolder, HasTheHiddenStatesAndLogitsOfTransformers) {
  if (is_encoder_decoder) expect(encoded, "encoded");
  const Tensor hidden = model.hidden_states(input);
  expect(hidden, "hidden");
  ASSERT_EQ(model.sizes().has_logits, expected.contains("logits.reference"));
  if (!model.sizes().has_logits) return;
  // An image has one class: that of its first token.
  const std::int64_t step = model.sizes().image_size > 0 ? hidden.shape(0) / input.features.shape[0] : 1;
  const TensorView rows(hidden.data(), DType::f32, Shape{hidden.shape(0) / step, hidden.shape(1)},
                        Shape{step * hidden.shape(1), 1});
  expect(model.logits(rows), "logits");
}

TEST_P(ModelOfFolder, HasTheAttentionWeightsOfTransformers) {
  std::map<AttentionKind, std::int64_t> layers;
  const auto check = [&](const LayerAttention& layer) {
    ASSERT_EQ(layer.layer, layers[layer.kind]++);
    const char* const kind = layer.kind == AttentionKind::cross                           ? "cross_"
                             : layer.kind == AttentionKind::encoder && is_encoder_decoder ? "encoder_"
                                                                                          : "";
    const Tensor weights = weights_of(layer);
    const std::int64_t step = std::max<std::int64_t>(1, weights.shape(1) / 100);  // of the rows that are stored
    const Shape shape{weights.shape(0), (weights.shape(1) + step - 1) / step, weights.shape(2)},
        strides{weights.shape(1) * weights.shape(2), step * weights.shape(2), 1};
    expect(TensorView(weights.data(), DType::f32, shape, strides),
           kind + ("attention." + std::to_string(layer.layer)));
  };
  if (is_encoder_decoder) {
    ModelInput first_source = source;
    if (source.features.rank != 0)
      first_source.features = source.features.slice(0, 0, 1);
    else
      first_source.tokens.resize(static_cast<std::size_t>(source.lengths[0])), first_source.lengths.clear();
    model.encode(first_source, {.on_attention = check});
    EXPECT_EQ(layers[AttentionKind::encoder], model.sizes().num_encoder_layers);
  }
  model.hidden_states(sequence(0), {.on_attention = check});
  const ModelSizes& sizes = model.sizes();
  EXPECT_EQ(layers[sizes.is_causal ? AttentionKind::decoder : AttentionKind::encoder], sizes.num_layers);
  EXPECT_EQ(layers[AttentionKind::cross], is_encoder_decoder ? sizes.num_layers : 0);
}

TEST_P(ModelOfFolder, HasTheGradientsOfTransformers) {
  // Of the sum of the first sequence's logits times `objective`, or of its hidden states, without logits. How much
  // errors of rounding grow on the way back is one number for a model: the largest that naive runs have anywhere.
  double naive = 0;
  for (const auto& [name, number] : expected)
    if (const std::size_t end = name.find(".naive"); end != std::string::npos && name.find("gradient.") < end)
      naive = std::max(naive, relative_error(number, expected.at(name.substr(0, end) + ".reference")));
  ASSERT_GT(naive, 0);
  const double allowed = 2 * naive + 1e-6;
  const auto check = [&](const LayerAttention& layer, const TensorView& dout) {
    const std::string name = (layer.kind == AttentionKind::cross                           ? "cross_gradient."
                              : layer.kind == AttentionKind::encoder && is_encoder_decoder ? "encoder_gradient."
                                                                                           : "gradient.") +
                             std::to_string(layer.layer);
    const Tensor& reference = expected.at(name + ".reference");
    EXPECT_LE(relative_error(gradient_of_weights(layer, dout), reference), allowed) << name;
    ++checked;
  };
  ModelInput first = sequence(0);
  ModelInput first_source = source;
  if (is_encoder_decoder && source.features.rank != 0)
    first_source.features = source.features.slice(0, 0, 1);
  else if (is_encoder_decoder)
    first_source = {.tokens = {source.tokens.begin(), source.tokens.begin() + source.lengths[0]}};
  const Tensor states = model.hidden_states(first);
  // The head of a model of images reads the class token.
  const bool is_of_class = input.features.rank != 0;
  const TensorView read = is_of_class ? states.view().slice(0, 0, 1) : states.view();
  Tensor dstates(DType::f32, states.shape());
  const MutableTensorView dread = is_of_class ? dstates.mutable_view().slice(0, 0, 1) : dstates.mutable_view();
  copy(model.sizes().has_logits ? model.logits_backward(read, tensor("objective"))
                                : Tensor(expected.at("objective")),
       dread);
  const Tensor dsource = model.backward(first, dstates, check);
  EXPECT_EQ(dsource.rank() != 0, is_encoder_decoder);
  if (is_encoder_decoder) model.encode_backward(first_source, dsource, check);
  EXPECT_EQ(checked, model.sizes().num_encoder_layers + model.sizes().num_layers * (is_encoder_decoder ? 2 : 1));
}

TEST_P(ModelOfFolder, GivesASequenceTheSameBitsAloneAndOnAnyThreads) {
  const Tensor together = model.hidden_states(input);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < num_sequences(); ++i) {
    const Tensor alone = model.hidden_states(sequence(i), {.num_threads = i % 2 == 0 ? 1 : 3});
    const std::int64_t end = begin + alone.shape(0);
    EXPECT_TRUE(same_bits(alone, Tensor::copy_of(together.view().slice(0, begin, end)))) << "sequence " << i;
    begin = end;
  }
}

TEST_P(ModelOfFolder, ContinuesFromItsCache) {
  if (!model.sizes().is_causal) {
    EXPECT_THROW(model.make_cache(), std::invalid_argument);
    return;
  }
  const ModelInput first = sequence(0);
  const std::int64_t tokens = std::ssize(first.tokens);
  ModelCache cache = model.make_cache();
  // A prompt in two parts, then token by token.
  std::int64_t begin = 0;
  const auto feed = [&](std::int64_t count) {
    const std::vector<std::int64_t> part(first.tokens.begin() + begin, first.tokens.begin() + begin + count);
    // The cache keeps what it needs of the source.
    const TensorView states = begin == 0 ? first.encoder_states : TensorView();
    const Tensor hidden = model.hidden_states({.tokens = part, .encoder_states = states}, {.cache = &cache});
    expect(hidden, "hidden", begin, begin + count);
    begin += count;
    EXPECT_EQ(cache.length(), begin);
  };
  feed(5), feed(4);
  while (begin < std::min<std::int64_t>(tokens, 17)) feed(1);
  cache.truncate(begin - 1);
  begin -= 1;
  feed(1);
}

TEST_P(ModelOfFolder, KeepsItsCacheInFewerBits) {
  if (!model.sizes().is_causal) return;
  const ModelInput first = sequence(0);
  ModelCache cache = model.make_cache(), small = model.make_cache({.dtype = DType::i8});
  const auto last_state = [&](ModelCache& of) {
    const Tensor hidden = model.hidden_states(first, {.cache = &of});
    return Tensor::copy_of(hidden.view().select(0, hidden.shape(0) - 1));
  };
  const Tensor wanted = last_state(cache), state = last_state(small);
  EXPECT_FALSE(same_bits(state, wanted));
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(double{state.at<float>(i)} - double{wanted.at<float>(i)}, 2);
    norm += std::pow(double{wanted.at<float>(i)}, 2);
  }
  EXPECT_LT(error, 0.05 * 0.05 * norm);
  EXPECT_LT(small.bytes(), cache.bytes());
  EXPECT_THROW(model.make_cache({.rotate = true}), std::invalid_argument);
}

TEST_P(ModelOfFolder, SwitchesHeadsOff) {
  const ModelInput first = sequence(0);
  const Tensor before = model.hidden_states(first);
  const Tensor after = model.hidden_states(first, {.on_attention = [](const LayerAttention& layer) {
                                             const MutableTensorView head = layer.o.select(1, 1);
                                             if (layer.layer == 0)
                                               copy(Tensor(DType::f32, {head.shape[0], head.shape[1]}), head);
                                           }});
  EXPECT_FALSE(same_bits(before, after));
}

TEST(Model, EditsTheAttentionOfAnEncoderDecoderThatIsNamed) {
  const Model model = Model::load(kModels / "t5");
  const ModelInput source{.tokens = {7, 8, 9}};
  const auto without = [](std::optional<AttentionKind> kind) {
    return ModelOptions{.on_attention = [kind](const LayerAttention& layer) {
      const HeadEdit edits[] = {{.place = {0, 1}, .kind = kind}};
      edit_heads(layer, edits);
    }};
  };
  const auto zeroed = [](AttentionKind kind) {
    return ModelOptions{.on_attention = [kind](const LayerAttention& layer) {
      const MutableTensorView head = layer.o.select(1, 1);
      if (layer.layer == 0 && layer.kind == kind) copy(Tensor(DType::f32, {head.shape[0], head.shape[1]}), head);
    }};
  };
  const Tensor encoded = model.encode(source),
               encoded_without = model.encode(source, zeroed(AttentionKind::encoder));
  EXPECT_FALSE(same_bits(encoded_without, encoded));
  for (const std::optional<AttentionKind> kind : {std::optional<AttentionKind>(), {AttentionKind::encoder}})
    EXPECT_TRUE(same_bits(model.encode(source, without(kind)), encoded_without));
  EXPECT_TRUE(same_bits(model.encode(source, without(AttentionKind::decoder)), encoded));

  const ModelInput input{.tokens = {0, 5, 6}, .encoder_states = encoded};
  const Tensor whole = model.hidden_states(input),
               without_decoder = model.hidden_states(input, zeroed(AttentionKind::decoder)),
               without_cross = model.hidden_states(input, zeroed(AttentionKind::cross));
  EXPECT_FALSE(same_bits(without_decoder, whole));
  EXPECT_FALSE(same_bits(without_cross, whole));
  EXPECT_FALSE(same_bits(without_cross, without_decoder));
  EXPECT_TRUE(same_bits(model.hidden_states(input, without({})), without_decoder));
  EXPECT_TRUE(same_bits(model.hidden_states(input, without(AttentionKind::decoder)), without_decoder));
  EXPECT_TRUE(same_bits(model.hidden_states(input, without(AttentionKind::cross)), without_cross));
  EXPECT_TRUE(same_bits(model.hidden_states(input, without(AttentionKind::encoder)), whole));
}

TEST(Model, ShowsTheWeightsThatFollowAttention) {
  // Stored as [d_model, heads * head_dim] and as [heads * head_dim, d_model].
  for (const bool is_gpt2 : {false, true}) {
    const path folder = kModels / (is_gpt2 ? "gpt2" : "llama");
    const auto tensors = load_safetensors(folder / "model.safetensors").tensors;
    Model::load(folder).hidden_states(
        {.tokens = {1, 2}}, {.on_attention = [&](const LayerAttention& layer) {
          const std::string number = std::to_string(layer.layer);
          const Tensor& stored = tensors.at(is_gpt2 ? "transformer.h." + number + ".attn.c_proj.weight"
                                                    : "model.layers." + number + ".self_attn.o_proj.weight");
          const std::int64_t dim = layer.q.shape[2], d_model = 24;
          ASSERT_THAT(layer.output_weight.dims(), ::testing::ElementsAre(layer.q.shape[1], dim, d_model));
          for (std::int64_t i = 0; i < layer.q.shape[1] * dim; ++i)
            for (std::int64_t j = 0; j < d_model; ++j)
              EXPECT_EQ(Tensor::copy_of(layer.output_weight).at<float>(i / dim, i % dim, j),
                        is_gpt2 ? stored.at<float>(i, j) : stored.at<float>(j, i));
        }});
  }
}

// ---- What is refused -----------------------------------------------------------------------------------------

/// A copy of a small model whose files a test may damage.
class DamagedModel : public ::testing::Test {
 protected:
  DamagedModel() { std::filesystem::copy(kModels / "llama", folder); }
  ~DamagedModel() override { std::filesystem::remove_all(folder); }

  void write(const std::string& file, const std::string& text) { std::ofstream(folder / file) << text; }
  /// config.json with one text replaced.
  void change_config(const std::string& from, const std::string& to) {
    const std::vector<std::byte> bytes = read_file(folder / "config.json");
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write("config.json", text.replace(at, from.size(), to));
  }
  void change_tensors(const std::function<void(std::map<std::string, Tensor>&)>& change) {
    Safetensors contents = load_safetensors(folder / "model.safetensors");
    change(contents.tensors);
    save_safetensors(folder / "model.safetensors", contents);
  }
  std::string error() const {
    try {
      Model::load(folder);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }

  const path folder = new_temporary_folder();
};

TEST_F(DamagedModel, IsFineAsItIs) { EXPECT_EQ(error(), ""); }

TEST_F(DamagedModel, NamesAnUnknownFamilyAndSwitch) {
  change_config("\"model_type\": \"llama\"", "\"model_type\": \"mamba\"");
  EXPECT_THAT(error(),
              HasSubstr("config.json: model_type is 'mamba', which is not known; known are albert, bert"));
  change_config("\"model_type\": \"mamba\"", "\"model_type\": \"llama\"");
  change_config("\"silu\"", "\"snake\"");
  EXPECT_THAT(error(), HasSubstr("hidden_act is 'snake', which is not a known activation"));
  change_config("\"snake\"", "\"silu\"");
  change_config("\"rope_type\": \"llama3\"", "\"rope_type\": \"yarn\"");
  EXPECT_THAT(error(), HasSubstr("rope_parameters.rope_type is 'yarn', but only default, linear and llama3"));
}

TEST_F(DamagedModel, NamesASizeThatIsNone) {
  change_config("\"hidden_size\": 24", "\"hidden_size\": -24");
  EXPECT_THAT(error(), HasSubstr("hidden_size must be a number of at least 1, but it is -24"));
  change_config("\"hidden_size\": -24", "\"hidden_size\": \"wide\"");
  EXPECT_THAT(error(), HasSubstr("hidden_size must be a number of at least 1, but it is \"wide\""));
  change_config("\"hidden_size\": \"wide\"", "\"other\": 0");
  EXPECT_THAT(error(), HasSubstr("hidden_size is missing"));
  write("config.json", "{\"model_type\": ");
  EXPECT_THAT(error(), HasSubstr("config.json: [json.exception.parse_error"));
}

TEST_F(DamagedModel, NamesAMissingOrIllShapedTensor) {
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  change_tensors([&](auto& tensors) { tensors.at(name) = Tensor(DType::f32, {3, 4}); });
  EXPECT_THAT(error(),
              HasSubstr("layers.1.self_attn.q_proj.weight must have shape [32, 24], but it has shape [3, 4]"));
  change_tensors([&](auto& tensors) { tensors.at(name) = Tensor(DType::i8, {32, 24}); });
  EXPECT_THAT(error(), HasSubstr("q_proj.weight must be f32, bf16 or f16, but it is i8"));
  change_tensors([&](auto& tensors) { tensors.erase(name); });
  EXPECT_THAT(error(),
              HasSubstr("lacks the tensor layers.1.self_attn.q_proj.weight (also as model.layers.1.self_attn"));
}

TEST_F(DamagedModel, NamesMissingFiles) {
  std::filesystem::remove(folder / "model.safetensors");
  EXPECT_THAT(error(), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  write("pytorch_model.bin", "");
  EXPECT_THAT(error(), HasSubstr("has its weights in pytorch_model.bin, which is not read"));
  write("model.safetensors.index.json", R"({"weight_map": {"a": "../outside.safetensors"}})");
  EXPECT_THAT(error(),
              HasSubstr("the file of a must be a name in the folder, but it is \"../outside.safetensors\""));
  std::filesystem::remove_all(folder);
  EXPECT_THAT(error(), HasSubstr("is not a folder"));
}

TEST(Model, RefusesInputsThatItCannotTake) {
  const Model model = Model::load(kModels / "bert"), base = Model::load(kModels / "bert-base"),
              decoder = Model::load(kModels / "llama");
  const auto refusal = [&](const Model& of, const ModelInput& input, const ModelOptions& options = {}) {
    return test::refusal([&] { of.hidden_states(input, options); });
  };
  EXPECT_THAT(refusal(model, {}), HasSubstr("[Model] at least one token is needed"));
  EXPECT_THAT(refusal(model, {.tokens = {1, 60}}), HasSubstr("tokens must be from 0 to 59, but number 1 is 60"));
  EXPECT_THAT(refusal(model, {.tokens = {-1}}), HasSubstr("but number 0 is -1"));
  EXPECT_THAT(refusal(model, {.tokens = {1, 2}, .types = {0, 2}}), HasSubstr("types must be from 0 to 1"));
  EXPECT_THAT(refusal(model, {.tokens = {1, 2}, .types = {0}}), HasSubstr("types must be as many as tokens, 2"));
  EXPECT_THAT(refusal(model, {.tokens = {1, 2}, .lengths = {1}}),
              HasSubstr("lengths add up to 1, but there are 2"));
  EXPECT_THAT(refusal(model, {.tokens = {1, 2}, .lengths = {2, 0}}), HasSubstr("but one is 0"));
  EXPECT_THAT(refusal(model, {.tokens = std::vector<std::int64_t>(41, 1)}),
              HasSubstr("a sequence has 41 tokens, but this model takes 40"));
  EXPECT_THAT(refusal(model, {.tokens = {1}}, {.num_threads = -1}), HasSubstr("num_threads must be 0 or more"));
  const Tensor dstates(DType::f32, {2, 23}), states(DType::f32, {2, 24});
  const OnAttentionGradient ignore = [](const LayerAttention&, const TensorView&) {};
  EXPECT_THAT(test::refusal([&] {
                decoder.backward({.tokens = {1, 2}}, dstates, ignore);
              }),
              HasSubstr("dstates must have shape [2, 24], but it has shape [2, 23]"));
  EXPECT_THAT(test::refusal([&] {
                decoder.encode_backward({.tokens = {1, 2}}, dstates, ignore);
              }),
              HasSubstr("an encoder-decoder has an encoder of its own, but this is a llama"));
  EXPECT_THAT(test::refusal([&] { decoder.logits_backward(states, states); }),
              HasSubstr("dlogits must have shape [2, 60], but it has shape [2, 24]"));
  EXPECT_THAT(test::refusal([&] { base.logits_backward(states, states); }), HasSubstr("this model has no logits"));
  ModelCache cache = decoder.make_cache(), none;
  EXPECT_THAT(refusal(decoder, {.tokens = {1, 2}, .lengths = {1, 1}}, {.cache = &cache}),
              HasSubstr("a cache is of one sequence"));
  EXPECT_THAT(refusal(decoder, {.tokens = {1}}, {.cache = &none}), HasSubstr("the cache has 0 layers"));
  EXPECT_THROW(base.logits(Tensor(DType::f32, {1, 24})), std::invalid_argument);
  EXPECT_THROW(model.logits(Tensor(DType::f32, {1, 25})), std::invalid_argument);
}

}  // namespace
}  // namespace saccade::test
