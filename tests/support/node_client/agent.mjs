// A tool-calling agent loop and a streamed one with the unmodified `openai` client. Prints one line of JSON.
// Usage: node agent.mjs BASE_URL SESSION

import OpenAI from "openai";

const [baseURL, session] = process.argv.slice(2);
const client = new OpenAI({
  baseURL,
  apiKey: "none",
  maxRetries: 0,
  defaultHeaders: { "X-Autellix-Session": session },
});
const add = { type: "function", function: { name: "add", parameters: { type: "object" } } };
const messages = [{ role: "user", content: "what is 1 + 2?" }];

let turns = 0;
let answer;
for (;;) {
  turns += 1;
  const completion = await client.chat.completions.create({ model: "tiny", messages, tools: [add] });
  answer = completion.choices[0].message;
  messages.push(answer);
  if (!answer.tool_calls?.length) break;
  for (const call of answer.tool_calls) {
    const { a, b } = JSON.parse(call.function.arguments);
    messages.push({ role: "tool", tool_call_id: call.id, content: String(a + b) });
  }
}

let text = "";
for (let turn = 0; turn < 2; turn += 1) {
  const stream = await client.chat.completions.create({ model: "tiny", messages, stream: true });
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
}

const { response } = await client.chat.completions.create({ model: "tiny", messages }).withResponse();
let refused;
try {
  await client.chat.completions.create({ model: "gpt-9", messages });
} catch (error) {
  refused = [error.constructor.name, error.status, error.code];
}
console.log(
  JSON.stringify({ turns, answer: answer.content, text, program: response.headers.get("x-autellix-program"), refused }),
);
