#include "envs/tasks/question_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "formats/strict_json.h"
#include "re2/re2.h"

namespace leeway {
namespace {

// Faults shown of one file; the rest is counted.
constexpr size_t kMaxFaultsShown = 100;
constexpr double kNumericTolerance = 1e-9;

const RE2& NumberPattern() {
  static const RE2* const pattern =
      new RE2(R"(([-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?))");
  return *pattern;
}

std::optional<double> ToNumber(absl::string_view text) {
  double number = 0.0;
  if (!absl::SimpleAtod(absl::StrReplaceAll(text, {{",", ""}}), &number) || !std::isfinite(number)) return std::nullopt;
  return number;
}

// The last number in a text; a sign right behind a digit is an operator ("5-3" ends with 3).
std::optional<double> LastNumber(absl::string_view text) {
  re2::StringPiece rest(text.data(), text.size());
  re2::StringPiece number;
  std::optional<double> last;
  while (RE2::FindAndConsume(&rest, NumberPattern(), &number)) {
    const bool follows_a_digit = number.data() > text.data() && absl::ascii_isdigit(number.data()[-1]);
    absl::string_view digits(number.data(), number.size());
    if (follows_a_digit && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
    last = ToNumber(digits);
  }
  return last;
}

std::optional<double> WholeNumber(absl::string_view text) {
  if (!RE2::FullMatch(re2::StringPiece(text.data(), text.size()), NumberPattern())) return std::nullopt;
  return ToNumber(text);
}

RE2::Options PatternOptions() {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(1 << 20);
  return options;
}

// What is wrong with an answer of the file; empty = nothing.
std::string AnswerFault(const std::string& answer, AnswerMatch match, int max_answer_tokens) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(answer);
  switch (match) {
    case AnswerMatch::kRegex: {
      const RE2 pattern(answer, PatternOptions());
      return pattern.ok() ? "" : absl::StrCat("'answer' is not a regular expression: ", pattern.error());
    }
    case AnswerMatch::kNumeric:
      if (!WholeNumber(trimmed).has_value()) return absl::StrCat("'answer' is \"", answer, "\", not a number");
      break;
    case AnswerMatch::kExact:
      break;
  }
  if (trimmed.size() > static_cast<size_t>(max_answer_tokens)) {
    return absl::StrCat("'answer' has ", trimmed.size(), " bytes, but task.max_answer_tokens is ", max_answer_tokens);
  }
  return "";
}

// Adds what is wrong with the value of `key` to `faults`; the text of the value otherwise.
std::string TextOfKey(const nlohmann::json& object, const char* key, bool accepts_numbers,
                      std::vector<std::string>* faults) {
  const auto value = object.find(key);
  if (value == object.end()) {
    faults->push_back(absl::StrCat("'", key, "' is missing"));
    return "";
  }
  if (accepts_numbers && value->is_number()) return value->dump();
  if (!value->is_string()) {
    faults->push_back(absl::StrCat("'", key, "' is ", value->type_name(), ", expected a string"));
    return "";
  }
  const std::string text = value->get<std::string>();
  if (absl::StripAsciiWhitespace(text).empty()) faults->push_back(absl::StrCat("'", key, "' is empty"));
  return text;
}

uint64_t HashOf(const Question& question) { return Hash64(question.question.data(), question.question.size()); }

}  // namespace

absl::StatusOr<AnswerMatch> ParseAnswerMatch(absl::string_view text) {
  if (text == "exact") return AnswerMatch::kExact;
  if (text == "regex") return AnswerMatch::kRegex;
  if (text == "numeric") return AnswerMatch::kNumeric;
  return absl::InvalidArgumentError(absl::StrCat("unknown match '", text, "'; known: exact, regex, numeric"));
}

absl::StatusOr<std::vector<Question>> ParseQuestions(absl::string_view text, const std::string& path, AnswerMatch match,
                                                     int max_answer_tokens) {
  std::vector<Question> questions;
  std::vector<std::string> faults;
  // Question -> where it was asked first.
  std::map<std::string, std::pair<int64_t, size_t>> first_asked;
  int64_t line = 0;
  while (!text.empty()) {
    ++line;
    const absl::string_view content = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), content.size() + 1));
    if (absl::StripAsciiWhitespace(content).empty()) continue;

    const absl::StatusOr<nlohmann::json> object = ParseStrictJson(content, path, line);
    if (!object.ok()) {
      faults.push_back(std::string(object.status().message()));
      continue;
    }
    std::vector<std::string> line_faults;
    Question question;
    if (object->is_object()) {
      question.question = TextOfKey(*object, "question", /*accepts_numbers=*/false, &line_faults);
      question.answer = TextOfKey(*object, "answer", /*accepts_numbers=*/true, &line_faults);
    } else {
      line_faults.push_back(
          absl::StrCat("is ", object->type_name(), ", expected an object {\"question\": …, \"answer\": …}"));
    }
    if (line_faults.empty()) {
      const std::string fault = AnswerFault(question.answer, match, max_answer_tokens);
      if (!fault.empty()) line_faults.push_back(fault);
      const auto [earlier, is_new] = first_asked.try_emplace(question.question, line, questions.size());
      if (!is_new && questions[earlier->second.second].answer != question.answer) {
        line_faults.push_back(absl::StrCat("answers the question of line ", earlier->second.first, " differently"));
      }
      // Kept although faulty, so that positions in first_asked stay right; a fault anywhere refuses the file.
      questions.push_back(std::move(question));
    }
    for (const std::string& fault : line_faults) faults.push_back(absl::StrCat(path, ":", line, ": ", fault));
  }
  if (faults.empty() && questions.empty()) faults.push_back(absl::StrCat(path, ": holds no question"));
  if (faults.empty()) return questions;
  const size_t hidden = faults.size() > kMaxFaultsShown ? faults.size() - kMaxFaultsShown : 0;
  faults.resize(faults.size() - hidden);
  if (hidden > 0) faults.push_back(absl::StrCat(path, ": and ", hidden, " faults more"));
  return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

