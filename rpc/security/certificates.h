#ifndef LEEWAY_RPC_SECURITY_CERTIFICATES_H_
#define LEEWAY_RPC_SECURITY_CERTIFICATES_H_

// X.509 certificates as PEM texts: checking and making them. Plain functions; thread-safe.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace leeway {

// What one end of a TLS connection has: all three, or none (no TLS).
struct TlsTexts {
  // This process's own certificate, with intermediate ones behind it if there are any.
  std::string certificate;
  // The private key that belongs to it.
  std::string key;
  // The certificates (usually one) that have signed those of the others.
  std::string authority;

  bool empty() const { return certificate.empty() && key.empty() && authority.empty(); }
};

// Everything that would only show as a failed handshake later: unreadable PEM, a key that is not the certificate's, a
// certificate that is not valid now or that `authority` has not signed. INVALID_ARGUMENT begins with the field:
// "certificate", "key", "authority".
absl::Status CheckTls(const TlsTexts& tls);

// A new authority with two certificates that it has signed. Keys are of the curve P-256.
struct MadeCertificates {
  std::string authority;
  std::string authority_key;
  // For machines that others connect to: proves `hosts`, and serves for connecting too.
  std::string server;
  std::string server_key;
  // For machines that only connect.
  std::string client;
  std::string client_key;
};

// `hosts`: names and addresses by which the server is reached. Valid from an hour ago (clocks differ) for `days`.
// INVALID_ARGUMENT: a host that is neither a name nor an address, none, or days < 1.
absl::StatusOr<MadeCertificates> MakeCertificates(const std::vector<std::string>& hosts, int days);

}  // namespace leeway

#endif  // LEEWAY_RPC_SECURITY_CERTIFICATES_H_
