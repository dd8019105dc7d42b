"""Makes fnuz.bin: the E4M3 FNUZ byte of every bf16 pattern, then of every f16 pattern.

Values beyond 224 saturate to it; NaN and infinities are 0x80. Needs numpy and ml_dtypes 0.5:
    python3 fnuz.py > fnuz.bin
"""
import sys

import ml_dtypes
import numpy as np

patterns = np.arange(1 << 16, dtype=np.uint16)
for half in (ml_dtypes.bfloat16, np.float16):
    x = patterns.view(half).astype(np.float32)
    byte = np.clip(x, -224, 224).astype(ml_dtypes.float8_e4m3fnuz).view(np.uint8)
    sys.stdout.buffer.write(np.where(np.isfinite(x), byte, 0x80).astype(np.uint8).tobytes())
