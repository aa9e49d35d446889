// Owners of OpenSSL's objects, and certificates and keys from PEM. Inline, for those who link
// OpenSSL: base itself does not.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace spccl::openssl {

template <typename T, void (*Free)(T*)>
struct Freer {
  void operator()(T* object) const { Free(object); }
};
// An object of OpenSSL's with the function that frees it.
template <typename T, void (*Free)(T*)>
using Owner = std::unique_ptr<T, Freer<T, Free>>;

using Bio = Owner<BIO, BIO_free_all>;
using Certificate = Owner<X509, X509_free>;
using Key = Owner<EVP_PKEY, EVP_PKEY_free>;

// Reads the text, which must outlive it.
inline Bio MemoryBio(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The first one in the text; null if there is none.
inline Certificate ParseCertificate(const std::string& pem) {
  Certificate parsed(PEM_read_bio_X509(MemoryBio(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return parsed;
}

inline Key ParseKey(const std::string& pem) {
  // A key under a passphrase is refused instead of asked for.
  const auto none = [](char*, int, int, void*) { return -1; };
  Key parsed(PEM_read_bio_PrivateKey(MemoryBio(pem).get(), nullptr, none, nullptr));
  ERR_clear_error();
  return parsed;
}

// The newest error of this thread in OpenSSL's words, `otherwise` if there is none; forgets all.
inline std::string TakeError(const char* otherwise) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string text = reason == nullptr ? otherwise : reason;
  ERR_clear_error();
  return text;
}

}  // namespace spccl::openssl
