// frame encode|decode|show|validate: frames in files, as docs/wire.md describes them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "base/view.h"
#include "ctl/context.h"
#include "ctl/render.h"
#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/host/codec.h"

namespace spccl::ctl {
namespace {

using Bytes = std::vector<std::byte>;

absl::Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  return ErrnoStatus(error, absl::StrCat(what, " ", path));
}

// A file that is read from the front; no more of it than is asked for.
class Source {
 public:
  static absl::StatusOr<Source> Open(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) return Failed("open", path);
    struct stat info;
    if (::fstat(file.get(), &info) != 0) return Failed("stat", path);
    if (S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a file"));
    }
    return Source(
        path, std::move(file),
        S_ISREG(info.st_mode) ? std::optional(static_cast<uint64_t>(info.st_size)) : std::nullopt);
  }

  // Of a regular file.
  std::optional<uint64_t> size() const { return size_; }

  // Appends what comes next until `bytes` has `most` bytes or the file ends.
  absl::Status ReadUpTo(uint64_t most, Bytes* bytes) const {
    constexpr size_t kBlock = size_t{1} << 20;
    size_t used = bytes->size();
    while (used < most) {
      // By blocks, unless the size is known: what a pipe will bring is not.
      const uint64_t goal = size_.has_value() ? std::min(*size_ + 1, most) : used + kBlock;
      bytes->resize(std::min<uint64_t>(most, std::max<uint64_t>(goal, used + 1)));
      const ssize_t got = ::read(file_.get(), bytes->data() + used, bytes->size() - used);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed("read", path_);
      if (got == 0) break;
      used += static_cast<size_t>(got);
    }
    bytes->resize(used);
    return absl::OkStatus();
  }

 private:
  Source(std::string path, UniqueFd file, std::optional<uint64_t> size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}

  std::string path_;
  UniqueFd file_;
  std::optional<uint64_t> size_;
};

absl::Status WriteAll(int file, const std::string& path, const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(file, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path);
    data += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status WriteInPlace(const std::string& path, const std::byte* data, size_t size) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return file.valid() ? WriteAll(file.get(), path, data, size) : Failed("create", path);
}

// Where the file that `path` names is, or is to be; empty: what it names cannot be replaced, as it
// is a device, a pipe, a link to nothing or a file without a name.
std::string PlaceOf(const std::string& path, bool exists, const struct stat& info) {
  struct stat itself;
  if (!exists) return ::lstat(path.c_str(), &itself) == 0 ? "" : path;
  if (!S_ISREG(info.st_mode)) return "";
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real != nullptr ? real.get() : "";
}

// A file that there is stays as it is where this fails: the bytes go beside it, and then in its
// place. But where its folder takes no others.
absl::Status WriteBytes(const std::string& path, const std::byte* data, size_t size) {
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if ((exists && S_ISDIR(info.st_mode)) || path.ends_with('/')) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a file"));
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) return Failed("create", path);
  const std::string place = PlaceOf(path, exists, info);
  if (place.empty()) return WriteInPlace(path, data, size);
  const std::string beside = absl::StrCat(place, ".", ::getpid(), ".new");
  const UniqueFd file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file.valid()) return exists ? WriteInPlace(path, data, size) : Failed("create", path);
  absl::Status status = WriteAll(file.get(), path, data, size);
  if (status.ok() && exists && ::fchmod(file.get(), info.st_mode & 07777) != 0) {
    status = Failed("chmod", beside);
  }
  if (status.ok() && ::rename(beside.c_str(), place.c_str()) != 0) {
    status = Failed("rename", beside);
  }
  if (!status.ok()) ::unlink(beside.c_str());
  return status;
}

struct FrameOptions {
  std::string format, dtype, in, out;
};

struct FrameFile {
  FrameHeader header;
  Bytes bytes;         // the header only, if that is wrong already
  absl::Status valid;  // FailedPrecondition: what is wrong
};

absl::Status Invalid(const std::string& path, const FrameFault& fault) {
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": not a valid frame: ", View(NameOf(fault.error)), " at byte ", fault.at, ": found ",
      fault.found, ", expected ", View(NameOf(fault.bound)), fault.expected));
}

