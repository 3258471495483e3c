// Opening a model: map, read the architecture, check the tokenizer, build the plan.
#include "engine/model.h"

#include "engine/arch/arch_spec.h"
#include "engine/arch/walker.h"
#include "engine/graph/plan.h"

namespace kvant {

Model::Model(formats::GgufFile file) : file_(std::move(file)) {}

Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::Open(const std::string& path,
                                                 const ModelOptions& options) {
  KVANT_ASSIGN(auto file, formats::GgufFile::Open(path, options.access));
  std::shared_ptr<Model> model(new Model(std::move(file)));
  if (options.isa.empty()) {
    KVANT_ASSIGN(model->kernels_, cpu::ChooseKernelsFromEnvironment());
  } else {
    KVANT_ASSIGN(model->kernels_, cpu::ChooseKernels(options.isa));
  }
  if (options.float_gemm.empty()) {
    KVANT_ASSIGN(model->float_gemm_, cpu::ChooseFloatGemmFromEnvironment());
  } else {
    KVANT_ASSIGN(model->float_gemm_, cpu::ChooseFloatGemm(options.float_gemm));
  }

  KVANT_ASSIGN(auto spec, arch::ReadSpec(model->file_));
  KVANT_ASSIGN(model->tokenizer_, Tokenizer::Create(model->file_, options.tokenizer));
  KVANT_ASSIGN(model->plan_, arch::BuildPlan(model->file_, *model->kernels_, *model->float_gemm_,
                                             spec, options.observer));
  if (model->tokenizer_->vocab_size() > spec.vocab) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor token_embd.weight: expected {} rows for the vocabulary, found {}",
                     path, model->tokenizer_->vocab_size(), spec.vocab);
  }
  model->spec_ = std::make_unique<arch::ArchSpec>(std::move(spec));

  if (options.lock_memory) {
    for (const MappedFile& mapping : model->file_.mappings()) {
      KVANT_TRY(mapping.Lock());
    }
  }
  return std::shared_ptr<const Model>(std::move(model));
}

std::string_view Model::architecture() const { return spec_->family->name; }

int64_t Model::context_length() const { return spec_->context_train; }

int32_t Model::vocab_size() const { return static_cast<int32_t>(spec_->vocab); }

std::string Model::DescribePlan() const { return plan_->Describe(); }

std::vector<std::string_view> KnownArchitectures() {
  std::vector<std::string_view> names;
  for (const arch::ArchFamily* family : arch::AllFamilies()) names.push_back(family->name);
  return names;
}

}  // namespace kvant
