// The sums of a kernel live in registers: one that a compiler keeps on the stack costs more than
// the products it sums. Disassembles this very program and looks at the operands on the stack of
// vector instructions: the panels' micro-kernels, written in assembler, may have none; in the inner
// loops of other kernels none may be carried from one iteration to the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/this_build.h"

namespace kvant::cpu {
namespace {

// The output of a command; "" where it fails.
std::string OutputOf(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, n);
  return pclose(pipe) == 0 ? text : "";
}

struct Instruction {
  uint64_t address;
  std::string text;
};

struct Function {
  std::string name;
  uint64_t begin;
  uint64_t end;
  std::vector<Instruction> instructions;
};

std::vector<Instruction> ParseDisassembly(const std::string& text) {
  std::vector<Instruction> instructions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    char* end = nullptr;
    const uint64_t address = std::strtoull(line.c_str(), &end, 16);
    if (std::string(end).starts_with(":\t")) instructions.push_back({address, end + 2});
  }
  return instructions;
}

// The functions of this program whose mangled name contains the name of a namespace and of a
// function, disassembled.
std::vector<Function> FunctionsNamed(const std::string& space, const std::string& function) {
  const std::string space_part = fmt::format("{}{}", space.size(), space);
  const std::string function_part = fmt::format("{}{}", function.size(), function);
  std::vector<Function> found;
  std::istringstream symbols(OutputOf("nm --print-size --defined-only /proc/$PPID/exe"));
  for (std::string line; std::getline(symbols, line);) {
    std::istringstream words(line);
    uint64_t address = 0;
    uint64_t size = 0;
    char kind = 0;
    std::string name;
    words >> std::hex >> address >> size >> kind >> name;
    if (!words || (kind != 't' && kind != 'T' && kind != 'W')) continue;
    if (name.find(space_part) == std::string::npos) continue;
    const size_t at = name.find(function_part);
    if (at == std::string::npos) continue;
    const std::string rest = name.substr(at + function_part.size());
    if (!rest.starts_with('I') && !rest.starts_with('E')) continue;  // template or plain
    found.push_back({name, address, address + size, {}});
  }
  if (found.empty()) return found;
  uint64_t begin = found.front().begin;
  uint64_t end = found.front().end;
  for (const Function& one : found) {
    begin = std::min(begin, one.begin);
    end = std::max(end, one.end);
  }
  const std::vector<Instruction> all = ParseDisassembly(
      OutputOf(fmt::format("objdump -d --no-show-raw-insn --start-address={} --stop-address={} "
                           "/proc/$PPID/exe",
                           begin, end)));
  for (Function& one : found) {
    for (const Instruction& instruction : all) {
      if (one.begin <= instruction.address && instruction.address < one.end) {
        one.instructions.push_back(instruction);
      }
    }
  }
  return found;
}

// An operand on the stack of a vector instruction; not the single numbers that broadcasts read.
struct StackAccess {
  std::string place;  // "0x40(%rsp)"
  bool stored;
};

// Without a frame, rbp is a register like any other.
bool HasFrame(std::span<const Instruction> instructions) {
  static const std::regex kFrame(R"(^mov\s+%rsp,%rbp)");
  for (const Instruction& instruction : instructions) {
    if (std::regex_search(instruction.text, kFrame)) return true;
  }
  return false;
}

std::optional<StackAccess> StackAccessOf(const Instruction& instruction, bool frame) {
  static const std::regex kPlaceWithFrame(R"(-?[0-9a-fx]*\(%r[sb]p[^)]*\))");
  static const std::regex kPlaceWithoutFrame(R"(-?[0-9a-fx]*\(%rsp[^)]*\))");
  const std::regex& place = frame ? kPlaceWithFrame : kPlaceWithoutFrame;
  std::smatch match;
  if (instruction.text.find("mm") == std::string::npos) return std::nullopt;
  if (instruction.text.find("broadcast") != std::string::npos) return std::nullopt;
  if (!std::regex_search(instruction.text, match, place)) return std::nullopt;
  static const std::regex kVector("%[xyz]mm[0-9]");
  if (!std::regex_search(instruction.text, kVector)) return std::nullopt;
  return StackAccess{match.str(), match.suffix().str().find('%') == std::string::npos};
}

