// Reads the project's own sources and holds them to STYLE.md and to the include direction of
// ARCHITECTURE.md. After TigerBeetle's tidy.
//
// Sizes are a ratchet: tests/tidy_exceptions.txt lists what is larger than the limits, with its
// size. A listed size may only be lowered; what shrinks must be lowered or struck off in the list.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/shared_data.h"
#include "tests/source_text.h"

namespace kvant::test {
namespace {

constexpr int kFunctionLinesMax = 70;
constexpr int kFileLinesMax = 500;
constexpr int kColumnsMax = 100;

struct SourceFile {
  std::string path;  // relative to the source tree
  std::string text;
  bool is_cpp() const {
    return path.ends_with(".cpp") || path.ends_with(".h") || path.ends_with(".inl");
  }
};

// Everything that people write here: C++, build files, scripts and documents, but no test data.
std::vector<SourceFile> ReadSources() {
  namespace fs = std::filesystem;
  static const std::set<std::string> kWritten = {".cpp", ".h",  ".inl", ".in",  ".cmake",
                                                 ".md",  ".py", ".sh",  ".bash"};
  std::vector<SourceFile> files;
  const fs::path root = SourcePath("");
  const auto add = [&](const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::stringstream text;
    text << stream.rdbuf();
    files.push_back({fs::relative(path, root).string(), text.str()});
  };
  for (const char* folder : {".", ".ci", "base", "quant", "formats", "cpu", "cuda", "engine",
                             "tools", "tests", "bench", "cmake", "docs"}) {
    if (!fs::is_directory(root / folder)) continue;
    for (fs::recursive_directory_iterator it(root / folder), end; it != end; ++it) {
      if (it->is_directory() && std::string_view(folder).starts_with(".")) {
        it.disable_recursion_pending();
      }
      const std::string name = it->path().filename().string();
      const bool is_script = name == "dev" || name == "run" || name == "CMakeLists.txt";
      if (!it->is_regular_file()) continue;
      if (is_script || kWritten.contains(it->path().extension().string())) add(it->path());
    }
  }
  return files;
}

const std::vector<SourceFile>& Sources() {
  static const std::vector<SourceFile> files = ReadSources();
  return files;
}

std::string RoomOf(const std::string& path) { return path.substr(0, path.find('/')); }

// "function cpu/foo.cpp Run" -> lines, as measured or as listed.
using Sizes = std::map<std::string, int>;

Sizes ReadExceptions() {
  Sizes sizes;
  std::ifstream stream(SourcePath("tests/tidy_exceptions.txt"));
  for (std::string line; std::getline(stream, line);) {
    if (line.empty() || line.front() == '#') continue;
    const size_t blank = line.rfind(' ');
    sizes[line.substr(0, blank)] = std::stoi(line.substr(blank));
  }
  return sizes;
}

// Characters, not bytes, of a line of UTF-8.
int Columns(std::string_view line) {
  int columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return columns;
}

// All sizes above their limits.
Sizes MeasureExcess() {
  Sizes sizes;
  for (const SourceFile& file : Sources()) {
    if (!file.is_cpp()) continue;
    const auto lines = SplitLines(file.text);
    const int count = static_cast<int>(lines.size());
    if (count > kFileLinesMax) sizes["file " + file.path] = count;
    for (const std::string_view line : lines) {
      if (Columns(line) > kColumnsMax) ++sizes["columns " + file.path];
    }
    for (const FunctionSize& function : FindFunctions(file.text)) {
      if (function.lines <= kFunctionLinesMax) continue;
      int& size = sizes["function " + file.path + " " + function.name];
      size = std::max(size, function.lines);
    }
  }
  return sizes;
}

TEST(Tidy, SizesOnlyShrink) {
  const Sizes listed = ReadExceptions();
  const Sizes measured = MeasureExcess();
  for (const auto& [what, size] : measured) {
    const auto entry = listed.find(what);
    if (entry == listed.end()) {
      ADD_FAILURE() << what << " " << size << ": over the limit of " << kFunctionLinesMax
                    << " lines a function, " << kFileLinesMax
                    << " lines a file, no line of more than " << kColumnsMax << " columns";
    } else if (size > entry->second) {
      ADD_FAILURE() << what << " has grown from " << entry->second << " to " << size;
    } else if (size < entry->second) {
      ADD_FAILURE() << what << " has shrunk: lower it to " << size << " in tidy_exceptions.txt";
    }
  }
  for (const auto& [what, size] : listed) {
    EXPECT_TRUE(measured.contains(what)) << what << " is within the limits: strike it off the list";
  }
}

TEST(Tidy, IncludesPointDownwards) {
  const std::map<std::string, std::set<std::string>> may_include = {
      {"base", {"base"}},
      {"quant", {"base", "quant"}},
      {"formats", {"base", "quant", "formats"}},
      {"cpu", {"base", "quant", "cpu"}},
      {"cuda", {"base", "quant", "cuda"}},
      {"engine", {"base", "quant", "formats", "cpu", "cuda", "engine"}},
      {"tools", {"base", "quant", "formats", "cpu", "cuda", "engine", "tools"}},
  };
  for (const SourceFile& file : Sources()) {
    const auto rule = may_include.find(RoomOf(file.path));
    if (!file.is_cpp() || rule == may_include.end()) continue;
    for (const std::string& include : QuotedIncludes(file.text)) {
      EXPECT_TRUE(rule->second.contains(RoomOf(include)))
          << file.path << " includes \"" << include << "\"; " << rule->first
          << "/ does not know that room";
    }
  }
}

TEST(Tidy, IncludesNameFilesFromTheRoot) {
  for (const SourceFile& file : Sources()) {
    if (!file.is_cpp()) continue;
    for (const std::string& include : QuotedIncludes(file.text)) {
      EXPECT_TRUE(std::filesystem::is_regular_file(SourcePath(include)))
          << file.path << " includes \"" << include << "\", which is not a path from the root";
    }
  }
}

// The header of the same name, or "" if there is none.
std::string OwnHeader(const SourceFile& file) {
  if (!file.path.ends_with(".cpp")) return "";
  const std::string header = file.path.substr(0, file.path.size() - 4) + ".h";
  return std::filesystem::exists(SourcePath(header)) ? header : "";
}

// That the own header comes first proves that it needs nothing before it.
TEST(Tidy, SourcesIncludeTheirHeaderFirst) {
  for (const SourceFile& file : Sources()) {
    const std::string header = OwnHeader(file);
    if (header.empty()) continue;
    std::string first;
    for (const std::string_view line : SplitLines(file.text)) {
      if (first.empty() && line.starts_with("#include")) first = line;
    }
    EXPECT_EQ(first, "#include \"" + header + "\"") << file.path;
  }
}

TEST(Tidy, FilesOpenWithAComment) {
  for (const SourceFile& file : Sources()) {
    if (!file.is_cpp() || !OwnHeader(file).empty()) continue;  // the header says it
    EXPECT_TRUE(file.text.starts_with("// "))
        << file.path << " does not open with a comment on what it is and why";
  }
}

TEST(Tidy, WordsAndCharacters) {
  // Written in halves so that this file passes.
  const std::regex unfinished(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b|\\b([Ss]tu"
      "b|[Pp]lace"
      "holder|for no"
      "w)\\b");
  const std::regex of_one_machine(
      "/(ho"
      "me|wo"
      "rk|ro"
      "ot)/");
  for (const SourceFile& file : Sources()) {
    int number = 0;
    for (const std::string_view line : SplitLines(file.text)) {
      ++number;
      const std::string where = file.path + ":" + std::to_string(number);
      std::cmatch match;
      const char* end = line.data() + line.size();
      EXPECT_FALSE(std::regex_search(line.data(), end, match, unfinished))
          << where << ": '" << match.str() << "' marks unfinished work";
      EXPECT_FALSE(std::regex_search(line.data(), end, match, of_one_machine))
          << where << ": '" << match.str() << "' is a path of one machine";
      EXPECT_EQ(line.find('\t'), std::string_view::npos) << where << ": a tab";
      EXPECT_NE(line.ends_with(' ') ? ' ' : '.', ' ') << where << ": a blank at the end";
    }
  }
}

TEST(Tidy, FileNames) {
  const std::regex vague("(^|[/_])(utils?|helpers?|fast|misc|v2)([_./]|$)");
  for (const SourceFile& file : Sources()) {
    EXPECT_FALSE(std::regex_search(file.path, vague)) << file.path << ": a name that says nothing";
  }
}

TEST(TidyScanner, FindsFunctionsAndTheirLines) {
  const std::string text = R"text(
// A comment with { an open brace
#define BROKEN {
namespace a {
struct alignas(64) Row {
  Row(int x) : x_{x}, y_{x} {
    y_ = '{' + 1'000;
  }
  std::vector<int> values = {1, 2};
  int x_{}, y_{};
};
template <class T>
Result<T> Box<T>::Get(Options options = {}) const {
  const auto f = [&] { return "}"; };
  return f();
}
bool operator==(const Row& a, const Row& b) { return a.x_ == b.x_; }
constexpr int kTable[] = {
    1,
    2,
};
}  // namespace a
TEST(Suite, Name) {
}
)text";
  std::vector<std::string> found;
  for (const FunctionSize& function : FindFunctions(text)) {
    found.push_back(function.name + ":" + std::to_string(function.line) + "+" +
                    std::to_string(function.lines));
  }
  const std::vector<std::string> expected = {"Row:6+3", "Box<T>::Get:13+4", "operator==:17+1",
                                             "Suite.Name:23+2"};
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace kvant::test
