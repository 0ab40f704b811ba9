// Files and folders that someone made to do harm: names with control characters, links that lead nowhere or
// outside, files of holes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "saccade/backend.h"
#include "saccade/dtype.h"
#include "saccade/image.h"
#include "saccade/io.h"
#include "saccade/kv_cache_file.h"
#include "saccade/model.h"
#include "saccade/sentence_embeddings.h"
#include "support/fault_count.h"
#include "support/system.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using std::filesystem::path;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A folder that is removed again.
class HostileFolder {
 public:
  ~HostileFolder() { remove_all(path_); }
  const path& name() const { return path_; }
  path operator/(const std::string& file) const { return path_ / file; }

 private:
  path path_ = new_temporary_folder();
};

/// Everything that reads a path.
const std::vector<std::pair<std::string, std::function<void(const path&)>>>& readers() {
  static const std::vector<std::pair<std::string, std::function<void(const path&)>>> kReaders{
      {"load_npy", [](const path& file) { load_npy(file); }},
      {"load_npz", [](const path& file) { load_npz(file); }},
      {"load_safetensors", [](const path& file) { load_safetensors(file); }},
      {"load_token_embeddings", [](const path& file) { load_token_embeddings(file); }},
      {"load_json", [](const path& file) { load_json(file); }},
      {"load_csv", [](const path& file) { load_csv(file); }},
      {"read_file", [](const path& file) { read_file(file); }},
      {"MappedFile", [](const path& file) { MappedFile mapped(file); }},
      {"load_kv_cache", [](const path& file) { load_kv_cache(file); }},
      {"Model", [](const path& folder) { Model::load(folder); }},
  };
  return kReaders;
}

/// The message with which a call refuses a file; empty if it does not.
std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::filesystem::filesystem_error& error) {
    ADD_FAILURE() << "an error of the standard library: " << error.what();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

/// Names that a terminal would obey, or show in another order than their characters have, and how errors show
/// them. The last one is text that is only written from right to left.
const std::vector<std::pair<std::string, std::string>> kNames{
    {"a\nb", "a\\x0ab"},
    {"\x1b[31mred", "\\x1b[31mred"},
    {"tab\there", "tab\\x09here"},
    {"\x7f", "\\x7f"},
    {std::string("\xc2\x9b") + "31m", "\\xc2\\x9b31m"},
    {std::string("\xe2\x80\xae") + "ypn.x", "\\xe2\\x80\\xaeypn.x"},
    {std::string("\xe2\x81\xa6") + "x", "\\xe2\\x81\\xa6x"},
    {"\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d"}};

TEST(HostileFiles, NamesAreShownWithoutControlCharacters) {
#ifdef _WIN32
  GTEST_SKIP() << "names cannot have control characters there";
#endif
  const HostileFolder folder;
  for (const auto& name : kNames)
    for (const auto& reader : readers()) {
      SCOPED_TRACE(reader.first);
      EXPECT_THAT(refusal_of([&] { reader.second(folder / name.first); }), HasSubstr("/" + name.second));
    }
}

TEST(HostileFiles, ArgumentsAreShownWithoutThemToo) {
  for (const auto& name : kNames) {
    EXPECT_THAT([&] { dtype_from_name(name.first); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(name.second)));
    EXPECT_THAT([&] { BackendChoice choice(name.first); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(name.second)));
  }
}

TEST(HostileFiles, LinksThatLeadToThemselvesAreRefused) {
#ifdef _WIN32
  GTEST_SKIP() << "links need a right there that users do not have";
#endif
  const HostileFolder folder;
  create_symlink("loop", folder / "loop");
  for (const auto& reader : readers()) {
    SCOPED_TRACE(reader.first);
    EXPECT_THAT(refusal_of([&] { reader.second(folder / "loop"); }), HasSubstr("loop"));
  }
  for (const std::string name : {"config.json", "model.safetensors"}) {  // in a folder that is one
    const path model = folder / ("with " + name);
    create_directory(model);
    std::ofstream(model / "config.json") << R"({"model_type": "bert"})";
    remove(model / name);
    create_symlink(name, model / name);
    EXPECT_THAT(refusal_of([&] { Model::load(model); }), HasSubstr("[")) << name;
  }
  create_symlink("modules.json", folder / "modules.json");
  EXPECT_THAT(refusal_of([&] { load_sentence_embedding_options(folder.name()); }), HasSubstr("modules.json"));
  create_symlink("preprocessor_config.json", folder / "preprocessor_config.json");
  EXPECT_THAT(refusal_of([&] { ImageOptions::load(folder.name()); }), HasSubstr("preprocessor_config.json"));
}

TEST(HostileFiles, NamesInAFolderStayInIt) {
  const HostileFolder folder;
  const path inside = folder / "inside";
  create_directory(inside);
  std::ofstream(folder / "config.json")
      << R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})";
  for (const std::string name : {"..", "../.", "/etc", "a/../.."}) {
    std::ofstream(inside / "modules.json") << R"([{"type": "x.Pooling", "path": ")" << name << R"("}])";
    EXPECT_THAT(refusal_of([&] { load_sentence_embedding_options(inside); }),
                HasSubstr("must be a name in the folder"))
        << name;
  }
  std::ofstream(inside / "config.json") << R"({"model_type": "bert"})";
  for (const std::string name : {"../x.safetensors", "/x.safetensors", "a/b"}) {
    std::ofstream(inside / "model.safetensors.index.json") << R"({"weight_map": {"w": ")" << name << R"("}})";
    EXPECT_THAT(refusal_of([&] { Model::load(inside); }), HasSubstr("must be a name in the folder")) << name;
  }
}

