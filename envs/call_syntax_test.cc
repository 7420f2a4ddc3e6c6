#include "envs/call_syntax.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string Refusal(const std::string& text) {
  const auto parsed = ParseCall(text, "f", "a,b", "f(a=1)");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(ParseCallTest, TakesItsArguments) {
  EXPECT_THAT(*ParseCall("f(a=1,b=x y)", "f", "a,b", ""), UnorderedElementsAre(Pair("a", "1"), Pair("b", "x y")));
  EXPECT_THAT(*ParseCall("  f ( b = 2 )  ", "f", "a,b", ""), UnorderedElementsAre(Pair("b", "2")));
  EXPECT_THAT(*ParseCall("f( )", "f", "a,b", ""), IsEmpty());
  EXPECT_THAT(*ParseCall("f(a=b=c)", "f", "a", ""), UnorderedElementsAre(Pair("a", "b=c")));
}

TEST(ParseCallTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal("g(a=1)"),
              AllOf(HasSubstr("'g(a=1)'"), HasSubstr("does not begin with 'f('"), HasSubstr("f(a=1)")));
  EXPECT_THAT(Refusal("f"), HasSubstr("in parentheses"));
  EXPECT_THAT(Refusal("f(a=1"), HasSubstr("in parentheses"));
  EXPECT_THAT(Refusal("f(a)"), HasSubstr("'a' is not key=value"));
  EXPECT_THAT(Refusal("f(=1)"), HasSubstr("'=1' is not key=value"));
  EXPECT_THAT(Refusal("f(a=1,)"), HasSubstr("is not key=value"));
  EXPECT_THAT(Refusal("f(c=1)"), HasSubstr("unknown key 'c' (known: a, b)"));
  EXPECT_THAT(Refusal("f(a=1, a=2)"), HasSubstr("'a' is given twice"));
  EXPECT_THAT(Refusal(""), HasSubstr("expected for example f(a=1)"));
}

}  // namespace
}  // namespace leeway::internal
