#include "daemon/peers/tls.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/openssl.h"
#include "base/status.h"
#include "daemon/file_io.h"

namespace spccl::daemon::peers {
namespace {

constexpr int64_t kProbeLimitNs = 2'000'000'000;

using openssl::Bio;
using openssl::Certificate;
using openssl::Key;
using Store = openssl::Owner<X509_STORE, X509_STORE_free>;
using StoreContext = openssl::Owner<X509_STORE_CTX, X509_STORE_CTX_free>;
using SslContext = openssl::Owner<SSL_CTX, SSL_CTX_free>;

absl::Status Wrong(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  std::tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? ::timegm(&parts) : 0;
}

std::string Date(int64_t seconds) {
  const time_t time = seconds;
  std::tm parts;
  char text[32];
  ::gmtime_r(&time, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &parts);
  return text;
}

absl::Status Expired(const std::string& path, int64_t not_after) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": this daemon's certificate has expired on ", Date(not_after)));
}

// Puts every certificate of a PEM text into the store; false: there is none.
bool AddAll(const std::string& pem, X509_STORE* store) {
  const Bio bio = openssl::MemoryBio(pem);
  int count = 0;
  for (; Certificate one{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}; ++count) {
    X509_STORE_add_cert(store, one.get());
  }
  ERR_clear_error();
  return count > 0;
}

absl::Status CheckIssuer(const TlsFiles& files, const std::string& ca, X509* certificate) {
  const Store store(X509_STORE_new());
  if (!AddAll(ca, store.get())) return Wrong(files.ca, "found no certificate in PEM form");
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  ERR_clear_error();
  return Wrong(
      files.certificate,
      absl::StrCat("not valid under ", files.ca, ": ",
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
}

// Why a certificate is not accepted.
std::string WhyNot(long verified) {
  const char* text = X509_verify_cert_error_string(verified);
  switch (verified) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return absl::StrCat("it is of another authority than peers.tls_ca here (", text, ")");
    default:
      return text;
  }
}

// Whether `bio` may go on within the limit.
bool Await(BIO* bio, int64_t until_ns) {
  int fd = -1;
  BIO_get_fd(bio, &fd);
  if (fd < 0) return BIO_should_retry(bio);
  const short events = BIO_should_write(bio) || BIO_should_io_special(bio) ? POLLOUT : POLLIN;
  pollfd entry = {.fd = fd, .events = events, .revents = 0};
  const int64_t left_ns = until_ns - MonotonicNanos();
  return left_ns > 0 && ::poll(&entry, 1, static_cast<int>(left_ns / 1'000'000) + 1) > 0;
}

// Who reads the key may pass for this node.
void WarnIfOthersMayRead(const std::string& key) {
  struct stat info;
  if (::stat(key.c_str(), &info) != 0 || (info.st_mode & (S_IRWXG | S_IRWXO)) == 0) return;
  Log(LogLevel::kWarning, "peers", "others may read or write the certificate's key",
      {{"key", key},
       {"mode", absl::StrFormat("%04o", info.st_mode & 07777)},
       {"advice", absl::StrCat("chmod 0600 ", key)}});
}

}  // namespace

absl::StatusOr<TlsIdentity> TlsIdentity::Load(const TlsFiles& files) {
  TlsIdentity identity;
  identity.path_ = files.certificate;
  SPCCL_ASSIGN_OR_RETURN(identity.ca_, ReadFile(files.ca));
  SPCCL_ASSIGN_OR_RETURN(identity.certificate_, ReadFile(files.certificate));
  SPCCL_ASSIGN_OR_RETURN(identity.key_, ReadFile(files.key));
  WarnIfOthersMayRead(files.key);
  const Certificate certificate = openssl::ParseCertificate(identity.certificate_);
  if (certificate == nullptr) return Wrong(files.certificate, "found no certificate in PEM form");
  const Key key = openssl::ParseKey(identity.key_);
  if (key == nullptr) return Wrong(files.key, "found no private key in PEM form");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return Wrong(files.key, absl::StrCat("not the key of ", files.certificate));
  }
  identity.not_after_ = UnixSeconds(X509_get0_notAfter(certificate.get()));
  SPCCL_RETURN_IF_ERROR(identity.CheckDates());
  SPCCL_RETURN_IF_ERROR(CheckIssuer(files, identity.ca_, certificate.get()));
  return identity;
}

