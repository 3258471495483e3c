#include "engine/convert/scaled_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "base/half.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::Quoted;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

// Columns that share a scale in FP4, by the type of the scales.
constexpr int64_t kMxFp4Columns = 32;
constexpr int64_t kNvFp4Columns = 16;

constexpr float kE2M1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// E4M3 without infinities: the largest code of either sign is no number.
float ValueOfE4M3(int code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((code & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
  return (code & 128) != 0 ? -value : value;
}

// E5M2 is the upper half of a 16-bit float.
float ValueOfE5M2(int code) { return F16ToF32(static_cast<uint16_t>(code << 8)); }

using CodeValues = std::array<float, 256>;

CodeValues MakeValues(float (*value)(int code)) {
  CodeValues values{};
  for (int code = 0; code < 256; ++code) values[static_cast<size_t>(code)] = value(code);
  return values;
}

const CodeValues& ValuesOf(SmallFloat codes) {
  static const CodeValues e4m3 = MakeValues(ValueOfE4M3);
  static const CodeValues e5m2 = MakeValues(ValueOfE5M2);
  return codes == SmallFloat::kE5M2 ? e5m2 : e4m3;
}

template <class Bits>
Bits BitsAt(const std::byte* data, int64_t index) {
  Bits bits;
  std::memcpy(&bits, data + index * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
  return bits;
}

float ReadE4M3(const std::byte* data, int64_t index) {
  return ValueOfE4M3(std::to_integer<int>(data[index]));
}

// An exponent alone; the largest code is no number.
float ReadE8M0(const std::byte* data, int64_t index) {
  const int exponent = std::to_integer<int>(data[index]);
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, exponent - 127);
}

struct ScaleType {
  std::string_view name;
  float (*read)(const std::byte* data, int64_t index);
};

// Bytes without a type of their own are exponents.
constexpr std::string_view kE4M3Name = "F8_E4M3";
constexpr ScaleType kFp4ScaleTypes[] = {
    {kE4M3Name, ReadE4M3}, {"F8_E8M0", ReadE8M0}, {"U8", ReadE8M0}};
constexpr ScaleType kScaleTypes[] = {
    {"F32", [](const std::byte* data, int64_t i) { return BitsAt<float>(data, i); }},
    {"F16", [](const std::byte* data, int64_t i) { return F16ToF32(BitsAt<uint16_t>(data, i)); }},
    {"BF16", [](const std::byte* data, int64_t i) { return Bf16ToF32(BitsAt<uint16_t>(data, i)); }},
    {"F8_E8M0", ReadE8M0},
    {"U8", ReadE8M0},
};

struct CodeType {
  std::string_view name;
  SmallFloat codes;
};
constexpr CodeType kCodeTypes[] = {
    {kE4M3Name, SmallFloat::kE4M3}, {"F8_E5M2", SmallFloat::kE5M2}, {"U8", SmallFloat::kE2M1Pairs}};

Result<ScaleTensor> ReadNumbers(const SafetensorsModel& model, const SafetensorsTensor& tensor,
                                std::span<const ScaleType> types) {
  std::string known;
  for (const ScaleType& type : types) {
    if (type.name == tensor.type->name) return ScaleTensor{&tensor, type.read};
    known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
  }
  return MakeError(ErrorCode::kNotSupported,
                   "{}: tensor {} holds {} values, expected scales of type {}",
                   model.FileOf(tensor), Quoted(tensor.name), tensor.type->name, known);
}

int64_t Divided(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Finds which part of a matrix has one scale, by the shape of the scales.
class ScaleShape {
 public:
  ScaleShape(const SafetensorsModel& model, const std::vector<int64_t>& shape, ScaledSource& source)
      : model_(model), source_(source) {
    for (size_t i = 0; i + 2 < shape.size(); ++i) matrices_.push_back(shape[i]);
  }

  Status Find(std::span<const ScaleBlock> blocks) const {
    const SafetensorsTensor& scales = *source_.scales.tensor;
    const int64_t rows = source_.rows;
    const int64_t columns = source_.columns;
    if (scales.n_values() == 1) {
      source_.block = {rows, columns};
      source_.shared_scales = true;
      return {};
    }
    const ScaleBlock whole_parts[] = {{rows, columns}, {1, columns}, {rows, 1}};
    std::vector<ScaleBlock> parts(blocks.begin(), blocks.end());
    parts.insert(parts.end(), std::begin(whole_parts), std::end(whole_parts));
    for (const ScaleBlock& part : parts) {
      if (!Fits(scales, part)) continue;
      source_.block = part;
      return {};
    }
    std::string expected;
    for (const ScaleBlock& block : blocks) {
      expected += fmt::format(", {} x {} for blocks of {} x {}", Divided(rows, block.rows),
                              Divided(columns, block.columns), block.rows, block.columns);
    }
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor {} has {} scales in a shape that fits no part of a matrix of {} x "
                     "{} (known: one for all, one for each row{})",
                     model_.FileOf(scales), Quoted(scales.name), scales.n_values(), rows, columns,
                     expected);
  }

 private:
  // The last dimensions may be left out where they are one.
  bool Fits(const SafetensorsTensor& scales, const ScaleBlock& part) const {
    std::vector<int64_t> expected = matrices_;
    expected.push_back(Divided(source_.rows, part.rows));
    expected.push_back(Divided(source_.columns, part.columns));
    std::vector<int64_t> found = scales.shape;
    for (std::vector<int64_t>* sizes : {&expected, &found}) {
      while (!sizes->empty() && sizes->back() == 1) sizes->pop_back();
    }
    return found == expected;
  }

  const SafetensorsModel& model_;
  ScaledSource& source_;
  std::vector<int64_t> matrices_;  // their dimensions
};

// The first of several tensors that the folder has, or null.
const SafetensorsTensor* FindFirst(std::span<const std::string> names, FolderTensors& folder) {
  for (const std::string& name : names) {
    const SafetensorsTensor* found = folder.Find(name);
    if (found == nullptr) continue;
    folder.Use(*found);
    return found;
  }
  return nullptr;
}

// Sets the second scales, where the folder has some.
Status FindSeconds(const SafetensorsModel& model, const std::string& hf_name, int64_t matrices,
                   FolderTensors& folder, ScaledSource& source) {
  const std::string names[] = {hf_name + "_scale_2", hf_name + "_global_scale"};
  const SafetensorsTensor* found = FindFirst(names, folder);
  if (found == nullptr) return {};
  source.second_divides = found->name.ends_with("_global_scale");
  KVANT_ASSIGN(source.seconds, ReadNumbers(model, *found, kScaleTypes));
  const int64_t count = found->n_values();
  if (count == 1 || count == matrices) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: tensor {} has {} values, expected 1{}",
                   model.FileOf(*found), Quoted(found->name), count,
                   matrices == 1 ? "" : fmt::format(" or {}", matrices));
}

Status FindScales(const SafetensorsModel& model, const Quantization& quantization,
                  const std::string& hf_name, const std::vector<int64_t>& shape,
                  FolderTensors& folder, ScaledSource& source) {
  source.block = {source.rows, source.columns};
  if (!quantization.declared) return {};
  const std::string names[] = {hf_name + "_scale_inv", hf_name + "_scale"};
  const SafetensorsTensor* scales = FindFirst(names, folder);
  if (scales == nullptr) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor {} holds {} values, but their scales are missing: expected a "
                     "tensor {} or {}",
                     model.FileOf(*source.values), Quoted(source.values->name),
                     source.values->type->name, names[0], names[1]);
  }
  const bool is_fp4 = source.codes == SmallFloat::kE2M1Pairs;
  const std::span<const ScaleType> types =
      is_fp4 ? std::span<const ScaleType>(kFp4ScaleTypes) : std::span(kScaleTypes);
  KVANT_ASSIGN(source.scales, ReadNumbers(model, *scales, types));
  const ScaleBlock of_fp4[] = {
      {1, scales->type->name == kE4M3Name ? kNvFp4Columns : kMxFp4Columns}};
  const std::span<const ScaleBlock> blocks =
      is_fp4 ? std::span<const ScaleBlock>(of_fp4) : std::span(quantization.blocks);
  KVANT_TRY(ScaleShape(model, shape, source).Find(blocks));
  const int64_t matrices =
      source.values->n_values() * (is_fp4 ? 2 : 1) / source.rows / source.columns;
  return is_fp4 ? FindSeconds(model, hf_name, matrices, folder, source) : Status();
}

}  // namespace

