#include "model/transformer/transformer.h"

#include <cmath>
#include <functional>
#include <iterator>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "model/instruction_set.h"
#include "model/transformer/transformer_backward-inl.h"
#include "model/transformer/transformer_forward-inl.h"
#include "model/transformer/transformer_score-inl.h"
#include "model/transformer/transformer_state.h"

namespace leeway {
namespace {

using internal::kPanel;
using internal::PackedMatrix;

// sin and cos of position * theta^(-2i / head_dim). In long double, whose library functions have one version for all
// processors, unlike double's.
template <typename Real>
void AppendAngles(const ModelShape& shape, int64_t position, std::vector<Real>* cosines, std::vector<Real>* sines) {
  for (int64_t i = 0; i < shape.head_dim / 2; ++i) {
    const long double exponent = -2.0L * static_cast<long double>(i) / static_cast<long double>(shape.head_dim);
    const long double angle =
        static_cast<long double>(position) * std::pow(static_cast<long double>(shape.rope_theta), exponent);
    cosines->push_back(static_cast<Real>(std::cos(angle)));
    sines->push_back(static_cast<Real>(std::sin(angle)));
  }
}

}  // namespace

template <typename Real>
Transformer<Real>::State::State(const ModelShape& model_shape, ParallelFor* parallel_for,
                                const TransformerOptions& options)
    : whole(model_shape),
      shard_exchange(options.tensor_parallel),
      shape(TensorShard(model_shape, shard_exchange.rank(), shard_exchange.size())),
      vocabulary_begin(VocabularyBegin(model_shape.vocabulary, shard_exchange.rank(), shard_exchange.size())),
      sum_blocks(4 / shard_exchange.size()),
      parallel(parallel_for),
      kernels(&internal::KernelsFor<Real>(ActiveInstructionSet())),
      attention(internal::AttentionShapeOf(shape)),
      attention_scale(static_cast<Real>(1.0 / std::sqrt(static_cast<double>(model_shape.head_dim)))),
      epsilon(static_cast<Real>(model_shape.rms_epsilon)),
      recompute(options.recompute),
      weight_format(options.weights),
      units(ParameterUnits(shape)),
      scratch(static_cast<size_t>(parallel_for->threads())) {
  LEEWAY_CHECK(weight_format == WeightFormat::kReal || sizeof(Real) == sizeof(float)) << "bf16 is for float arithmetic";
  const std::vector<ParameterInfo> layout = ParameterLayout(shape);
  internal::LayerOffsets& o = offsets;
  size_t next = 1;
  const auto take = [&](int64_t* offset) { *offset = layout[next++].offset - units[1].begin; };
  take(&o.attention_norm);
  take(&o.query);
  if (shape.has_qkv_bias()) take(&o.query_bias);
  if (shape.has_qk_norm()) take(&o.query_norm);
  take(&o.key);
  if (shape.has_qkv_bias()) take(&o.key_bias);
  if (shape.has_qk_norm()) take(&o.key_norm);
  take(&o.value);
  if (shape.has_qkv_bias()) take(&o.value_bias);
  for (int64_t* offset : {&o.output, &o.mlp_norm, &o.gate, &o.up, &o.down}) take(offset);
}

template <typename Real>
void Transformer<Real>::State::MakeSlots(int64_t count) {
  if (head.empty()) head.emplace_back(shape.vocabulary, shape.hidden, weight_format);
  norms.Reserve((1 + 2 * count) * hidden_width());
  if (shape.has_qkv_bias()) qkv_biases.Reserve(count * attention.qkv_width());
  if (shape.has_qk_norm()) head_norms.Reserve(2 * count * attention.head_dim_padded);
  while (static_cast<int64_t>(layers.size()) < count) {
    layers.push_back({PackedMatrix<Real>(attention.qkv_width(), shape.hidden, weight_format),
                      PackedMatrix<Real>(shape.hidden, attention.query_width(), weight_format),
                      PackedMatrix<Real>(2 * intermediate_width(), shape.hidden, weight_format),
                      PackedMatrix<Real>(shape.hidden, shape.intermediate, weight_format)});
  }
}

template <typename Real>
void Transformer<Real>::State::PackLayer(int64_t layer, const WeightSpan<Real>& flat, ParallelFor* inner) {
  const internal::LayerOffsets& o = offsets;
  internal::LayerMatrices<Real>& m = layers[SlotOf(layer)];
  const int64_t hidden = shape.hidden;
  const int64_t head_dim = shape.head_dim;
  const int64_t padded = attention.head_dim_padded;
  const auto from = [&flat](int64_t offset) { return flat.subspan(offset, flat.size() - offset); };
  // Heads are spread out to their padded stride; the padding stays zero.
  const auto set_heads = [&](int64_t first, int64_t offset, int64_t heads) {
    for (int64_t head = 0; head < heads; ++head) {
      m.qkv.SetBlock((first + head) * padded, 0, from(offset + head * head_dim * hidden), hidden, head_dim, hidden);
    }
  };
  const std::function<void()> parts[] = {
      [&] { set_heads(0, o.query, shape.heads); },
      [&] {
        set_heads(shape.heads, o.key, shape.key_value_heads);
        set_heads(shape.heads + shape.key_value_heads, o.value, shape.key_value_heads);
      },
      [&] {
        for (int64_t head = 0; head < shape.heads; ++head) {
          m.output.SetBlock(0, head * padded, from(o.output + head * head_dim), shape.heads * head_dim, hidden,
                            head_dim);
        }
      },
      [&] { m.gate_up.SetBlock(0, 0, from(o.gate), hidden, shape.intermediate, hidden); },
      [&] { m.gate_up.SetBlock(intermediate_width(), 0, from(o.up), hidden, shape.intermediate, hidden); },
      [&] { m.down.SetBlock(0, 0, from(o.down), shape.intermediate, hidden, shape.intermediate); },
  };
  Split(inner, std::size(parts), 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) parts[part]();
  });
  if (shape.has_qkv_bias()) {
    const auto set_bias = [&](int64_t first, int64_t offset, int64_t heads) {
      Real* const to = qkv_bias(layer) + first * padded;
      for (int64_t head = 0; head < heads; ++head) {
        CopyWeights(flat, offset + head * head_dim, head_dim, to + head * padded);
      }
    };
    set_bias(0, o.query_bias, shape.heads);
    set_bias(shape.heads, o.key_bias, shape.key_value_heads);
    set_bias(shape.heads + shape.key_value_heads, o.value_bias, shape.key_value_heads);
  }
  if (shape.has_qk_norm()) {
    CopyWeights(flat, o.query_norm, head_dim, query_norm(layer));
    CopyWeights(flat, o.key_norm, head_dim, key_norm(layer));
  }
  CopyWeights(flat, o.attention_norm, hidden, attention_norm(layer));
  CopyWeights(flat, o.mlp_norm, hidden, mlp_norm(layer));
}

