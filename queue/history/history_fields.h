#ifndef LEEWAY_QUEUE_HISTORY_HISTORY_FIELDS_H_
#define LEEWAY_QUEUE_HISTORY_HISTORY_FIELDS_H_

// Messages as the values of a history's lines (history_log.h).

#include <string>

#include "absl/status/status.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/types.pb.h"
#include "nlohmann/json.hpp"

namespace leeway {

nlohmann::ordered_json FieldOf(const v1::WorkerIdentity& identity);
nlohmann::ordered_json FieldOf(const v1::WeightsVersion& weights);
nlohmann::ordered_json FieldOf(const v1::EpisodeKey& key);
nlohmann::ordered_json FieldOf(const v1::Ticket& ticket);
nlohmann::ordered_json FieldOf(const v1::LedgerCounts& counts);
// "UNAVAILABLE: connection refused"
std::string FieldOf(const absl::Status& status);
// [[lineage, version, tokens], ...] of all spans, in order, neighbours of the same version joined.
nlohmann::ordered_json VersionsOf(const v1::Trajectory& trajectory);
// The same for a message before it was sent and after it was received.
std::string DigestOf(const v1::Trajectory& trajectory);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_HISTORY_HISTORY_FIELDS_H_
