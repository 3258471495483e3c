// Puts a plan together: finds a file's tensors by name and checks their shapes, adds values in the
// forms that their readers need, and adds the nodes that every model has.
//
// The plan points into the file's mapping and into the kernel table, which must outlive it.
// Errors (kCorrupt) name the file and the tensor, the shape expected and the shape found.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/activations.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/matmul.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/matmul/expert_nodes.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

class MatMulObserver;

class PlanBuilder {
 public:
  // An observer is asked about every matrix product and must outlive the plan; null means none.
  // Operands get the additions of `adapters`, which must outlive the plan; null: there are none.
  PlanBuilder(const formats::GgufFile& file, const cpu::KernelTable& kernels,
              const cpu::FloatGemm& float_gemm, MatMulObserver* observer,
              std::string_view name = kDecodePlan, AdapterSet* adapters = nullptr);

  const cpu::KernelTable& kernels() const { return kernels_; }
  const cpu::FloatGemm& float_gemm() const { return float_gemm_; }
  Plan& plan() { return *plan_; }
  const std::string& path() const { return file_.path(); }  // of the file

  // The tensor of this name; null if the file has none.
  const formats::GgufTensor* Find(const std::string& name) const;

  // A matrix of `rows` rows with `cols` columns each, or one for each of `experts` experts.
  Result<const formats::GgufTensor*> Matrix(const std::string& name, int64_t cols, int64_t rows,
                                            int64_t experts = 1) const;

  // A small vector, decoded; OptionalVector is empty where the file has no such tensor.
  Result<WeightVector> Vector(const std::string& name, int64_t size) const;
  Result<WeightVector> OptionalVector(const std::string& name, int64_t size) const;
  // `count` second scales of matrices, checked; empty where the file has none.
  Result<WeightVector> Scales(const std::string& name, int64_t count) const;
  // Several vectors of `size` values, one after the other.
  Result<WeightVector> Vectors(const std::string& name, int64_t size, int64_t count) const;
  // Vectors of [size x count] or of [size x 1 x count].
  Result<WeightVector> VectorsApart(const std::string& name, int64_t size, int64_t count) const;

  // Appends the matrix `name`.weight, with `name`.bias and `name`.scale if there are any, to the
  // operands of a product, and what adapters add to it. Its rows become the next columns of the
  // result.
  Status AddOperand(std::vector<MatMulOperand>& operands, const std::string& name, int64_t cols,
                    int64_t rows) const;

  // Attaches what adapters add to the matrix that a model calls `tensor`.
  Status AttachAdapters(MatMulOperand& operand, const std::string& tensor) const;

  // The matrix `name`.weight of every expert, with their biases and scales if there are any, in the
  // same way.
  Status AddExpertOperand(std::vector<ExpertOperand>& operands, const std::string& name,
                          int64_t cols, int64_t rows, int64_t experts) const;

  // The transposes of a matrix for each head, which are `rows` adjacent rows of the tensor,
  // `stride` rows apart from row `first` on: [rows x cols of the tensor x heads]. Values of 16 and
  // 32 bits keep their format. Values of blocks, which lie the other way round afterwards, become
  // F16, whose roundings of 2^-11 are small beside the roundings of any block format; or F32, where
  // a value is too large for F16. kOutOfMemory.
  Result<const formats::GgufTensor*> Transposed(const std::string& name,
                                                const formats::GgufTensor& tensor, int64_t first,
                                                int64_t stride, int64_t rows, int64_t heads);

  // Records in which each head of a row meets the matrices of `reader`, `heads` for each row;
  // kNoValue where they multiply floats.
  ValueId NewHeadRecords(const std::string& name, int64_t heads, const formats::GgufTensor& reader);

  // A value of floats.
  ValueId NewFloats(std::string name, RowSpace rows, int64_t cols);

  // A value in the forms that the matrices read, and in the forms that the experts read whose input
  // it will be part of. Its floats are those of `floats` where that is a value.
  Activations NewActivations(const std::string& name, RowSpace rows, int64_t cols,
                             const std::vector<MatMulOperand>& readers,
                             const std::vector<ExpertOperand>& experts = {},
                             ValueId floats = kNoValue);

  // A routed value in the forms that `readers` read.
  Activations NewRoutedActivations(const std::string& name, const RoutedRows& rows, int64_t cols,
                                   const std::vector<ExpertOperand>& readers);
  ValueId NewRoutedFloats(std::string name, const RoutedRows& rows, int64_t cols);

  // Appends a node that works on these rows to their stage.
  void Add(RowSpace rows, std::unique_ptr<Node> node);

  // Appends out = (or +=) the products of all operands with `in`, and before it what shows `in` to
  // the observer.
  void AddMatMul(RowSpace rows, const std::string& name, std::vector<MatMulOperand> operands,
                 const Activations& in, ValueId out, cpu::Store store);
  // Appends a product with an activation behind it (MakeActivatedMatMul) over rows of kPass, and
  // before it what shows `in` to the observer.
  void AddActivatedMatMul(const std::string& name, std::vector<MatMulOperand> operand,
                          const Activations& in, cpu::Activation activation, ValueId product,
                          const Activations& out);
  // Appends a gated unit (MakeGatedUnit) over rows of kPass.
  void AddGatedUnit(const std::string& name, std::vector<MatMulOperand> operands,
                    const Activations& in, const cpu::GateActivation& activation, ValueId gate_up,
                    const Activations& out);
  void AddObserver(RowSpace rows, const std::string& name, const Activations& in);
  void AddExpertObserver(const std::string& name, const RoutedRows& rows, const Activations& in);

  // Whether matrices of heads may be watched, and what shows their input, `cols` columns of every
  // head, to the observer: each head's to one of the matrices of `weight`, or all to one matrix.
  bool has_observer() const { return observer_ != nullptr; }
  void AddHeadObserver(const formats::GgufTensor& weight, const HeadColumns& in, int64_t heads);

  // The finished plan; the builder is done.
  std::unique_ptr<Plan> Finish();

 private:
  cpu::ActivationKind KindFor(const formats::GgufTensor& matrix) const;
  void AddLowRankInput(RowSpace rows, const std::string& name, std::vector<MatMulOperand>& operands,
                       const Activations& in);

  const formats::GgufFile& file_;
  const cpu::KernelTable& kernels_;
  const cpu::FloatGemm& float_gemm_;
  MatMulObserver* observer_;
  AdapterSet* adapters_;
  std::unique_ptr<Plan> plan_;
};

}  // namespace kvant::graph
