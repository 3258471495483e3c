#include "engine/convert/weight_shapes.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>

#include "engine/convert/folder_tensors.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using arch::ExpertForm;
using arch::Extent;
using arch::HfTensor;
using arch::RowOrder;
using arch::RowPart;
using formats::Quoted;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

bool IsFloat(const formats::SafetensorsType& type) {
  return type.name == "F64" || type.name == "F32" || type.name == "F16" || type.name == "BF16";
}

// The first row that is taken from the folder's matrix.
int64_t FirstRow(const HfTensor& row, const HfShape& shape) {
  const int64_t q_rows = ExtentSize(Extent::kQRows, shape);
  switch (row.part) {
    case RowPart::kSecondHalf: return ExtentSize(row.rows, shape);
    case RowPart::kOddRows: return 1;
    case RowPart::kBehindTwo: return 2;
    case RowPart::kBehindUnread: return shape.unread_positions;
    case RowPart::kKeys: return q_rows;
    case RowPart::kValues: return q_rows + ExtentSize(Extent::kKvRows, shape);
    case RowPart::kIndexKey: return ExtentSize(Extent::kIndexQRows, shape);
    default: return 0;
  }
}

}  // namespace

void SetShape(const HfTensor& row, const HfShape& shape, OutputTensor& tensor) {
  const int64_t rows = ExtentSize(row.rows, shape);
  const bool is_vector = row.columns == Extent::kNone;
  if (row.experts == ExpertForm::kFlattened) {
    tensor.dims = {rows * ExtentSize(row.columns, shape)};
    return;
  }
  const bool by_letter = row.experts == ExpertForm::kEachLetter;
  const bool each_row = row.experts == ExpertForm::kEachRow || by_letter;
  const bool of_experts =
      row.experts != ExpertForm::kNone && row.experts != ExpertForm::kShards && !each_row;
  tensor.dims = {is_vector ? rows : ExtentSize(row.columns, shape)};
  if (by_letter) tensor.dims.insert(tensor.dims.end(), {1, 1});
  if (row.columns == Extent::kConvTapsApart) tensor.dims.push_back(1);
  if (!is_vector && row.rows != Extent::kOne) tensor.dims.push_back(rows);
  if (of_experts) tensor.dims.push_back(arch::StackedCountOf(row, shape));
  if (arch::IsOfHeads(row.order)) {
    tensor.dims.push_back(shape.heads);
    tensor.expert_rows = rows;
    tensor.source_rows = shape.nope + shape.v_dim;
    tensor.first_row = row.order == RowOrder::kLatentValues ? shape.nope : 0;
    return;
  }
  tensor.split_values = is_vector && (row.order != RowOrder::kSame || row.part != RowPart::kAll);
  const bool one_row = (is_vector && !tensor.split_values) || each_row;
  tensor.expert_rows = one_row ? 1 : rows;
  tensor.source_rows = one_row ? 1 : arch::SourceRowsOf(row, shape);
  tensor.first_row = FirstRow(row, shape);
  const bool alternate = row.part == RowPart::kEvenRows || row.part == RowPart::kOddRows;
  tensor.row_step = alternate ? 2 : 1;
}

Status CheckSource(const SafetensorsModel& model, const SafetensorsTensor& source,
                   const HfTensor& row, const HfShape& shape) {
  if (!IsFloat(*source.type) && source.row_divisors == nullptr) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: tensor {} holds {} values; only F64, F32, F16, BF16, F8_E4M3 "
                     "and F8_E5M2 can be converted",
                     model.FileOf(source), Quoted(source.name), source.type->name);
  }
  std::vector<int64_t> expected = arch::SourceShapeOf(row, shape);
  // A shard may have any rows.
  if (row.experts == ExpertForm::kShards && source.shape.size() == expected.size()) {
    expected.front() = source.shape.front();
  }
  return CheckShape(model, source, expected);
}

Status PlaceShards(const SafetensorsModel& model, OutputTensor& tensor) {
  int64_t rows = 0;
  for (const SafetensorsTensor* source : tensor.sources) {
    tensor.shard_rows.push_back(rows);
    rows += source->shape.front();
  }
  if (rows == tensor.rows()) return {};
  return MakeError(ErrorCode::kCorrupt,
                   "{}: tensor {} and the other shards have {} rows, but the sizes in config.json "
                   "make {}",
                   model.FileOf(*tensor.sources.front()), Quoted(tensor.sources.front()->name),
                   rows, tensor.rows());
}

Status CheckIntegers(const SafetensorsModel& model, const SafetensorsTensor& source,
                     const std::vector<int64_t>& expected) {
  if (source.type->name != "I64") {
    return MakeError(ErrorCode::kNotSupported, "{}: tensor {} holds {} values, expected I64",
                     model.FileOf(source), Quoted(source.name), source.type->name);
  }
  KVANT_TRY(CheckShape(model, source, {std::ssize(expected)}));
  for (size_t i = 0; i < expected.size(); ++i) {
    int64_t found = 0;
    std::memcpy(&found, source.data + i * sizeof(found), sizeof(found));
    if (found == expected[i]) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{}: tensor {}: number {} is {}, but config.json makes it {}",
                     model.FileOf(source), Quoted(source.name), i, found, expected[i]);
  }
  return {};
}

Status CheckSameType(const SafetensorsModel& model, const SafetensorsTensor& first,
                     const SafetensorsTensor& other) {
  if (first.type == other.type) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "{}: tensor {} holds {} values, but {} holds {}; expected experts of a layer "
                   "to have one type",
                   model.FileOf(other), Quoted(other.name), other.type->name, Quoted(first.name),
                   first.type->name);
}

}  // namespace kvant::convert
