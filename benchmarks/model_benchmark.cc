// Speed of model/: the passes at the size of the shipped configurations, and the matrix product beside libtorch's
// linear.
//
//   model_benchmark                                     everything
//   model_benchmark --benchmark_filter=Product          own product and libtorch's, in turn: compare by ratio
//   model_benchmark --benchmark_filter=Bf16             bf16 weights beside float ones, in turn
//   LEEWAY_BENCHMARK_THREADS=1 model_benchmark          threads for own kernels and libtorch (default 2)
//
// With two threads on two cores set OMP_WAIT_POLICY=passive: libtorch's threads spin after their product and take half
// of the machine from the one that comes next.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/allocator.h"
#include "base/executor.h"
#include "base/status_macros.h"
#include "benchmark/benchmark.h"
#include "model/instruction_set.h"
#include "model/kernels/kernels.h"
#include "model/kernels/packed_matrix.h"
#include "model/random_case.h"
#include "model/transformer/transformer.h"

#ifdef LEEWAY_WITH_TORCH
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#endif

namespace leeway {
namespace {

int Threads() {
  const char* threads = std::getenv("LEEWAY_BENCHMARK_THREADS");
  return threads == nullptr ? 2 : std::max(1, std::atoi(threads));
}

// 384 episodes of 13 tokens, 6 of them scored: one step of the sort5 configuration.
void ScoreAndBackward(benchmark::State& state, bool backward) {
  const ModelShape shape = internal::SmallShape();
  ParallelFor parallel(Threads());
  Transformer<float> model(shape, &parallel);
  model.SetParameters(RandomParameters(shape, 1));
  const PackedSequences sequences = internal::RandomSequences(shape, std::vector<int64_t>(384, 13), 2);
  std::vector<ScoredPosition> positions;
  for (int64_t s = 0; s < sequences.sequence_count(); ++s) {
    for (int64_t row = sequences.starts[s] + 6; row < sequences.starts[s + 1] - 1; ++row) {
      positions.push_back({.row = row, .target = sequences.tokens[row + 1]});
    }
  }
  PositionScores<float> scores;
  const std::vector<float> ones(positions.size(), 1.0f);
  std::vector<float> gradients(static_cast<size_t>(shape.ParameterCount()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.Score(sequences, positions, {}, backward, &scores).ok());
    if (backward) LEEWAY_CHECK(model.Backward(ones, ones, absl::MakeSpan(gradients)).ok());
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(sequences.tokens.size()) * state.iterations(),
                                                  benchmark::Counter::kIsRate);
}
void BM_Score(benchmark::State& state) { ScoreAndBackward(state, false); }
void BM_ScoreAndBackward(benchmark::State& state) { ScoreAndBackward(state, true); }
BENCHMARK(BM_Score)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_ScoreAndBackward)->Unit(benchmark::kMillisecond)->UseRealTime();

// One token for each of `batch` sequences that hold `context` tokens.
void DecodeStep(benchmark::State& state, const ModelShape& shape, int64_t context) {
  const int64_t batch = state.range(0);
  ParallelFor parallel(Threads());
  Transformer<float> model(shape, &parallel);
  model.SetParameters(internal::SpreadParameters<float>(shape, 1));
  std::vector<KeyValueCache<float>> caches;
  std::vector<SequenceChunk<float>> chunks;
  const std::vector<int32_t> prompt(static_cast<size_t>(context), 5);
  const int32_t token = 3;
  std::vector<float> logits;
  for (int64_t i = 0; i < batch; ++i) caches.emplace_back(shape);
  const auto fill = [&](absl::Span<const int32_t> tokens) {
    chunks.clear();
    for (KeyValueCache<float>& cache : caches) chunks.push_back({&cache, tokens, true});
    benchmark::DoNotOptimize(model.Decode(chunks, &logits).ok());
  };
  fill(prompt);
  int64_t position = context;
  for (auto _ : state) {
    if (position + 1 >= shape.max_positions || position >= context + 16) {
      state.PauseTiming();
      for (KeyValueCache<float>& cache : caches) cache.Clear();
      fill(prompt);
      position = context;
      state.ResumeTiming();
    }
    fill(absl::MakeConstSpan(&token, 1));
    ++position;
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(batch) * state.iterations(), benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * static_cast<double>(shape.ParameterCount() * batch) * state.iterations(), benchmark::Counter::kIsRate);
}
void BM_DecodeSmall(benchmark::State& state) { DecodeStep(state, internal::SmallShape(), 8); }
BENCHMARK(BM_DecodeSmall)->Arg(1)->Arg(8)->Arg(64)->Arg(384)->Unit(benchmark::kMicrosecond)->UseRealTime();
void BM_DecodeSmol(benchmark::State& state) { DecodeStep(state, internal::SmolShape(), 128); }
BENCHMARK(BM_DecodeSmol)->Arg(1)->Arg(8)->Arg(32)->Unit(benchmark::kMillisecond)->UseRealTime();

// Packs a whole set of weights, as a worker does at each swap.
void BM_SetParameters(benchmark::State& state) {
  const ModelShape shape = internal::SmallShape();
  ParallelFor parallel(Threads());
  Transformer<float> model(shape, &parallel);
  const std::vector<float> flat = RandomParameters(shape, 1);
  for (auto _ : state) model.SetParameters(flat);
}
BENCHMARK(BM_SetParameters)->Unit(benchmark::kMicrosecond)->UseRealTime();

struct ProductShape {
  int64_t depth;
  int64_t outputs;
};
constexpr ProductShape kProducts[] = {{64, 192}, {576, 1536}, {1536, 576}, {576, 49152}};
constexpr int64_t kRowCounts[] = {1, 8, 32, 64, 128, 256, 2048};

// Wall time; processor time of this thread where there is only one, so that a loaded machine counts less.
double Now() {
  timespec now;
  clock_gettime(Threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Body>
double Seconds(const Body& body) {
  const double begin = Now();
  body();
  return Now() - begin;
}

// Own product and libtorch's linear taking turns, so that both see the same machine. Reported: GFLOP/s of the fastest
// turn of each, and their ratio.
void BM_Product(benchmark::State& state) {
  const ProductShape shape = kProducts[state.range(0)];
  const int64_t rows = state.range(1);
  ParallelFor parallel(Threads());
  std::vector<float> weights(static_cast<size_t>(shape.depth * shape.outputs), 0.01f);
  std::vector<float> x(static_cast<size_t>(rows * shape.depth + 16), 0.5f);
  std::vector<float> y(static_cast<size_t>(rows * shape.outputs));
  internal::PackedMatrix<float> packed(shape.outputs, shape.depth);
  packed.SetBlock(0, 0, weights.data(), shape.depth, shape.outputs, shape.depth);
  const internal::Kernels<float>& kernels = internal::KernelsFor<float>(ActiveInstructionSet());
  const double flop = 2.0 * static_cast<double>(rows * shape.depth * shape.outputs);
  const int64_t repeats = std::max<int64_t>(1, static_cast<int64_t>(2e7 / flop));
  const auto own = [&] {
    for (int64_t i = 0; i < repeats; ++i) {
      parallel.Run(packed.panels(), static_cast<int64_t>(1e5 / flop * packed.panels()) + 1,
                   [&](int64_t begin, int64_t end) {
                     kernels.product(x.data(), shape.depth, rows, packed.data(), shape.depth, 1, begin, end, y.data(),
                                     shape.outputs);
                   });
    }
  };
  double best_own = 1e30;
#ifdef LEEWAY_WITH_TORCH
  const at::NoGradGuard no_grad;
  const at::Tensor left = at::from_blob(x.data(), {rows, shape.depth});
  const at::Tensor right = at::from_blob(weights.data(), {shape.outputs, shape.depth});
  const auto torch = [&] {
    for (int64_t i = 0; i < repeats; ++i) benchmark::DoNotOptimize(at::linear(left, right).data_ptr());
  };
  double best_torch = 1e30;
  torch();
#endif
  own();
  for (auto _ : state) {
    best_own = std::min(best_own, Seconds(own));
#ifdef LEEWAY_WITH_TORCH
    best_torch = std::min(best_torch, Seconds(torch));
#endif
  }
  state.counters["own_GFLOP/s"] = 1e-9 * flop * static_cast<double>(repeats) / best_own;
#ifdef LEEWAY_WITH_TORCH
  state.counters["torch_GFLOP/s"] = 1e-9 * flop * static_cast<double>(repeats) / best_torch;
  state.counters["ratio"] = best_torch / best_own;
#endif
}
BENCHMARK(BM_Product)
    ->Apply([](benchmark::internal::Benchmark* b) {
      for (int64_t shape = 0; shape < 4; ++shape) {
        for (const int64_t rows : kRowCounts) b->Args({shape, rows});
      }
    })
    ->ArgNames({"shape", "M"})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// --- bf16 weights beside float ones, in turn, on the same rounded values. ratio = time of float / time of bf16, of the
// fastest turn of each.

template <typename First, typename Second>
void TakeTurns(benchmark::State& state, const First& of_float, const Second& of_bf16) {
  double best_float = 1e30, best_bf16 = 1e30;
  of_float();
  of_bf16();
  for (auto _ : state) {
    best_float = std::min(best_float, Seconds(of_float));
    best_bf16 = std::min(best_bf16, Seconds(of_bf16));
  }
  state.counters["float_ms"] = 1e3 * best_float;
  state.counters["bf16_ms"] = 1e3 * best_bf16;
  state.counters["ratio"] = best_float / best_bf16;
}

// A product with one matrix after the other of a model's layers, as a pass has it: 64 MiB of them as floats, at
// most 30.
void BM_ProductBf16(benchmark::State& state) {
  const ProductShape shape = kProducts[state.range(0)];
  const int64_t rows = state.range(1);
  ParallelFor parallel(Threads());
  const std::vector<float> weights(static_cast<size_t>(shape.depth * shape.outputs), 0.01f);
  const std::vector<float> x(static_cast<size_t>(rows * shape.depth + 16), 0.5f);
  std::vector<float> y(static_cast<size_t>(rows * shape.outputs));
  const int64_t layers = std::clamp<int64_t>((16 << 20) / (shape.depth * shape.outputs), 1, 30);
  const auto pack = [&](WeightFormat format) {
    std::vector<internal::PackedMatrix<float>> matrices;
    for (int64_t i = 0; i < layers; ++i) {
      matrices.emplace_back(shape.outputs, shape.depth, format);
      matrices.back().SetBlock(0, 0, weights.data(), shape.depth, shape.outputs, shape.depth);
    }
    return matrices;
  };
  const internal::Kernels<float>& kernels = internal::KernelsFor<float>(ActiveInstructionSet());
  const auto run = [&](const std::vector<internal::PackedMatrix<float>>& matrices) {
    for (const internal::PackedMatrix<float>& matrix : matrices) {
      parallel.Run(matrix.panels(), 4, [&](int64_t begin, int64_t end) {
        matrix.Product(kernels, x.data(), shape.depth, rows, 1, begin, end, y.data());
      });
    }
  };
  const auto floats = pack(WeightFormat::kRoundedReal), bf16 = pack(WeightFormat::kBf16);
  TakeTurns(
      state, [&] { run(floats); }, [&] { run(bf16); });
}
BENCHMARK(BM_ProductBf16)
    ->Apply([](benchmark::internal::Benchmark* b) {
      for (int64_t shape = 0; shape < 4; ++shape) {
        for (const int64_t rows : {1, 8, 32, 256, 2048}) b->Args({shape, rows});
      }
    })
    ->ArgNames({"shape", "M"})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A token for each of M sequences at SmolLM2-135M's shape.
void BM_DecodeBf16(benchmark::State& state) {
  const ModelShape shape = internal::SmolShape();
  ParallelFor parallel(Threads());
  const std::vector<float> flat = internal::SpreadParameters<float>(shape, 1);
  const auto decode = [&](WeightFormat format) {
    auto model = std::make_shared<Transformer<float>>(shape, &parallel, TransformerOptions{.weights = format});
    model->SetParameters(flat);
    return [&, model] {
      const int32_t token = 3;
      std::vector<KeyValueCache<float>> caches;
      std::vector<SequenceChunk<float>> chunks;
      for (int64_t i = 0; i < state.range(0); ++i) caches.emplace_back(shape);
      for (KeyValueCache<float>& cache : caches) chunks.push_back({&cache, absl::MakeConstSpan(&token, 1), true});
      std::vector<float> logits;
      for (int i = 0; i < 4; ++i) LEEWAY_CHECK(model->Decode(chunks, &logits).ok());
    };
  };
  TakeTurns(state, decode(WeightFormat::kRoundedReal), decode(WeightFormat::kBf16));
}
BENCHMARK(BM_DecodeBf16)->Arg(1)->Arg(8)->Arg(32)->ArgName("M")->Unit(benchmark::kMillisecond)->UseRealTime();

// Score and Backward at SmolLM2-135M's shape, M rows in sequences of at most 128.
void BM_TrainPassBf16(benchmark::State& state) {
  const ModelShape shape = internal::SmolShape();
  const int64_t rows = state.range(0);
  ParallelFor parallel(Threads());
  const std::vector<float> flat = internal::SpreadParameters<float>(shape, 1);
  std::vector<int64_t> lengths;
  for (int64_t left = rows; left > 0; left -= lengths.back()) lengths.push_back(std::min<int64_t>(left, 128));
  const PackedSequences sequences = internal::RandomSequences(shape, lengths, 2);
  const std::vector<ScoredPosition> positions = internal::NextTokenPositions(sequences);
  const std::vector<float> ones(positions.size(), 1.0f);
  std::vector<float> gradients(flat.size());
  const auto pass = [&](WeightFormat format) {
    auto model = std::make_shared<Transformer<float>>(shape, &parallel, TransformerOptions{.weights = format});
    model->SetParameters(flat);
    return [&, model] {
      PositionScores<float> scores;
      LEEWAY_CHECK(model->Score(sequences, positions, {}, true, &scores).ok());
      LEEWAY_CHECK(model->Backward(ones, ones, absl::MakeSpan(gradients)).ok());
    };
  };
  TakeTurns(state, pass(WeightFormat::kRoundedReal), pass(WeightFormat::kBf16));
}
BENCHMARK(BM_TrainPassBf16)
    ->Arg(32)
    ->Arg(256)
    ->Arg(2048)
    ->ArgName("M")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(4);

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  leeway::PrepareAllocator();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
#ifdef LEEWAY_WITH_TORCH
  at::set_num_threads(leeway::Threads());
#endif
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
