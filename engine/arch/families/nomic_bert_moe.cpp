// Nomic BERT with experts (arXiv 2502.07972): a BERT with rotary positions, in whose every second
// layer a router chooses two feed-forwards, whose weights are not made to add up to 1. The experts
// of a layer share one bias, ffn_exps.bias, which other engines leave out.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_nomic.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/text_encoder.h"
#include "engine/limits.h"

namespace kvant::arch::nomic_bert_moe {
namespace {

constexpr std::string_view kName = "nomic-bert-moe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadBertEncoder(metadata));
  Stack& stack = *model.embedder;
  KVANT_ASSIGN(const auto attentions, ReadRotatedBothSided(metadata, model));
  KVANT_ASSIGN(const auto plain, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluErf));
  KVANT_ASSIGN(const auto experts,
               ReadExperts(metadata, stack,
                           {.activation = cpu::Activation::kGeluErf, .kind = ExpertKind::kPlain}));
  std::vector<Block> ffns = AsBlocks(plain);
  for (size_t i = 0; i < ffns.size(); ++i) {
    if (experts[i].has_value()) ffns[i] = *experts[i];
  }
  FillLayersNormedAfter(stack, attentions, ffns);
  return model;
}

// The experts' matrices lie one below the other, those of the second product on their side.
constexpr HfTensor Joined(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                          Extent columns, RowOrder order) {
  HfTensor tensor = HfOfExperts(hf_name, gguf_name, rows, columns, ExpertForm::kJoined);
  tensor.order = order;
  return tensor;
}

constexpr auto kExperts = std::array{
    HfOfExperts("encoder.layers.{}.mlp.router.layer.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    Joined("encoder.layers.{}.mlp.experts.mlp.w1", "blk.{}.ffn_up_exps.weight", Extent::kExpertFfn,
           Extent::kDim, RowOrder::kSame),
    Joined("encoder.layers.{}.mlp.experts.mlp.w2", "blk.{}.ffn_down_exps.weight", Extent::kDim,
           Extent::kExpertFfn, RowOrder::kTransposed),
    HfOfExperts("encoder.layers.{}.mlp.experts.bias", "blk.{}.ffn_exps.bias", Extent::kDim,
                Extent::kNone),
};

constexpr auto kTensors =
    Join(HfNomicAttention(kHfNomicNames), WithoutExperts(kHfNomicPlainFfn), kExperts);

bool HasExperts(const JsonObject& config) { return config.Find("moe_top_k") != nullptr; }

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfNomic(config, shape, out));
  KVANT_TRY(RefuseTrue(config, "expert_choice_router"));
  for (const auto& [key, expected] : {std::pair{"num_shared_experts", 0}, {"ffn_div", 1}}) {
    KVANT_ASSIGN(const auto number, config.Integer(key, kExpertsMax));
    if (number.value_or(expected) != expected) {
      return config.Wrong(key, fmt::format("{}", expected));
    }
  }
  KVANT_ASSIGN(const auto every, config.Integer("moe_every_n_layers", kLayersMax));
  out.writer->AddU32(out.Key("moe_every_n_layers"), static_cast<uint32_t>(every.value_or(0)));
  KVANT_ASSIGN(const auto normalize, config.Bool("moe_normalize_expert_weights"));
  if (normalize.value_or(false)) out.writer->AddBool(out.Key("expert_weights_norm"), true);
  return {};
}

constexpr std::string_view kClasses[] = {"NomicBertModel", "NomicBertForPreTraining"};
constexpr std::string_view kNames[] = {"gelu"};

constexpr HfFamily Row() {
  HfFamily row = HfNomicFamily(kName, kClasses, kTensors);
  row.is_of = HasExperts;
  row.activation.names = kNames;
  row.add_parameters = AddParameters;
  row.experts = {.count = "num_experts", .used = "moe_top_k", .ffn = "n_inner"};
  row.fairseq_ids = true;
  return row;
}

constexpr HfFamily kHf[] = {Row()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Nomic v2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::nomic_bert_moe