// The header first, then as much as it says, so that a large file that is no frame costs nothing.
absl::StatusOr<FrameFile> ReadFrame(const std::string& path) {
  SPCCL_ASSIGN_OR_RETURN(const Source source, Source::Open(path));
  FrameFile frame;
  SPCCL_RETURN_IF_ERROR(source.ReadUpTo(sizeof frame.header, &frame.bytes));
  if (frame.bytes.size() < sizeof frame.header) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": not a frame: ", frame.bytes.size(), " bytes, a header has ", sizeof frame.header));
  }
  std::memcpy(&frame.header, frame.bytes.data(), sizeof frame.header);
  FrameFault fault = Validate(frame.bytes.data(), frame.bytes.size());
  if (fault.error == FrameError::kBadMagic) return Invalid(path, fault);
  // A header tells how long the frame is; of a lossy one what is behind it tells the rest.
  while (fault.error == FrameError::kTooShort) {
    const size_t before = frame.bytes.size();
    SPCCL_RETURN_IF_ERROR(source.ReadUpTo(fault.expected, &frame.bytes));
    if (frame.bytes.size() == before) break;
    fault = Validate(frame.bytes.data(), frame.bytes.size());
  }
  if (!fault.ok()) {
    frame.valid = Invalid(path, fault);
    return frame;
  }
  const uint64_t whole = frame.bytes.size();
  SPCCL_RETURN_IF_ERROR(source.ReadUpTo(whole + 1, &frame.bytes));
  if (frame.bytes.size() > whole) {
    frame.valid = absl::FailedPreconditionError(
        absl::StrCat(path, ": not a valid frame: the file is longer than the ", whole,
                     " bytes that its header tells"));
  }
  return frame;
}

absl::StatusOr<FrameFile> ReadValidFrame(const std::string& path) {
  SPCCL_ASSIGN_OR_RETURN(FrameFile frame, ReadFrame(path));
  SPCCL_RETURN_IF_ERROR(frame.valid);
  return frame;
}

// A whole number of elements, as many as a frame may hold.
absl::StatusOr<Bytes> ReadElements(const std::string& path, DType dtype) {
  SPCCL_ASSIGN_OR_RETURN(const Source source, Source::Open(path));
  const uint64_t most = kMaxFrameElements * SizeOf(dtype);
  Bytes dense;
  if (source.size().value_or(0) <= most) {
    SPCCL_RETURN_IF_ERROR(source.ReadUpTo(most + 1, &dense));
  }
  const uint64_t size = std::max<uint64_t>(dense.size(), source.size().value_or(0));
  if (size > most) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": longer than ", most,
                                                   " bytes: a frame holds at most ",
                                                   kMaxFrameElements, " elements"));
  }
  if (size % SizeOf(dtype) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", size, " bytes are no whole number of ", View(NameOf(dtype)), " elements"));
  }
  return dense;
}

nlohmann::ordered_json HeaderJson(const FrameHeader& header) {
  nlohmann::ordered_json json = {{"version", header.version}};
  json["format"] = IsValidFormat(header.format)
                       ? nlohmann::ordered_json(NameOf(static_cast<Format>(header.format)))
                       : nlohmann::ordered_json(header.format);
  json["dtype"] = IsValidDType(header.dtype)
                      ? nlohmann::ordered_json(NameOf(static_cast<DType>(header.dtype)))
                      : nlohmann::ordered_json(header.dtype);
  json["element_count"] = header.element_count;
  json["nnz"] = header.nnz;
  json["payload_bytes"] = header.payload_bytes;
  json["bitmap_offset"] = header.bitmap_offset;
  json["index_offset"] = header.index_offset;
  json["values_offset"] = header.values_offset;
  json["header_crc"] = header.header_crc;
  return json;
}

void Summarise(const FrameHeader& header, size_t frame_bytes, Context* context) {
  const uint64_t dense_bytes = IsValidDType(header.dtype)
                                   ? header.element_count * SizeOf(static_cast<DType>(header.dtype))
                                   : 0;
  nlohmann::ordered_json json = HeaderJson(header);
  json["frame_bytes"] = frame_bytes;
  json["dense_bytes"] = dense_bytes;
  if (context->json()) {
    context->PrintJson({{"frame", json}});
    return;
  }
  context->out() << NameOf(static_cast<Format>(header.format)) << " "
                 << NameOf(static_cast<DType>(header.dtype)) << ": " << header.element_count
                 << " elements, " << header.nnz << " stored, " << frame_bytes << " bytes for "
                 << dense_bytes << " dense ("
                 << Percent(static_cast<double>(frame_bytes), static_cast<double>(dense_bytes))
                 << ")\n";
}

