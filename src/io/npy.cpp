#include "io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "io/elements.h"
#include "io/file.h"
#include "saccade/io.h"

namespace saccade {
namespace io {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLengthAt = kMagic.size() + 2;  // after two bytes of version

constexpr std::array<std::pair<std::string_view, DType>, 12> kTypes{{
    {"f4", DType::f32},
    {"f8", DType::f64},
    {"f2", DType::f16},
    {"b1", DType::boolean},
    {"i1", DType::i8},
    {"i2", DType::i16},
    {"i4", DType::i32},
    {"i8", DType::i64},
    {"u1", DType::u8},
    {"u2", DType::u16},
    {"u4", DType::u32},
    {"u8", DType::u64},
}};

struct Header {
  DType dtype{};
  bool is_reversed = false;  // the bytes of a number, beside the order of this machine
  bool is_fortran_order = false;
  Shape shape;
};

/// Reads the header of a file, a Python literal such as
///     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
 public:
  /// `begin` is the text's position in the file.
  HeaderParser(const Origin& origin, std::string_view text, std::size_t begin)
      : origin_(origin), text_(text), begin_(begin) {}

  Header parse() {
    expect('{');
    while (!accept('}')) {
      parse_entry();
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) refuse("the header continues after its closing brace");
    if (!has_type_ || !has_order_ || !has_shape_) {
      refuse("the header lacks "s + (!has_type_ ? "'descr'" : !has_order_ ? "'fortran_order'" : "'shape'"));
    }
    return std::move(header_);
  }

 private:
  [[noreturn]] void refuse(const std::string& fault) const {
    origin_.refuse(fault + " at byte " + std::to_string(begin_ + at_));
  }

  void skip_space() {
    while (at_ < text_.size() && " \t\r\n"sv.find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (accept(wanted)) return;
    refuse("the header has "s + (at_ == text_.size() ? "its end" : in_quotes(text_.substr(at_, 1))) + " where '" +
           wanted + "' was expected");
  }

  bool accept(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::string_view parse_string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') refuse("the header has no string where one was expected");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("the header has a string without an end");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  void parse_entry() {
    const std::string_view key = parse_string();
    expect(':');
    if (key == "descr") {
      note_once(has_type_, key);
      parse_type();
    } else if (key == "fortran_order") {
      note_once(has_order_, key);
      parse_order();
    } else if (key == "shape") {
      note_once(has_shape_, key);
      parse_shape();
    } else {
      refuse("the header has an unknown key " + in_quotes(key));
    }
  }

  void note_once(bool& is_there, std::string_view key) const {
    if (std::exchange(is_there, true)) refuse("the header has " + in_quotes(key) + " twice");
  }

  void parse_type() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      refuse("structured arrays are not read; save each field separately,");
    }
    const std::string_view descr = parse_string();
    const bool has_byte_order = !descr.empty() && "<>=|"sv.find(descr[0]) != std::string_view::npos;
    const std::string_view name = descr.substr(has_byte_order ? 1 : 0);
    const auto* const type = std::find_if(kTypes.begin(), kTypes.end(), [&](auto& t) { return t.first == name; });
    if (type == kTypes.end()) refuse_type(descr, name);
    header_.dtype = type->second;
    header_.is_reversed = has_byte_order && descr[0] == (kIsBigEndian ? '<' : '>');
  }

  [[noreturn]] void refuse_type(std::string_view descr, std::string_view name) const {
    const std::string_view advice = name == "V2" ? " (how bfloat16 ends up in npy; use safetensors for it)"
                                    : name.starts_with('O') ? " (Python objects, whose pickles are never executed)"
                                                            : "";
    refuse("elements of type " + in_quotes(descr) + std::string(advice) +
           " are not read, only f2, f4, f8, b1, i1 to i8 and u1 to u8,");
  }

  void parse_order() {
    if (accept("True"sv)) {
      header_.is_fortran_order = true;
    } else if (!accept("False"sv)) {
      refuse("'fortran_order' is neither True nor False");
    }
  }

  void parse_shape() {
    expect('(');
    while (!accept(')')) {
      if (header_.shape.size() == kMaxRank) {
        refuse("the shape has more than " + std::to_string(kMaxRank) + " dimensions");
      }
      header_.shape.push_back(parse_length());
      if (accept(',')) continue;
      expect(')');
      if (header_.shape.size() == 1) refuse("the shape is a number in parentheses, not a tuple,");
      break;
    }
  }

