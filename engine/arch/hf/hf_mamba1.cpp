#include "engine/arch/hf/hf_mamba1.h"

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/limits.h"

namespace kvant::arch {

Status ReadHfMamba1(const JsonObject& config, const HfMamba1Keys& keys, HfShape& shape) {
  constexpr int64_t kDimPerRank = 16;
  HfMamba& mamba = shape.mamba;
  mamba.head_dim = 1;
  mamba.groups = 1;
  if (!keys.inner.empty() && config.Find(keys.inner) != nullptr) {
    KVANT_ASSIGN(mamba.heads, config.Count(keys.inner, kDimMax));
  } else {
    KVANT_ASSIGN(const int64_t expand, config.Count(keys.expand, kDimMax / shape.dim));
    mamba.heads = expand * shape.dim;
  }
  KVANT_ASSIGN(mamba.state_dim, config.Count(keys.state_dim, kHeadDimMax));
  const formats::Json* rank = config.Find(keys.rank);
  if (rank == nullptr || *rank == "auto") {
    mamba.rank = (shape.dim + kDimPerRank - 1) / kDimPerRank;
  } else {
    KVANT_ASSIGN(mamba.rank, config.Count(keys.rank, kDimMax));
  }
  KVANT_ASSIGN(shape.conv_taps, config.Count(keys.taps, kConvTapsMax));
  return shape.conv_taps < 2 ? config.Wrong(keys.taps, "at least 2") : Status();
}

Status AddMamba1(const JsonObject&, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("ssm.conv_kernel", shape.conv_taps);
  add("ssm.inner_size", shape.mamba.inner());
  add("ssm.state_size", shape.mamba.state_dim);
  add("ssm.time_step_rank", shape.mamba.rank);
  return {};
}

}  // namespace kvant::arch
