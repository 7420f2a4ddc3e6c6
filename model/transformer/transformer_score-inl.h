// The head, and log-probabilities of packed sequences. Included by transformer.cc only.

#ifndef LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_SCORE_INL_H_
#define LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_SCORE_INL_H_

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/transformer/transformer_state.h"

namespace leeway {
namespace internal {

// Logits that exist at once, in Reals. A step of so many need not compute them twice.
constexpr int64_t kLogitsAtOnce = int64_t{24} << 20;
// Rows that a head product needs to be efficient.
constexpr int64_t kMinimumHeadChunk = 128;

// INVALID_ARGUMENT naming what is wrong with the arguments of Score.
inline absl::Status CheckScoreArguments(const ModelShape& shape, const PackedSequences& sequences,
                                        absl::Span<const ScoredPosition> positions,
                                        absl::Span<const std::vector<int32_t>> legal_sets) {
  const int64_t row_count = static_cast<int64_t>(sequences.tokens.size());
  if (sequences.starts.empty() || sequences.starts.front() != 0 || sequences.starts.back() != row_count) {
    return absl::InvalidArgumentError(absl::StrCat("starts must run from 0 to the number of tokens, ", row_count));
  }
  for (int64_t i = 0; i < sequences.sequence_count(); ++i) {
    const int64_t length = sequences.starts[i + 1] - sequences.starts[i];
    if (length < 0) return absl::InvalidArgumentError(absl::StrCat("sequence ", i, " has a negative length"));
    if (length > shape.max_positions) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", i, " has ", length,
                                                     " tokens, more than model.max_positions = ", shape.max_positions));
    }
  }
  for (int64_t row = 0; row < row_count; ++row) {
    if (sequences.tokens[row] < 0 || sequences.tokens[row] >= shape.vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat("row ", row, " has token id ", sequences.tokens[row],
                                                     ", outside the vocabulary of ", shape.vocabulary));
    }
  }
  for (size_t i = 0; i < legal_sets.size(); ++i) {
    int32_t previous = -1;
    for (const int32_t id : legal_sets[i]) {
      if (id <= previous || id >= shape.vocabulary) {
        return absl::InvalidArgumentError(absl::StrCat("legal set ", i, ": id ", id, " after ", previous,
                                                       "; ids must ascend and be below ", shape.vocabulary));
      }
      previous = id;
    }
    if (previous < 0) return absl::InvalidArgumentError(absl::StrCat("legal set ", i, " is empty"));
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    const ScoredPosition& p = positions[i];
    if (p.row < 0 || p.row >= row_count) {
      return absl::InvalidArgumentError(absl::StrCat("scored position ", i, " is at row ", p.row, " of ", row_count));
    }
    if (p.target < 0 || p.target >= shape.vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat("scored position ", i, " has target ", p.target,
                                                     ", outside the vocabulary of ", shape.vocabulary));
    }
    if (!std::isfinite(p.temperature) || p.temperature <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("scored position ", i, " has temperature ", p.temperature));
    }
    if (p.legal_set < -1 || p.legal_set >= static_cast<int64_t>(legal_sets.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("scored position ", i, " has legal set ", p.legal_set, " of ", legal_sets.size()));
    }
    if (p.legal_set >= 0) {
      const std::vector<int32_t>& legal = legal_sets[p.legal_set];
      if (!std::binary_search(legal.begin(), legal.end(), p.target)) {
        return absl::InvalidArgumentError(
            absl::StrCat("scored position ", i, ": target ", p.target, " is not in legal set ", p.legal_set));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace internal

template <typename Real>
int64_t Transformer<Real>::State::HeadChunk() const {
  // Of the whole vocabulary, so that all ranks take the same chunks.
  return std::max(internal::kMinimumHeadChunk, internal::kLogitsAtOnce / internal::RoundUpToPanel(whole.vocabulary));
}

template <typename Real>
void Transformer<Real>::State::HeadLogits(const int64_t* row_indices, int64_t count, Real* head_logits) {
  const int64_t width = hidden_width();
  const internal::PackedMatrix<Real>& matrix = head[0];
  normed.Reserve(count * width);
  const auto gather = [&](int64_t begin, int64_t end) {
    Real* to = normed.data() + begin * width;
    for (int64_t i = begin; i < end; ++i)
      std::copy_n(final_stream.data() + row_indices[i] * width, width, normed.data() + i * width);
    kernels->rms_norm(to, width, end - begin, shape.hidden, final_norm(), epsilon, to);
  };
  const bool matrix_is_cached = matrix.size_bytes() <= internal::kCachedWeightBytes;
  if (matrix_is_cached || count >= 256 * parallel->threads()) {
    const int64_t minimum = internal::kWorthSplitting / (matrix.padded_outputs() * shape.hidden) + 1;
    Split(parallel, count, minimum, [&](int64_t begin, int64_t end) {
      gather(begin, end);
      Multiply(nullptr, normed.data() + begin * width, width, end - begin, matrix, 1,
               head_logits + begin * matrix.padded_outputs());
    });
    return;
  }
  Split(parallel, count, 16, gather);
  Multiply(parallel, normed.data(), width, count, matrix, 1, head_logits);
}

template <typename Real>
void Transformer<Real>::State::ScoredLogits(int64_t begin, int64_t end) {
  logits_begin = begin;
  head_rows.clear();
  for (int64_t i = begin; i < end; ++i) head_rows.push_back(positions[i].row);
  const int64_t width = vocabulary_width();
  Real* const chunk = logits.Reserve((end - begin) * width);
  HeadLogits(head_rows.data(), end - begin, chunk);
  Split(parallel, end - begin, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int32_t set = positions[begin + i].legal_set;
      if (set >= 0) internal::KeepLegal(legal_sets[set], vocabulary_begin, shape.vocabulary, chunk + i * width);
    }
  });
}

