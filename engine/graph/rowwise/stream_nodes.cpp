#include "engine/graph/rowwise/stream_nodes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"

namespace kvant::graph {
namespace {

// The least mean square that products are taken to have, as in the model's definition.
constexpr double kMeanSquareMin = 1e-5;

double MeanSquare(const float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum / static_cast<double>(count);
}

// The factor that makes a product as long as a vector with the root mean square `target`.
float LengthFactor(double target, const float* product, int64_t count) {
  return static_cast<float>(target /
                            std::sqrt(std::max(MeanSquare(product, count), kMeanSquareMin)));
}

// A node whose shares take whole rows.
class StreamNode : public Node {
 public:
  StreamNode(std::string name, const StreamShape& shape, ValueId rows, std::vector<ValueId> reads,
             std::vector<ValueId> writes)
      : Node(std::move(name), std::move(reads), std::move(writes)), shape_(shape), of_rows_(rows) {
    KVANT_CHECK(shape.count >= 1 && shape.count <= kStreamsMax);
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(of_rows_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) RunRow(pass, row);
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], shape_.columns());
  }

  std::string Describe() const override {
    return fmt::format("{} streams [{}]", shape_.count, shape_.dim);
  }

 protected:
  virtual void RunRow(const PassContext& pass, int64_t row) const = 0;

  // out = coefs . tanh(router); `coefs` has a row for each value of `out`.
  void Route(const WeightVector& coefs, const float* router, float* out) const {
    std::array<float, kStreamsMax> turned;
    for (int64_t i = 0; i < shape_.count; ++i) {
      turned[static_cast<size_t>(i)] = std::tanh(router[i]);
    }
    const auto count = static_cast<size_t>(shape_.count);
    for (size_t r = 0; r < coefs.size() / count; ++r) {
      float sum = 0;
      for (size_t i = 0; i < count; ++i) sum += coefs[r * count + i] * turned[i];
      out[r] = sum;
    }
  }

  StreamShape shape_;

 private:
  ValueId of_rows_;
};

class BeginStreamsNode final : public StreamNode {
 public:
  BeginStreamsNode(const StreamShape& shape, ValueId x, ValueId products, ValueId streams)
      : StreamNode("begin_streams", shape, x, {x, products}, {streams}),
        x_(x),
        products_(products),
        streams_(streams) {}

 private:
  void RunRow(const PassContext& pass, int64_t row) const override {
    const float* x = pass.FloatRow(x_, row);
    float* stream = std::copy_n(x, shape_.dim, pass.FloatRow(streams_, row));
    const double target = std::sqrt(MeanSquare(x, shape_.dim));
    const float* product = pass.FloatRow(products_, row);
    for (int64_t i = 1; i < shape_.count; ++i) {
      const float factor = LengthFactor(target, product, shape_.dim);
      for (int64_t d = 0; d < shape_.dim; ++d) *stream++ = factor * *product++;
    }
  }

  ValueId x_;
  ValueId products_;
  ValueId streams_;
};

class EndStreamsNode final : public StreamNode {
 public:
  EndStreamsNode(const StreamShape& shape, ValueId streams, ValueId products, ValueId x)
      : StreamNode("end_streams", shape, x, {streams, products}, {x}),
        streams_(streams),
        products_(products),
        x_(x) {}

 private:
  void RunRow(const PassContext& pass, int64_t row) const override {
    const float* first = pass.FloatRow(streams_, row);
    float* x = pass.FloatRow(x_, row);
    std::copy_n(first, shape_.dim, x);
    const double target = std::sqrt(MeanSquare(first, shape_.dim));
    const float* product = pass.FloatRow(products_, row);
    for (int64_t i = 1; i < shape_.count; ++i, product += shape_.dim) {
      const float factor = LengthFactor(target, product, shape_.dim);
      for (int64_t d = 0; d < shape_.dim; ++d) x[d] += factor * product[d];
    }
    const float share = 1.0f / static_cast<float>(shape_.count);
    for (int64_t d = 0; d < shape_.dim; ++d) x[d] *= share;
  }

  ValueId streams_;
  ValueId products_;
  ValueId x_;
};

class PredictStreamsNode final : public StreamNode {
 public:
  PredictStreamsNode(std::string name, const StreamShape& shape, WeightVector coefs, ValueId router,
                     ValueId streams, ValueId x)
      : StreamNode(std::move(name), shape, router, {router, streams}, {streams, x}),
        coefs_(std::move(coefs)),
        router_(router),
        streams_(streams),
        x_(x) {}

 private:
  void RunRow(const PassContext& pass, int64_t row) const override {
    std::array<float, kStreamsMax * kStreamsMax> p;
    Route(coefs_, pass.FloatRow(router_, row), p.data());
    const int64_t count = shape_.count;
    float* streams = pass.FloatRow(streams_, row);
    std::array<float, kStreamsMax> before;
    for (int64_t d = 0; d < shape_.dim; ++d) {
      for (int64_t i = 0; i < count; ++i) {
        before[static_cast<size_t>(i)] = streams[i * shape_.dim + d];
      }
      for (int64_t j = 0; j < count; ++j) {
        float sum = 0;
        for (int64_t i = 0; i < count; ++i) {
          sum += p[static_cast<size_t>(j * count + i)] * before[static_cast<size_t>(i)];
        }
        streams[j * shape_.dim + d] += sum;
      }
    }
    std::copy_n(streams, shape_.dim, pass.FloatRow(x_, row));
  }

  WeightVector coefs_;
  ValueId router_;
  ValueId streams_;
  ValueId x_;
};

