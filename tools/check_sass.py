#!/usr/bin/env python3
"""Reads the machine code of the GPU kernels: 128-bit global loads where they are meant, and no local
memory.

  tools/check_sass.py [--nvcc NVCC] [--arch sm_90] [--work build/sass]

Compiles kernels/launch/*.cu for one architecture and disassembles them. The CUDA toolkit may lack
nvdisasm: then it is taken from PyPI (nvidia-cuda-nvdisasm) into a virtual environment in --work.
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Kernels, by the beginning of their names, and what their code must hold. Decoding reads the bitmap by
# 128 bits, and stores by them; the others read elements by them.
MEANT = {
    "EncodePici<": ["LDG.E.128", "STG.E.128"],
    "CollectNonzeros<": ["LDG.E.128"],
    "AddAndEncodePici<": ["LDG.E.128", "STG.E.128"],
    "DecodePici<": ["LDG.E.128", "STG.E.128"],
    "ReducePiciMany<": ["LDG.E.128", "STG.E.128"],
    "ReducePiciFew<": ["LDG.E.128"],
    "DecodeCoo<": ["STG.E.128"],
    "DecodeGap<": ["STG.E.128"],
    "EncodeColumn<": ["STG.E.128"],
    "DecodeColumn<": ["LDG.E.128"],
    "CountNonzeros<": ["LDG.E.128"],
    "CopyDense<": ["LDG.E.128", "STG.E.128"],
    "AddDense<": ["LDG.E.128", "STG.E.128"],
    "ReduceInputs<": ["LDG.E.128", "STG.E.128"],
    "WidenInto<": ["STG.E.128"],
    "AccumulateInto<": ["LDG.E.128", "STG.E.128"],
    "FinishInto<": ["LDG.E.128"],
    "CopyOneToMany<": ["LDG.E.128", "STG.E.128"],
}
LOCAL = re.compile(r"\b(LDL|STL)\b")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def find_nvdisasm(work):
    if found := shutil.which("nvdisasm"):
        return found
    environment = work / "venv"
    if not list(environment.glob("**/nvdisasm")):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "-q", "nvidia-cuda-nvdisasm"],
                       check=True)
    return str(next(environment.glob("**/nvdisasm")))


def compile_cubin(nvcc, arch, source, work):
    cubin = work / f"{source.stem}.{arch}.cubin"
    subprocess.run([nvcc, "-std=c++20", "--expt-relaxed-constexpr", f"-arch={arch}", "-I", ROOT,
                    "-cubin", "-o", cubin, source], check=True)
    return cubin


def kernels_of(nvdisasm, cubin):
    """{short name: the set of its opcodes}, of one cubin."""
    text = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True,
                          check=True).stdout
    sections = re.split(r"^\s*\.section\s+\.text\.(\w+)", text, flags=re.MULTILINE)[1:]
    mangled, codes = sections[0::2], sections[1::2]
    names = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    kernels = {}
    for name, code in zip(names, codes):
        if match := re.search(r"Entry<(.*)>\(", name):
            short = re.sub(r"spccl::(sparse|simt|launch)::", "", match.group(1)).strip()
            kernels[short] = set(INSTRUCTION.findall(code))
    return kernels


def problems_of(kernel, opcodes):
    problems = [f"{kernel}: local memory ({op})" for op in opcodes if LOCAL.search(op)]
    for prefix, wanted in MEANT.items():
        if kernel.startswith(prefix):
            problems += [f"{kernel}: no {want}" for want in wanted
                         if not any(has_width(op, want) for op in opcodes)]
    return problems


def has_width(opcode, wanted):
    """Whether LDG.E.NA.128.CONSTANT, say, is the LDG.E.128 that was wanted: its kind and its width."""
    kind, _, width = wanted.split(".")
    parts = opcode.split(".")
    return parts[0] == kind and width in parts[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/sass")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    nvdisasm = find_nvdisasm(arguments.work)
    sources = sorted((ROOT / "kernels/launch").glob("*.cu"))
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        cubins = list(pool.map(lambda source: compile_cubin(arguments.nvcc, arguments.arch, source,
                                                            arguments.work), sources))
    kernels = {}
    for cubin in cubins:
        kernels.update(kernels_of(nvdisasm, cubin))
    problems = [problem for kernel, opcodes in sorted(kernels.items())
                for problem in problems_of(kernel, opcodes)]
    problems += [f"no kernel {prefix}...> was found" for prefix in MEANT
                 if not any(kernel.startswith(prefix) for kernel in kernels)]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        sys.exit(f"check_sass: {len(problems)} problems")
    print(f"check_sass: {len(kernels)} kernels for {arguments.arch}: 128-bit loads and stores where "
          "they are meant, no local memory")


if __name__ == "__main__":
    main()
