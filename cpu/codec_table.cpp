#include "cpu/codec_table.h"

namespace kvant::cpu {
namespace {

void EncodeByReference(const EncodeTask& task) {
  const int64_t row_bytes = task.format->row_bytes(task.cols);
  for (int64_t row = 0; row < task.rows; ++row) {
    task.format->encode(task.values + row * task.cols, task.importance,
                        task.blocks + row * row_bytes, task.cols);
  }
}

template <class Function>
void Replace(std::vector<Function>& table, std::span<const CodecEntry<Function>> special) {
  for (const CodecEntry<Function>& entry : special) {
    table[static_cast<size_t>(FormatIndex(*quant::FindFormat(entry.type)))] = entry.function;
  }
}

}  // namespace

std::vector<EncodeFunction> BuildEncodeTable(std::span<const CodecEntry<EncodeFunction>> special) {
  std::vector<EncodeFunction> table(quant::AllFormats().size(), EncodeByReference);
  Replace(table, special);
  return table;
}

std::vector<DecodeFunction> BuildDecodeTable(std::span<const CodecEntry<DecodeFunction>> special) {
  std::vector<DecodeFunction> table;
  for (const quant::FormatTraits& format : quant::AllFormats()) table.push_back(format.decode);
  Replace(table, special);
  return table;
}

}  // namespace kvant::cpu
