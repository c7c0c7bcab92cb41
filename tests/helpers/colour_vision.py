"""How colours look to people who see fewer of them, and how far apart two colours look.

Simulation: G. M. Machado, M. M. Oliveira, L. A. F. Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency", IEEE Transactions on Visualization and Computer Graphics
15(6), 2009; the matrices are those of its table for severity 1.0, applied to linear RGB.
Difference: CIEDE2000 (CIE 142-2001), as written out by G. Sharma, W. Wu, E. N. Dalal, "The
CIEDE2000 Color-Difference Formula", Color Research and Application 30(1), 2005.
"""

import numpy as np

VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
"""What each kind of vision makes of linear red, green and blue."""

TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
"""From linear sRGB to CIE XYZ under D65 (IEC 61966-2-1)."""
WHITE = TO_XYZ @ np.ones(3)


def linear(color: str) -> np.ndarray:
    """`#rrggbb` as linear red, green and blue from 0 to 1."""
    srgb = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    return float(TO_XYZ[1] @ linear(color))


def contrast(first: str, second: str) -> float:
    """Contrast ratio, as WCAG 2.2 defines it: 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def lab(color: str, vision: str = "usual") -> np.ndarray:
    """CIE L*a*b* of a colour as somebody of this vision sees it."""
    xyz = TO_XYZ @ np.clip(VISIONS[vision] @ linear(color), 0, 1) / WHITE
    curved = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = curved
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(first: np.ndarray, second: np.ndarray) -> float:
    """CIEDE2000 of two colours in L*a*b*; about 2 is just noticeable side by side."""
    lightness = (first[0] + second[0]) / 2
    chromas = np.array([np.hypot(*first[1:]), np.hypot(*second[1:])])
    seventh = chromas.mean() ** 7
    stretch = 1 + 0.5 * (1 - np.sqrt(seventh / (seventh + 25**7)))
    a = np.array([first[1], second[1]]) * stretch
    b = np.array([first[2], second[2]])
    chromas = np.hypot(a, b)
    hues = np.degrees(np.arctan2(b, a)) % 360
    grey = chromas.prod() == 0
    turn = 0.0 if grey else (hues[1] - hues[0] + 180) % 360 - 180
    hue = hues.sum() if grey else hues[0] + turn / 2
    chroma = chromas.mean()
    d_lightness, d_chroma = second[0] - first[0], chromas[1] - chromas[0]
    d_hue = 2 * np.sqrt(chromas.prod()) * np.sin(np.radians(turn / 2))
    weight = (
        1
        - 0.17 * np.cos(np.radians(hue - 30))
        + 0.24 * np.cos(np.radians(2 * hue))
        + 0.32 * np.cos(np.radians(3 * hue + 6))
        - 0.20 * np.cos(np.radians(4 * hue - 63))
    )
    s_lightness = 1 + 0.015 * (lightness - 50) ** 2 / np.sqrt(20 + (lightness - 50) ** 2)
    s_chroma, s_hue = 1 + 0.045 * chroma, 1 + 0.015 * chroma * weight
    around_blue = 30 * np.exp(-((((hue % 360) - 275) / 25) ** 2))
    seventh = chroma**7
    rotation = -2 * np.sqrt(seventh / (seventh + 25**7)) * np.sin(np.radians(2 * around_blue))
    parts = (d_lightness / s_lightness, d_chroma / s_chroma, d_hue / s_hue)
    return float(np.sqrt(sum(part**2 for part in parts) + rotation * parts[1] * parts[2]))


def seen_difference(first: str, second: str, vision: str) -> float:
    """CIEDE2000 of two colours as somebody of this vision sees them."""
    return difference(lab(first, vision), lab(second, vision))
