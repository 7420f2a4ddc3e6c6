#include "trainer/checkpoint/checkpoint_in_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace leeway {

void CheckpointInProgress::Take(const std::vector<ShareOutcome>& outcomes) {
  was_told_ = true;
  writing_.clear();
  status_ = absl::OkStatus();
  files_.clear();
  seconds_ = 0;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const ShareOutcome& outcome = outcomes[rank];
    if (outcome.is_pending) {
      writing_.push_back(static_cast<int>(rank));
      continue;
    }
    seconds_ = std::max(seconds_, outcome.seconds);
    if (!outcome.status.ok() && status_.ok()) {
      status_ =
          absl::Status(outcome.status.code(),
                       outcomes.size() == 1 ? std::string(outcome.status.message())
                                            : absl::StrCat("rank ", rank, ": ", std::string(outcome.status.message())));
    }
    for (const auto& [name, file] : outcome.files) {
      if (files_.emplace(name, file).second || !status_.ok()) continue;
      status_ = absl::InternalError(absl::StrCat("two ranks have written ", name));
    }
  }
}

}  // namespace leeway
