// M2M-100 (arXiv 2010.11125) and NLLB: layer norms before the sublayers, sines and cosines as
// positions, which the file holds.
#include <cmath>

#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::m2m100 {
namespace {

constexpr std::string_view kName = "m2m100";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(metadata, {.positions = true});
}

// The first position of a text: rows up to that of the padding token are never read.
constexpr int64_t kFirstPosition = 2;

// Computes a position as M2M100SinusoidalPositionalEmbedding of transformers does, in 32-bit
// floats: sines, then cosines, and a last 0 where the number of columns is odd.
float Position(int64_t position, int64_t column, int64_t dim) {
  const int64_t half = dim / 2;
  if (column >= 2 * half) return 0;
  const auto step = static_cast<float>(std::log(10000.0) / static_cast<double>(half - 1));
  const float rate = std::exp(static_cast<float>(column % half) * -step);
  const float angle = static_cast<float>(position + kFirstPosition) * rate;
  return column < half ? std::sin(angle) : std::cos(angle);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  constexpr const char* kKey = "pad_token_id";
  KVANT_ASSIGN(const auto pad, config.Integer(kKey, shape.vocab - 1));
  if (pad.value_or(1) != kFirstPosition - 1) return config.Wrong(kKey, "1");
  if (shape.dim < 4) return config.Wrong("d_model", "4 or more");
  AddHfPositions(shape, Position, out);
  return AddHfTwoStacks(config, shape, out);
}

constexpr std::string_view kClasses[] = {"M2M100ForConditionalGeneration"};

constexpr auto kTensors = Join(kHfTwoStacks, kHfTwoStacksFinalNorms);

// Languages of M2M-100, of the models that were made of it for WMT 2021, and of NLLB, in the order
// of their tokens (FAIRSEQ_LANGUAGE_CODES of the tokenizers in transformers).
constexpr std::string_view kCodes[] = {
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br",  "bs", "ca", "ceb", "cs", "cy",
    "da", "de", "el", "en",  "es", "et", "fa", "ff", "fi", "fr",  "fy", "ga", "gd",  "gl", "gu",
    "ha", "he", "hi", "hr",  "ht", "hu", "hy", "id", "ig", "ilo", "is", "it", "ja",  "jv", "ka",
    "kk", "km", "kn", "ko",  "lb", "lg", "ln", "lo", "lt", "lv",  "mg", "mk", "ml",  "mn", "mr",
    "ms", "my", "ne", "nl",  "no", "ns", "oc", "or", "pa", "pl",  "ps", "pt", "ro",  "ru", "sd",
    "si", "sk", "sl", "so",  "sq", "sr", "ss", "su", "sv", "sw",  "ta", "th", "tl",  "tn", "tr",
    "uk", "ur", "uz", "vi",  "wo", "xh", "yi", "yo", "zh", "zu"};
