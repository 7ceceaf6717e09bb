"""Takes a rank from a running server and sees how the server ends.

    python3 tests/faults/ranks.py VOLLEY SECONDS [serve's arguments, with --tensor-parallel-size 2]

One thread of a rank is taken by the kernel's means (ptrace, x86-64 Linux; as the server's parent no
privilege is needed), while two streams run: once it is made to leave by the system call exit, once it is
held and never goes on. Within SECONDS (5 on GPUs, 25 on the CPU, where ranks are given more time) every
stream must end with an error, /health must fail, and the process must end by itself with a status other
than 0. Prints a JSON line for each; exit status 1 when
something did not hold.
"""

import ctypes
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
CONT, GETREGS, SETREGS, SEIZE, INTERRUPT = 7, 12, 13, 0x4206, 0x4207
ALL_THREADS = 0x40000000
# Indices in user_regs_struct.
RAX, RDI, RIP, ORIG_RAX = 10, 14, 16, 15
SYS_EXIT = 60

STREAMS = 2
# A small model on two GPUs says thousands of tokens in a second.
TOKENS = 4000


def ptrace(request, thread, address=None, data=None):
    ctypes.set_errno(0)
    answer = libc.ptrace(request, thread, address, data)
    if ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer & 0xFFFFFFFFFFFFFFFF


def hold(_, thread):
    """Stops one thread; it goes on when this process says so or ends."""
    ptrace(SEIZE, thread)
    ptrace(INTERRUPT, thread)
    os.waitpid(thread, ALL_THREADS)


def syscall_instruction(process):
    """Address of an instruction `syscall` in the process."""
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb") as memory:
        for line in maps:
            span, kind = line.split()[:2]
            if "x" in kind and "libc.so" in line:
                first, last = (int(at, 16) for at in span.split("-"))
                memory.seek(first)
                found = memory.read(last - first).find(b"\x0f\x05")
                if found >= 0:
                    return first + found
    raise LookupError("no instruction syscall")


def end(process, thread):
    """Makes a thread leave at once: nothing of it is cleaned up."""
    hold(process, thread)
    registers = (ctypes.c_ulonglong * 27)()
    ptrace(GETREGS, thread, None, ctypes.addressof(registers))
    registers[RIP] = syscall_instruction(process)
    registers[RAX], registers[RDI], registers[ORIG_RAX] = SYS_EXIT, 0, 0xFFFFFFFFFFFFFFFF
    ptrace(SETREGS, thread, None, ctypes.addressof(registers))
    ptrace(CONT, thread)
    os.waitpid(thread, ALL_THREADS)


def bury(thread):
    """Takes note that a held thread has been killed, without which its process does not end."""
    try:
        os.waitpid(thread, ALL_THREADS | os.WNOHANG)
    except ChildProcessError:
        pass


def thread_of(process, name):
    for thread in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{thread}/comm") as comm:
            if comm.read().strip() == name:
                return int(thread)
    raise LookupError(name)


def start(command):
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        found = re.match(r"serving\s+(http://\S+)", line)
        if found:
            return server, found[1]
    raise SystemExit(f"{command[0]} ended with {server.wait()}")


def health(url):
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=2).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def stream(url, begun, ends, i):
    """Reads a long answer, tells when it has begun, and keeps how it ended."""
    body = {"messages": [{"role": "user", "content": f"Tell me of number {i}."}], "stream": True,
            "max_tokens": TOKENS, "ignore_eos": True}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    text = ""
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            for line in answer:
                line = line.decode()
                text += line
                if "content" in line:
                    begun.set()
    except OSError as error:
        text += f"\n{error}"
    ends[i] = (time.monotonic(), "[DONE]" not in text and "error" in text, text[-200:])


def fault(command, limit_s, name, take):
    server, url = start(command)
    threading.Thread(target=server.stdout.read, daemon=True).start()
    thread = thread_of(server.pid, "volley-rank-1")
    ends, answering = {}, [threading.Event() for _ in range(STREAMS)]
    streams = [threading.Thread(target=stream, args=(url, event, ends, i))
               for i, event in enumerate(answering)]
    for one in streams:
        one.start()
    for event in answering:
        event.wait(60)
    begun = time.monotonic()
    take(server.pid, thread)
    for one in streams:
        one.join()
    errors = all(failed for _, failed, _ in ends.values())
    told_s = max(at for at, _, _ in ends.values()) - begun
    status = health(url)
    while status == 200 and time.monotonic() - begun < limit_s:
        time.sleep(0.05)
        status = health(url)
    health_s = time.monotonic() - begun
    code = None
    while code is None and time.monotonic() - begun < limit_s + 20:
        time.sleep(0.05)
        bury(thread)
        code = server.poll()
    server.kill()
    seen = {"fault": name, "streams": len(ends), "all_ended_with_an_error": errors,
            "told_s": round(told_s, 2), "health": status, "health_s": round(health_s, 2),
            "exit_status": code, "ended_s": round(time.monotonic() - begun, 2)}
    held = errors and told_s < limit_s and status != 200 and code not in (0, None)
    if not held:
        seen["ends"] = [text for _, _, text in ends.values()]
    print(json.dumps(seen), flush=True)
    return held


def main():
    command = [sys.argv[1], "serve", "--port", "0", *sys.argv[3:]]
    held = [fault(command, float(sys.argv[2]), name, take)
            for name, take in [("rank thread ended", end), ("rank thread held", hold)]]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
