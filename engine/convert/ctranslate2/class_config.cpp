#include "engine/convert/ctranslate2/class_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/convert/ctranslate2/stack_settings.h"
#include "formats/json.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::CTranslate2Model;
using formats::Json;
using formats::JsonObject;
using formats::Quoted;
using formats::SafetensorsTensor;

constexpr std::string_view kTransformer = "TransformerSpec";
constexpr std::string_view kSpeech = "WhisperSpec";
constexpr uint32_t kFirstVersionWithConfig = 6;

// The kinds of models that other specs describe.
struct OtherSpec {
  std::string_view name;
  std::string_view meaning;
};
constexpr OtherSpec kOtherSpecs[] = {
    {"TransformerDecoderSpec", "a decoder alone, as GPT or Llama"},
    {"TransformerEncoderSpec", "an encoder alone, as BERT"},
    {"Wav2Vec2Spec", "an encoder of sound"},
    {"Wav2Vec2BertSpec", "an encoder of sound"},
    {"TransformerBase", "a Transformer of 2019"},
    {"TransformerBig", "a Transformer of 2019"},
};

// The classes of Transformers by how they are built.
struct ClassRow {
  std::string_view name;
  bool norms_before;
  bool embedding_norm;
  bool zero_start;
  bool distances;
  bool own_distances;
};
constexpr ClassRow kClassRows[] = {
    {"T5ForConditionalGeneration", true, false, false, true, false},
    {"UMT5ForConditionalGeneration", true, false, false, true, true},
    {"MarianMTModel", false, false, true, false, false},
    {"BartForConditionalGeneration", false, true, false, false, false},
    {"MBartForConditionalGeneration", true, true, false, false, false},
    {"M2M100ForConditionalGeneration", true, false, false, false, false},
};

// The names of activations in Hugging Face's files, by CTranslate2's numbers.
constexpr std::string_view kActivations[] = {"relu",       "gelu_new", "silu",   "gelu",
                                             "quick_gelu", "tanh",     "sigmoid"};

Status CheckQuantization(const JsonObject& config) {
  const Json* type = config.Find("quantization_type");
  if (type != nullptr && *type != 0) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: weights of AWQ cannot be converted (quantization_type {}); convert the "
                     "folder that the model was made of",
                     config.where(), formats::Shown(*type));
  }
  KVANT_ASSIGN(const auto one_head, config.Bool("multi_query_attention"));
  if (one_head.value_or(false)) return config.Wrong("multi_query_attention", "false");
  return {};
}

// The settings of config.json that texts need. Before version 6 they were variables.
struct TextSettings {
  std::string unk = "<unk>";
  std::string bos = "<s>";
  std::string eos = "</s>";
  std::optional<std::string> start = "<s>";  // nothing: whoever translates names it
};

Result<TextSettings> ReadOldTexts(const CTranslate2Model& model) {
  TextSettings out;
  struct Row {
    const char* name;
    std::string* text;
  };
  for (const Row& row :
       {Row{"unk_token", &out.unk}, Row{"bos_token", &out.bos}, Row{"eos_token", &out.eos}}) {
    KVANT_ASSIGN(const auto text, model.Text(row.name));
    if (text) *row.text = *text;
  }
  KVANT_ASSIGN(const double source_bos, NumberOr(model, "with_source_bos", 0));
  if (source_bos != 0) return UnexpectedNumber(model, "with_source_bos", source_bos, "0");
  KVANT_ASSIGN(const double open, NumberOr(model, "user_decoder_start_tokens", 0));
  KVANT_ASSIGN(const double target_bos, NumberOr(model, "with_target_bos", 1));
  out.start = target_bos != 0 ? out.bos : out.eos;
  if (open != 0) out.start.reset();
  return out;
}

Result<TextSettings> ReadTexts(const CTranslate2Model& model, const JsonObject& config) {
  if (model.version() < kFirstVersionWithConfig) return ReadOldTexts(model);
  TextSettings out;
  const auto read = [&](const char* key, std::string& text) -> Status {
    KVANT_ASSIGN(const auto found, config.String(key));
    if (!found) return config.Wrong(key, "a token");
    text = *found;
    return {};
  };
  KVANT_TRY(read("unk_token", out.unk));
  KVANT_TRY(read("eos_token", out.eos));
  KVANT_ASSIGN(const auto bos, config.String("bos_token"));
  out.bos = bos.value_or("");
  KVANT_ASSIGN(out.start, config.String("decoder_start_token"));
  KVANT_ASSIGN(const auto source_bos, config.Bool("add_source_bos"));
  if (source_bos.value_or(false)) return config.Wrong("add_source_bos", "false");
  return out;
}

