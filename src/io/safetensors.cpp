#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "io/elements.h"
#include "io/file.h"
#include "io/json_events.h"
#include "saccade/io.h"

namespace saccade {
namespace {

using io::in_quotes;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kLengthSize = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the official implementation's limit

// In the official implementation's order of tensors: wide elements first, so that all are aligned.
constexpr std::array<std::pair<std::string_view, DType>, 14> kTypes{{
    {"U64", DType::u64},
    {"I64", DType::i64},
    {"F64", DType::f64},
    {"F32", DType::f32},
    {"U32", DType::u32},
    {"I32", DType::i32},
    {"BF16", DType::bf16},
    {"F16", DType::f16},
    {"U16", DType::u16},
    {"I16", DType::i16},
    {"F8_E4M3", DType::f8e4m3},
    {"I8", DType::i8},
    {"U8", DType::u8},
    {"BOOL", DType::boolean},
}};

/// The end of kTypes for a type that has no name in files.
auto type_entry(DType dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.second == dtype; });
}

/// The header's entry for one tensor.
struct Entry {
  std::string name;
  std::optional<DType> dtype;
  std::optional<Shape> shape;
  std::vector<std::uint64_t> offsets;  ///< begin and end in the data after the header
};

/// Reads {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key":
/// "text"}}.
class HeaderEvents : public io::JsonEvents {
 public:
  explicit HeaderEvents(const io::Origin& origin) : JsonEvents(origin) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

 private:
  enum class Place { document, header, entry, dtype, shape, offsets, metadata };

  [[noreturn]] void refuse(const std::string& fault) const { origin_.refuse("the header has " + fault); }
  [[noreturn]] void refuse_in_entry(const std::string& fault) const {
    refuse(fault + " for tensor " + in_quotes(entries.back().name));
  }
  [[noreturn]] void refuse_value(const std::string& got) const {
    switch (place_) {
      case Place::document:
        refuse(got + " where an object was expected");
      case Place::header:
        refuse(got + " where an object was expected, for " + in_quotes(key_));
      case Place::metadata:
        refuse(got + " where a string was expected, in __metadata__ for " + in_quotes(key_));
      default:
        refuse_in_entry(got + " as " + in_quotes(key_));
    }
  }

  void on_open_object() override {
    if (place_ == Place::document) {
      place_ = Place::header;
    } else if (place_ == Place::header && key_ == kMetadataKey) {
      place_ = Place::metadata;
    } else if (place_ == Place::header) {
      entries.push_back({key_, {}, {}, {}});
      place_ = Place::entry;
    } else {
      refuse_value("an object");
    }
  }

  void on_key(std::string key) override {
    key_ = std::move(key);
    if (place_ == Place::header && !names_.insert(key_).second) refuse(in_quotes(key_) + " twice");
    if (place_ == Place::metadata && metadata.contains(key_)) refuse(in_quotes(key_) + " twice in __metadata__");
    if (place_ != Place::entry) return;
    const Entry& entry = entries.back();
    if (key_ == "dtype") {
      if (entry.dtype) refuse_in_entry("two dtypes");
      place_ = Place::dtype;
    } else if (key_ == "shape") {
      if (entry.shape) refuse_in_entry("two shapes");
      place_ = Place::shape;
    } else if (key_ == "data_offsets") {
      if (!entry.offsets.empty()) refuse_in_entry("two data_offsets");
      place_ = Place::offsets;
    } else {
      refuse_in_entry("the unknown key " + in_quotes(key_));
    }
  }

  void on_open_array() override {
    if (is_in_array_ || (place_ != Place::shape && place_ != Place::offsets)) refuse_value("an array");
    is_in_array_ = true;
    if (place_ == Place::shape) entries.back().shape.emplace();
  }

  void on_scalar(io::JsonScalar scalar) override {
    Entry* const entry = entries.empty() ? nullptr : &entries.back();
    const auto* text = std::get_if<std::string>(&scalar);
    const auto* number = std::get_if<std::uint64_t>(&scalar);
    if (place_ == Place::metadata && text != nullptr) {
      metadata.emplace(key_, *text);
    } else if (place_ == Place::dtype && text != nullptr) {
      entry->dtype = dtype_named(*text);
      place_ = Place::entry;
    } else if (place_ == Place::shape && is_in_array_ && number != nullptr &&
               std::in_range<std::int64_t>(*number)) {
      if (entry->shape->size() == kMaxRank) {
        refuse_in_entry("more than " + std::to_string(kMaxRank) + " dimensions");
      }
      entry->shape->push_back(static_cast<std::int64_t>(*number));
    } else if (place_ == Place::offsets && is_in_array_ && number != nullptr) {
      entry->offsets.push_back(*number);
    } else {
      refuse_value(io::describe(scalar));
    }
  }

