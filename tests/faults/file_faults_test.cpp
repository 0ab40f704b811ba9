// Memory that runs out while files are read and written, and while pictures are drawn: a file stays as it was, and
// nothing lies beside it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "faults/allocation_faults.h"
#include "saccade/chart.h"
#include "saccade/heatmap.h"
#include "saccade/io.h"
#include "saccade/kv_cache_file.h"
#include "support/tensors.h"

/// Flushing to the disk is most of the time of a writer, and is not what this program tests.
extern "C" int fsync(int) { return 0; }

namespace saccade::test {
namespace {

namespace fs = std::filesystem;

const fs::path kFiles = fs::path(SACCADE_SOURCE_DIR) / "tests/data/files";

/// A folder with a file, and a link to it.
class OneFile {
 public:
  OneFile() {
    std::ofstream(path()) << "old";
    fs::create_symlink("file", folder_ / "link");
  }
  ~OneFile() { fs::remove_all(folder_); }
  OneFile(const OneFile&) = delete;
  OneFile& operator=(const OneFile&) = delete;

  fs::path path() const { return folder_ / "file"; }

  /// Names and contents of all files in the folder.
  std::string contents() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      std::ostringstream text;
      text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      files[entry.path().filename().string() + (entry.is_symlink() ? ", a link" : "")] = text.str();
    }
    std::string all;
    for (const auto& [name, text] : files) all += name + ": " + text;
    return all;
  }

 private:
  fs::path folder_ = new_temporary_folder();
};

void expect_writer_survives(const std::function<void(const fs::path&)>& write) {
  expect_survives([&]() -> Operation {
    const auto file = std::make_shared<OneFile>();
    const auto contents = [file] { return file->contents(); };
    return {.run = [&, file] { write(file->path()); }, .result = contents, .state = contents};
  });
}

KvCache small_cache(DType dtype, std::int64_t page_size) {
  KvCache cache({.num_kv_heads = 2, .head_dim = 32, .dtype = dtype, .page_size = page_size});
  const Tensor x = random_tensor({2, 10, 32}, 1);
  cache.append(x, x);
  return cache;
}

TEST(AllocationFaults, OfWriters) {
  const Tensor x = random_tensor({3, 4, 5}, 1);
  const std::map<std::string, Tensor> tensors{{"a", x}, {"b", random_tensor({2}, 2)}};
  expect_writer_survives([&](const fs::path& path) { write_file(path, "new"); });
  expect_writer_survives([&](const fs::path& path) { save_npy(path, x.view().transposed(0, 1)); });
  expect_writer_survives([&](const fs::path& path) { save_npz(path, tensors); });
  expect_writer_survives([&](const fs::path& path) { save_safetensors(path, {tensors, {{"key", "text"}}}); });
  expect_writer_survives([&](const fs::path& path) {
    NpyWriter writer(path, DType::f32, x.shape());
    writer.write(std::as_bytes(x.values<float>()));
    writer.commit();
  });
  for (const DType dtype : {DType::f32, DType::i4})
    for (const std::int64_t page_size : {0, 4}) {
      const KvCache cache = small_cache(dtype, page_size);
      expect_writer_survives([&](const fs::path& path) { save_kv_cache(path, cache); });
    }
}

/// Also links: the file that one names is replaced, not the link.
TEST(AllocationFaults, OfWritersThroughLinks) {
  expect_writer_survives([&](const fs::path& path) { write_file(path.parent_path() / "link", "new"); });
}

TEST(AllocationFaults, OfReaders) {
  const auto all = [](const auto& tensors) { return bits_of_all(tensors); };
  expect_survives([] { return giving([] { return load_npy(kFiles / "npy/f4.npy"); }); });
  for (const char* const name : {"npz/stored.npz", "npz/deflated.npz"})
    expect_survives([&] { return giving([&] { return load_npz(kFiles / name); }, all); });
  expect_survives([&] {
    return giving([] { return load_safetensors(kFiles / "safetensors/all_types.safetensors"); },
                  [](const Safetensors& file) { return bits_of_all(file.tensors); });
  });
  for (const char* const name : {"json/tokens.json", "json/rows.json", "csv/tokens.csv", "csv/pandas.csv"})
    expect_survives([&] {
      return giving([&] { return load_token_embeddings(kFiles / name); },
                    [](const TokenEmbeddings& file) { return bits_of(file.inputs); });
    });
  for (const char* const name : {"kv_cache/contiguous.safetensors", "kv_cache/paged.safetensors"})
    expect_survives([&] {
      return giving([&] { return load_kv_cache(kFiles / name); },
                    [&](const KvCache& cache) { return bits_of_all(cache.state().tensors); });
    });
  expect_survives([&] {
    return giving([] { return MappedFile(kFiles / "npy/f4.npy"); },
                  [](const MappedFile& file) { return bits_of(Tensor::copy_of(view_npy(file.bytes()))); });
  });
}

// ---- Pictures ------------------------------------------------------------------------------------------------

TEST(AllocationFaults, OfPictures) {
  Tensor weights = random_tensor({2, 6, 6}, 1);
  for (float& weight : weights.values<float>()) weight = std::abs(weight);
  const HeatmapOptions options{.query_tokens = {"Your", "journey", "starts", "with", "one", "step"},
                               .title = "A title"};
  const auto text = [](const std::string& picture) { return picture; };
  expect_survives([&] { return giving([&] { return heatmap_svg(weights, options); }, text); });
  expect_survives([&] {
    return giving([&] { return heatmap_terminal(weights, options, TerminalColor::truecolor, 100); }, text);
  });
  expect_survives([&] { return giving([&] { return attention_lines_svg(weights, options); }, text); });
  const ChartSeries series{.name = "loss", .x = {1, 2, 3}, .y = {3, 2, 1}};
  expect_survives([&] {
    return giving([&] { return chart_svg({{series, series}}, {.title = "Loss", .log_y = true}); }, text);
  });
}

#ifdef SACCADE_HAS_PNG
TEST(AllocationFaults, OfPngPictures) {
  const std::string svg = heatmap_svg(random_tensor({3, 3}, 1), {});
  expect_survives([&] { return giving([&] { return pixels_of_png(png_of_svg(svg)); }); });
}
#endif

}  // namespace
}  // namespace saccade::test
