// A forward pass in double precision over a GGUF file's decoded weights, from the formulas of the
// Llama and Phi-3 papers. It shares nothing with the engine but the file reader: no cache, no plan,
// no kernels.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace kvant::test {

class ReferenceForward {
 public:
  explicit ReferenceForward(const formats::GgufFile& file)
      : file_(file), arch_(Text("general.architecture")) {
    dim_ = Number("embedding_length");
    layers_ = Number("block_count");
    heads_ = Number("attention.head_count");
    kv_heads_ = Number("attention.head_count_kv", heads_);
    head_dim_ = Number("attention.key_length", dim_ / heads_);
    ffn_ = Number("feed_forward_length");
    window_ = Number("attention.sliding_window", 0);
    epsilon_ = Real("attention.layer_norm_rms_epsilon", 1e-5);
    base_ = Real("rope.freq_base", 10000.0);
    vocab_ = file.FindTensor("token_embd.weight")->dims[1];
  }

  // Sums of squares of every matrix's inputs, per column, over all tokens so far.
  const std::map<std::string, std::vector<double>>& input_squares() const { return squares_; }

  // [tokens][vocab]
  std::vector<double> Logits(const std::vector<int32_t>& tokens) {
    const size_t n = tokens.size();
    std::vector<std::vector<double>> x(n);
    const std::vector<double>& embedding = Weight("token_embd.weight");
    for (size_t t = 0; t < n; ++t) {
      const auto row = embedding.begin() + tokens[t] * dim_;
      x[t].assign(row, row + dim_);
    }
    for (int64_t layer = 0; layer < layers_; ++layer)
      Layer("blk." + std::to_string(layer) + ".", x);
    std::vector<double> logits;
    const bool tied = file_.FindTensor("output.weight") == nullptr;
    for (size_t t = 0; t < n; ++t) {
      const auto row =
          Multiply(tied ? "token_embd.weight" : "output.weight", Norm("output_norm.weight", x[t]));
      logits.insert(logits.end(), row.begin(), row.end());
    }
    return logits;
  }

 private:
  using Vector = std::vector<double>;

  std::string Text(const char* key) const { return std::string(**file_.GetString(key)); }
  int64_t Number(const char* name, int64_t otherwise = 0) const {
    return (*file_.GetU32(arch_ + "." + name)).value_or(static_cast<uint32_t>(otherwise));
  }
  double Real(const char* name, double otherwise) const {
    return static_cast<double>(
        (*file_.GetF32(arch_ + "." + name)).value_or(static_cast<float>(otherwise)));
  }

  const Vector& Weight(const std::string& name) {
    auto [entry, added] = weights_.try_emplace(name);
    if (added) {
      const formats::GgufTensor* tensor = file_.FindTensor(name);
      std::vector<float> values(static_cast<size_t>(tensor->n_values()));
      tensor->format->decode(tensor->data, values.data(), tensor->n_values());
      entry->second.assign(values.begin(), values.end());
    }
    return entry->second;
  }

  Vector Multiply(const std::string& name, const Vector& in) {
    const Vector& weight = Weight(name);
    Vector& squares = squares_[name];
    squares.resize(in.size());
    for (size_t c = 0; c < in.size(); ++c) squares[c] += in[c] * in[c];
    Vector out(weight.size() / in.size());
    for (size_t r = 0; r < out.size(); ++r) {
      for (size_t c = 0; c < in.size(); ++c) out[r] += weight[r * in.size() + c] * in[c];
    }
    return out;
  }

  Vector Norm(const std::string& name, const Vector& in) {
    const Vector& weight = Weight(name);
    double squares = 0;
    for (const double value : in) squares += value * value;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(in.size()) + epsilon_);
    Vector out(in.size());
    for (size_t i = 0; i < in.size(); ++i) out[i] = in[i] * factor * weight[i];
    return out;
  }

  void Rotate(double* head, size_t position) const {
    const int64_t half = head_dim_ / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(base_, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim_));
      const bool halves = arch_ == "phi3";
      double& a = head[halves ? i : 2 * i];
      double& b = head[halves ? i + half : 2 * i + 1];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }

  Vector Qkv(const std::string& prefix, const Vector& normed) {
    if (file_.FindTensor(prefix + "attn_qkv.weight") != nullptr)
      return Multiply(prefix + "attn_qkv.weight", normed);
    Vector all;
    for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) {
      const Vector part = Multiply(prefix + name, normed);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  Vector Attend(const std::vector<Vector>& qkv, size_t t) const {
    Vector out(static_cast<size_t>(heads_ * head_dim_));
    const size_t first = window_ > 0 && static_cast<int64_t>(t) >= window_
                             ? t - static_cast<size_t>(window_) + 1
                             : 0;
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t kv = h / (heads_ / kv_heads_);
      const int64_t key = heads_ * head_dim_ + kv * head_dim_;
      const int64_t value = key + kv_heads_ * head_dim_;
      Vector weights;
      double total = 0;
      for (size_t s = first; s <= t; ++s) {
        double dot = 0;
        for (int64_t d = 0; d < head_dim_; ++d) {
          dot +=
              qkv[t][static_cast<size_t>(h * head_dim_ + d)] * qkv[s][static_cast<size_t>(key + d)];
        }
        weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(head_dim_))));
        total += weights.back();
      }
      for (size_t s = first; s <= t; ++s) {
        for (int64_t d = 0; d < head_dim_; ++d) {
          out[static_cast<size_t>(h * head_dim_ + d)] +=
              weights[s - first] / total * qkv[s][static_cast<size_t>(value + d)];
        }
      }
    }
    return out;
  }

  Vector FeedForward(const std::string& prefix, const Vector& normed) {
    Vector up = Multiply(prefix + "ffn_up.weight", normed);
    Vector gate;
    if (file_.FindTensor(prefix + "ffn_gate.weight") != nullptr) {
      gate = Multiply(prefix + "ffn_gate.weight", normed);
    } else {
      gate.assign(up.begin(), up.begin() + ffn_);
      up.erase(up.begin(), up.begin() + ffn_);
    }
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    return Multiply(prefix + "ffn_down.weight", gate);
  }

  void Layer(const std::string& prefix, std::vector<Vector>& x) {
    std::vector<Vector> qkv;
    for (size_t t = 0; t < x.size(); ++t) {
      qkv.push_back(Qkv(prefix, Norm(prefix + "attn_norm.weight", x[t])));
      for (int64_t h = 0; h < heads_ + kv_heads_; ++h) Rotate(qkv.back().data() + h * head_dim_, t);
    }
    for (size_t t = 0; t < x.size(); ++t) {
      AddTo(x[t], Multiply(prefix + "attn_output.weight", Attend(qkv, t)));
      AddTo(x[t], FeedForward(prefix, Norm(prefix + "ffn_norm.weight", x[t])));
    }
  }

  static void AddTo(Vector& a, const Vector& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  }

  const formats::GgufFile& file_;
  std::string arch_;
  int64_t dim_, layers_, heads_, kv_heads_, head_dim_, ffn_, window_, vocab_;
  double epsilon_, base_;
  std::map<std::string, Vector> weights_;
  std::map<std::string, Vector> squares_;
};

}  // namespace kvant::test