absl::Status Encode(Context& context, const FrameOptions& options) {
  const Format format = *FormatFromName(options.format);
  const DType dtype = *DTypeFromName(options.dtype);
  SPCCL_ASSIGN_OR_RETURN(const Bytes dense, ReadElements(options.in, dtype));
  const size_t elements = dense.size() / SizeOf(dtype);
  Bytes frame(MaxFrameBytes(format, dtype, elements) + kEncodeSlack);
  const Encoded encoded = spccl::Encode(format, dtype, dense.data(), elements, frame.data());
  SPCCL_RETURN_IF_ERROR(WriteBytes(options.out, frame.data(), encoded.frame_bytes));
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof header);
  Summarise(header, encoded.frame_bytes, &context);
  return absl::OkStatus();
}

absl::Status Decode(Context& context, const FrameOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const FrameFile frame, ReadValidFrame(options.in));
  Bytes dense(frame.header.element_count * SizeOf(static_cast<DType>(frame.header.dtype)));
  spccl::Decode(frame.bytes.data(), dense.data());
  SPCCL_RETURN_IF_ERROR(WriteBytes(options.out, dense.data(), dense.size()));
  Summarise(frame.header, frame.bytes.size(), &context);
  return absl::OkStatus();
}

// The header as it stands, field by field, also of a frame that is not valid: then it fails as
// well.
absl::Status Show(Context& context, const FrameOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const FrameFile frame, ReadFrame(options.in));
  nlohmann::ordered_json json = HeaderJson(frame.header);
  json["valid"] = frame.valid.ok();
  if (context.json()) {
    if (!frame.valid.ok()) json["fault"] = std::string(frame.valid.message());
    context.PrintJson({{"frame", json}});
    return frame.valid;
  }
  Table table({"FIELD", "#VALUE"});
  for (const auto& [name, value] : json.items()) {
    table.Add({name, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  table.Print(&context.out());
  return frame.valid;
}

absl::Status RunValidate(Context& context, const FrameOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const FrameFile frame, ReadValidFrame(options.in));
  Summarise(frame.header, frame.bytes.size(), &context);
  return absl::OkStatus();
}

using FrameCommand = absl::Status (*)(Context&, const FrameOptions&);

void AddCommand(Tree* tree, CLI::App* parent, const std::string& name, const std::string& help,
                FrameCommand command, bool writes) {
  const auto options = std::make_shared<FrameOptions>();
  CLI::App* added = tree->Add(parent, name, help, [options, command](Context& context) {
    return command(context, *options);
  });
  if (name == "encode") {
    std::vector<std::string> formats, dtypes;
    for (int code = 0; code < kExactFormatCount; ++code) {
      formats.emplace_back(NameOf(static_cast<Format>(code)));
    }
    for (int code = 0; code < kDTypeCount; ++code) {
      dtypes.emplace_back(NameOf(static_cast<DType>(code)));
    }
    tree->Limit(added->add_option("--format", options->format, "Of the frame.")->required(),
                formats);
    tree->Limit(added->add_option("--dtype", options->dtype, "Of the elements.")->required(),
                dtypes);
  }
  added->add_option("IN", options->in, "File to read.")->required();
  if (writes) added->add_option("OUT", options->out, "File to write.")->required();
}

}  // namespace

void AddFrameCommands(Tree* tree) {
  CLI::App* frame = tree->app.add_subcommand("frame", "Frames in files; needs no daemon.");
  frame->require_subcommand(1);
  AddCommand(tree, frame, "encode", "Raw little-endian elements into a frame.", Encode, true);
  AddCommand(tree, frame, "decode", "A frame into raw little-endian elements.", Decode, true);
  AddCommand(tree, frame, "show",
             "A frame's header, field by field; exit code 3 if the frame is not valid.", Show,
             false);
  AddCommand(tree, frame, "validate", "Check a frame; exit code 3 if it is not valid.", RunValidate,
             false);
}

}  // namespace spccl::ctl
