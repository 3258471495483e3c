// Translators from text to text: ids, decoded texts and searches are those of transformers' slow
// tokenizers and of generate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/generate/model_generation.h"
#include "kvant/beam_generator.h"
#include "kvant/token_text.h"
#include "tests/engine/convert/translator_folder.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

class Translators : public testing::TestWithParam<const char*> {
 protected:
  TranslatorFolder folder_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Reference, Translators,
                         testing::Values("marian", "marian-bpe", "marian-two", "m2m100", "nllb",
                                         "nllb-legacy"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(Translators, SourcesHaveTheIdsOfTheSlowTokenizer) {
  const auto model = folder_.Open();
  ASSERT_NE(model, nullptr);
  const json texts = TranslatorFolder::Read("texts.json");
  const auto translation = MakeTranslation(*model, folder_.Languages());
  ASSERT_TRUE(translation.ok()) << translation.error().message;
  ASSERT_GE(texts.size(), 200u);
  for (size_t i = 0; i < folder_.cases["texts"]; ++i) {
    const auto ids = EncodeSource(*model, *translation, texts[i].get<std::string>());
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, folder_.cases["ids"][i].get<Ids>()) << i << ": " << texts[i];
  }
}

// As with text_target: behind the decoder's first token stand the labels.
TEST_P(Translators, TargetsHaveTheIdsOfTheSlowTokenizer) {
  const auto model = folder_.Open();
  ASSERT_NE(model, nullptr);
  const json texts = TranslatorFolder::Read("texts.json");
  const auto translation = MakeTranslation(*model, folder_.Languages());
  ASSERT_TRUE(translation.ok()) << translation.error().message;
  const json& first = folder_.cases["target_first"];
  // The tokenizer of old NLLB models makes no decoder input of targets.
  if (std::string(GetParam()) == "nllb-legacy") return;
  for (size_t i = 0; i < folder_.cases["texts"]; ++i) {
    Ids expected;
    if (first.is_null()) {
      expected = folder_.cases["target_ids"][i].get<Ids>();
    } else {
      expected = folder_.cases["ids"][i].get<Ids>();
      expected.front() = first;
    }
    expected.insert(expected.begin(), *model->decoder_start());
    const auto text = texts[i].get<std::string>();
    const auto closed = EncodeTarget(*model, *translation, text, TargetEnd::kClosed);
    ASSERT_TRUE(closed.ok()) << closed.error().message;
    EXPECT_EQ(*closed, expected) << i << ": " << texts[i];
    expected.pop_back();
    EXPECT_EQ(*EncodeTarget(*model, *translation, text, TargetEnd::kOpen), expected);
  }
}

std::string Streamed(const Tokenizer& tokenizer, const Ids& ids) {
  TokenText text(tokenizer, {}, {.ignore_end = true});
  std::string out;
  for (const TokenId id : ids) {
    std::string piece;
    text.Push(id, piece);
    out += piece;
  }
  return out + text.Finish();
}

TEST_P(Translators, DecodesAsTheSlowTokenizer) {
  const auto model = folder_.Open();
  ASSERT_NE(model, nullptr);
  const Tokenizer& tokenizer = model->tokenizer();
  const auto check = [&](const json& rows, const json& texts) {
    ASSERT_EQ(rows.size(), texts.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const Ids ids = rows[i].get<Ids>();
      EXPECT_EQ(tokenizer.Decode(ids, {}), texts[i].get<std::string>()) << i << ": " << rows[i];
      EXPECT_EQ(Streamed(tokenizer, ids), texts[i].get<std::string>()) << i << ": " << rows[i];
    }
  };
  const bool same = folder_.cases["target_ids"].empty();
  check(folder_.cases[same ? "ids" : "target_ids"], folder_.cases["target_decoded"]);
  check(folder_.cases["samples"], folder_.cases["sample_texts"]);
}

// The search as the folder's generation_config.json asks for it, but for the settings of a case.
BeamOptions OptionsOf(const Model& model, const Translation& translation, const json& settings) {
  const auto own = ReadModelGeneration(model.file());
  EXPECT_TRUE(own.ok()) << own.error().message;
  BeamOptions search = own->options;
  EXPECT_EQ(search.max_length, 24);
  EXPECT_EQ(search.beams, 4);
  search.beams = settings["num_beams"];
  search.num_return = settings.value("num_return_sequences", 1);
  search.renormalize = settings.value("renormalize_logits", search.renormalize);
  search.end_tokens = model.tokenizer().special().end_of_generation;
  search.forced_bos = translation.forced;
  return search;
}

std::vector<BeamHypothesis> Search(const Runner& opened, const Translation& translation,
                                   const json& line) {
  Runner& runner = const_cast<Runner&>(opened);
  const Model& model = runner.model();
  const auto text = line["text"].get<std::string>();
  const std::vector<Ids> sources = {*EncodeSource(model, translation, text)};
  EXPECT_EQ(sources[0], line["source_ids"].get<Ids>()) << line;
  std::vector<Ids> prompts = {{*translation.first}};
  if (line["prefix"].is_string()) {
    prompts[0] =
        *EncodeTarget(model, translation, line["prefix"].get<std::string>(), TargetEnd::kOpen);
  }
  BeamGenerateOptions options;
  options.search = OptionsOf(model, translation, line["settings"]);
  options.sources = sources;
  const auto found = GenerateBeams(runner, prompts, options);
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? found->front().hypotheses : std::vector<BeamHypothesis>();
}

TEST_P(Translators, TranslatesFromTextToTextAsGenerate) {
  const auto model = folder_.Open();
  ASSERT_NE(model, nullptr);
  const auto translation = MakeTranslation(*model, folder_.Languages());
  ASSERT_TRUE(translation.ok()) << translation.error().message;
  const auto runner = OpenRunner(model, Options(KvType::kF32, 4));
  ASSERT_NE(runner, nullptr);
  const bool legacy = std::string(GetParam()) == "nllb-legacy";
  size_t count = 0;
  for (const json& line : folder_.cases["searches"]) {
    // See above: the prefix of this one has the language behind the text.
    if (legacy && line["prefix"].is_string()) continue;
    const auto found = Search(*runner, *translation, line);
    ASSERT_EQ(found.size(), line["ids"].size()) << line;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].ids, line["ids"][i].get<Ids>()) << line;
      EXPECT_EQ(model->tokenizer().Decode(found[i].ids, {}), line["texts"][i].get<std::string>());
      if (line["scores"].empty()) continue;
      EXPECT_NEAR(found[i].score, line["scores"][i].get<double>(), 1e-4) << line;
    }
    ++count;
  }
  EXPECT_GE(count, 16u);
}