template <typename Real>
void Transformer<Real>::State::PackHead(const WeightSpan<Real>& flat) {
  // Whole panels, so that threads write disjoint lines.
  parallel->Run(head[0].panels(), 64, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kPanel;
    const int64_t last = std::min(end * kPanel, shape.vocabulary);
    head[0].SetBlock(first, 0, flat.subspan(first * shape.hidden, (last - first) * shape.hidden), shape.hidden,
                     last - first, shape.hidden);
  });
}

template <typename Real>
absl::StatusOr<WeightSpan<Real>> Transformer<Real>::State::Acquire(int64_t unit, int64_t next) {
  LEEWAY_ASSIGN_OR_RETURN(const WeightSpan<Real> values, stream->Acquire(unit, next));
  LEEWAY_CHECK(values.size() == units[unit].element_count())
      << values.size() << " values for unit " << unit << " of " << units[unit].element_count();
  return values;
}

template <typename Real>
absl::Status Transformer<Real>::State::LoadLayer(int64_t layer, int64_t next_unit) {
  LEEWAY_ASSIGN_OR_RETURN(const WeightSpan<Real> flat, Acquire(1 + layer, next_unit));
  PackLayer(layer, flat, parallel);
  return absl::OkStatus();
}

template <typename Real>
void Transformer<Real>::State::PreparePositions(int64_t count) {
  const int64_t half = shape.head_dim / 2;
  for (int64_t position = static_cast<int64_t>(cosines.size()) / half; position < count; ++position) {
    AppendAngles(shape, position, &cosines, &sines);
  }
}

template <typename Real>
Transformer<Real>::Transformer(const ModelShape& shape, ParallelFor* parallel, const TransformerOptions& options)
    : state_(std::make_unique<State>(shape, parallel, options)) {}

