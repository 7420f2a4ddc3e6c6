#include "launch/roles/task_options.h"

#include "base/status_macros.h"

namespace leeway {

TaskOptions TaskOptionsOf(const Config& config) {
  TaskOptions options;
  options.name = config.GetString("task.name");
  options.latency = config.GetString("task.latency");
  options.faults = config.GetString("task.faults");
  options.file = config.GetString("task.file");
  options.match = config.GetString("task.match");
  options.max_answer_tokens = static_cast<int>(config.GetInteger("task.max_answer_tokens"));
  options.held_out_share = config.GetReal("task.held_out_share");
  return options;
}

ModelShape ShapeOf(const Config& config, int64_t vocabulary) {
  ModelShape shape;
  shape.vocabulary = vocabulary;
  shape.hidden = config.GetInteger("model.hidden");
  shape.layers = config.GetInteger("model.layers");
  shape.heads = config.GetInteger("model.heads");
  shape.key_value_heads = config.GetInteger("model.key_value_heads");
  shape.head_dim = config.GetInteger("model.head_dim");
  shape.intermediate = config.GetInteger("model.intermediate");
  shape.max_positions = config.GetInteger("model.max_positions");
  shape.rope_theta = config.GetReal("model.rope_theta");
  shape.rms_epsilon = config.GetReal("model.rms_epsilon");
  shape.tied_head = config.GetBoolean("model.tied_head");
  LEEWAY_CHECK(ParseModelFamily(config.GetString("model.family"), &shape.family));
  return shape;
}

int64_t LargestTrajectoryBytes(const Task& task, int64_t vocabulary) {
  // Id, log-probability, version run (two numbers of at most 10 bytes, count, framing).
  constexpr int64_t kBytesPerToken = 4 + 4 + 28;
  // Two spans a turn: what was said and what was answered, with framing and a legal set that may name every id.
  const int64_t bytes_per_turn = 128 + 4 * vocabulary;
  constexpr int64_t kEnvelope = 2048;  // key, score parts, failure message
  return kEnvelope + kBytesPerToken * task.max_episode_tokens() + bytes_per_turn * task.max_turns();
}

}  // namespace leeway