template <typename Real>
void Transformer<Real>::State::ScoreChunk(int64_t begin, int64_t end, PositionScores<Real>* scores) {
  const int64_t count = end - begin;
  head_maxima.resize(static_cast<size_t>(count));
  head_sums.resize(static_cast<size_t>(3 * count));
  const auto inverse = [&](int64_t i) { return Real(1) / static_cast<Real>(positions[begin + i].temperature); };
  const auto row = [&](int64_t i) { return logits.data() + i * vocabulary_width(); };
  const auto find_maximum = [&](int64_t i) {
    head_maxima[i] = kernels->softmax_max(row(i), shape.vocabulary, inverse(i));
  };
  const auto add_up = [&](int64_t i) {
    Real* const sums = &head_sums[3 * i];
    kernels->softmax_sums(row(i), shape.vocabulary, sum_blocks, inverse(i), head_maxima[i], &sums[0], &sums[1]);
    const int64_t target = LocalTarget(positions[begin + i]);
    sums[2] = target >= 0 ? row(i)[target] : Real(0);
  };
  const auto finish = [&](int64_t i) {
    const Real* const sums = &head_sums[3 * i];
    const internal::SoftmaxSummary<Real> summary = kernels->summary_of_sums(head_maxima[i], sums[0], sums[1]);
    summaries[begin + i] = summary;
    // The very operations of log_probabilities, for one id.
    scores->logprobs[begin + i] = (sums[2] * inverse(i) - summary.max) - summary.log_sum;
    scores->entropies[begin + i] = summary.entropy;
  };
  const auto for_all = [&](const auto& body) {
    Split(parallel, count, 16, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) body(i);
    });
  };
  if (shard_exchange.size() == 1) {
    for_all([&](int64_t i) {
      find_maximum(i);
      add_up(i);
      finish(i);
    });
    return;
  }
  for_all(find_maximum);
  shard_exchange.MaxAll(head_maxima.data(), count);
  for_all(add_up);
  shard_exchange.SumAll(head_sums.data(), 3 * count);
  for_all(finish);
}