float ScaledSource::SecondOf(int64_t matrix) const {
  const bool each = seconds.tensor != nullptr && seconds.tensor->n_values() > 1;
  return seconds.At(each ? matrix : 0);
}

float ScaledSource::SecondFactor(int64_t matrix) const {
  return second_divides ? 1.0f / SecondOf(matrix) : SecondOf(matrix);
}

float ScaledSource::ScaleOf(int64_t matrix, int64_t row, int64_t column) const {
  const int64_t first = shared_scales ? 0 : matrix * scales_of_matrix();
  const float scale =
      scales.At(first + row / block.rows * scales_of_row() + column / block.columns);
  return second_divides ? scale / SecondOf(matrix) : scale * SecondOf(matrix);
}

void ScaledSource::Read(int64_t first, int64_t count, int64_t step, float* out) const {
  const CodeValues& bytes = ValuesOf(codes);
  const auto code_at = [&](int64_t index) {
    if (codes != SmallFloat::kE2M1Pairs) return bytes[std::to_integer<size_t>(values->data[index])];
    const int pair = std::to_integer<int>(values->data[index / 2]);
    return kE2M1Values[index % 2 == 0 ? pair & 15 : pair >> 4];
  };
  int64_t done = 0;
  while (done < count) {
    const int64_t begin = first + done * step;
    const int64_t column = begin % columns;
    const float scale = ScaleOf(begin / columns / rows, begin / columns % rows, column);
    // The values up to the end of the block and of the row have the same scale.
    const int64_t block_end = std::min(columns, (column / block.columns + 1) * block.columns);
    const int64_t same = std::min(count - done, Divided(block_end - column, step));
    for (int64_t i = 0; i < same; ++i) out[done + i] = code_at(begin + i * step) * scale;
    done += same;
  }
}

