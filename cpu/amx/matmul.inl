// The matrix kernels of this folder over the blocks and formats of cpu/avx512vnni. Included inside
// a namespace and target region, after the tile instructions and kIsaName, the table's name.

// clang-format off
#include "cpu/avx512vnni/int8_blocks.inl"
#include "cpu/avx512vnni/prepare_blocks.inl"
#include "cpu/generic/row_reader.inl"
#include "cpu/generic/int8_kernels.inl"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/generic/panel_operands.inl"
#include "cpu/avx512vnni/panel_lanes.inl"
#include "cpu/amx/bf16_panel.inl"
#include "cpu/amx/panel_lines.inl"
#include "cpu/generic/matmul_panel.inl"
#include "cpu/avx512vnni/unpackers.inl"
#include "cpu/avx512vnni/float_elements.inl"
#include "cpu/amx/float_panel.inl"
// clang-format on

// The kernel of cpu/avx512vbmi for a format.
const MatMulKernel& WithoutTiles(const quant::FormatTraits& format) {
  return avx512vbmi::Kernels()->matmul[static_cast<size_t>(quant::FormatIndex(format))];
}

void RunWithoutTiles(const MatMulTask& task) { WithoutTiles(*task.format).run(task); }

template <class Unpacker>
void RunTiles(const MatMulTask& task) {
  if (task.count == TokenCount::kFew) return RunWithoutTiles(task);
  Tiles::Configure(ConfigOfPanels());
  RunPanels(task, PanelFormat::Of<Unpacker>(task));
  Tiles::Release();
}

constexpr MatMulEntry kSpecial[] = {
    {quant::F32::kType, RunWithoutTiles, RunFloatTiles<ElementF32>},
    {quant::F16::kType, RunWithoutTiles, RunFloatTiles<ElementF16>},
    {quant::Bf16::kType, RunWithoutTiles, RunFloatTiles<ElementBf16>},
    {quant::Q4_0::kType, RunTiles<UnpackQ4_0>},
    {quant::Q4_1::kType, RunTiles<UnpackQ4_1>},
    {quant::Q5_0::kType, RunTiles<UnpackQ5_0>},
    {quant::Q5_1::kType, RunTiles<UnpackQ5_1>},
    {quant::Q8_0::kType, RunTiles<UnpackQ8_0>},
    {quant::Q2_K::kType, RunTiles<UnpackQ2_K>},
    {quant::Q3_K::kType, RunTiles<UnpackQ3_K>},
    {quant::Q4_K::kType, RunTiles<UnpackQ4_K>},
    {quant::Q5_K::kType, RunTiles<UnpackQ5_K>},
    {quant::Q6_K::kType, RunTiles<UnpackQ6_K>},
    {quant::IQ4_NL::kType, RunTiles<UnpackIQ4_NL>},
    {quant::IQ4_XS::kType, RunTiles<UnpackIQ4_XS>},
    {quant::IQ1_S::kType, RunTiles<UnpackIQ1_S>},
    {quant::IQ1_M::kType, RunTiles<UnpackIQ1_M>},
    {quant::IQ2_XXS::kType, RunTiles<UnpackIQ2_XXS>},
    {quant::IQ2_XS::kType, RunTiles<UnpackIQ2_XS>},
    {quant::IQ2_S::kType, RunTiles<UnpackIQ2_S>},
    {quant::IQ3_XXS::kType, RunTiles<UnpackIQ3_XXS>},
    {quant::IQ3_S::kType, RunTiles<UnpackIQ3_S>},
    {quant::TQ1_0::kType, RunTiles<UnpackTQ1_0>},
    {quant::TQ2_0::kType, RunTiles<UnpackTQ2_0>},
    {quant::MXFP4::kType, RunTiles<UnpackMXFP4>},
    {quant::NVFP4::kType, RunTiles<UnpackNVFP4>},
    {quant::Q1_0::kType, RunTiles<UnpackQ1_0>},
    {quant::Q2_0::kType, RunTiles<UnpackQ2_0>},
    {quant::Q6_0::kType, RunTiles<UnpackQ6_0>},
    {quant::IQ2_K::kType, RunTiles<UnpackShifted<quant::IQ2_K>>},
    {quant::IQ3_K::kType, RunTiles<UnpackShifted<quant::IQ3_K>>},
    {quant::IQ4_K::kType, RunTiles<UnpackShifted<quant::IQ4_K>>},
    {quant::IQ5_K::kType, RunTiles<UnpackShifted<quant::IQ5_K>>},
    {quant::IQ6_K::kType, RunTiles<UnpackShifted<quant::IQ6_K>>},
    {quant::IQ2_KS::kType, RunTiles<UnpackShifted<quant::IQ2_KS>>},
    {quant::IQ3_KS::kType, RunTiles<UnpackShifted<quant::IQ3_KS>>},
    {quant::IQ4_KSS::kType, RunTiles<UnpackShifted<quant::IQ4_KSS>>},
    {quant::IQ4_KS::kType, RunTiles<UnpackShifted<quant::IQ4_KS>>},
    {quant::IQ5_KS::kType, RunTiles<UnpackShifted<quant::IQ5_KS>>},
    {quant::IQ2_KL::kType, RunTiles<UnpackIQ2_KL>},
    {quant::Q8_KV::kType, RunTiles<UnpackQ8_KV>},
    {quant::IQ2_BN::kType, RunTiles<UnpackIQ2_BN>},
    {quant::IQ1_BN::kType, RunTiles<UnpackIQ1_BN>},
    {quant::IQ1_KT::kType, RunTiles<UnpackTrellis<quant::IQ1_KT>>},
    {quant::IQ2_KT::kType, RunTiles<UnpackTrellis<quant::IQ2_KT>>},
    {quant::IQ3_KT::kType, RunTiles<UnpackTrellis<quant::IQ3_KT>>},
    {quant::IQ4_KT::kType, RunTiles<UnpackTrellis<quant::IQ4_KT>>},
};

// Few tokens use the scratch memory, too.
size_t ScratchBytesOfTiles(int64_t cols) {
  size_t bytes = std::max(QuantizedScratchBytes(cols), FloatTileScratch::Bytes());
  for (const MatMulKernel& kernel : avx512vbmi::Kernels()->matmul) {
    bytes = std::max(bytes, kernel.scratch_bytes(cols));
  }
  return bytes;
}

// One kernel per format, at the place that quant::FormatIndex gives.
std::vector<MatMulKernel> BuildKernels() {
  return BuildMatMulTable({kIsaName, kSpecial, RunTiles<UnpackGeneric<false, 16>>,
                           RunTiles<UnpackGeneric<true, 16>>, ScratchBytesOfTiles,
                           ScratchBytesOfTiles, "int8/bf16", true});
}
