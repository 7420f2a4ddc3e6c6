#include "model/transformer/transformer.h"

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/random_case.h"

namespace leeway {
namespace {

using internal::NextTokenPositions;
using internal::OddQwen2Shape;
using internal::OddShape;
using internal::RandomSequences;
using internal::RandomShapes;
using internal::SmallShape;
using internal::SpreadParameters;
using internal::TiedQwen3Shape;
using ::testing::HasSubstr;

using Matrix = std::vector<std::vector<double>>;

// The model once more, from its formulas, as plain loops over one sequence. Returns logits by position.
class PlainModel {
 public:
  PlainModel(const ModelShape& shape, std::vector<double> flat) : shape_(shape), flat_(std::move(flat)) {
    for (const ParameterInfo& info : ParameterLayout(shape)) names_[info.name] = info;
  }

  Matrix Logits(const std::vector<int32_t>& ids) const {
    Matrix x;
    for (const int32_t id : ids) x.push_back(Row("model.embed_tokens.weight", id));
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const Matrix normed = Norm(x, prefix + "input_layernorm.weight");
      Matrix q = Linear(normed, prefix + "self_attn.q_proj.weight");
      Matrix k = Linear(normed, prefix + "self_attn.k_proj.weight");
      Matrix v = Linear(normed, prefix + "self_attn.v_proj.weight");
      AddBias(prefix + "self_attn.q_proj.bias", &q);
      AddBias(prefix + "self_attn.k_proj.bias", &k);
      AddBias(prefix + "self_attn.v_proj.bias", &v);
      NormHeads(prefix + "self_attn.q_norm.weight", &q);
      NormHeads(prefix + "self_attn.k_norm.weight", &k);
      Rotate(&q);
      Rotate(&k);
      Accumulate(Linear(Attend(q, k, v), prefix + "self_attn.o_proj.weight"), &x);
      const Matrix second = Norm(x, prefix + "post_attention_layernorm.weight");
      Matrix gate = Linear(second, prefix + "mlp.gate_proj.weight");
      const Matrix up = Linear(second, prefix + "mlp.up_proj.weight");
      for (size_t t = 0; t < gate.size(); ++t) {
        for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] = gate[t][i] / (1.0 + std::exp(-gate[t][i])) * up[t][i];
      }
      Accumulate(Linear(gate, prefix + "mlp.down_proj.weight"), &x);
    }
    return Linear(Norm(x, "model.norm.weight"), shape_.tied_head ? "model.embed_tokens.weight" : "lm_head.weight");
  }

 private:
  std::vector<double> Row(const std::string& name, int64_t row) const {
    const ParameterInfo& info = names_.at(name);
    const auto begin = flat_.begin() + info.offset + row * info.shape.back();
    return std::vector<double>(begin, begin + info.shape.back());
  }

  Matrix Linear(const Matrix& x, const std::string& name) const {
    const ParameterInfo& info = names_.at(name);
    Matrix y;
    for (const std::vector<double>& row : x) {
      y.emplace_back();
      for (int64_t n = 0; n < info.shape[0]; ++n) {
        const std::vector<double> weights = Row(name, n);
        y.back().push_back(std::inner_product(row.begin(), row.end(), weights.begin(), 0.0));
      }
    }
    return y;
  }

  Matrix Norm(Matrix x, const std::string& name) const {
    const std::vector<double> weight = Row(name, 0);
    for (std::vector<double>& row : x) {
      double squares = 0;
      for (const double value : row) squares += value * value;
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(row.size()) + shape_.rms_epsilon);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * weight[i];
    }
    return x;
  }

  // Nothing in families that have none.
  void AddBias(const std::string& name, Matrix* x) const {
    if (names_.count(name) == 0) return;
    const std::vector<double> bias = Row(name, 0);
    for (std::vector<double>& row : *x) {
      for (size_t i = 0; i < row.size(); ++i) row[i] += bias[i];
    }
  }

  void NormHeads(const std::string& name, Matrix* x) const {
    if (names_.count(name) == 0) return;
    for (std::vector<double>& row : *x) {
      for (auto head = row.begin(); head != row.end(); head += shape_.head_dim) {
        const Matrix normed = Norm({std::vector<double>(head, head + shape_.head_dim)}, name);
        std::copy(normed[0].begin(), normed[0].end(), head);
      }
    }
  }

  void Rotate(Matrix* x) const {
    const int64_t half = shape_.head_dim / 2;
    for (size_t position = 0; position < x->size(); ++position) {
      std::vector<double>& row = (*x)[position];
      for (size_t head = 0; head * shape_.head_dim < row.size(); ++head) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(position) * std::pow(shape_.rope_theta, -2.0 * i / shape_.head_dim);
          double& a = row[head * shape_.head_dim + i];
          double& b = row[head * shape_.head_dim + half + i];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = turned;
        }
      }
    }
  }

  Matrix Attend(const Matrix& q, const Matrix& k, const Matrix& v) const {
    const int64_t d = shape_.head_dim;
    Matrix output(q.size(), std::vector<double>(q[0].size(), 0.0));
    for (int64_t head = 0; head < shape_.heads; ++head) {
      const int64_t source = head / (shape_.heads / shape_.key_value_heads) * d;
      for (size_t t = 0; t < q.size(); ++t) {
        std::vector<double> p(t + 1);
        double total = 0;
        for (size_t j = 0; j <= t; ++j) {
          double dot = 0;
          for (int64_t i = 0; i < d; ++i) dot += q[t][head * d + i] * k[j][source + i];
          total += p[j] = std::exp(dot / std::sqrt(static_cast<double>(d)));
        }
        for (size_t j = 0; j <= t; ++j) {
          for (int64_t i = 0; i < d; ++i) output[t][head * d + i] += p[j] / total * v[j][source + i];
        }
      }
    }
    return output;
  }

  static void Accumulate(const Matrix& from, Matrix* to) {
    for (size_t t = 0; t < from.size(); ++t) {
      for (size_t i = 0; i < from[t].size(); ++i) (*to)[t][i] += from[t][i];
    }
  }

  ModelShape shape_;
  std::vector<double> flat_;
  std::map<std::string, ParameterInfo> names_;
};

