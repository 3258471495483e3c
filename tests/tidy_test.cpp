// Reads the project's own sources and holds them to STYLE.md and to the include direction of
// ARCHITECTURE.md. After TigerBeetle's tidy.
//
// Sizes and counts are a ratchet: tests/tidy_exceptions.txt lists what is beyond the limits, with
// its number. A listed number may only be lowered; what shrinks must be lowered or struck off
// there. The order of rooms and folders is in tests/tidy_rules.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "quant/format.h"
#include "tests/shared_data.h"
#include "tests/source_text.h"
#include "tests/tidy_rules.h"

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
  bool has_line_comments() const { return is_cpp() || path.ends_with(".cu"); }
};

// Everything that people write here: C++, build files, scripts and documents, but no test data.
std::vector<SourceFile> ReadSources() {
  namespace fs = std::filesystem;
  static const std::set<std::string> kWritten = {".cpp",   ".h",  ".inl", ".cu", ".in",
                                                 ".cmake", ".md", ".py",  ".sh", ".bash"};
  std::vector<SourceFile> files;
  const fs::path root = SourcePath("");
  const auto add = [&](const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::stringstream text;
    text << stream.rdbuf();
    files.push_back({fs::relative(path, root).string(), text.str()});
  };
  for (const char* folder :
       {".", ".ci", "base", "quant", "formats", "cpu", "cuda", "engine", "include", "tools",
        "examples", "tests", "bench", "cmake", "docs", "findings"}) {
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

bool StartsWithAny(std::string_view path, const std::vector<std::string_view>& beginnings) {
  return std::ranges::any_of(beginnings,
                             [path](std::string_view b) { return path.starts_with(b); });
}

// The number of a path's line in kEngineOrder.
size_t EngineLine(std::string_view path) {
  size_t best = kEngineOrder.size();
  for (size_t i = 0; i < kEngineOrder.size(); ++i) {
    if (!path.starts_with(kEngineOrder[i])) continue;
    if (best == kEngineOrder.size() || kEngineOrder[i].size() > kEngineOrder[best].size()) best = i;
  }
  return best;
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Whether the order of folders inside a room lets one file include the other.
bool MayInclude(const std::string& path, const std::string& included) {
  if (path.starts_with("engine/") && included.starts_with("engine/")) {
    return EngineLine(included) <= EngineLine(path);
  }
  const std::string folder = FolderOf(path);
  const std::string other = FolderOf(included);
  if (folder == other || !folder.starts_with("cpu/") || !other.starts_with("cpu/")) return true;
  const auto rule = kCpuFolders.find(folder);
  return rule != kCpuFolders.end() && rule->second.contains(other);
}

// Families that the engine knows, by the names of their files.
const std::set<std::string>& Families() {
  static const std::set<std::string> families = [] {
    std::set<std::string> names;
    for (const SourceFile& file : Sources()) {
      if (!file.path.starts_with(kFolderOfFamilies)) continue;
      names.insert(std::filesystem::path(file.path).stem().string());
    }
    return names;
  }();
  return families;
}

// Counts that should be zero in the files of the engine and the programs.
void MeasureCounts(const SourceFile& file, Sizes& sizes) {
  const std::string room = RoomOf(file.path);
  for (const std::string& include : QuotedIncludes(file.text)) {
    if (!MayInclude(file.path, include)) ++sizes["order " + file.path + " " + include];
  }
  const bool is_header = file.path.ends_with(".h");
  // Headers for C, which include each other, have guards.
  const bool once = file.text.find("#pragma once") != std::string::npos ||
                    file.text.find("_H_INCLUDED\n#define KVANT_") != std::string::npos;
  if (is_header && !once) ++sizes["fragments " + room];
  if (room == "tests" || room == "bench" || room == "examples") return;
  if (is_header) {
    const int count = static_cast<int>(BoolParameters(file.text).size());
    if (count > 0) sizes["bools " + file.path] = count;
  }
  for (const std::string& literal : StringLiterals(file.text)) {
    const bool family = !file.path.starts_with(kFolderOfFamilies) &&
                        !StartsWithAny(file.path, kFilesOfTokenizers) &&
                        Families().contains(literal);
    const quant::FormatTraits* format = quant::FindFormat(std::string_view(literal));
    const bool names_format = format != nullptr && format->name == literal && format->quantized() &&
                              !StartsWithAny(file.path, kNamesOfFormats);
    if (family || names_format) ++sizes["names " + file.path];
  }
}

// All sizes above their limits.
Sizes MeasureExcess() {
  Sizes sizes;
  for (const SourceFile& file : Sources()) {
    if (file.has_line_comments()) {
      const size_t count = CommentsWithoutSubject(file.text).size();
      if (count > 0) sizes["comments " + RoomOf(file.path)] += static_cast<int>(count);
    }
    if (!file.is_cpp()) continue;
    MeasureCounts(file, sizes);
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

// How a size or count is brought down.
std::string Advice(std::string_view what) {
  if (what.starts_with("comments ")) {
    return "write a comment as subject, verb, object, and name the thing again: no line begins "
           "with Of, The same, Likewise, Those or What. These lines are found by git grep -nE "
           "'^ *// *(Of|The same|Likewise|Those|What)\\b' " +
           std::string(what.substr(what.find(' ') + 1));
  }
  return "at most " + std::to_string(kFunctionLinesMax) + " lines a function, " +
         std::to_string(kFileLinesMax) + " lines a file, no line of more than " +
         std::to_string(kColumnsMax) +
         " columns, no include against the order of folders, no bool as a positional parameter of "
         "a header, no name of a family or format outside its list, no header that does not stand "
         "alone";
}

TEST(Tidy, SizesOnlyShrink) {
  const Sizes listed = ReadExceptions();
  const Sizes measured = MeasureExcess();
  for (const auto& [what, size] : measured) {
    const auto entry = listed.find(what);
    if (entry == listed.end()) {
      ADD_FAILURE() << what << " " << size << " is over the limit: " << Advice(what);
    } else if (size > entry->second) {
      ADD_FAILURE() << what << " has grown from " << entry->second << " to " << size << ": "
                    << Advice(what);
    } else if (size < entry->second) {
      ADD_FAILURE() << what << " has shrunk: lower it to " << size << " in tidy_exceptions.txt";
    }
  }
  for (const auto& [what, size] : listed) {
    EXPECT_TRUE(measured.contains(what)) << what << " is within the limits: strike it off the list";
  }
}

TEST(Tidy, IncludesPointDownwards) {
  for (const SourceFile& file : Sources()) {
    const auto rule = kRooms.find(RoomOf(file.path));
    if (!file.is_cpp() || rule == kRooms.end()) continue;
    for (const std::string& include : QuotedIncludes(file.text)) {
      EXPECT_TRUE(rule->second.contains(RoomOf(include)))
          << file.path << " includes \"" << include << "\"; " << rule->first
          << "/ does not know that room";
      if (RoomOf(include) != "kvant" || rule->second.contains("engine")) continue;
      EXPECT_TRUE(rule->first == "include" || kBasicHeaders.contains(include))
          << file.path << " includes \"" << include << "\", which speaks of models";
    }
  }
}

// Public headers are what an installed library shows: they know each other and nothing else.
TEST(Tidy, PublicHeadersIncludePublicHeadersOnly) {
  for (const SourceFile& file : Sources()) {
    if (RoomOf(file.path) != "include") continue;
    for (const std::string& include : QuotedIncludes(file.text)) {
      EXPECT_TRUE(std::filesystem::is_regular_file(SourcePath("include/" + include)))
          << file.path << " includes \"" << include << "\", which is not in include/";
    }
  }
}

TEST(Tidy, FoldersOfTheEngineAndTheKernelsHaveALine) {
  for (const SourceFile& file : Sources()) {
    if (!file.is_cpp()) continue;
    const std::string folder = FolderOf(file.path);
    if (file.path.starts_with("engine/") && folder != "engine") {
      EXPECT_NE(kEngineOrder[EngineLine(file.path)], "engine/")
          << folder << " has no line in kEngineOrder of tests/tidy_rules.h";
    }
    if (folder.starts_with("cpu/")) {
      EXPECT_TRUE(kCpuFolders.contains(folder))
          << folder << " has no line in kCpuFolders of tests/tidy_rules.h";
    }
  }
}

// A comment that cites a document names one that is here. Neither comments nor names of tests cite
// numbers of a list that is elsewhere.
TEST(Tidy, CitedDocumentsExist) {
  std::set<std::string> documents;
  for (const SourceFile& file : Sources()) {
    documents.insert(std::filesystem::path(file.path).filename().string());
  }
  // In two halves so that this file passes.
  const std::regex number(
      "\\b(K"
      "V|B)-[0-9]+[a-z]*\\b|\\b(R"
      "s|E"
      "d|K"
      "v|W"
      "h)[0-9]{2}\\b");
  const std::regex test("\\b(?:TYPED_)?TEST(?:_F|_P)?\\(\\w+,\\s*(\\w+)\\)");
  const std::regex numbered("([A-Z][a-z][0-9]{2}|B[0-9]+)[A-Z].*");
  const std::regex document("[\\w-]+\\.md\\b");
  for (const SourceFile& file : Sources()) {
    if (!file.is_cpp()) continue;
    for (std::sregex_iterator it(file.text.begin(), file.text.end(), test), end; it != end; ++it) {
      EXPECT_FALSE(std::regex_match(it->str(1), numbered))
          << file.path << ": the test " << it->str(1) << " cites a number";
    }
    for (const std::string& comment : LineComments(file.text)) {
      EXPECT_FALSE(std::regex_search(comment, number)) << file.path << ": " << comment;
      for (std::sregex_iterator it(comment.begin(), comment.end(), document), end; it != end;
           ++it) {
        EXPECT_TRUE(documents.contains(it->str()) ||
                    std::filesystem::exists(SourcePath("models/shakespeare/" + it->str())))
            << file.path << " cites " << it->str() << ", which is not in the project";
      }
    }
  }
}

TEST(Tidy, IncludesNameFilesFromTheRoot) {
  for (const SourceFile& file : Sources()) {
    if (!file.is_cpp() || RoomOf(file.path) == "include") continue;
    for (const std::string& include : QuotedIncludes(file.text)) {
      if (std::filesystem::is_regular_file(SourcePath("include/" + include))) continue;
      EXPECT_TRUE(std::filesystem::is_regular_file(SourcePath(include)))
          << file.path << " includes \"" << include << "\", which is not a path from the root";
    }
  }
}

// The header of the same name, in the same folder or among the public ones of what engine/
// implements; "" if there is none.
std::string OwnHeader(const SourceFile& file) {
  if (!file.path.ends_with(".cpp")) return "";
  const std::string header = file.path.substr(0, file.path.size() - 4) + ".h";
  if (std::filesystem::exists(SourcePath(header))) return header;
  const std::string open = "kvant/" + std::filesystem::path(header).filename().string();
  const bool is_public = std::filesystem::exists(SourcePath("include/" + open));
  return RoomOf(file.path) == "engine" && is_public ? open : "";
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

// The formatter breaks a section line that is too long after its name.
TEST(Tidy, SectionLinesAreNotBroken) {
  const std::regex dashes(" *// -+");
  for (const SourceFile& file : Sources()) {
    if (!file.is_cpp()) continue;
    int number = 0;
    for (const std::string_view line : SplitLines(file.text)) {
      ++number;
      EXPECT_FALSE(std::regex_match(line.begin(), line.end(), dashes))
          << file.path << ":" << number << ": dashes without the name of a section";
    }
  }
}

TEST(Tidy, FileNames) {
  const std::regex vague("(^|[/_])(utils?|helpers?|fast|misc|v2)([_./]|$)");
  for (const SourceFile& file : Sources()) {
    EXPECT_FALSE(std::regex_search(file.path, vague)) << file.path << ": a name that says nothing";
  }
}

TEST(TidyScanner, FindsLiteralsCommentsAndBools) {
  const std::string text = R"text(
void Add(const Row& row, bool add, int n);  // says "no" to x.md
struct Options { bool add = false; };
void Say(std::string_view = "a \" b", const bool loud = true);
template <class T, bool kFast> void Run(std::function<bool(int)> f, char c = '"');
bool Flag(std::string key, bool otherwise);
void Set(std::string key, bool value);
)text";
  EXPECT_EQ(BoolParameters(text), (std::vector<std::string>{"bool add", "bool loud"}));
  EXPECT_EQ(StringLiterals(text), (std::vector<std::string>{"a \\\" b"}));
  EXPECT_EQ(LineComments(text), (std::vector<std::string>{"// says \"no\" to x.md"}));
  EXPECT_TRUE(MayInclude("engine/arch/read_spec.cpp", "engine/graph/plan.h"));
  EXPECT_FALSE(MayInclude("engine/graph/plan.cpp", "engine/arch/spec.h"));
  EXPECT_FALSE(MayInclude("engine/kv/kv_cache.h", "engine/run/executor.h"));
  EXPECT_TRUE(MayInclude("cpu/amx/matmul.cpp", "cpu/avx512vnni/codec.h"));
  EXPECT_FALSE(MayInclude("cpu/avx2/matmul.cpp", "cpu/avx512vnni/codec.h"));
}

TEST(TidyScanner, FindsCommentsWithoutSubject) {
  const std::string text =
      "// Of the pass, one row.\n"
      "//Likewise. Of these, one.\n"
      "  // The pass has\n"
      "  // What a row begins with, and The same.\n"
      "int x;  // Those after code are short remarks\n"
      "// Offsets, Whatever and The samples are other words, and so is what.\n"
      "/* x */  // The same behind another comment\n"
      "const char* text = R\"(\n"
      "// What a literal says is no comment.\n"
      ")\";\n"
      "// The same\n";
  EXPECT_EQ(CommentsWithoutSubject(text),
            (std::vector<std::string>{"// Of the pass, one row.", "//Likewise. Of these, one.",
                                      "// What a row begins with, and The same.", "// The same"}));
  EXPECT_TRUE(CommentsWithoutSubject("").empty());
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
template <class T>
void Run(T x) {
}
template <class A, template <class, class> class B = Box, int kSize = sizeof(struct Row)>
[[gnu::noinline]] void Nested(A x, const B<A, int>& y) {
  x.template Take<1>(y);
}
template <class T>
class Held {
  template <class U>
  static void Take(U u) {
  }
};
)text";
  std::vector<std::string> found;
  for (const FunctionSize& function : FindFunctions(text)) {
    found.push_back(function.name + ":" + std::to_string(function.line) + "+" +
                    std::to_string(function.lines));
  }
  const std::vector<std::string> expected = {
      "Row:6+3",  "Box<T>::Get:13+4", "operator==:17+1", "Suite.Name:23+2",
      "Run:26+2", "Nested:29+3",      "Take:35+2"};
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace kvant::test
