// The part of the zip format that .npz archives use (APPNOTE.TXT 6.3): stored and deflated members, zip64 sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/message.h"

namespace saccade::io {

/// A file in an archive, as the central directory describes it.
struct ZipMember {
  std::string name;
  std::uint16_t method = 0;  ///< kStored or kDeflated
  std::uint32_t crc = 0;
  std::uint64_t header_at = 0;        ///< the position of its local header in the archive
  std::uint64_t size = 0;             ///< bytes after unpacking
  std::span<const std::byte> packed;  ///< its bytes in the archive
};

/// The members in the order of their bytes. Throws for overlapping members: only archives that try to unpack to
/// more than their size justifies have them.
std::vector<ZipMember> zip_members(const Origin& origin, std::span<const std::byte> archive);

/// The member's bytes, checked against its size and checksum: a view of the archive, or unpacked into `buffer`.
std::span<const std::byte> unpacked(const Origin& origin, const ZipMember& member, std::vector<std::byte>& buffer);

/// Writes an archive of stored members.
class ZipWriter {
 public:
  ZipWriter(const Origin& origin, FileWriter& file) : origin_(origin), file_(file) {}

  /// Adds a member whose bytes are `head` followed by `body`.
  void add(const std::string& name, std::string_view head, std::span<const std::byte> body);

  /// Writes the directory; no members can follow.
  void finish();

 private:
  void require_room(std::uint64_t length) const;

  const Origin& origin_;
  FileWriter& file_;
  std::uint64_t written_ = 0;
  std::string directory_;
  unsigned count_ = 0;
};

}  // namespace saccade::io