  std::int64_t parse_length() {
    skip_space();
    std::int64_t length = -1;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), length);
    if (error != std::errc{} || length < 0) {
      refuse("the shape has a length that is not a number from 0 to 2^63 - 1");
    }
    at_ = static_cast<std::size_t>(end - text_.data());
    accept('L');  // Python 2 wrote long integers this way
    return length;
  }

  const Origin& origin_;
  std::string_view text_;
  std::size_t begin_;
  std::size_t at_ = 0;
  Header header_;
  bool has_type_ = false, has_order_ = false, has_shape_ = false;
};

/// The header's text, after checking that it is within the file.
std::string_view header_text(const Origin& origin, std::span<const std::byte> bytes) {
  const std::string end = " at byte " + std::to_string(bytes.size());
  if (!as_text(bytes).starts_with(kMagic)) origin.refuse("is not an npy file: it does not begin with \\x93NUMPY");
  if (bytes.size() < kLengthAt) origin.refuse("ends within the version number" + end);
  const auto major = std::to_integer<int>(bytes[kMagic.size()]);
  const auto minor = std::to_integer<int>(bytes[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    origin.refuse("is in version " + std::to_string(major) + "." + std::to_string(minor) +
                  " of the npy format; 1.0, 2.0 and 3.0 are read");
  }
  const std::size_t begin = kLengthAt + (major == 1 ? 2 : 4);
  if (bytes.size() < begin) origin.refuse("ends within the header's length" + end);
  const std::size_t length =
      major == 1 ? number_at<std::uint16_t>(bytes, kLengthAt) : number_at<std::uint32_t>(bytes, kLengthAt);
  if (length > bytes.size() - begin) {
    origin.refuse("the header's length is given as " + std::to_string(length) + " bytes but " +
                  std::to_string(bytes.size() - begin) + " follow at byte " + std::to_string(begin));
  }
  return as_text(bytes.subspan(begin, length));
}

/// The tensor of `shape` whose elements are in Fortran order in `columns`, which has the reversed shape.
TensorView transposed(const TensorView& columns, const Shape& shape) {
  const std::vector<std::int64_t> strides(std::make_reverse_iterator(columns.strides.begin() + columns.rank),
                                          columns.strides.rend());
  return {columns.data, columns.dtype, shape, strides};
}

std::string_view type_name(DType dtype) {
  const auto* const type = std::find_if(kTypes.begin(), kTypes.end(), [&](auto& t) { return t.second == dtype; });
  return type == kTypes.end() ? "" : type->first;
}

}  // namespace

namespace {

/// The header of a file and its numbers, as many as the header promises.
struct Contents {
  Header header;
  std::span<const std::byte> elements;
  std::size_t begin = 0;  // of the numbers in the file
};

Contents parse_contents(const Origin& origin, std::span<const std::byte> bytes) {
  const std::string_view text = header_text(origin, bytes);
  const auto text_begin = static_cast<std::size_t>(text.data() - as_text(bytes).data());
  const Header header = HeaderParser(origin, text, text_begin).parse();
  const std::size_t begin = text_begin + text.size();
  const std::span<const std::byte> elements = bytes.subspan(begin);
  if (const std::size_t promised = byte_count(origin, header.dtype, header.shape); promised != elements.size()) {
    origin.refuse("the header promises " + std::to_string(promised) + " bytes of numbers (" +
                  describe(header.dtype, header.shape) + ") but " + std::to_string(elements.size()) +
                  " follow at byte " + std::to_string(begin));
  }
  return {header, elements, begin};
}

}  // namespace

Tensor parse_npy(const Origin& origin, std::span<const std::byte> bytes) {
  const auto [header, elements, begin] = parse_contents(origin, bytes);
  Shape stored = header.shape;
  if (header.is_fortran_order) std::reverse(stored.begin(), stored.end());
  Tensor tensor = tensor_of(origin, elements, header.dtype, stored, begin);
  if (header.is_reversed) reverse_byte_order(tensor);
  return header.is_fortran_order ? Tensor::copy_of(transposed(tensor, header.shape)) : std::move(tensor);
}