bool IsRightAnswer(const Question& question, AnswerMatch match, absl::string_view answer) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(answer);
  const absl::string_view right = absl::StripAsciiWhitespace(question.answer);
  switch (match) {
    case AnswerMatch::kExact:
      return trimmed == right;
    case AnswerMatch::kRegex:
      return RE2::FullMatch(re2::StringPiece(trimmed.data(), trimmed.size()), RE2(question.answer, PatternOptions()));
    case AnswerMatch::kNumeric: {
      const std::optional<double> given = LastNumber(trimmed);
      const std::optional<double> expected = WholeNumber(right);
      return given.has_value() && expected.has_value() &&
             std::abs(*given - *expected) <= kNumericTolerance * std::max(1.0, std::abs(*expected));
    }
  }
  return false;
}

absl::StatusOr<QuestionSplit> SplitQuestions(const std::vector<Question>& questions, double held_out_share) {
  QuestionSplit split;
  const double limit = held_out_share * 0x1.0p64;
  uint64_t smallest = std::numeric_limits<uint64_t>::max();
  uint64_t largest = 0;
  for (uint64_t i = 0; i < questions.size(); ++i) {
    const uint64_t hash = HashOf(questions[i]);
    smallest = std::min(smallest, hash);
    largest = std::max(largest, hash);
    (static_cast<double>(hash) < limit ? split.held_out : split.training).push_back(i);
  }
  if (smallest >= largest) {
    return absl::InvalidArgumentError("at least two different questions are needed: one to train on, one to hold out");
  }
  // Copies of one question have one hash and move together.
  const auto move_hash = [&](uint64_t hash, std::vector<uint64_t>* from, std::vector<uint64_t>* to) {
    const auto stays = [&](uint64_t i) { return HashOf(questions[i]) != hash; };
    const auto moved = std::stable_partition(from->begin(), from->end(), stays);
    to->assign(moved, from->end());
    from->erase(moved, from->end());
  };
  if (split.held_out.empty()) move_hash(smallest, &split.training, &split.held_out);
  if (split.training.empty()) move_hash(largest, &split.held_out, &split.training);
  return split;
}

}  // namespace leeway
