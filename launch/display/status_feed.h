#ifndef LEEWAY_LAUNCH_DISPLAY_STATUS_FEED_H_
#define LEEWAY_LAUNCH_DISPLAY_STATUS_FEED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "leeway/v1/queue.pb.h"
#include "queue/queue_grpc_client.h"

namespace leeway {

// Asks the queue for its status again and again on a thread of its own, so that who shows it never blocks on the
// network.
class StatusFeed {
 public:
  // INVALID_ARGUMENT: no such address. The queue need not be up yet.
  static absl::StatusOr<std::unique_ptr<StatusFeed>> Start(const std::string& queue_address,
                                                           const ConnectionSecurity& security = {});
  // Joins the thread.
  ~StatusFeed();

  struct Reading {
    // Rises with every question that was answered or given up; 0 = none yet.
    uint64_t serial = 0;
    // nullopt: the queue did not answer the last time.
    std::optional<v1::StatusResponse> status;
  };
  Reading Latest() const;

 private:
  explicit StatusFeed(std::unique_ptr<GrpcQueueTrainerClient> client);
  void Loop();

  const std::unique_ptr<GrpcQueueTrainerClient> client_;
  mutable Mutex mutex_;
  CondVar changed_;
  Reading latest_ LEEWAY_GUARDED_BY(mutex_);
  bool is_stopped_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_DISPLAY_STATUS_FEED_H_
