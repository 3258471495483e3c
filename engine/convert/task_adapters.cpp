#include "engine/convert/task_adapters.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "formats/quoted.h"
#include "quant/format.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonObject;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

constexpr std::string_view kApart = ".parametrizations.";
constexpr std::string_view kOriginal = ".parametrizations.weight.original";
constexpr std::string_view kTasksKey = "lora_adaptations";

bool IsApart(const SafetensorsTensor& tensor) {
  return tensor.name.find(kApart) != std::string::npos;
}

// The number of a task and of all tasks.
struct Task {
  int64_t number = 0;
  int64_t count = 0;
  double alpha = 1;
};

Result<Task> FindTask(const JsonObject& config, std::string_view name) {
  const Json* names = config.Find(kTasksKey);
  std::vector<std::string> known;
  for (const Json& entry : names == nullptr ? Json::array() : *names) {
    if (!entry.is_string()) return config.Wrong(kTasksKey, "an array of names");
    known.push_back(entry.get<std::string>());
  }
  const auto found = std::ranges::find(known, name);
  if (found == known.end()) {
    return MakeError(name.empty() ? ErrorCode::kNotSupported : ErrorCode::kInvalid,
                     "{}: the weights have adapters of several tasks: expected one of them "
                     "(--task {}), found {}",
                     config.where(), fmt::join(known, ", "),
                     name.empty() ? "none" : formats::Quoted(name));
  }
  KVANT_ASSIGN(const auto alpha, config.Number("lora_alpha"));
  return Task{found - known.begin(), std::ssize(known), alpha.value_or(1)};
}

Result<std::vector<float>> Decode(const SafetensorsModel& model, const SafetensorsTensor& tensor) {
  const quant::FormatTraits* format = quant::FindFormat(tensor.type->name);
  if (format == nullptr || format->decode == nullptr || format->encode == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "{}: tensor {}: expected floats, found {}",
                     model.FileOf(tensor), formats::Quoted(tensor.name), tensor.type->name);
  }
  std::vector<float> values(static_cast<size_t>(tensor.n_values()));
  // The file aligns nothing.
  std::vector<std::byte> bytes(tensor.data, tensor.data + tensor.size_bytes);
  format->decode(bytes.data(), values.data(), std::ssize(values));
  return values;
}

// The two factors of a task's addition: [rows, rank] and [rank, columns].
struct Factors {
  std::span<const float> left;
  std::span<const float> right;
  int64_t rank = 0;
};

std::span<const float> MatrixOf(const std::vector<float>& stacked, const SafetensorsTensor& tensor,
                                int64_t task) {
  const auto size = static_cast<size_t>(tensor.shape[1] * tensor.shape[2]);
  return std::span(stacked).subspan(static_cast<size_t>(task) * size, size);
}

// original += scale * left right
void AddProduct(const Factors& factors, float scale, int64_t columns,
                std::vector<float>& original) {
  const auto rows = std::ssize(original) / columns;
  for (int64_t row = 0; row < rows; ++row) {
    float* out = original.data() + row * columns;
    for (int64_t i = 0; i < factors.rank; ++i) {
      const float left = scale * factors.left[static_cast<size_t>(row * factors.rank + i)];
      const float* right = factors.right.data() + i * columns;
      for (int64_t column = 0; column < columns; ++column) out[column] += left * right[column];
    }
  }
}

Result<std::vector<std::byte>> MergeOne(const SafetensorsModel& model,
                                        const SafetensorsTensor& original,
                                        const std::string& beginning, const Task& task) {
  const std::string adapters = beginning + ".parametrizations.weight.0.lora_";
  const SafetensorsTensor* a = model.Find(adapters + "A");
  const SafetensorsTensor* b = model.Find(adapters + "B");
  const bool are_stacks = original.shape.size() == 2 && a != nullptr && a->shape.size() == 3 &&
                          b != nullptr && b->shape.size() == 3 && a->shape[0] == task.count &&
                          b->shape[0] == task.count;
  const auto fits = [&](const SafetensorsTensor& left, const SafetensorsTensor& right) {
    return left.shape[1] == original.shape[0] && left.shape[2] == right.shape[1] &&
           right.shape[2] == original.shape[1];
  };
  const bool is_linear = are_stacks && fits(*b, *a);
  if (!is_linear && !(are_stacks && fits(*a, *b))) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor {}: expected lora_A and lora_B beside it, with two factors of its "
                     "shape for each of {} tasks",
                     model.FileOf(original), formats::Quoted(original.name), task.count);
  }
  const SafetensorsTensor& left = is_linear ? *b : *a;
  const SafetensorsTensor& right = is_linear ? *a : *b;
  KVANT_ASSIGN(std::vector<float> values, Decode(model, original));
  KVANT_ASSIGN(const std::vector<float> lefts, Decode(model, left));
  KVANT_ASSIGN(const std::vector<float> rights, Decode(model, right));
  const int64_t rank = left.shape[2];
  AddProduct({MatrixOf(lefts, left, task.number), MatrixOf(rights, right, task.number), rank},
             static_cast<float>(task.alpha / static_cast<double>(rank)), original.shape[1], values);
  std::vector<std::byte> bytes(original.size_bytes);
  quant::FindFormat(original.type->name)
      ->encode(values.data(), nullptr, bytes.data(), std::ssize(values));
  return bytes;
}

}  // namespace

bool HasTaskAdapters(const SafetensorsModel& weights) {
  return std::ranges::any_of(weights.tensors(), IsApart);
}

Result<TaskWeights> TaskWeights::Merge(const SafetensorsModel& weights, const JsonObject& config,
                                       std::string_view task) {
  if (!HasTaskAdapters(weights)) {
    return MakeError(ErrorCode::kInvalid, "{}: task {}: expected adapters of tasks, found none",
                     weights.files()[0], formats::Quoted(task));
  }
  KVANT_ASSIGN(const Task chosen, FindTask(config, task));
  TaskWeights out;
  std::vector<SafetensorsTensor> tensors;
  for (const SafetensorsTensor& tensor : weights.tensors()) {
    if (IsApart(tensor) && !tensor.name.ends_with(kOriginal)) continue;
    SafetensorsTensor& added = tensors.emplace_back(tensor);
    added.file = 0;
    if (!IsApart(tensor)) continue;
    const std::string beginning = tensor.name.substr(0, tensor.name.size() - kOriginal.size());
    KVANT_ASSIGN(out.merged_.emplace_back(), MergeOne(weights, tensor, beginning, chosen));
    added.name = beginning + ".weight";
    added.data = out.merged_.back().data();
  }
  KVANT_ASSIGN(out.model_, SafetensorsModel::FromTensors(std::move(tensors), weights.files()[0]));
  return out;
}

}  // namespace kvant::convert