// The id of a token that the list must have.
Result<int64_t> IdOf(const TokenList& list, std::string_view token) {
  const auto id = list.Find(token);
  if (id) return *id;
  return MakeError(ErrorCode::kCorrupt, "{}: expected the token {} in it, found none", list.file,
                   Quoted(token));
}

// One setting of both stacks.
template <class T>
Status CheckEqual(const CTranslate2Model& model, std::string_view name, T encoder, T decoder) {
  if (encoder == decoder) return {};
  return MakeError(ErrorCode::kNotSupported, "{}: {} is {} in the encoder, but {} in the decoder",
                   model.path(), name, encoder, decoder);
}

class ConfigMaker {
 public:
  ConfigMaker(const CTranslate2Model& model, const JsonObject& config, const TokenLists& lists)
      : model_(model), config_(config), lists_(lists) {}

  Result<ClassConfig> Make() {
    KVANT_TRY(CheckQuantization(config_));
    KVANT_TRY(CheckSpec(model_));
    if (model_.spec() == kSpeech) {
      KVANT_TRY(MakeSpeech());
    } else {
      KVANT_TRY(MakeTransformer());
    }
    // Where there is no config.json, settings of generation are those of the model.
    out_.update(generation_);
    const auto object = [](const Json& json, std::string_view file) {
      return JsonObject::Parse(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                               std::string(file));
    };
    KVANT_ASSIGN(JsonObject model, object(out_, model_.path()));
    KVANT_ASSIGN(JsonObject generation, object(generation_, config_.where()));
    KVANT_ASSIGN(JsonObject tokenizer, object(tokenizer_, config_.where()));
    return ClassConfig{std::move(model), std::move(generation), std::move(tokenizer), zero_start_};
  }

 private:
  Status MakeSpeech();
  Status MakeSpeechTokens();
  Status MakeTransformer();
  Status MakeTranslator();
  Status MakeDistances();
  Status MakeTexts();
  Status FindSharing();
  Status CheckOutputScale(bool tied) const;
  Result<const ClassRow*> FindClass() const;
  Result<bool> IsTied() const;
  Result<std::string> Activation() const;

  const CTranslate2Model& model_;
  const JsonObject& config_;
  const TokenLists& lists_;
  StackSettings encoder_;
  StackSettings decoder_;
  bool zero_start_ = false;
  bool shared_ = false;  // the embedding of both stacks
  Json out_ = Json::object();
  Json generation_ = Json::object();
  Json tokenizer_ = Json::object();
};

Result<std::string> ConfigMaker::Activation() const {
  KVANT_TRY(CheckEqual(model_, "activation", encoder_.activation, decoder_.activation));
  if (decoder_.activation < std::ssize(kActivations)) {
    return std::string(kActivations[decoder_.activation]);
  }
  return UnexpectedNumber(model_, "decoder/activation", static_cast<double>(decoder_.activation),
                          "0 to 6");
}

// Whether the output's weights are the decoder's embedding.
Result<bool> ConfigMaker::IsTied() const {
  const SafetensorsTensor* embedding = FindStackEmbedding(model_, "decoder");
  const SafetensorsTensor* output = model_.Find("decoder/projection/weight");
  if (embedding == nullptr || output == nullptr) {
    return MakeError(
        ErrorCode::kCorrupt, "{}: variable {} is missing", model_.path(),
        embedding == nullptr ? "decoder/embeddings/weight" : "decoder/projection/weight");
  }
  return AreSameVariable(model_, *embedding, *output);
}

