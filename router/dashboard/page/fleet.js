// The fleet view: header, warnings, one tile per replica, queue, decisions. Nodes are made once and then only
// rewritten where a value has changed, so that focus, selection and open details survive every poll.

import { DASH, bytes, count, duration, element, milliseconds, rate, set_text } from "./format.js";
import { Plots } from "./plots.js";

const DECISIONS_MAX = 50;
const FEW_DECISIONS = 6; // as many a narrow page shows at first (style.css)

const at = (id) => document.getElementById(id);

class Tile {
  constructor(index) {
    this.values = {};
    const row = (name, label, ...more) => {
      const value = element("dd", { text: DASH });
      this.values[name] = value;
      return element("div", {}, element("dt", { text: label }), value, ...more);
    };
    this.state = element("span", { class: "pill" });
    this.since = element("span", { class: "number" });
    this.instance = element("code");
    this.slots = element("meter", { min: 0, "aria-label": `Replica ${index}: sequences running` });
    this.kv = element("meter", { min: 0, max: 1, "aria-label": `Replica ${index}: KV memory in use` });
    this.kernel_summary = element("summary", { text: "Kernels: not known yet" });
    this.kernel_list = element("ul");
    this.kernels = element("details", { class: "kernels" }, this.kernel_summary, this.kernel_list);
    this.kernel_text = "";
    this.node = element("li", { class: "card tile", "data-replica": index },
      element("div", { class: "tile-head" }, element("h3", { text: `Replica ${index}` }), this.state),
      element("p", { class: "muted" }, this.since, " · ", this.instance),
      element("dl", { class: "pairs" },
        row("running", "Running", this.slots),
        row("kv", "KV memory", this.kv),
        row("queued", "Queued"),
        row("prefill", "Prefill"),
        row("decode", "Decode"),
        row("step", "Step age"),
        row("death", "Last death"),
        row("power", "Power, temperature")),
      this.kernels);
  }

  take(replica) {
    const set = (name, text) => set_text(this.values[name], text);
    const state = replica.is_degraded && replica.state === "READY" ? "DEGRADED" : replica.state;
    // Taken out on purpose: no alarm.
    this.node.dataset.state = replica.is_drained && state === "DOWN" ? "DRAINING" : state;
    const launcher = replica.launcher_state;
    const says_more = launcher && launcher !== "READY" && launcher !== state && state !== "READY";
    // One name for one state, the launcher's, as `quadriga status` has it: what is not there is DOWN anyway.
    const shown = says_more && state !== "DOWN" ? `${state} · ${launcher}` : says_more ? launcher : state;
    set_text(this.state, shown);
    const eta = replica.state === "STARTING" && replica.eta_s ? `, ready in about ${duration(replica.eta_s)}` : "";
    const drained = replica.is_drained ? ", drained by an operator" : "";
    set_text(this.since, `since ${duration(replica.since_s)}${eta}${drained}`);
    set_text(this.instance, replica.instance ?? "no instance");

    const is_known = replica.slots !== null;
    set("running", is_known ? `${count(replica.running)} of ${count(replica.slots)}` : DASH);
    this.slots.hidden = !is_known;
    if (is_known) {
      this.slots.max = Math.max(1, replica.slots);
      this.slots.value = replica.running;
    }
    const has_kv = replica.kv_total_blocks > 0;
    const share = has_kv ? replica.kv_used_blocks / replica.kv_total_blocks : 0;
    set("kv", has_kv ? `${Math.round(100 * share)} %` : DASH);
    this.kv.hidden = !has_kv;
    this.kv.value = share;
    set("queued", rate(replica.queued_tokens, "tokens"));
    set("prefill", rate(replica.prefill_tokens_per_s, "tokens/s"));
    set("decode", rate(replica.decode_tokens_per_s, "tokens/s"));
    // Without work there is no step to wait for.
    const step_age = replica.running === 0 ? "idle" : milliseconds(1000 * replica.step_age_s);
    set("step", replica.step_age_s === null ? DASH : step_age);
    set("death", replica.died_s === null ? "none seen" : `${duration(replica.died_s)} ago`);
    const readings = [rate(replica.watts, "W"), rate(replica.celsius, "°C")].filter((text) => text !== DASH);
    set("power", readings.length > 0 ? readings.join(", ") : DASH);
    this.show_kernels(replica.kernels);
  }

