// The playground: a chat through POST /v1/chat/completions, streamed, as any client would.
//
//   Enter ─▶ messages + settings ─▶ fetch ─▶ events ─▶ Turn (reasoning, content, calls) ─▶ facts of the answer
//                                     └ Stop, Esc: the fetch is aborted, what has come stays
//
// Text of the model is put into text nodes only: whatever it says, it is never markup.

import { KeyWanted, ask_key, has_key, request } from "./api.js";
import { calculate } from "./calculate.js";
import { count, element, milliseconds, set_text, short } from "./format.js";
import { events } from "./sse.js";

const SAMPLE_TOOL = {
  type: "function",
  function: {
    name: "calculate",
    description: "calculate",
    parameters: { type: "object", required: ["formula"], properties: { formula: { type: "string", description: "formula" } } },
  },
};
/** A rate over fewer tokens says little. */
const RATE_TOKENS_MIN = 8;

const at = (id) => document.getElementById(id);

/** One message on the page. */
class Turn {
  constructor(role, title) {
    this.body = element("div", { class: "text" });
    this.node = element("li", { class: "turn", "data-role": role }, element("h3", { text: title }), this.body);
  }

  static said(role, title, text) {
    const turn = new Turn(role, title);
    turn.body.textContent = text;
    return turn;
  }
}

/** An answer as it comes. */
class Answer extends Turn {
  constructor() {
    super("assistant", "Model");
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.summary = element("summary", { text: "Reasoning" });
    this.reasoning_text = element("div", { class: "text", "data-part": "reasoning" });
    this.details = element("details", { class: "reasoning" }, this.summary, this.reasoning_text);
    this.body.dataset.part = "content";
    this.call_list = element("ol", { class: "calls" });
    this.facts = element("dl", { class: "answer-facts" });
    this.details.hidden = this.call_list.hidden = true;
    this.node.insertBefore(this.details, this.body);
    this.node.append(this.call_list, this.facts);
    this.node.classList.add("running");
  }

  add(delta) {
    const reasoning = delta.reasoning_content ?? delta.reasoning;
    if (reasoning) {
      this.reasoning += reasoning;
      this.details.hidden = false;
      this.reasoning_text.append(reasoning);
    }
    if (delta.content) {
      this.content += delta.content;
      this.body.append(delta.content);
    }
    for (const call of delta.tool_calls ?? []) this.add_call(call);
  }

  add_call({ index, id, function: part }) {
    let call = this.calls[index];
    if (call === undefined) {
      call = { id, name: part.name ?? "", arguments: "", code: element("pre", { class: "text" }) };
      this.calls[index] = call;
      this.call_list.hidden = false;
      this.call_list.append(element("li", {}, element("p", {}, "calls ", element("code", { text: call.name })), call.code));
    }
    call.arguments += part.arguments ?? "";
    call.code.textContent = call.arguments;
  }

  fact(name, text) {
    this.facts.append(element("div", {}, element("dt", { text: name }), element("dd", { text })));
  }

  fail(text) {
    this.node.append(element("p", { class: "banner", role: "alert", text }));
  }

