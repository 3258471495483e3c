#include "tools/inspect/inspect_check.h"

#include <fmt/format.h>

#include <string>

#include "base/counted.h"
#include "base/thread_pool.h"
#include "formats/check_tensors.h"
#include "tools/options/json.h"
#include "tools/terminal/transfer_progress.h"

namespace kvant::tools {
namespace {

std::string FindingText(const formats::TensorFinding& finding) {
  return formats::DescribeNonFinite(*finding.tensor, finding.values) + "\n";
}

Json FindingJson(const formats::TensorFinding& finding) {
  const int64_t columns = finding.tensor->dims[0];
  return {{"tensor", std::string(finding.tensor->name)},
          {"count", finding.values.count},
          {"first_row", finding.values.first / columns},
          {"first_column", finding.values.first % columns},
          {"first_value", fmt::format("{}", finding.values.value)}};
}

}  // namespace

Result<bool> CheckWeights(const formats::GgufFile& file, int threads, FindingsForm form,
                          ResultStream& out) {
  ThreadPool pool(threads > 0 ? threads : DefaultThreadCount());
  TransferProgress progress("checked");
  KVANT_ASSIGN(
      const auto findings,
      formats::CheckTensors(file, pool, [&](const formats::GgufTensor& next, uint64_t bytes_done) {
        return progress.Update(bytes_done, file.file_bytes(), next.name);
      }));
  progress.Clear();
  size_t unchecked = 0;
  for (const formats::GgufTensor& tensor : file.tensors()) {
    if (tensor.format != nullptr) continue;
    ++unchecked;
    Note(fmt::format("tensor {} is not checked: kvant cannot read type {}", Visible(tensor.name),
                     formats::TensorTypeName(tensor)));
  }
  std::string text;
  if (form == FindingsForm::kJson) {
    Json json = {{"tensors", file.tensors().size()},
                 {"not_checked", unchecked},
                 {"not_finite", Json::array()}};
    for (const auto& finding : findings) json["not_finite"].push_back(FindingJson(finding));
    text = Dump(json, 2) + "\n";
  } else {
    for (const auto& finding : findings) text += FindingText(finding);
    if (findings.empty()) {
      text = fmt::format("{}, all values are finite\n",
                         Counted(file.tensors().size() - unchecked, "tensor"));
    }
  }
  out.Write(text);
  return findings.empty();
}

}  // namespace kvant::tools
