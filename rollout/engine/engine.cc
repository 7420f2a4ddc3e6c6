#include "rollout/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

enum class Phase { kClosed, kIdle, kWaiting, kRunning };

// Sampling is split over threads from so many rows a thread on.
constexpr int64_t kRowsPerThread = 32;

}  // namespace

absl::StatusOr<UpdateMode> ParseUpdateMode(const std::string& name) {
  if (name == "finish") return UpdateMode::kFinish;
  if (name == "keep") return UpdateMode::kKeep;
  if (name == "recompute") return UpdateMode::kRecompute;
  if (name == "restart") return UpdateMode::kRestart;
  return absl::InvalidArgumentError(
      absl::StrCat("update mode: expected finish, keep, recompute or restart, got \"", name, "\""));
}

struct Engine::State {
  struct Episode {
    explicit Episode(const ModelShape& shape) : cache(shape) {}

    EpisodeHandle handle = 0;
    Phase phase = Phase::kClosed;
    EpisodeIdentity identity;
    uint32_t interaction = 0;  // turns started before the current one
    std::vector<int32_t> ids;
    KeyValueCache<float> cache;  // of the first cache.length() ids
    uint64_t cache_epoch = 0;    // byte state of the weights that filled it last
    bool is_mixed = false;       // filled by more than one (mode keep)

    // The current or last turn: sampled ids are ids[turn_begin ..].
    TurnRequest request;
    size_t turn_begin = 0;
    std::vector<float> logprobs;
    std::vector<TokenRun> runs;
    v1::StopReason stop = v1::STOP_REASON_UNSPECIFIED;
    absl::Status status;
  };

  State(const EngineOptions& options, Transformer<float>* transformer, ParallelFor* parallel)
      : options(options), transformer(transformer), parallel(parallel), shape(transformer->shape()) {
    const double head_width = static_cast<double>(shape.heads * shape.head_dim);
    const double key_value_width = static_cast<double>(shape.key_value_heads * shape.head_dim);
    const double hidden = static_cast<double>(shape.hidden);
    layer_flops =
        2.0 * static_cast<double>(shape.layers) *
        (hidden * (2 * head_width + 2 * key_value_width) + 3.0 * hidden * static_cast<double>(shape.intermediate));
    attention_flops = 4.0 * static_cast<double>(shape.layers) * head_width;
    head_flops = 2.0 * hidden * static_cast<double>(shape.vocabulary);
    scratch.resize(static_cast<size_t>(parallel->threads()));
    for (std::vector<float>& row : scratch) row.resize(static_cast<size_t>(shape.vocabulary));
  }

  Episode* Get(EpisodeHandle handle) const {
    const size_t index = static_cast<size_t>(handle & 0xffffffffu);
    LEEWAY_CHECK(index < slots.size() && slots[index]->handle == handle && slots[index]->phase != Phase::kClosed)
        << "episode handle " << handle << " is not open";
    return slots[index].get();
  }

  bool admits() const { return !(draining && options.update_mode == UpdateMode::kFinish); }

  // Brings the cache to the current weights (or accepts the older ones) and returns the ids not yet in it.
  int64_t Pending(Episode* episode) {
    if (episode->cache_epoch != epoch) {
      if (episode->cache.length() > 0) {
        if (options.update_mode == UpdateMode::kKeep) {
          episode->is_mixed = true;
        } else {
          counters.tokens_recomputed += episode->cache.length();
          episode->cache.Clear();
        }
      }
      episode->cache_epoch = epoch;
    }
    return static_cast<int64_t>(episode->ids.size()) - episode->cache.length();
  }

  void AddChunk(Episode* episode, int64_t pending, int64_t take) {
    const int64_t held = episode->cache.length();
    const bool is_whole = take == pending;
    chunks.push_back({&episode->cache,
                      absl::MakeConstSpan(episode->ids).subspan(static_cast<size_t>(held), static_cast<size_t>(take)),
                      is_whole});
    if (is_whole) rows.push_back(episode);
    counters.tokens_processed += take;
    const double count = static_cast<double>(take);
    counters.flops += count * layer_flops + attention_flops * count * (static_cast<double>(held) + (count + 1) / 2) +
                      (is_whole ? head_flops : 0.0);
  }