  void on_close_array() override {
    if (place_ == Place::offsets && entries.back().offsets.size() != 2) refuse_in_entry("not two data_offsets");
    is_in_array_ = false;
    place_ = Place::entry;
  }

  void on_close_object() override {
    if (place_ == Place::entry) {
      const Entry& entry = entries.back();
      if (!entry.dtype) refuse_in_entry("no dtype");
      if (!entry.shape) refuse_in_entry("no shape");
      if (entry.offsets.empty()) refuse_in_entry("no data_offsets");
    }
    place_ = Place::header;  // the end of the header is the end of the document
  }

  DType dtype_named(const std::string& name) const {
    const auto* const type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == name; });
    if (type != kTypes.end()) return type->second;
    refuse_in_entry("the dtype " + in_quotes(name) +
                    ", which is none of F64, F32, F16, BF16, F8_E4M3, BOOL, I8 to I64, U8 to U64,");
  }

  Place place_ = Place::document;
  bool is_in_array_ = false;
  std::string key_;
  std::set<std::string> names_;
};

std::string_view header_text(const io::Origin& origin, std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthSize) {
    origin.refuse("is not a safetensors file: it ends within the header's length at byte " +
                  std::to_string(bytes.size()));
  }
  const auto length = io::number_at<std::uint64_t>(bytes, 0);
  if (length > kLongestHeader || length > bytes.size() - kLengthSize) {
    origin.refuse("the header's length is given as " + std::to_string(length) + " bytes but " +
                  (length > kLongestHeader ? "100000000 are the most allowed"
                                           : std::to_string(bytes.size() - kLengthSize) + " follow at byte 8"));
  }
  const std::string_view text = io::as_text(bytes.subspan(kLengthSize, length));
  if (!text.starts_with('{')) origin.refuse("is not a safetensors file: no '{' at byte 8");
  return text;
}

/// Checks that the tensors, in the order of their offsets, fill the data exactly.
void check_layout(const io::Origin& origin, std::vector<Entry>& entries, std::uint64_t data_size) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    const auto refuse = [&](const std::string& fault) {
      origin.refuse("tensor " + in_quotes(entry.name) + " " + fault);
    };
    const std::string range =
        "the offsets [" + std::to_string(entry.offsets[0]) + ", " + std::to_string(entry.offsets[1]) + "]";
    if (entry.offsets[1] < entry.offsets[0]) refuse("has " + range + ", which end before they begin");
    if (entry.offsets[1] > data_size) {
      refuse("has " + range + ", but the file has " + std::to_string(data_size) + " bytes of data");
    }
    if (entry.offsets[0] < end) {
      refuse("has " + range + " and overlaps the one before it, which ends at " + std::to_string(end));
    }
    if (entry.offsets[0] > end) {
      refuse("has " + range + " and leaves a hole behind the one before it, which ends at " + std::to_string(end));
    }
    const std::size_t wanted = io::byte_count(origin, *entry.dtype, *entry.shape);
    if (const std::uint64_t got = entry.offsets[1] - entry.offsets[0]; got != wanted) {
      refuse("is " + io::describe(*entry.dtype, *entry.shape) + ", " + std::to_string(wanted) +
             " bytes, but has " + range + ", " + std::to_string(got) + " bytes");
    }
    end = entry.offsets[1];
  }
  if (end != data_size) {
    origin.refuse("the tensors end at byte " + std::to_string(end) + " of the data, which has " +
                  std::to_string(data_size) + " bytes");
  }
}

/// Calls `found(origin, entry, bytes, position in the file)` for every tensor. Returns the metadata.
template <class Found>
std::map<std::string, std::string> parse_entries(const io::Origin& origin, std::span<const std::byte> bytes,
                                                 Found found) {
  const std::string_view text = header_text(origin, bytes);
  HeaderEvents header(origin);
  header.parse(text, kLengthSize);
  const std::size_t data_at = kLengthSize + text.size();
  const std::span<const std::byte> data = bytes.subspan(data_at);
  check_layout(origin, header.entries, data.size());
  for (const Entry& entry : header.entries) {
    const auto elements = data.subspan(entry.offsets[0], entry.offsets[1] - entry.offsets[0]);
    const io::Origin inside{origin.function, origin.name + "(" + in_quotes(entry.name) + ")"};
    found(inside, entry, elements, data_at + entry.offsets[0]);
  }
  return std::move(header.metadata);
}

Safetensors parse_tensors(const io::Origin& origin, std::span<const std::byte> bytes) {
  Safetensors contents;
  contents.metadata = parse_entries(
      origin, bytes,
      [&](const io::Origin& inside, const Entry& entry, std::span<const std::byte> elements, std::size_t at) {
        Tensor& tensor =
            contents.tensors.emplace(entry.name, io::tensor_of(inside, elements, *entry.dtype, *entry.shape, at))
                .first->second;
        if (io::kIsBigEndian) io::reverse_byte_order(tensor);
      });
  return contents;
}

