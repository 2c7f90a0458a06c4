"""What positions look like: a table of them as a picture, and the angles by which sine-cosine pairs turn."""

import base64
import struct
import zlib

import numpy as np

from nmt.model.transformer import sinusoids

# Middle tones, readable on light and dark paper; the sign of a number chooses one, its size the opacity.
POSITIVE, NEGATIVE = (63, 131, 200), (196, 122, 50)


def frequencies(d_model: int) -> np.ndarray:
    """The angle ω by which each sine-cosine pair turns from one position to the next: [D / 2], from 1 down to about 1e-4."""
    sines_and_cosines = sinusoids(2, d_model)[1].double().numpy().reshape(-1, 2)
    return np.arctan2(sines_and_cosines[:, 0], sines_and_cosines[:, 1])


def turned(encodings: np.ndarray, k: float) -> np.ndarray:
    """Encodings [..., D] with each pair turned by k·ω, which moves them by k positions (paper, section 3.5).

    sin(p + a) = sin p cos a + cos p sin a, and cos(p + a) = cos p cos a - sin p sin a.
    """
    angles = k * frequencies(encodings.shape[-1])
    sines, cosines = encodings[..., ::2], encodings[..., 1::2]
    moved = sines * np.cos(angles) + cosines * np.sin(angles), cosines * np.cos(angles) - sines * np.sin(angles)
    return np.stack(moved, -1).reshape(encodings.shape)


def heat_map(table: np.ndarray) -> str:
    """A table of numbers as a PNG in a data URI, a pixel each: blue above zero, brown below; 1 and more is opaque."""
    colours = np.where(table[..., None] > 0, np.array(POSITIVE), np.array(NEGATIVE))
    opacity = (255 * np.abs(table).clip(0, 1)).round()
    pixels = np.concatenate([colours, opacity[..., None]], -1).astype(np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each begins with its filter, none
    header = struct.pack(">2I5B", table.shape[1], table.shape[0], 8, 6, 0, 0, 0)  # 8 bits, RGBA
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
