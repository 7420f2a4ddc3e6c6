#include "rpc/security/certificates.h"

#include <arpa/inet.h>

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/rand.h"
#include "openssl/x509v3.h"
#include "rpc/address.h"

namespace leeway {
namespace {

template <auto free_function>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    free_function(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Deleter<X509_free>>;
using StorePtr = std::unique_ptr<X509_STORE, Deleter<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX_free>>;

struct StackDeleter {
  void operator()(STACK_OF(X509) * stack) const { sk_X509_pop_free(stack, X509_free); }
};
using StackPtr = std::unique_ptr<STACK_OF(X509), StackDeleter>;

constexpr long kSecondsOfHour = 3600;
constexpr long kSecondsOfDay = 24 * kSecondsOfHour;

BioPtr ReaderOf(const std::string& text) { return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// OpenSSL would ask the terminal for the password of an encrypted key.
int NoPassword(char*, int, int, void*) { return -1; }

std::vector<CertificatePtr> ReadCertificates(const std::string& text) {
  std::vector<CertificatePtr> found;
  const BioPtr reader = ReaderOf(text);
  while (X509* certificate = PEM_read_bio_X509(reader.get(), nullptr, NoPassword, nullptr))
    found.emplace_back(certificate);
  ERR_clear_error();
  return found;
}

absl::Status CheckValidity(const X509* certificate, const char* field) {
  // Negative: before now.
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    return absl::InvalidArgumentError(absl::StrCat(field, ": is not valid yet; is this machine's clock right?"));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    return absl::InvalidArgumentError(absl::StrCat(field, ": has expired; make a new one"));
  return absl::OkStatus();
}

// ---- making ---------------------------------------------------------------------------------------------------------

template <typename Write>
std::string ToPem(const Write& write) {
  const BioPtr writer(BIO_new(BIO_s_mem()));
  write(writer.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(writer.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string CertificatePem(X509* certificate) {
  return ToPem([&](BIO* writer) { PEM_write_bio_X509(writer, certificate); });
}

std::string KeyPem(EVP_PKEY* key) {
  return ToPem([&](BIO* writer) { PEM_write_bio_PrivateKey(writer, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

// What is written into a certificate besides names, times and its key.
struct Extension {
  int id;
  std::string value;
};

// `issuer` null: signed by itself.
CertificatePtr Sign(EVP_PKEY* key, const std::string& name, int days, const std::vector<Extension>& extensions,
                    X509* issuer, EVP_PKEY* issuer_key) {
  CertificatePtr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  unsigned char serial[16];
  LEEWAY_CHECK(RAND_bytes(serial, sizeof(serial)) == 1) << "the system has no random bytes";
  serial[0] &= 0x7f;  // positive
  BIGNUM* const number = BN_bin2bn(serial, sizeof(serial), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get()));
  BN_free(number);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kSecondsOfHour);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), days * kSecondsOfDay);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* const signer = issuer == nullptr ? certificate.get() : issuer;
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer));
  X509V3_CTX context;
  X509V3_set_ctx(&context, signer, certificate.get(), nullptr, nullptr, 0);
  for (const Extension& extension : extensions) {
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, &context, extension.id, extension.value.c_str());
    LEEWAY_CHECK(made != nullptr) << "extension " << extension.value;
    X509_add_ext(certificate.get(), made, -1);
    X509_EXTENSION_free(made);
  }
  LEEWAY_CHECK(X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0) << "signing failed";
  return certificate;
}

// Tells one authority from another where both are trusted.
std::string RandomName() {
  unsigned char bytes[4];
  LEEWAY_CHECK(RAND_bytes(bytes, sizeof(bytes)) == 1) << "the system has no random bytes";
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes), sizeof(bytes)});
}

// "DNS:name" or "IP:address".
absl::StatusOr<std::string> AlternativeName(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  if (inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1)
    return absl::StrCat("IP:", host);
  if (IsHostName(host)) return absl::StrCat("DNS:", host);
  return absl::InvalidArgumentError(absl::StrCat("\"", host, "\" is neither a host's name nor an address"));
}

}  // namespace

absl::Status CheckTls(const TlsTexts& tls) {
  const std::vector<CertificatePtr> chain = ReadCertificates(tls.certificate);
  const std::vector<CertificatePtr> authorities = ReadCertificates(tls.authority);
  if (chain.empty()) return absl::InvalidArgumentError("certificate: holds no PEM certificate");
  if (authorities.empty()) return absl::InvalidArgumentError("authority: holds no PEM certificate");
  const KeyPtr key(PEM_read_bio_PrivateKey(ReaderOf(tls.key).get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) return absl::InvalidArgumentError("key: holds no PEM private key without a password");
  LEEWAY_RETURN_IF_ERROR(CheckValidity(chain[0].get(), "certificate"));
  const bool belongs = X509_check_private_key(chain[0].get(), key.get()) == 1;
  ERR_clear_error();
  if (!belongs) return absl::InvalidArgumentError("key: is not the key of the certificate");

  const StorePtr store(X509_STORE_new());
  for (const CertificatePtr& authority : authorities) X509_STORE_add_cert(store.get(), authority.get());
  const StackPtr intermediates(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) {
    X509_up_ref(chain[i].get());
    sk_X509_push(intermediates.get(), chain[i].get());
  }
  const StoreContextPtr context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), intermediates.get());
  const bool is_signed = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (is_signed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("certificate: is not signed by the authority (",
                                                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())),
                                                 ")"));
}

absl::StatusOr<MadeCertificates> MakeCertificates(const std::vector<std::string>& hosts, int days) {
  if (hosts.empty()) return absl::InvalidArgumentError("a server's certificate needs at least one host");
  if (days < 1) return absl::InvalidArgumentError(absl::StrCat("days: expected at least 1, got ", days));
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    LEEWAY_ASSIGN_OR_RETURN(std::string name, AlternativeName(host));
    names.push_back(std::move(name));
  }
  const KeyPtr authority_key(EVP_EC_gen("P-256")), server_key(EVP_EC_gen("P-256")), client_key(EVP_EC_gen("P-256"));
  LEEWAY_CHECK(authority_key != nullptr && server_key != nullptr && client_key != nullptr) << "no keys of P-256";
  const CertificatePtr authority = Sign(authority_key.get(), absl::StrCat("leeway authority ", RandomName()), days,
                                        {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                         {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                         {NID_subject_key_identifier, "hash"}},
                                        nullptr, authority_key.get());
  const CertificatePtr server = Sign(server_key.get(), "leeway server", days,
                                     {{NID_basic_constraints, "critical,CA:FALSE"},
                                      {NID_key_usage, "critical,digitalSignature"},
                                      {NID_ext_key_usage, "serverAuth,clientAuth"},
                                      {NID_authority_key_identifier, "keyid"},
                                      {NID_subject_alt_name, absl::StrJoin(names, ",")}},
                                     authority.get(), authority_key.get());
  const CertificatePtr client = Sign(client_key.get(), "leeway client", days,
                                     {{NID_basic_constraints, "critical,CA:FALSE"},
                                      {NID_key_usage, "critical,digitalSignature"},
                                      {NID_ext_key_usage, "clientAuth"},
                                      {NID_authority_key_identifier, "keyid"}},
                                     authority.get(), authority_key.get());
  return MadeCertificates{CertificatePem(authority.get()), KeyPem(authority_key.get()),  CertificatePem(server.get()),
                          KeyPem(server_key.get()),        CertificatePem(client.get()), KeyPem(client_key.get())};
}

}  // namespace leeway
