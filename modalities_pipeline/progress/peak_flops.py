"""Peak FLOP/s of accelerators: dense (without sparsity), with tensor or matrix cores, of one device as torch counts it.

The numbers are those of the vendors' data sheets; where they give them with sparsity, half of them.

- NVIDIA V100, A10, A30, A40, A100, L4, L40, L40S, H100, H200, GH200: "NVIDIA <name> Tensor Core GPU" data sheets
  (https://www.nvidia.com/en-us/data-center/ and there the page of the product);
- NVIDIA B200 and GB200: "NVIDIA Blackwell" data sheet, HGX B200 by 8 GPUs and GB200 Superchip by 2 GPUs;
- AMD: "AMD Instinct" data sheets (https://www.amd.com/en/products/accelerators/instinct.html); torch sees each of the
  two dies of an MI250 or MI250X as a device.
"""

import dataclasses
import re
from collections.abc import Mapping

import torch


@dataclasses.dataclass(frozen=True)
class PeakFlops:
    """Peak FLOP/s by what is multiplied; None: the device cannot, or the number is not known."""

    half: float
    tf32: float | None = None
    fp8: float | None = None
    has_bf16: bool = True

    def of(self, dtype: torch.dtype) -> float | None:
        """The peak for matrices of a dtype; that of float32 is TF32's, the most that the device makes of them."""
        if dtype == torch.bfloat16 and not self.has_bf16:
            return None
        return {
            torch.bfloat16: self.half,
            torch.float16: self.half,
            torch.float32: self.tf32,
            torch.float8_e4m3fn: self.fp8,
            torch.float8_e5m2: self.fp8,
        }.get(dtype)


_T = 1e12
# words of a device's name -> peak; of several that match, the one with most letters counts
PEAK_FLOPS: Mapping[str, PeakFlops] = {
    "V100 SXM2": PeakFlops(125 * _T, has_bf16=False),
    "V100 PCIE": PeakFlops(112 * _T, has_bf16=False),
    "A10": PeakFlops(125 * _T, tf32=62.5 * _T),
    "A30": PeakFlops(165 * _T, tf32=82 * _T),
    "A40": PeakFlops(149.7 * _T, tf32=74.8 * _T),
    "A100": PeakFlops(312 * _T, tf32=156 * _T),
    "L4": PeakFlops(121 * _T, tf32=60 * _T, fp8=242.5 * _T),
    "L40": PeakFlops(181 * _T, tf32=90.5 * _T, fp8=362 * _T),
    "L40S": PeakFlops(362 * _T, tf32=183 * _T, fp8=733 * _T),
    "H100": PeakFlops(989 * _T, tf32=494.5 * _T, fp8=1979 * _T),
    "H100 PCIE": PeakFlops(756 * _T, tf32=378 * _T, fp8=1513 * _T),
    "H100 NVL": PeakFlops(835.5 * _T, tf32=417.5 * _T, fp8=1670.5 * _T),
    "H200": PeakFlops(989 * _T, tf32=494.5 * _T, fp8=1979 * _T),
    "H200 NVL": PeakFlops(835.5 * _T, tf32=417.5 * _T, fp8=1670.5 * _T),
    "GH200": PeakFlops(989 * _T, tf32=494.5 * _T, fp8=1979 * _T),
    "B200": PeakFlops(2250 * _T, tf32=1125 * _T, fp8=4500 * _T),
    "GB200": PeakFlops(2500 * _T, tf32=1250 * _T, fp8=5000 * _T),
    "MI250": PeakFlops(181 * _T),
    "MI250X": PeakFlops(191.5 * _T),
    "MI300A": PeakFlops(980.6 * _T, tf32=490.3 * _T, fp8=1961.2 * _T),
    "MI300X": PeakFlops(1307.4 * _T, tf32=653.7 * _T, fp8=2614.9 * _T),
    "MI325X": PeakFlops(1307.4 * _T, tf32=653.7 * _T, fp8=2614.9 * _T),
}


def peak_flops_of(device_name: str) -> PeakFlops | None:
    """The peaks of a device called as `torch.cuda.get_device_name` does, None if it is not in the table.

    A name has to hold all words of a row as words of its own: "NVIDIA A100-SXM4-80GB" is an A100 and no A10.
    """
    words = set(re.split(r"[^A-Z0-9]+", device_name.upper()))
    matches = [name for name in PEAK_FLOPS if words.issuperset(name.split())]
    return PEAK_FLOPS[max(matches, key=len)] if matches else None
