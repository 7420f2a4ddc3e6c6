#include "formats/strict_json.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Refusal(absl::string_view text, int64_t first_line = 1) {
  const auto parsed = ParseStrictJson(text, "a.json", first_line);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(StrictJsonTest, ParsesWhatIsValid) {
  const auto parsed = ParseStrictJson(R"( {"a": [1, {"a": null}], "b": {"a": "é"}} )", "a.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["a"][0], 1);
  EXPECT_EQ((*parsed)["b"]["a"], "é");
  EXPECT_EQ(*ParseStrictJson("7", "a.json"), 7);
}

TEST(StrictJsonTest, SaysWhereTheTextBreaks) {
  EXPECT_THAT(Refusal("{\n  \"a\": 1,\n  \"b\": x\n}"), StartsWith("a.json:3:8: syntax error"));
  EXPECT_THAT(Refusal("{\"a\" 1}", 41), StartsWith("a.json:41:6: "));
  EXPECT_THAT(Refusal(""), HasSubstr("a.json:1:1: "));
  EXPECT_THAT(Refusal("{} {}"), StartsWith("a.json:1:4: "));
  EXPECT_THAT(Refusal("\"\xff\""), StartsWith("a.json:1:"));
  EXPECT_THAT(Refusal("{\"a\": 1"), StartsWith("a.json:1:8: "));
  EXPECT_THAT(Refusal("[1e999]"), StartsWith("a.json:"));
}

TEST(StrictJsonTest, RefusesRepeatedKeysOfOneObjectOnly) {
  EXPECT_THAT(Refusal(R"({"x": {"a": 1, "b": 2, "a": 3}})"), HasSubstr("key 'a' is given twice"));
  EXPECT_TRUE(ParseStrictJson(R"([{"a": 1}, {"a": {"a": 2}}])", "a.json").ok());
  // Where the second one stands, whatever is in it.
  EXPECT_EQ(Refusal("{\n  \"a\": 1,\n  \"a\": 2\n}", 10), "a.json:12:3: key 'a' is given twice");
  EXPECT_EQ(Refusal(R"({"\"\\": 1, "\"\\" : 2})"), "a.json:1:13: key '\"\\' is given twice");
  EXPECT_EQ(Refusal(R"({"": 1, "": 2})"), "a.json:1:9: key '' is given twice");
}

TEST(StrictJsonTest, RefusesDeepNesting) {
  EXPECT_THAT(Refusal(std::string(200'000, '[')), HasSubstr("64 levels"));
  EXPECT_THAT(Refusal("[\n" + std::string(100, '[')), StartsWith("a.json:2:64: nested more than 64 levels"));
  EXPECT_TRUE(ParseStrictJson(std::string(64, '[') + std::string(64, ']'), "a.json").ok());
}

}  // namespace
}  // namespace leeway