  /** As the API wants it back; null when there is nothing to send. */
  message() {
    const calls = this.calls.filter(Boolean);
    if (this.content === "" && calls.length === 0) return null;
    const message = { role: "assistant", content: this.content === "" ? null : this.content };
    if (this.reasoning !== "") message.reasoning_content = this.reasoning;
    if (calls.length > 0) {
      message.tool_calls = calls.map((call) => (
        { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
    }
    return message;
  }
}

/** The words of an error body, whatever its shape. */
async function refusal_text(response) {
  const wait = response.headers.get("retry-after");
  const more = wait ? ` Try again in ${wait} s.` : "";
  try {
    const { error } = await response.json();
    return `${error.message} (${response.status} ${error.code})${more}`;
  } catch {
    return `The router answers ${response.status}.${more}`;
  }
}

export class Playground {
  constructor() {
    this.messages = []; // as the API has them, system message excluded
    this.stopper = null; // of the answer that runs
    this.models = "";
    at("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    at("message").addEventListener("keydown", (event) => {
      // Enter also ends the composition of a character; that one is not ours.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.stopper && !at("view-playground").hidden) this.stop();
    });
    at("stop").addEventListener("click", () => this.stop());
    at("clear").addEventListener("click", () => this.clear());
    if (matchMedia("(max-width: 56rem)").matches) at("settings").open = false;
  }

  show(is_shown) {
    if (is_shown) at("message").focus({ preventScroll: true });
  }

  /** The models that may be asked, from the state. */
  take({ router }) {
    const names = router.models.join("\n");
    if (names === this.models) return;
    this.models = names;
    const select = at("model");
    const chosen = select.value;
    select.replaceChildren(...router.models.map((name) => element("option", { value: name, text: name })));
    if (router.models.includes(chosen)) select.value = chosen;
  }

  send() {
    const text = at("message").value;
    if (this.stopper || text.trim() === "") return;
    at("message").value = "";
    for (const form of at("turns").querySelectorAll("form.results")) form.remove(); // calls that stay without a result
    this.messages.push({ role: "user", content: text });
    this.put(Turn.said("user", "You", text));
    this.run();
  }

  stop() {
    this.stopper?.abort();
  }

  clear() {
    this.stop();
    this.messages = [];
    at("turns").replaceChildren();
    at("talk-empty").hidden = false;
    at("message").focus();
  }

  put(turn) {
    at("talk-empty").hidden = true;
    at("turns").append(turn.node);
    turn.node.scrollIntoView({ block: "nearest" });
  }

  body() {
    const system = at("system").value.trim();
    const body = {
      messages: [...(system === "" ? [] : [{ role: "system", content: system }]), ...this.messages],
      stream: true,
      stream_options: { include_usage: true },
      chat_template_kwargs: { enable_thinking: at("thinking").checked },
    };
    if (at("model").value !== "") body.model = at("model").value;
    // An empty field leaves the choice to the server; a wrong one is refused there, in words.
    if (at("temperature").value !== "") body.temperature = Number(at("temperature").value);
    if (at("max-tokens").value !== "") body.max_tokens = Number(at("max-tokens").value);
    if (at("tool").checked) body.tools = [SAMPLE_TOOL];
    return body;
  }

  busy(is_busy) {
    at("send").hidden = is_busy;
    at("stop").hidden = !is_busy;
    set_text(at("talk-status"), is_busy ? "The model answers." : "The answer has ended.");
  }

  async run() {
    const answer = new Answer();
    const stopper = new AbortController();
    this.stopper = stopper;
    this.put(answer);
    this.busy(true);
    const messages = this.messages;
    try {
      await this.stream(answer, stopper.signal);
    } catch (error) {
      if (error instanceof KeyWanted) {
        answer.fail("This router wants a key. Give it and send again.");
        ask_key(has_key());
      } else if (stopper.signal.aborted) {
        answer.fact("ended", "stopped here");
      } else {
        answer.fail(`The connection broke: ${error.message}`);
      }
    }
    answer.node.classList.remove("running");
    if (this.stopper === stopper) this.stopper = null;
    this.busy(this.stopper !== null);
    if (messages !== this.messages) return; // cleared meanwhile
    const message = answer.message();
    if (message !== null) this.messages.push(message);
    if (message?.tool_calls) this.ask_results(answer, message.tool_calls);
    else if (!at("view-playground").hidden) at("message").focus({ preventScroll: true });
  }

  async stream(answer, signal) {
    const sent_at = performance.now();
    const response = await request("v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(this.body()),
      signal,
    });
    if (!response.ok) {
      answer.fail(await refusal_text(response));
      this.show_headers(answer, response);
      return;
    }
    const end = { usage: null, reason: null, first_at: null, is_done: false };
    for await (const event of events(response.body)) {
      if (event.data === "[DONE]") {
        end.is_done = true;
        continue;
      }
      const body = JSON.parse(event.data);
      if (event.name === "error" || body.error) {
        answer.fail(`${body.error.message} (${body.error.code})`);
        end.is_done = true;
        continue;
      }
      end.usage = body.usage ?? end.usage;
      for (const choice of body.choices ?? []) {
        end.reason = choice.finish_reason ?? end.reason;
        if (end.first_at === null && Object.values(choice.delta).some((part) => part && part !== "assistant")) {
          end.first_at = performance.now();
        }
        this.follow(() => answer.add(choice.delta));
      }
    }
    if (!end.is_done) answer.fail("The stream broke off without its end.");
    this.follow(() => {
      this.show_end(answer, end, sent_at);
      this.show_headers(answer, response);
    });
  }

  /** Runs `change`; a reader who was at the end of the conversation stays there. */
  follow(change) {
    const page = document.scrollingElement;
    const is_at_end = page.scrollHeight - page.scrollTop - page.clientHeight < 80;
    change();
    if (is_at_end) page.scrollTop = page.scrollHeight;
  }

  show_end(answer, { usage, reason, first_at }, sent_at) {
    if (reason) answer.fact("ended", reason);
    if (first_at !== null) answer.fact("first token", milliseconds(first_at - sent_at));
    if (!usage) return;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? 0;
    answer.fact("prompt", `${count(usage.prompt_tokens)} tokens, ${count(cached)} cached`);
    answer.fact("answer", `${count(usage.completion_tokens)} tokens, ${count(reasoning)} of reasoning`);
    if (reasoning > 0) set_text(answer.summary, `Reasoning, ${count(reasoning)} tokens`);
    const seconds = first_at === null ? 0 : (performance.now() - first_at) / 1000;
    if (usage.completion_tokens >= RATE_TOKENS_MIN && seconds > 0) {
      answer.fact("speed", `${short((usage.completion_tokens - 1) / seconds)} tokens/s`);
    }
  }

  show_headers(answer, response) {
    const decision = response.headers.get("x-quadriga-decision");
    if (decision) answer.fact("decision", decision.replaceAll("=", " ").replaceAll("_", " "));
    const warning = response.headers.get("x-quadriga-warning");
    if (warning) answer.fact("warning", warning);
    const id = response.headers.get("x-request-id");
    if (id) answer.fact("request", id);
  }

  /** The model waits for what its calls give; the person may change what we suggest. */
  ask_results(answer, calls) {
    const fields = calls.map((call, i) => {
      const id = `result-${this.messages.length}-${i}`;
      const field = element("input", { id, type: "text", autocomplete: "off" });
      field.value = suggested_result(call.function);
      return { call, field, label: element("label", { for: id, text: `Result of ${call.function.name}` }) };
    });
    const form = element("form", { class: "results" },
      ...fields.flatMap(({ label, field }) => [label, field]),
      element("button", { type: "submit", text: "Send the result" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.stopper || !form.isConnected) return;
      form.remove();
      for (const { call, field } of fields) {
        this.messages.push({ role: "tool", tool_call_id: call.id, content: field.value });
        this.put(Turn.said("tool", `Result of ${call.function.name}`, field.value));
      }
      this.run();
    });
    answer.node.append(form);
    fields[0].field.focus({ preventScroll: true });
  }
}

function suggested_result(call) {
  try {
    const value = calculate(JSON.parse(call.arguments).formula);
    if (value !== null) return `{"result": ${value}}`;
  } catch { /* the model's arguments are not ours to trust */ }
  return '{"result": null}';
}
