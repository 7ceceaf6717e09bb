// Chats, tool calls, formats, responses and errors through openai-node. Usage: openai_node.mjs BASE_URL
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const model = "volley-demo";
const parameters = {
  type: "object",
  properties: { place: { type: "string" } },
  required: ["place"],
};
const weather = { name: "get_weather", description: "Get the current weather", parameters };
const user = (content) => ({ role: "user", content });

async function chat() {
  const request = { model, temperature: 0, messages: [user("What is 17 + 25?")] };
  const whole = await client.chat.completions.create(request);
  assert.match(whole.choices[0].message.content, /42/);
  assert.match(whole.choices[0].message.reasoning_content, /17/);
  const stream = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
  assert.equal(await stream.finalContent(), whole.choices[0].message.content);
  assert.equal((await stream.finalChatCompletion()).usage.total_tokens, whole.usage.total_tokens);
}

async function toolCall() {
  const messages = [user("What's the weather in Bergen?")];
  const tools = [{ type: "function", function: weather }];
  const stream = client.chat.completions.stream({ model, temperature: 0, messages, tools });
  const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
  assert.equal(finish_reason, "tool_calls");
  const [call] = message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { place: "Bergen" });
  const content = '{"city": "Bergen", "temperature": 27, "condition": "snowy", "wind": 1}';
  messages.push(message, { role: "tool", tool_call_id: call.id, content });
  const end = await client.chat.completions.create({ model, temperature: 0, messages, tools });
  assert.match(end.choices[0].message.content, /27/);
}

async function format() {
  const sum = z.object({ answer: z.number().int(), unit: z.enum(["none", "euros"]) });
  const response_format = zodResponseFormat(sum, "sum");
  const request = { model, temperature: 0, messages: [user("What is 17 + 25?")], response_format };
  const whole = (await client.chat.completions.parse(request)).choices[0].message.parsed;
  assert(Number.isInteger(whole.answer), whole);
  const stream = client.chat.completions.stream(request);
  assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, whole);
}

async function response() {
  const request = { model, temperature: 0, input: "What is 17 + 25?" };
  const whole = await client.responses.create(request);
  assert.match(whole.output_text, /42/);
  const final = await client.responses.stream(request).finalResponse();
  assert.equal(final.output_text, whole.output_text);
}

async function errors() {
  const messages = [user("word ".repeat(20000))];
  await assert.rejects(client.chat.completions.create({ model, messages }), (error) =>
    error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded" &&
    error.message.includes("maximum context length"));
  await assert.rejects(client.chat.completions.create({ model: "gpt-4", messages: [user("Hi")] }), (error) =>
    error instanceof OpenAI.NotFoundError && error.message.includes("gpt-4"));
}

async function abort() {
  const stream = await client.chat.completions.create({ model, messages: [user("Hello!")], stream: true, ignore_eos: true });
  for await (const _ of stream) break;
  stream.controller.abort();
  const root = process.argv[2].replace(/\/v1$/, "");
  for (let i = 0; ; i++) {
    const page = await (await fetch(`${root}/metrics`)).text();
    if (/^vllm:num_requests_running\{.*\} 0$/m.test(page)) break;
    assert(i < 100, "the request goes on after its client has gone");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

for (const check of [chat, toolCall, format, response, errors, abort]) {
  await check();
  console.log(`openai-node ${check.name}: ok`);
}