std::vector<std::string> StackAccesses(const std::vector<Instruction>& instructions) {
  const bool frame = HasFrame(instructions);
  std::vector<std::string> found;
  for (const Instruction& instruction : instructions) {
    if (StackAccessOf(instruction, frame)) found.push_back(instruction.text);
  }
  return found;
}

// Loops without a loop inside, from the target of a jump backwards to the jump.
std::vector<std::span<const Instruction>> InnerLoops(std::span<const Instruction> instructions) {
  static const std::regex kJump(R"(^j\w+\s+([0-9a-f]+))");
  std::vector<std::pair<size_t, size_t>> loops;
  for (size_t end = 0; end < instructions.size(); ++end) {
    std::smatch match;
    if (!std::regex_search(instructions[end].text, match, kJump)) continue;
    const uint64_t target = std::stoull(match[1].str(), nullptr, 16);
    for (size_t begin = 0; begin <= end; ++begin) {
      if (instructions[begin].address == target) loops.emplace_back(begin, end);
    }
  }
  std::vector<std::span<const Instruction>> inner;
  for (const auto& loop : loops) {
    bool innermost = true;
    for (const auto& other : loops) {
      if (other != loop && loop.first <= other.first && other.second <= loop.second) {
        innermost = false;
      }
    }
    if (innermost) inner.push_back(instructions.subspan(loop.first, loop.second - loop.first + 1));
  }
  return inner;
}

// Places on the stack that an inner loop reads before it writes them: sums, for what an iteration
// only puts aside is written first, and arguments and constants are not written.
std::vector<std::string> SumsOnTheStack(const std::vector<Instruction>& instructions) {
  const bool frame = HasFrame(instructions);
  std::vector<std::string> sums;
  for (const std::span<const Instruction> loop : InnerLoops(instructions)) {
    std::map<std::string, bool> read_first;
    for (const Instruction& instruction : loop) {
      const std::optional<StackAccess> access = StackAccessOf(instruction, frame);
      if (!access) continue;
      const auto [place, added] = read_first.try_emplace(access->place, !access->stored);
      if (!added && place->second && access->stored) sums.push_back(instruction.text);
    }
  }
  return sums;
}

constexpr char kExample[] =
    "   f:\tmov    %rsp,%rbp\n"
    "  10:\tvmovaps %zmm3,0x40(%rsp)\n"
    "  11:\tvmovaps 0x80(%rsp),%zmm4\n"
    "  12:\tvaddps 0x40(%rsp),%zmm1,%zmm3\n"
    "  13:\tvmovups %ymm3,-0x20(%rbp,%rax,1)\n"
    "  14:\tvmovups -0x20(%rbp,%rax,1),%ymm1\n"
    "  15:\tvmovaps %zmm3,0x40(%rsp)\n"
    "  16:\tvmovaps %zmm3,0x40(%rax)\n"
    "  17:\tmov %rbx,0x8(%rsp)\n"
    "  18:\tjne    11 <f+0x1>\n"
    "  19:\tjmp    10 <f>\n";

TEST(RegisterSpill, AccessesToTheStackAreRecognized) {
  EXPECT_EQ(StackAccesses(ParseDisassembly(kExample)).size(), 6u);
}

TEST(RegisterSpill, OnlyWhatALoopCarriesIsASum) {
  EXPECT_THAT(SumsOnTheStack(ParseDisassembly(kExample)),
              testing::ElementsAre("vmovaps %zmm3,0x40(%rsp)"));
}

#if defined(__clang__)
constexpr bool kIsClang = true;
#else
constexpr bool kIsClang = false;
#endif

bool CannotLook() {
#if !defined(__x86_64__) || !defined(__OPTIMIZE__)
  return true;
#else
  const bool tools = !OutputOf("objdump --version").empty() && !OutputOf("nm --version").empty();
  return kvant::test::kSanitized || !tools;
#endif
}

