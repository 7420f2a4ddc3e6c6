// The hand-written backward pass against libtorch's autograd over a second forward pass, written from the formulas in
// ATen operators, all in double: gradients of a random combination of log-probabilities and entropies agree to 1e-11.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/triu.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/random_case.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

// An own copy: the graph outlives the vector.
at::Tensor Ids(const std::vector<int64_t>& ids) {
  return at::from_blob(const_cast<int64_t*>(ids.data()), {static_cast<int64_t>(ids.size())}, at::kLong).clone();
}

// The three families as ATen operators. Parameters are leaves that require gradients.
class TorchModel {
 public:
  TorchModel(const ModelShape& shape, const std::vector<double>& flat) : shape_(shape) {
    for (const ParameterInfo& info : ParameterLayout(shape)) {
      double* data = const_cast<double*>(flat.data() + info.offset);
      parameters_[info.name] = at::from_blob(data, info.shape, at::kDouble).clone().requires_grad_(true);
    }
  }

  // [length, vocabulary] for one sequence.
  at::Tensor Logits(const std::vector<int64_t>& ids) const {
    at::Tensor x = at::embedding(P("model.embed_tokens.weight"), Ids(ids));
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const at::Tensor normed = Norm(x, prefix + "input_layernorm.weight");
      x = x.add(at::linear(Attention(normed, prefix + "self_attn."), P(prefix + "self_attn.o_proj.weight")));
      const at::Tensor second = Norm(x, prefix + "post_attention_layernorm.weight");
      const at::Tensor gate = at::silu(at::linear(second, P(prefix + "mlp.gate_proj.weight")));
      const at::Tensor up = at::linear(second, P(prefix + "mlp.up_proj.weight"));
      x = x.add(at::linear(at::mul(gate, up), P(prefix + "mlp.down_proj.weight")));
    }
    return at::linear(Norm(x, "model.norm.weight"),
                      P(shape_.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"));
  }

  // Flat, in layout order.
  std::vector<double> Gradients() const {
    std::vector<double> flat;
    for (const ParameterInfo& info : ParameterLayout(shape_)) {
      const at::Tensor gradient = P(info.name).grad().contiguous();
      flat.insert(flat.end(), gradient.const_data_ptr<double>(),
                  gradient.const_data_ptr<double>() + info.element_count);
    }
    return flat;
  }

 private:
  const at::Tensor& P(const std::string& name) const { return parameters_.at(name); }

  at::Tensor Norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor mean = at::mean(at::pow(x, 2), at::IntArrayRef({-1}), /*keepdim=*/true);
    return at::mul(at::mul(x, at::rsqrt(mean.add(shape_.rms_epsilon))), P(name));
  }

  // x: [heads, length, head_dim].
  at::Tensor Rotate(const at::Tensor& x) const {
    const int64_t half = shape_.head_dim / 2;
    const at::Tensor exponents = at::arange(half, at::kDouble).mul(-2.0 / static_cast<double>(shape_.head_dim));
    const at::Tensor frequencies = at::exp(exponents.mul(std::log(shape_.rope_theta)));
    const at::Tensor angles = at::outer(at::arange(x.size(1), at::kDouble), frequencies);
    const at::Tensor cosines = at::cat({at::cos(angles), at::cos(angles)}, -1);
    const at::Tensor sines = at::cat({at::sin(angles), at::sin(angles)}, -1);
    const at::Tensor swapped = at::cat({at::neg(x.narrow(-1, half, half)), x.narrow(-1, 0, half)}, -1);
    return at::mul(x, cosines).add(at::mul(swapped, sines));
  }

  // [heads, length, head_dim] of the projection `name` ("…self_attn.q"), with what the family adds to it.
  at::Tensor Heads(const at::Tensor& x, const std::string& name, int64_t heads) const {
    at::Tensor y = at::linear(x, P(name + "_proj.weight"));
    if (shape_.has_qkv_bias()) y = y.add(P(name + "_proj.bias"));
    y = y.view({x.size(0), heads, shape_.head_dim});
    if (parameters_.count(name + "_norm.weight") > 0) y = Norm(y, name + "_norm.weight");
    return y.transpose(0, 1);
  }

  at::Tensor Attention(const at::Tensor& x, const std::string& prefix) const {
    const int64_t group = shape_.heads / shape_.key_value_heads;
    const at::Tensor q = Rotate(Heads(x, prefix + "q", shape_.heads));
    const at::Tensor k = at::repeat_interleave(Rotate(Heads(x, prefix + "k", shape_.key_value_heads)), group, 0);
    const at::Tensor v = at::repeat_interleave(Heads(x, prefix + "v", shape_.key_value_heads), group, 0);
    const at::Tensor scores =
        at::matmul(q, k.transpose(1, 2)).mul(1.0 / std::sqrt(static_cast<double>(shape_.head_dim)));
    const at::Tensor mask =
        at::triu(at::full({x.size(0), x.size(0)}, -std::numeric_limits<double>::infinity(), at::kDouble), 1);
    const at::Tensor mixed = at::matmul(at::softmax(scores.add(mask), -1), v);
    return mixed.transpose(0, 1).reshape({x.size(0), shape_.heads * shape_.head_dim});
  }

