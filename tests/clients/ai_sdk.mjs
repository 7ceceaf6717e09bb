// Text, thoughts, tools, formats and errors through the AI SDK. Usage: ai_sdk.mjs BASE_URL
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const volley = createOpenAICompatible({ name: "volley", baseURL: process.argv[2], includeUsage: true, supportsStructuredOutputs: true });
const model = volley("volley-demo");
const settings = { model, temperature: 0, maxRetries: 0 };

async function text() {
  const whole = await generateText({ ...settings, prompt: "What is 17 + 25?" });
  assert.match(whole.text, /42/);
  assert.notEqual(whole.reasoningText, "");
  assert.equal(whole.finishReason, "stop");
  const stream = streamText({ ...settings, prompt: "What is 17 + 25?" });
  const kinds = [];
  for await (const part of stream.fullStream) {
    assert.notEqual(part.type, "error", JSON.stringify(part));
    if (kinds.at(-1) !== part.type) kinds.push(part.type);
  }
  assert(kinds.indexOf("reasoning-delta") < kinds.indexOf("text-delta"), kinds.join());
  assert.equal(await stream.text, whole.text);
  const usage = await stream.usage;
  assert.equal(usage.outputTokens, whole.usage.outputTokens);
  assert(usage.reasoningTokens > 0);
}

async function tools() {
  const weather = tool({
    description: "Get the current weather",
    inputSchema: z.object({ place: z.string() }),
    execute: async ({ place }) => ({ city: place, temperature: 27, condition: "snowy", wind: 1 }),
  });
  const stream = streamText({
    ...settings,
    prompt: "What's the weather in Bergen?",
    tools: { get_weather: weather },
    stopWhen: stepCountIs(3),
  });
  assert.match(await stream.text, /27/);
  const steps = await stream.steps;
  assert.deepEqual(steps.map((step) => step.finishReason), ["tool-calls", "stop"]);
  assert.deepEqual(steps[0].toolCalls[0].input, { place: "Bergen" });
}

async function format() {
  const schema = z.object({ answer: z.number().int(), unit: z.enum(["none", "euros"]) });
  const request = { ...settings, prompt: "What is 17 + 25?", output: Output.object({ schema }) };
  const whole = (await generateText(request)).output;
  assert(Number.isInteger(whole.answer), whole);
  assert.deepEqual(await streamText(request).output, whole);
}

async function errors() {
  await assert.rejects(generateText({ ...settings, model: volley("gpt-4"), prompt: "Hi" }), /gpt-4/);
  await assert.rejects(generateText({ ...settings, prompt: "word ".repeat(20000) }), /maximum context length/);
}

for (const check of [text, tools, format, errors]) {
  await check();
  console.log(`AI SDK ${check.name}: ok`);
}
