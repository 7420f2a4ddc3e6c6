#ifndef LEEWAY_BASE_LOGGING_H_
#define LEEWAY_BASE_LOGGING_H_

// Process log over spdlog: one line an event, wall time, role, level. Call LogInit once in main; before that, lines go
// to stderr.
//
//   LEEWAY_LOG_INFO("swapped to version {} in {:.1f} ms", version, milliseconds);

#include <string>

#include "spdlog/spdlog.h"

namespace leeway {

// Log into `path` (appended, flushed at every warning and each second) under the name `role`; empty path = stderr.
void LogInit(const std::string& role, const std::string& path);

}  // namespace leeway

#define LEEWAY_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LEEWAY_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LEEWAY_LOG_WARNING(...) ::spdlog::warn(__VA_ARGS__)
#define LEEWAY_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)

#endif  // LEEWAY_BASE_LOGGING_H_