  ModelShape shape_;
  std::map<std::string, at::Tensor> parameters_;
};

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

ModelShape GroupedTiedShape() {
  ModelShape shape = internal::OddShape();
  shape.tied_head = true;
  shape.heads = 6;
  shape.key_value_heads = 2;
  shape.head_dim = 16;
  return shape;
}

class ModelParityTest : public ::testing::TestWithParam<ModelShape> {};

TEST_P(ModelParityTest, GradientsEqualAutograd) {
  const ModelShape shape = GetParam();
  const std::vector<double> flat = internal::SpreadParameters<double>(shape, 41);
  const PackedSequences sequences = internal::RandomSequences(shape, {4, 31, 1, 16, 50}, 42);
  std::vector<ScoredPosition> positions = internal::NextTokenPositions(sequences);
  const std::vector<std::vector<int32_t>> legal_sets = {{1, 2, 3, 5, 8, 13, 21, 34}, {7, 11}};
  RandomStream stream = internal::Stream(43);
  std::vector<double> for_logprobs, for_entropies;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i % 3 == 0) positions[i].temperature = 0.9f;
    if (i % 4 == 1) {
      positions[i].legal_set = static_cast<int32_t>(i % 8 / 4);
      positions[i].target = legal_sets[positions[i].legal_set][1];
    }
    for_logprobs.push_back(stream.NextNormal());
    for_entropies.push_back(stream.NextNormal());
  }

  ParallelFor parallel(2);
  Transformer<double> model(shape, &parallel);
  model.SetParameters(flat);
  PositionScores<double> scores;
  ASSERT_TRUE(model.Score(sequences, positions, legal_sets, true, &scores).ok());
  std::vector<double> gradients(flat.size(), 0.0);
  ASSERT_TRUE(model.Backward(for_logprobs, for_entropies, absl::MakeSpan(gradients)).ok());

  const TorchModel torch(shape, flat);
  at::Tensor objective;
  size_t next = 0;
  for (int64_t s = 0; s < sequences.sequence_count(); ++s) {
    const std::vector<int64_t> ids(sequences.tokens.begin() + sequences.starts[s],
                                   sequences.tokens.begin() + sequences.starts[s + 1]);
    const at::Tensor logits = torch.Logits(ids);
    for (; next < positions.size() && positions[next].row < sequences.starts[s + 1]; ++next) {
      const ScoredPosition& p = positions[next];
      at::Tensor row = logits.select(0, p.row - sequences.starts[s]).mul(1.0 / static_cast<double>(p.temperature));
      int64_t target = p.target;
      if (p.legal_set >= 0) {
        const std::vector<int32_t>& legal = legal_sets[p.legal_set];
        const std::vector<int64_t> ids64(legal.begin(), legal.end());
        row = row.index_select(0, Ids(ids64));
        target = 1;
      }
      const at::Tensor logprobs = at::log_softmax(row, -1);
      const at::Tensor entropy = at::neg(at::sum(at::mul(at::exp(logprobs), logprobs)));
      EXPECT_NEAR(scores.logprobs[next], logprobs[target].item<double>(),
                  1e-12 * (1 + std::abs(scores.logprobs[next])));
      EXPECT_NEAR(scores.entropies[next], entropy.item<double>(), 1e-12);
      const at::Tensor term = logprobs[target].mul(for_logprobs[next]).add(entropy.mul(for_entropies[next]));
      objective = objective.defined() ? objective.add(term) : term;
    }
  }
  ASSERT_EQ(next, positions.size());
  objective.backward();
  const std::vector<double> expected = torch.Gradients();
  ASSERT_EQ(expected.size(), gradients.size());
  // Tensor by tensor, so that no small one hides behind a large one.
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    std::vector<double> error, reference;
    for (int64_t i = info.offset; i < info.offset + info.element_count; ++i) {
      error.push_back(gradients[i] - expected[i]);
      reference.push_back(expected[i]);
    }
    EXPECT_GT(Norm(reference), 0) << info.name;
    EXPECT_LT(Norm(error), 1e-11 * Norm(reference)) << info.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ModelParityTest,
                         ::testing::Values(internal::OddShape(), internal::SmallShape(), GroupedTiedShape(),
                                           internal::OddQwen2Shape(), internal::TiedQwen3Shape()));

}  // namespace
}  // namespace leeway
