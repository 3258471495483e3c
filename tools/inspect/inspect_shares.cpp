#include "tools/inspect/inspect_shares.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/counted.h"
#include "base/result.h"
#include "engine/graph/share_plan.h"

namespace kvant::tools {
namespace {

using graph::Measure;
using graph::PassShape;
using graph::RowSpace;

std::string_view MeasureName(Measure measure) {
  switch (measure) {
    case Measure::kBytes: return "bytes";
    case Measure::kMacs: return "macs";
    case Measure::kUnits: break;
  }
  return "pieces";
}

// Rows of one sequence, which then has `end` tokens; the last one's logits are wanted.
Json PassJson(const Model& model, const SessionOptions& options, int64_t rows, int64_t end) {
  const PassShape::Part part = {.rows = rows, .end = end, .source = model.source_length()};
  PassShape pass;
  pass.rows.Set(RowSpace::kPass, rows);
  pass.rows.Set(RowSpace::kHead, 1);
  pass.parts = {&part, 1};
  if (options.kv_cache) pass.cache = {options.k_type, options.v_type, options.state_type};
  const graph::SharePlan plan = graph::PlanShares(model.plan(), pass, options.threads);
  Json phases = Json::array();
  for (const graph::PhaseShares& phase : plan.phases) {
    phases.push_back({{"name", phase.name},
                      {"count", phase.count},
                      {"measure", MeasureName(phase.measure)},
                      {"threads", phase.busy},
                      {"mean", phase.total / options.threads},
                      {"most", phase.most},
                      {"imbalance", phase.Imbalance(options.threads)}});
  }
  Json sums = Json::array();
  for (const Measure measure : {Measure::kBytes, Measure::kMacs}) {
    const double total = plan.Total(measure);
    if (total == 0) continue;
    const double most = plan.Most(measure);
    sums.push_back({{"measure", MeasureName(measure)},
                    {"mean", total / options.threads},
                    {"most", most},
                    {"imbalance", most * options.threads / total}});
  }
  return {
      {"tokens", rows},   {"end", end},  {"barriers", plan.barriers}, {"nodes_alone", plan.alone},
      {"phases", phases}, {"sums", sums}};
}

// "1234567" as "1.23 M".
std::string Amount(double number) {
  if (number >= 1e9) return fmt::format("{:.2f} G", number / 1e9);
  if (number >= 1e6) return fmt::format("{:.2f} M", number / 1e6);
  if (number >= 1e3) return fmt::format("{:.2f} k", number / 1e3);
  return fmt::format("{:.2f}  ", number);
}

std::string PassText(const Json& pass, int64_t threads) {
  const auto tokens = pass["tokens"].get<int64_t>();
  std::string out = fmt::format("  {} position {}: {}, {} on one thread between them\n",
                                tokens == 1 ? "a token at" : fmt::format("{} tokens up to", tokens),
                                pass["end"].get<int64_t>() - 1,
                                Counted(pass["barriers"].get<int64_t>(), "barrier"),
                                Counted(pass["nodes_alone"].get<int64_t>(), "node"));
  constexpr std::string_view kRow = "    {:<28} {:>5} {:>8} {:<6} {:>9} {:>9} {:>8}\n";
  out += fmt::format(kRow, "phase", "times", "threads", "of", "mean", "most", "longer");
  const auto add = [&](const std::string& name, const std::string& count, const std::string& busy,
                       const Json& row) {
    out += fmt::format(kRow, name, count, busy, row["measure"].get<std::string>(),
                       Amount(row["mean"].get<double>()), Amount(row["most"].get<double>()),
                       fmt::format("{:.2f} x", row["imbalance"].get<double>()));
  };
  for (const Json& phase : pass["phases"]) {
    add(phase["name"].get<std::string>(), std::to_string(phase["count"].get<int64_t>()),
        std::to_string(phase["threads"].get<int64_t>()), phase);
  }
  for (const Json& sum : pass["sums"]) add("all of these", "", std::to_string(threads), sum);
  return out;
}

}  // namespace

Result<Json> SharesJson(const Model& model, const SessionOptions& wanted) {
  KVANT_TRY(model.CheckDecoder());
  KVANT_ASSIGN(const SessionOptions options, ResolveOptions(model, wanted));
  const int64_t prompt = std::min(options.chunk, options.context);
  Json passes = Json::array();
  passes.push_back(PassJson(model, options, prompt, prompt));
  passes.push_back(PassJson(model, options, 1, options.context));
  return Json{{"threads", options.threads}, {"passes", passes}};
}

std::string SharesText(const Json& shares) {
  const auto threads = shares["threads"].get<int64_t>();
  std::string out = fmt::format("shares of {}, as their own\n", Counted(threads, "thread"));
  for (const Json& pass : shares["passes"]) out += PassText(pass, threads);
  return out;
}

}  // namespace kvant::tools
