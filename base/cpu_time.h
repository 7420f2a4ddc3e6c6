#ifndef LEEWAY_BASE_CPU_TIME_H_
#define LEEWAY_BASE_CPU_TIME_H_

#include <map>
#include <string>

namespace leeway {

// Puts the calling thread into a class (rpc, ledger, compute, env, ...), and names it "lw-<class>", at most 15 bytes. A
// thread that changes its class leaves in the old one what it has used; the main thread begins in "main". Threads that
// libraries make (gRPC's) have no class and count as "rpc".
void SetThreadClass(const std::string& thread_class);

// CPU seconds of this process so far by thread class, ended threads included, and "total", which is their sum.
std::map<std::string, double> CpuSecondsByThreadClass();

}  // namespace leeway

#endif  // LEEWAY_BASE_CPU_TIME_H_