Status ConfigMaker::MakeSpeech() {
  KVANT_ASSIGN(encoder_, ReadStackSettings(model_, "encoder"));
  KVANT_ASSIGN(decoder_, ReadStackSettings(model_, "decoder"));
  // The encoder's are not in the file: they are GELU, before norms.
  if (decoder_.activation != 3) {
    return UnexpectedNumber(model_, "decoder/activation", static_cast<double>(decoder_.activation),
                            "3, GELU");
  }
  if (decoder_.embedding_scale != 1) {
    return UnexpectedNumber(model_, "decoder/scale_embeddings",
                            static_cast<double>(decoder_.embedding_scale), "0");
  }
  const SafetensorsTensor* first = model_.Find("encoder/conv1/weight");
  if (first == nullptr || first->shape.size() != 3) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: expected a variable {} of three dimensions, found none", model_.path(),
                     Quoted("encoder/conv1/weight"));
  }
  KVANT_TRY(lists_.source.CheckSize(decoder_.vocab));
  KVANT_ASSIGN(const bool tied, IsTied());
  out_ = {{"architectures", {"WhisperForConditionalGeneration"}},
          {"d_model", decoder_.dim},
          {"encoder_layers", encoder_.layers},
          {"decoder_layers", decoder_.layers},
          {"encoder_attention_heads", encoder_.heads},
          {"decoder_attention_heads", decoder_.heads},
          {"encoder_ffn_dim", encoder_.ffn},
          {"decoder_ffn_dim", decoder_.ffn},
          {"vocab_size", decoder_.vocab},
          {"max_target_positions", decoder_.context},
          {"max_source_positions", encoder_.context},
          {"num_mel_bins", first->shape[1]},
          {"activation_function", "gelu"},
          {"tie_word_embeddings", tied}};
  return MakeSpeechTokens();
}

// Tokens by their names. Lists of ids in config.json are those of what is suppressed; its ids of
// languages are wrong for models of English alone, whose tokens lie one lower.
Status ConfigMaker::MakeSpeechTokens() {
  const TokenList& list = lists_.source;
  KVANT_ASSIGN(const int64_t end, IdOf(list, "<|endoftext|>"));
  KVANT_ASSIGN(const int64_t start, IdOf(list, "<|startoftranscript|>"));
  KVANT_ASSIGN(const int64_t translate, IdOf(list, "<|translate|>"));
  KVANT_ASSIGN(const int64_t transcribe, IdOf(list, "<|transcribe|>"));
  generation_ = {{"eos_token_id", end}, {"bos_token_id", end}, {"decoder_start_token_id", start}};
  if (const Json* ids = config_.Find("suppress_ids")) generation_["suppress_tokens"] = *ids;
  if (const Json* ids = config_.Find("suppress_ids_begin")) {
    generation_["begin_suppress_tokens"] = *ids;
  }
  if (const auto id = list.Find("<|notimestamps|>")) generation_["no_timestamps_token_id"] = *id;
  // The vocabulary of models of several languages has an empty text, that of English alone none.
  if (list.Find("")) {
    Json languages = Json::object();
    for (int64_t id = start + 1; id < translate; ++id) {
      languages[list.tokens[static_cast<size_t>(id)]] = id;
    }
    generation_["lang_to_id"] = std::move(languages);
    generation_["task_to_id"] = {{"translate", translate}, {"transcribe", transcribe}};
    generation_["task"] = "transcribe";
  }
  tokenizer_ = {{"eos_token", "<|endoftext|>"}, {"bos_token", "<|endoftext|>"}};
  return {};
}

Result<const ClassRow*> ConfigMaker::FindClass() const {
  const auto both = [this](std::string_view name, bool StackSettings::*setting) {
    return CheckEqual(model_, name, encoder_.*setting, decoder_.*setting);
  };
  KVANT_TRY(both("pre_norm", &StackSettings::norms_before));
  KVANT_TRY(both("layernorm_embedding", &StackSettings::embedding_norm));
  KVANT_TRY(both("relative_attention_bias", &StackSettings::distances));
  KVANT_TRY(both("linear_0_noact", &StackSettings::gated));
  const bool own = encoder_.own_distances || decoder_.own_distances;
  for (const ClassRow& row : kClassRows) {
    if (row.norms_before == decoder_.norms_before &&
        row.embedding_norm == decoder_.embedding_norm && row.zero_start == zero_start_ &&
        row.distances == decoder_.distances && row.own_distances == own) {
      return &row;
    }
  }
  return MakeError(
      ErrorCode::kNotSupported,
      "{}: a Transformer with norms {} layers, {} the embedding, {} first token and {} cannot be "
      "converted: it is none of T5, UMT5, Marian, BART, mBART and M2M-100",
      model_.path(), decoder_.norms_before ? "before" : "behind",
      decoder_.embedding_norm ? "a norm of" : "no norm of", zero_start_ ? "zeros as" : "a",
      decoder_.distances ? "distances" : "positions");
}

