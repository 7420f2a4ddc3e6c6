#include "rpc/security/method_roles.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

// Of every service in proto/, read from the .proto files themselves: also of one that nothing links yet.
std::set<std::string> MethodsOfTheContract() {
  std::set<std::string> methods;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LEEWAY_SOURCE_DIR "/proto")) {
    if (entry.path().extension() != ".proto") continue;
    std::ifstream file(entry.path());
    std::string package, service;
    for (std::string line; std::getline(file, line);) {
      std::string keyword, name;
      std::istringstream(line) >> keyword >> name;
      name = name.substr(0, name.find_first_of("(;{"));
      if (keyword == "package") package = name;
      if (keyword == "service") service = name;
      if (keyword == "rpc") methods.insert(absl::StrCat("/", package, ".", service, "/", name));
    }
  }
  return methods;
}

TEST(MethodRolesTest, EveryMethodOfEveryServiceIsInTheTableAndNoOther) {
  const std::set<std::string> contract = MethodsOfTheContract();
  EXPECT_GE(contract.size(), 16u);
  for (const std::string& path : contract) EXPECT_NE(FindMethod(path), nullptr) << path << " has no role";
  for (const MethodAccess& method : MethodTable()) {
    if (absl::StartsWith(method.path, "/grpc.health.v1.Health/")) continue;
    EXPECT_EQ(contract.count(std::string(method.path)), 1u) << method.path << " does not exist";
  }
}

TEST(MethodRolesTest, RolesAreThoseOfTheSides) {
  EXPECT_EQ(FindMethod("/leeway.v1.Queue/Push")->role, Role::kPush);
  EXPECT_EQ(FindMethod("/leeway.v1.Queue/Commit")->role, Role::kTrain);
  EXPECT_EQ(FindMethod("/leeway.v1.Queue/Drain")->role, Role::kAdmin);
  EXPECT_EQ(FindMethod("/leeway.v1.Queue/Status")->role, std::nullopt);
  EXPECT_EQ(FindMethod("/leeway.v1.Weights/Fetch")->role, Role::kPush);
  EXPECT_EQ(FindMethod("/grpc.health.v1.Health/Check")->role, std::nullopt);
}

TEST(MethodRolesTest, OtherPathsAreNone) {
  for (const char* path : {"", "/", "/leeway.v1.Queue/push", "leeway.v1.Queue/Push", "/leeway.v1.Queue/Push ",
                           "/leeway.v1.Queue/", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"})
    EXPECT_EQ(FindMethod(path), nullptr) << path;
}

}  // namespace
}  // namespace leeway
