// Tensors in files: NumPy's .npy and .npz, safetensors, and token embeddings as JSON or CSV.
//
// Every reader has two forms: load_X(path) for a file and parse_X(bytes, name) for bytes in memory, which messages
// call `name`. The path "-" reads standard input (write "./-" for a file of that name). Readers check all sizes
// and offsets in the file against its actual size before they allocate or copy. They throw std::runtime_error, one
// line with the error and its place:
//
//     [load_npy] q.npy: the header promises 96 bytes of numbers (f32 [2, 4, 3]) but 90 follow at byte 128
//
// Writers write a temporary file next to the old one and rename it, so that any failure (also std::runtime_error)
// leaves the old file unchanged. Link saccade::io for this header.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The array of a NumPy .npy file at `path`: versions 1.0 to 3.0 of the format: f2, f4, f8, bool, i1 to i8 and u1
/// to u8, in either byte order, in C or Fortran order, up to kMaxRank dimensions. Throws std::runtime_error.
/// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
Tensor load_npy(const std::filesystem::path& path);
/// The same from the bytes of such a file, which messages call `name`.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name = "npy");

/// Writes a tensor to a .npy file at `path`: version 1.0, C order, the same bytes as numpy.save. Throws
/// std::invalid_argument for an empty view and for bf16, for which the format has no name; std::runtime_error when
/// writing fails.
void save_npy(const std::filesystem::path& path, const TensorView& tensor);

/// The array in the bytes of a .npy file, without a copy: for a MappedFile of which a program needs only parts.
/// `bytes` must outlive the view; messages call them `name`. Arrays in Fortran order get other strides. Throws as
/// load_npy does, and for data that would have to be converted: numbers in the other byte order than this
/// machine's, and data not aligned to the size of its elements.
TensorView view_npy(std::span<const std::byte> bytes, std::string_view name = "npy");

/// Writes a .npy file piece by piece, for arrays that never fit in memory as a whole: the same file as save_npy.
class NpyWriter {
 public:
  /// Starts a file at `path` for an array of this `dtype` and shape. Throws as save_npy does.
  NpyWriter(const std::filesystem::path& path, DType dtype, const Shape& shape);
  /// Without commit() the new file is discarded, and an old one is unchanged.
  ~NpyWriter();
  NpyWriter(NpyWriter&&) noexcept;

  /// Appends numbers, given as their bytes, in C order of the whole array. Throws std::invalid_argument for more
  /// than the shape holds.
  void write(std::span<const std::byte> bytes);
  /// Completes the file. Throws std::invalid_argument if numbers are missing.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The arrays of a NumPy .npz archive at `path` by name (without ".npy"), as written by numpy.savez and
/// numpy.savez_compressed: stored or deflated members, with verified checksums. Throws std::runtime_error.
std::map<std::string, Tensor> load_npz(const std::filesystem::path& path);
/// The same from the bytes of such a file, which messages call `name`.
std::map<std::string, Tensor> parse_npz(std::span<const std::byte> bytes, std::string_view name = "npz");

/// Writes tensors by name to an uncompressed .npz archive at `path`, smaller than 4 GiB. Throws as save_npy does.
void save_npz(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors);

/// The contents of a safetensors file: tensors by name, and free text by name.
struct Safetensors {
  std::map<std::string, Tensor> tensors{};
  std::map<std::string, std::string> metadata{};  ///< "__metadata__" of the file's header
};

/// The contents of a safetensors file at `path`: F64, F32, F16, BF16, F8_E4M3, BOOL, I8 to I64, U8 to U64.
/// As in the official implementation the tensors must fill the file without gaps or overlaps, and the header may
/// have at most 100 MB. Throws std::runtime_error. Format: https://github.com/huggingface/safetensors
Safetensors load_safetensors(const std::filesystem::path& path);
/// The same from the bytes of such a file, which messages call `name`.
Safetensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name = "safetensors");

/// The tensors in the bytes of a safetensors file by name, without a copy, as view_npy. Throws as load_safetensors
/// does, for tensors not aligned to the size of their elements, and on big-endian machines for numbers of several
/// bytes, which the format has in little-endian order.
std::map<std::string, TensorView> view_safetensors(std::span<const std::byte> bytes,
                                                   std::string_view name = "safetensors");

/// Writes `contents` to a safetensors file at `path`, every tensor aligned to its element size. Throws
/// std::invalid_argument for a name that the format reserves or that is not UTF-8; std::runtime_error when writing
/// fails.
void save_safetensors(const std::filesystem::path& path, const Safetensors& contents);
/// The bytes of a file with these `contents`. Throws std::invalid_argument as save_safetensors() does.
std::string safetensors_bytes(const Safetensors& contents);

/// The embeddings of a text: one row of finite numbers for each token.
struct TokenEmbeddings {
  std::vector<std::string> tokens{};  ///< UTF-8, one for each row; empty if the file has none
  Tensor inputs{};                    ///< f32 [tokens, dim]
};

/// Token embeddings from a .json, .npy or .csv file at `path`; with any other extension, and for standard input,
/// the first bytes decide. A .npy array must have two dimensions. Throws std::runtime_error.
TokenEmbeddings load_token_embeddings(const std::filesystem::path& path);
/// The same from the bytes of such a file, which messages call `name`.
TokenEmbeddings parse_token_embeddings(std::span<const std::byte> bytes, std::string_view name = "embeddings");

/// Token embeddings from the JSON file at `path`: {"tokens": ["Your", ...], "inputs": [[0.43, 0.15, 0.89], ...]},
/// where "tokens" is optional and other keys are ignored; or the array of rows alone. Throws std::runtime_error.
TokenEmbeddings load_json(const std::filesystem::path& path);
/// The same from a text, which messages call `name`.
TokenEmbeddings parse_json(std::string_view text, std::string_view name = "json");

/// Token embeddings from the CSV file at `path`: one row of numbers per line. The first line may be a header, and
/// the first column may hold the tokens; docs/files.md describes how both are recognized. Throws
/// std::runtime_error.
TokenEmbeddings load_csv(const std::filesystem::path& path);
/// The same from a text, which messages call `name`.
TokenEmbeddings parse_csv(std::string_view text, std::string_view name = "csv");

/// All bytes of the file at `path`, or of standard input for "-". Throws std::runtime_error.
std::vector<std::byte> read_file(const std::filesystem::path& path);

/// A file mapped into memory: the system reads a page when it is first touched, and may evict it again. The file
/// must not shrink meanwhile. Standard input ("-") and pipes are read whole.
class MappedFile {
 public:
  /// Maps the file at `path`. Throws std::runtime_error.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> read_;  // instead of a mapping
  std::span<const std::byte> bytes_;
};

/// Writes bytes, or a text, to a file as all writers here do: to a temporary file in the same folder, flushed to
/// disk, then renamed to `path` (replaces the target of a symbolic link, not the link; keeps the permissions of an
/// old file). Writes directly to a device or a pipe. Throws std::runtime_error; then the old file is unchanged and
/// no temporary file is left.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace saccade
#pragma GCC visibility pop
