#ifndef LEEWAY_BASE_STATUS_MACROS_H_
#define LEEWAY_BASE_STATUS_MACROS_H_

// Macros for absl::Status across folder borders, and the check for our own bugs.
//
//   LEEWAY_RETURN_IF_ERROR(expr)         returns the status of expr from the enclosing function if it is not OK
//   LEEWAY_ASSIGN_OR_RETURN(lhs, expr)   assigns the value of a StatusOr, or returns its status
//   LEEWAY_CHECK(condition) << "values"  aborts with file, line and text: an internal invariant is broken (our bug).
//   Never
//                                        used for bad input: input gets a Status.

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace leeway::internal {

// Collects the text of a failed check and aborts when the full expression ends.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    text_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  [[noreturn]] ~CheckFailure() {
    std::cerr << text_.str() << std::endl;
    std::abort();
  }
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

// Lower precedence than <<, so that the macro below is one void expression.
struct CheckVoidify {
  void operator&(std::ostream&) const {}
};

}  // namespace leeway::internal

#define LEEWAY_CONCATENATE_INNER(a, b) a##b
#define LEEWAY_CONCATENATE(a, b) LEEWAY_CONCATENATE_INNER(a, b)

#define LEEWAY_RETURN_IF_ERROR(expr)                                                      \
  do {                                                                                    \
    if (::absl::Status leeway_status = (expr); !leeway_status.ok()) return leeway_status; \
  } while (false)

#define LEEWAY_ASSIGN_OR_RETURN(lhs, expr) \
  LEEWAY_ASSIGN_OR_RETURN_INNER(LEEWAY_CONCATENATE(leeway_statusor_, __LINE__), lhs, expr)
#define LEEWAY_ASSIGN_OR_RETURN_INNER(statusor, lhs, expr) \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = std::move(statusor).value()

#define LEEWAY_CHECK(condition) \
  (condition)                   \
      ? static_cast<void>(0)    \
      : ::leeway::internal::CheckVoidify() & ::leeway::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#endif  // LEEWAY_BASE_STATUS_MACROS_H_
