// Messages of a session's UNIX socket (SOCK_SEQPACKET: one message a packet), with descriptors
// beside them (SCM_RIGHTS). Fixed-size structs and no protobuf: libspccl is loaded into processes
// that have a protobuf of their own.
//
// Client to daemon: a Request of a type below. Daemon to client: a Reply to each request, in any
// order, matched by request_id; and Notices, with request_id 0.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace spccl::shm {

inline constexpr uint32_t kSessionMagic = 0x4C435053;  // "SPCL"
// Major: must be equal. Minor: the smaller of both is spoken.
inline constexpr uint16_t kSessionMajor = 1;
// 1: GPU memory (kRegisterCuda, kOrderMemory, order_slot of a submission). 2: kHandOverMemory.
inline constexpr uint16_t kSessionMinor = 2;

inline constexpr size_t kUniqueIdBytes = 128;
inline constexpr uint32_t kMostRanks = 256;        // of a communicator
inline constexpr size_t kGpuIdBytes = 16;          // a GPU's UUID, as its driver has it
inline constexpr size_t kCudaIpcHandleBytes = 64;  // a legacy handle of the driver's
// Memory that was mapped piece by piece comes as so many descriptors; sizes count in units.
inline constexpr uint32_t kMaxCudaPieces = 48;
inline constexpr uint64_t kCudaPieceUnitBytes = 4096;

enum class RequestType : uint32_t {
  kHello = 1,     // reply carries the segment and the doorbell
  kUniqueId = 2,  // reply: payload holds a new unique id
  kCommInit = 3,  // reply comes when all ranks have joined, or the deadline has passed
  kCommDestroy = 4,
  kCommAbort = 5,
  kRegisterMemfd = 6,    // one descriptor beside it: a memfd sealed against shrinking
  kRegisterAddress = 7,  // ordinary memory, to be reached by cross-memory attach
  kDeregister = 8,
  // From minor version 2 on: descriptors of the process's /proc/self/mem, to read and write, and of
  // its /proc/self/maps beside it, for cross-memory attach. (Asked without, before that.)
  kHandOverMemory = 9,
  // Reply: the memory of a communicator's relays (relay.h), a memfd; none if it is over several
  // nodes.
  kCommRelays = 10,
  kCommCodec = 11,
  // From minor version 1 on. A GPU's memory, by a legacy IPC handle or by descriptors beside it.
  kRegisterCuda = 12,
  // Reply: the session's order memory (order.h), a memfd beside it; the same each time.
  kOrderMemory = 13,
};

// How a client hands over memory of a GPU.
enum class CudaHandleKind : uint32_t {
  kIpc = 1,          // a legacy handle: one piece
  kDescriptors = 2,  // POSIX descriptors: one a piece, to be mapped in a row
};

struct Request {
  uint32_t magic;
  RequestType type;
  uint64_t request_id;  // chosen by the client, not 0
  union {
    struct {
      uint16_t major, minor;
      uint32_t reserved;
      char name[32];  // of the program, for people; NUL-terminated
    } hello;
    struct {
      uint8_t unique_id[kUniqueIdBytes];
      uint32_t ranks;
      uint32_t rank;
      uint32_t deadline_ms;  // 0: the daemon's default
      // Wishes of the caller's environment; empty: the daemon's settings decide. NUL-terminated.
      char algorithm[32];  // "auto", or one by its name in policy/settings.h
      char codec[32];      // "auto", "dense", "pici", "pici-column", "coo", "gap"
    } comm_init;
    struct {
      uint32_t comm_id;
    } comm;  // kCommDestroy, kCommAbort, kCommRelays
    struct {
      uint32_t comm_id;
      // NUL-terminated; empty: stays as it is.
      char codec[32];  // of policy/settings.h
      char lossy[96];  // of policy/lossy.h: "off", "errorbound:absolute=0.001", "qsgd4:seed=7"
    } comm_codec;
    struct {
      uint64_t address;  // in the client; for people and for kRegisterAddress
      uint64_t size_bytes;
      // kRegisterMemfd, minor version 1: 1 if copies of memory of this GPU pass through it.
      uint32_t stages_gpu;
      uint8_t gpu[kGpuIdBytes];
    } buffer;  // kRegisterMemfd, kRegisterAddress
    struct {
      uint8_t gpu[kGpuIdBytes];
      uint64_t address;           // of the first piece, in the client; for people
      uint64_t size_bytes;        // of all pieces
      uint64_t driver_buffer_id;  // of the first piece; of one alone, equal means the same memory
      CudaHandleKind kind;
      uint32_t pieces;
      union {
        uint8_t ipc_handle[kCudaIpcHandleBytes];
        uint32_t piece_units[kMaxCudaPieces];
      };
    } register_cuda;
    struct {
      uint64_t buffer_id;
    } deregister;
    uint8_t bytes[240];
  };
};
static_assert(sizeof(Request) == 256);

enum class ReplyType : uint32_t {
  kReply = 1,
  kCommFailed = 2,  // notice: value is the comm_id, result and message say why
  // Notice: the session is about to end. With result 0 the daemon is stopping; else result and
  // message say why.
  kGoodbye = 3,
};

struct Reply {
  uint32_t magic;
  ReplyType type;
  uint64_t request_id;
  uint32_t result;  // spcclResult_t
  uint32_t minor;   // kHello: the daemon's minor version; else 0
  uint64_t value;   // kCommInit: comm_id; kRegister*: buffer_id; kHello: the daemon's boot id
  uint8_t payload[kUniqueIdBytes];  // kUniqueId
  char message[352];                // NUL-terminated; empty on success
};
static_assert(sizeof(Reply) == 512);

// Descriptors beside the kHello reply, in this order.
inline constexpr int kHelloSegmentFd = 0;   // memfd holding a Segment
inline constexpr int kHelloDoorbellFd = 1;  // eventfd, which the client writes
inline constexpr int kHelloFdCount = 2;

// The text of a fixed character array, up to its NUL or its end.
template <size_t N>
std::string_view TextOf(const char (&array)[N]) {
  return std::string_view(array, ::strnlen(array, N));
}

// Copies text into a fixed character array, cut if need be, always NUL-terminated.
template <size_t N>
void SetText(char (&array)[N], std::string_view text) {
  const size_t length = text.copy(array, N - 1);
  std::memset(array + length, 0, N - length);
}

}  // namespace spccl::shm
