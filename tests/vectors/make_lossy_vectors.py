#!/usr/bin/env python3
"""Independent reference of the lossy formats in docs/wire.md, and the maker of their golden files.

Written from the formats' text alone, one element at a time, so that it is slow and easy to check by eye.
    python3 make_lossy_vectors.py OUT_DIR     writes NAME.in, NAME.frame, NAME.out for each case and lossy.tsv
NAME.in is the dense input, NAME.frame the frame that it encodes to, NAME.out what that decodes to. lossy.tsv: name, dtype,
format, elements, values stored, frame bytes, the bound (errorbound) or the seed and the first element's number (qsgd:
SEED@FIRST), "abs" or "rel" or "seed".
"""
import argparse
import math
import random
import struct
from pathlib import Path

from make_vectors import HEADER, MAGIC, VERSION, crc32c, pad

FORMATS = {"errorbound": 5, "qsgd2": 6, "qsgd4": 7, "qsgd8": 8}
# name: (code, size, struct code, integer's struct code, bits of the mantissa, least and largest exponent)
DTYPES = {"float32": (7, 4, "f", "i", 23, -126, 127), "float64": (8, 8, "d", "q", 52, -1022, 1023)}


def rounded(x: float, dtype: str) -> float:
    """To the nearest number of the type. One operation on numbers of float32, made in float64 and rounded again, is rounded
    right: 53 bits are more than twice 24 and two."""
    if dtype == "float64" or not math.isfinite(x):
        return x
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def nearest_integer(x: float) -> int:
    return round(x)  # halves to even


def fold(i: int) -> int:
    return 2 * i if i >= 0 else -2 * i - 1


def planes_of(integers: list, planes: int) -> bytes:
    words = []
    for plane in range(planes):
        words.append(sum(((integer >> plane) & 1) << i for i, integer in enumerate(integers)))
    return struct.pack("<%dQ" % len(words), *words)


def groups(items: list, size: int) -> list:
    return [items[at:at + size] for at in range(0, len(items), size)]


def header(fmt, dtype, n, stored, body, bitmap_at, index_at, values_at) -> bytes:
    head = struct.pack("<IBBBBQQQIII", MAGIC, VERSION, FORMATS[fmt], DTYPES[dtype][0], 0, n, stored, len(body), bitmap_at,
                       index_at, values_at)
    return head + struct.pack("<I", crc32c(head))


def steps(dtype: str, bound: float):
    """The bound and the quantum as numbers of the type."""
    _, _, _, _, mantissa, least_exponent, _ = DTYPES[dtype]
    least = 4 * math.ldexp(1.0, least_exponent)
    bound = min(bound, 1 / least)
    down = rounded(bound, dtype)
    if down > bound:  # round down
        bits = struct.unpack("<I", struct.pack("<f", down))[0]
        down = struct.unpack("<f", struct.pack("<I", bits - 1))[0]
    return down, max(rounded(down * 1.9921875, dtype), least)


