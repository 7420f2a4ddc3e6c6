#include "collective/transport_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "collective/tree_reduce.h"

namespace leeway {
namespace {

uint64_t LayoutHash(absl::Span<const int64_t> counts) { return Hash64(counts.data(), counts.size() * sizeof(int64_t)); }

int64_t Sum(absl::Span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

void Copy(const void* from, size_t size_bytes, void* to) {
  // Null pointers may come with a size of 0.
  if (size_bytes != 0 && from != to) std::memcpy(to, from, size_bytes);
}

}  // namespace

// One operation on its way.
struct TransportCommunicator::Call {
  OperationTag tag;
  Deadline deadline;
  int64_t element_bytes;
  DType dtype;

  int64_t array_bytes() const { return tag.elements * element_bytes; }
};

TransportCommunicator::TransportCommunicator(std::unique_ptr<RankTransport> transport)
    : transport_(std::move(transport)),
      sent_(static_cast<size_t>(size())),
      received_(static_cast<size_t>(size())),
      outgoing_(static_cast<size_t>(size())),
      incoming_(static_cast<size_t>(size())) {}

TransportCommunicator::Call TransportCommunicator::Begin(uint8_t kind, DType dtype, int64_t elements) {
  Call call{{}, Deadline::After(transport_->timeout()), static_cast<int64_t>(DTypeBytes(dtype)), dtype};
  call.tag.kind = kind;
  call.tag.dtype = static_cast<uint8_t>(dtype);
  call.tag.elements = elements;
  const bool point_to_point =
      kind == static_cast<uint8_t>(Collective::kSend) || kind == static_cast<uint8_t>(Collective::kReceive);
  if (!point_to_point) call.tag.number = ++operations_;
  return call;
}

absl::Status TransportCommunicator::Exchange(Call* call) {
  const absl::Status status = transport_->Exchange(call->tag, call->deadline, outgoing_, incoming_);
  ++call->tag.step;
  std::fill(outgoing_.begin(), outgoing_.end(), ConstBytes());
  std::fill(incoming_.begin(), incoming_.end(), MutableBytes());
  return status;
}

absl::Status TransportCommunicator::Refuse(const Call& call, absl::string_view why) {
  transport_->Fail(absl::InvalidArgumentError(
      absl::StrCat(name(), ": rank ", transport_->root_rank(), ": ", DescribeOperation(call.tag), ": ", why)));
  return transport_->Failure();
}

absl::Status TransportCommunicator::CheckPeer(const Call& call, int peer) {
  if (peer >= 0 && peer < size()) return absl::OkStatus();
  return Refuse(call, absl::StrCat("there is no rank ", peer, " among ", size()));
}

absl::Status TransportCommunicator::CheckCounts(const Call& call, absl::Span<const int64_t> counts,
                                                absl::string_view what) {
  if (counts.size() != static_cast<size_t>(size())) {
    return Refuse(call, absl::StrCat(counts.size(), " ", what, " for ", size(), " ranks"));
  }
  for (int64_t count : counts) {
    if (count < 0) return Refuse(call, absl::StrCat(what, " of ", count, " elements"));
  }
  return absl::OkStatus();
}

absl::Status TransportCommunicator::CheckReducible(const Call& call) {
  if (call.tag.elements < 0) return Refuse(call, "a negative count");
  if (IsReducible(call.dtype)) return absl::OkStatus();
  return Refuse(call, "only F32, F64, BF16 and I64 are summed");
}

absl::Status TransportCommunicator::Finish(const Call& call, Collective collective, absl::Status status) {
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  CollectiveCounters::PerOperation& counter = counters_.operations[static_cast<size_t>(collective)];
  ++counter.calls;
  counter.elements += call.tag.elements;
  counter.bytes_sent += RingBytesSent(collective, call.array_bytes(), size());
  return status;
}

absl::Status TransportCommunicator::ReduceParts(Call* call, ReduceOp op, const std::byte* input,
                                                absl::Span<const int64_t> counts, std::byte* output) {
  const size_t ranks = counts.size(), self = static_cast<size_t>(rank());
  const int64_t step = std::max<int64_t>(kStepBytes / call->element_bytes, 1);
  const int64_t largest = *std::max_element(counts.begin(), counts.end());
  const size_t slot_bytes = static_cast<size_t>(std::min(step, counts[self]) * call->element_bytes);
  scratch_.resize(std::max(scratch_.size(), slot_bytes * (ranks - 1)));
  std::vector<const void*> sources(ranks);
  // Also for an empty array there is one exchange, so that the ranks meet and compare their tags.
  for (int64_t begin = 0; begin == 0 || begin < largest; begin += step) {
    int64_t part_begin = 0;
    std::byte* slot = scratch_.data();
    const int64_t own = std::clamp<int64_t>(counts[self] - begin, 0, step);
    for (size_t r = 0; r < ranks; ++r) {
      const int64_t count = std::clamp<int64_t>(counts[r] - begin, 0, step);
      const std::byte* part = count == 0 ? nullptr : input + (part_begin + begin) * call->element_bytes;
      if (r == self) {
        sources[r] = part;
      } else {
        outgoing_[r] = ConstBytes(part, static_cast<size_t>(count * call->element_bytes));
        incoming_[r] = MutableBytes(slot, static_cast<size_t>(own * call->element_bytes));
        sources[r] = slot;
        slot += slot_bytes;
      }
      part_begin += counts[r];
    }
    LEEWAY_RETURN_IF_ERROR(Exchange(call));
    if (own > 0) TreeReduce(op, call->dtype, sources, own, output + begin * call->element_bytes);
  }
  return absl::OkStatus();
}

absl::Status TransportCommunicator::GatherParts(Call* call, const std::byte* input, absl::Span<const int64_t> counts,
                                                std::byte* output) {
  std::byte* place = output;
  const size_t own_bytes = static_cast<size_t>(counts[static_cast<size_t>(rank())] * call->element_bytes);
  for (size_t r = 0; r < counts.size(); ++r) {
    const size_t part_bytes = static_cast<size_t>(counts[r] * call->element_bytes);
    if (static_cast<int>(r) == rank()) {
      Copy(input, own_bytes, place);
    } else {
      outgoing_[r] = ConstBytes(input, own_bytes);
      incoming_[r] = MutableBytes(place, part_bytes);
    }
    if (part_bytes != 0) place += part_bytes;
  }
  return Exchange(call);
}

absl::Status TransportCommunicator::AllReduce(ReduceOp op, DType dtype, void* data, int64_t count) {
  Call call = Begin(static_cast<uint8_t>(Collective::kAllReduce), dtype, count);
  call.tag.reduce_op = static_cast<uint8_t>(op);
  LEEWAY_RETURN_IF_ERROR(CheckReducible(call));
  const std::vector<int64_t> parts = EvenParts(count, size());
  std::byte* bytes = static_cast<std::byte*>(data);
  std::byte* own = bytes;
  for (int r = 0; r < rank() && bytes != nullptr; ++r) own += parts[static_cast<size_t>(r)] * call.element_bytes;
  LEEWAY_RETURN_IF_ERROR(ReduceParts(&call, op, bytes, parts, own));
  return Finish(call, Collective::kAllReduce, GatherParts(&call, own, parts, bytes));
}

absl::Status TransportCommunicator::ReduceScatter(ReduceOp op, DType dtype, const void* input,
                                                  absl::Span<const int64_t> counts, void* output) {
  Call call = Begin(static_cast<uint8_t>(Collective::kReduceScatter), dtype, Sum(counts));
  call.tag.reduce_op = static_cast<uint8_t>(op);
  call.tag.layout = LayoutHash(counts);
  LEEWAY_RETURN_IF_ERROR(CheckCounts(call, counts, "parts"));
  LEEWAY_RETURN_IF_ERROR(CheckReducible(call));
  return Finish(call, Collective::kReduceScatter,
                ReduceParts(&call, op, static_cast<const std::byte*>(input), counts, static_cast<std::byte*>(output)));
}

absl::Status TransportCommunicator::AllGather(DType dtype, const void* input, absl::Span<const int64_t> counts,
                                              void* output) {
  Call call = Begin(static_cast<uint8_t>(Collective::kAllGather), dtype, Sum(counts));
  call.tag.layout = LayoutHash(counts);
  LEEWAY_RETURN_IF_ERROR(CheckCounts(call, counts, "parts"));
  return Finish(call, Collective::kAllGather,
                GatherParts(&call, static_cast<const std::byte*>(input), counts, static_cast<std::byte*>(output)));
}

absl::Status TransportCommunicator::AllToAll(DType dtype, const void* input, absl::Span<const int64_t> send_counts,
                                             void* output, absl::Span<const int64_t> receive_counts) {
  Call call = Begin(static_cast<uint8_t>(Collective::kAllToAll), dtype, 0);
  LEEWAY_RETURN_IF_ERROR(CheckCounts(call, send_counts, "parts to send"));
  LEEWAY_RETURN_IF_ERROR(CheckCounts(call, receive_counts, "parts to receive"));
  const std::byte* from = static_cast<const std::byte*>(input);
  std::byte* to = static_cast<std::byte*>(output);
  const size_t self = static_cast<size_t>(rank());
  if (send_counts[self] != receive_counts[self]) {
    return Refuse(call,
                  absl::StrCat("sends ", send_counts[self], " elements to itself and expects ", receive_counts[self]));
  }
  for (size_t r = 0; r < send_counts.size(); ++r) {
    const size_t sent = static_cast<size_t>(send_counts[r] * call.element_bytes);
    const size_t received = static_cast<size_t>(receive_counts[r] * call.element_bytes);
    if (r == self) {
      Copy(from, sent, to);
    } else {
      outgoing_[r] = ConstBytes(from, sent);
      incoming_[r] = MutableBytes(to, received);
    }
    if (sent != 0) from += sent;
    if (received != 0) to += received;
  }
  absl::Status status = Exchange(&call);
  call.tag.elements = Sum(send_counts);
  return Finish(call, Collective::kAllToAll, std::move(status));
}

absl::Status TransportCommunicator::Broadcast(DType dtype, void* data, int64_t count, int root) {
  Call call = Begin(static_cast<uint8_t>(Collective::kBroadcast), dtype, count);
  if (count < 0) return Refuse(call, "a negative count");
  LEEWAY_RETURN_IF_ERROR(CheckPeer(call, root));
  call.tag.root = static_cast<int16_t>(root);
  std::byte* bytes = static_cast<std::byte*>(data);
  const size_t size_bytes = static_cast<size_t>(call.array_bytes());
  if (rank() == root) {
    std::fill(outgoing_.begin(), outgoing_.end(), ConstBytes(bytes, size_bytes));
    outgoing_[static_cast<size_t>(root)] = ConstBytes();
  } else {
    incoming_[static_cast<size_t>(root)] = MutableBytes(bytes, size_bytes);
  }
  return Finish(call, Collective::kBroadcast, Exchange(&call));
}

absl::Status TransportCommunicator::Send(DType dtype, const void* data, int64_t count, int peer) {
  Call call = Begin(static_cast<uint8_t>(Collective::kSend), dtype, count);
  if (count < 0) return Refuse(call, "a negative count");
  LEEWAY_RETURN_IF_ERROR(CheckPeer(call, peer));
  if (peer == rank()) return Refuse(call, "a rank does not send to itself");
  call.tag.number = ++sent_[static_cast<size_t>(peer)];
  const ConstBytes message(static_cast<const std::byte*>(data), static_cast<size_t>(call.array_bytes()));
  return Finish(call, Collective::kSend, transport_->Send(call.tag, call.deadline, message, peer));
}

absl::Status TransportCommunicator::Receive(DType dtype, void* data, int64_t count, int peer) {
  Call call = Begin(static_cast<uint8_t>(Collective::kReceive), dtype, count);
  if (count < 0) return Refuse(call, "a negative count");
  LEEWAY_RETURN_IF_ERROR(CheckPeer(call, peer));
  if (peer == rank()) return Refuse(call, "a rank does not receive from itself");
  call.tag.number = ++received_[static_cast<size_t>(peer)];
  const MutableBytes message(static_cast<std::byte*>(data), static_cast<size_t>(call.array_bytes()));
  return Finish(call, Collective::kReceive, transport_->Receive(call.tag, call.deadline, message, peer));
}

absl::Status TransportCommunicator::Barrier() {
  Call call = Begin(static_cast<uint8_t>(Collective::kBarrier), DType::kU8, 0);
  return Finish(call, Collective::kBarrier, Exchange(&call));
}

absl::StatusOr<std::unique_ptr<Communicator>> TransportCommunicator::Split(int color, std::string name) {
  struct Choice {
    int64_t color;
    uint64_t name;
  };
  Call call = Begin(kSplitKind, DType::kU8, 0);
  const size_t self = static_cast<size_t>(rank());
  std::vector<Choice> choices(static_cast<size_t>(size()));
  choices[self] = {color, Hash64(name.data(), name.size())};
  const std::vector<int64_t> parts(choices.size(), sizeof(Choice));
  std::byte* bytes = reinterpret_cast<std::byte*>(choices.data());
  LEEWAY_RETURN_IF_ERROR(GatherParts(&call, bytes + self * sizeof(Choice), parts, bytes));
  std::vector<int> members;
  for (size_t r = 0; r < choices.size(); ++r) {
    if (choices[r].color != color) continue;
    if (choices[r].name != choices[self].name) {
      return Refuse(call, absl::StrCat("rank ", r, " of ", this->name(), " gives color ", color,
                                       " another name than \"", name, "\""));
    }
    members.push_back(static_cast<int>(r));
  }
  auto part = transport_->Split(call.tag, call.deadline, members, std::move(name));
  LEEWAY_RETURN_IF_ERROR(part.status());
  return std::make_unique<TransportCommunicator>(*std::move(part));
}

void TransportCommunicator::Abort(absl::string_view reason) {
  transport_->Fail(AbortError(name(), transport_->root_rank(), reason));
}

CollectiveCounters TransportCommunicator::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace leeway
