#include "collective/cpu/gloo_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status_macros.h"
#include "collective/transport_communicator.h"

namespace leeway {
namespace {

// Every step begins with a frame from each rank to each other: what it calls and how much it sends. Small messages ride
// in it; larger ones go beside it, in a slot named by operation and size, so that no rank ever receives more than it
// has room for, which Gloo answers by ending the process.
struct FrameHeader {
  static constexpr uint64_t kMagic = 0x6c656577617931ff;
  uint64_t magic;
  OperationTag tag;
  int64_t bytes;
};
constexpr size_t kInlineBytes = 16384;

struct Frame {
  FrameHeader header;
  std::byte payload[kInlineBytes];
};

bool HasArrived(ConstBytes frame) {
  uint64_t magic;
  std::memcpy(&magic, frame.data(), sizeof(magic));
  return magic == FrameHeader::kMagic;
}

enum class SlotKind : uint64_t { kFrame, kData, kMessageFrame, kMessageData };

class GlooTransport final : public RankTransport {
 public:
  // `members`: ranks of the mesh, by rank here. `group`: the same number at all members and at no other group.
  GlooTransport(std::shared_ptr<GlooMesh> mesh, std::vector<int> members, uint64_t group, std::string name)
      : mesh_(std::move(mesh)),
        members_(std::move(members)),
        rank_(static_cast<int>(std::find(members_.begin(), members_.end(), mesh_->rank()) - members_.begin())),
        group_(group),
        name_(std::move(name)),
        sent_(members_.size()),
        received_(members_.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  absl::Duration timeout() const override { return mesh_->options().timeout; }
  absl::string_view name() const override { return name_; }
  int root_rank() const override { return mesh_->rank(); }

  absl::Status Exchange(const OperationTag& tag, const Deadline& deadline, absl::Span<const ConstBytes> outgoing,
                        absl::Span<const MutableBytes> incoming) override {
    const GlooMesh::Operation operation{name_, &tag, deadline, timeout()};
    ++exchanges_;
    const uint64_t frames = Slot(SlotKind::kFrame, exchanges_);
    std::vector<GlooMesh::Outgoing> sends;
    std::vector<GlooMesh::Incoming> receives;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (static_cast<int>(r) == rank_) continue;
      sends.push_back({members_[r], frames, PackFrame(tag, outgoing[r], &sent_[r])});
      received_[r].header.magic = 0;
      receives.push_back({members_[r], frames, WholeFrame(&received_[r])});
    }
    for (size_t r = 0; r < members_.size(); ++r) {
      if (outgoing[r].size() > kInlineBytes) {
        sends.push_back({members_[r], DataSlot(tag, outgoing[r].size()), outgoing[r]});
      }
      if (incoming[r].size() > kInlineBytes) {
        receives.push_back({members_[r], DataSlot(tag, incoming[r].size()), incoming[r]});
      }
    }
    LEEWAY_RETURN_IF_ERROR(mesh_->Transfer(
        operation, sends, receives, {members_.size() - 1, HasArrived, [&] { return CheckFrames(tag, incoming); }}));
    for (size_t r = 0; r < members_.size(); ++r) UnpackFrame(received_[r], incoming[r]);
    return absl::OkStatus();
  }

  absl::Status Send(const OperationTag& tag, const Deadline& deadline, ConstBytes message, int peer) override {
    const size_t r = static_cast<size_t>(peer);
    const GlooMesh::Operation operation{name_, &tag, deadline, timeout()};
    std::vector<GlooMesh::Outgoing> sends = {
        {members_[r], Slot(SlotKind::kMessageFrame, tag.number), PackFrame(tag, message, &sent_[r])}};
    if (message.size() > kInlineBytes) {
      sends.push_back({members_[r], Slot(SlotKind::kMessageData, tag.number), message});
    }
    return mesh_->Transfer(operation, sends, {}, {});
  }