/// A file of `text` and then nothing, which a file system that knows holes does not store.
path file_with_hole(const HostileFolder& folder, const std::string& name, const std::string& text,
                    std::uintmax_t bytes) {
  std::ofstream(folder / name, std::ios::binary) << text;
  resize_file(folder / name, bytes);
  return folder / name;
}

constexpr std::uintmax_t kFiveGiB = std::uintmax_t{5} << 30;

TEST(HostileFiles, HolesOfManyGibibytesAreNotRead) {
#ifdef _WIN32
  GTEST_SKIP() << "resize_file() of MinGW's libc++ has 32 bits";
#endif
  const HostileFolder folder;
  const MappedFile zeros(file_with_hole(folder, "zeros", "", kFiveGiB));
  ASSERT_EQ(zeros.bytes().size(), kFiveGiB);
  EXPECT_THAT(refusal_of([&] { view_npy(zeros.bytes()); }), HasSubstr("is not an npy file"));
  EXPECT_THAT(refusal_of([&] { parse_npz(zeros.bytes()); }), HasSubstr("[parse_npz]"));
  EXPECT_THAT(refusal_of([&] { view_safetensors(zeros.bytes()); }), HasSubstr("[view_safetensors]"));
  EXPECT_THAT(refusal_of([&] {
                parse_csv({reinterpret_cast<const char*>(zeros.bytes().data()), kFiveGiB});
              }),
              HasSubstr("zero byte at byte 0"));

  // A header that is right about a tensor of 5 GiB: its numbers are there, and are zeros.
  const std::string json = R"({"w":{"dtype":"U8","shape":[5368709120],"data_offsets":[0,5368709120]}})";
  const std::string header = std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') + json;
  const MappedFile file(file_with_hole(folder, "w.safetensors", header, header.size() + kFiveGiB));
  const TensorView w = view_safetensors(file.bytes()).at("w");
  EXPECT_EQ(w.size(), static_cast<std::int64_t>(kFiveGiB));
  EXPECT_EQ(value_at(w, std::array{w.size() - 1}), 0.0);

  // One that declares less or more than the file has.
  for (const std::uintmax_t bytes : {kFiveGiB - 1, kFiveGiB + 1}) {
    const MappedFile other(file_with_hole(folder, "other", header, header.size() + bytes));
    EXPECT_THAT(refusal_of([&] { view_safetensors(other.bytes()); }), HasSubstr("[view_safetensors]"));
  }
}

// A program that fetches a model renames each of its files into the folder, one after the other, and half of some.
// (What shortens a mapped file ends the program: docs/files.md.)
TEST(HostileFiles, AreReplacedWhileAModelIsLoaded) {
#ifdef _WIN32
  GTEST_SKIP() << "Windows replaces no file that is mapped";
#endif
  const HostileFolder folder;
  const path models = path(SACCADE_SOURCE_DIR) / "tests/data/models";
  create_directory(folder / "model");
  std::atomic<bool> is_over = false;
  std::thread replaces([&] {
    const auto put = [&](const path& from, const char* name, std::uintmax_t divisor) {
      copy_file(from / name, folder / "new", std::filesystem::copy_options::overwrite_existing);
      resize_file(folder / "new", file_size(from / name) / divisor);
      rename(folder / "new", folder / "model" / name);
    };
    for (int i = 0; !is_over; ++i)
      for (const char* name : {"config.json", "model.safetensors"})
        put(models / (i % 2 == 0 ? "bert" : "gpt2"), name, i % 5 == 4 ? 2 : 1);
  });
  int loaded = 0, refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end) {
    try {
      const Model model = Model::load(folder / "model");
      const Tensor states = model.hidden_states({.tokens = {1, 2, 3}});
      EXPECT_EQ(states.shape().back(), model.sizes().d_model);
      ++loaded;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(folder.name().string()));
      ++refused;
    }
  }
  is_over = true;
  replaces.join();
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
  count_faults(static_cast<std::size_t>(refused));
}

TEST(HostileFiles, AreWrittenAndReadInMemory) {
  const path memory = "/dev/shm";
  if (!is_directory(memory)) GTEST_SKIP() << "this system has no folder of a file system in memory";
  const path file = memory / (new_temporary_folder().filename().string() + ".npy");
  const Tensor x = Tensor::of<float>({1, 2, 3});
  save_npy(file, x);
  EXPECT_TRUE(same_bits(load_npy(file), x));
  EXPECT_EQ(value_at(view_npy(MappedFile(file).bytes()), std::array{std::int64_t{0}}), 1.0);
  remove(file);
}

}  // namespace
}  // namespace saccade::test