absl::Status TlsIdentity::CheckDates() const {
  if (::time(nullptr) >= not_after_) return Expired(path_, not_after_);
  return absl::OkStatus();
}

absl::Status TlsIdentity::Probe(const Address& address) const {
  const SslContext context(SSL_CTX_new(TLS_client_method()));
  AddAll(ca_, SSL_CTX_get_cert_store(context.get()));
  SSL_CTX_use_certificate(context.get(), openssl::ParseCertificate(certificate_).get());
  SSL_CTX_use_PrivateKey(context.get(), openssl::ParseKey(key_).get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  const unsigned char protocols[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), protocols, sizeof protocols);

  const Bio bio(BIO_new_ssl_connect(context.get()));
  SSL* ssl = nullptr;
  BIO_get_ssl(bio.get(), &ssl);
  BIO_set_nbio(bio.get(), 1);
  BIO_set_conn_hostname(bio.get(), address.text().c_str());
  X509_VERIFY_PARAM* parameters = SSL_get0_param(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(parameters, address.host.c_str()) != 1) {
    X509_VERIFY_PARAM_set1_host(parameters, address.host.c_str(), 0);
    SSL_set_tlsext_host_name(ssl, address.host.c_str());
  }
  ERR_clear_error();
  const int64_t until_ns = MonotonicNanos() + kProbeLimitNs;
  while (BIO_do_connect(bio.get()) <= 0 || BIO_do_handshake(bio.get()) <= 0) {
    if (BIO_should_retry(bio.get()) && Await(bio.get(), until_ns)) continue;
    const long verified = SSL_get_verify_result(ssl);
    if (verified != X509_V_OK) {
      ERR_clear_error();
      return absl::UnauthenticatedError(
          absl::StrCat("its certificate is not accepted: ", WhyNot(verified)));
    }
    // Not reached, or not by TLS.
    if (ERR_GET_LIB(ERR_peek_last_error()) != ERR_LIB_SSL) return absl::OkStatus();
    return absl::UnauthenticatedError(
        absl::StrCat("no TLS there: ", openssl::TakeError("the connection ended")));
  }
  // With TLS 1.3 the acceptor looks at our certificate after this; a refusal is an alert that we
  // read. HTTP/2's acceptor speaks first, so a byte means that it took us.
  char byte;
  for (;;) {
    if (BIO_read(bio.get(), &byte, 1) > 0) return absl::OkStatus();
    if (BIO_should_retry(bio.get()) && Await(bio.get(), until_ns)) continue;
    if (MonotonicNanos() >= until_ns) return absl::OkStatus();
    return absl::UnauthenticatedError(absl::StrCat("it does not accept this daemon's certificate: ",
                                                   openssl::TakeError("the connection ended")));
  }
}

bool NamesHost(const std::vector<std::string>& names, const std::string& host) {
  in6_addr address, other;
  const auto parse = [](const std::string& text, in6_addr* out) {
    in_addr v4;
    if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) {
      return ::inet_pton(AF_INET6, absl::StrCat("::ffff:", text).c_str(), out) == 1;
    }
    return ::inet_pton(AF_INET6, text.c_str(), out) == 1;
  };
  const bool numeric = parse(host, &address);
  for (const std::string& name : names) {
    if (numeric && parse(name, &other) && IN6_ARE_ADDR_EQUAL(&address, &other)) return true;
    if (numeric) continue;
    if (absl::EqualsIgnoreCase(name, host)) return true;
    // A star stands for one label.
    const size_t dot = host.find('.');
    if (absl::StartsWith(name, "*.") && dot != std::string::npos && dot > 0 &&
        absl::EqualsIgnoreCase(name.substr(1), host.substr(dot))) {
      return true;
    }
  }
  return false;
}

}  // namespace spccl::daemon::peers
