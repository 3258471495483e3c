// The table of pre-tokenizers: the only place that lists them.
//
// Sources: the pre_tokenizer and normalizer entries of the models' tokenizer.json files (Digits,
// Punctuation and ByteLevel steps written out as the expressions they stand for), and llama.cpp for
// which names share one. No expression repeats a group that can match in two ways, so none can
// backtrack over more than one run of characters, which makes all of them linear.
#include <array>

#include "engine/tokenizer/kinds.h"
#include "engine/tokenizer/pre_tokenizers.h"

namespace kvant {
namespace {

using Names = std::string_view;

// The step ByteLevel with use_regex: GPT-2's expression.
constexpr std::string_view kByteLevel =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Digits with individual_digits.
constexpr std::string_view kEachDigit = R"(\p{N})";

constexpr std::string_view kNewline = R"([\r\n])";

constexpr std::string_view kThreeDigits = R"([0-9][0-9][0-9])";

// CJK as the DeepSeek models cut it: U+4E00 to U+9FA5, U+0800 to U+4E00, Hangul and beyond.
constexpr std::string_view kDeepseekCjk =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

// Cased letters as DeepSeek LLM lists them.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF})"
    R"(\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D})"
    R"(\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5})"
    R"(\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5})"
    R"(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59})"
    R"(\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})"
    R"(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB})"
    R"(\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128})"
    R"(\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149})"
    R"(\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE})"
    R"(\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06})"
    R"(\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)";

constexpr std::string_view kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";

// \s+$ in the original. This form finds the same matches and does not try every start within a run.
constexpr std::string_view kTrailingSpace = R"((?<!\s)\s++\z)";

// Llama 3, and GPT-4's cl100k: up to three digits make a word.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen2: as Llama 3 with single digits.
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek V3: letters with their marks, punctuation and symbols.
constexpr std::string_view kDeepseek3Cjk =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kDeepseek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Mistral's Tekken: words break where lower case turns to upper case.
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-4o's o200k: as Tekken, with contractions kept at the word and up to three digits.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Falcon's first step, Punctuation with behavior "contiguous": category P and ASCII punctuation.
constexpr std::string_view kPunctuationRun = R"([\p{P}\$\+<=>\^~\|`]+)";
// llama.cpp's default has the run without the back-tick.
constexpr std::string_view kPunctuationRunDefault = R"([\p{P}\$\+<=>\^~\|]+)";

// MiniCPM5: as Llama 3, behind a step of its own for digits.
constexpr std::string_view kUpToThreeNumbers = R"(\p{N}{1,3})";
constexpr std::string_view kLlama3AnyDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Jais 2: as Llama 3, with white space at the end of a run cut in powers of two.
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|)"
    R"(\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s)";

// K2 Horizon: as Llama 3, with marks and joiners within words.
constexpr std::string_view kHorizon =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}\x{200C}\x{200D}]+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen3.5: as Qwen2, with marks within words.
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Ufakzeka: as Qwen2, without contractions.
constexpr std::string_view kUfakzeka =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kLines = R"([^\n]+|[\n]+)";

// Seed-Coder: as Qwen2, with no line breaks in or behind punctuation.
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Ling and LLaDA-MoE: as Qwen2, with one line break at a time.
constexpr std::string_view kBailingMoe =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";

// EXAONE MoE: words hold single spaces. Which characters begin a letter's group is unambiguous, so
// that its repetitions are possessive.
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";

// Spark 2.5: as DeepSeek V3, without line breaks behind punctuation.
constexpr std::string_view kSparkWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";

// AFMoE: numbers in threes from the right, and runs of scripts without spaces.
constexpr std::string_view kNumbersFromRight = R"((*threes)\p{N}++)";
constexpr std::string_view kAfmoeScripts =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})"
    R"(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF})"
    R"(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";

