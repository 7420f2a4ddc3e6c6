#include "envs/tasks/question_set.h"

#include <algorithm>
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> FaultsOf(const std::string& text, AnswerMatch match = AnswerMatch::kExact,
                                  int max_answer_tokens = 8) {
  const auto questions = ParseQuestions(text, "q.jsonl", match, max_answer_tokens);
  EXPECT_EQ(questions.status().code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> lines;
  std::string rest(questions.status().message());
  for (size_t end; (end = rest.find('\n')) != std::string::npos; rest = rest.substr(end + 1))
    lines.push_back(rest.substr(0, end));
  lines.push_back(rest);
  return lines;
}

bool IsRight(AnswerMatch match, const std::string& expected, const std::string& given) {
  return IsRightAnswer({.question = "?", .answer = expected}, match, given);
}

TEST(AnswerMatchTest, ParsesItsNames) {
  EXPECT_EQ(*ParseAnswerMatch("exact"), AnswerMatch::kExact);
  EXPECT_EQ(*ParseAnswerMatch("regex"), AnswerMatch::kRegex);
  EXPECT_EQ(*ParseAnswerMatch("numeric"), AnswerMatch::kNumeric);
  EXPECT_THAT(std::string(ParseAnswerMatch("fuzzy").status().message()),
              HasSubstr("'fuzzy'; known: exact, regex, numeric"));
}

TEST(AnswerMatchTest, ExactCutsWhiteSpaceOffBothEnds) {
  EXPECT_TRUE(IsRight(AnswerMatch::kExact, "two words", "two words"));
  EXPECT_TRUE(IsRight(AnswerMatch::kExact, " 7\n", "\t7 "));
  EXPECT_FALSE(IsRight(AnswerMatch::kExact, "two words", "two  words"));
  EXPECT_FALSE(IsRight(AnswerMatch::kExact, "7", "7.0"));
  EXPECT_FALSE(IsRight(AnswerMatch::kExact, "7", ""));
}

TEST(AnswerMatchTest, RegexMatchesTheWholeAnswer) {
  EXPECT_TRUE(IsRight(AnswerMatch::kRegex, "yes|no", " yes "));
  EXPECT_FALSE(IsRight(AnswerMatch::kRegex, "yes|no", "yes indeed"));
  EXPECT_TRUE(IsRight(AnswerMatch::kRegex, "(?i)a+b", "AAB"));
  EXPECT_FALSE(IsRight(AnswerMatch::kRegex, "(", "("));
  EXPECT_FALSE(IsRight(AnswerMatch::kRegex, "é", "\xff"));
  // A backtracking engine would take for ever.
  EXPECT_FALSE(IsRight(AnswerMatch::kRegex, "(a*)*b", std::string(5000, 'a')));
}

TEST(AnswerMatchTest, NumericTakesTheLastNumber) {
  const auto right = [](const char* given) { return IsRight(AnswerMatch::kNumeric, "-1234.5", given); };
  EXPECT_TRUE(right("-1234.5"));
  EXPECT_TRUE(right("so 3 and 4 give -1,234.50."));
  EXPECT_TRUE(right("-1.2345e3"));
  EXPECT_FALSE(right("-1234.5 or 7"));
  EXPECT_FALSE(right("1234.5"));
  EXPECT_FALSE(right("none"));
  EXPECT_FALSE(right(""));
  EXPECT_FALSE(right("1e999"));
  EXPECT_TRUE(IsRight(AnswerMatch::kNumeric, "3", "8-5=3"));
  EXPECT_TRUE(IsRight(AnswerMatch::kNumeric, "5", "8-5"));
  EXPECT_TRUE(IsRight(AnswerMatch::kNumeric, "7", "+7"));
  EXPECT_TRUE(IsRight(AnswerMatch::kNumeric, "0.5", ".5"));
  EXPECT_TRUE(IsRight(AnswerMatch::kNumeric, "0.3", "0.30000000000000004"));
  EXPECT_FALSE(IsRight(AnswerMatch::kNumeric, "0.3", "0.3001"));
  EXPECT_TRUE(IsRight(AnswerMatch::kNumeric, "1,000,000", "1000000"));
}

TEST(ParseQuestionsTest, ReadsEachLine) {
  const auto questions = ParseQuestions(
      "{\"question\": \"a?\", \"answer\": \"x\"}\r\n\n  \n{\"id\": 7, \"answer\": 12, \"question\": \"b\\n?\"}",
      "q.jsonl", AnswerMatch::kExact, 8);
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].question, "a?");
  EXPECT_EQ((*questions)[0].answer, "x");
  EXPECT_EQ((*questions)[1].question, "b\n?");
  EXPECT_EQ((*questions)[1].answer, "12");
}

