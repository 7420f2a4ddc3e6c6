#include "base/logging.h"

#include <memory>

#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace leeway {

void LogInit(const std::string& role, const std::string& path) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (path.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
  }
  auto logger = std::make_shared<spdlog::logger>(role, std::move(sink));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %l: %v");
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
  spdlog::flush_every(std::chrono::seconds(1));
}

}  // namespace leeway
