#include "trainer/checkpoint/share_outcomes.h"

#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "leeway/v1/trainer.pb.h"

namespace leeway {
namespace {

v1::SaveStatus MessageOf(const ShareOutcome& outcome) {
  v1::SaveStatus message;
  message.set_pending(outcome.is_pending);
  message.set_error_code(static_cast<int>(outcome.status.code()));
  message.set_error(std::string(outcome.status.message()));
  message.set_seconds(outcome.seconds);
  for (const auto& [name, file] : outcome.files) {
    v1::SavedFile* const to = message.add_files();
    to->set_name(name);
    to->set_size_bytes(file.bytes);
    to->set_digest(file.digest);
  }
  return message;
}

ShareOutcome OutcomeOf(const v1::SaveStatus& message) {
  ShareOutcome outcome;
  outcome.is_pending = message.pending();
  outcome.status = absl::Status(static_cast<absl::StatusCode>(message.error_code()), message.error());
  outcome.seconds = message.seconds();
  for (const v1::SavedFile& file : message.files()) outcome.files[file.name()] = {file.size_bytes(), file.digest()};
  return outcome;
}

}  // namespace

absl::StatusOr<std::vector<ShareOutcome>> GatherOutcomes(Communicator* ranks, const ShareOutcome& own) {
  std::string text;
  if (!MessageOf(own).SerializeToString(&text)) return absl::InternalError("a checkpoint's status cannot be sent");
  const size_t count = static_cast<size_t>(ranks->size());
  const int64_t size = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(count);
  LEEWAY_RETURN_IF_ERROR(ranks->AllGather(DType::kI64, &size, std::vector<int64_t>(count, 1), sizes.data()));
  std::string all(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})), '\0');
  LEEWAY_RETURN_IF_ERROR(ranks->AllGather(DType::kU8, text.data(), sizes, all.data()));
  std::vector<ShareOutcome> outcomes;
  size_t begin = 0;
  for (const int64_t each : sizes) {
    v1::SaveStatus message;
    if (!message.ParseFromArray(all.data() + begin, static_cast<int>(each))) {
      return absl::InternalError(
          absl::StrCat("what rank ", outcomes.size(), " says of its checkpoint can not be read"));
    }
    begin += static_cast<size_t>(each);
    outcomes.push_back(OutcomeOf(message));
  }
  return outcomes;
}

}  // namespace leeway