TEST(ParseQuestionsTest, ReportsTheFaultsOfAllLines) {
  const std::string text =
      "{\"question\": \"a\", \"answer\": \"1\"}\n"
      "{\"question\": \"b\", \"answer\": }\n"
      "[1]\n"
      "{\"answer\": \" \"}\n"
      "\n"
      "{\"question\": 5, \"answer\": [\"x\"]}\n"
      "{\"question\": \"a\", \"answer\": \"2\"}\n"
      "{\"question\": \"a\", \"question\": \"c\", \"answer\": \"2\"}\n"
      "{\"question\": \"d\", \"answer\": \"123456789\"}\n"
      "{\"question\": \"e\xff\", \"answer\": \"1\"}\n";
  EXPECT_THAT(
      FaultsOf(text),
      ElementsAre(
          HasSubstr("q.jsonl:2:29: syntax error"), HasSubstr("q.jsonl:3: is array, expected an object"),
          "q.jsonl:4: 'question' is missing", "q.jsonl:4: 'answer' is empty",
          "q.jsonl:6: 'question' is number, expected a string", "q.jsonl:6: 'answer' is array, expected a string",
          "q.jsonl:7: answers the question of line 1 differently", "q.jsonl:8:19: key 'question' is given twice",
          "q.jsonl:9: 'answer' has 9 bytes, but task.max_answer_tokens is 8", HasSubstr("q.jsonl:10:")));
}

TEST(ParseQuestionsTest, AnswersMustFitTheMatch) {
  const std::string text = R"({"question": "a", "answer": "(unclosed"})";
  EXPECT_TRUE(ParseQuestions(text, "q.jsonl", AnswerMatch::kExact, 9).ok());
  EXPECT_THAT(FaultsOf(text, AnswerMatch::kRegex),
              ElementsAre(HasSubstr("q.jsonl:1: 'answer' is not a regular expression")));
  EXPECT_THAT(FaultsOf(text, AnswerMatch::kNumeric), ElementsAre("q.jsonl:1: 'answer' is \"(unclosed\", not a number"));
  // A pattern may be longer than what it matches.
  EXPECT_TRUE(ParseQuestions(R"({"question": "a", "answer": "[0-9]+"})", "q.jsonl", AnswerMatch::kRegex, 2).ok());
  EXPECT_THAT(FaultsOf(R"({"question": "a", "answer": "1 or 2"})", AnswerMatch::kNumeric),
              ElementsAre(HasSubstr("not a number")));
}

TEST(ParseQuestionsTest, EmptyFilesAndManyFaults) {
  EXPECT_THAT(FaultsOf(""), ElementsAre("q.jsonl: holds no question"));
  EXPECT_THAT(FaultsOf("\n \n"), ElementsAre("q.jsonl: holds no question"));
  std::string text;
  for (int i = 0; i < 250; ++i) text += "1\n";
  const auto faults = FaultsOf(text);
  ASSERT_EQ(faults.size(), 101u);
  EXPECT_THAT(faults[99], HasSubstr("q.jsonl:100:"));
  EXPECT_EQ(faults[100], "q.jsonl: and 150 faults more");
}

std::vector<Question> Numbered(int count) {
  std::vector<Question> questions;
  for (int i = 0; i < count; ++i) questions.push_back({"question " + std::to_string(i), "x"});
  return questions;
}

TEST(SplitQuestionsTest, QuestionsStayOnTheirSideWhateverElseTheFileHolds) {
  const auto sides_of = [](const std::vector<Question>& questions) {
    std::map<std::string, bool> is_held_out;
    const QuestionSplit split = *SplitQuestions(questions, 0.2);
    for (const uint64_t i : split.training) is_held_out[questions[i].question] = false;
    for (const uint64_t i : split.held_out) is_held_out[questions[i].question] = true;
    EXPECT_EQ(split.training.size() + split.held_out.size(), questions.size());
    return is_held_out;
  };
  std::vector<Question> questions = Numbered(1000);
  const auto large = sides_of(questions);
  EXPECT_EQ(large.size(), 1000u);
  // 200 of 1,000, six standard deviations (13) allowed.
  EXPECT_NEAR(std::count_if(large.begin(), large.end(), [](const auto& side) { return side.second; }), 200, 78);
  std::reverse(questions.begin(), questions.end());
  EXPECT_EQ(sides_of(questions), large);
  questions.resize(500);
  for (const auto& [question, is_held_out] : sides_of(questions)) EXPECT_EQ(is_held_out, large.at(question));
}

TEST(SplitQuestionsTest, NeitherSideIsEverEmpty) {
  for (int count = 2; count < 30; ++count) {
    for (const double share : {1e-9, 0.2, 1.0 - 1e-9}) {
      const auto split = SplitQuestions(Numbered(count), share);
      ASSERT_TRUE(split.ok());
      EXPECT_GE(split->training.size(), 1u);
      EXPECT_GE(split->held_out.size(), 1u);
      EXPECT_EQ(split->training.size() + split->held_out.size(), static_cast<size_t>(count));
    }
  }
  EXPECT_FALSE(SplitQuestions(Numbered(1), 0.5).ok());
  EXPECT_FALSE(SplitQuestions({{"same", "x"}, {"same", "x"}}, 0.5).ok());
}

TEST(SplitQuestionsTest, CopiesOfAQuestionAreNeverTorn) {
  for (const double share : {1e-9, 0.5, 1.0 - 1e-9}) {
    std::vector<Question> questions = Numbered(6);
    for (const Question& copy : Numbered(6)) questions.push_back(copy);
    const QuestionSplit split = *SplitQuestions(questions, share);
    std::set<std::string> training;
    for (const uint64_t i : split.training) training.insert(questions[i].question);
    for (const uint64_t i : split.held_out) EXPECT_THAT(training, Not(testing::Contains(questions[i].question)));
  }
}

}  // namespace
}  // namespace leeway
