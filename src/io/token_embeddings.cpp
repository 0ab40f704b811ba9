#include "io/token_embeddings.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "io/elements.h"
#include "io/file.h"
#include "io/npy.h"

namespace saccade {
namespace {

enum class Format { npy, json, csv };

Format format_of_content(std::span<const std::byte> bytes) {
  const std::string_view text = io::as_text(bytes);
  if (text.starts_with("\x93NUMPY")) return Format::npy;
  const std::size_t first = text.find_first_not_of("\xef\xbb\xbf \t\r\n");
  if (first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) return Format::json;
  return Format::csv;
}

Format format_of(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (ending == ".npy") return Format::npy;
  if (ending == ".json") return Format::json;
  if (ending == ".csv") return Format::csv;
  return format_of_content(bytes);
}

TokenEmbeddings embeddings_of_npy(const io::Origin& origin, std::span<const std::byte> bytes) {
  const Tensor array = io::parse_npy(origin, bytes);
  if (array.rank() != 2 || array.size() == 0 || array.dtype() == DType::boolean) {
    origin.refuse("holds " + io::describe(array.dtype(), array.shape()) +
                  " where a matrix of numbers, one row for each token, was expected");
  }
  Tensor inputs = Tensor::copy_of(array, DType::f32);
  const std::span<const float> numbers = inputs.values<float>();
  const auto bad = std::find_if_not(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
  if (bad != numbers.end()) {
    const std::int64_t at = bad - numbers.begin();
    const std::int64_t index[] = {at / inputs.shape(1), at % inputs.shape(1)};
    origin.refuse("the number at " + to_string(index) + " is NaN or too large for f32");
  }
  return {{}, std::move(inputs)};
}

TokenEmbeddings parse_as(Format format, const io::Origin& origin, std::span<const std::byte> bytes) {
  switch (format) {
    case Format::npy:
      return embeddings_of_npy(origin, bytes);
    case Format::json:
      return io::parse_json(origin, io::as_text(bytes));
    case Format::csv:
      break;
  }
  return io::parse_csv(origin, io::as_text(bytes));
}

}  // namespace

TokenEmbeddings load_token_embeddings(const std::filesystem::path& path) {
  const io::Origin origin = io::origin_of("load_token_embeddings", path);
  const std::vector<std::byte> bytes = io::read_file(origin, path);
  return parse_as(format_of(path, bytes), origin, bytes);
}

TokenEmbeddings parse_token_embeddings(std::span<const std::byte> bytes, std::string_view name) {
  return parse_as(format_of_content(bytes), {"parse_token_embeddings", std::string(name)}, bytes);
}

}  // namespace saccade
