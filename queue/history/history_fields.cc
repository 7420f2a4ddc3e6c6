#include "queue/history/history_fields.h"

#include "base/hash.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace leeway {

using Json = nlohmann::ordered_json;

Json FieldOf(const v1::WorkerIdentity& identity) { return Json::array({identity.producer_id(), identity.epoch()}); }

Json FieldOf(const v1::WeightsVersion& weights) { return Json::array({weights.lineage(), weights.version()}); }

Json FieldOf(const v1::EpisodeKey& key) {
  return Json::array({key.ticket(), key.issue(), key.member(), key.attempt()});
}

Json FieldOf(const v1::Ticket& ticket) {
  return {{"id", ticket.id()},
          {"issue", ticket.issue()},
          {"seed", ticket.seed()},
          {"task_index", ticket.task_index()},
          {"members", std::vector<uint32_t>(ticket.members().begin(), ticket.members().end())},
          {"version", FieldOf(ticket.weights())},
          {"evaluation", ticket.evaluation()}};
}

Json FieldOf(const v1::LedgerCounts& counts) {
  return {{"issued_total", counts.issued_total()},
          {"issued", counts.issued()},
          {"running", counts.running()},
          {"ready", counts.ready()},
          {"leased", counts.leased()},
          {"trained", counts.trained()},
          {"settled", counts.settled()},
          {"filtered", counts.filtered()},
          {"stale", counts.stale()},
          {"failed", counts.failed()},
          {"cancelled", counts.cancelled()},
          {"rewound", counts.rewound()}};
}

std::string FieldOf(const absl::Status& status) { return status.ToString(); }

Json VersionsOf(const v1::Trajectory& trajectory) {
  Json versions = Json::array();
  for (const v1::Span& span : trajectory.spans()) {
    for (const v1::VersionRun& run : span.versions()) {
      const uint64_t lineage = run.weights().lineage(), version = run.weights().version();
      if (!versions.empty() && versions.back()[0] == lineage && versions.back()[1] == version) {
        versions.back()[2] = versions.back()[2].get<uint64_t>() + run.count();
      } else {
        versions.push_back(Json::array({lineage, version, run.count()}));
      }
    }
  }
  return versions;
}

std::string DigestOf(const v1::Trajectory& trajectory) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    // Maps in one order.
    coded.SetSerializationDeterministic(true);
    trajectory.SerializeToCodedStream(&coded);
  }
  return Digest128(bytes.data(), bytes.size());
}

}  // namespace leeway