TEST(RegisterSpill, NoneInTheMicroKernels) {
  if (CannotLook()) GTEST_SKIP() << "needs an optimised build for x86-64, objdump and nm";
  struct MicroKernel {
    const char* isa;
    const char* name;
    size_t count;      // of functions, at least
    const char* term;  // an instruction that computes products
    int terms;         // in each of them, at least
  };
  for (const MicroKernel& expected :
       {MicroKernel{"avx512vnni", "MultiplyTile", 4, "vpdpbusd", 96},
        {"avxvnni", "MultiplyTile", 4, "vpdpbusd", 96},
        {"avx2", "MultiplyTile", 4, "vpmadd", 96},
        {"avx512vnni", "MultiplyFloatPanel", 1, "vfmadd231ps", 1},
        {"avx2", "MultiplyFloatPanel", 1, "vfmadd231ps", 1},
        {"avx512vnni", "MultiplyFloatTokens", 2, "vfmadd231ps", 1},
        {"avx2", "MultiplyFloatTokens", 2, "vfmadd231ps", 1},
        {"avx512vnni", "MultiplyFloatStreams", 3, "vfmadd231ps", 1}}) {
    const std::vector<Function> kernels = FunctionsNamed(expected.isa, expected.name);
    EXPECT_GE(kernels.size(), expected.count) << expected.isa << " " << expected.name;
    for (const Function& kernel : kernels) {
      int terms = 0;
      for (const Instruction& instruction : kernel.instructions) {
        terms += instruction.text.find(expected.term) != std::string::npos;
      }
      EXPECT_GE(terms, expected.terms) << kernel.name;
      for (const std::string& text : StackAccesses(kernel.instructions)) {
        ADD_FAILURE() << kernel.name << ": " << text;
      }
    }
  }
}

// Looks at the functions that the compiler has not inlined. Streams of one token are left out:
// their inner loop goes over rows, with the sums in memory. Clang puts one of the 32 registers that
// a stream of several tokens needs on the stack for some formats.
TEST(RegisterSpill, NoSumsOnTheStackInInnerLoops) {
  if (CannotLook()) GTEST_SKIP() << "needs an optimised build for x86-64, objdump and nm";
  size_t loops = 0;
  for (const char* name : {"MultiplyRows", "MultiplyStreams", "ScoreKeyTiles", "ScoreQ8KeyTiles",
                           "AddValueVectors", "AddQ8Vectors"}) {
    for (const Function& kernel : FunctionsNamed("avx512vnni", name)) {
      const bool streams = kernel.name.find("MultiplyStreams") != std::string::npos;
      if (streams && (kIsClang || kernel.name.find("ELi1EE") != std::string::npos)) continue;
      loops += InnerLoops(kernel.instructions).size();
      for (const std::string& text : SumsOnTheStack(kernel.instructions)) {
        ADD_FAILURE() << kernel.name << ": " << text;
      }
    }
  }
  EXPECT_GE(loops, 5u);
}

// With 16 registers, too: blocks of attention are sized for them.
TEST(RegisterSpill, NoSumsOfAttentionOnTheStackWithAvx2) {
  if (CannotLook()) GTEST_SKIP() << "needs an optimised build for x86-64, objdump and nm";
  if (kIsClang) GTEST_SKIP() << "looks at what GCC makes of the blocks";
  size_t loops = 0;
  for (const char* name : {"ScoreKeyTiles", "ScoreQ8", "AddValueVectors", "AddQ8Vectors"}) {
    for (const Function& kernel : FunctionsNamed("avx2", name)) {
      loops += InnerLoops(kernel.instructions).size();
      for (const std::string& text : SumsOnTheStack(kernel.instructions)) {
        ADD_FAILURE() << kernel.name << ": " << text;
      }
    }
  }
  EXPECT_GE(loops, 5u);
}

}  // namespace
}  // namespace kvant::cpu