def encode_errorbound(elements: list, dtype: str, bound: float, relative: bool):
    code, size, raw, integer, mantissa, _, _ = DTYPES[dtype]
    n = len(elements)
    if relative:
        largest = max((abs(x) for x in elements if math.isfinite(x)), default=0.0)
        bound = bound * largest if largest else 1.0
    bound, quantum = steps(dtype, bound)
    inverse = rounded(1 / quantum, dtype)
    limit = 2**(mantissa - 1)
    index, bases, widths, planes, exact, decoded = [], [], [], b"", [], []
    for block_start in range(0, n, 256):
        block = elements[block_start:block_start + 256]
        integers = []
        for offset, x in enumerate(block):
            last = integers[-1] if integers else 0
            scaled = rounded(x * inverse, dtype)
            count = nearest_integer(scaled) if math.isfinite(scaled) and abs(scaled) < 2 * limit else limit
            value = rounded(rounded(float(count), dtype) * quantum, dtype)
            if math.isfinite(x) and abs(count) < limit and abs(rounded(value - x, dtype)) < bound:
                integers.append(count)
                decoded.append(value)
            else:
                integers.append(last)
                exact.append((block_start + offset, x))
                decoded.append(x)
        index.append(len(planes) // 8)
        bases.append(integers[0])
        integers += [integers[-1]] * (256 - len(integers))
        differences = [fold(b - a) for a, b in zip([integers[0]] + integers, integers)]
        for group in groups(differences, 64):
            widths.append(max(group).bit_length())
            planes += planes_of(group, widths[-1])
    head = struct.pack("<dII", quantum, len(planes) // 8, 0)
    first = head + pad(struct.pack("<%dI" % len(index), *index)) + pad(
        struct.pack("<%d%s" % (len(bases), integer), *bases)) + pad(bytes(widths))
    positions = pad(struct.pack("<%dI" % len(exact), *(at for at, _ in exact)))
    body = first + pad(planes) + positions
    values_at = HEADER + len(body)
    body += b"".join(as_bits(x, dtype) for _, x in exact)
    return header("errorbound", dtype, n, len(exact), body, HEADER + len(first), HEADER, values_at) + body, decoded


def as_bits(x, dtype: str) -> bytes:
    return struct.pack("<" + DTYPES[dtype][2], x)


def mixed(v: int) -> int:
    v ^= v >> 16
    v = v * 0x7FEB352D & 0xFFFFFFFF
    v ^= v >> 15
    v = v * 0x846CA68B & 0xFFFFFFFF
    return v ^ v >> 16


def draw(number: int, bucket: int, seed: int) -> float:
    """In [0, 1), in steps of 2^-24. `bucket` is the number of the bucket's first element."""
    once = mixed((number ^ seed) & 0xFFFFFFFF)
    twice = mixed((once + (seed >> 32) + (bucket >> 32) * 0x9E3779B9) & 0xFFFFFFFF)
    return (twice >> 8) / 2**24


def encode_qsgd(elements: list, dtype: str, fmt: str, seed: int, first: int):
    bits = int(fmt[-1])
    highest = 2**(bits - 1) - 1
    levels, scales, decoded = [], [], []
    for bucket_start in range(0, len(elements), 1024):
        bucket = elements[bucket_start:bucket_start + 1024]
        largest = max(abs(x) for x in bucket)
        scale = rounded(largest / highest, dtype) if largest else 0.0
        inverse = rounded(highest / largest, dtype) if largest else 0.0
        scales.append(scale)
        for offset, x in enumerate(bucket):
            size = abs(rounded(x * inverse, dtype))
            level = math.floor(size)
            if draw(first + bucket_start + offset, first + bucket_start, seed) < size - level:
                level += 1
            level = min(level, highest)
            levels.append(-level if x < 0 else level)
            decoded.append(rounded(levels[-1] * scale, dtype))
    planes = b""
    for group in groups(levels, 64):
        planes += planes_of([fold(level) for level in group], bits)
    body = pad(planes)
    values_at = HEADER + len(body)
    body += b"".join(as_bits(scale, dtype) for scale in scales)
    return header(fmt, dtype, len(elements), len(scales), body, HEADER, 0, values_at) + body, decoded


def wave(rng, n, size=1.0):
    return [size * (math.sin(i / 17) + 0.3 * math.cos(i / 5) + 0.01 * rng.gauss(0, 1)) for i in range(n)]


def errorbound_cases(rng: random.Random):
    for dtype in DTYPES:
        for n in (0, 1, 63, 64, 65, 255, 256, 257, 1023, 2000):
            yield f"{dtype}-n{n}", dtype, wave(rng, n), 1e-3, False
        yield f"{dtype}-relative", dtype, wave(rng, 3000, 1e6), 1e-4, True
        yield f"{dtype}-zeros", dtype, [0.0, -0.0] * 300, 1e-3, True
        specials = [math.inf, -math.inf, -0.0, 5e-324, 1e-40, -1e-38, 1e30, -3e38, 0.5, -0.5]
        yield f"{dtype}-specials", dtype, [x for s in specials for x in [s] + wave(rng, 40)], 1e-2, False
        yield f"{dtype}-tight", dtype, wave(rng, 700), 2e-7 if dtype == "float32" else 1e-15, False
        yield f"{dtype}-hopeless", dtype, wave(rng, 300), 1e-44, False
        yield f"{dtype}-subnormal", dtype, [1e-39 * i for i in range(300)], 1e-40, False
        yield f"{dtype}-loose", dtype, wave(rng, 300), 1e300, False
        yield f"{dtype}-huge", dtype, wave(rng, 300, 1e38), 1e-3, True
        yield f"{dtype}-spikes", dtype, [1e9 if rng.random() < 0.05 else 0.01 * i for i in range(900)], 1e-3, False
        yield f"{dtype}-halves", dtype, [0.5 * i for i in range(-300, 300)], 0.5, False


def qsgd_cases(rng: random.Random):
    for dtype in DTYPES:
        for n in (0, 1, 64, 65, 1023, 1024, 1025, 5000):
            yield f"{dtype}-n{n}", dtype, [rng.gauss(0, 1) for _ in range(n)], rng.getrandbits(64), 0
        yield f"{dtype}-zeros", dtype, [0.0, -0.0] * 600 + [1.0], 7, 0
        yield f"{dtype}-scales", dtype, [2.0**(i // 100 - 40) for i in range(4000)], 0, 0
        for first in (48, 2**32 - 1500, 5 * 2**40 + 16):
            yield f"{dtype}-from{first}", dtype, [rng.gauss(0, 1) for _ in range(3000)], rng.getrandbits(64), first


def main(out: Path, seed: int):
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    rows = []

    def write(name, dtype, fmt, elements, frame, decoded, parameter, kind):
        (out / f"{name}.in").write_bytes(b"".join(as_bits(x, dtype) for x in elements))
        (out / f"{name}.frame").write_bytes(frame)
        (out / f"{name}.out").write_bytes(b"".join(as_bits(x, dtype) for x in decoded))
        stored = struct.unpack_from("<Q", frame, 16)[0]
        rows.append(f"{name}\t{dtype}\t{fmt}\t{len(elements)}\t{stored}\t{len(frame)}\t{parameter}\t{kind}")

    for name, dtype, elements, bound, relative in errorbound_cases(rng):
        elements = [rounded(x, dtype) for x in elements]
        frame, decoded = encode_errorbound(elements, dtype, bound, relative)
        write(f"errorbound-{name}", dtype, "errorbound", elements, frame, decoded, float(bound).hex(), "rel" if relative else "abs")
    for name, dtype, elements, key, first in qsgd_cases(rng):
        elements = [rounded(x, dtype) for x in elements]
        for fmt in ("qsgd2", "qsgd4", "qsgd8"):
            frame, decoded = encode_qsgd(elements, dtype, fmt, key, first)
            write(f"{fmt}-{name}", dtype, fmt, elements, frame, decoded, f"{key}@{first}", "seed")
    (out / "lossy.tsv").write_text("\n".join(rows) + "\n")
    print(f"{len(rows)} cases")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT_DIR", type=Path)
    parser.add_argument("seed", type=int, nargs="?", default=20261128)
    arguments = parser.parse_args()
    main(arguments.out, arguments.seed)
