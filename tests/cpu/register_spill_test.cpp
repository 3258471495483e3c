// The sums of a matrix kernel live in registers: one that a compiler keeps on the stack costs more
// than the products it sums. Disassembles this very program and looks for vector registers that are
// stored to or loaded from the stack inside the micro-kernels.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace kvant::cpu {
namespace {

// What a command writes; "" where it fails.
std::string OutputOf(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, n);
  return pclose(pipe) == 0 ? text : "";
}

struct Function {
  std::string name;
  uint64_t begin;
  uint64_t end;
};

// The functions of this program whose mangled name contains `part`.
std::vector<Function> FunctionsNamed(const std::string& part) {
  std::vector<Function> found;
  std::istringstream lines(OutputOf("nm --print-size --defined-only /proc/$PPID/exe"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    uint64_t address = 0;
    uint64_t size = 0;
    char kind = 0;
    std::string name;
    words >> std::hex >> address >> size >> kind >> name;
    if (!words || (kind != 't' && kind != 'T' && kind != 'W')) continue;
    if (name.find(part) != std::string::npos) found.push_back({name, address, address + size});
  }
  return found;
}

std::string Disassembly(const Function& function) {
  return OutputOf(
      fmt::format("objdump -d --no-show-raw-insn --start-address={} --stop-address={} "
                  "/proc/$PPID/exe",
                  function.begin, function.end));
}

// Vector instructions with an operand on the stack.
std::vector<std::string> Spills(const std::string& disassembly) {
  static const std::regex kSpill(R"(%[xyz]mm\d+.*\(%r[sb]p|\(%r[sb]p.*%[xyz]mm\d+)");
  std::vector<std::string> spills;
  std::istringstream lines(disassembly);
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, kSpill)) spills.push_back(line);
  }
  return spills;
}

TEST(RegisterSpill, IsRecognized) {
  EXPECT_EQ(Spills("  1:\tvmovaps %zmm3,0x40(%rsp)\n  2:\tvmovups -0x20(%rbp,%rax,1),%ymm1\n"
                   "  3:\tvmovaps %zmm3,0x40(%rax)\n  4:\tmov %rbx,0x8(%rsp)\n")
                .size(),
            2u);
}

TEST(RegisterSpill, NoneInTheMicroKernels) {
#if !defined(__x86_64__) || !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || \
    defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "kernels of optimised builds for x86-64 are looked at";
#else
  if (OutputOf("objdump --version").empty() || OutputOf("nm --version").empty()) {
    GTEST_SKIP() << "objdump or nm is not installed";
  }
  struct MicroKernel {
    const char* name;
    size_t count;  // at least
    const char* instruction;
  };
  for (const MicroKernel& expected : {MicroKernel{"MultiplyTile", 4, "vpdpbusd"},
                                      {"MultiplyFloatPanelE", 2, "vfmadd231ps"},
                                      {"MultiplyFloatStreams", 6, "vfmadd231ps"}}) {
    const std::vector<Function> kernels = FunctionsNamed(expected.name);
    EXPECT_GE(kernels.size(), expected.count) << expected.name;
    for (const Function& kernel : kernels) {
      const std::string text = Disassembly(kernel);
      EXPECT_NE(text.find(expected.instruction), std::string::npos) << kernel.name;
      for (const std::string& spill : Spills(text)) ADD_FAILURE() << kernel.name << ": " << spill;
    }
  }
#endif
}

}  // namespace
}  // namespace kvant::cpu
