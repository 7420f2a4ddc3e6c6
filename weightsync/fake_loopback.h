#ifndef LEEWAY_WEIGHTSYNC_FAKE_LOOPBACK_H_
#define LEEWAY_WEIGHTSYNC_FAKE_LOOPBACK_H_

// What the tests over real gRPC share: a small model, and a receiver that checks everything it is handed by digest.
// Tests only.

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "gtest/gtest.h"
#include "weightsync/manifest.h"
#include "weightsync/transport/fake_receiver_transport.h"
#include "weightsync/weight_client.h"
#include "weightsync/weight_service.h"

namespace leeway {

// Generous: machines under sanitizers are slow. Nothing below waits so long when all is well.
inline constexpr absl::Duration kLong = absl::Seconds(20);

inline v1::WeightsVersion Version(uint64_t lineage, uint64_t version) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

inline v1::WorkerIdentity Identity(uint64_t producer, uint64_t epoch) {
  v1::WorkerIdentity identity;
  identity.set_producer_id(producer);
  identity.set_epoch(epoch);
  return identity;
}

// A model's worth of bytes whose content depends on `seed`, as tensors of odd shapes, one of them empty.
class LoopbackModel {
 public:
  explicit LoopbackModel(uint64_t seed) : bytes_(kBytes) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (std::byte& byte : bytes_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::byte>(state >> 56);
    }
  }
  std::vector<TensorView> Views() const {
    const absl::Span<const std::byte> all(bytes_);
    return {{"embed", {17, 5}, "F32", all.subspan(0, 340)},
            {"empty", {0, 7}, "F32", {}},
            {"odd", {3}, "BF16", all.subspan(340, 6)},
            {"large", {20000}, "U8", all.subspan(346, 20000)}};
  }
  std::string digest() const { return Digest128(bytes_.data(), bytes_.size()); }
  static v1::Manifest Layout() { return *MakeLayout(LoopbackModel(0).Views()); }

 private:
  static constexpr size_t kBytes = 20346;
  std::vector<std::byte> bytes_;
};

inline std::string SocketAddress() {
  static std::atomic<int> serial{0};
  return absl::StrCat("unix:/tmp/leeway_weights_", getpid(), "_", serial++, ".sock");
}

inline GrpcWeightPublisher::Options LoopbackPublisherOptions() {
  GrpcWeightPublisher::Options options;
  options.address = SocketAddress();
  options.run_name = "loopback test";
  options.bucket_bytes = 1000;  // 21 buckets a model
  options.heartbeat_interval = absl::Milliseconds(50);
  return options;
}

// A receiver and what it took out, with its transport's fault injection.
class LoopbackReceiver {
 public:
  LoopbackReceiver(const std::string& address, const std::string& transport, uint64_t producer,
                   const v1::Manifest& expected = LoopbackModel::Layout())
      : producer_(producer) {
    GrpcWeightSubscriber::Options options;
    options.publisher_address = address;
    options.name = absl::StrCat("rollout-", producer);
    options.expected = expected;
    options.transport = transport;
    options.initial_backoff = absl::Milliseconds(5);
    options.max_backoff = absl::Milliseconds(50);
    auto made = GrpcWeightSubscriber::Create(options);
    EXPECT_TRUE(made.ok()) << made.status();
    subscriber_ = *std::move(made);
    subscriber_->WrapTransportForTest([this](std::unique_ptr<ReceiverTransport> real) {
      auto wrapped = std::make_unique<FakeReceiverTransport>(std::move(real));
      transport_ = wrapped.get();
      return wrapped;
    });
    subscriber_->SetIdentity(Identity(producer, epoch_));
  }

  // Takes versions until `weights`, checking every one by its digest against `committed`; true when `weights` came.
  bool Reach(const v1::WeightsVersion& weights, const std::map<std::pair<uint64_t, uint64_t>, std::string>& committed,
             absl::Duration timeout = kLong) {
    const Deadline deadline = Deadline::After(timeout);
    while (!IsSameVersion(held_.weights, weights) && !deadline.HasPassed()) {
      if (!subscriber_->WaitForNewer(deadline.Remaining())) break;
      Take(committed);
    }
    return IsSameVersion(held_.weights, weights);
  }
  void Take(const std::map<std::pair<uint64_t, uint64_t>, std::string>& committed) {
    std::optional<CommittedWeights> newer = subscriber_->TakeNewer();
    if (!newer.has_value()) return;
    EXPECT_TRUE(held_.bytes == nullptr || IsNewerVersion(newer->weights, held_.weights));
    const auto found = committed.find({newer->weights.lineage(), newer->weights.version()});
    ASSERT_NE(found, committed.end()) << VersionName(newer->weights) << " was handed out but never committed";
    EXPECT_EQ(found->second, newer->digest);
    EXPECT_EQ(Digest128(newer->bytes.get(), newer->total_bytes), newer->digest);
    held_ = *std::move(newer);
    subscriber_->ReportSwapped(held_.weights, absl::Milliseconds(1));
  }
  // As the worker does it when it is fenced.
  void RegisterAgain() { subscriber_->SetIdentity(Identity(producer_, ++epoch_)); }
  void Kill() { subscriber_.reset(); }
  v1::WorkerIdentity identity() const { return Identity(producer_, epoch_); }
  GrpcWeightSubscriber* subscriber() { return subscriber_.get(); }
  FakeReceiverTransport* transport() { return transport_; }
  const CommittedWeights& held() const { return held_; }

 private:
  const uint64_t producer_;
  uint64_t epoch_ = 1;
  std::unique_ptr<GrpcWeightSubscriber> subscriber_;
  FakeReceiverTransport* transport_ = nullptr;
  CommittedWeights held_;
};

template <class Condition>
bool Eventually(Condition condition, absl::Duration timeout = kLong) {
  const Deadline deadline = Deadline::After(timeout);
  while (!condition()) {
    if (deadline.HasPassed()) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_FAKE_LOOPBACK_H_
