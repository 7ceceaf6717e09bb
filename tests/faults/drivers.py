"""Starts a server on GPUs where the driver, the GPU or a library will not do, and reads what it says.

    python3 tests/faults/drivers.py VOLLEY

VOLLEY is a build with the feature `cuda`, on a machine without an NVIDIA driver: a stand-in for libcuda is
compiled with `cc` for each case and found through LD_LIBRARY_PATH. The server must end at once with a status
other than 0 and one sentence that says what is wrong. Prints a line for each case; exit status 1 when
something did not hold.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What is called before the first allocation; VERSION, STATUS of cuInit, COUNT and MAJOR are the case's.
DRIVER = """
#include <string.h>
int cuDriverGetVersion(int *version) { return *version = VERSION, 0; }
int cuInit(unsigned flags) { return STATUS; }
int cuDeviceGetCount(int *count) { return *count = COUNT, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return *value = attribute == 75 ? MAJOR : 6, 0; }
int cuDeviceGetName(char *name, int bytes, int device) { return strncpy(name, "Stand-in", bytes), 0; }
int cuGetErrorString(int status, const char **text) { return *text = "an error", 0; }
"""
CASES = [
    ("no driver", None, "no NVIDIA driver: libcuda was not found; install driver 580 or newer"),
    ("an old driver", dict(VERSION=12080), "the NVIDIA driver is too old: it supports CUDA 12.8"),
    ("no GPU", dict(STATUS=100), "the NVIDIA driver sees no GPU"),
    ("none of the GPUs visible", dict(COUNT=0), "the NVIDIA driver sees no GPU"),
    ("an old GPU", dict(MAJOR=7), "Stand-in"),
    ("no cuBLASLt", {}, "libcublasLt.so"),
]


def stand_in(folder, values):
    """Compiles a libcuda of these values into the folder."""
    values = {"VERSION": 13000, "STATUS": 0, "COUNT": 1, "MAJOR": 8, **values}
    source = folder / "driver.c"
    source.write_text(DRIVER)
    flags = [f"-D{name}={value}" for name, value in values.items()]
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", folder / "libcuda.so.1", source], check=True)


def check(volley, values, expected):
    """What did not hold of one case."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if values is not None:
            stand_in(Path(folder), values)
            environment["LD_LIBRARY_PATH"] = folder
        command = [volley, "serve", "demo", "--device", "cuda", "--port", "0"]
        try:
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
        except subprocess.TimeoutExpired:
            return "it did not end"
    said = run.stderr.strip().splitlines()
    told = said[-1] if said else ""
    if run.returncode <= 0:
        return f"status {run.returncode}"
    if "panicked" in run.stderr or expected not in told or len(said) > 1:
        return f"it says {run.stderr!r}"
    print(f"  {told}")
    return None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    failed = False
    for name, values, expected in CASES:
        fault = check(sys.argv[1], values, expected)
        print(f"{name}: {fault or 'ok'}", flush=True)
        failed |= fault is not None
    sys.exit(failed)


if __name__ == "__main__":
    main()
