#ifndef LEEWAY_QUEUE_QUEUE_SERVICE_H_
#define LEEWAY_QUEUE_QUEUE_SERVICE_H_

#include <functional>
#include <memory>

#include "leeway/v1/queue.pb.h"
#include "queue/queue_frontend.h"

namespace grpc {
class Service;
}

namespace leeway {

// The Queue service of proto/leeway/v1/queue.proto over a QueueFrontend: translates, keeps nothing.
//
// Threads: gRPC's callback threads, which never block here (but for a short file write of AllocateLineage and of the
// quarantine). Long polls hold no thread. Cancelled calls end at once and give nothing out. `frontend` must outlive the
// server that runs the service. `fill_report` completes a Status answer with the process's own report.
std::unique_ptr<grpc::Service> MakeQueueService(QueueFrontend* frontend,
                                                std::function<void(v1::ProcessReport*)> fill_report);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_QUEUE_SERVICE_H_
