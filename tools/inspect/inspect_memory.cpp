#include "tools/inspect/inspect_memory.h"
#include "base/counted.h"
#include "engine/run/memory_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "base/result.h"
#include "engine/kv/kv_cache.h"
#include "kvant/kv_type.h"
#include "tools/options/json.h"
#include "tools/options/model_facts.h"

namespace kvant::tools {
namespace {

Json GroupsJson(const MemoryPlan& plan) {
  Json groups = Json::array();
  for (const MemoryPlan::Group& group : plan.groups) {
    if (group.states > 0) {
      groups.push_back({{"layers", group.layers},
                        {"states", group.states},
                        {"bytes", group.bytes},
                        {"bytes_per_state", group.state_bytes}});
      continue;
    }
    groups.push_back({{"layers", group.layers},
                      {"window", group.window},
                      {"positions", group.positions},
                      {"kv_heads", group.kv_heads},
                      {"k_dim", group.k_dim},
                      {"v_dim", group.v_dim},
                      {"k_type", KvTypeName(group.k_type)},
                      {"v_type", KvTypeName(group.v_type)},
                      {"rows", group.rows},
                      {"bytes", group.bytes},
                      {"bytes_per_token", group.bytes_per_token}});
  }
  return groups;
}

// Memory of this process now; 0 where the system does not tell.
uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  if (!(statm >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<Json> MemoryJson(const Model& model, const SessionOptions& wanted, uint64_t budget) {
  KVANT_ASSIGN(const SessionOptions options, ResolveOptions(model, wanted));
  KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(model, options));
  Json out = {
      {"context", options.context},        {"weights", plan.weights},   {"kv", plan.kv},
      {"activations", plan.activations},   {"logits", plan.logits},     {"encoder", plan.encoder},
      {"kv_on_device", plan.kv_on_device}, {"device", plan.device},     {"total", plan.total()},
      {"groups", GroupsJson(plan)},        {"program", ResidentBytes()}};
  if (plan.tables_on_disk > 0) out["tables_on_disk"] = plan.tables_on_disk;
  if (budget == 0) return out;
  const uint64_t taken = plan.total() - (plan.kv - plan.kv_on_device);
  const uint64_t left = budget > taken ? budget - taken : 0;
  kv::CacheOptions cache = CacheOptionsFor(model, options);
  out["budget"] = budget;
  out["budget_kv"] = left;
  out["fit_sequences"] = FitMemory(cache, left).sequences;
  cache.context = std::max(options.context, model.context_length());
  out["fit_context"] = FitMemory(cache, left).context;
  return out;
}

std::string MemoryText(const Json& memory) {
  const auto line = [&](const char* name, const char* key, const std::string& note) {
    const uint64_t bytes = memory[key].get<uint64_t>();
    return fmt::format("  {:<12}{:>12}  {:>16} bytes{}\n", name, SizeText(bytes), bytes, note);
  };
  std::string out = fmt::format("memory of a run with {}\n",
                                Counted(memory["context"].get<int64_t>(), "position"));
  out += line("weights", "weights", "  in the file, shared with its other users");
  out += line("KV cache", "kv", "  when the context is full");
  for (const Json& group : memory["groups"]) {
    if (group.contains("states")) {
      out += fmt::format("    {}: {} of {} bytes\n",
                         Counted(group["layers"].get<int>(), "recurrent layer"),
                         Counted(group["states"].get<int64_t>(), "state"),
                         group["bytes_per_state"].get<uint64_t>());
      continue;
    }
    out += fmt::format("    {}, {}, keys {} x {}, values {} x {}, {}: {}, {} bytes a token\n",
                       Counted(group["layers"].get<int>(), "layer"),
                       Counted(group["kv_heads"].get<int>(), "kv head"), group["k_dim"].get<int>(),
                       group["k_type"].get<std::string>(), group["v_dim"].get<int>(),
                       group["v_type"].get<std::string>(), group["positions"].get<std::string>(),
                       Counted(group["rows"].get<int64_t>(), "position"),
                       group["bytes_per_token"].get<uint64_t>());
  }
  out += line("activations", "activations", "");
  if (memory["encoder"].get<uint64_t>() > 0) {
    out += line("encoder", "encoder", "  while a source of the greatest length is encoded");
  }
  out += line("logits", "logits", "");
  out += line("total", "total", "");
  if (memory["device"].get<uint64_t>() > 0) {
    out += fmt::format(
        "  {:<12}{:>12}  {:>16} bytes  of a CUDA device, {} of the KV cache among them\n", "device",
        SizeText(memory["device"].get<uint64_t>()), memory["device"].get<uint64_t>(),
        SizeText(memory["kv_on_device"].get<uint64_t>()));
  }
  if (memory.contains("tables_on_disk")) {
    out += line("on disk", "tables_on_disk", "  of which each token reads a few rows, not counted");
  }
  out += line("not counted", "program",
              "  program, libraries and vocabulary, as this command holds them now");
  if (!memory.contains("budget")) return out;
  return out + fmt::format("{} leave {} for KV caches: {} of {} positions, or one of {}\n",
                           SizeText(memory["budget"].get<uint64_t>()),
                           SizeText(memory["budget_kv"].get<uint64_t>()),
                           memory["fit_sequences"].get<int64_t>(), memory["context"].get<int64_t>(),
                           memory["fit_context"].get<int64_t>());
}

}  // namespace kvant::tools
