# SPDX-License-Identifier: Apache-2.0
"""What others measured of BERT-base's inference on one device, and where they say so.

Every figure is of 12 layers of width 768 with 12 heads on full sequences, in the dtype that is
named. Looked for and not found, in that form: H100, TPU v3, v4 and v5e, Ascend 910 and 910B,
Stratix 10. MLPerf's BERT is another (24 layers, 8 bits, sequences of all lengths).
"""

from dataclasses import dataclass

_GUIDE = "NVIDIA FasterTransformer, docs/bert_guide.md of October 2023, {}"
_TENSORRT = "NVIDIA TensorRT, demo/BERT/README.md of release {}"
_EXAMPLES = "NVIDIA DeepLearningExamples, TensorFlow/LanguageModeling/BERT/README.md, DGX-1"


@dataclass(frozen=True)
class Published:
    """One figure.

    Attributes:
        profile: of spmdx, for a device of this kind.
        device: that was measured.
        dtype: "f32" or "f16".
        batch, sequence: what it ran.
        ms: a batch took; of figures that are sequences a second, what follows from them.
        by: what ran it.
        source: where it stands.
    """

    profile: str
    device: str
    dtype: str
    batch: int
    sequence: int
    ms: float
    by: str
    source: str


def _both(profile, device, name, dtype, torchscript, fused):
    """The two columns of FasterTransformer's tables for PyTorch, at 32 sequences of 384."""
    source = _GUIDE.format(f"BERT performance on {name} and PyTorch")
    return [
        Published(profile, device, dtype, 32, 384, torchscript, "TorchScript", source),
        Published(profile, device, dtype, 32, 384, fused, "FasterTransformer", source),
    ]


_ON_A100 = _GUIDE.format("BERT performance on A100 and TensorFlow")
PUBLISHED = [
    *_both("v100-32", "V100", "V100", "f32", 232.66, 209.90),
    *_both("v100-32", "V100", "V100", "f16", 65.62, 44.13),
    Published("v100-32", "V100 16 GB", "f16", 32, 384, 40.10, "TensorRT", _TENSORRT.format("7.2")),
    Published("v100-32", "V100 32 GB", "f32", 8, 384, 8e3 / 136.62, "TensorFlow", _EXAMPLES),
    Published("v100-32", "V100 32 GB", "f16", 8, 384, 8e3 / 407.46, "TensorFlow", _EXAMPLES),
    Published("a100-80", "A100", "f32", 32, 384, 150.26, "TensorFlow, XLA", _ON_A100),
    Published("a100-80", "A100", "f32", 32, 384, 143.41, "FasterTransformer", _ON_A100),
    *_both("a100-80", "A100", "A100", "f16", 32.43, 14.68),
    Published("a100-80", "A100 40 GB", "f16", 32, 384, 12.85, "TensorRT", _TENSORRT.format("10.7")),
]
