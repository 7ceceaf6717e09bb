"""Drives the agents and judges what the server is responsible for. Usage: drive.py BINARY WORK [AGENT[:hello|:tools]...]

Each agent gets a home, a project and a server of its own. First it greets the demo pair, which
reads the agent's whole prompt and answers in its own words. Then it is asked to write a file and to
read it back: a model of 8 million parameters cannot do that with tools it has never seen, so the
server plays recorded answers (`volley serve --replay`) with the calls. The requests of the second
run are left in WORK/AGENT/recorded, where condense.py takes them from.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "volley-demo"
PORT = 8000
URL = f"http://127.0.0.1:{PORT}"
CONTEXT = 131_072
GREETING = "Hello!"
TASK = "Write the words of the day into note.txt, then show me the file."
WORDS = 'seen by volley: "<b>\\n</b>" & 100 % é😀\nsecond line'
THOUGHTS = "I write the file first, then I read it.\n"
DONE = "The file holds the words of the day, as asked."


def call(name, **arguments):
    """A call in the model's markup."""
    parameters = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def qwen(home, run):
    flags = ["--auth-type", "openai", "--openai-base-url", f"{URL}/v1", "--openai-api-key", "none"]
    return ["qwen", *flags, "-m", MODEL, "-y", "-p", run], {}


def codex(home, run):
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "volley"\n[model_providers.volley]\n'
        f'name = "volley"\nbase_url = "{URL}/v1"\nwire_api = "responses"\n'
    )
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["codex", "exec", *flags, run], {}


