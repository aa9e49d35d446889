#include "ctl/bundle.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "nlohmann/json.hpp"

namespace spccl::ctl {
namespace {

constexpr char kLeftOut[] = "[private key left out]";
constexpr mode_t kOwnerOnly = 0600;

struct ArchiveFreer {
  void operator()(archive* writer) const { ::archive_write_free(writer); }
};
struct EntryFreer {
  void operator()(archive_entry* entry) const { ::archive_entry_free(entry); }
};
using ArchiveWriter = std::unique_ptr<archive, ArchiveFreer>;

absl::Status Failed(archive* writer) {
  const char* text = ::archive_error_string(writer);
  return absl::InternalError(text == nullptr ? "cannot write the archive" : text);
}

absl::Status WriteItem(archive* writer, const std::string& name, const std::string& content,
                       time_t now) {
  const std::unique_ptr<archive_entry, EntryFreer> entry(::archive_entry_new());
  ::archive_entry_set_pathname(entry.get(), name.c_str());
  ::archive_entry_set_size(entry.get(), static_cast<la_int64_t>(content.size()));
  ::archive_entry_set_filetype(entry.get(), AE_IFREG);
  ::archive_entry_set_perm(entry.get(), kOwnerOnly);
  ::archive_entry_set_mtime(entry.get(), now, 0);
  if (::archive_write_header(writer, entry.get()) != ARCHIVE_OK) return Failed(writer);
  const la_ssize_t written = ::archive_write_data(writer, content.data(), content.size());
  return written == static_cast<la_ssize_t>(content.size()) ? absl::OkStatus() : Failed(writer);
}

// Where `word` begins that stands on the same line as, and shortly before, `at`; npos: nowhere.
size_t OpeningBefore(const std::string& text, size_t at, const std::string& word, size_t least) {
  constexpr size_t kFarthest = 64;
  const size_t found = text.rfind(word, at);
  if (found == std::string::npos || found < least || at - found > kFarthest) {
    return std::string::npos;
  }
  return text.substr(found, at - found).find('\n') == std::string::npos ? found : std::string::npos;
}

}  // namespace

std::string WithoutPrivateKeys(const std::string& text) {
  const std::string key = "PRIVATE KEY-----";
  std::string clean;
  bool inside = false;
  size_t done = 0;  // what is before it is in `clean`, or left out
  for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += key.size()) {
    const size_t begin = OpeningBefore(text, at, "-----BEGIN ", done);
    const size_t end = OpeningBefore(text, at, "-----END ", done);
    if (end != std::string::npos && (begin == std::string::npos || end > begin)) {
      if (!inside) clean = kLeftOut;  // its beginning was cut off: all so far may be of it
      inside = false;
      done = at + key.size();
    } else if (!inside) {
      // With no opening, that was cut off.
      const size_t from = begin == std::string::npos ? std::min(done, at) : begin;
      absl::StrAppend(&clean, text.substr(done, from - done), kLeftOut);
      inside = true;
    }
  }
  return inside ? clean : clean + text.substr(done);
}

void Bundle::Add(const std::string& name, const absl::StatusOr<std::string>& content,
                 uint64_t total_bytes) {
  Item item{.name = name, .content = "", .total_bytes = total_bytes, .error = ""};
  if (!content.ok()) {
    item.error = std::string(content.status().message());
  } else if (bytes_ >= kMostBytes) {
    item.error = "left out: the bundle is full";
  } else {
    const size_t most = std::min(kMostPartBytes, kMostBytes - bytes_);
    item.total_bytes = std::max<uint64_t>(total_bytes, content->size());
    item.content = WithoutPrivateKeys(content->substr(0, most));
    bytes_ += item.content.size();
  }
  items_.push_back(std::move(item));
}

void Bundle::AddFile(const std::string& name, const std::string& path, Part part, Links links) {
  uint64_t total_bytes = 0;
  const absl::StatusOr<std::string> content =
      ReadFile(path, kMostPartBytes, part, &total_bytes, links);
  Add(name, content, total_bytes);
}

nlohmann::ordered_json Bundle::Index() const {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const Item& item : items_) {
    nlohmann::ordered_json part = {{"name", item.name},
                                   {"bytes", item.content.size()},
                                   {"of_bytes", item.total_bytes},
                                   {"error", nullptr}};
    if (!item.error.empty()) part["error"] = item.error;
    parts.push_back(std::move(part));
  }
  return {{"parts", std::move(parts)}};
}

absl::StatusOr<uint64_t> Bundle::Write(const std::string& path) const {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly));
  if (!file.valid() && errno == EEXIST) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is there, nothing is overwritten"));
  }
  if (!file.valid()) return ErrnoStatus(errno, path);
  const time_t now = ::time(nullptr);
  const auto write = [&]() -> absl::Status {
    const ArchiveWriter writer(::archive_write_new());
    if (::archive_write_add_filter_gzip(writer.get()) != ARCHIVE_OK ||
        ::archive_write_set_format_pax_restricted(writer.get()) != ARCHIVE_OK ||
        ::archive_write_open_fd(writer.get(), file.get()) != ARCHIVE_OK) {
      return Failed(writer.get());
    }
    const std::string index =
        Index().dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    SPCCL_RETURN_IF_ERROR(WriteItem(writer.get(), folder_ + "/index.json", index, now));
    for (const Item& item : items_) {
      if (!item.error.empty()) continue;
      SPCCL_RETURN_IF_ERROR(
          WriteItem(writer.get(), absl::StrCat(folder_, "/", item.name), item.content, now));
    }
    return ::archive_write_close(writer.get()) == ARCHIVE_OK ? absl::OkStatus()
                                                             : Failed(writer.get());
  };
  if (const absl::Status status = write(); !status.ok()) {
    ::unlink(path.c_str());  // half of one helps nobody
    return Annotate(status, path);
  }
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, path);
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace spccl::ctl