using NamedTensor = std::pair<const std::string, Tensor>;

std::vector<const NamedTensor*> in_file_order(const io::Origin& origin, const Safetensors& contents) {
  std::vector<const NamedTensor*> tensors;
  for (const NamedTensor& named : contents.tensors) {
    const std::string tensor = "tensor " + in_quotes(named.first);
    if (named.first == kMetadataKey) origin.refuse_argument(tensor + " has a name that the format reserves");
    if (io::is_absent(named.second)) origin.refuse_argument(tensor + " holds nothing, not even a scalar");
    if (type_entry(named.second.dtype()) == kTypes.end())
      origin.refuse_argument(tensor + " is " + std::string(name_of(named.second.dtype())) +
                             ", a type that the format has no name for");
    tensors.push_back(&named);
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return type_entry(a->second.dtype()) < type_entry(b->second.dtype());
  });
  return tensors;
}

std::string json_string(const io::Origin& origin, const std::string& text) {
  if (io::find_invalid_utf8(text)) origin.refuse_argument(in_quotes(text) + " is not UTF-8");
  return nlohmann::json(text).dump();
}

/// Not by a nlohmann::json, whose arrays need memory to be destroyed, and end the program if there is none.
std::string json_array(std::span<const std::int64_t> numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return "[" + text + "]";
}

/// The header's length and the header, padded so that the data after it is aligned.
std::string header_of(const io::Origin& origin, const Safetensors& contents,
                      std::span<const NamedTensor* const> tensors) {
  std::string entries;
  for (const auto& [key, value] : contents.metadata) {
    entries += (entries.empty() ? "" : ",") + json_string(origin, key) + ":" + json_string(origin, value);
  }
  if (!entries.empty()) entries = "\"" + std::string(kMetadataKey) + "\":{" + entries + "}";
  std::size_t offset = 0;
  for (const NamedTensor* named : tensors) {
    const Tensor& tensor = named->second;
    entries += (entries.empty() ? "" : ",") + json_string(origin, named->first) + ":{\"dtype\":\"" +
               std::string(type_entry(tensor.dtype())->first) + "\",\"shape\":" + json_array(tensor.shape()) +
               ",\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + tensor.bytes()) +
               "]}";
    offset += tensor.bytes();
  }
  std::string text = "{" + entries + "}";
  text.append((kLengthSize - text.size() % kLengthSize) % kLengthSize, ' ');
  if (text.size() > kLongestHeader) origin.refuse_argument("the names and metadata take more than 100 MB");
  return io::little_endian<std::uint64_t>(text.size()) + text;
}

/// Calls write(bytes) for the pieces of a file: its header, and each tensor.
template <class Write>
void write_pieces(const io::Origin& origin, const Safetensors& contents, const Write& write) {
  const std::vector<const NamedTensor*> tensors = in_file_order(origin, contents);
  const std::string header = header_of(origin, contents, tensors);
  write(std::as_bytes(std::span(header)));
  for (const NamedTensor* named : tensors) {
    if (!io::kIsBigEndian) {
      write(io::bytes_of(named->second));
      continue;
    }
    Tensor reversed = Tensor::copy_of(named->second);
    io::reverse_byte_order(reversed);
    write(io::bytes_of(reversed));
  }
}

}  // namespace

Safetensors load_safetensors(const std::filesystem::path& path) {
  const io::Origin origin = io::origin_of("load_safetensors", path);
  return parse_tensors(origin, io::read_file(origin, path));
}

Safetensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  return parse_tensors({"parse_safetensors", std::string(name)}, bytes);
}

std::map<std::string, TensorView> view_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  std::map<std::string, TensorView> views;
  parse_entries(
      {"view_safetensors", std::string(name)}, bytes,
      [&](const io::Origin& inside, const Entry& entry, std::span<const std::byte> elements, std::size_t at) {
        if (io::kIsBigEndian && size_of(*entry.dtype) > 1)
          inside.refuse("the numbers are little-endian: such a file has to be read whole");
        views.emplace(entry.name, io::view_of(inside, elements, *entry.dtype, *entry.shape, at));
      });
  return views;
}

void save_safetensors(const std::filesystem::path& path, const Safetensors& contents) {
  const io::Origin origin = io::origin_of("save_safetensors", path);
  std::optional<io::FileWriter> file;  // made when the header is known to be good
  write_pieces(origin, contents, [&](std::span<const std::byte> bytes) {
    if (!file) file.emplace(origin, path);
    file->write(bytes);
  });
  file->commit();
}

std::string safetensors_bytes(const Safetensors& contents) {
  std::string result;
  write_pieces({"safetensors_bytes", "safetensors"}, contents, [&](std::span<const std::byte> bytes) {
    result.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return result;
}

}  // namespace saccade