template <typename Real>
Transformer<Real>::~Transformer() = default;

template <typename Real>
const ModelShape& Transformer<Real>::shape() const {
  return state_->whole;
}

template <typename Real>
const ModelShape& Transformer<Real>::shard() const {
  return state_->shape;
}

template <typename Real>
void Transformer<Real>::SetParameters(const WeightSpan<Real>& flat) {
  State& s = *state_;
  LEEWAY_CHECK(flat.size() == s.shape.ParameterCount()) << flat.size();
  LEEWAY_CHECK(s.stream == nullptr) << "the parameters are streamed";
  const auto unit = [&](int64_t index) { return flat.subspan(s.units[index].begin, s.units[index].element_count()); };
  s.MakeSlots(s.shape.layers);
  s.parallel->Run(s.shape.layers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t layer = begin; layer < end; ++layer) s.PackLayer(layer, unit(1 + layer), nullptr);
  });
  const int64_t hidden = s.shape.hidden;
  const WeightSpan<Real> last = unit(static_cast<int64_t>(s.units.size()) - 1);
  s.CopyWeights(last, 0, hidden, s.final_norm());
  const WeightSpan<Real> embedding = unit(0).subspan(0, s.shape.vocabulary * hidden);
  s.PackHead(s.shape.tied_head ? embedding : last.subspan(hidden, s.shape.vocabulary * hidden));
  const auto copy = [&](auto* rows) {
    s.parallel->Run(embedding.size(), 64 * 1024, [&](int64_t begin, int64_t end) {
      const WeightSpan<Real> part = embedding.subspan(begin, end - begin);
      if constexpr (sizeof(*rows) == sizeof(uint16_t)) {
        part.CopyTo(rows + begin);
      } else {
        part.CopyTo(s.weight_format, rows + begin);
      }
    });
    s.embedding_rows = absl::Span<const std::remove_pointer_t<decltype(rows)>>(rows, embedding.size());
  };
  if (s.weight_format == WeightFormat::kBf16) {
    copy(s.bf16_embedding.Reserve(embedding.size()));
  } else {
    copy(s.embedding.Reserve(embedding.size()));
  }
  s.has_activations = false;
}

template <typename Real>
void Transformer<Real>::StreamParameters(ParameterStream<Real>* stream) {
  State& s = *state_;
  LEEWAY_CHECK(s.layers.empty()) << "parameters are set or streamed, not both";
  s.stream = stream;
  s.MakeSlots(1);
}

template <typename Real>
int64_t Transformer<Real>::weight_bytes() const {
  const State& s = *state_;
  const int64_t values =
      s.embedding.capacity() + s.norms.capacity() + s.qkv_biases.capacity() + s.head_norms.capacity();
  int64_t bytes = values * static_cast<int64_t>(sizeof(Real)) +
                  s.bf16_embedding.capacity() * static_cast<int64_t>(sizeof(uint16_t));
  for (const auto* matrices : {&s.layers, &s.transposed}) {
    for (const internal::LayerMatrices<Real>& m : *matrices) {
      for (const PackedMatrix<Real>* matrix : {&m.qkv, &m.output, &m.gate_up, &m.down}) bytes += matrix->size_bytes();
    }
  }
  for (const auto* matrices : {&s.head, &s.head_transposed}) {
    for (const PackedMatrix<Real>& matrix : *matrices) bytes += matrix.size_bytes();
  }
  return bytes;
}

template <typename Real>
int64_t Transformer<Real>::kept_bytes() const {
  return state_->kept_bytes;
}