std::vector<double> PlainLogSoftmax(std::vector<double> logits, double temperature, const std::vector<int32_t>& legal) {
  std::vector<bool> allowed(logits.size(), legal.empty());
  for (const int32_t id : legal) allowed[id] = true;
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) total += allowed[i] ? std::exp(logits[i] / temperature) : 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = allowed[i] ? logits[i] / temperature - std::log(total) : -std::numeric_limits<double>::infinity();
  }
  return logits;
}

double PlainEntropy(const std::vector<double>& logprobs) {
  double entropy = 0;
  for (const double logprob : logprobs) entropy -= std::isinf(logprob) ? 0 : std::exp(logprob) * logprob;
  return entropy;
}

class PlainModelTest : public ::testing::TestWithParam<ModelShape> {};

TEST_P(PlainModelTest, ScoreMatchesTheFormulas) {
  const ModelShape shape = GetParam();
  const std::vector<double> flat = SpreadParameters<double>(shape, 1);
  const PlainModel plain(shape, flat);
  ParallelFor parallel(2);
  Transformer<double> model(shape, &parallel);
  model.SetParameters(flat);
  const PackedSequences sequences = RandomSequences(shape, {1, 5, 17, 33, 16}, 2);
  std::vector<std::vector<int32_t>> legal_sets = {{0, 3, 7, 11, static_cast<int32_t>(shape.vocabulary - 1)}, {5}};
  std::vector<ScoredPosition> positions = NextTokenPositions(sequences);
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i].temperature = i % 3 == 0 ? 1.0f : 0.75f;
    if (i % 5 == 1) {
      positions[i].legal_set = static_cast<int32_t>(i % 2);
      positions[i].target = legal_sets[i % 2].back();
    }
  }
  PositionScores<double> scores;
  ASSERT_TRUE(model.Score(sequences, positions, legal_sets, false, &scores).ok());
  ASSERT_EQ(scores.logprobs.size(), positions.size());
  size_t next = 0;
  for (int64_t s = 0; s < sequences.sequence_count(); ++s) {
    const std::vector<int32_t> ids(sequences.tokens.begin() + sequences.starts[s],
                                   sequences.tokens.begin() + sequences.starts[s + 1]);
    const Matrix logits = plain.Logits(ids);
    for (size_t t = 0; t + 1 < ids.size(); ++t, ++next) {
      const ScoredPosition& p = positions[next];
      const std::vector<double> expected =
          PlainLogSoftmax(logits[t], p.temperature, p.legal_set < 0 ? std::vector<int32_t>{} : legal_sets[p.legal_set]);
      EXPECT_NEAR(scores.logprobs[next], expected[p.target], 1e-12 * (1 + std::abs(expected[p.target])));
      EXPECT_NEAR(scores.entropies[next], PlainEntropy(expected), 1e-12);
    }
  }
  EXPECT_EQ(next, positions.size());
}

ModelShape TiedOddShape() {
  ModelShape shape = OddShape();
  shape.tied_head = true;
  shape.key_value_heads = 1;
  shape.head_dim = 16;
  return shape;
}

ModelShape WideHeadShape() {
  // One head of 64 + 16 columns: heads * head_dim differs from hidden, and several panels a head.
  return {.vocabulary = 31,
          .hidden = 32,
          .layers = 1,
          .heads = 3,
          .key_value_heads = 3,
          .head_dim = 80,
          .intermediate = 7,
          .max_positions = 40,
          .rope_theta = 500.0,
          .rms_epsilon = 1e-3,
          .tied_head = false};
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlainModelTest,
                         ::testing::Values(OddShape(), TiedOddShape(), SmallShape(), WideHeadShape(), OddQwen2Shape(),
                                           TiedQwen3Shape()));
