// How much of the matrix products' own speed the whole rollout path keeps: sort5 episodes through worker logic, episode
// runner, environments, sampler and engine, against the same products (same shapes, same numbers of rows) alone in a
// loop. Both take turns, best of all turns.
//
//   rollout_engine_benchmark [episodes] [compute threads] [seconds] [environment threads, 0 = inline]        default
//   384 1 5 4

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/executor.h"
#include "base/state_clock.h"
#include "base/status_macros.h"
#include "envs/registry.h"
#include "model/instruction_set.h"
#include "model/kernels/kernels.h"
#include "model/kernels/packed_matrix.h"
#include "model/transformer/transformer.h"
#include "rollout/doorbell.h"
#include "rollout/worker_loop.h"
#include "tokenizer/tokenizer.h"

namespace leeway {
namespace {

ModelShape Shape() {
  ModelShape shape;
  shape.vocabulary = 64;
  shape.hidden = 64;
  shape.layers = 2;
  shape.heads = shape.key_value_heads = 4;
  shape.head_dim = 16;
  shape.intermediate = 176;
  shape.max_positions = 64;
  return shape;
}

// Processor time of the process where one thread computes, so that a loaded machine counts less.
double Now(int threads) {
  timespec now;
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Gives one set of weights, once.
class OneVersion : public WeightSubscriber {
 public:
  explicit OneVersion(const std::vector<float>& values) : values_(values) {}
  void SetIdentity(const v1::WorkerIdentity&) override {}
  std::optional<CommittedWeights> TakeNewer() override {
    if (taken_) return std::nullopt;
    taken_ = true;
    CommittedWeights weights;
    weights.weights.set_lineage(1);
    weights.weights.set_version(1);
    weights.digest = "1";
    weights.total_bytes = values_.size() * sizeof(float);
    weights.bytes =
        std::shared_ptr<const std::byte>(reinterpret_cast<const std::byte*>(values_.data()), [](const std::byte*) {});
    return weights;
  }
  bool WaitForNewer(absl::Duration) override { return false; }
  void NoteCommitted(const v1::WeightsVersion&, const std::string&) override {}
  void ReportSwapped(const v1::WeightsVersion&, absl::Duration) override {}
  bool is_fenced() const override { return false; }
  bool has_abandoned_load() const override { return false; }
  void Shutdown() override {}

 private:
  const std::vector<float>& values_;
  bool taken_ = false;
};

struct Product {
  int64_t depth;
  int64_t outputs;
  int64_t times;
};

// Seconds that the products of one forward pass take by themselves.
class Products {
 public:
  Products(const ModelShape& shape, ParallelFor* parallel) : parallel_(parallel) {
    const int64_t width = shape.heads * shape.head_dim;
    const int64_t both = width + 2 * shape.key_value_heads * shape.head_dim;
    const std::vector<Product> products = {{shape.hidden, both, shape.layers},
                                           {width, shape.hidden, shape.layers},
                                           {shape.hidden, 2 * shape.intermediate, shape.layers},
                                           {shape.intermediate, shape.hidden, shape.layers},
                                           {shape.hidden, shape.vocabulary, 1}};
    for (const Product& product : products) {
      std::vector<float> weights(static_cast<size_t>(product.depth * product.outputs), 0.01f);
      auto packed = std::make_unique<internal::PackedMatrix<float>>(product.outputs, product.depth);
      packed->SetBlock(0, 0, weights.data(), product.depth, product.outputs, product.depth);
      packed_.push_back(std::move(packed));
    }
    products_ = products;
  }

  // `head_rows`: rows whose logits are wanted.
  void Run(int64_t rows, int64_t head_rows) {
    const internal::Kernels<float>& kernels = internal::KernelsFor<float>(ActiveInstructionSet());
    for (size_t i = 0; i < products_.size(); ++i) {
      const internal::PackedMatrix<float>& packed = *packed_[i];
      const int64_t count = i + 1 == products_.size() ? head_rows : rows;
      const int64_t depth = packed.depth();
      if (x_.size() < static_cast<size_t>(count * depth + 16)) x_.resize(static_cast<size_t>(count * depth + 16), 0.5f);
      if (y_.size() < static_cast<size_t>(count * packed.padded_outputs()))
        y_.resize(static_cast<size_t>(count * packed.padded_outputs()));
      for (int64_t time = 0; time < products_[i].times; ++time) {
        parallel_->Run(packed.panels(), 1, [&](int64_t begin, int64_t end) {
          kernels.product(x_.data(), depth, count, packed.data(), depth, 1, begin, end, y_.data(),
                          packed.padded_outputs());
        });
      }
    }
  }
  double Flop(int64_t rows, int64_t head_rows) const {
    double flop = 0;
    for (size_t i = 0; i < products_.size(); ++i) {
      const double count = static_cast<double>(i + 1 == products_.size() ? head_rows : rows);
      flop += 2.0 * count * static_cast<double>(products_[i].depth * products_[i].outputs * products_[i].times);
    }
    return flop;
  }

 private:
  ParallelFor* const parallel_;
  std::vector<Product> products_;
  std::vector<std::unique_ptr<internal::PackedMatrix<float>>> packed_;
  std::vector<float> x_;
  std::vector<float> y_;
};

int Main(int episodes, int threads, double seconds, int environment_threads) {
  TaskOptions task_options;
  task_options.name = "sort5";
  const std::unique_ptr<Task> task = *NewTask(task_options);
  const std::unique_ptr<Tokenizer> tokenizer = *NewTokenizer("character");
  RolloutOptions options;
  options.shape = Shape();
  options.max_episodes = episodes;
  options.token_budget = 8192;
  ParallelFor parallel(threads);
  Transformer<float> transformer(options.shape, &parallel);
  const std::vector<float> values = RandomParameters(options.shape, 1);
  OneVersion subscriber(values);
  Doorbell bell;
  std::unique_ptr<EnvironmentExecutor> executor = std::make_unique<InlineEnvironmentExecutor>();
  if (environment_threads > 0)
    executor = std::make_unique<ThreadedEnvironmentExecutor>(environment_threads, [&bell] { bell.Ring(); });
  StateClock state_clock;
  std::vector<std::pair<v1::EpisodeKey, bool>> pushed;
  WorkerLoop::Dependencies dependencies;
  dependencies.task = task.get();
  dependencies.tokenizer = tokenizer.get();
  dependencies.weights = &subscriber;
  dependencies.executor = executor.get();
  dependencies.transformer = &transformer;
  dependencies.parallel = &parallel;
  dependencies.state_clock = &state_clock;
  dependencies.push = [&](v1::Trajectory trajectory) {
    pushed.emplace_back(trajectory.key(), trajectory.evaluation());
  };
  WorkerLoop loop(options, dependencies);
  Products products(options.shape, &parallel);

  uint64_t ticket = 0;
  double best_engine = 0;
  double best_products = 0;
  int64_t tokens = 0;
  const double end = Now(threads) + seconds;
  double spent = 0;
  while (Now(threads) < end) {
    v1::AcquireTicketsResponse response;
    for (int i = 0; i < episodes / 8; ++i) {
      v1::Ticket* added = response.add_tickets();
      added->set_id(++ticket);
      added->set_issue(1);
      added->set_task("sort5");
      added->set_seed(task->TrainSeed(0, ticket));
      added->mutable_weights()->set_lineage(1);
      added->mutable_weights()->set_version(1);
      for (uint32_t member = 0; member < 8; ++member) added->add_members(member);
    }
    const std::map<std::string, double> before = loop.Gauges();
    int64_t processed = static_cast<int64_t>(before.at("rollout/tokens_processed"));
    int64_t generated = static_cast<int64_t>(before.at("rollout/tokens_generated"));
    const double begin = Now(threads);
    loop.AddTickets(response, loop.weights());
    while (pushed.size() < static_cast<size_t>(episodes)) {
      if (!*loop.Iterate()) bell.Wait(absl::Milliseconds(100));
    }
    v1::PushAnswer answer;
    answer.set_result(v1::ACCEPTED);
    for (const auto& [key, evaluation] : pushed) loop.OnPushAnswered(key, evaluation, answer);
    pushed.clear();
    const double took = Now(threads) - begin;
    const std::map<std::string, double> after = loop.Gauges();
    processed = static_cast<int64_t>(after.at("rollout/tokens_processed")) - processed;
    generated = static_cast<int64_t>(after.at("rollout/tokens_generated")) - generated;
    const int64_t count = static_cast<int64_t>(after.at("rollout/steps") - before.at("rollout/steps"));
    // The first pass is the prefill, the others decode; on average these have so many rows.
    const int64_t decodes = std::max<int64_t>(1, count - 1);
    const int64_t decode_rows = (generated - episodes) / decodes;
    const int64_t prefill_rows = processed - decode_rows * decodes;
    const double flop =
        products.Flop(prefill_rows, episodes) + static_cast<double>(decodes) * products.Flop(decode_rows, decode_rows);
    best_engine = std::max(best_engine, flop / took);
    tokens += generated;
    spent += took;

    const double begin_products = Now(threads);
    products.Run(prefill_rows, episodes);
    for (int64_t i = 0; i < decodes; ++i) products.Run(decode_rows, decode_rows);
    best_products = std::max(best_products, flop / (Now(threads) - begin_products));
  }
  std::printf(
      "%d episodes at once, %d + %d thread(s): engine %.2f GFLOP/s, products alone %.2f GFLOP/s, share %.0f %%; %.0f "
      "sampled tokens/s on average\n",
      episodes, threads, environment_threads, 1e-9 * best_engine, 1e-9 * best_products,
      100 * best_engine / best_products, static_cast<double>(tokens) / spent);
  return 0;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  return leeway::Main(argc > 1 ? std::atoi(argv[1]) : 384, argc > 2 ? std::atoi(argv[2]) : 1,
                      argc > 3 ? std::atof(argv[3]) : 5.0, argc > 4 ? std::atoi(argv[4]) : 4);
}
