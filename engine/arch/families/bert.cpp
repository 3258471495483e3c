// BERT (arXiv 1810.04805) and models like it, as encoders of texts: learned positions and segments,
// a norm behind them and behind each sum, biases everywhere, GELU itself. RoBERTa, XLM-RoBERTa and
// DistilBERT are such models with other tokenizers or without segments.
#include "engine/arch/families/bert.h"
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_bert.h"
#include "engine/arch/hidden_activation.h"
#include "engine/arch/text_encoder.h"

namespace kvant::arch::bert {
namespace {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadBertEncoder(metadata));
  Stack& stack = *model.embedder;
  stack.input.positions = "position_embd";
  KVANT_ASSIGN(const auto attentions, ReadBothSided(metadata, stack));
  KVANT_ASSIGN(const auto activation, ReadHiddenActivation(metadata, cpu::Activation::kGeluErf));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, activation));
  FillLayersNormedAfter(stack, attentions, AsBlocks(ffns));
  return model;
}

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kBertName,
                        .models = "BERT, RoBERTa, XLM-RoBERTa, DistilBERT",
                        .read = Read,
                        .hf = HfBertFamilies()};

}  // namespace kvant::arch::bert
