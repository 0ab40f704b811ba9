#include "io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <optional>

#include "io/elements.h"

namespace saccade::io {
namespace {

constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kDeflated = 8;
constexpr std::uint16_t kEncryptedFlag = 1;
constexpr std::uint16_t kUtf8Flag = 1 << 11;
constexpr std::uint16_t kZip64Extra = 1;

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kEnd64LocatorSignature = 0x07064b50;

constexpr std::size_t kLocalSize = 30;
constexpr std::size_t kCentralSize = 46;
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kEnd64Size = 56;
constexpr std::size_t kEnd64LocatorSize = 20;

// 1980-01-01, the date that NumPy writes too: equal tensors give equal files.
constexpr std::uint32_t kNoDate = 0x00210000;

// All ones in a field mean that its value is in a zip64 record.
constexpr std::uint16_t kSee64Count = 0xffff;
constexpr std::uint32_t kSee64 = 0xffffffff;

// The maximum of deflate: 258 bytes from two bits.
constexpr std::uint64_t kHighestRatio = 1032;

struct Directory {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t count = 0;
};

std::string at_byte(std::uint64_t position) { return " at byte " + std::to_string(position); }

/// The position of an archive's last record. Only a comment, whose length the record gives, may follow it.
std::optional<std::size_t> find_end_record(std::span<const std::byte> archive) {
  if (archive.size() < kEndSize) return std::nullopt;
  const std::size_t last = archive.size() - kEndSize;
  const std::size_t longest_comment = std::numeric_limits<std::uint16_t>::max();
  for (std::size_t comment = 0; comment <= std::min(last, longest_comment); ++comment) {
    const std::size_t at = last - comment;
    if (number_at<std::uint32_t>(archive, at) == kEndSignature &&
        number_at<std::uint16_t>(archive, at + 20) == comment) {
      return at;
    }
  }
  return std::nullopt;
}

/// Reads the zip64 end record, found by the locator in front of the end record at `end_at`.
Directory zip64_directory(const Origin& origin, std::span<const std::byte> archive, std::size_t end_at) {
  if (end_at < kEnd64LocatorSize + kEnd64Size ||
      number_at<std::uint32_t>(archive, end_at - kEnd64LocatorSize) != kEnd64LocatorSignature) {
    origin.refuse("the archive's zip64 locator is missing" + at_byte(end_at));
  }
  const std::size_t locator_at = end_at - kEnd64LocatorSize;
  const auto at = number_at<std::uint64_t>(archive, locator_at + 8);
  if (at > locator_at - kEnd64Size || number_at<std::uint32_t>(archive, at) != kEnd64Signature) {
    origin.refuse("the archive's zip64 locator points at no zip64 record" + at_byte(locator_at));
  }
  const auto size = number_at<std::uint64_t>(archive, at + 40);
  const auto begin = number_at<std::uint64_t>(archive, at + 48);
  if (size > at || begin != at - size) {
    origin.refuse("the archive's directory is not where it is said to be" + at_byte(at));
  }
  return {begin, at, number_at<std::uint64_t>(archive, at + 32)};
}

Directory find_directory(const Origin& origin, std::span<const std::byte> archive) {
  const std::optional<std::size_t> end_at = find_end_record(archive);
  if (!end_at) origin.refuse("is not a complete npz (zip) archive: it does not end with a zip end record");
  const auto disk = number_at<std::uint16_t>(archive, *end_at + 4);
  const auto count = number_at<std::uint16_t>(archive, *end_at + 10);
  const auto size = number_at<std::uint32_t>(archive, *end_at + 12);
  const auto begin = number_at<std::uint32_t>(archive, *end_at + 16);
  if (count == kSee64Count || size == kSee64 || begin == kSee64) return zip64_directory(origin, archive, *end_at);
  if (disk != 0) origin.refuse("is one part of an archive in several parts" + at_byte(*end_at));
  if (size > *end_at || begin != *end_at - size) {
    origin.refuse("the archive's directory is not where it is said to be" + at_byte(*end_at));
  }
  return {begin, *end_at, count};
}

/// Replaces the fields that are all ones by the numbers in the zip64 extra field, which contains only those, in
/// order.
void resolve_zip64(const Origin& origin, std::span<const std::byte> extra, ZipMember& member,
                   std::uint64_t& packed_size) {
  std::uint64_t* const fields[] = {&member.size, &packed_size, &member.header_at};
  if (std::none_of(std::begin(fields), std::end(fields), [](auto* field) { return *field == kSee64; })) return;
  while (extra.size() >= 4) {
    const auto id = number_at<std::uint16_t>(extra, 0);
    const std::size_t length = number_at<std::uint16_t>(extra, 2);
    if (length > extra.size() - 4) break;
    std::span<const std::byte> values = extra.subspan(4, length);
    extra = extra.subspan(4 + length);
    if (id != kZip64Extra) continue;
    for (std::uint64_t* const field : fields) {
      if (*field != kSee64) continue;
      if (values.size() < 8) origin.refuse("member " + in_quotes(member.name) + " lacks its zip64 sizes");
      *field = number_at<std::uint64_t>(values, 0);
      values = values.subspan(8);
    }
    return;
  }
  origin.refuse("member " + in_quotes(member.name) + " lacks its zip64 sizes");
}

/// Finds the member's bytes after its local header.
void locate(const Origin& origin, std::span<const std::byte> archive, std::uint64_t directory_begin,
            std::uint64_t packed_size, ZipMember& member) {
  const auto refuse = [&](const std::string& fault) {
    origin.refuse("member " + in_quotes(member.name) + fault + at_byte(member.header_at));
  };
  const std::uint64_t at = member.header_at;
  if (at > directory_begin || directory_begin - at < kLocalSize ||
      number_at<std::uint32_t>(archive, at) != kLocalSignature) {
    refuse(" is said to begin where no member does,");
  }
  const std::size_t name_size = number_at<std::uint16_t>(archive, at + 26);
  const std::size_t extra_size = number_at<std::uint16_t>(archive, at + 28);
  const std::uint64_t left = directory_begin - at - kLocalSize;
  if (name_size + extra_size > left || packed_size > left - name_size - extra_size) {
    refuse(" claims " + std::to_string(packed_size) + " bytes, more than the archive has");
  }
  if (as_text(archive.subspan(at + kLocalSize, name_size)) != member.name) refuse(" has another name");
  member.packed = archive.subspan(at + kLocalSize + name_size + extra_size, packed_size);
}

void check_sizes(const Origin& origin, const ZipMember& member) {
  const auto refuse = [&](const std::string& fault) { origin.refuse("member " + in_quotes(member.name) + fault); };
  const std::string sizes = std::to_string(member.packed.size()) + " bytes for " + std::to_string(member.size);
  if (member.method == kStored && member.packed.size() != member.size) refuse(" is stored in " + sizes);
  if (member.method == kDeflated && member.size / kHighestRatio > member.packed.size()) {
    refuse(" is deflated to " + sizes + ", which deflate cannot do");
  }
}

/// Reads one directory entry at `at` and advances `at` past it.
ZipMember read_entry(const Origin& origin, std::span<const std::byte> archive, const Directory& directory,
                     std::uint64_t& at) {
  const std::uint64_t left = directory.end - at;
  if (left < kCentralSize || number_at<std::uint32_t>(archive, at) != kCentralSignature) {
    origin.refuse("the archive's directory has no entry where one was expected," + at_byte(at));
  }
  const std::size_t name_size = number_at<std::uint16_t>(archive, at + 28);
  const std::size_t extra_size = number_at<std::uint16_t>(archive, at + 30);
  const std::size_t comment_size = number_at<std::uint16_t>(archive, at + 32);
  if (left - kCentralSize < name_size + extra_size + comment_size) {
    origin.refuse("the archive's directory ends within an entry" + at_byte(at));
  }
  ZipMember member;
  member.name = as_text(archive.subspan(at + kCentralSize, name_size));
  member.method = number_at<std::uint16_t>(archive, at + 10);
  member.crc = number_at<std::uint32_t>(archive, at + 16);
  member.size = number_at<std::uint32_t>(archive, at + 24);
  member.header_at = number_at<std::uint32_t>(archive, at + 42);
  std::uint64_t packed_size = number_at<std::uint32_t>(archive, at + 20);
  if ((number_at<std::uint16_t>(archive, at + 8) & kEncryptedFlag) != 0) {
    origin.refuse("member " + in_quotes(member.name) + " is encrypted");
  }
  if (member.method != kStored && member.method != kDeflated) {
    origin.refuse("member " + in_quotes(member.name) + " is packed by method " + std::to_string(member.method) +
                  "; stored (0) and deflated (8) are read");
  }
  resolve_zip64(origin, archive.subspan(at + kCentralSize + name_size, extra_size), member, packed_size);
  locate(origin, archive, directory.begin, packed_size, member);
  check_sizes(origin, member);
  at += kCentralSize + name_size + extra_size + comment_size;
  return member;
}

void refuse_overlaps(const Origin& origin, std::span<const std::byte> archive,
                     std::span<const ZipMember> members) {
  for (std::size_t i = 1; i < members.size(); ++i) {
    const ZipMember& before = members[i - 1];
    const auto end = static_cast<std::uint64_t>(before.packed.data() - archive.data()) + before.packed.size();
    if (members[i].header_at < end) {
      origin.refuse("member " + in_quotes(members[i].name) + " overlaps " + in_quotes(before.name) +
                    at_byte(members[i].header_at));
    }
  }
}

/// Extends the checksum `crc` by these bytes.
std::uint32_t crc_of(std::uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // zlib would restart at a null pointer
  return static_cast<std::uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// A zlib stream of raw deflate data.
class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Unpacks from `from` into `to` and removes the used parts from both spans. Returns zlib's result code.
  int step(std::span<const std::byte>& from, std::span<std::byte>& to) {
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    const auto in = static_cast<uInt>(std::min(from.size(), kMost));
    const auto out = static_cast<uInt>(std::min(to.size(), kMost));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from.data()));
    stream_.avail_in = in;
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = out;
    const int answer = inflate(&stream_, Z_NO_FLUSH);
    from = from.subspan(in - stream_.avail_in);
    to = to.subspan(out - stream_.avail_out);
    return answer;
  }

