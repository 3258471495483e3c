// A file's weights in double precision, and products and norms with them in plain loops.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/arch/norm.h"
#include "formats/gguf.h"

namespace kvant::test {

using Vector = std::vector<double>;

class ReferenceWeights {
 public:
  explicit ReferenceWeights(const formats::GgufFile& file) : file_(file) {}

  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }

  // Whether a tensor's values have been asked for.
  bool IsRead(const std::string& name) const { return weights_.contains(name); }

  // The rows that one layer keeps for another, by the prefix of its tensors.
  std::vector<Vector>& Kept(const std::string& prefix) { return kept_[prefix]; }

  // All values of a tensor, row after row.
  const Vector& Get(const std::string& name) {
    auto [entry, added] = weights_.try_emplace(name);
    if (added) {
      const formats::GgufTensor* tensor = file_.FindTensor(name);
      std::vector<float> values(static_cast<size_t>(tensor->n_values()));
      tensor->format->decode(tensor->data, values.data(), tensor->n_values());
      entry->second.assign(values.begin(), values.end());
    }
    return entry->second;
  }

  // The matrix `name`.weight times `in`, plus `name`.bias.
  Vector Multiply(const std::string& name, const Vector& in) {
    const Vector& weight = Get(name + ".weight");
    Vector& squares = squares_[name + ".weight"];
    squares.resize(in.size());
    for (size_t c = 0; c < in.size(); ++c) squares[c] += in[c] * in[c];
    Vector out(weight.size() / in.size());
    if (Has(name + ".bias")) out = Get(name + ".bias");
    const double scale = Has(name + ".scale") ? Get(name + ".scale").front() : 1;
    AddProducts(weight.data(), scale, in, out);
    return out;
  }

  // Multiplies with the matrix of one expert out of several.
  Vector MultiplyExpert(const std::string& name, size_t expert, const Vector& in) {
    const formats::GgufTensor& tensor = *file_.FindTensor(name + ".weight");
    const auto rows = static_cast<size_t>(tensor.dims[1]);
    const Vector& weight = Get(name + ".weight");
    Vector& squares = squares_[name + ".weight"];
    squares.resize(in.size() * static_cast<size_t>(tensor.dims[2]));
    for (size_t c = 0; c < in.size(); ++c) squares[expert * in.size() + c] += in[c] * in[c];
    Vector out(rows);
    const double scale = Has(name + ".scale") ? Get(name + ".scale")[expert] : 1;
    if (Has(name + ".bias")) {
      const double* bias = Get(name + ".bias").data() + expert * rows;
      out.assign(bias, bias + rows);
    }
    AddProducts(weight.data() + expert * rows * in.size(), scale, in, out);
    return out;
  }

  // Counts `values` among the inputs of one of several matrices of a tensor.
  void CountInput(const std::string& name, size_t matrix, size_t matrices, const double* values,
                  size_t cols) {
    Vector& squares = squares_[name + ".weight"];
    squares.resize(cols * matrices);
    for (size_t c = 0; c < cols; ++c) squares[matrix * cols + c] += values[c] * values[c];
  }

  Vector Norm(const std::string& prefix, const arch::Norm& norm, const Vector& in) {
    Vector out = in;
    const std::string name = norm.tensor.empty() ? "" : prefix + std::string(norm.tensor);
    const Vector weight =
        name.empty() ? Vector(in.size(), 1.0) : Get(Has(name) ? name : name + ".weight");
    NormVector(norm.kind, static_cast<double>(norm.epsilon), weight.data(), weight.size(),
               out.data());
    if (norm.kind == arch::NormKind::kLayer && Has(name + ".bias")) {
      const Vector& bias = Get(name + ".bias");
      for (size_t i = 0; i < out.size(); ++i) out[i] += bias[i];
    }
    return out;
  }

  // Norms in place, without a bias.
  static void NormVector(arch::NormKind kind, double epsilon, const double* weight, size_t count,
                         double* values) {
    double mean = 0;
    for (size_t i = 0; i < count; ++i) mean += values[i] / static_cast<double>(count);
    if (kind != arch::NormKind::kLayer) mean = 0;
    double squares = 0;
    for (size_t i = 0; i < count; ++i) squares += (values[i] - mean) * (values[i] - mean);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(count) + epsilon);
    for (size_t i = 0; i < count; ++i) values[i] = (values[i] - mean) * factor * weight[i];
  }

  // Rows that the first layer of a pass leaves to the others.
  std::vector<Vector>& first_values() { return first_values_; }

  // Sums of squares of every matrix's inputs, per column, over all products so far.
  const std::map<std::string, Vector>& input_squares() const { return squares_; }

 private:
  // Takes pointers, because tests are compiled without optimisation, and vectors' operators cost
  // time then.
  static void AddProducts(const double* matrix, double scale, const Vector& in, Vector& out) {
    const double* values = in.data();
    const size_t columns = in.size();
    for (double& result : out) {
      double sum = result;
      for (size_t c = 0; c < columns; ++c) sum += scale * matrix[c] * values[c];
      result = sum;
      matrix += columns;
    }
  }

  const formats::GgufFile& file_;
  std::map<std::string, Vector> weights_;
  std::map<std::string, Vector> squares_;
  std::map<std::string, std::vector<Vector>> kept_;
  std::vector<Vector> first_values_;
};

}  // namespace kvant::test
