// This daemon's certificate, and what is wrong with it or with a peer's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/peers/address.h"
#include "daemon/peers/peer_net.h"

namespace spccl::daemon::peers {

// The files of TlsFiles, read and checked against each other.
class TlsIdentity {
 public:
  // The error names the file: it cannot be read, is no PEM, the key is not the certificate's, the
  // certificate is not the CA's, or not valid today.
  static absl::StatusOr<TlsIdentity> Load(const TlsFiles& files);

  const std::string& ca() const { return ca_; }  // PEM
  const std::string& certificate() const { return certificate_; }
  const std::string& key() const { return key_; }

  // FailedPrecondition: our certificate has expired since it was read.
  absl::Status CheckDates() const;

  // Why a connection to the daemon there does not come about: its certificate is not accepted, or
  // it does not accept ours (Unauthenticated), in OpenSSL's words. OK: TLS is not the reason. Waits
  // for at most about two seconds.
  absl::Status Probe(const Address& address) const;

 private:
  std::string path_, ca_, certificate_, key_;
  int64_t not_after_ = 0;  // UNIX seconds
};

// Whether one of the names in a certificate ("host", "*.domain", an IP address) is for `host`.
bool NamesHost(const std::vector<std::string>& names, const std::string& host);

}  // namespace spccl::daemon::peers