 private:
  z_stream stream_{};
};

/// Unpacks into `buffer`, which grows with the actual output, never with the promised size.
void inflate_member(const Origin& origin, const ZipMember& member, std::vector<std::byte>& buffer) {
  constexpr std::size_t kFirst = 4096;
  Inflater inflater;
  std::span<const std::byte> from = member.packed;
  buffer.clear();
  for (int answer = Z_OK; answer != Z_STREAM_END;) {
    const std::size_t length = buffer.size();
    // One byte more than promised, to notice a stream that continues.
    buffer.resize(std::min<std::size_t>(member.size + 1, std::max(kFirst, 2 * length)));
    std::span<std::byte> to = std::span(buffer).subspan(length);
    while (!to.empty() && answer == Z_OK) answer = inflater.step(from, to);
    buffer.resize(buffer.size() - to.size());
    if (answer != Z_OK && answer != Z_STREAM_END) {
      origin.refuse("member " + in_quotes(member.name) + " has damaged deflate data");
    }
    if (buffer.size() > member.size) break;
  }
  if (buffer.size() != member.size || !from.empty()) {
    origin.refuse("member " + in_quotes(member.name) + " does not unpack to the " + std::to_string(member.size) +
                  " bytes it promises");
  }
}

template <class T>
void append(std::string& out, T number) {
  out += little_endian(number);
}

}  // namespace