INSTANTIATE_TEST_SUITE_P(RandomShapes, PlainModelTest, ::testing::ValuesIn(RandomShapes(12)));

TEST(TransformerTest, ErrorsNameThePlace) {
  const ModelShape shape = OddShape();
  ParallelFor parallel(1);
  Transformer<float> model(shape, &parallel);
  model.SetParameters(SpreadParameters<float>(shape, 1));
  KeyValueCache<float> cache(shape);
  std::vector<float> logits;
  const auto decode = [&](const std::vector<int32_t>& tokens) {
    const SequenceChunk<float> chunk{&cache, tokens, true};
    return std::string(model.Decode(absl::MakeConstSpan(&chunk, 1), &logits).message());
  };
  EXPECT_THAT(decode({1, 53}), HasSubstr("token id 53"));
  EXPECT_THAT(decode({-1}), HasSubstr("token id -1"));
  EXPECT_THAT(decode({}), HasSubstr("no tokens"));
  EXPECT_THAT(decode(std::vector<int32_t>(65, 1)), HasSubstr("model.max_positions = 64"));
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(decode(std::vector<int32_t>(64, 1)), "");
  EXPECT_EQ(cache.length(), 64);
  EXPECT_THAT(decode({1}), HasSubstr("position 65"));
  const std::vector<int32_t> one = {1};
  KeyValueCache<float> shared(shape);
  const std::vector<SequenceChunk<float>> twice = {{&shared, one, true}, {&shared, one, true}};
  EXPECT_THAT(std::string(model.Decode(twice, &logits).message()), HasSubstr("chunk 1"));

  PackedSequences sequences = RandomSequences(shape, {3, 4}, 1);
  PositionScores<float> scores;
  const auto score = [&](const ScoredPosition& position, const std::vector<std::vector<int32_t>>& legal) {
    return std::string(model.Score(sequences, absl::MakeConstSpan(&position, 1), legal, false, &scores).message());
  };
  EXPECT_EQ(score({.row = 6, .target = 52}, {}), "");
  EXPECT_THAT(score({.row = 7, .target = 1}, {}), HasSubstr("row 7 of 7"));
  EXPECT_THAT(score({.row = 0, .target = 53}, {}), HasSubstr("target 53"));
  EXPECT_THAT(score({.row = 0, .target = 1, .temperature = 0}, {}), HasSubstr("temperature"));
  EXPECT_THAT(score({.row = 0, .target = 1, .legal_set = 0}, {}), HasSubstr("legal set 0 of 0"));
  EXPECT_THAT(score({.row = 0, .target = 1, .legal_set = 0}, {{2, 3}}), HasSubstr("target 1 is not in legal set 0"));
  EXPECT_THAT(score({.row = 0, .target = 1}, {{3, 2}}), HasSubstr("must ascend"));
  EXPECT_THAT(score({.row = 0, .target = 1}, {{}}), HasSubstr("is empty"));
  sequences.starts.back() = 6;
  EXPECT_THAT(score({.row = 0, .target = 1}, {}), HasSubstr("starts must run"));
  sequences = RandomSequences(shape, {65}, 1);
  EXPECT_THAT(score({.row = 0, .target = 1}, {}), HasSubstr("model.max_positions"));
  sequences = RandomSequences(shape, {5}, 1);
  sequences.tokens[2] = 99;
  EXPECT_THAT(score({.row = 0, .target = 1}, {}), HasSubstr("row 2 has token id 99"));
}

TEST(TransformerTest, EmptyCallsAreFine) {
  const ModelShape shape = SmallShape();
  ParallelFor parallel(2);
  Transformer<float> model(shape, &parallel);
  const std::vector<float> flat = SpreadParameters<float>(shape, 1);
  model.SetParameters(flat);
  std::vector<float> logits(3);
  ASSERT_TRUE(model.Decode({}, &logits).ok());
  EXPECT_TRUE(logits.empty());
  PositionScores<float> scores;
  ASSERT_TRUE(model.Score(PackedSequences{}, {}, {}, true, &scores).ok());
  std::vector<float> gradients(flat.size(), 0);
  ASSERT_TRUE(model.Backward({}, {}, absl::MakeSpan(gradients)).ok());
  PackedSequences with_empty = RandomSequences(shape, {0, 3, 0}, 1);
  ASSERT_TRUE(model.Score(with_empty, NextTokenPositions(with_empty), {}, true, &scores).ok());
  EXPECT_EQ(scores.logprobs.size(), 2u);
  ASSERT_TRUE(model.Backward(std::vector<float>(2, 1), std::vector<float>(2, 0), absl::MakeSpan(gradients)).ok());
}

}  // namespace
}  // namespace leeway