  void PlanStep();
  void SampleRows();
  void Accept(Episode* episode, const SampledToken& token, std::vector<FinishedTurn>* finished);
  void EndTurn(Episode* episode, v1::StopReason stop, absl::Status status, std::vector<FinishedTurn>* finished);

  const EngineOptions options;
  Transformer<float>* const transformer;
  ParallelFor* const parallel;
  const ModelShape shape;
  double layer_flops = 0;      // per token
  double attention_flops = 0;  // per token and position attended to
  double head_flops = 0;       // per row of logits

  WeightsId weights;
  uint64_t epoch = 0;  // counts changes of bytes; 0 = no weights yet
  bool draining = false;

  std::vector<std::unique_ptr<Episode>> slots;
  std::vector<uint32_t> free_slots;
  uint64_t next_generation = 1;
  std::deque<Episode*> waiting;
  std::vector<Episode*> running;  // in order of admission

  // Of the current step; kept to reuse the memory.
  std::vector<SequenceChunk<float>> chunks;
  std::vector<Episode*> rows;  // who gets which row of logits
  std::vector<std::pair<Episode*, int64_t>> prefills;
  std::vector<float> logits;
  std::vector<SampledToken> sampled;
  std::vector<std::vector<float>> scratch;  // per thread

  EngineCounters counters;
};

void Engine::State::PlanStep() {
  chunks.clear();
  rows.clear();
  prefills.clear();
  for (Episode* episode : running) {
    const int64_t pending = Pending(episode);
    if (pending == 1) {
      AddChunk(episode, 1, 1);
    } else {
      prefills.emplace_back(episode, pending);
    }
  }
  // Many decodes must not starve prefills for ever.
  int64_t budget = std::max<int64_t>(options.token_budget - static_cast<int64_t>(chunks.size()),
                                     std::max<int64_t>(1, options.token_budget / 8));
  for (const auto& [episode, pending] : prefills) {
    if (budget == 0) break;
    const int64_t take = std::min(pending, budget);
    AddChunk(episode, pending, take);
    budget -= take;
  }
  while (budget > 0 && !waiting.empty() && admits()) {
    Episode* episode = waiting.front();
    waiting.pop_front();
    episode->phase = Phase::kRunning;
    running.push_back(episode);
    const int64_t pending = Pending(episode);
    const int64_t take = std::min(pending, budget);
    AddChunk(episode, pending, take);
    budget -= take;
  }
}

void Engine::State::SampleRows() {
  const size_t vocabulary = static_cast<size_t>(shape.vocabulary);
  const int64_t count = static_cast<int64_t>(rows.size());
  sampled.resize(rows.size());
  const int64_t workers = std::clamp<int64_t>(count / kRowsPerThread, 1, static_cast<int64_t>(scratch.size()));
  parallel->Run(workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      const int64_t end = (worker + 1) * count / workers;
      for (int64_t row = worker * count / workers; row < end; ++row) {
        const Episode& episode = *rows[static_cast<size_t>(row)];
        RandomKey key;
        key.seed = options.seed;
        key.purpose = episode.identity.purpose;
        key.ticket = episode.identity.ticket;
        key.member = episode.identity.member;
        key.interaction = episode.interaction;
        key.position = episode.logprobs.size();
        absl::Span<const int32_t> legal;
        if (episode.request.legal_ids != nullptr) legal = *episode.request.legal_ids;
        sampled[static_cast<size_t>(row)] = SampleToken(
            absl::MakeSpan(logits).subspan(static_cast<size_t>(row) * vocabulary, vocabulary), episode.request.sampling,
            legal, RandomUniform(key), absl::MakeSpan(scratch[static_cast<size_t>(worker)]));
      }
    }
  });
}

void Engine::State::EndTurn(Episode* episode, v1::StopReason stop, absl::Status status,
                            std::vector<FinishedTurn>* finished) {
  episode->phase = Phase::kIdle;
  episode->stop = stop;
  episode->status = status;
  ++episode->interaction;
  FinishedTurn turn;
  turn.episode = episode->handle;
  turn.status = std::move(status);
  turn.ids = absl::MakeConstSpan(episode->ids).subspan(episode->turn_begin);
  turn.logprobs = episode->logprobs;
  turn.versions = episode->runs;
  turn.stop = stop;
  turn.kv_cache_consistent = !episode->is_mixed;
  finished->push_back(std::move(turn));
}

