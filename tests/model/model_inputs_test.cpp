// Sound and images as models read them, against what `transformers` and Pillow make of the same
// (goldens/make_model_input_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "saccade/image.h"
#include "saccade/io.h"
#include "saccade/log_mel.h"
#include "support/refusal.h"
#include "support/system.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using std::filesystem::path;
using ::testing::HasSubstr;

const std::map<std::string, Tensor>& goldens() {
  static const Safetensors kGoldens =
      load_safetensors(path(SACCADE_SOURCE_DIR) / "tests/data/model_input_goldens.safetensors");
  return kGoldens.tensors;
}

void expect_near(const Tensor& result, const Tensor& expected, float most) {
  ASSERT_EQ(to_string(result.shape()), to_string(expected.shape()));
  const auto x = result.values<float>(), y = expected.values<float>();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], most) << "element " << i;
}

TEST(LogMel, IsThatOfTransformers) {
  for (const int bins : {80, 128})
    expect_near(log_mel(goldens().at("samples").values<float>(), {.num_bins = bins, .num_frames = 100}),
                goldens().at("log_mel." + std::to_string(bins)), 2e-4f);
  expect_near(log_mel(goldens().at("long_samples").values<float>(), {.num_frames = 100}),
              goldens().at("long_log_mel"), 2e-4f);
}

TEST(LogMel, RefusesWhatIsNoSound) {
  const std::vector<float> few(200, 0.5f);
  EXPECT_THROW(log_mel(few), std::invalid_argument);
  std::vector<float> enough(201, 0.5f);
  EXPECT_EQ(log_mel(enough, {.num_frames = 1}).shape(1), 1);
  EXPECT_THROW(log_mel(enough, {.num_bins = 0}), std::invalid_argument);
  EXPECT_THROW(log_mel(enough, {.num_frames = 0}), std::invalid_argument);
  EXPECT_EQ(refusal([&] { log_mel(enough, {.num_threads = -1}); }),
            "[log_mel] num_threads must be 0 or more, got -1");
  enough[7] = NAN;
  EXPECT_THROW(log_mel(enough), std::invalid_argument);
}

TEST(ImagePixels, AreThoseOfPillow) {
  for (const int size : {12, 40})
    expect_near(
        image_pixels(goldens().at("image"), {.size = size, .mean = {0.5, 0.4, 0.3}, .deviation = {0.2, 0.3, 0.5}}),
        goldens().at("pixels." + std::to_string(size)), 2e-5f);
}

TEST(ImagePixels, RefusesWhatIsNoImage) {
  EXPECT_THROW(image_pixels(Tensor(DType::f32, {2, 2, 3})), std::invalid_argument);
  EXPECT_THROW(image_pixels(Tensor(DType::u8, {2, 2, 4})), std::invalid_argument);
  EXPECT_THROW(image_pixels(Tensor(DType::u8, {0, 2, 3})), std::invalid_argument);
  EXPECT_THROW(image_pixels(Tensor(DType::u8, {2, 2, 3}), {.size = 0}), std::invalid_argument);
}

TEST(ImageOptions, AreReadFromTheFolder) {
  const path folder = new_temporary_folder();
  const auto load = [&](const std::string& text) {
    std::ofstream(folder / "preprocessor_config.json") << text;
    return ImageOptions::load(folder);
  };
  const auto error = [&](const std::string& text) {
    try {
      load(text);
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(load(R"({"size": {"height": 96, "width": 96}})").size, 96);
  EXPECT_EQ(load(R"({"size": {"shortest_edge": 32}})").size, 32);
  const ImageOptions options = load(R"({"size": 64, "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3]})");
  EXPECT_EQ(options.size, 64);
  EXPECT_EQ(options.mean[2], 0.3);
  EXPECT_EQ(options.deviation[1], 2.0);
  EXPECT_THAT(error(R"({"size": {"height": 96, "width": 95}})"), HasSubstr("size.height must be width, 95"));
  EXPECT_THAT(error(R"({"image_mean": [1, 2]})"), HasSubstr("image_mean must be three numbers, but it is [1,2]"));
  EXPECT_THAT(error(R"({"image_std": [1, 0, 1]})"), HasSubstr("image_std must not be 0"));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(ImageOptions::load(folder).size, 224);
}

}  // namespace
}  // namespace saccade::test