def opencode(home, run):
    config = home / "opencode.json"
    model = {"name": MODEL, "limit": {"context": CONTEXT, "output": 2000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{URL}/v1", "apiKey": "none"},
        "models": {MODEL: model},
    }
    name = f"volley/{MODEL}"
    config.write_text(json.dumps({
        "provider": {"volley": provider}, "model": name, "small_model": name,
        "autoupdate": False, "share": "disabled",
    }))
    return ["opencode", "run", "--auto", run], {"OPENCODE_CONFIG": str(config)}


def claude(home, run):
    variables = {
        "ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "2000", "IS_SANDBOX": "1",
        # It gives up on a stream without tokens after 300 s; a busy machine may read for longer.
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "1200000", "API_TIMEOUT_MS": "1200000",
    }
    return ["claude", "-p", "--dangerously-skip-permissions", run], variables


def shell(name, field, **more):
    return lambda project: call(name, **{field: "cat note.txt && ls -a"}, **more)


# How each agent is started, and the calls that write and read.
AGENTS = {
    "qwen": (
        qwen,
        lambda project: call("write_file", file_path=project / "note.txt", content=WORDS),
        shell("run_shell_command", "command", is_background="false"),
    ),
    "codex": (
        codex,
        lambda project: call("exec_command", cmd=f"cat > note.txt <<'END'\n{WORDS}\nEND"),
        shell("exec_command", "cmd"),
    ),
    "opencode": (
        opencode,
        lambda project: call("write", content=WORDS, filePath=project / "note.txt"),
        shell("bash", "command"),
    ),
    "claude": (
        claude,
        lambda project: call("Write", file_path=project / "note.txt", content=WORDS),
        shell("Bash", "command", description="Show the file"),
    ),
}


def long_context(work):
    """The demo pair with a longer limit: the prompts of agents are beyond what it has learnt."""
    folder = work / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("target", "drafter"):
        shutil.copytree(ROOT / "models/demo" / part, folder / part)
        config = folder / part / "config.json"
        text = re.sub(r'("max_position_embeddings": *)\d+', rf"\g<1>{CONTEXT}", config.read_text())
        config.write_text(text)
    return folder


def recordings(folder, pieces_with_tools):
    """Answers in order; those without tools are for titles."""
    folder.mkdir()
    tools = [{"type": "function", "function": {"name": "any"}}]
    plain = ["A title\n"] * 4
    answers = [(tools, text) for text in pieces_with_tools] + [([], text) for text in plain]
    for index, (tools, text) in enumerate(answers):
        pieces = [text[at:at + 7] for at in range(0, len(text), 7)]
        (folder / f"{index:02}.json").write_text(json.dumps({
            "request": {"tools": tools}, "template_state": "think_open",
            "pieces": [THOUGHTS, "</think>\n\n", *pieces], "finish_reason": "stop",
        }))
    return folder


class Server:
    def __init__(self, binary, model, folder, flags):
        self.log = open(folder / "server.log", "w")
        self.recorded = folder / "recorded"
        shutil.rmtree(self.recorded, ignore_errors=True)
        self.process = subprocess.Popen(
            [binary, "serve", model / "target", "--spec", "dflash", "--drafter", model / "drafter",
             "--served-model-name", MODEL, "--max-model-len", str(CONTEXT), "--port", str(PORT),
             "--record", self.recorded, *flags],
            stdout=subprocess.DEVNULL, stderr=self.log,
        )
        for _ in range(300):
            try:
                return urllib.request.urlopen(f"{URL}/ready").close()
            except OSError:
                assert self.process.poll() is None, "the server has ended"
                time.sleep(0.1)
        raise AssertionError("the server does not come up")

    def statuses(self):
        """Responses of the API by status."""
        page = urllib.request.urlopen(f"{URL}/metrics").read().decode()
        counts = {}
        for line in page.splitlines():
            if line.startswith("volley:http_responses_total{") and "/metrics" not in line:
                status = re.search(r'(?:status|code)="(\d+)"', line)[1]
                count = int(float(line.rsplit(" ", 1)[1]))
                if count:
                    counts[status] = counts.get(status, 0) + count
        return counts

    def requests(self):
        files = sorted(self.recorded.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        return [json.loads(file.read_text())["request"] for file in files]

    def end(self):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


def run(binary, model, folder, start, text, flags):
    """One run of an agent: what it printed, its requests, the statuses it got, seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True)
    project.mkdir()
    server = Server(binary, model, folder, flags)
    begin = time.monotonic()
    try:
        command, variables = start(home, text)
        environment = {
            "HOME": str(home), "PATH": f"{folder.parent / 'packages/node_modules/.bin'}:{os.environ['PATH']}",
            "LANG": "C.UTF-8", "TERM": "dumb", **variables,
        }
        done = subprocess.run(
            command, cwd=project, env=environment, stdin=subprocess.DEVNULL, timeout=1200,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        seconds = time.monotonic() - begin
        (folder / "printed.txt").write_text(done.stdout)
        time.sleep(0.5)
        return done, server.requests(), server.statuses(), seconds
    finally:
        server.end()


def judge(name, checks):
    wrong = [what for what, holds in checks.items() if not holds]
    print(f"{name}: " + ("passes" if not wrong else "FAILS: " + "; ".join(wrong)), flush=True)
    return not wrong


def only_good(statuses):
    return bool(statuses) and all(status.startswith("2") for status in statuses)


def reused(folder):
    """Shares of the prompts that were not computed again, of the answers to requests with tools."""
    log = (folder / "server.log").read_text()
    counts = re.findall(r"answered .*?prompt_tokens=(\d+) cached_tokens=(\d+)", log)
    return [int(cached) / int(prompt) for prompt, cached in counts if int(prompt) > 5000]


def drive(binary, model, work, name, only):
    start, write, show = AGENTS[name]
    packages = work / "packages/node_modules"
    version = json.loads((packages / {
        "qwen": "@qwen-code/qwen-code", "codex": "@openai/codex", "opencode": "opencode-ai",
        "claude": "@anthropic-ai/claude-code",
    }[name] / "package.json").read_text())["version"]
    good = only == "tools" or greet(binary, model, work, name, version, start)
    if only == "hello":
        return good

    folder = work / name
    project = folder / "project"
    played = work / f"{name}-answers"
    shutil.rmtree(played, ignore_errors=True)
    recordings(played, [
        "First the file.\n\n" + write(project), show(project), DONE, *["Nothing to keep."] * 3,
    ])
    done, requests, statuses, seconds = run(
        binary, model, folder, start, TASK, ["--replay", str(played)]
    )
    note = project / "note.txt"
    text = json.dumps(requests, ensure_ascii=False)
    in_json = json.dumps(WORDS, ensure_ascii=False)[1:-1]
    shares = reused(folder)
    print(f"{name} {version}, tools: statuses {statuses}, {len(requests)} requests, {seconds:.0f} s, "
          f"of the prompts in the cache: {', '.join(f'{share:.1%}' for share in shares)}")
    return judge(f"{name} {version}, tools", {
        "exit code": done.returncode == 0,
        "statuses": only_good(statuses),
        "streamed": all(request.get("stream") for request in requests),
        "the file is written": note.exists() and note.read_text().strip() == WORDS,
        "the call's result comes back": in_json in text and "note.txt" in text,
        "each prompt goes on from the one before": sum(share > 0.95 for share in shares) >= 2,
        "the last answer is shown": DONE in done.stdout,
    }) and good


def greet(binary, model, work, name, version, start):
    hello = work / f"{name}-hello"
    done, requests, statuses, seconds = run(binary, model, hello, start, GREETING, [])
    sizes = [len(json.dumps(request)) for request in requests]
    print(f"{name} {version}, greeting: statuses {statuses}, bodies of {sizes} bytes, {seconds:.0f} s")
    return judge(f"{name} {version}, greeting", {
        "exit code": done.returncode == 0,
        "statuses": only_good(statuses),
        "the answer is shown": "Hello! I am fine" in done.stdout or "I am sorry" in done.stdout,
    })


def main():
    binary, work, *names = sys.argv[1:]
    work = pathlib.Path(work).resolve()
    model = long_context(work)
    results = []
    for name in names or AGENTS:
        name, _, only = name.partition(":")
        results.append(drive(binary, model, work, name, only))
    sys.exit(not all(results))


main()
