#include "weightsync/transport/fake_receiver_transport.h"

#include <cstring>

#include "base/status_macros.h"

namespace leeway {

class FakeReceiverTransport::Reader : public BucketReader {
 public:
  Reader(FakeReceiverTransport* owner, std::unique_ptr<BucketReader> real) : owner_(owner), real_(std::move(real)) {}

  absl::Status Read(uint64_t offset, absl::Span<std::byte> destination) override {
    bool corrupt = false;
    {
      MutexLock lock(&owner_->mutex_);
      const uint64_t bucket = owner_->next_bucket_++;
      owner_->read_sizes_.push_back(destination.size());
      if (owner_->faults_.fail.count(bucket) > 0) return absl::UnavailableError("injected: the bucket does not come");
      if (owner_->faults_.stall.count(bucket) > 0) {
        ++owner_->stalled_;
        owner_->changed_.NotifyAll();
        while (!is_cancelled_) owner_->changed_.WaitFor(&owner_->mutex_, absl::Seconds(1));
        --owner_->stalled_;
      }
      if (is_cancelled_) return absl::CancelledError("the transfer was cancelled");
      corrupt = owner_->faults_.corrupt.count(bucket) > 0;
    }
    if (real_ != nullptr) {
      LEEWAY_RETURN_IF_ERROR(real_->Read(offset, destination));
    } else {
      LEEWAY_CHECK(offset + destination.size() <= owner_->bytes_.size());
      std::memcpy(destination.data(), owner_->bytes_.data() + offset, destination.size());
    }
    if (corrupt) destination.back() ^= std::byte{0x10};
    return absl::OkStatus();
  }

  void Cancel() override {
    if (real_ != nullptr) real_->Cancel();
    MutexLock lock(&owner_->mutex_);
    is_cancelled_ = true;
    owner_->changed_.NotifyAll();
  }

 private:
  FakeReceiverTransport* const owner_;
  const std::unique_ptr<BucketReader> real_;
  // Guarded by the owner's mutex.
  bool is_cancelled_ = false;
};

absl::StatusOr<std::unique_ptr<BucketReader>> FakeReceiverTransport::Open(const TransferRequest& request) {
  std::unique_ptr<BucketReader> real;
  if (real_ != nullptr) {
    LEEWAY_ASSIGN_OR_RETURN(real, real_->Open(request));
  }
  MutexLock lock(&mutex_);
  ++loads_;
  return std::make_unique<Reader>(this, std::move(real));
}

void FakeReceiverTransport::SetFaults(TransportFaults faults) {
  MutexLock lock(&mutex_);
  faults_ = std::move(faults);
}

uint64_t FakeReceiverTransport::buckets() const {
  MutexLock lock(&mutex_);
  return next_bucket_;
}

uint64_t FakeReceiverTransport::loads() const {
  MutexLock lock(&mutex_);
  return loads_;
}

std::vector<uint64_t> FakeReceiverTransport::read_sizes() const {
  MutexLock lock(&mutex_);
  return read_sizes_;
}

bool FakeReceiverTransport::WaitForStall(absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  MutexLock lock(&mutex_);
  while (stalled_ == 0 && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
  return stalled_ > 0;
}

}  // namespace leeway