// Youtu: Hangul, CJK punctuation, bopomofo, Han and kana apart; then as o200k with single digits.
constexpr std::string_view kYoutuScripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|)"
    R"([\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C})"
    R"(\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|)"
    R"([\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kYoutuWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Kimi K2: runs of Han, then as o200k with letters that are not Han: what is in none of the other
// categories, and not of that script.
constexpr std::string_view kKimiWords =
    R"(\p{sc:Han}+|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}]*)"
    R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}]+)"
    R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Tiny Aya: digits in threes from the right, where no letter follows them.
constexpr std::string_view kDigitsFromRight = R"((*threes)\d++(?:(?=\w)()|))";

// BLOOM: everything but white space and some punctuation.
constexpr std::string_view kBloom =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";

// SuperBPE: numbers apart, and in threes from the right.
constexpr std::string_view kNumberRun = R"(\p{N}+)";
constexpr std::string_view kOpenDigitsFromRight = R"((*open-threes)\d++)";

// Chameleon: what stands for images, some white space, digits and punctuation, each apart.
constexpr std::string_view kChameleonSentinel = R"(<sentinel:[0-9]+>)";
constexpr std::string_view kChameleonImage = R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)";
constexpr std::string_view kChameleonSpace = R"([\t\n]|    |  )";
constexpr std::string_view kPunctuationEach = R"([\p{P}!-/:-@\[-`{-~])";

constexpr std::string_view kNoSpaces = R"(\S+)";
constexpr std::string_view kMarkedWords = "\u2581[^\u2581]*";

constexpr std::array kDefaultPatterns{kPunctuationRunDefault, kByteLevel,
                                      std::string_view(R"(\p{N}+)"), kThreeDigits};
constexpr std::array kByteLevelPatterns{kByteLevel};
constexpr std::array kDigitPatterns{kEachDigit, kByteLevel};
constexpr std::array kFalconPatterns{kPunctuationRun, kByteLevel, kThreeDigits};
constexpr std::array kLlama3Patterns{kLlama3};
constexpr std::array kQwen2Patterns{kQwen2};
constexpr std::array kTekkenPatterns{kTekken};
constexpr std::array kGpt4oPatterns{kGpt4o};
constexpr std::array kDeepseekCoderPatterns{kNewline, std::string_view(R"(\s?\p{L}+)"),
                                            std::string_view(R"(\s?\p{P}+)"), kDeepseekCjk,
                                            kEachDigit};
constexpr std::array kDeepseekLlmPatterns{kNewline,       kDeepseekLetters, kDeepseekPunctuation,
                                          kTrailingSpace, kDeepseekCjk,     kEachDigit};
constexpr std::array kDeepseek3Patterns{std::string_view(R"(\p{N}{1,3})"), kDeepseek3Cjk,
                                        kDeepseek3Words};
constexpr std::array kMinicpm5Patterns{kUpToThreeNumbers, kLlama3AnyDigits};
constexpr std::array kJais2Patterns{kJais2};
constexpr std::array kHorizonPatterns{kHorizon};
constexpr std::array kQwen35Patterns{kQwen35};
constexpr std::array kUfakzekaPatterns{kUfakzeka};
constexpr std::array kLagunaPatterns{kLines, kQwen2};
constexpr std::array kSeedCoderPatterns{kSeedCoder};
constexpr std::array kBailingMoePatterns{kBailingMoe};
constexpr std::array kExaoneMoePatterns{kExaoneMoe};
constexpr std::array kSparkPatterns{kDeepseek3Cjk, kSparkWords, kEachDigit};
constexpr std::array kAfmoePatterns{kNumbersFromRight, kAfmoeScripts, kDeepseek3Words};
constexpr std::array kYoutuPatterns{kYoutuScripts, kYoutuWords};
constexpr std::array kKimiPatterns{kKimiWords};
constexpr std::array kTinyAyaPatterns{kDigitsFromRight, kGpt4o};
constexpr std::array kBloomPatterns{kBloom};
constexpr std::array kVikingPatterns{kBloom, kEachDigit};
constexpr std::array kSuperBpePatterns{kNumberRun, kOpenDigitsFromRight};
constexpr std::array kChameleonPatterns{kChameleonSentinel, kChameleonImage,  kChameleonSpace,
                                        kEachDigit,         kPunctuationEach, kByteLevel};
