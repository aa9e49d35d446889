#include "ctl/certificates.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cctype>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "base/openssl.h"
#include "base/status.h"

namespace spccl::ctl {
namespace {

constexpr int kSerialBits = 127;  // positive, and in no certificate twice

using openssl::Bio;
using openssl::Certificate;
using openssl::Key;
using Number = openssl::Owner<BIGNUM, BN_free>;
using Extension = openssl::Owner<X509_EXTENSION, X509_EXTENSION_free>;

absl::Status Failed(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", openssl::TakeError("failed")));
}

std::string Content(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

absl::StatusOr<CertificateAndKey> ToPem(X509* certificate, EVP_PKEY* key) {
  const Bio first(BIO_new(BIO_s_mem())), second(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(first.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(second.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("write PEM");
  }
  return CertificateAndKey{.certificate = Content(first.get()), .key = Content(second.get())};
}

bool IsIpAddress(const std::string& name) {
  in6_addr address;
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

bool IsHostName(const std::string& name) {
  return !name.empty() && name.size() <= 253 && name.front() != '-' && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// A certificate of `key` but for its extensions and its signature.
absl::StatusOr<Certificate> Draft(EVP_PKEY* key, const std::string& name, Validity validity) {
  Certificate made(X509_new());
  const Number serial(BN_new());
  X509_NAME* subject = X509_get_subject_name(made.get());
  const std::string common = name.substr(0, 64);  // as much as the field holds
  const bool fine =
      X509_set_version(made.get(), X509_VERSION_3) == 1 &&
      BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(made.get())) != nullptr &&
      ASN1_TIME_set(X509_getm_notBefore(made.get()), validity.from) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(made.get()), validity.to) != nullptr &&
      X509_set_pubkey(made.get(), key) == 1 &&
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(common.data()),
                                 static_cast<int>(common.size()), -1, 0) == 1;
  if (!fine) return Failed("make a certificate");
  return made;
}

absl::StatusOr<Key> NewKey() {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a key");
  return key;
}

// Every certificate in the text.
std::vector<Certificate> ParseCertificates(const std::string& pem) {
  std::vector<Certificate> all;
  const Bio bio = openssl::MemoryBio(pem);
  for (;;) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    all.push_back(std::move(next));
  }
  ERR_clear_error();
  return all;
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(::timegm(&parts)) : 0;
}

}  // namespace

absl::StatusOr<std::vector<CertificateFacts>> InspectCertificates(const std::string& pem) {
  std::vector<CertificateFacts> all;
  for (const Certificate& certificate : ParseCertificates(pem)) {
    char name[256] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name,
                              sizeof name);
    all.push_back({.subject = name,
                   .validity = {.from = UnixSeconds(X509_get0_notBefore(certificate.get())),
                                .to = UnixSeconds(X509_get0_notAfter(certificate.get()))}});
  }
  if (all.empty()) return absl::InvalidArgumentError("no certificate in PEM form");
  return all;
}

bool IsOfKey(const std::string& certificate_pem, const std::string& key_pem) {
  const Certificate certificate = openssl::ParseCertificate(certificate_pem);
  const Key key = openssl::ParseKey(key_pem);
  const bool fits = certificate != nullptr && key != nullptr &&
                    X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return fits;
}

bool IsSignedBy(const std::string& certificate_pem, const std::string& authorities_pem) {
  const Certificate certificate = openssl::ParseCertificate(certificate_pem);
  if (certificate == nullptr) return false;
  const std::vector<Certificate> all = ParseCertificates(authorities_pem);
  const bool is = std::any_of(all.begin(), all.end(), [&](const Certificate& authority) {
    return X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) == 1;
  });
  ERR_clear_error();
  return is;
}

struct Authority::Keys {
  Certificate certificate;
  Key key;
};

absl::StatusOr<Authority> Authority::Create(const std::string& name, Validity validity) {
  SPCCL_ASSIGN_OR_RETURN(Key key, NewKey());
  SPCCL_ASSIGN_OR_RETURN(const Certificate made, Draft(key.get(), name, validity));
  X509* const certificate = made.get();
  const bool fine =
      X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) == 1 &&
      AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      AddExtension(certificate, certificate, NID_subject_key_identifier, "hash") &&
      X509_sign(certificate, key.get(), EVP_sha256()) > 0;
  if (!fine) return Failed("make the CA's certificate");
  SPCCL_ASSIGN_OR_RETURN(const CertificateAndKey pem, ToPem(certificate, key.get()));
  return Parse(pem);
}

absl::StatusOr<Authority> Authority::Parse(const CertificateAndKey& pem) {
  auto keys = std::make_shared<Keys>();
  keys->certificate = openssl::ParseCertificate(pem.certificate);
  keys->key = openssl::ParseKey(pem.key);
  const bool fine = keys->certificate != nullptr && keys->key != nullptr &&
                    X509_check_ca(keys->certificate.get()) == 1 &&
                    X509_check_private_key(keys->certificate.get(), keys->key.get()) == 1;
  ERR_clear_error();
  if (!fine) return absl::InvalidArgumentError("not a CA's certificate and its key in PEM form");
  Authority authority;
  authority.pem_ = pem;
  authority.keys_ = std::move(keys);
  return authority;
}

absl::StatusOr<CertificateAndKey> Authority::Issue(const std::vector<std::string>& names,
                                                   Validity validity) const {
  std::string alternatives;
  for (const std::string& name : names) {
    const bool address = IsIpAddress(name);
    if (!address && !IsHostName(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("found \"", name, "\", expected a host name or an IP address"));
    }
    absl::StrAppend(&alternatives, alternatives.empty() ? "" : ",", address ? "IP:" : "DNS:", name);
  }
  if (names.empty()) return absl::InvalidArgumentError("a node needs a name");
  SPCCL_ASSIGN_OR_RETURN(const Key key, NewKey());
  SPCCL_ASSIGN_OR_RETURN(const Certificate made, Draft(key.get(), names.front(), validity));
  X509* const certificate = made.get();
  X509* const issuer = keys_->certificate.get();
  const bool fine = X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
                    AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
                    AddExtension(certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
                    AddExtension(certificate, issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
                    AddExtension(certificate, issuer, NID_subject_key_identifier, "hash") &&
                    AddExtension(certificate, issuer, NID_authority_key_identifier, "keyid") &&
                    AddExtension(certificate, issuer, NID_subject_alt_name, alternatives) &&
                    X509_sign(certificate, keys_->key.get(), EVP_sha256()) > 0;
  if (!fine) return Failed("make a node's certificate");
  return ToPem(certificate, key.get());
}

}  // namespace spccl::ctl