Status ConfigMaker::MakeTransformer() {
  KVANT_ASSIGN(encoder_, ReadStackSettings(model_, "encoder"));
  KVANT_ASSIGN(decoder_, ReadStackSettings(model_, "decoder"));
  KVANT_ASSIGN(const double zero_start, NumberOr(model_, "decoder/start_from_zero_embedding", 0));
  zero_start_ = zero_start != 0;
  KVANT_TRY(lists_.source.CheckSize(encoder_.vocab));
  KVANT_TRY(lists_.decoder().CheckSize(decoder_.vocab));
  KVANT_ASSIGN(const ClassRow* row, FindClass());
  KVANT_TRY(CheckEqual(model_, "d_model", encoder_.dim, decoder_.dim));
  KVANT_TRY(FindSharing());
  KVANT_ASSIGN(const bool tied, IsTied());
  out_ = {{"architectures", {row->name}},
          {"d_model", decoder_.dim},
          {"vocab_size", encoder_.vocab + (zero_start_ ? 1 : 0)},
          {"tie_word_embeddings", tied}};
  KVANT_ASSIGN(const auto epsilon, config_.Number("layer_norm_epsilon"));
  if (epsilon) out_[decoder_.distances ? "layer_norm_epsilon" : "layer_norm_eps"] = *epsilon;
  KVANT_TRY(CheckOutputScale(tied));
  if (decoder_.distances) {
    KVANT_TRY(MakeDistances());
  } else {
    KVANT_TRY(MakeTranslator());
  }
  return MakeTexts();
}

// Whether both stacks have one embedding, as all classes but Marian need.
Status ConfigMaker::FindSharing() {
  const SafetensorsTensor* source = FindStackEmbedding(model_, "encoder");
  const SafetensorsTensor* target = FindStackEmbedding(model_, "decoder");
  shared_ = source != nullptr && target != nullptr && AreSameVariable(model_, *source, *target);
  if (!shared_ && !zero_start_) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: variables {} and {} differ; expected one embedding for both stacks",
                     model_.path(), Quoted("encoder/embeddings_0/weight"),
                     Quoted("decoder/embeddings/weight"));
  }
  return {};
}

// The classes of T5 scale the output where it is the embedding, and others have none.
Status ConfigMaker::CheckOutputScale(bool tied) const {
  constexpr std::string_view kName = "decoder/scale_outputs";
  const bool scaled = decoder_.distances && tied;
  const double expected = scaled ? 1 / std::sqrt(static_cast<double>(decoder_.dim)) : 1;
  KVANT_ASSIGN(const double found, NumberOr(model_, kName, 1));
  if (std::abs(found - expected) <= 1e-6) return {};
  return UnexpectedNumber(model_, kName, found, fmt::format("{:.7g}", expected));
}

Status ConfigMaker::MakeTranslator() {
  KVANT_TRY(CheckEqual(model_, "the number of positions", encoder_.context, decoder_.context));
  KVANT_TRY(
      CheckEqual(model_, "scale_embeddings", encoder_.embedding_scale, decoder_.embedding_scale));
  const float root = std::sqrt(static_cast<float>(decoder_.dim));
  const bool scaled = std::abs(decoder_.embedding_scale - root) <= 1e-6f * root;
  if (!scaled && decoder_.embedding_scale != 1) {
    return UnexpectedNumber(model_, "decoder/scale_embeddings",
                            static_cast<double>(decoder_.embedding_scale),
                            fmt::format("1 or {:.7g}", root));
  }
  KVANT_ASSIGN(const std::string activation, Activation());
  if (zero_start_) {
    out_["share_encoder_decoder_embeddings"] = shared_;
    out_["decoder_vocab_size"] = decoder_.vocab + 1;
  }
  out_.update({{"encoder_layers", encoder_.layers},
               {"decoder_layers", decoder_.layers},
               {"encoder_attention_heads", encoder_.heads},
               {"decoder_attention_heads", decoder_.heads},
               {"encoder_ffn_dim", encoder_.ffn},
               {"decoder_ffn_dim", decoder_.ffn},
               {"max_position_embeddings", decoder_.context},
               {"activation_function", activation},
               {"scale_embedding", scaled}});
  return {};
}