Result<std::optional<ScaledSource>> FindScaledSource(const SafetensorsModel& model,
                                                     const Quantization& quantization,
                                                     const std::string& hf_name,
                                                     const std::vector<int64_t>& shape,
                                                     FolderTensors& folder) {
  const std::optional<ScaledSource> none;
  const SafetensorsTensor* packed =
      quantization.declared ? folder.Find(hf_name + "_packed") : nullptr;
  const SafetensorsTensor* values = packed != nullptr ? packed : folder.Find(hf_name);
  if (values == nullptr) return none;
  const CodeType* type = std::ranges::find(kCodeTypes, values->type->name, &CodeType::name);
  const bool known = type != std::end(kCodeTypes);
  const bool bytes = known && type->codes == SmallFloat::kE2M1Pairs;
  if (packed == nullptr && (!known || (bytes && !quantization.declared))) return none;
  ScaledSource source{.values = values};
  source.columns = shape.back();
  source.rows = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  if (packed == nullptr && !bytes) {
    KVANT_TRY(CheckShape(model, *values, shape));
    source.codes = type->codes;
  } else {
    std::vector<int64_t> of_bytes = shape;
    of_bytes.back() = shape.back() / 2;
    if (shape.back() % 2 != 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {} holds pairs of values, but the sizes in config.json make "
                       "rows of {}",
                       model.FileOf(*values), Quoted(values->name), shape.back());
    }
    KVANT_TRY(CheckBytes(model, *values, of_bytes));
    source.codes = SmallFloat::kE2M1Pairs;
  }
  folder.Use(*values);
  KVANT_TRY(FindScales(model, quantization, hf_name, shape, folder, source));
  return std::optional<ScaledSource>(source);
}

ScaledSource MxFp4Source(const SafetensorsTensor& codes, const SafetensorsTensor& exponents,
                         int64_t rows, int64_t columns) {
  return {.values = &codes,
          .codes = SmallFloat::kE2M1Pairs,
          .rows = rows,
          .columns = columns,
          .scales = {&exponents, ReadE8M0},
          .block = {1, kMxFp4Columns}};
}

}  // namespace kvant::convert