void Engine::State::Accept(Episode* episode, const SampledToken& token, std::vector<FinishedTurn>* finished) {
  if (token.id < 0 || !std::isfinite(token.logprob)) {
    EndTurn(episode, v1::STOP_REASON_UNSPECIFIED,
            absl::InternalError(absl::StrCat("the logits after ", episode->ids.size(),
                                             " ids are not finite under weights (", weights.lineage, ", ",
                                             weights.version, ")")),
            finished);
    return;
  }
  episode->ids.push_back(token.id);
  episode->logprobs.push_back(token.logprob);
  if (episode->runs.empty() || !(episode->runs.back().weights == weights)) episode->runs.push_back({weights, 0});
  ++episode->runs.back().count;
  ++counters.tokens_generated;
  if (token.id == options.end_of_text && episode->request.stop_at_end_of_text) {
    EndTurn(episode, v1::END_OF_TEXT, absl::OkStatus(), finished);
  } else if (static_cast<int32_t>(episode->logprobs.size()) >= episode->request.max_new_tokens) {
    EndTurn(episode, v1::LENGTH, absl::OkStatus(), finished);
  } else if (static_cast<int64_t>(episode->ids.size()) >= shape.max_positions) {
    EndTurn(episode, v1::CONTEXT_FULL, absl::OkStatus(), finished);
  }
}

Engine::Engine(const EngineOptions& options, Transformer<float>* transformer, ParallelFor* parallel)
    : state_(std::make_unique<State>(options, transformer, parallel)) {}
Engine::~Engine() = default;

WeightsId Engine::weights() const { return state_->weights; }
void Engine::SetSwapRequested(bool is_requested) { state_->draining = is_requested; }
bool Engine::ready_to_swap() const {
  return state_->options.update_mode != UpdateMode::kFinish || state_->running.empty();
}

absl::Status Engine::Swap(WeightsId weights, const WeightSpan<float>& parameters, bool same_bytes) {
  LEEWAY_CHECK(ready_to_swap()) << state_->running.size() << " turns run";
  LEEWAY_CHECK(!same_bytes || state_->epoch > 0) << "the first weights cannot be a relabel";
  if (!same_bytes) {
    if (parameters.size() != state_->shape.ParameterCount()) {
      return absl::InvalidArgumentError(absl::StrCat("weights (", weights.lineage, ", ", weights.version, ") have ",
                                                     parameters.size(), " parameters, the configured model has ",
                                                     state_->shape.ParameterCount()));
    }
    state_->transformer->SetParameters(parameters);
    ++state_->epoch;
    if (state_->options.update_mode == UpdateMode::kRestart) {
      for (State::Episode* episode : state_->running) {
        state_->counters.tokens_discarded += static_cast<int64_t>(episode->logprobs.size());
        episode->ids.resize(episode->turn_begin);
        episode->logprobs.clear();
        episode->runs.clear();
      }
    }
  }
  state_->weights = weights;
  state_->draining = false;
  ++state_->counters.swaps;
  return absl::OkStatus();
}

EpisodeHandle Engine::OpenEpisode(const EpisodeIdentity& identity) {
  State& state = *state_;
  if (state.free_slots.empty()) {
    state.free_slots.push_back(static_cast<uint32_t>(state.slots.size()));
    state.slots.push_back(std::make_unique<State::Episode>(state.shape));
  }
  const uint32_t index = state.free_slots.back();
  state.free_slots.pop_back();
  State::Episode& episode = *state.slots[index];
  episode.handle = (state.next_generation++ << 32) | index;
  episode.phase = Phase::kIdle;
  episode.identity = identity;
  episode.interaction = 0;
  episode.ids.clear();
  episode.cache.Clear();
  episode.cache_epoch = state.epoch;
  episode.is_mixed = false;
  episode.turn_begin = 0;
  episode.logprobs.clear();
  episode.runs.clear();
  return episode.handle;
}

