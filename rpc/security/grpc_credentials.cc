#include "rpc/security/grpc_credentials.h"

#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "grpc/grpc_security.h"
#include "rpc/security/method_roles.h"
#include "rpc/status_mapping.h"

namespace leeway {
namespace {

constexpr char kHeader[] = "authorization";
constexpr char kScheme[] = "Bearer ";
// Of what a stranger says, so much is repeated.
constexpr size_t kLongestQuote = 120;

absl::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

// Sits in gRPC's own filter chain, so that a service cannot forget it.
class CallChecker : public grpc::AuthMetadataProcessor {
 public:
  explicit CallChecker(RoleTokens tokens) : tokens_(std::move(tokens)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata* consumed,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const auto [first, last] = metadata.equal_range(kHeader);
    absl::string_view authorization;
    // Two headers are no token: which one counts would be a matter of taste.
    if (first != last && std::next(first) == last) authorization = ViewOf(first->second);
    absl::Status status =
        CheckCall(tokens_, path == metadata.end() ? absl::string_view() : ViewOf(path->second), authorization);
    // Services never see a token.
    if (status.ok()) consumed->insert({kHeader, std::string(authorization)});
    return ToGrpcStatus(status);
  }

 private:
  const RoleTokens tokens_;
};

class TokenSender : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenSender(const std::string& token) : value_(absl::StrCat(kScheme, token)) {}

  bool IsBlocking() const override { return false; }
  const char* GetType() const override { return "leeway_token"; }
  // The base class's text would be empty, others' print what they hold.
  grpc::string DebugString() override { return "a role's token"; }

  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->insert({kHeader, value_});
    return grpc::Status::OK;
  }

 private:
  const std::string value_;
};

}  // namespace

absl::Status CheckCall(const RoleTokens& tokens, absl::string_view path, absl::string_view authorization) {
  const std::string method = absl::CHexEscape(path.substr(0, kLongestQuote));
  if (!absl::ConsumePrefix(&authorization, kScheme)) {
    return absl::UnauthenticatedError(
        absl::StrCat(method, ": the call carries no token; this server wants one (security.token_file at the caller)"));
  }
  const std::optional<Role> role = tokens.RoleOf(authorization);
  if (!role.has_value()) {
    return absl::UnauthenticatedError(absl::StrCat(
        method, ": the call's token is none of this server's; both ends need the same security.token_file"));
  }
  const MethodAccess* const access = FindMethod(path);
  if (access == nullptr) return absl::UnimplementedError(absl::StrCat(method, ": no such method"));
  if (!access->role.has_value() || access->role == role) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(method, ": needs a token of role ", RoleName(*access->role),
                                                  ", the call's is of role ", RoleName(*role)));
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const RpcAddress& address,
                                                               const ConnectionSecurity& security) {
  if (address.is_unix()) return grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (security.tls.empty()) {
    // Plaintext, but gRPC's filter for tokens is there, and peers beyond loopback are refused once more.
    credentials = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  } else {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = security.tls.authority;
    options.pem_key_cert_pairs = {{security.tls.key, security.tls.certificate}};
    credentials = grpc::SslServerCredentials(options);
  }
  credentials->SetAuthMetadataProcessor(std::make_shared<CallChecker>(security.tokens));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const RpcAddress& address,
                                                                 const ConnectionSecurity& security) {
  if (address.is_unix()) return grpc::InsecureChannelCredentials();
  const bool has_tls = !security.tls.empty();
  std::shared_ptr<grpc::ChannelCredentials> channel;
  if (has_tls) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = security.tls.authority;
    options.pem_private_key = security.tls.key;
    options.pem_cert_chain = security.tls.certificate;
    channel = grpc::SslCredentials(options);
  } else {
    channel = grpc::experimental::LocalCredentials(LOCAL_TCP);
  }
  if (!security.tokens.has(security.role)) return channel;
  return grpc::CompositeChannelCredentials(channel,
                                           grpc::experimental::MetadataCredentialsFromPlugin(
                                               std::make_unique<TokenSender>(security.tokens.token(security.role)),
                                               has_tls ? GRPC_PRIVACY_AND_INTEGRITY : GRPC_SECURITY_NONE));
}

}  // namespace leeway