// The padding token is banned; before that it is the likeliest of all. Only where probabilities
// are normalized behind the ban are the scores those of the model's own settings.
TEST(TranslatorChecks, RenormalizesBehindBannedTokens) {
  const TranslatorFolder folder("marian");
  const auto model = folder.Open();
  ASSERT_NE(model, nullptr);
  const auto translation = MakeTranslation(*model, {});
  ASSERT_TRUE(translation.ok()) << translation.error().message;
  const auto runner = OpenRunner(model, Options(KvType::kF32, 5));
  const auto own = ReadModelGeneration(model->file());
  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_TRUE(own->options.renormalize);
  const TokenId pad = *model->tokenizer().special().pad;
  EXPECT_EQ(own->options.suppress, Ids{pad});
  EXPECT_EQ(own->options.forced_eos, Ids{0});
  const SourceId source = *runner->Encode(*EncodeSource(*model, *translation, "How old are you?"));
  const SequenceId sequence = *runner->NewSequence(source);
  ASSERT_TRUE(runner->Append(sequence, Ids{*translation->first}).ok());
  const auto logits = runner->logits(sequence);
  EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), pad);
  const json& searches = folder.cases["searches"];
  ASSERT_FALSE(searches[1]["settings"].contains("renormalize_logits"));
  ASSERT_EQ(searches[2]["settings"]["renormalize_logits"], false);
  const auto with = Search(*runner, *translation, searches[1]);
  const auto without = Search(*runner, *translation, searches[2]);
  ASSERT_TRUE(!with.empty() && !without.empty());
  EXPECT_NEAR(with[0].score, searches[1]["scores"][0].get<double>(), 1e-4);
  EXPECT_NEAR(without[0].score, searches[2]["scores"][0].get<double>(), 1e-4);
  EXPECT_GT(std::abs(with[0].score - without[0].score), 0.1);
}

// The fast tokenizer's file alone: its merges cut as the pieces do.
TEST(TranslatorFiles, NllbIsReadFromTokenizerJsonAlone) {
  const TranslatorFolder pieces("nllb");
  const TranslatorFolder merges("nllb", "nllb-json");
  const auto of_pieces = pieces.Open();
  const auto of_merges = merges.Open();
  ASSERT_TRUE(of_pieces != nullptr && of_merges != nullptr);
  const auto translation = MakeTranslation(*of_merges, pieces.Languages());
  ASSERT_TRUE(translation.ok()) << translation.error().message;
  const json texts = TranslatorFolder::Read("texts.json");
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const auto ids = EncodeSource(*of_merges, *translation, text);
    EXPECT_EQ(*ids, pieces.cases["ids"][i].get<Ids>()) << i << ": " << texts[i];
    EXPECT_EQ(of_merges->tokenizer().Decode(*ids, {}), of_pieces->tokenizer().Decode(*ids, {}));
  }
}

