#!/usr/bin/env python3
"""Write matrices of small floats with scales, as quantized Hugging Face folders hold them, and the numbers that they stand for.

    small_floats/cases.json          [{"name", "matrix", "ffn", "config", "file"}]: the quantization_config of each folder, or the
                                     content of its hf_quant_config.json, and the matrix of a layer that is quantized
    small_floats/cases.safetensors   CASE/TENSOR: tensors of the folder, and CASE/expected: the matrix in 32-bit floats

torch's own small types give the numbers: a matrix is code * scale in 32-bit floats, where a scale with a second one is multiplied by it
(modelopt) or divided by it (compressed-tensors) first. Each matrix of bytes has every finite code.

Usage: make_small_float_cases.py [OUTPUT_FOLDER]
The pinned packages are torch 2.8.0 and safetensors 0.8.0.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

DIM = 32  # of the model that the tests put the matrices into
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
random = torch.Generator().manual_seed(20)
cases, tensors = [], {}


def codes(rows, columns, kind):
    """Every finite code, then random ones."""
    finite = torch.arange(256, dtype=torch.uint8)
    finite = finite[torch.isfinite(finite.view(kind).float())]
    picked = finite[torch.randint(len(finite), (rows * columns,), generator=random)]
    picked[: len(finite)] = finite
    return picked.reshape(rows, columns).view(kind)


def scales(*shape, kind=torch.float32):
    if kind == torch.float8_e8m0fnu:
        return torch.randint(110, 135, shape, dtype=torch.uint8, generator=random).view(kind)
    return (torch.rand(shape, generator=random) * 0.01 + 0.001).to(kind)


def spread(scale, rows, columns, block):
    """A scale for each value: of its block, the blocks at the edges being smaller."""
    full = scale.float().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return full[:rows, :columns]


def add(name, matrix, ffn, config, own, expected, file=None):
    cases.append(dict(name=name, matrix=matrix, ffn=ffn, config=config, file=file))
    module = f"model.layers.0.mlp.{matrix}"
    for key, tensor in own.items():
        where = key if key.startswith("model.") else f"{module}.{key}"
        tensors[f"{name}/{where}"] = tensor.contiguous().clone()
    tensors[f"{name}/expected"] = expected.contiguous()


def sizes(matrix, ffn):
    return (DIM, ffn) if matrix == "down_proj" else (ffn, DIM)


def add_fp8(name, matrix, ffn, config, block=None, kind=torch.float8_e4m3fn, scale_kind=torch.float32, scale_shape=None,
            scale_name="weight_scale", as_bytes=False, further=None, file=None):
    """`block` None: one scale, of `scale_shape`, for each row or for all."""
    rows, columns = sizes(matrix, ffn)
    weight = codes(rows, columns, kind)
    if block:
        scale = scales(-(-rows // block[0]), -(-columns // block[1]), kind=scale_kind)
        expected = weight.float() * spread(scale, rows, columns, block)
    else:
        scale = scales(*scale_shape, kind=scale_kind)
        expected = weight.float() * (scale.float().reshape(-1, 1) if scale.numel() > 1 else scale.float())
    stored = scale.view(torch.uint8) if as_bytes else scale
    add(name, matrix, ffn, config, {"weight": weight, scale_name: stored, **(further or {})}, expected, file)


def add_fp4(name, matrix, ffn, config, group, second=None, divides=False, packed_name="weight_packed", second_name=None, further=None):
    rows, columns = sizes(matrix, ffn)
    code = torch.randint(16, (rows, columns), generator=random)
    packed = (code[:, 0::2] | code[:, 1::2] << 4).to(torch.uint8)
    if group == 16:
        scale = (torch.rand(rows, columns // 16, generator=random) * 400 + 0.01).to(torch.float8_e4m3fn)
        scale[0, 0] = 0.005  # the least numbers of the type have another form
        full = scale.float() / second if divides else scale.float() * second
        stored = scale
    else:
        stored = torch.randint(110, 135, (rows, -(-columns // 32)), dtype=torch.uint8, generator=random)
        full = stored.view(torch.float8_e8m0fnu).float()
    expected = E2M1[code] * full.repeat_interleave(group, 1)[:, :columns]
    own = {packed_name: packed, "weight_scale": stored, **(further or {})}
    if second is not None:
        own[second_name] = second.reshape(1) if divides else second
    add(name, matrix, ffn, config, own, expected)


def fp8(block, **others):
    return dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=block,
                modules_to_not_convert=["lm_head", "model.layers.1"], **others)


def packed(form, **weights):
    weights = dict(num_bits=8, type="float", symmetric=True, dynamic=False) | weights
    return dict(quant_method="compressed-tensors", format=form, quantization_status="compressed", ignore=["lm_head"], kv_cache_scheme=None,
                config_groups={"group_0": dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None)})


def modelopt(algorithm):
    return dict(quant_method="modelopt", quant_algo=algorithm, ignore=["lm_head"], producer=dict(name="modelopt", version="0.33.0"))


def main():
    e8m0 = torch.float8_e8m0fnu
    add_fp8("fp8_down", "down_proj", 136, fp8([128, 128]), [128, 128], scale_name="weight_scale_inv")
    add_fp8("fp8_small", "down_proj", 24, fp8([12, 16]), [12, 16], scale_kind=torch.bfloat16, scale_name="weight_scale_inv")
    add_fp8("fp8_ue8m0", "down_proj", 24, fp8([12, 16], scale_fmt="ue8m0"), [12, 16], scale_kind=e8m0, scale_name="weight_scale_inv")
    add_fp8("fp8_ue8m0_bytes", "up_proj", 24, fp8([12, 16], scale_fmt="ue8m0"), [12, 16], scale_kind=e8m0, as_bytes=True,
            scale_name="weight_scale_inv")
    add_fp8("fp8_static", "up_proj", 24, fp8(None) | dict(activation_scheme="static"), scale_shape=(), scale_name="weight_scale_inv",
            further={"activation_scale": torch.tensor(0.5)})
    add_fp8("fp8_e5m2", "up_proj", 24, fp8(None) | dict(fmt="e5m2"), kind=torch.float8_e5m2, scale_shape=())
    add_fp8("fbgemm", "down_proj", 24, dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"]),
            scale_shape=(DIM, 1))
    add_fp8("packed_tensor", "down_proj", 24, packed("float-quantized", strategy="tensor"), scale_shape=(1,),
            scale_kind=torch.bfloat16, further={"input_scale": torch.ones(1)})
    add_fp8("packed_channel", "down_proj", DIM, packed("float-quantized", strategy="channel"), scale_shape=(DIM, 1),
            scale_kind=torch.bfloat16)
    add_fp8("packed_block", "up_proj", 24, packed("float-quantized", strategy="block", block_structure=[12, 16]), [12, 16])
    add_fp8("packed_mxfp8", "down_proj", 48, packed("mxfp8-quantized", strategy="group", group_size=32), [1, 32], scale_kind=e8m0,
            as_bytes=True)
    add_fp8("modelopt_fp8", "up_proj", 24, None, scale_shape=(),
            further={"input_scale": torch.tensor(0.5), "model.layers.0.self_attn.k_proj.k_scale": torch.tensor(1.0)},
            file=dict(producer=dict(name="modelopt", version="0.29.0"),
                      quantization=dict(quant_algo="FP8", kv_cache_quant_algo="FP8", exclude_modules=["lm_head"])))
    nvfp4 = packed("nvfp4-pack-quantized", num_bits=4, strategy="tensor_group", group_size=16)
    divisor = torch.tensor(2688.0 / 0.37)
    add_fp4("packed_nvfp4", "down_proj", 64, nvfp4, 16, divisor, divides=True, second_name="weight_global_scale",
            further={"input_global_scale": torch.ones(1)})
    add_fp4("packed_nvfp4_narrow", "up_proj", 24, nvfp4, 16, divisor, divides=True, second_name="weight_global_scale")
    add_fp4("modelopt_nvfp4", "down_proj", 64, modelopt("NVFP4"), 16, torch.tensor(2.0 ** -9), packed_name="weight",
            second_name="weight_scale_2", further={"input_scale": torch.tensor(0.5)})
    add_fp4("modelopt_nvfp4_narrow", "up_proj", 24, modelopt("NVFP4"), 16, torch.tensor(0.00037), packed_name="weight",
            second_name="weight_scale_2")
    mxfp4 = packed("mxfp4-pack-quantized", num_bits=4, strategy="group", group_size=32)
    add_fp4("packed_mxfp4", "up_proj", 24, mxfp4, 32)
    add_fp4("packed_mxfp4_narrow", "down_proj", 48, mxfp4, 32)

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "small_floats"
    folder.mkdir(exist_ok=True)
    (folder / "cases.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    save_file(tensors, folder / "cases.safetensors")


if __name__ == "__main__":
    main()