  show_kernels(kernels) {
    const text = JSON.stringify(kernels);
    if (text === this.kernel_text) return;
    this.kernel_text = text;
    this.kernel_list.replaceChildren();
    if (kernels === null || kernels.count === 0) {
      set_text(this.kernel_summary, kernels === null ? "Kernels: not known yet" : "No custom kernels");
      return;
    }
    set_text(this.kernel_summary, `${kernels.armed} of ${kernels.count} kernels armed`);
    for (const kernel of kernels.list) {
      this.kernel_list.append(element("li", { "data-kernel": kernel.state },
        element("code", { text: kernel.name }), " ",
        element("span", { class: "muted", text: kernel.reason ? `${kernel.state}: ${kernel.reason}` : kernel.state })));
    }
  }
}

export class Fleet {
  constructor() {
    this.tiles = new Map();
    this.plots = new Plots(at("plots"));
    this.decisions = new Map(); // number → row of the state, with the moment it ended
    this.rows = new Map(); // number → <tr>
    this.router = null;
    this.is_shown = false;
    at("fact-address").textContent = new URL("v1", document.baseURI).href;
    at("decisions-more").addEventListener("click", () => {
      const shows_all = at("decisions").classList.toggle("all");
      at("decisions-more").setAttribute("aria-expanded", shows_all);
      set_text(at("decisions-more"), shows_all ? "Show fewer" : "Show all");
    });
  }

  /** What this page has already, as a query. */
  cursor() {
    const decisions = Math.max(0, ...this.decisions.keys());
    return `samples_after=${this.plots.last_number}&decisions_after=${decisions}`;
  }

  show(is_shown) {
    this.is_shown = is_shown;
    if (is_shown && this.router) this.plots.draw();
  }

  take(state) {
    const is_other_process = this.router !== null && this.router.id !== state.router.id;
    this.router = state.router;
    if (is_other_process) {
      this.forget(); // we asked with the numbers of the one before; the next poll asks from the start
    } else {
      this.plots.take(state.samples);
      this.take_decisions(state.decisions);
    }
    this.show_facts(state);
    this.show_warnings(state.warnings);
    this.show_tiles(state.replicas);
    this.show_queue(state.queue);
    if (this.is_shown) this.plots.draw();
  }