template <typename Real>
absl::Status Transformer<Real>::Decode(absl::Span<const SequenceChunk<Real>> chunks, std::vector<Real>* logits) {
  State& s = *state_;
  LEEWAY_CHECK(s.shard_exchange.size() == 1 && s.stream == nullptr) << "Decode is for whole models";
  absl::flat_hash_set<const void*> caches;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const SequenceChunk<Real>& chunk = chunks[i];
    LEEWAY_CHECK(chunk.cache != nullptr) << "chunk " << i;
    if (!caches.insert(chunk.cache).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk ", i, " uses the cache of an earlier chunk of the same call"));
    }
    if (chunk.tokens.empty()) return absl::InvalidArgumentError(absl::StrCat("chunk ", i, " has no tokens"));
    const int64_t end = chunk.cache->length() + static_cast<int64_t>(chunk.tokens.size());
    if (end > s.shape.max_positions) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk ", i, " ends at position ", end, ", past model.max_positions = ", s.shape.max_positions));
    }
    for (const int32_t id : chunk.tokens) {
      if (id < 0 || id >= s.shape.vocabulary) {
        return absl::InvalidArgumentError(
            absl::StrCat("chunk ", i, " has token id ", id, ", outside the vocabulary of ", s.shape.vocabulary));
      }
    }
  }
  s.has_activations = false;
  s.keep = false;
  internal::RowTable<Real>& rows = s.rows;
  rows.Clear();
  s.head_rows.clear();
  for (const SequenceChunk<Real>& chunk : chunks) {
    typename KeyValueCache<Real>::State& cache = *chunk.cache->state();
    const int64_t end = cache.length + static_cast<int64_t>(chunk.tokens.size());
    cache.Grow(end);
    rows.AppendSequence(chunk.tokens, cache.length, cache.tiles.data());
    cache.length = end;
    if (chunk.wants_logits) s.head_rows.push_back(rows.row_count() - 1);
  }
  rows.layer_offset = s.attention.tile_size();
  s.PreparePositions(rows.longest);
  s.CutBlocks();
  s.ReserveScratch();
  s.final_stream.Reserve(rows.row_count() * s.hidden_width());
  LEEWAY_RETURN_IF_ERROR(s.Forward());

  const int64_t wanted = static_cast<int64_t>(s.head_rows.size());
  const int64_t vocabulary = s.shape.vocabulary;
  logits->resize(static_cast<size_t>(wanted * vocabulary));
  const int64_t step = vocabulary == s.vocabulary_width() ? wanted : s.HeadChunk();
  for (int64_t begin = 0; begin < wanted; begin += step) {
    const int64_t count = std::min(step, wanted - begin);
    if (vocabulary == s.vocabulary_width()) {
      s.HeadLogits(s.head_rows.data(), count, logits->data());
      continue;
    }
    Real* padded = s.logits.Reserve(count * s.vocabulary_width());
    s.HeadLogits(s.head_rows.data() + begin, count, padded);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(padded + i * s.vocabulary_width(), vocabulary, logits->data() + (begin + i) * vocabulary);
    }
  }
  return absl::OkStatus();
}

template <typename Real>
Real LogSoftmaxRow(absl::Span<Real> logits, float temperature, absl::Span<const int32_t> legal_ids) {
  const internal::Kernels<Real>& kernels = internal::KernelsFor<Real>(ActiveInstructionSet());
  if (!legal_ids.empty()) internal::KeepLegal(legal_ids, 0, static_cast<int64_t>(logits.size()), logits.data());
  const Real inverse = Real(1) / static_cast<Real>(temperature);
  internal::SoftmaxSummary<Real> summary;
  kernels.softmax_summary(logits.data(), static_cast<int64_t>(logits.size()), inverse, &summary);
  kernels.log_probabilities(logits.data(), static_cast<int64_t>(logits.size()), inverse, summary);
  return summary.entropy;
}

std::vector<float> RandomParameters(const ModelShape& shape, uint64_t seed) {
  constexpr double kDeviation = 0.02;
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
  std::vector<float> flat(static_cast<size_t>(shape.ParameterCount()));
  uint64_t tensor = 0;
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    const absl::string_view name = info.name;
    const auto ends_with = [&](absl::string_view end) {
      return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
    };
    const bool is_residual = ends_with("o_proj.weight") || ends_with("down_proj.weight");
    const float vector_value = ends_with(".bias") ? 0.0f : 1.0f;
    float* values = flat.data() + info.offset;
    for (int64_t i = 0; i < info.element_count; ++i) {
      const RandomKey key{
          .seed = seed, .purpose = RandomPurpose::kWeights, .ticket = tensor, .position = static_cast<uint64_t>(i)};
      values[i] = info.shape.size() == 1
                      ? vector_value
                      : static_cast<float>(RandomNormal(key) * (is_residual ? residual : kDeviation));
    }
    ++tensor;
  }
  return flat;
}

template class Transformer<float>;
template class Transformer<double>;
template float LogSoftmaxRow<float>(absl::Span<float>, float, absl::Span<const int32_t>);
template double LogSoftmaxRow<double>(absl::Span<double>, float, absl::Span<const int32_t>);

}  // namespace leeway