  absl::Status Receive(const OperationTag& tag, const Deadline& deadline, MutableBytes message, int peer) override {
    const size_t r = static_cast<size_t>(peer);
    const GlooMesh::Operation operation{name_, &tag, deadline, timeout()};
    LEEWAY_RETURN_IF_ERROR(mesh_->Transfer(
        operation, {}, {{members_[r], Slot(SlotKind::kMessageFrame, tag.number), WholeFrame(&received_[r])}}, {}));
    OperationTag expected = tag;
    expected.kind = received_[r].header.tag.kind;
    if (!(received_[r].header.tag == expected)) {
      return Refuse(MismatchError(name_, members_[r], received_[r].header.tag, mesh_->rank(), tag));
    }
    UnpackFrame(received_[r], message);
    if (message.size() <= kInlineBytes) return absl::OkStatus();
    return mesh_->Transfer(operation, {}, {{members_[r], Slot(SlotKind::kMessageData, tag.number), message}}, {});
  }

  // The members use the same connections under another number: nothing has to be said.
  absl::StatusOr<std::unique_ptr<RankTransport>> Split(const OperationTag& tag, const Deadline& deadline,
                                                       absl::Span<const int> members, std::string name) override {
    std::vector<int> of_mesh;
    for (int member : members) of_mesh.push_back(members_[static_cast<size_t>(member)]);
    const uint64_t lineage[] = {group_, tag.number, static_cast<uint64_t>(of_mesh[0])};
    return std::make_unique<GlooTransport>(mesh_, std::move(of_mesh), Hash64(lineage, sizeof(lineage)),
                                           std::move(name));
  }

  void Fail(const absl::Status& error) override { mesh_->Fail(error); }
  absl::Status Failure() const override { return mesh_->Failure(); }

 private:
  uint64_t Slot(SlotKind kind, uint64_t number) const {
    const uint64_t parts[] = {group_, static_cast<uint64_t>(kind), number};
    return Hash64(parts, sizeof(parts));
  }

  // Ends that disagree never meet.
  uint64_t DataSlot(const OperationTag& tag, size_t size_bytes) const {
    const uint64_t parts[] = {Slot(SlotKind::kData, exchanges_), Hash64(&tag, sizeof(tag)), size_bytes};
    return Hash64(parts, sizeof(parts));
  }

  absl::Status CheckFrames(const OperationTag& tag, absl::Span<const MutableBytes> incoming) const {
    for (size_t r = 0; r < members_.size(); ++r) {
      if (static_cast<int>(r) == rank_) continue;
      const FrameHeader& header = received_[r].header;
      if (!(header.tag == tag)) return MismatchError(name_, members_[r], header.tag, mesh_->rank(), tag);
      if (header.bytes != static_cast<int64_t>(incoming[r].size())) {
        return SizeMismatchError(name_, tag, members_[r], header.bytes, mesh_->rank(),
                                 static_cast<int64_t>(incoming[r].size()));
      }
    }
    return absl::OkStatus();
  }

  static ConstBytes PackFrame(const OperationTag& tag, ConstBytes message, Frame* frame) {
    frame->header = {FrameHeader::kMagic, tag, static_cast<int64_t>(message.size())};
    const bool is_inline = message.size() <= kInlineBytes;
    if (is_inline && !message.empty()) std::memcpy(frame->payload, message.data(), message.size());
    return ConstBytes(reinterpret_cast<const std::byte*>(frame),
                      sizeof(FrameHeader) + (is_inline ? message.size() : 0));
  }

  static void UnpackFrame(const Frame& frame, MutableBytes message) {
    if (message.size() <= kInlineBytes && !message.empty()) {
      std::memcpy(message.data(), frame.payload, message.size());
    }
  }

  static MutableBytes WholeFrame(Frame* frame) {
    return MutableBytes(reinterpret_cast<std::byte*>(frame), sizeof(Frame));
  }

  absl::Status Refuse(const absl::Status& error) {
    mesh_->Fail(error);
    return mesh_->Failure();
  }

  const std::shared_ptr<GlooMesh> mesh_;
  const std::vector<int> members_;
  const int rank_;
  const uint64_t group_;
  const std::string name_;
  uint64_t exchanges_ = 0;
  // By rank; one call at a time.
  std::vector<Frame> sent_, received_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<GlooMesh> mesh, GlooMesh::Connect(options));
  std::vector<int> members(static_cast<size_t>(options.size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<TransportCommunicator>(
      std::make_unique<GlooTransport>(std::move(mesh), std::move(members), /*group=*/1, options.name));
}

}  // namespace leeway
