// frame encode|decode|show|validate: frames in files, as docs/wire.md describes them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "ctl/context.h"
#include "ctl/render.h"
#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/host/codec.h"

namespace spccl::ctl {
namespace {

using Bytes = std::vector<std::byte>;

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

absl::Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  return ErrnoStatus(error, absl::StrCat(what, " ", path));
}

absl::StatusOr<Bytes> ReadBytes(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Failed("open", path);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return Failed("stat", path);
  Bytes bytes(S_ISREG(info.st_mode) ? static_cast<size_t>(info.st_size) + 1 : 65536);
  size_t used = 0;
  for (;;) {
    if (used == bytes.size()) bytes.resize(bytes.size() * 2);
    const ssize_t got = ::read(file.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  bytes.resize(used);
  return bytes;
}

absl::Status WriteBytes(const std::string& path, const std::byte* data, size_t size) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return Failed("create", path);
  while (size > 0) {
    const ssize_t written = ::write(file.get(), data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path);
    data += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

struct FrameOptions {
  std::string format, dtype, in, out;
};

// The header of a file that is at least that long; what it says is checked by Validate() only.
absl::StatusOr<FrameHeader> HeaderOf(const Bytes& bytes, const std::string& path) {
  FrameHeader header;
  if (bytes.size() < sizeof header) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a frame: ", bytes.size(),
                                                      " bytes, a header has ", sizeof header));
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

absl::Status CheckFrame(const Bytes& bytes, const std::string& path) {
  const FrameFault fault = Validate(bytes.data(), bytes.size());
  if (fault.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": not a valid frame: ", View(NameOf(fault.error)), " at byte ", fault.at,
                   ": found ", fault.found, ", expected ", fault.expected));
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
  SPCCL_ASSIGN_OR_RETURN(const Bytes dense, ReadBytes(options.in));
  const size_t elements = dense.size() / SizeOf(dtype);
  if (dense.size() % SizeOf(dtype) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(options.in, ": ", dense.size(),
                                                   " bytes are no whole number of ", options.dtype,
                                                   " elements"));
  }
  if (elements > kMaxFrameElements) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.in, ": ", elements, " elements, a frame holds at most ", kMaxFrameElements));
  }
  Bytes frame(MaxFrameBytes(format, dtype, elements) + kEncodeSlack);
  const Encoded encoded = spccl::Encode(format, dtype, dense.data(), elements, frame.data());
  SPCCL_RETURN_IF_ERROR(WriteBytes(options.out, frame.data(), encoded.frame_bytes));
  SPCCL_ASSIGN_OR_RETURN(const FrameHeader header, HeaderOf(frame, options.out));
  Summarise(header, encoded.frame_bytes, &context);
  return absl::OkStatus();
}

absl::Status Decode(Context& context, const FrameOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const Bytes frame, ReadBytes(options.in));
  SPCCL_ASSIGN_OR_RETURN(const FrameHeader header, HeaderOf(frame, options.in));
  SPCCL_RETURN_IF_ERROR(CheckFrame(frame, options.in));
  Bytes dense(header.element_count * SizeOf(static_cast<DType>(header.dtype)));
  spccl::Decode(frame.data(), dense.data());
  SPCCL_RETURN_IF_ERROR(WriteBytes(options.out, dense.data(), dense.size()));
  Summarise(header, frame.size(), &context);
  return absl::OkStatus();
}

// The header as it stands, field by field, also of a frame that is not valid.
absl::Status Show(Context& context, const FrameOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const Bytes frame, ReadBytes(options.in));
  SPCCL_ASSIGN_OR_RETURN(const FrameHeader header, HeaderOf(frame, options.in));
  const absl::Status valid = CheckFrame(frame, options.in);
  nlohmann::ordered_json json = HeaderJson(header);
  json["valid"] = valid.ok();
  if (!valid.ok()) json["fault"] = std::string(valid.message());
  if (context.json()) {
    context.PrintJson({{"frame", json}});
    return absl::OkStatus();
  }
  Table table({"FIELD", "#VALUE"});
  for (const auto& [name, value] : json.items()) {
    table.Add({name, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  table.Print(&context.out());
  return absl::OkStatus();
}

absl::Status RunValidate(Context& context, const FrameOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const Bytes frame, ReadBytes(options.in));
  SPCCL_ASSIGN_OR_RETURN(const FrameHeader header, HeaderOf(frame, options.in));
  SPCCL_RETURN_IF_ERROR(CheckFrame(frame, options.in));
  Summarise(header, frame.size(), &context);
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
    for (int code = 0; code < kFormatCount; ++code) {
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
  AddCommand(tree, frame, "show", "A frame's header, field by field.", Show, false);
  AddCommand(tree, frame, "validate", "Check a frame; exit code 3 if it is not valid.", RunValidate,
             false);
}

}  // namespace spccl::ctl