TEST(TranslatorFiles, UnknownLanguagesAreToldWithTheKnownOnes) {
  const auto message = [](const char* name, const LanguageNames& names) {
    const auto model = TranslatorFolder(name).Open();
    const auto translation = MakeTranslation(*model, names);
    return translation.ok() ? "accepted" : translation.error().message;
  };
  EXPECT_THAT(message("m2m100", {"en", "german"}),
              HasSubstr("expected a language of the model (af, am, ar, ast, "));
  EXPECT_THAT(message("nllb", {{}, "deo"}), HasSubstr("(the nearest of 202: deu_Latn, "));
  EXPECT_THAT(message("nllb", {{}, "zho"}), HasSubstr("zho_Hans, zho_Hant"));
  EXPECT_EQ(message("nllb", {"fra", "deu"}), "accepted");
  EXPECT_EQ(message("m2m100", {"__fr__", "de"}), "accepted");
  EXPECT_THAT(message("marian", {{}, "xx"}), HasSubstr("(de, fr, deu_Latn), found \"xx\""));
  EXPECT_THAT(message("marian", {"en", {}}), HasSubstr("is told no language of its sources"));
  EXPECT_THAT(message("marian-bpe", {{}, "de"}), HasSubstr("(it has none)"));
}

// --target-lang of Marian is the token in front of the text.
TEST(TranslatorFiles, MariansLanguagesStandInFrontOfTheSource) {
  const auto model = TranslatorFolder("marian").Open();
  const auto named = MakeTranslation(*model, {{}, "fr"});
  const auto plain = MakeTranslation(*model, {});
  ASSERT_TRUE(named.ok() && plain.ok());
  EXPECT_EQ(*EncodeSource(*model, *named, "Hello"), *EncodeSource(*model, *plain, ">>fr<< Hello"));
}

// Both embeddings may differ in their number of rows. Rows that both models have give equal logits.
TEST(TranslatorFiles, TwoVocabulariesHaveTheirOwnSizes) {
  constexpr int kMore = 7;
  const TranslatorFolder same("marian-two");
  const TranslatorFolder more("marian-two", "", [](json& cases) {
    for (json& row : cases["tensors"]) {
      const std::string name = row["name"];
      if (name == "model.decoder.embed_tokens.weight")
        row["shape"][0] = row["shape"][0].get<int>() + kMore;
      if (name == "final_logits_bias") row["shape"][1] = row["shape"][1].get<int>() + kMore;
    }
  });
  more.Change("config.json", [](json& config) {
    config["decoder_vocab_size"] = config["decoder_vocab_size"].get<int>() + kMore;
  });
  more.Change("target_vocab.json", [](json& list) {
    const size_t size = list.size();
    for (int i = 0; i < kMore; ++i)
      list["more" + std::to_string(i)] = size + static_cast<size_t>(i);
  });
  std::vector<std::vector<float>> logits;
  for (const TranslatorFolder* folder : {&same, &more}) {
    const auto model = folder->Open();
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->vocab_size() - model->source_vocab_size(), logits.empty() ? 0 : kMore);
    const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
    const SourceId source = *runner->Encode(Ids{5, 9, 0});
    const SequenceId sequence = *runner->NewSequence(source);
    ASSERT_TRUE(runner->Append(sequence, Ids{*model->decoder_start(), 7, 3}).ok());
    logits.emplace_back(runner->logits(sequence).begin(), runner->logits(sequence).end());
    const TokenId last = model->vocab_size() - 1;
    if (logits.size() == 2) {
      EXPECT_THAT(runner->Encode(Ids{last}).error().message, HasSubstr("expected an id from 0 to"));
    }
  }
  logits[1].resize(logits[0].size());
  EXPECT_EQ(logits[0], logits[1]);
}

// Where no language is named, the source is read as the folder says, or as the tokenizer does.
TEST(TranslatorFiles, SourcesHaveAUsualLanguage) {
  const TranslatorFolder folder("nllb");
  const auto first = [&] {
    const auto model = folder.Open();
    const Ids ids = *EncodeSource(*model, *MakeTranslation(*model, {}), "Hello");
    return std::string(model->tokenizer().piece(ids.front()));
  };
  EXPECT_EQ(first(), "eng_Latn");
  folder.Change("tokenizer_config.json", [](json& config) { config["src_lang"] = "fra_Latn"; });
  EXPECT_EQ(first(), "fra_Latn");
}

