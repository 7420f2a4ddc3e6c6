#ifndef LEEWAY_BASE_FAILPOINT_H_
#define LEEWAY_BASE_FAILPOINT_H_

// Named points in production code at which a test makes something go wrong. Compiled out unless LEEWAY_FAILPOINTS is
// defined.
//
//   LEEWAY_FAILPOINT("trainer_before_optimizer");            // may kill, hang or delay the process
//   LEEWAY_FAILPOINT_STATUS("store_write");                  // may also make the function return an error
//
// Armed by the environment variable LEEWAY_FAILPOINTS of the process, or by FailpointArm in a test:
//   name=action[@hit][,name=action...]     action: kill | hang | delay:MILLISECONDS | wait_for:FILE | error
// `@3` acts at the third hit only; without it at every hit. A name may stand several times. `wait_for` goes on once the
// file exists (its path without ',' and '@'): the test decides how long the process stays there, not the machine's
// speed.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace leeway {

// INVALID_ARGUMENT, naming the bad part, unless the text follows the grammar above. Arms nothing.
absl::Status FailpointCheck(absl::string_view specification);
// Arms failpoints by the grammar above; replaces what was armed. INVALID_ARGUMENT names the bad part.
absl::Status FailpointArm(absl::string_view specification);
void FailpointDisarmAll();
// How often the point was reached since the process started (counted only while anything is armed).
int FailpointHits(absl::string_view name);

namespace internal {
// Does what is armed for `name`. Thread-safe. Not OK only for action `error` (INTERNAL, "failpoint NAME").
absl::Status FailpointReached(const char* name);
}  // namespace internal

}  // namespace leeway

#ifdef LEEWAY_FAILPOINTS
#define LEEWAY_FAILPOINT(name) static_cast<void>(::leeway::internal::FailpointReached(name))
#define LEEWAY_FAILPOINT_STATUS(name) LEEWAY_RETURN_IF_ERROR(::leeway::internal::FailpointReached(name))
#else
#define LEEWAY_FAILPOINT(name) static_cast<void>(0)
#define LEEWAY_FAILPOINT_STATUS(name) static_cast<void>(0)
#endif

#endif  // LEEWAY_BASE_FAILPOINT_H_