constexpr std::array kLinesPatterns{kLines};
constexpr std::array kWhitespacePatterns{kNoSpaces};
constexpr std::array kMarkedWordPatterns{kMarkedWords};

constexpr Names kDefaultNames[] = {"default"};
constexpr Names kGpt2Names[] = {"gpt-2",      "phi-2",      "jina-es",    "jina-de",
                                "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code",
                                "gigachat",   "a.x-4.0",    "mellum",     "roberta-bpe",
                                "exaone4",    "jais",       "trillion",   "granite-docling"};
constexpr Names kNeoxNames[] = {"mpt", "olmo", "modern-bert"};
constexpr Names kStarcoderNames[] = {"starcoder", "refact", "granite-code", "smollm",
                                     "codeshell", "exaone", "minerva-7b",   "mellum2"};
constexpr Names kCommandRNames[] = {"command-r"};
constexpr Names kFalconNames[] = {"falcon"};
constexpr Names kLlama3Names[] = {"llama-bpe", "llama3",   "llama-v3", "falcon3",     "falcon-h1",
                                  "pixtral",   "midm-2.0", "lfm2",     "jina-v5-nano"};
constexpr Names kCl100kNames[] = {"dbrx", "smaug-bpe", "chatglm-bpe"};
constexpr Names kGlm4Names[] = {"glm4", "glm5"};
constexpr Names kMinicpm5Names[] = {"minicpm5"};
constexpr Names kJais2Names[] = {"jais-2"};
constexpr Names kHorizonNames[] = {"k2-horizon"};
constexpr Names kQwen2Names[] = {"qwen2",   "deepseek-r1-qwen", "stablelm2",  "megrez", "kormo",
                                 "f2llmv2", "hunyuan",          "solar-open", "grok-2"};
constexpr Names kQwen35Names[] = {"qwen35"};
constexpr Names kUfakzekaNames[] = {"ufakzeka"};
constexpr Names kLagunaNames[] = {"laguna"};
constexpr Names kSeedCoderNames[] = {"seed-coder"};
constexpr Names kBailingMoeNames[] = {"bailingmoe", "bailingmoe2", "llada-moe"};
constexpr Names kExaoneMoeNames[] = {"exaone-moe"};
constexpr Names kTekkenNames[] = {"tekken"};
constexpr Names kGpt4oNames[] = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"};
constexpr Names kGraniteEmbedNames[] = {"granite-embed-multi-97m"};
constexpr Names kTinyAyaNames[] = {"tiny_aya", "cohere2moe"};
constexpr Names kKimiNames[] = {"kimi-k2"};
constexpr Names kYoutuNames[] = {"youtu"};
constexpr Names kDeepseekCoderNames[] = {"deepseek-coder"};
constexpr Names kDeepseekLlmNames[] = {"deepseek-llm"};
constexpr Names kDeepseek3Names[] = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"};
constexpr Names kSparkNames[] = {"spark2_5"};
constexpr Names kAfmoeNames[] = {"afmoe"};
constexpr Names kBloomNames[] = {"bloom", "poro-chat", "gpt3-finnish"};
constexpr Names kVikingNames[] = {"viking"};
constexpr Names kSuperBpeNames[] = {"superbpe"};
constexpr Names kChameleonNames[] = {"chameleon"};
constexpr Names kGemma4Names[] = {"gemma4", "granite-embed-multi-311m", "mmbert", "sarvam-moe"};
constexpr Names kWhitespaceNames[] = {"whitespace"};
// kvant's own: Hugging Face's pre-tokenizer of this name, which may cut at each space or not.
constexpr Names kMetaspaceNames[] = {kMetaspacePre};
constexpr Names kMetaspaceWordNames[] = {kMetaspaceWordsPre};

