// A forward pass in double precision over a GGUF file's decoded weights: it walks the file's
// ModelSpec and computes each block by its formula (tests/engine/reference). With the engine it
// shares the reader of metadata and nothing else: no cache, no plan, no kernels. That a ModelSpec
// says what a family computes is shown by the logits of other programs in tests/reference.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "formats/gguf.h"
#include "tests/engine/reference/attention.h"
#include "tests/engine/reference/cross_attention.h"
#include "tests/engine/reference/delta_net.h"
#include "tests/engine/reference/experts.h"
#include "tests/engine/reference/ffn_and_experts.h"
#include "tests/engine/reference/frame_input.h"
#include "tests/engine/reference/gated_ffn.h"
#include "tests/engine/reference/hyper_streams.h"
#include "tests/engine/reference/kda.h"
#include "tests/engine/reference/latent_attention.h"
#include "tests/engine/reference/layer_input.h"
#include "tests/engine/reference/mamba1.h"
#include "tests/engine/reference/mamba2.h"
#include "tests/engine/reference/plain_ffn.h"
#include "tests/engine/reference/rwkv.h"
#include "tests/engine/reference/short_conv.h"
#include "tests/engine/reference/streams.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceForward {
 public:
  explicit ReferenceForward(const formats::GgufFile& file)
      : spec_(arch::ReadSpec(file).value()), weights_(file) {}

  // Sums of squares of every matrix's inputs, per column, over all tokens so far.
  const std::map<std::string, Vector>& input_squares() const { return weights_.input_squares(); }

  const ReferenceWeights& weights() const { return weights_; }

  // The encoder's output for a source, [tokens][dim]. Logits that are computed afterwards are those
  // of texts with this source.
  std::vector<Vector> Encode(const std::vector<int32_t>& tokens) {
    const arch::Stack& stack = spec_.encoder->stack;
    return FinishEncoding(RunLayers(stack, Embedded(stack, tokens), tokens));
  }

  // The encoder's output for frames, [values of a frame][frames].
  std::vector<Vector> EncodeFrames(const std::vector<float>& frames) {
    const arch::Stack& stack = spec_.encoder->stack;
    std::vector<Vector> stream = ReferenceFrames(*spec_.encoder->frames, frames, weights_);
    for (size_t i = 0; i < stream.size(); ++i) AddInputSteps(stack, i, stream[i]);
    return FinishEncoding(RunLayers(stack, std::move(stream), {}));
  }

  // The rows of a text behind the last norm, [tokens][dim], of the stack that reads texts first;
  // `types` are the segments of the tokens, or empty.
  std::vector<Vector> Rows(const std::vector<int32_t>& tokens,
                           const std::vector<int32_t>& types = {}) {
    const arch::Stack& stack = arch::FirstStack(spec_);
    std::vector<Vector> rows = RunLayers(stack, Embedded(stack, tokens, types), tokens);
    for (Vector& row : rows) row = FinalNorm(stack, row);
    return rows;
  }

  // The logits of a classifier for the rows of a text.
  Vector Scores(const std::vector<Vector>& rows) {
    const arch::Embedding& embedding = spec_.embedding;
    Vector row = embedding.classifier_pooling == Pooling::kLast ? rows.back() : rows.front();
    if (embedding.classifier_pooling == Pooling::kMean) {
      std::fill(row.begin(), row.end(), 0.0);
      for (const Vector& one : rows) {
        for (size_t i = 0; i < row.size(); ++i) {
          row[i] += one[i] / static_cast<double>(rows.size());
        }
      }
    }
    if (weights_.Has("cls.weight")) {
      row = weights_.Multiply("cls", row);
      for (double& value : row) {
        value = ReferenceActivation(embedding.classifier_activation, value);
      }
    }
    if (weights_.Has("cls.norm.weight")) {
      row = weights_.Norm(
          "", {arch::NormKind::kLayer, "cls.norm", spec_.embedder->final_norm.epsilon}, row);
    }
    return weights_.Multiply("cls.output", row);
  }

  ReferenceWeights& weights() { return weights_; }
  const arch::ModelSpec& spec() const { return spec_; }

  // [tokens][vocab]
  Vector Logits(const std::vector<int32_t>& tokens) {
    const arch::Stack& stack = spec_.stacks.front();
    const std::vector<Vector> stream = RunLayers(stack, Embedded(stack, tokens), tokens);
    Vector logits;
    const bool tied = !weights_.Has(std::string(stack.output.tensor) + ".weight");
    const std::string matrix(tied ? stack.input.tensor : stack.output.tensor);
    for (const Vector& row : stream) {
      Vector one = weights_.Multiply(matrix, FinalNorm(stack, row));
      const std::string bias = std::string(stack.output.tensor) + ".bias";
      for (size_t i = 0; i < one.size() && tied && weights_.Has(bias); ++i) {
        one[i] += weights_.Get(bias)[i];
      }
      for (double& logit : one) logit *= static_cast<double>(stack.output.scale);
      const double cap = static_cast<double>(stack.output.cap);
      for (double& logit : one) logit = cap > 0 ? cap * std::tanh(logit / cap) : logit;
      logits.insert(logits.end(), one.begin(), one.end());
    }
    return logits;
  }

 private:
  std::vector<Vector> FinishEncoding(std::vector<Vector> stream) {
    for (Vector& row : stream) row = FinalNorm(spec_.encoder->stack, row);
    weights_.Kept("encoded") = stream;
    return stream;
  }

  // The stream in front of the first layer.
  std::vector<Vector> Embedded(const arch::Stack& stack, const std::vector<int32_t>& tokens,
                               const std::vector<int32_t>& types = {}) {
    std::vector<Vector> stream;
    const Vector& embedding = weights_.Get(std::string(stack.input.tensor) + ".weight");
    for (const int32_t token : tokens) {
      const auto row = embedding.begin() + token * stack.dim;
      stream.emplace_back(row, row + stack.dim);
      for (double& value : stream.back()) value *= static_cast<double>(stack.input.scale);
      const std::string segments = std::string(stack.input.token_types) + ".weight";
      for (size_t i = 0; i < stream.back().size() && weights_.Has(segments); ++i) {
        const auto type = static_cast<size_t>(types.empty() ? 0 : types[stream.size() - 1]);
        stream.back()[i] += weights_.Get(segments)[type * stream.back().size() + i];
      }
      AddInputSteps(stack, stream.size() - 1, stream.back());
    }
    return stream;
  }

  // The stream behind the last layer.
  std::vector<Vector> RunLayers(const arch::Stack& stack, std::vector<Vector> stream,
                                const std::vector<int32_t>& tokens) {
    if (stack.layer_inputs.has_value()) {
      weights_.Kept("layer_inputs") =
          ReferenceLayerInputs(*stack.layer_inputs, tokens, stream, weights_);
    }
    if (stack.streams.has_value()) {
      ReferenceBeginStreams(*stack.streams, stream, weights_);
    }
    if (stack.hyper.has_value()) ReferenceBeginHyper(*stack.hyper, stream, tokens, weights_);
    for (size_t i = 0; i < stack.layers.size(); ++i) {
      const std::string prefix = std::string(stack.layer_prefix) + "." + std::to_string(i) + ".";
      const arch::Flow flow = stack.layers[i].flow;
      const std::vector<Vector> before = stream;
      const auto& sublayers = stack.layers[i].sublayers;
      for (size_t s = 0; s < sublayers.size(); ++s) {
        const bool last = s + 1 == sublayers.size();
        const bool reads_before =
            flow == arch::Flow::kParallel || (flow == arch::Flow::kParallelMixers && !last);
        AddSublayer(sublayers[s], prefix, reads_before ? before : std::vector<Vector>(stream),
                    stream);
      }
      const std::string scale = prefix + std::string(stack.layers[i].output_scale) + ".weight";
      for (Vector& row : stream) {
        for (double& value : row) value *= weights_.Has(scale) ? weights_.Get(scale).front() : 1;
      }
    }
    if (stack.streams.has_value()) ReferenceEndStreams(*stack.streams, stream, weights_);
    for (size_t t = 0; t < stream.size() && stack.hyper.has_value(); ++t) {
      stream[t] = ReferenceHyperMean(*stack.hyper, std::string(stack.hyper->last),
                                     weights_.Kept(kHyperRows)[t], weights_, nullptr);
    }
    return stream;
  }

  Vector FinalNorm(const arch::Stack& stack, const Vector& row) {
    return stack.final_norm.kind == arch::NormKind::kNone
               ? row
               : weights_.Norm("", stack.final_norm, row);
  }

  // Applies the steps between a row of the embedding and the first layer.
  void AddInputSteps(const arch::Stack& stack, size_t position, Vector& row) {
    if (!stack.input.positions.empty()) {
      const Vector& learned = weights_.Get(std::string(stack.input.positions) + ".weight");
      for (size_t i = 0; i < row.size(); ++i) row[i] += learned[position * row.size() + i];
    }
    if (stack.input.norm.has_value()) row = weights_.Norm("", *stack.input.norm, row);
  }

  // A sublayer that reads a mean of several streams, and is added to each of them.
  void AddConnected(const arch::Sublayer& sublayer, const std::string& prefix) {
    std::vector<Vector>& streams = weights_.Kept(kHyperRows);
    std::vector<Vector> shares(streams.size());
    std::vector<Vector> in;
    for (size_t t = 0; t < streams.size(); ++t) {
      in.push_back(ReferenceHyperMean(*spec_.stacks.front().hyper,
                                      prefix + std::string(sublayer.connection), streams[t],
                                      weights_, &shares[t]));
    }
    const std::vector<Vector> out =
        std::visit([&](const auto& block) { return Reference(block, spec_, prefix, weights_, in); },
                   sublayer.block);
    for (size_t t = 0; t < streams.size(); ++t) ReferenceInject(shares[t], out[t], streams[t]);
  }

  void AddSublayer(const arch::Sublayer& sublayer, const std::string& prefix,
                   const std::vector<Vector>& in, std::vector<Vector>& stream) {
    if (!sublayer.connection.empty()) return AddConnected(sublayer, prefix);
    std::vector<Vector> normed;
    for (const Vector& row : in) {
      normed.push_back(sublayer.norm_before.has_value()
                           ? weights_.Norm(prefix, *sublayer.norm_before, row)
                           : row);
    }
    std::vector<Vector> out = std::visit(
        [&](const auto& block) { return Reference(block, spec_, prefix, weights_, normed); },
        sublayer.block);
    if (std::holds_alternative<arch::NgramInput>(sublayer.block)) return;  // adds to the streams
    for (size_t t = 0; t < stream.size(); ++t) {
      if (sublayer.norm_after.has_value()) {
        out[t] = weights_.Norm(prefix, *sublayer.norm_after, out[t]);
      }
      if (sublayer.norm_with_stream.has_value()) {
        for (size_t i = 0; i < out[t].size(); ++i) out[t][i] += stream[t][i];
        out[t] = weights_.Norm(prefix, *sublayer.norm_with_stream, out[t]);
      }
      const bool to_streams = !spec_.stacks.empty() && spec_.stacks.front().streams.has_value() &&
                              std::holds_alternative<arch::LayerInput>(sublayer.block);
      if (to_streams) AddToOtherStreams(out[t], weights_.Kept("streams")[t]);
      if (to_streams) continue;
      for (size_t i = 0; i < out[t].size(); ++i) {
        stream[t][i] += static_cast<double>(sublayer.residual_scale) * out[t][i];
        stream[t][i] *= ReferenceStreamScale(sublayer.block);
      }
      if (sublayer.norm_of_sum.has_value()) {
        stream[t] = weights_.Norm(prefix, *sublayer.norm_of_sum, stream[t]);
      }
    }
  }

  arch::ModelSpec spec_;
  ReferenceWeights weights_;
};

}  // namespace kvant::test
