// An OpenAI-compatible server over one local model, for tests.
//
//   node nlc_server.mjs MODEL.gguf      from the folder of node_modules, where a copy of this stands
//
// It prints its address once it can answer. POST /v1/chat/completions takes messages, max_tokens or
// max_completion_tokens, temperature, top_p, seed, and a response_format of type json_schema, which
// becomes a grammar. GET /count says how many such requests came and how many were answered. The
// model is a base model without a chat template, so the messages are simply set one below the other.

import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { getLlama, LlamaCompletion, LlamaLogLevel } from "node-llama-cpp";

const [modelPath] = process.argv.slice(2);
const SEQUENCES = 4;
const TOKENS_EACH = 2048;
const MAX_TOKENS = 64; // of a request that names no limit; a base model never stops by itself

const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
  sequences: SEQUENCES,
  contextSize: TOKENS_EACH, // of each sequence
  threads: 1, // more of them wait for each other, for seconds where the cores are busy
  swaFullCache: true, // without it the common start of the prompts can't be reused
});
const name = "gemma-3-270m";
const count = { received: 0, answered: 0 };

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// A request holds one sequence, and waits for it in order of arrival.
const free = Array.from({ length: SEQUENCES }, () => context.getSequence());
const waiting = [];
const taken = () => (free.length ? free.shift() : new Promise((resolve) => waiting.push(resolve)));
const given = (sequence) => (waiting.length ? waiting.shift()(sequence) : free.push(sequence));

// The library's grammars know no bounds, so a bounded whole number becomes a choice.
function choices(schema) {
  const { type, minimum, maximum, properties } = schema;
  const types = [type].flat();
  if (properties) {
    const entries = Object.entries(properties).map(([key, value]) => [key, choices(value)]);
    return { type, properties: Object.fromEntries(entries) };
  }
  if (types.includes("integer") && minimum !== undefined && maximum !== undefined) {
    const numbers = Array.from({ length: maximum - minimum + 1 }, (_, n) => minimum + n);
    return { enum: types.includes("null") ? [...numbers, null] : numbers };
  }
  return schema;
}

async function completion(body, signal) {
  if (!Array.isArray(body.messages)) throw new Refused(400, "messages: missing");
  const prompt = model.tokenize(body.messages.map(({ content }) => content + "\n").join("\n"));
  const limit = body.max_completion_tokens ?? body.max_tokens ?? MAX_TOKENS;
  if (prompt.length + limit > TOKENS_EACH)
    throw new Refused(400, `${prompt.length} + ${limit} tokens exceed the context of ${TOKENS_EACH}`);
  const wanted = body.response_format?.json_schema?.schema;
  const grammar = wanted && (await llama.createGrammarForJsonSchema(choices(wanted)));
  const sequence = await taken();
  try {
    signal.throwIfAborted();
    const before = sequence.tokenMeter.getState();
    const completed = await new LlamaCompletion({ contextSequence: sequence }).generateCompletionWithMeta(
      prompt,
      {
        grammar,
        signal,
        maxTokens: limit,
        repeatPenalty: false, // else a judge that gave a mark shuns it for its next criterion
        temperature: body.temperature ?? 1,
        topP: body.top_p ?? 1,
        seed: body.seed,
      },
    );
    const { usedInputTokens, usedOutputTokens } = sequence.tokenMeter.diff(before);
    return {
      content: completed.response,
      finish_reason: completed.metadata.stopReason === "maxTokens" ? "length" : "stop",
      usage: {
        prompt_tokens: prompt.length,
        completion_tokens: usedOutputTokens,
        total_tokens: prompt.length + usedOutputTokens,
        prompt_tokens_details: { cached_tokens: prompt.length - usedInputTokens },
      },
    };
  } finally {
    given(sequence);
  }
}

async function answer(request, signal) {
  if (request.url === "/count") return count;
  if (request.method !== "POST" || request.url !== "/v1/chat/completions")
    throw new Refused(404, `nothing at ${request.url}`);
  count.received += 1;
  const number = count.received;
  let body;
  try {
    body = JSON.parse(await text(request));
  } catch (error) {
    throw new Refused(400, error.message);
  }
  const { content, finish_reason, usage } = await completion(body, signal);
  count.answered += 1;
  return {
    id: `nlc-${number}`,
    object: "chat.completion",
    created: Math.floor(Date.now() / 1000),
    model: name,
    choices: [{ index: 0, message: { role: "assistant", content }, finish_reason }],
    usage,
  };
}

const server = createServer(async (request, response) => {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const reply = (status, value) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(value));
  };
  try {
    reply(200, await answer(request, gone.signal));
  } catch (error) {
    if (gone.signal.aborted) return;
    const type = error instanceof Refused ? "invalid_request_error" : "server_error";
    reply(error.status ?? 500, { error: { message: error.message, type, code: null } });
  }
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