constexpr std::string_view kWmtCodes[] = {"en", "ha", "is", "ja", "cs", "ru", "zh", "de"};
constexpr std::string_view kLanguages[] = {
    "ace_Arab", "ace_Latn", "acm_Arab", "acq_Arab", "aeb_Arab", "afr_Latn", "ajp_Arab", "aka_Latn",
    "amh_Ethi", "apc_Arab", "arb_Arab", "ars_Arab", "ary_Arab", "arz_Arab", "asm_Beng", "ast_Latn",
    "awa_Deva", "ayr_Latn", "azb_Arab", "azj_Latn", "bak_Cyrl", "bam_Latn", "ban_Latn", "bel_Cyrl",
    "bem_Latn", "ben_Beng", "bho_Deva", "bjn_Arab", "bjn_Latn", "bod_Tibt", "bos_Latn", "bug_Latn",
    "bul_Cyrl", "cat_Latn", "ceb_Latn", "ces_Latn", "cjk_Latn", "ckb_Arab", "crh_Latn", "cym_Latn",
    "dan_Latn", "deu_Latn", "dik_Latn", "dyu_Latn", "dzo_Tibt", "ell_Grek", "eng_Latn", "epo_Latn",
    "est_Latn", "eus_Latn", "ewe_Latn", "fao_Latn", "pes_Arab", "fij_Latn", "fin_Latn", "fon_Latn",
    "fra_Latn", "fur_Latn", "fuv_Latn", "gla_Latn", "gle_Latn", "glg_Latn", "grn_Latn", "guj_Gujr",
    "hat_Latn", "hau_Latn", "heb_Hebr", "hin_Deva", "hne_Deva", "hrv_Latn", "hun_Latn", "hye_Armn",
    "ibo_Latn", "ilo_Latn", "ind_Latn", "isl_Latn", "ita_Latn", "jav_Latn", "jpn_Jpan", "kab_Latn",
    "kac_Latn", "kam_Latn", "kan_Knda", "kas_Arab", "kas_Deva", "kat_Geor", "knc_Arab", "knc_Latn",
    "kaz_Cyrl", "kbp_Latn", "kea_Latn", "khm_Khmr", "kik_Latn", "kin_Latn", "kir_Cyrl", "kmb_Latn",
    "kon_Latn", "kor_Hang", "kmr_Latn", "lao_Laoo", "lvs_Latn", "lij_Latn", "lim_Latn", "lin_Latn",
    "lit_Latn", "lmo_Latn", "ltg_Latn", "ltz_Latn", "lua_Latn", "lug_Latn", "luo_Latn", "lus_Latn",
    "mag_Deva", "mai_Deva", "mal_Mlym", "mar_Deva", "min_Latn", "mkd_Cyrl", "plt_Latn", "mlt_Latn",
    "mni_Beng", "khk_Cyrl", "mos_Latn", "mri_Latn", "zsm_Latn", "mya_Mymr", "nld_Latn", "nno_Latn",
    "nob_Latn", "npi_Deva", "nso_Latn", "nus_Latn", "nya_Latn", "oci_Latn", "gaz_Latn", "ory_Orya",
    "pag_Latn", "pan_Guru", "pap_Latn", "pol_Latn", "por_Latn", "prs_Arab", "pbt_Arab", "quy_Latn",
    "ron_Latn", "run_Latn", "rus_Cyrl", "sag_Latn", "san_Deva", "sat_Beng", "scn_Latn", "shn_Mymr",
    "sin_Sinh", "slk_Latn", "slv_Latn", "smo_Latn", "sna_Latn", "snd_Arab", "som_Latn", "sot_Latn",
    "spa_Latn", "als_Latn", "srd_Latn", "srp_Cyrl", "ssw_Latn", "sun_Latn", "swe_Latn", "swh_Latn",
    "szl_Latn", "tam_Taml", "tat_Cyrl", "tel_Telu", "tgk_Cyrl", "tgl_Latn", "tha_Thai", "tir_Ethi",
    "taq_Latn", "taq_Tfng", "tpi_Latn", "tsn_Latn", "tso_Latn", "tuk_Latn", "tum_Latn", "tur_Latn",
    "twi_Latn", "tzm_Tfng", "uig_Arab", "ukr_Cyrl", "umb_Latn", "urd_Arab", "uzn_Latn", "vec_Latn",
    "vie_Latn", "war_Latn", "wol_Latn", "xho_Latn", "ydd_Hebr", "yor_Latn", "yue_Hant", "zho_Hans",
    "zho_Hant", "zul_Latn"};

constexpr HfFamily WithLanguages(HfFamily row) {
  row.translator = {.files = TranslatorFiles::kManyLanguages,
                    .codes = kCodes,
                    .other_set = "wmt21",
                    .other_codes = kWmtCodes,
                    .fairseq_languages = kLanguages,
                    .usual_code = "en",
                    .usual_language = "eng_Latn"};
  return row;
}

constexpr HfFamily kHf[] = {
    WithLanguages(HfTwoStacksFamily(kName, kClasses, kTensors, AddParameters))};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "M2M-100, NLLB", .read = Read, .hf = kHf};

}  // namespace kvant::arch::m2m100