class CorrectStreamsNode final : public StreamNode {
 public:
  CorrectStreamsNode(std::string name, const StreamShape& shape, WeightVector coefs,
                     WeightVector scale, ValueId router, ValueId x, ValueId streams)
      : StreamNode(std::move(name), shape, router, {router, x, streams}, {streams, x}),
        coefs_(std::move(coefs)),
        scale_(std::move(scale)),
        router_(router),
        x_(x),
        streams_(streams) {}

 private:
  void RunRow(const PassContext& pass, int64_t row) const override {
    std::array<float, kStreamsMax> c;
    Route(coefs_, pass.FloatRow(router_, row), c.data());
    float* x = pass.FloatRow(x_, row);
    float* streams = pass.FloatRow(streams_, row);
    for (int64_t d = 0; d < shape_.dim; ++d) {
      const float innovation = x[d] - streams[d];
      for (int64_t j = 0; j < shape_.count; ++j) {
        streams[j * shape_.dim + d] += (1.0f + c[static_cast<size_t>(j)]) * innovation;
      }
      x[d] = streams[d] * (scale_.empty() ? 1.0f : scale_[static_cast<size_t>(d)]);
    }
  }

  WeightVector coefs_;
  WeightVector scale_;
  ValueId router_;
  ValueId x_;
  ValueId streams_;
};

class AddToStreamsNode final : public StreamNode {
 public:
  AddToStreamsNode(std::string name, const StreamShape& shape, ValueId in, ValueId streams)
      : StreamNode(std::move(name), shape, in, {in, streams}, {streams}),
        in_(in),
        streams_(streams) {}

 private:
  void RunRow(const PassContext& pass, int64_t row) const override {
    const float* in = pass.FloatRow(in_, row);
    float* stream = pass.FloatRow(streams_, row);
    for (int64_t i = 1; i < shape_.count; ++i) {
      stream += shape_.dim;
      for (int64_t d = 0; d < shape_.dim; ++d) stream[d] += in[d];
    }
  }

  ValueId in_;
  ValueId streams_;
};

class SparseGateNode final : public Node {
 public:
  SparseGateNode(const cpu::KernelTable& kernels, std::string name, cpu::Activation activation,
                 float scale, ValueId gate_up, const Activations& out)
      : Node(std::move(name), {gate_up}, Writes(gate_up, out)),
        kernels_(kernels),
        activation_(kernels.ForActivation(activation)),
        scale_(scale),
        gate_up_(gate_up),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(gate_up_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* gate = pass.FloatRow(gate_up_, row);
      float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) : gate;
      DropSmall(gate);
      activation_.multiply(gate, gate + out_.cols, out_.cols, out);
      if (out_.int8 == kNoValue) continue;
      pass.Quantize(kernels_, out, out_.cols, {out_.int8, row, out_.cols, 0});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 4 * out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("{} of gates above mean + {} deviations * up{} {} [{}]", activation_.name,
                       scale_, out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa,
                       out_.cols);
  }

 private:
  static std::vector<ValueId> Writes(ValueId gate_up, const Activations& out) {
    std::vector<ValueId> writes = out.ids();
    writes.push_back(gate_up);
    return writes;
  }

  // The sums are doubles, so that deviations that are small beside the mean stay exact.
  void DropSmall(float* gate) const {
    const auto count = static_cast<double>(out_.cols);
    double mean = 0;
    for (int64_t i = 0; i < out_.cols; ++i) mean += static_cast<double>(gate[i]);
    mean /= count;
    double squares = 0;
    for (int64_t i = 0; i < out_.cols; ++i) {
      const double off = static_cast<double>(gate[i]) - mean;
      squares += off * off;
    }
    const double deviation = std::sqrt(squares / count);
    const auto cut = static_cast<float>(mean + deviation * static_cast<double>(scale_));
    for (int64_t i = 0; i < out_.cols; ++i) gate[i] = std::max(0.0f, gate[i] - cut);
  }

  const cpu::KernelTable& kernels_;
  const cpu::ActivationKernel& activation_;
  float scale_;
  ValueId gate_up_;
  Activations out_;
};

}  // namespace

std::unique_ptr<Node> MakeBeginStreams(const StreamShape& shape, ValueId x, ValueId products,
                                       ValueId streams) {
  return std::make_unique<BeginStreamsNode>(shape, x, products, streams);
}

std::unique_ptr<Node> MakeEndStreams(const StreamShape& shape, ValueId streams, ValueId products,
                                     ValueId x) {
  return std::make_unique<EndStreamsNode>(shape, streams, products, x);
}

std::unique_ptr<Node> MakePredictStreams(std::string name, const StreamShape& shape,
                                         WeightVector coefs, ValueId router, ValueId streams,
                                         ValueId x) {
  return std::make_unique<PredictStreamsNode>(std::move(name), shape, std::move(coefs), router,
                                              streams, x);
}

std::unique_ptr<Node> MakeCorrectStreams(std::string name, const StreamShape& shape,
                                         WeightVector coefs, WeightVector scale, ValueId router,
                                         ValueId x, ValueId streams) {
  return std::make_unique<CorrectStreamsNode>(std::move(name), shape, std::move(coefs),
                                              std::move(scale), router, x, streams);
}

std::unique_ptr<Node> MakeAddToStreams(std::string name, const StreamShape& shape, ValueId in,
                                       ValueId streams) {
  return std::make_unique<AddToStreamsNode>(std::move(name), shape, in, streams);
}

std::unique_ptr<Node> MakeSparseGate(const cpu::KernelTable& kernels, std::string name,
                                     cpu::Activation activation, float scale, ValueId gate_up,
                                     const Activations& out) {
  return std::make_unique<SparseGateNode>(kernels, std::move(name), activation, scale, gate_up,
                                          out);
}

}  // namespace kvant::graph
