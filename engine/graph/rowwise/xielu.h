// The activation xIELU, which has learned numbers (arXiv 2411.13010).
#pragma once

#include <memory>
#include <string>

#include "engine/graph/activations.h"
#include "engine/graph/plan.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// f(x) = positive * x^2 + beta * x for positive x, else negative * (exp(x) - 1 - x) + beta * x.
struct Xielu {
  float positive = 0;
  float negative = 0;
  float beta = 0;
};

// out = f(in), [cols], as floats and quantized as far as `out` asks. Afterwards `in` is undefined.
std::unique_ptr<Node> MakeXielu(const cpu::KernelTable& kernels, std::string name,
                                const Xielu& xielu, ValueId in, const Activations& out);

}  // namespace kvant::graph
