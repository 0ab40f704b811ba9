// Shared helpers of the file format tests: damaged bytes, and checks of a reader's reaction.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/io.h"
#include "support/system.h"

namespace saccade::test {

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string as_string(std::span<const std::byte> bytes) { return std::string(as_text(bytes)); }

/// The bytes of a number as a file holds them.
template <class T>
std::string little_endian(T number) {
  std::string bytes = as_string(std::as_bytes(std::span(&number, 1)));
  if constexpr (std::endian::native == std::endian::big) std::ranges::reverse(bytes);
  return bytes;
}

/// `text` with `length` bytes at `at` replaced.
inline std::string with(std::string text, std::size_t at, std::size_t length, std::string_view replacement) {
  return text.replace(at, length, replacement);
}

/// A folder that is deleted with its contents at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(new_temporary_folder()) {}
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  /// The names of its files.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

/// Bytes at the end of mapped memory: reading past them stops the test, with or without sanitizers.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::string_view bytes) : pages_(bytes.size()) { assign(bytes); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  /// Replaces the bytes by other ones, at most equally many.
  void assign(std::string_view bytes) {
    size_ = bytes.size();
    if (size_ != 0) std::memcpy(begin(), bytes.data(), size_);
  }

  std::span<const std::byte> bytes() const { return {begin(), size_}; }

 private:
  std::byte* begin() const { return pages_.end() - size_; }

  GuardedPages pages_;
  std::size_t size_ = 0;
};

/// Reads bytes; throws the reader's exceptions.
using Reader = std::function<void(std::span<const std::byte>)>;

/// The message with which a reader rejects bytes; empty if it accepts them. Any other exception is a failure, and
/// so is a message that does not begin with `[function] name: ` or has a second line.
inline std::string refusal(const Reader& read, std::span<const std::byte> bytes) {
  try {
    read(bytes);
    return "";
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("[parse_")) << message;
    EXPECT_NE(message.find("] q"), std::string::npos) << message;
    EXPECT_EQ(message.find_first_of("\n\r\x1b"), std::string::npos) << message;
    EXPECT_LT(message.size(), 600U) << message;
    return message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a std::runtime_error: " << error.what();
    return error.what();
  }
}

/// A file that every reader must reject, and a part of the message.
struct Damaged {
  std::string bytes;
  std::string message;
};

inline void expect_refused(const Reader& read, const std::vector<Damaged>& cases) {
  for (const Damaged& damaged : cases) {
    const std::string got = refusal(read, GuardedBytes(damaged.bytes).bytes());
    EXPECT_NE(got.find(damaged.message), std::string::npos)
        << "wanted: " << damaged.message << "\n   got: " << (got.empty() ? "no refusal" : got);
  }
}

/// Truncates the file at every position. A format that states its size must reject every truncation.
inline void expect_survives_truncation(const Reader& read, const std::string& file, bool must_refuse) {
  GuardedBytes memory(file);
  for (std::size_t length = 0; length < file.size(); ++length) {
    memory.assign(std::string_view(file).substr(0, length));
    const std::string message = refusal(read, memory.bytes());
    EXPECT_TRUE(!must_refuse || !message.empty()) << "cut off at " << length;
  }
}

/// Flips every bit of the file, and tries every value for each of its first `header` bytes.
inline void expect_survives_flips(const Reader& read, const std::string& file, std::size_t header) {
  GuardedBytes memory(file);
  const auto try_byte = [&](std::size_t at, int value) {
    memory.assign(with(file, at, 1, std::string(1, static_cast<char>(value))));
    refusal(read, memory.bytes());
  };
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) try_byte(at, file[at] ^ (1 << bit));
  }
  for (std::size_t at = 0; at < std::min(header, file.size()); ++at) {
    for (int value = 0; value < 256; ++value) try_byte(at, value);
  }
}

/// A tensor of random bits, including NaNs; zeros and ones if it is boolean.
inline Tensor random_tensor(DType dtype, Shape shape, std::uint32_t seed) {
  Tensor tensor(dtype, std::move(shape));
  std::mt19937 random(seed);
  auto* const bytes = static_cast<std::uint8_t*>(tensor.data());
  for (std::size_t i = 0; i < tensor.bytes(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random() & (dtype == DType::boolean ? 1U : 255U));
  }
  return tensor;
}

inline std::string contents(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.data()), tensor.bytes()};
}

/// Checks element type, shape and every bit.
inline void expect_same(const Tensor& got, const Tensor& wanted) {
  EXPECT_EQ(name_of(got.dtype()), name_of(wanted.dtype()));
  EXPECT_EQ(got.shape(), wanted.shape());
  EXPECT_TRUE(contents(got) == contents(wanted));
}

/// [[0, 1, 2], [3, 4, 5]], or the lowest bits for booleans: the contents of the files in tests/data/files.
inline Tensor fixture_matrix(DType dtype) {
  Tensor numbers = Tensor::of<float>({{0, 1, 2}, {3, 4, 5}});
  if (dtype == DType::boolean) numbers = Tensor::of<float>({{0, 1, 0}, {1, 0, 1}});
  return Tensor::copy_of(numbers, dtype);
}

inline std::filesystem::path fixture(std::string_view name) {
  return std::filesystem::path(SACCADE_SOURCE_DIR) / "tests" / "data" / "files" / name;
}

inline std::string fixture_bytes(std::string_view name) { return as_string(read_file(fixture(name))); }

/// Shapes of every rank, some with lengths of 0 and 1.
inline const std::vector<Shape>& shapes_of_every_rank() {
  static const std::vector<Shape> shapes{
      {},        {1},       {5},          {0},       {2, 3},       {3, 0},          {7, 1},
      {2, 3, 4}, {1, 1, 1}, {2, 1, 3, 2}, {0, 2, 1}, {2, 2, 1, 3}, {1, 2, 3, 1, 2}, {2, 1, 2, 1, 2, 3}};
  return shapes;
}

inline constexpr DType kAllTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::boolean,
                                      DType::i8,  DType::i16, DType::i32, DType::i64,  DType::u8,
                                      DType::u16, DType::u32, DType::u64};

}  // namespace saccade::test
