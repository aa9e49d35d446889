// A private certificate authority for the daemons of a cluster, and the certificates of its nodes.
// Keys are EC P-256. No daemon is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace spccl::ctl {

// No file of certificates or of a key is larger.
inline constexpr size_t kMostPemBytes = size_t{1} << 20;

struct CertificateAndKey {
  std::string certificate, key;  // PEM
};

// UNIX seconds.
struct Validity {
  int64_t from = 0, to = 0;
};

// What a certificate says of itself.
struct CertificateFacts {
  std::string subject;  // its common name
  Validity validity;
};
// Of every certificate in the PEM text, at least one. InvalidArgument: there is none.
absl::StatusOr<std::vector<CertificateFacts>> InspectCertificates(const std::string& pem);
// Whether the first certificate is of this key.
bool IsOfKey(const std::string& certificate_pem, const std::string& key_pem);
// Whether one of the authorities has signed the first certificate.
bool IsSignedBy(const std::string& certificate_pem, const std::string& authorities_pem);

class Authority {
 public:
  static absl::StatusOr<Authority> Create(const std::string& name, Validity validity);
  // From PEM. InvalidArgument: they are no CA's certificate and its key.
  static absl::StatusOr<Authority> Parse(const CertificateAndKey& pem);

  const CertificateAndKey& pem() const { return pem_; }

  // For a node that others reach by these names and IP addresses, the first of which is its own;
  // good for both sides of a connection. InvalidArgument: a name is none.
  absl::StatusOr<CertificateAndKey> Issue(const std::vector<std::string>& names,
                                          Validity validity) const;

 private:
  struct Keys;  // OpenSSL's objects

  CertificateAndKey pem_;
  std::shared_ptr<const Keys> keys_;
};

}  // namespace spccl::ctl