std::vector<ZipMember> zip_members(const Origin& origin, std::span<const std::byte> archive) {
  const Directory directory = find_directory(origin, archive);
  std::vector<ZipMember> members;
  std::uint64_t at = directory.begin;
  while (members.size() < directory.count) members.push_back(read_entry(origin, archive, directory, at));
  if (at != directory.end) {
    origin.refuse("the archive's directory continues after its " + std::to_string(directory.count) + " entries" +
                  at_byte(at));
  }
  std::sort(members.begin(), members.end(),
            [](const ZipMember& a, const ZipMember& b) { return a.header_at < b.header_at; });
  refuse_overlaps(origin, archive, members);
  return members;
}

std::span<const std::byte> unpacked(const Origin& origin, const ZipMember& member,
                                    std::vector<std::byte>& buffer) {
  if (member.method == kDeflated) inflate_member(origin, member, buffer);
  const std::span<const std::byte> bytes = member.method == kDeflated ? buffer : member.packed;
  if (crc_of(0, bytes) != member.crc) {
    origin.refuse("member " + in_quotes(member.name) + " does not match its checksum");
  }
  return bytes;
}

void ZipWriter::require_room(std::uint64_t length) const {
  if (written_ + length >= kSee64 || count_ + 1 >= kSee64Count) {
    origin_.refuse_argument("npz archives are written below 4 GiB and 65535 arrays; save as safetensors");
  }
}

