// The table of an instruction set that runs the generic kernels. Included in its namespace, outside
// of its target region, after kernels.inl, its matrix kernels, codecs, peaks and kIsaName.

const KernelTable* Kernels() {
  static const KernelTable table = {
      .isa = kIsaName,
      .matmul = MatMulKernels(),
      .encode = EncodeFunctions(),
      .decode = DecodeFunctions(),
      .quantize = QuantizeActivations,
      .quantize_many = QuantizeActivations,
      .rms_norm = RmsNorm,
      .layer_norm = LayerNorm,
      .add = AddRows,
      .activations = kActivations,
      .cap = Cap,
      .rope = Rope,
      .rotate = Rotate,
      .store_key = StoreKey,
      .store_value = StoreValue,
      .lay_out_keys = LayOutKeys,
      .attention_scratch_bytes = AttentionScratchBytes,
      .attention = Attention,
      .attention_merge = AttentionMerge,
      .index_scores = IndexScores,
      .sigmoid_gate = SigmoidGate,
      .causal_conv = CausalConv,
      .key_decays = KeyDecays,
      .scan = Scan,
      .selective_scan = SelectiveScan,
      .portable_exps = PortableExps,
      .portable_logs = PortableLogs,
      .peaks = Peaks(),
  };
  return &table;
}