class BrokenTranslators : public testing::Test {
 protected:
  std::string After(const char* name, const char* file,
                    const std::function<void(json&)>& change) const {
    const TranslatorFolder folder(name);
    folder.Change(file, change);
    return folder.Message();
  }
};

TEST_F(BrokenTranslators, ListsOfIdsAreChecked) {
  const auto list = [&](const std::function<void(json&)>& change) {
    return After("marian", "vocab.json", change);
  };
  EXPECT_EQ(list([](json&) {}), "accepted");
  EXPECT_THAT(list([](json& j) { j["\u2581the"] = 4000000000u; }),
              HasSubstr("vocab.json: token \"\u2581the\" has id 4000000000, but config.json says"));
  EXPECT_THAT(list([](json& j) { j["x"] = -1; }), HasSubstr("has id -1"));
  EXPECT_THAT(list([](json& j) { j["x"] = "1"; }), HasSubstr("has id \"1\""));
  EXPECT_THAT(list([](json& j) { j["x"] = 0.5; }), HasSubstr("has id 0.5"));
  EXPECT_THAT(list([](json& j) { j["x"] = 5; }), HasSubstr("have the same id 5"));
  EXPECT_THAT(list([](json& j) { j.erase("</s>"); }),
              HasSubstr("expected the token \"</s>\" in it, found none"));
  EXPECT_THAT(list([](json& j) { j.erase("<unk>"); }), HasSubstr("the token \"<unk>\""));
  EXPECT_THAT(list([](json& j) { j.erase("<pad>"); }), HasSubstr("the token \"<pad>\""));
  EXPECT_THAT(list([](json& j) { j = json::array(); }), HasSubstr("expected an object"));
  EXPECT_THAT(list([](json& j) { j = json::object(); }), HasSubstr("expected an object"));
  // Ids without a token are unused ones.
  EXPECT_EQ(list([](json& j) { j.erase(std::next(j.begin(), 20)); }), "accepted");
  EXPECT_THAT(After("marian-two", "target_vocab.json", [](json& j) { j["x"] = 1000; }),
              HasSubstr("target_vocab.json: token \"x\" has id 1000"));
  EXPECT_THAT(After("m2m100", "vocab.json", [](json& j) { j["x"] = 1000; }),
              HasSubstr("vocab.json: token \"x\" has id 1000"));
}

TEST_F(BrokenTranslators, MissingAndWrongFilesAreNamed) {
  const auto without = [](const char* name, const char* file) {
    const TranslatorFolder folder(name);
    std::filesystem::remove(folder.Path(file));
    return folder.Message();
  };
  EXPECT_THAT(without("marian", "source.spm"), HasSubstr("source.spm"));
  EXPECT_THAT(without("marian", "target.spm"), HasSubstr("target.spm"));
  EXPECT_THAT(without("marian", "vocab.json"), HasSubstr("vocab.json"));
  EXPECT_THAT(without("marian-two", "target_vocab.json"), HasSubstr("target_vocab.json"));
  EXPECT_THAT(without("m2m100", "sentencepiece.bpe.model"),
              HasSubstr("expected sentencepiece.bpe.model beside vocab.json"));
  EXPECT_THAT(without("nllb", "sentencepiece.bpe.model"), HasSubstr("no vocabulary"));
  const TranslatorFolder folder("marian");
  folder.Write("source.spm", "pieces");
  EXPECT_THAT(folder.Message(), HasSubstr("source.spm: not a SentencePiece vocabulary"));
  const TranslatorFolder other("nllb-legacy", "nllb-json");
  other.Change("tokenizer.json",
               [](json& j) { j["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "%%%%"; });
  EXPECT_THAT(other.Message(), HasSubstr("precompiled_charsmap is no base64"));
  EXPECT_THAT(After("nllb", "config.json", [](json& j) { j["vocab_size"] = 100; }),
              HasSubstr("sentencepiece.bpe.model: 260 pieces and a token more"));
}

// Whatever a changed byte makes of the pieces, the folder is refused in a line or works.
TEST_F(BrokenTranslators, AnyByteOfThePiecesMayBeWrong) {
  const TranslatorFolder folder("marian");
  std::ifstream file(folder.Path("source.spm"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (size_t i = 0; i < bytes.size(); i += 211) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    folder.Write("source.spm", changed);
    const std::string message = folder.Message();
    EXPECT_EQ(message.find('\n'), std::string::npos);
    if (message != "accepted") continue;
    const auto model = Model::Open(folder.Path("out.gguf"));
    if (!model.ok()) continue;
    EXPECT_TRUE((*model)->source_tokenizer().Encode("Hello \u2581 w\u00f6rld", {}).ok());
  }
}

}  // namespace
}  // namespace kvant::test
