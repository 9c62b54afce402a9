// The last ten minutes as small plots: inline SVG, one value per second, no library.
//
// A plot is a figure with a legend that shows the latest values, or those under the pointer; with the keyboard the
// arrow keys move that mark. For a screen reader the picture is one sentence.

import { DASH, count, duration, element, milliseconds, set_text, short } from "./format.js";

const WINDOW_S = 600;
/** A router that has just started fills its plots sooner. */
const SPANS_S = [60, 120, 300, WINDOW_S];
const WIDTH = 600;
const HEIGHT = 100;
const KEY_STEP_S = 10;
const SVG = "http://www.w3.org/2000/svg";

const per_second = (unit) => (value) => (value === null ? DASH : `${short(value)} ${unit}`);

/** `columns` are names, or a pattern whose first group is the label. Stacks are drawn on each other. */
const PLOTS = [
  { id: "requests", title: "Requests", kind: "stack", text: per_second("/s"), hides_zeros: true,
    series: [["ok", "ok", 1], ["client_error", "client error", 6], ["rejected", "rejected", 4], ["client_abort", "client left", 5],
      ["upstream_error", "replica error", 2], ["upstream_stall", "replica stall", 2], ["drained", "drained", 6]] },
  { id: "inflight", title: "In the router", kind: "stack", text: count,
    series: [["inflight_decode", "decoding", 1], ["inflight_prefill", "in prefill", 3], ["inflight_queued", "queued", 4]] },
  { id: "ttft", title: "Time to first token", kind: "line", text: milliseconds,
    series: [["ttft_p50_ms", "p50", 1], ["ttft_p95_ms", "p95", 2]] },
  { id: "gap", title: "Time between tokens", kind: "line", text: milliseconds,
    series: [["gap_p50_ms", "p50", 1], ["gap_p95_ms", "p95", 2]] },
  { id: "generated", title: "Generated tokens", kind: "stack", text: per_second("tokens/s"),
    series: [["generated_tokens", "all replicas", 1]] },
  { id: "prompt", title: "Prompt tokens", kind: "line", text: per_second("tokens/s"),
    series: [["prompt_tokens", "begun", 6], ["prefix_predicted", "expected in a cache", 3], ["prefix_confirmed", "found there", 1]] },
  { id: "overhead", title: "The router's own time, p99", kind: "line", text: milliseconds,
    pattern: /^overhead_(.*)_p99_ms$/ },
  { id: "trouble", title: "Trouble", kind: "line", text: per_second("/s"),
    series: [["aborts", "clients left", 5], ["retries", "retries", 4], ["breakers", "breakers opened", 2]] },
];

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The least of 1, 2, 5 × 10^k that is not below `value`: an axis that does not twitch. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value * 0.999);
}