template <typename Real>
absl::Status Transformer<Real>::Score(const PackedSequences& sequences, absl::Span<const ScoredPosition> positions,
                                      absl::Span<const std::vector<int32_t>> legal_sets, bool keep_activations,
                                      PositionScores<Real>* scores) {
  State& s = *state_;
  LEEWAY_RETURN_IF_ERROR(internal::CheckScoreArguments(s.whole, sequences, positions, legal_sets));
  internal::RowTable<Real>& rows = s.rows;
  rows.Clear();
  s.keep = keep_activations;
  s.has_activations = false;

  // Own tiles, since nothing is kept from call to call. Layers share them unless a backward pass needs every layer's.
  int64_t tile_count = 0;
  std::vector<int64_t> first_tiles;
  for (int64_t i = 0; i < sequences.sequence_count(); ++i) {
    first_tiles.push_back(tile_count);
    tile_count += internal::RoundUpToPanel(sequences.starts[i + 1] - sequences.starts[i]) / internal::kPanel;
  }
  const int64_t tile_size = s.attention.tile_size();
  const bool keeps_layers = keep_activations && s.recompute != Recompute::kFull;
  const int64_t tile_values = tile_count * tile_size * (keeps_layers ? s.shape.layers : 1);
  Real* tiles = s.tiles.Reserve(tile_values);
  s.tile_pointers.resize(static_cast<size_t>(tile_count));
  for (int64_t i = 0; i < tile_count; ++i) s.tile_pointers[i] = tiles + i * tile_size;
  for (int64_t i = 0; i < sequences.sequence_count(); ++i) {
    const int64_t start = sequences.starts[i];
    rows.AppendSequence(absl::MakeConstSpan(sequences.tokens).subspan(start, sequences.starts[i + 1] - start), 0,
                        s.tile_pointers.data() + first_tiles[i]);
  }
  rows.layer_offset = keeps_layers ? tile_count * tile_size : 0;
  s.PreparePositions(rows.longest);
  s.CutBlocks();
  s.ReserveScratch();
  const int64_t row_count = rows.row_count();
  s.final_stream.Reserve(row_count * s.hidden_width());
  if (keep_activations) {
    const int64_t own_count = s.OwnRows(row_count).count;
    const int64_t layers = s.shape.layers;
    const int64_t inside_layers = keeps_layers ? layers : 1;
    const int64_t wide_layers = s.recompute == Recompute::kNone ? layers : 1;
    int64_t values = tile_values + row_count * s.hidden_width();
    const auto reserve = [&values](internal::Buffer<Real>& buffer, int64_t count) {
      buffer.Reserve(count);
      values += count;
    };
    reserve(s.kept_stream, layers * own_count * s.hidden_width());
    reserve(s.kept_middle, inside_layers * own_count * s.hidden_width());
    reserve(s.kept_qkv, inside_layers * row_count * s.attention.qkv_width());
    reserve(s.kept_attention, inside_layers * row_count * s.attention.query_width());
    reserve(s.kept_gate_up, wide_layers * row_count * 2 * s.intermediate_width());
    if (s.shape.has_qk_norm()) {
      reserve(s.kept_raw_queries, inside_layers * row_count * s.attention.query_width());
      reserve(s.kept_raw_keys, inside_layers * row_count * s.key_width());
    }
    s.kept_bytes = values * static_cast<int64_t>(sizeof(Real));
  }
  LEEWAY_RETURN_IF_ERROR(s.Forward());

  s.positions.assign(positions.begin(), positions.end());
  s.legal_sets.assign(legal_sets.begin(), legal_sets.end());
  s.summaries.resize(positions.size());
  scores->logprobs.resize(positions.size());
  scores->entropies.resize(positions.size());
  s.logits_begin = -1;
  for (int64_t chunk = 0; chunk < s.HeadChunks(); ++chunk) {
    s.ScoredLogits(s.HeadChunkBegin(chunk), s.HeadChunkBegin(chunk + 1));
    s.ScoreChunk(s.HeadChunkBegin(chunk), s.HeadChunkBegin(chunk + 1), scores);
  }
  LEEWAY_RETURN_IF_ERROR(s.shard_exchange.status());
  s.has_activations = keep_activations;
  return absl::OkStatus();
}

}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_SCORE_INL_H_
