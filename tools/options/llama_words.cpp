// Sources: common/arg.cpp and the README files of llama.cpp, early 2025.
#include "tools/options/llama_words.h"

#include <algorithm>
#include <array>

namespace kvant::tools {
namespace {

// Options that are asked for by another name elsewhere.
struct Synonym {
  std::string_view word;
  std::string_view name;
};
constexpr std::array kSynonyms = {
    Synonym{"--max-tokens", "--predict"},
    Synonym{"--max-new-tokens", "--predict"},
    Synonym{"--num-predict", "--predict"},
    Synonym{"--num-tokens", "--predict"},
    Synonym{"--length", "--predict"},
    Synonym{"--context", "--ctx-size"},
    Synonym{"--context-length", "--ctx-size"},
    Synonym{"--context-size", "--ctx-size"},
    Synonym{"--num-ctx", "--ctx-size"},
    Synonym{"--max-model-len", "--ctx-size"},
    Synonym{"--num-beams", "--beams"},
    Synonym{"--beam-size", "--beams"},
    Synonym{"--num-threads", "--threads"},
    Synonym{"--nthreads", "--threads"},
    Synonym{"--cpu-mask", "--pin"},
    Synonym{"--cpu-range", "--pin"},
    Synonym{"-C", "--pin"},
    Synonym{"-Cr", "--pin"},
    Synonym{"--text", "--prompt"},
    Synonym{"--input", "--file"},
    Synonym{"--random-seed", "--seed"},
    Synonym{"--rng-seed", "--seed"},
    Synonym{"--greedy", "--temp"},
    Synonym{"--repetition-penalty", "--repeat-penalty"},
    Synonym{"--verbose-prompt", "--echo"},
    Synonym{"--kv-cache-type", "--kv-type"},
    Synonym{"--draft-model", "--draft"},
    Synonym{"--out", "--output"},
    Synonym{"--outfile", "--output"},
    Synonym{"--save-session", "--session"},
    Synonym{"-cnv", "--chat"},
    Synonym{"--conversation", "--chat"},
    Synonym{"-i", "--chat"},
    Synonym{"--interactive", "--chat"},
    Synonym{"--interactive-first", "--chat"},
};

// A word that ends in '*' stands for all that begin so.
struct Missing {
  std::string_view word;
  std::string_view what;
};
constexpr std::array kMissing = {
    Missing{"-if", "conversations"},
    Missing{"-mli", "conversations"},
    Missing{"--multiline-input", "conversations"},
    Missing{"--in-prefix*", "conversations"},
    Missing{"--in-suffix", "conversations"},
    Missing{"--reasoning-*", "such settings of reasoning"},
    Missing{"--grammar*", "grammars"},
    Missing{"-j", "grammars"},
    Missing{"-jf", "grammars"},
    Missing{"--json-schema*", "grammars"},
    Missing{"--lora*", "LoRA adapters"},
    Missing{"--control-vector*", "control vectors"},
    Missing{"-hf*", "downloads"},
    Missing{"--hf-*", "downloads"},
    Missing{"-mu", "downloads"},
    Missing{"--model-url", "downloads"},
    Missing{"--rope-*", "other rotations than the model file names"},
    Missing{"--yarn-*", "other rotations than the model file names"},
    Missing{"--mmproj*", "images"},
    Missing{"--image", "images"},
    Missing{"-gan", "such extensions of the context"},
    Missing{"-gaw", "such extensions of the context"},
    Missing{"--grp-attn-*", "such extensions of the context"},
    Missing{"--embedding*", "embeddings"},
    Missing{"--rerank*", "embeddings"},
    Missing{"--pooling", "embeddings"},
};

// Optimal string alignment distance: insertions, deletions, substitutions, swapped neighbours.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// How far a word may be from what was meant: a third of its letters, and for three letters or less
// only their order, since of such words every other one is near (-cnv and -ctv).
size_t DistanceMax(std::string_view word, std::string_view candidate) {
  const auto letters = [](std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of('-'), text.size()));
    return std::string(text);
  };
  std::string a = letters(word);
  std::string b = letters(candidate);
  if (a.size() > 3) return std::max<size_t>(1, word.size() / 3);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b ? 2 : 0;
}

}  // namespace

