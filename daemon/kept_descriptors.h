// Numbers of descriptors that are kept for what clients pass: what finds none, the kernel closes on
// the thread that receives, and to close it can take for as long as whoever made it likes.
#pragma once

#include <sys/resource.h>

namespace spccl::daemon {

// How many of so many are to be kept. So that one user cannot have them all they are as many as
// FdCloser lets wait of it, and a packet's more; of few, fewer, and of very few none.
rlim_t DescriptorsToKeep(rlim_t of);

// The process has a lower soft limit than it may have (RLIMIT_NOFILE). While there is one of these
// it has not. Other threads may take of them then, too, but have only a moment.
class KeptDescriptors {
 public:
  KeptDescriptors();
  ~KeptDescriptors();
  KeptDescriptors(const KeptDescriptors&) = delete;
  KeptDescriptors& operator=(const KeptDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace spccl::daemon