using Spelling = PreTokenizerRow::Spelling;

constexpr PreTokenizerRow kPreTokenizerRows[] = {
    {.names = kDefaultNames, .patterns = kDefaultPatterns},
    {.names = kGpt2Names, .patterns = kByteLevelPatterns},
    {.names = kNeoxNames, .patterns = kByteLevelPatterns, .normalize_nfc = true},
    {.names = kStarcoderNames, .patterns = kDigitPatterns},
    {.names = kCommandRNames, .patterns = kDigitPatterns, .normalize_nfc = true},
    {.names = kFalconNames, .patterns = kFalconPatterns},
    {.names = kLlama3Names, .patterns = kLlama3Patterns, .ignore_merges = true, .add_bos = true},
    {.names = kCl100kNames, .patterns = kLlama3Patterns},
    {.names = kGlm4Names, .patterns = kLlama3Patterns, .ignore_merges = true},
    {.names = kMinicpm5Names, .patterns = kMinicpm5Patterns, .ignore_merges = true},
    {.names = kJais2Names, .patterns = kJais2Patterns},
    {.names = kHorizonNames, .patterns = kHorizonPatterns},
    {.names = kQwen2Names, .patterns = kQwen2Patterns, .normalize_nfc = true},
    {.names = kQwen35Names, .patterns = kQwen35Patterns, .normalize_nfc = true},
    {.names = kUfakzekaNames, .patterns = kUfakzekaPatterns},
    {.names = kLagunaNames, .patterns = kLagunaPatterns},
    {.names = kSeedCoderNames, .patterns = kSeedCoderPatterns},
    {.names = kBailingMoeNames, .patterns = kBailingMoePatterns},
    {.names = kExaoneMoeNames, .patterns = kExaoneMoePatterns},
    {.names = kTekkenNames, .patterns = kTekkenPatterns, .ignore_merges = true, .add_bos = true},
    {.names = kGpt4oNames, .patterns = kGpt4oPatterns},
    {.names = kGraniteEmbedNames, .patterns = kGpt4oPatterns, .ignore_merges = true},
    {.names = kTinyAyaNames, .patterns = kTinyAyaPatterns},
    {.names = kKimiNames, .patterns = kKimiPatterns},
    {.names = kYoutuNames, .patterns = kYoutuPatterns, .ignore_merges = true},
    {.names = kDeepseekCoderNames, .patterns = kDeepseekCoderPatterns},
    {.names = kDeepseekLlmNames, .patterns = kDeepseekLlmPatterns},
    {.names = kDeepseek3Names, .patterns = kDeepseek3Patterns},
    {.names = kSparkNames, .patterns = kSparkPatterns},
    {.names = kAfmoeNames, .patterns = kAfmoePatterns},
    {.names = kBloomNames, .patterns = kBloomPatterns},
    {.names = kVikingNames, .patterns = kVikingPatterns},
    {.names = kSuperBpeNames, .patterns = kSuperBpePatterns},
    {.names = kChameleonNames, .patterns = kChameleonPatterns, .add_bos = true},
    {.names = kGemma4Names, .patterns = kLinesPatterns, .spelling = Spelling::kCharacters},
    {.names = kWhitespaceNames,
     .patterns = kWhitespacePatterns,
     .spelling = Spelling::kPlainCharacters},
    {.names = kMetaspaceNames, .patterns = {}, .spelling = Spelling::kNormalized},
    {.names = kMetaspaceWordNames,
     .patterns = kMarkedWordPatterns,
     .spelling = Spelling::kNormalized},
};

}  // namespace

std::span<const PreTokenizerRow> PreTokenizerRows() { return kPreTokenizerRows; }

}  // namespace kvant