const std::vector<DashWord>& DashWords() {
  static const std::vector<DashWord> words = {
      {"-ctk", "--cache-type-k"},
      {"-ctv", "--cache-type-v"},
      {"-ngl", "--n-gpu-layers"},
      {"-fa", "--flash-attn"},
      {"-ub", "--ubatch-size"},
      {"-pg", "--prompt-gen"},
      {"-oe", "--output-err"},
      {"-mmp", "--mmap"},
      {"-md", "--model-draft"},
      {"-tb", "--threads-batch"},
      {"-no-cnv", "--no-conversation"},
      {"-co", "--color"},
      {"-mg", "--main-gpu"},
      {"-sm", "--split-mode"},
      {"-ts", "--tensor-split"},
      {"-dev", "--device"},
      {"-ngld", "--n-gpu-layers-draft"},
      {"-nkvo", "--no-kv-offload"},
      {"-lv", "--log-verbosity"},
      {"-ot", "--override-tensor"},
      {"-st", "--single-turn"},
      {"-sys", "--system-prompt"},
      {"-sysf", "--system-prompt-file"},
  };
  return words;
}

const std::vector<IdleOption>& IdleOptions() {
  static constexpr const char* kCpu = "the model runs on the CPU";
  static constexpr const char* kPlain = "the text goes to stdout as it is, all else to stderr";
  static const std::vector<IdleOption> options = {
      {"--n-gpu-layers,--gpu-layers", true, kCpu},
      {"--n-gpu-layers-draft,--gpu-layers-draft", true, kCpu},
      {"--main-gpu", true, kCpu},
      {"--split-mode", true, kCpu},
      {"--tensor-split", true, kCpu},
      {"--device", true, kCpu},
      {"--override-tensor", true, kCpu},
      {"--no-kv-offload", false, kCpu},
      {"--flash-attn", false, "attention is always computed this way"},
      {"-b,--batch-size", true, "see --chunk"},
      {"--threads-batch", true, "prompts are computed by the threads of -t"},
      {"--prio,--poll", true, "threads have the priority of the program"},
      {"--no-warmup,--warmup", false, "nothing is computed in advance"},
      {"--log-disable,--no-perf", false, "there is no such log; -q leaves out progress and speeds"},
      {"-v,--verbose,--log-verbose", false, "see --log kv for what can be watched"},
      {"--log-verbosity,--verbosity", true, "see --log kv for what can be watched"},
      {"--log-colors,--log-prefix,--log-timestamps,--color,--simple-io", false, kPlain},
      {"--no-display-prompt", false, "the prompt is shown only with --echo"},
      {"--no-conversation", false, "prompts are always continued as they are"},
      {"--no-context-shift", false, "contexts are shifted only with --context-shift or --keep"},
      {"--no-escape", false, "escapes are read only with -e"},
      {"--jinja", false, "chat templates are always read as Jinja"},
  };
  return options;
}

std::string_view NotPossibleYet(std::string_view option) {
  option = option.substr(0, option.find('='));
  for (const Missing& missing : kMissing) {
    std::string_view word = missing.word;
    const bool family = word.ends_with('*');
    if (family) word.remove_suffix(1);
    if (family ? option.starts_with(word) : option == word) return missing.what;
  }
  return "";
}

std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  for (const Synonym& synonym : kSynonyms) {
    const bool meant = word == synonym.word;
    if (meant && std::find(known.begin(), known.end(), synonym.name) != known.end()) {
      return std::string(synonym.name);
    }
  }
  std::string best;
  size_t best_distance = std::string_view::npos;
  for (const std::string& candidate : known) {
    size_t distance = EditDistance(word, candidate);
    // A word cut short counts as one mistake: --pro for --prompt, --repetition for --repetitions.
    const bool cut = word.size() > 3 && candidate.size() > 3 &&
                     (candidate.starts_with(word) || word.starts_with(candidate));
    if (cut) distance = std::min<size_t>(distance, 1);
    const bool near = cut || distance <= DistanceMax(word, candidate);
    if (!near || distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace kvant::tools
