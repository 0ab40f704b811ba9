// Wrong calls of files, models and tokenizers: names of files that are not there, bytes that are none of the
// format, and wrong arguments of what was read.
#include <filesystem>

#include "hostile/wrong_calls.h"
#include "saccade/ablation.h"
#include "saccade/image.h"
#include "saccade/io.h"
#include "saccade/kv_cache_file.h"
#include "saccade/log_mel.h"
#include "saccade/look.h"
#include "saccade/model.h"
#include "saccade/pretrained.h"
#include "saccade/sentence_embeddings.h"
#include "saccade/tokenizer.h"
#include "support/system.h"

namespace saccade::test {
namespace {

using std::filesystem::path;

const path kData = path(SACCADE_SOURCE_DIR) / "tests/data";

/// A folder that goes with the test's program.
const path& folder_of_files() {
  static const struct Folder {
    path name = new_temporary_folder();
    ~Folder() { remove_all(name); }
  } kFolder;
  return kFolder.name;
}

/// A file to write, or a name under which none can be written.
path file_to_write(Arguments& a, const char* name) {
  if (!a.is_wrong("path")) return folder_of_files() / name;
  return a.one_of<path>({folder_of_files() / "no folder" / name, folder_of_files(), path(), path("\n\x1b[31m/x"),
                         folder_of_files() / std::string(300, 'x')});
}
/// A file that was written, or something else.
path file_to_read(Arguments& a, const char* name) {
  if (!a.is_wrong("path")) return folder_of_files() / name;
  return a.one_of<path>({folder_of_files() / "missing", folder_of_files(), path(), path("\n\x1b[31m"),
                         kData / "files/README.md", path(std::string(1000, 'x'))});
}

/// The bytes of a file, damaged in one place or cut.
std::vector<std::byte> bytes_of_file(Arguments& a, const path& file) {
  std::vector<std::byte> bytes = read_file(file);
  if (!a.is_wrong("bytes")) return bytes;
  if (a.below(3) == 0) bytes.resize(a.below(bytes.size()));
  if (!bytes.empty()) bytes[a.below(bytes.size())] ^= std::byte{static_cast<std::uint8_t>(1 + a.below(255))};
  return bytes;
}

// ---- Tensors in files ------------------------------------------------------------------------------------------

void write_files() {
  const Tensor x = random_tensor({3, 4}, 1);
  save_npy(folder_of_files() / "x.npy", x);
  save_npz(folder_of_files() / "x.npz", {{"a", x}, {"b", x}});
  save_safetensors(folder_of_files() / "x.safetensors", {{{"a", x}}, {{"key", "value"}}});
  KvCache cache({.head_dim = 4, .page_size = 4});
  cache.append(random_tensor({1, 1, 5, 4}, 1), random_tensor({1, 1, 5, 4}, 2));
  save_kv_cache(folder_of_files() / "cache.safetensors", cache);
  write_file(folder_of_files() / "x.json",
             std::string_view(R"({"tokens": ["a", "b"], "inputs": [[1, 2], [3, 4]]})"));
  write_file(folder_of_files() / "x.csv", std::string_view("token,0,1\na,1,2\nb,3,4\n"));
}

void call_writers(Arguments& a) {
  a.name("UTF-8");
  const TensorView x = a.tensor("tensor", {3, 4});
  save_npy(file_to_write(a, "new.npy"), x);
  save_npz(file_to_write(a, "new.npz"), {{a.text("name", "a"), a.owned("tensors", {3, 4})}});
  const Safetensors contents{{{a.text("name", "a"), a.owned("tensors", {3, 4})}},
                             {{a.text("key", "k"), a.text("text", "v")}}};
  save_safetensors(file_to_write(a, "new.safetensors"), contents);
  safetensors_bytes(contents);
  write_file(file_to_write(a, "new"), std::string_view("text"));
  write_file(file_to_write(a, "new"), std::as_bytes(std::span("bytes", 5)));
}

void call_npy_writer(Arguments& a) {
  a.name("npy");
  NpyWriter writer(file_to_write(a, "pieces.npy"), a.dtype("dtype", DType::f32), a.shape("shape", {3, 4}));
  const std::vector<std::byte> piece(a.is_wrong("bytes") ? 100 : 24);
  writer.write(piece);
  NpyWriter moved = std::move(writer);
  moved.write(piece);
  moved.commit();
}

void call_readers(Arguments& a) {
  static const bool kWritten = (write_files(), true);
  ASSERT_TRUE(kWritten);
  load_npy(file_to_read(a, "x.npy"));
  load_npz(file_to_read(a, "x.npz"));
  load_safetensors(file_to_read(a, "x.safetensors"));
  load_kv_cache(file_to_read(a, "cache.safetensors"));
  load_token_embeddings(file_to_read(a, "x.json"));
  load_json(file_to_read(a, "x.json"));
  load_csv(file_to_read(a, "x.csv"));
  read_file(a.is_wrong("path") ? path("missing") : folder_of_files() / "x.csv");
  MappedFile mapped(file_to_read(a, "x.npy"));
  view_npy(MappedFile(std::move(mapped)).bytes());
}

void call_parsers(Arguments& a) {
  static const bool kWritten = (write_files(), true);
  ASSERT_TRUE(kWritten);
  const path& folder = folder_of_files();
  const auto text = [](const std::vector<std::byte>& bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::string name = a.text("name", "q");
  parse_npy(bytes_of_file(a, folder / "x.npy"), name);
  view_npy(bytes_of_file(a, folder / "x.npy"), name);
  parse_npz(bytes_of_file(a, folder / "x.npz"), name);
  parse_safetensors(bytes_of_file(a, folder / "x.safetensors"), name);
  view_safetensors(bytes_of_file(a, folder / "x.safetensors"), name);
  parse_kv_cache(bytes_of_file(a, folder / "cache.safetensors"), name);
  parse_token_embeddings(bytes_of_file(a, folder / "x.json"), name);
  parse_json(text(bytes_of_file(a, folder / "x.json")), name);
  parse_csv(text(bytes_of_file(a, folder / "x.csv")), name);
}

// ---- Pictures and sound ----------------------------------------------------------------------------------------

void call_image(Arguments& a) {
  ImageOptions options{.size = a.number("size", 8)};
  if (a.below(2) == 0) options.mean[0] = a.real("mean", 0.4);
  if (a.below(2) == 0) options.deviation[1] = a.real("deviation", 0.4);
  image_pixels(a.view_of("rgb", Tensor(DType::u8, {5, 7, 3})), options);
}

void call_log_mel(Arguments& a) {
  LogMelOptions options{.num_bins = a.number("num_bins", 8), .num_frames = a.number("num_frames", 4)};
  if (a.below(2) == 0) options.num_threads = a.small_number("num_threads", 1);
  std::vector<float> samples(a.is_wrong("samples") ? 200 : 800, 0.5F);
  if (a.is_wrong("samples")) samples[7] = std::nanf("");
  log_mel(samples, options);
}

// ---- Models ----------------------------------------------------------------------------------------------------

path folder_of_model(Arguments& a, const char* name) {
  if (!a.is_wrong("folder")) return kData / "models" / name;
  return a.one_of<path>(
      {kData / "models", kData / "missing", path(), kData / "files/README.md", path("\n\x1b[31m")});
}

const PretrainedModel& encoder() {
  static const PretrainedModel kModel = PretrainedModel::load(kData / "models/text-encoder");
  return kModel;
}
const PretrainedModel& decoder() {
  static const PretrainedModel kModel = PretrainedModel::load(kData / "models/text-decoder");
  return kModel;
}

void call_folders(Arguments& a) {
  Model::load(folder_of_model(a, "bert"));
  ImageOptions::load(folder_of_model(a, "vit"));
  load_sentence_embedding_options(folder_of_model(a, "text-encoder"));
  Tokenizer::load(folder_of_model(a, "text-encoder"));
  PretrainedModel::load(folder_of_model(a, "text-decoder"));
}

void call_model(Arguments& a) {
  const Model& model = a.below(2) == 0 ? decoder().model() : encoder().model();
  for (const char* name : {"token", "encoder", "tokens", "x"}) a.name(name);
  ModelInput input{.tokens = a.numbers("tokens", {1, 2, 3, 4})};
  if (a.below(2) == 0) input.lengths = a.numbers("lengths", {1, 3});
  if (a.below(4) == 0 && a.is_wrong("types")) input.types = a.numbers("types", {0, 0, 0, 7});
  if (a.below(4) == 0 && a.is_wrong("features")) input.features = a.tensor("features", {1, 3, 8, 8});
  if (a.below(4) == 0 && a.is_wrong("encoder_states")) input.encoder_states = a.tensor("encoder_states", {2, 24});
  const ModelOptions options{.num_threads = a.small_number("num_threads", 1)};
  const std::int64_t d_model = model.sizes().d_model;
  model.hidden_states(input, options);
  model.backward(input, a.tensor("dstates", {4, d_model}), [](const LayerAttention&, const TensorView&) {});
  if (a.is_wrong("model")) model.encode(input, options);
  if (a.is_wrong("source"))
    model.encode_backward(input, a.tensor("dstates", {4, d_model}),
                          [](const LayerAttention&, const TensorView&) {});
  if (!model.sizes().has_logits && !a.is_wrong("logits")) return;
  model.logits(a.tensor("hidden_states", {4, d_model}), a.small_number("num_threads", 1));
  model.logits_backward(a.tensor("hidden_states", {4, d_model}),
                        a.tensor("dlogits", {4, model.sizes().vocab_size}));
}

void call_model_cache(Arguments& a) {
  for (const char* name : {"token", "f64"}) a.name(name);
  const Model& model = a.is_wrong("encoder") ? encoder().model() : decoder().model();
  ModelCache cache = model.make_cache({.dtype = a.dtype("dtype", DType::f32)}, a.number("capacity", 8));
  model.hidden_states({.tokens = a.numbers("tokens", {1, 2, 3})}, {.cache = &cache});
  cache.truncate(a.number("length", 2));
}

void call_sentences(Arguments& a) {
  a.name("token");
  const std::vector<std::int64_t> sentences[] = {a.numbers("sentences", {1, 2, 3}), a.numbers("tokens", {4, 5})};
  sentence_embeddings(encoder().model(), sentences,
                      {.pooling = a.choice("pooling", {SentencePooling::mean, SentencePooling::cls})},
                      a.small_number("num_threads", 1));
}

void call_tokenizer(Arguments& a) {
  static const std::vector<std::byte> kJson = read_file(kData / "models/text-encoder/tokenizer.json");
  if (a.below(20) == 0) {
    const std::vector<std::byte> json = bytes_of_file(a, kData / "models/text-encoder/tokenizer.json");
    Tokenizer::parse({reinterpret_cast<const char*>(json.data()), json.size()}, a.text("name", "q"));
  }
  const Tokenizer& tokenizer = encoder().tokenizer();
  std::vector<Token> tokens = tokenizer.encode(a.text("text", "some text"));
  tokenizer.encode(a.text("text", "some text"), a.text("pair", "more"), a.below(2) == 0);
  tokenizer.decode(a.numbers("ids", {1, 2, 3}), a.below(2) == 0);
  tokenizer.id_of(a.text("token", "the"));
  tokenizer.text_of(a.number("id", 7));
  tokenizer.is_special(a.number("id", 7));
  truncate(tokens, static_cast<std::size_t>(a.number("most", 3)));
}

void call_pretrained(Arguments& a) {
  for (const char* name : {"token", "f64"}) a.name(name);
  encoder().ids_of(a.text("text", "some text"));
  const std::vector<std::int64_t> tokens = a.numbers("tokens", {1, 2, 3});
  std::function<std::int64_t(std::span<const float>)> next = [&](std::span<const float>) {
    return a.number("next", 5);
  };
  std::function<void(std::int64_t)> on_token = [](std::int64_t) {};
  if (a.is_wrong("next")) next = {};
  if (a.is_wrong("on_token")) on_token = {};
  continue_tokens(decoder().model(), tokens, {}, a.is_wrong("count") ? -1 : 3, next, on_token,
                  a.small_number("num_threads", 1), {.dtype = a.dtype("dtype", DType::f32)});
}

void call_look(Arguments& a) {
  for (const char* name : {"model", "layers", "reading"}) a.name(name);
  const PretrainedModel& model = a.below(2) == 0 ? decoder() : encoder();
  LookInput input{.text = a.text("text", "some text")};
  if (a.is_wrong("pair")) input.pair = a.text("pair", "more");
  if (a.is_wrong("target")) input.target = a.text("target", "more");
  if (a.below(8) == 0 && a.is_wrong("rgb")) input.rgb = a.tensor("rgb", {4, 4, 3});
  if (a.below(8) == 0 && a.is_wrong("sound")) input.sound = {0.5F};
  LookOptions options{.page = {.title = a.text("title", "a title")}};
  if (a.below(2) == 0) options.details.push_back({a.number("details", 0), a.number("details", 1)});
  if (a.below(4) == 0 && a.is_wrong("tiles")) options.tiles.push_back({{0, 0}, 0, a.number("tiles", 1), 0, 1});
  options.gradient = a.below(4) == 0;
  options.num_threads = a.small_number("num_threads", 1);
  if (a.below(2) == 0) return void(look(model, input, options));
  std::vector<LookReading> readings(2,
                                    {.pretrained = a.is_wrong("pretrained") ? nullptr : &model, .input = input});
  readings[0].name = a.text("name", "a reading");
  if (a.is_wrong("readings")) readings.clear();
  look(readings, options);
}

void call_ablation(Arguments& a) {
  for (const char* name : {"model", "targets", "head"}) a.name(name);
  AblationOptions options{.replaced_by = a.choice("replaced_by", {Ablation::zero, Ablation::mean})};
  if (a.below(2) == 0) options.heads.push_back({a.number("heads", 0), a.number("heads", 1)});
  if (a.below(2) == 0) options.num_next = a.number("num_next", 3);
  const std::string text = a.text("text", "some text");
  text_expectation(a.is_wrong("pretrained") ? encoder() : decoder(), text, options);
  embedding_cosine(a.is_wrong("pretrained") ? decoder() : encoder(), text, options);
  text_expectation(a.numbers("tokens", {1, 2, 1}), a.tensor("logits", {3, 20}), a.number("num_next", 3));
}

std::vector<Caller> file_callers() {
  return {
      {{"save_npy(path, tensor)", "save_npz(path, tensors)", "save_safetensors(path, contents)",
        "safetensors_bytes(contents)", "write_file(path, bytes)", "write_file(path, text)",
        "save_kv_cache(path, cache)"},
       call_writers,
       Throws::runtime_error},
      {{"NpyWriter::NpyWriter(path, dtype, shape)", "NpyWriter::write(bytes)"},
       call_npy_writer,
       Throws::runtime_error},
      {{"load_npy(path)", "load_npz(path)", "load_safetensors(path)", "load_kv_cache(path)",
        "load_token_embeddings(path)", "load_json(path)", "load_csv(path)", "read_file(path)",
        "MappedFile::MappedFile(path)"},
       call_readers,
       Throws::runtime_error},
      {{"parse_npy(bytes, name)", "view_npy(bytes, name)", "parse_npz(bytes, name)",
        "parse_safetensors(bytes, name)", "view_safetensors(bytes, name)", "parse_kv_cache(bytes, name)",
        "parse_token_embeddings(bytes, name)", "parse_json(text, name)", "parse_csv(text, name)"},
       call_parsers,
       Throws::runtime_error},
      {{"image_pixels(rgb)"}, call_image},
      {{"log_mel(samples)"}, call_log_mel},
      {{"Model::load(folder)", "ImageOptions::load(folder)", "load_sentence_embedding_options(folder)",
        "Tokenizer::load(path)", "PretrainedModel::load(folder)"},
       call_folders,
       Throws::runtime_error},
      {{"Model::hidden_states(input)", "Model::backward(input, dstates, on_gradient, num_threads)",
        "Model::encode(source)", "Model::encode_backward(source, dstates, on_gradient, num_threads)",
        "Model::logits(hidden_states, num_threads)",
        "Model::logits_backward(hidden_states, dlogits, num_threads)"},
       call_model,
       Throws::invalid_argument,
       {"Model", "PackedLinear", "linear"}},
      {{"Model::make_cache(format, capacity)", "ModelCache::truncate(length)"},
       call_model_cache,
       Throws::invalid_argument,
       {"KvCache", "attention", "decode", "Model"}},
      {{"sentence_embeddings(model, sentences, num_threads)"},
       call_sentences,
       Throws::invalid_argument,
       {"Model"}},
      {{"Tokenizer::parse(json, name)", "Tokenizer::encode(text, add_special)",
        "Tokenizer::encode(text, pair, add_special)", "Tokenizer::decode(ids, skip_special)",
        "Tokenizer::id_of(token)", "Tokenizer::text_of(id)", "Tokenizer::is_special(id)",
        "truncate(tokens, most)"},
       call_tokenizer,
       Throws::runtime_error},
      {{"PretrainedModel::ids_of(text)",
        "continue_tokens(model, tokens, encoder_states, count, next, on_token, num_threads, format)"},
       call_pretrained,
       Throws::invalid_argument,
       {"KvCache", "attention", "decode", "Model"}},
      {{"look(pretrained, input)", "look(readings)"},
       call_look,
       Throws::invalid_argument,
       {"Model", "PretrainedModel", "AttentionPage"}},
      {{"text_expectation(pretrained, text)", "text_expectation(tokens, logits, num_next)",
        "embedding_cosine(pretrained, text)"},
       call_ablation,
       Throws::invalid_argument,
       {"cross_entropy", "Model", "PretrainedModel"}},
  };
}

TEST(WrongCallsOfFiles, AreRefusedInTheHousesForm) { make_wrong_calls(file_callers(), 1000); }

TEST(WrongCallsOfFiles, CoverEveryFunction) {
  expect_all_called({"ablation.h", "image.h", "io.h", "kv_cache_file.h", "log_mel.h", "look.h", "model.h",
                     "pretrained.h", "sentence_embeddings.h", "tokenizer.h"},
                    file_callers(), {});
}

}  // namespace
}  // namespace saccade::test
