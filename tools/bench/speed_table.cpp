#include "tools/bench/speed_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "tools/options/model_facts.h"

namespace kvant::tools {
namespace {

constexpr size_t kTableColumns = 100;
constexpr size_t kModelWidthMax = 27;
constexpr size_t kModelWidthMin = 12;
constexpr size_t kBoundWidth = 12;

std::string TextOfKvTypes(const Json& row) {
  const std::string k = row["type_k"].get<std::string>();
  const std::string v = row["type_v"].get<std::string>();
  return k == v ? k : k + "/" + v;
}

std::string NumberIn(const Json& row, const char* field) {
  return std::to_string(row[field].get<int64_t>());
}

// The end of a name that is too long, which has the type.
std::string EndOf(const std::string& name, size_t width) {
  return name.size() <= width ? name : "~" + name.substr(name.size() - width + 1);
}

}  // namespace

SpeedTable::SpeedTable(const BenchOptions& options) {
  const auto is_usual = [](const KvTypes& types) {
    return types.k_type == KvType::kF16 && types.v_type == KvType::kF16;
  };
  Add("model", kModelWidthMax, {});  // its cells need its final width
  if (options.threads.size() > 1) {
    Add("threads", 7, [](const Json& row, const auto&) { return NumberIn(row, "n_threads"); });
  }
  if (options.kv_types.size() > 1 || !std::ranges::all_of(options.kv_types, is_usual)) {
    Add("kv", 9, [](const Json& row, const auto&) { return TextOfKvTypes(row); });
  }
  if (options.chunks.size() > 1) {
    Add("chunk", 6, [](const Json& row, const auto&) { return NumberIn(row, "n_ubatch"); });
  }
  if (options.maps.size() > 1) {
    Add("mmap", 4, [](const Json& row, const auto&) { return row["use_mmap"] ? "1" : "0"; });
  }
  Add("test", 16, [](const Json&, const std::string& test) { return test; });
  Add("t/s", 18, [](const Json& row, const auto&) {
    const double speed = row["avg_ts"].get<double>();
    const int decimals = speed < 1000 ? 2 : speed < 1e5 ? 1 : 0;
    return fmt::format("{:.{}f} ± {:.{}f}", speed, decimals, row["stddev_ts"].get<double>(),
                       decimals);
  });
  has_drafts_ = !options.drafts.empty();
  if (has_drafts_) {
    Add("right", 6, [](const Json& row, const auto&) {
      const auto guessed = row["n_guessed"].get<double>();
      return guessed > 0 ? fmt::format("{:.0f} %", 100 * row["n_right"].get<double>() / guessed)
                         : "";
    });
    Add("pass", 6, [](const Json& row, const auto&) {
      const auto ratio = row["pass_ratio"].get<double>();
      return row["n_guesses"] > 0 ? fmt::format("{:.2f} x", ratio) : "";
    });
  }
  // The column of the bound comes where there is room for it.
  has_bounds_ = !options.no_bounds &&
                Width() - kModelWidthMax + kModelWidthMin + kBoundWidth + 3 <= kTableColumns;
  if (has_bounds_) {
    Add("bound", kBoundWidth, [](const Json& row, const auto&) {
      return fmt::format("{:.0f} % {}", 100 * row["bound_fraction"].get<double>(),
                         row["bound_kind"].get<std::string>());
    });
  }
  const size_t others = Width() - kModelWidthMax;
  const size_t width =
      std::clamp(kTableColumns - std::min(others, kTableColumns), kModelWidthMin, kModelWidthMax);
  columns_.front().head.width = width;
  columns_.front().cell = [width](const Json& row, const auto&) {
    return EndOf(row["model_type"].get<std::string>(), width);
  };
}

void SpeedTable::Add(const char* title, size_t width,
                     std::function<std::string(const Json& row, const std::string& test)> cell) {
  columns_.push_back({{title, width}, std::move(cell)});
}

// "| a | b |": two blanks and a bar for each column, and a bar.
size_t SpeedTable::Width() const {
  size_t width = 1;
  for (const Column& column : columns_) width += column.head.width + 3;
  return width;
}

std::vector<MarkdownColumn> SpeedTable::Columns() const {
  std::vector<MarkdownColumn> out;
  for (const Column& column : columns_) out.push_back(column.head);
  return out;
}

TableWriter::Cells SpeedTable::Cells(const Json& row, const std::string& test) const {
  TableWriter::Cells cells;
  for (const Column& column : columns_) cells.push_back(column.cell(row, test));
  return cells;
}

std::string SpeedTable::Common(const Json& row) {
  return fmt::format(
      "{}: {}, {} parameters, {}, {}, KV cache {}", row["model_type"].get<std::string>(),
      SizeText(row["model_size"].get<uint64_t>()), CountText(row["model_n_params"].get<uint64_t>()),
      row["isa"].get<std::string>(), Counted(row["n_threads"].get<int64_t>(), "thread"),
      TextOfKvTypes(row));
}

std::string SpeedTable::Explanation() const {
  if (has_drafts_) {
    return "right: the share of guesses that were right; pass: the time of a pass with guesses "
           "over "
           "that of one without";
  }
  if (!has_bounds_) return "";
  return "bound: the share that was reached of what the machine allows, and what sets that limit: "
         "reading all weights and the KV cache (memory), or all products (compute)";
}

}  // namespace kvant::tools
