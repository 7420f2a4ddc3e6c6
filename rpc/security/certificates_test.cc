#include "rpc/security/certificates.h"

#include <arpa/inet.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "openssl/pem.h"
#include "openssl/x509v3.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const MadeCertificates& Made() {
  static const auto* const made = new MadeCertificates(MakeCertificates({"localhost", "127.0.0.1", "::1"}, 2).value());
  return *made;
}

X509* Parse(const std::string& text) {
  BIO* const reader = BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
  X509* const certificate = PEM_read_bio_X509(reader, nullptr, nullptr, nullptr);
  BIO_free(reader);
  return certificate;
}

TEST(CertificatesTest, WhatIsMadePassesTheCheck) {
  EXPECT_TRUE(CheckTls({Made().server, Made().server_key, Made().authority}).ok());
  const absl::Status client = CheckTls({Made().client, Made().client_key, Made().authority});
  EXPECT_TRUE(client.ok()) << client;
  // More than one authority may be trusted, while one replaces another.
  const MadeCertificates other = MakeCertificates({"x"}, 1).value();
  EXPECT_TRUE(CheckTls({Made().server, Made().server_key, other.authority + Made().authority}).ok());
}

TEST(CertificatesTest, TheServersProvesItsHostsAndNoOthers) {
  X509* const server = Parse(Made().server);
  EXPECT_EQ(X509_check_host(server, "localhost", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(server, "example.org", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_check_ip_asc(server, "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(server, "::1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(server, "127.0.0.2", 0), 0);
  EXPECT_EQ(X509_check_purpose(server, X509_PURPOSE_SSL_SERVER, 0), 1);
  EXPECT_EQ(X509_check_purpose(server, X509_PURPOSE_SSL_CLIENT, 0), 1);
  EXPECT_EQ(X509_check_ca(server), 0);
  X509_free(server);
  // Who only connects cannot be mistaken for a server.
  X509* const client = Parse(Made().client);
  EXPECT_EQ(X509_check_purpose(client, X509_PURPOSE_SSL_SERVER, 0), 0);
  EXPECT_EQ(X509_check_purpose(client, X509_PURPOSE_SSL_CLIENT, 0), 1);
  X509_free(client);
}

TEST(CertificatesTest, ItIsValidFromBeforeNowForTheDaysAskedFor) {
  X509* const server = Parse(Made().server);
  int days = 0, seconds = 0;
  ASSERT_EQ(ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(server)), 1);
  // Two days, less the moments since it was made.
  EXPECT_LE(days * 86400 + seconds, 2 * 86400);
  EXPECT_GT(days * 86400 + seconds, 2 * 86400 - 600);
  ASSERT_EQ(ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notBefore(server)), 1);
  EXPECT_LE(seconds, -3000);
  X509_free(server);
}

TEST(CertificatesTest, WhatCannotBeMadeIsSaid) {
  EXPECT_THAT(std::string(MakeCertificates({}, 1).status().message()), HasSubstr("at least one host"));
  EXPECT_THAT(std::string(MakeCertificates({"x"}, 0).status().message()), HasSubstr("days"));
  for (const char* host : {"", "a b", "x,DNS:evil", "127.0.0.1/8", "*.example.org"})
    EXPECT_THAT(std::string(MakeCertificates({host}, 1).status().message()), HasSubstr("neither a host's name"))
        << host;
}

TEST(CertificatesTest, WhatWouldFailInTheHandshakeFailsInTheCheck) {
  const MadeCertificates other = MakeCertificates({"x"}, 1).value();
  const std::string text = "no PEM";
  const std::pair<TlsTexts, const char*> cases[] = {
      {{text, Made().server_key, Made().authority}, "certificate: holds no PEM certificate"},
      {{Made().server, text, Made().authority}, "key: holds no PEM private key"},
      {{Made().server, Made().server_key, text}, "authority: holds no PEM certificate"},
      {{Made().server, Made().client_key, Made().authority}, "key: is not the key of the certificate"},
      {{Made().server, Made().server_key, other.authority}, "certificate: is not signed by the authority"},
      {{Made().server_key, Made().server, Made().authority}, "certificate: holds no PEM certificate"},
  };
  for (const auto& [tls, complaint] : cases) {
    const absl::Status refused = CheckTls(tls);
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()), StartsWith(complaint));
  }
}

}  // namespace
}  // namespace leeway
