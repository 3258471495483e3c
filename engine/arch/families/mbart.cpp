// mBART (arXiv 2001.08210): BART with norms before the sublayers.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::mbart {
namespace {

constexpr std::string_view kName = "mbart";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata,
      {.embedding_norms = true, .positions = true, .activation = cpu::Activation::kGeluErf});
}

constexpr std::string_view kClasses[] = {"MBartForConditionalGeneration"};

constexpr auto kTensors =
    Join(kHfTwoStacks, kHfTwoStacksPositions, kHfTwoStacksEmbeddingNorms, kHfTwoStacksFinalNorms);

// The languages of mBART, followed by the languages that mBART-50 adds (FAIRSEQ_LANGUAGE_CODES of
// their tokenizers in transformers).
constexpr std::string_view kLanguages[] = {
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN",
    "hi_IN", "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP",
    "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN", "af_ZA", "az_AZ",
    "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN",
    "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI"};
constexpr size_t kLanguagesOfFirst = 25;

constexpr HfFamily WithLanguages(HfFamily row) {
  row.languages = {.names = kLanguages, .behind = kLanguagesOfFirst};
  return row;
}

constexpr HfFamily kHf[] = {WithLanguages(HfTwoStacksFamily(kName, kClasses, kTensors))};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "mBART, mBART-50", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mbart