void ZipWriter::add(const std::string& name, std::string_view head, std::span<const std::byte> body) {
  if (name.size() > std::numeric_limits<std::uint16_t>::max()) {
    origin_.refuse_argument("the name " + in_quotes(name) + " is too long");
  }
  const std::uint64_t size = head.size() + body.size();
  require_room(kLocalSize + name.size() + size + directory_.size() + kCentralSize + name.size() + kEndSize);
  // The common part of the local header and the directory entry, from the version needed to the extra length.
  std::string common;
  append<std::uint16_t>(common, 20);
  append<std::uint16_t>(common, kUtf8Flag);
  append<std::uint16_t>(common, kStored);
  append<std::uint32_t>(common, kNoDate);
  append<std::uint32_t>(common, crc_of(crc_of(0, std::as_bytes(std::span(head))), body));
  append<std::uint32_t>(common, static_cast<std::uint32_t>(size));
  append<std::uint32_t>(common, static_cast<std::uint32_t>(size));
  append<std::uint16_t>(common, static_cast<std::uint16_t>(name.size()));
  append<std::uint16_t>(common, 0);

  std::string local;
  append<std::uint32_t>(local, kLocalSignature);
  local += common + name;
  append<std::uint32_t>(directory_, kCentralSignature);
  append<std::uint16_t>(directory_, 20);
  directory_ += common;
  directory_.append(10, '\0');  // comment length, disk, internal and external attributes
  append<std::uint32_t>(directory_, static_cast<std::uint32_t>(written_));
  directory_ += name;

  file_.write(local);
  file_.write(head);
  file_.write(body);
  written_ += local.size() + size;
  ++count_;
}

void ZipWriter::finish() {
  const std::size_t directory_size = directory_.size();
  append<std::uint32_t>(directory_, kEndSignature);
  append<std::uint32_t>(directory_, 0);  // this disk and the directory's
  append<std::uint16_t>(directory_, static_cast<std::uint16_t>(count_));
  append<std::uint16_t>(directory_, static_cast<std::uint16_t>(count_));
  append<std::uint32_t>(directory_, static_cast<std::uint32_t>(directory_size));
  append<std::uint32_t>(directory_, static_cast<std::uint32_t>(written_));
  append<std::uint16_t>(directory_, 0);
  file_.write(directory_);
}

}  // namespace saccade::io