absl::Status Engine::StartTurn(EpisodeHandle handle, absl::Span<const int32_t> new_ids, const TurnRequest& request) {
  State& state = *state_;
  State::Episode& episode = *state.Get(handle);
  LEEWAY_CHECK(episode.phase == Phase::kIdle) << "a turn of this episode is under way";
  LEEWAY_RETURN_IF_ERROR(request.sampling.Validate(/*training=*/episode.identity.purpose == RandomPurpose::kSampling));
  if (request.max_new_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a turn needs room for at least one token, got max_new_tokens = ", request.max_new_tokens));
  }
  for (const int32_t id : new_ids) {
    if (id < 0 || id >= state.shape.vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " is not in the vocabulary of ", state.shape.vocabulary));
    }
  }
  if (request.legal_ids != nullptr) {
    int32_t previous = -1;
    for (const int32_t id : *request.legal_ids) {
      if (id <= previous || id >= state.shape.vocabulary) {
        return absl::InvalidArgumentError(absl::StrCat("legal ids must ascend strictly and be below ",
                                                       state.shape.vocabulary, ": ", id, " follows ", previous));
      }
      previous = id;
    }
  }
  const int64_t length = static_cast<int64_t>(episode.ids.size() + new_ids.size());
  if (length == 0) return absl::InvalidArgumentError("a turn needs at least one id before it");
  if (length >= state.shape.max_positions) {
    return absl::OutOfRangeError(absl::StrCat("the context holds ", state.shape.max_positions, " ids; the episode has ",
                                              episode.ids.size(), " and ", new_ids.size(),
                                              " new ones, and the answer needs at least one"));
  }
  episode.ids.insert(episode.ids.end(), new_ids.begin(), new_ids.end());
  episode.turn_begin = episode.ids.size();
  episode.request = request;
  episode.logprobs.clear();
  episode.runs.clear();
  episode.phase = Phase::kWaiting;
  state.waiting.push_back(&episode);
  return absl::OkStatus();
}

void Engine::Close(EpisodeHandle handle) {
  State& state = *state_;
  State::Episode& episode = *state.Get(handle);
  if (episode.phase == Phase::kWaiting) {
    state.waiting.erase(std::find(state.waiting.begin(), state.waiting.end(), &episode));
  } else if (episode.phase == Phase::kRunning) {
    state.counters.tokens_discarded += static_cast<int64_t>(episode.logprobs.size());
    state.running.erase(std::find(state.running.begin(), state.running.end(), &episode));
  }
  episode.phase = Phase::kClosed;
  episode.request.legal_ids.reset();
  state.free_slots.push_back(static_cast<uint32_t>(handle & 0xffffffffu));
}

absl::Span<const int32_t> Engine::ids(EpisodeHandle episode) const { return state_->Get(episode)->ids; }

bool Engine::runnable() const {
  return state_->epoch > 0 && (!state_->running.empty() || (!state_->waiting.empty() && state_->admits()));
}

absl::Status Engine::Step(std::vector<FinishedTurn>* finished) {
  finished->clear();
  if (!runnable()) return absl::OkStatus();
  State& state = *state_;
  state.PlanStep();
  if (absl::Status status = state.transformer->Decode(state.chunks, &state.logits); !status.ok()) {
    return absl::InternalError(
        absl::StrCat("forward pass of ", state.chunks.size(), " sequences: ", std::string(status.message())));
  }
  ++state.counters.steps;
  if (state.rows.empty()) return absl::OkStatus();
  state.SampleRows();
  for (size_t row = 0; row < state.rows.size(); ++row) state.Accept(state.rows[row], state.sampled[row], finished);
  if (!finished->empty()) {
    std::erase_if(state.running, [](const State::Episode* episode) { return episode->phase != Phase::kRunning; });
  }
  return absl::OkStatus();
}

int Engine::open_episodes() const { return static_cast<int>(state_->slots.size() - state_->free_slots.size()); }
int Engine::running_turns() const { return static_cast<int>(state_->running.size()); }
int Engine::waiting_turns() const { return static_cast<int>(state_->waiting.size()); }
const EngineCounters& Engine::counters() const { return state_->counters; }
const ModelShape& Engine::shape() const { return state_->shape; }

}  // namespace leeway
