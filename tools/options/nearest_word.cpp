#include "tools/options/nearest_word.h"

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
    Synonym{"--text", "--prompt"},
    Synonym{"--input", "--file"},
    Synonym{"--in-file", "--file"},
    Synonym{"--random-seed", "--seed"},
    Synonym{"--rng-seed", "--seed"},
    Synonym{"--greedy", "--temp"},
    Synonym{"--repetition-penalty", "--repeat-penalty"},
    Synonym{"--kv-cache-type", "--kv-type"},
    Synonym{"--draft-model", "--draft"},
    Synonym{"--out", "--output"},
    Synonym{"--outfile", "--output"},
    Synonym{"--save-session", "--session"},
    Synonym{"--save-all-logits", "--save-logits"},
    Synonym{"--kl-divergence", "--kl-base"},
    Synonym{"--model-name", "--name"},
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

std::string Letters(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of("-/"), text.size()));
  return std::string(text);
}

// How far a word may be from what was meant: a third of the letters of the shorter one, and a
// single letter where they begin differently. Two words of three letters or less differ in the
// order of their letters only (-cnv and -ctv are two options).
size_t DistanceMax(std::string_view word, std::string_view candidate) {
  std::string a = Letters(word);
  std::string b = Letters(candidate);
  const size_t shorter = std::min(a.size(), b.size());
  if (std::max(a.size(), b.size()) <= 3) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b ? 2 : 0;
  }
  if (shorter < 3) return 0;
  return a.front() == b.front() ? std::max<size_t>(1, shorter / 3) : 1;
}

}  // namespace

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