std::string npy_header(const Origin& origin, DType dtype, std::span<const std::int64_t> shape) {
  const std::string_view type = type_name(dtype);
  if (type.empty()) {
    origin.refuse_argument("npy has no " + std::string(name_of(dtype)) +
                           "; convert the tensor to f32, or save it as safetensors");
  }
  const std::string_view native_order = kIsBigEndian ? ">" : "<";
  std::string text = "{'descr': '";
  text += size_of(dtype) == 1 ? "|" : native_order;
  text += type;
  text += "', 'fortran_order': False, 'shape': (";
  for (std::size_t dim = 0; dim < shape.size(); ++dim) text += (dim == 0 ? "" : ", ") + std::to_string(shape[dim]);
  text += shape.size() == 1 ? ",), }" : "), }";
  // NumPy leaves room for the first length to grow in place, then pads to a multiple of 64 bytes, including the
  // newline.
  if (!shape.empty()) text.append(21 - std::to_string(shape[0]).size(), ' ');
  const std::size_t prefix = kLengthAt + 2;
  text.append(64 - (prefix + text.size() + 1) % 64, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  return std::string(kMagic) + '\1' + '\0' + static_cast<char>(length & 0xff) + static_cast<char>(length >> 8) +
         text;
}

std::string npy_header(const Origin& origin, const TensorView& tensor) {
  if (is_absent(tensor)) origin.refuse_argument("there is no tensor to write");
  return npy_header(origin, tensor.dtype, tensor.dims());
}

}  // namespace io

Tensor load_npy(const std::filesystem::path& path) {
  const io::Origin origin = io::origin_of("load_npy", path);
  return io::parse_npy(origin, io::read_file(origin, path));
}

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  return io::parse_npy({"parse_npy", std::string(name)}, bytes);
}

TensorView view_npy(std::span<const std::byte> bytes, std::string_view name) {
  const io::Origin origin{"view_npy", std::string(name)};
  const auto [header, elements, begin] = io::parse_contents(origin, bytes);
  if (header.is_reversed)
    origin.refuse(std::string("the numbers are ") + (io::kIsBigEndian ? "little" : "big") +
                  "-endian: such a file has to be read whole");
  Shape stored = header.shape;
  if (header.is_fortran_order) std::reverse(stored.begin(), stored.end());
  const TensorView view = io::view_of(origin, elements, header.dtype, stored, begin);
  return header.is_fortran_order ? io::transposed(view, header.shape) : view;
}

struct NpyWriter::State {
  State(const std::filesystem::path& path, DType dtype, const Shape& shape)
      : origin(io::origin_of("NpyWriter", path)),
        missing(io::byte_count(origin, dtype, shape)),
        header(io::npy_header(origin, dtype, shape)),
        file(origin, path) {}

  io::Origin origin;
  std::size_t missing;  // bytes
  std::string header;
  io::FileWriter file;
};

NpyWriter::NpyWriter(const std::filesystem::path& path, DType dtype, const Shape& shape)
    : state_(std::make_unique<State>(path, dtype, shape)) {
  state_->file.write(state_->header);
}

NpyWriter::~NpyWriter() = default;
NpyWriter::NpyWriter(NpyWriter&&) noexcept = default;

void NpyWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > state_->missing) {
    state_->origin.refuse_argument("there is room for " + std::to_string(state_->missing) + " more bytes, got " +
                                   std::to_string(bytes.size()));
  }
  state_->file.write(bytes);
  state_->missing -= bytes.size();
}

void NpyWriter::commit() {
  if (state_->missing > 0)
    state_->origin.refuse_argument(std::to_string(state_->missing) + " bytes of numbers are missing");
  state_->file.commit();
}

void save_npy(const std::filesystem::path& path, const TensorView& tensor) {
  const io::Origin origin = io::origin_of("save_npy", path);
  const std::string header = io::npy_header(origin, tensor);
  const Tensor packed = tensor.is_contiguous() ? Tensor() : Tensor::copy_of(tensor);
  io::FileWriter file(origin, path);
  file.write(header);
  file.write(io::bytes_of(tensor.is_contiguous() ? tensor : packed.view()));
  file.commit();
}

}  // namespace saccade
