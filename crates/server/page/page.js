"use strict";

const at = (id) => document.getElementById(id);
const conversation = [];
let running = null;

/// An element with a class and a text.
function make(name, kind, text) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
}

function headers() {
  const key = at("key").value.trim();
  return key ? { authorization: `Bearer ${key}` } : {};
}

/// The body of the next request.
function request() {
  const body = {
    messages: [...conversation],
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true, include_token_origins: true },
    chat_template_kwargs: { enable_thinking: at("thinking").checked },
  };
  const system = at("system").value.trim();
  if (system) body.messages.unshift({ role: "system", content: system });
  if (at("temperature").value !== "") body.temperature = Number(at("temperature").value);
  if (at("most").value !== "") body.max_tokens = Number(at("most").value);
  if (!at("drafts").checked) body.speculative = { max_drafts: 0 };
  const tools = at("tools").value.trim();
  if (tools) body.tools = JSON.parse(tools);
  return body;
}

/// Data of the server-sent events of a response.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
    }
  }
}

/// The speed, prefill included, and the fate of the drafts so far.
class Stats {
  constructor() {
    this.start = performance.now();
  }

  show(usage) {
    const seconds = (performance.now() - this.start) / 1000;
    const details = usage.completion_tokens_details;
    const accepted = details.accepted_prediction_tokens;
    const drafted = accepted + details.rejected_prediction_tokens;
    const steps = usage.completion_tokens - accepted;
    at("tokens").textContent = usage.completion_tokens;
    at("speed").textContent = Math.round(usage.completion_tokens / seconds);
    if (steps > 0) at("length").textContent = (usage.completion_tokens / steps).toFixed(1);
    at("share").textContent = drafted ? `${Math.round((100 * accepted) / drafted)} %` : "–";
  }
}

/// An answer on the page, and the message that it makes.
class Answer {
  constructor() {
    this.element = make("article", "answer");
    this.message = { role: "assistant", content: "" };
    this.calls = [];
    at("chat").append(this.element);
  }

  take(choice) {
    const { delta, origin } = choice;
    if (delta.reasoning_content) this.think(delta.reasoning_content, origin);
    if (delta.content) this.say(delta.content, origin);
    for (const call of delta.tool_calls ?? []) this.call(call, origin);
    if (choice.finish_reason === "length") this.element.append(make("p", "note", "cut off at the token limit"));
  }

  think(text, origin) {
    if (!this.thoughts) {
      const folded = make("details", "thoughts");
      this.thoughts = make("pre");
      folded.append(make("summary", "", "Thoughts"), this.thoughts);
      this.element.append(folded);
      this.message.reasoning_content = "";
    }
    this.message.reasoning_content += text;
    append(this.thoughts, text, origin);
  }

  say(text, origin) {
    if (!this.text) {
      this.text = make("div", "text");
      this.element.append(this.text);
    }
    this.message.content += text;
    append(this.text, text, origin);
  }

  call(part, origin) {
    if (part.id) {
      const card = make("section", "call");
      const code = make("pre");
      card.append(make("strong", "", part.function.name), code);
      this.element.append(card);
      this.calls[part.index] = { card, code, id: part.id };
      this.message.tool_calls ??= [];
      this.message.tool_calls.push({ id: part.id, type: "function", function: { name: part.function.name, arguments: "" } });
    }
    this.message.tool_calls[part.index].function.arguments += part.function.arguments;
    if (part.function.arguments) append(this.calls[part.index].code, part.function.arguments, origin);
  }

  /// Asks for the results of the calls; the last one goes on with the chat.
  askForResults() {
    const open = new Set(this.calls);
    for (const call of this.calls) {
      const form = make("form");
      const input = make("input");
      input.placeholder = "result of the call";
      form.append(input, make("button", "", "Return"));
      form.lastChild.type = "submit";
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        conversation.push({ role: "tool", tool_call_id: call.id, content: input.value });
        form.replaceWith(make("pre", "result", input.value));
        open.delete(call);
        if (open.size === 0) answer();
      });
      call.card.append(form);
    }
  }
}

/// Adds text, in the tint of how its tokens came.
function append(element, text, origin) {
  const last = element.lastChild;
  if (last && last.dataset.origin === (origin ?? "")) {
    last.textContent += text;
    return;
  }
  const span = make("span", `token ${origin ?? ""}`, text);
  span.dataset.origin = origin ?? "";
  element.append(span);
}

function fail(text) {
  at("chat").append(make("p", "error", text));
}

function follow() {
  const chat = at("chat");
  if (chat.scrollHeight - chat.scrollTop - chat.clientHeight < 160) chat.scrollTop = chat.scrollHeight;
}

async function answer() {
  let body;
  try {
    body = request();
  } catch (error) {
    return fail(`The tools are no JSON: ${error.message}`);
  }
  running = new AbortController();
  at("send").disabled = true;
  at("stop").hidden = false;
  const stats = new Stats();
  let shown = null;
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json", ...headers() },
      body: JSON.stringify(body),
      signal: running.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    shown = new Answer();
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      event.choices.forEach((choice) => shown.take(choice));
      if (event.usage?.completion_tokens) stats.show(event.usage);
      follow();
    }
  } catch (error) {
    if (error.name !== "AbortError") fail(error.message);
  }
  if (shown) {
    conversation.push(shown.message);
    shown.askForResults();
    shown.element.dataset.done = "yes";
  }
  running = null;
  at("send").disabled = false;
  at("stop").hidden = true;
  follow();
}

function ask(event) {
  event.preventDefault();
  const text = at("text").value.trim();
  if (!text || running) return;
  at("text").value = "";
  conversation.push({ role: "user", content: text });
  at("chat").append(make("div", "user", text));
  answer();
}

function reset() {
  running?.abort();
  conversation.length = 0;
  at("chat").replaceChildren();
  for (const id of ["speed", "length", "share", "tokens"]) at(id).textContent = "–";
}

async function about() {
  const version = await (await fetch("version")).json();
  const { method, num_speculative_tokens: drafts } = version.speculation;
  const how = method === "none" ? "one token per step" : `${method}, ${drafts} drafts per step`;
  at("model").textContent = `${version.model} · ${how}`;
}

at("ask").addEventListener("submit", ask);
at("stop").addEventListener("click", () => running?.abort());
at("reset").addEventListener("click", reset);
at("tint").addEventListener("change", () => at("chat").classList.toggle("tinted", at("tint").checked));
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event);
});
at("key").value = sessionStorage.getItem("key") ?? "";
at("key").addEventListener("change", () => sessionStorage.setItem("key", at("key").value));
at("chat").classList.add("tinted");
about().catch((error) => fail(error.message));