Status ConfigMaker::MakeDistances() {
  KVANT_TRY(CheckEqual(model_, "num_heads", encoder_.heads, decoder_.heads));
  KVANT_TRY(CheckEqual(model_, "the width of feed-forwards", encoder_.ffn, decoder_.ffn));
  KVANT_TRY(CheckEqual(model_, "the number of buckets", encoder_.buckets, decoder_.buckets));
  KVANT_TRY(CheckEqual(model_, "relative_attention_max_distance", encoder_.distance_max,
                       decoder_.distance_max));
  for (const auto& [name, stack] :
       {std::pair{"encoder", &encoder_}, std::pair{"decoder", &decoder_}}) {
    if (stack->embedding_scale == 1) continue;
    return UnexpectedNumber(model_, fmt::format("{}/scale_embeddings", name),
                            static_cast<double>(stack->embedding_scale), "0");
  }
  KVANT_ASSIGN(std::string activation, Activation());
  // Hugging Face's name of the gates means the approximation by tanh.
  if (decoder_.gated && activation == "gelu") activation = "gelu of erf";
  if (activation == "gelu_new" && decoder_.gated) activation = "gelu";
  out_.update({{"num_layers", encoder_.layers},
               {"num_decoder_layers", decoder_.layers},
               {"d_ff", decoder_.ffn},
               {"num_heads", decoder_.heads},
               {"d_kv", decoder_.q_rows / decoder_.heads},
               {"feed_forward_proj", decoder_.gated ? "gated-" + activation : activation},
               {"relative_attention_num_buckets", decoder_.buckets},
               {"relative_attention_max_distance", decoder_.distance_max}});
  return {};
}

// The tokens that texts begin and end with, by their names.
Status ConfigMaker::MakeTexts() {
  KVANT_ASSIGN(const TextSettings texts, ReadTexts(model_, config_));
  const TokenList& list = lists_.decoder();
  KVANT_ASSIGN(const int64_t end, IdOf(list, texts.eos));
  out_["eos_token_id"] = end;
  tokenizer_ = {{"eos_token", texts.eos}, {"unk_token", texts.unk}};
  if (zero_start_) {
    // As in Hugging Face's folders: a token behind the others begins texts and is never written.
    const int64_t zero = decoder_.vocab;
    out_.update({{"decoder_start_token_id", zero}, {"pad_token_id", zero}});
    generation_["bad_words_ids"] = Json::array_t{Json::array_t{zero}};
    tokenizer_["pad_token"] = kZeroToken;
    tokenizer_["separate_vocabs"] = lists_.target.has_value();
    return {};
  }
  if (texts.start) {
    KVANT_ASSIGN(const int64_t start, IdOf(list, *texts.start));
    out_["decoder_start_token_id"] = start;
  }
  const auto pad = list.Find("<pad>");
  if (pad) {
    out_["pad_token_id"] = *pad;
    tokenizer_["pad_token"] = "<pad>";
  }
  // T5 has none: its converter names the padding.
  if (!texts.bos.empty() && !decoder_.distances) tokenizer_["bos_token"] = texts.bos;
  return {};
}

}  // namespace

Status CheckSpec(const CTranslate2Model& model) {
  if (model.spec() == kTransformer || model.spec() == kSpeech) return {};
  std::string_view meaning = "another kind of model";
  for (const OtherSpec& other : kOtherSpecs) {
    if (other.name == model.spec()) meaning = other.meaning;
  }
  return MakeError(ErrorCode::kNotSupported,
                   "{}: a CTranslate2 model of the spec {} ({}) cannot be converted, expected {} "
                   "or {}; convert the folder that it was made of",
                   model.path(), Quoted(model.spec()), meaning, kTransformer, kSpeech);
}

Result<ClassConfig> MakeClassConfig(const CTranslate2Model& model, const JsonObject& config,
                                    const TokenLists& lists) {
  return ConfigMaker(model, config, lists).Make();
}

}  // namespace kvant::convert