/** The path through [x, y] points; null is a gap, a lone point is a dot. */
function line_path(points) {
  let path = "";
  let is_open = false;
  points.forEach((point, i) => {
    if (point === null) {
      is_open = false;
      return;
    }
    const place = `${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    path += `${is_open ? "L" : "M"}${place}`;
    if (!is_open && (i + 1 === points.length || points[i + 1] === null)) path += `L${place}`;
    is_open = true;
  });
  return path;
}

/** What lies between a line of a stack and the one under it. */
function area_path(points, floor) {
  return points.length === 0 ? "" : `${line_path([...points, ...floor.reverse()])}Z`;
}

class Plot {
  constructor(spec) {
    this.spec = spec;
    this.series = spec.series ?? [];
    this.mark_s = null; // age under the pointer or the keys
    this.span_s = WINDOW_S;
    this.paths = svg("g", {});
    this.mark = svg("line", { class: "mark", y1: 0, y2: HEIGHT, visibility: "hidden" });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: "0" },
      svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
      svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }), this.paths, this.mark);
    this.top = element("span", { class: "top-label number" });
    this.when = element("span", { class: "when muted" });
    this.legend = element("ul", { class: "legend" });
    this.begin = element("span");
    this.node = element("figure", { class: "card plot", "data-plot": spec.id },
      element("figcaption", {}, element("h3", { text: spec.title }), this.when),
      this.legend,
      element("div", { class: "canvas" }, this.top, this.picture),
      element("div", { class: "time muted", "aria-hidden": "true" }, this.begin, element("span", { text: "now" })));
    this.lines = new Map();
    this.listen();
  }

  listen() {
    const mark = (age_s) => {
      this.mark_s = age_s === null ? null : Math.min(this.span_s, Math.max(0, age_s));
      this.describe();
    };
    this.picture.addEventListener("pointermove", (event) => {
      const box = this.picture.getBoundingClientRect();
      mark(this.span_s * (1 - (event.clientX - box.left) / box.width));
    });
    this.picture.addEventListener("pointerleave", () => mark(null));
    this.picture.addEventListener("blur", () => mark(null));
    this.picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: KEY_STEP_S, ArrowRight: -KEY_STEP_S }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      mark((this.mark_s ?? 0) + step);
    });
  }

  /** `rows`: oldest first, each with `age_s`; `column(name)` is the index of a value in it. */
  draw(rows, columns) {
    if (this.spec.pattern) {
      this.series = columns.flatMap((name) => {
        const found = this.spec.pattern.exec(name);
        return found ? [[name, found[1]]] : [];
      }).map(([name, label], i) => [name, label, i + 1]);
    }
    this.rows = rows;
    const oldest_s = rows.length > 0 ? rows[0].age_s : 0;
    this.span_s = SPANS_S.find((span) => span >= oldest_s) ?? WINDOW_S;
    set_text(this.begin, `${this.span_s / 60} min ago`);
    this.index = new Map(columns.map((name, i) => [name, i]));
    const values = this.series.map(([name]) => rows.map((row) => row.values[this.index.get(name)] ?? null));
    const stacked = this.spec.kind === "stack" ? this.stack(values) : values;
    const most = ceiling(Math.max(0, ...stacked.map((one) => one.reduce((a, b) => Math.max(a, b ?? 0), 0))));
    set_text(this.top, this.spec.text(most));
    const is_of_interest = (one) => (this.spec.hides_zeros ? one.some((value) => value > 0) : one.some((value) => value !== null));
    this.shown = this.series.filter((_, i) => i === 0 || is_of_interest(values[i]));
    this.series.forEach(([name, , color], i) => {
      const points = rows.map((row, at) => (stacked[i][at] === null ? null
        : [this.x(row.age_s), HEIGHT * (1 - stacked[i][at] / most)]));
      const { area, line } = this.line_of(name, color);
      const is_drawn = this.shown.some(([other]) => other === name); // else it would lie on its neighbour
      line.setAttribute("d", is_drawn ? line_path(points) : "");
      if (!area) return;
      const floor = rows.map((row, at) => [this.x(row.age_s), HEIGHT * (1 - (stacked[i][at] - (values[i][at] ?? 0)) / most)]);
      area.setAttribute("d", is_drawn ? area_path(points, floor) : "");
    });
    this.describe();
  }

  x(age_s) {
    return WIDTH * (1 - age_s / this.span_s);
  }

  stack(values) {
    const sums = new Array(this.rows.length).fill(0);
    return values.map((one) => one.map((value, at) => (sums[at] += value ?? 0)));
  }

  line_of(name, color) {
    let made = this.lines.get(name);
    if (made === undefined) {
      const line = svg("path", { class: `line color-${color}` });
      const area = this.spec.kind === "stack" ? svg("path", { class: `area color-${color}` }) : null;
      made = { line, area };
      this.lines.set(name, made);
      // The highest of a stack lies at the back, so that each shows its own part.
      if (area) this.paths.prepend(area, line);
      else this.paths.append(line);
    }
    return made;
  }

  /** Legend, mark and the sentence for screen readers: at the mark, or now. */
  describe() {
    if (!this.rows) return;
    const age_s = this.mark_s;
    const row = age_s === null ? this.rows[this.rows.length - 1] : this.nearest(age_s);
    this.mark.setAttribute("visibility", age_s === null ? "hidden" : "visible");
    if (age_s !== null) for (const end of ["x1", "x2"]) this.mark.setAttribute(end, this.x(age_s));
    set_text(this.when, age_s === null ? "" : `${duration(age_s)} ago`);
    const value_of = (name) => this.spec.text(row?.values[this.index.get(name)] ?? null);
    if (this.legend.children.length !== this.shown.length || this.legend.dataset.names !== String(this.shown)) {
      this.legend.dataset.names = String(this.shown);
      this.legend.replaceChildren(...this.shown.map(([, label, color]) => element("li", {},
        element("span", { class: `swatch color-${color}`, "aria-hidden": "true" }),
        element("span", { class: "muted", text: label }), " ", element("span", { class: "number" }))));
    }
    this.shown.forEach(([name], i) => set_text(this.legend.children[i].lastElementChild, value_of(name)));
    const now = this.shown.map(([name, label]) => `${label} ${value_of(name)}`).join(", ");
    const when = age_s === null ? "now" : `${duration(age_s)} ago`;
    this.picture.setAttribute("aria-label", `${this.spec.title}, last ${duration(this.span_s)}; ${when}: ${now}; the axis ends at ${this.top.textContent}.`);
  }

  /** The row of that age, when there is one within two seconds. */
  nearest(age_s) {
    let best = null;
    for (const row of this.rows) {
      if (best === null || Math.abs(row.age_s - age_s) < Math.abs(best.age_s - age_s)) best = row;
    }
    return best !== null && Math.abs(best.age_s - age_s) <= 2 ? best : null;
  }
}

export class Plots {
  constructor(parent) {
    this.plots = PLOTS.map((spec) => new Plot(spec));
    parent.append(...this.plots.map((plot) => plot.node));
    this.forget();
  }

  forget() {
    this.rows = [];
    this.columns = [];
    this.last_number = 0;
  }

  take({ columns, rows }) {
    const now = performance.now() / 1000;
    this.columns = columns;
    for (const row of rows) {
      if (row[0] <= this.last_number) continue;
      this.last_number = row[0];
      this.rows.push({ at: now - row[1], values: row, age_s: 0 });
    }
    const first = this.rows.findIndex((row) => now - row.at <= WINDOW_S);
    this.rows.splice(0, first === -1 ? this.rows.length : first);
  }

  draw() {
    const now = performance.now() / 1000;
    for (const row of this.rows) row.age_s = now - row.at;
    for (const plot of this.plots) plot.draw(this.rows, this.columns);
  }
}
