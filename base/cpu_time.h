#ifndef LEEWAY_BASE_CPU_TIME_H_
#define LEEWAY_BASE_CPU_TIME_H_

#include <map>
#include <string>

namespace leeway {

// Names the calling thread's class (rpc, ledger, compute, env, ...): the thread's kernel name becomes "lw-<class>", at
// most 15 bytes. Threads that libraries make (gRPC's) keep their own names and count as "rpc".
void SetThreadClass(const std::string& thread_class);

// CPU seconds of this process so far by thread class, and "total" (which also holds threads that have ended). Reads
// /proc/self/task.
std::map<std::string, double> CpuSecondsByThreadClass();

}  // namespace leeway

#endif  // LEEWAY_BASE_CPU_TIME_H_