  forget() {
    this.plots.forget();
    this.decisions.clear();
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  show_facts({ router, replicas }) {
    const models = router.models.length > 0 ? router.models.join(", ") : DASH;
    const kind = replicas.find((replica) => replica.quant !== null);
    set_text(at("fact-model"), kind ? `${models} (${[kind.arch, kind.quant].filter(Boolean).join(", ")})` : models);
    const layout = router.layout === null ? "" : `${router.layout}, `;
    set_text(at("fact-layout"), `${layout}${router.replicas_ready} of ${router.replicas} replicas ready`);
    const versions = [...new Set(replicas.map((replica) => replica.version).filter(Boolean))];
    set_text(at("fact-build"), [`router ${router.version} (${router.commit})`, ...versions.map((v) => `replica ${v}`)].join(", "));
    const keys = router.keys_digest === null ? "" : `, keys ${router.keys_digest}`;
    const drift = router.drifted.length > 0 ? ", DIFFERS FROM DISK" : "";
    set_text(at("fact-config"), `${router.config_digest}${keys}${drift}`);
    set_text(at("fact-uptime"), duration(router.uptime_s));
    document.title = `${router.replicas_ready}/${router.replicas} · Quadriga`;
  }

  show_warnings(warnings) {
    const box = at("warnings");
    const text = warnings.join("\n");
    if (box.dataset.text === text) return;
    box.dataset.text = text;
    box.replaceChildren(...warnings.map((warning) => element("p", { class: "banner", text: warning })));
  }

  show_tiles(replicas) {
    const list = at("tiles");
    const seen = new Set(replicas.map((replica) => replica.index));
    for (const [index, tile] of this.tiles) {
      if (seen.has(index)) continue;
      tile.node.remove();
      this.tiles.delete(index);
    }
    for (const replica of replicas) {
      let tile = this.tiles.get(replica.index);
      if (tile === undefined) {
        tile = new Tile(replica.index);
        this.tiles.set(replica.index, tile);
        const next = [...list.children].find((other) => Number(other.dataset.replica) > replica.index);
        list.insertBefore(tile.node, next ?? null);
      }
      tile.take(replica);
    }
  }

  show_queue(queue) {
    const body = at("queue-classes");
    if (body.children.length !== queue.classes.length) {
      body.replaceChildren(...queue.classes.map((one) => element("tr", {},
        element("th", { scope: "row", text: one.name }),
        element("td", { class: "number" }), element("td", { class: "number" }))));
    }
    queue.classes.forEach((one, i) => {
      const [, waiting, oldest] = body.children[i].children;
      set_text(waiting, count(one.count));
      set_text(oldest, one.oldest_wait_s === null ? DASH : milliseconds(1000 * one.oldest_wait_s));
    });
    set_text(at("queue-places"), `${count(queue.count)} of ${count(queue.count_max)}`);
    set_text(at("queue-bodies"), `${bytes(queue.body_bytes)} of ${bytes(queue.body_bytes_max)}`);
    const { retry_after_s_min: least, retry_after_s_max: most } = queue;
    set_text(at("queue-retry"), least === most ? `${least} s` : `${least} to ${most} s`);
  }

  take_decisions(rows) {
    const now = performance.now() / 1000;
    for (const row of rows) {
      const known = this.decisions.get(row.number);
      this.decisions.set(row.number, { ...row, ended: known?.ended ?? now - row.age_s });
    }
    const numbers = [...this.decisions.keys()].sort((a, b) => b - a);
    for (const old of numbers.splice(DECISIONS_MAX)) {
      this.decisions.delete(old);
      this.rows.get(old)?.remove();
      this.rows.delete(old);
    }
    at("decisions").hidden = numbers.length === 0;
    at("decisions-more").hidden = numbers.length <= FEW_DECISIONS;
    at("decisions-empty").hidden = numbers.length > 0;
    const changed = new Set(rows.map((row) => row.number));
    const body = at("decision-rows");
    for (const number of [...numbers].reverse()) { // oldest first: each new one goes on top
      const decision = this.decisions.get(number);
      let row = this.rows.get(number);
      if (row === undefined) {
        row = element("tr", { "data-number": number });
        this.rows.set(number, row);
        body.prepend(row);
      }
      if (changed.has(number)) row.replaceChildren(...decision_cells(decision));
      const age_s = now - decision.ended;
      set_text(row.firstElementChild, age_s < 1 ? "just now" : `${duration(age_s)} ago`);
    }
  }
}

/** The cells after the first one, which is an age and changes by itself. */
function decision_cells(decision) {
  const cell = (label, text, names = "") => element("td", { text, class: names, "data-label": label });
  const outcome = element("td", { "data-label": "Outcome" },
    element("span", { class: "pill", "data-outcome": decision.outcome, text: (decision.error ?? decision.outcome).replaceAll("_", " ") }));
  const request = element("td", { "data-label": "Request", class: "request" },
    element("code", { text: decision.request_id, title: decision.request_id }));
  const attempts = decision.attempts > 1 ? `, attempt ${decision.attempts}` : "";
  return [
    cell("Ended", "", "number ended"), request, outcome,
    cell("Replica", decision.replica === null ? DASH : String(decision.replica)),
    cell("Reason", `${decision.reason === "-" ? DASH : decision.reason.replaceAll("_", " ")}${attempts}`),
    cell("Queued", milliseconds(decision.queue_ms), "number"),
    cell("Expected", milliseconds(decision.expected_ttft_ms), "number"),
    cell("First token", milliseconds(decision.ttft_ms), "number"),
    cell("Prompt", count(decision.prompt), "number"),
    cell("Cached", count(decision.cached), "number"),
    cell("Generated", count(decision.generated), "number"),
  ];
}
