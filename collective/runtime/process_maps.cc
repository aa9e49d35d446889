#include "collective/runtime/process_maps.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

namespace spccl::runtime {
namespace {

// PROCMAP_QUERY of linux/fs.h, Linux 6.11; not in older headers.
struct MapQuery {
  uint64_t size = sizeof(MapQuery);
  uint64_t query_flags = 0;  // 0: the one mapping that holds the address
  uint64_t query_addr = 0;
  uint64_t start = 0, end = 0, flags = 0;  // of the mapping
  uint64_t page_size = 0, offset = 0, inode = 0;
  uint32_t dev_major = 0, dev_minor = 0;
  uint32_t name_size = 0, build_id_size = 0;
  uint64_t name = 0, build_id = 0;
};
constexpr uint64_t kReadable = 1, kWritable = 2;
const unsigned long kMapQuery = _IOWR('f', 17, MapQuery);

struct Mapping {
  uint64_t start = 0, end = 0;
  bool readable = false, writable = false;
};

// "7f12a000-7f12c000 rw-p 00000000 08:01 1234  /a/file": the first two fields are all that matters.
bool Parse(const char* text, const char* end, Mapping* mapping) {
  const auto start = std::from_chars(text, end, mapping->start, 16);
  if (start.ec != std::errc() || start.ptr == end || *start.ptr != '-') return false;
  const auto stop = std::from_chars(start.ptr + 1, end, mapping->end, 16);
  if (stop.ec != std::errc() || end - stop.ptr < 3 || *stop.ptr != ' ') return false;
  mapping->readable = stop.ptr[1] == 'r';
  mapping->writable = stop.ptr[2] == 'w';
  return true;
}

// The mappings, in the order of their addresses. What stays mapped while they are read is there,
// even if other memory comes and goes; a mapping that grows may be there again, with more.
class MapsText {
 public:
  explicit MapsText(int maps) : maps_(maps) {}

  // The error number: 0 if there is another mapping, ENOENT behind the last one.
  int Next(Mapping* mapping) {
    for (size_t length = 0;;) {
      if (next_ == filled_) {
        if (const int error = Fill(); error != 0) return error;
      }
      const char* const from = text_.data() + next_;
      const size_t left = filled_ - next_;
      const void* const newline = std::memchr(from, '\n', left);
      const size_t piece =
          newline == nullptr ? left : static_cast<size_t>(static_cast<const char*>(newline) - from);
      const size_t kept = std::min(piece, head_.size() - length);
      std::memcpy(head_.data() + length, from, kept);
      length += kept;
      next_ += piece;
      if (newline == nullptr) continue;
      ++next_;
      return Parse(head_.data(), head_.data() + length, mapping) ? 0 : EINVAL;
    }
  }

 private:
  int Fill() {
    ssize_t n;
    do {
      n = ::pread(maps_, text_.data(), text_.size(), offset_);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return errno;
    // There is always a mapping, as long as there is memory.
    if (n == 0) return ::pread(maps_, text_.data(), 1, 0) == 0 ? ESRCH : ENOENT;
    offset_ += n;
    next_ = 0;
    filled_ = static_cast<size_t>(n);
    return 0;
  }

  const int maps_;
  off_t offset_ = 0;
  size_t next_ = 0, filled_ = 0;
  std::array<char, 4096> text_{};  // the kernel gives no more at a time
  std::array<char, 48> head_{};    // of the line, which may be longer than any buffer
};

// The highest page of all, which some kernels show, is theirs: a question does not find it either.
bool IsKernels(const Mapping& mapping) {
  return mapping.start >> 63 != 0;
}

}  // namespace

Allowance AskMaps(int maps, Access access, uint64_t address, size_t bytes) {
  const uint64_t needed = access == Access::kRead ? kReadable : kWritable;
  for (uint64_t at = address; at - address < bytes;) {
    MapQuery query;
    query.query_addr = at;
    if (::ioctl(maps, kMapQuery, &query) != 0) {
      return {at - address, errno == ENOENT ? EFAULT : errno};
    }
    if ((query.flags & needed) == 0) return {at - address, EACCES};
    at = query.end;
  }
  return {bytes, 0};
}

Allowance ReadMaps(int maps, Access access, uint64_t address, size_t bytes, AddressRange* around) {
  MapsText text(maps);
  for (uint64_t at = address; at - address < bytes;) {
    Mapping mapping;
    const int error = text.Next(&mapping);
    if (error != 0) return {at - address, error == ENOENT ? EFAULT : error};
    if (mapping.end <= at) continue;
    if (mapping.start > at || IsKernels(mapping)) return {at - address, EFAULT};
    if (!(access == Access::kRead ? mapping.readable : mapping.writable)) {
      return {at - address, EACCES};
    }
    if (around != nullptr) {
      *around = {.start = at == address ? mapping.start : around->start, .end = mapping.end};
    }
    at = mapping.end;
  }
  return {bytes, 0};
}

}  // namespace spccl::runtime
