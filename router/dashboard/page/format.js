// Numbers as people read them: units last, at most three digits that mean something, a dash for what is not known.

export const DASH = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function is_known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** 18231 → "18,231" */
export function count(value) {
  return is_known(value) ? whole.format(value) : DASH;
}

/** Three significant digits, no exponent: 0.0123, 4.56, 78.9, 1,234. */
export function short(value) {
  if (!is_known(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return whole.format(value);
  if (size >= 10) return value.toFixed(1).replace(/\.0$/, "");
  if (size >= 1) return value.toFixed(2).replace(/\.?0+$/, "");
  return String(Number(value.toPrecision(2)));
}

/** Milliseconds: "0.04 ms", "430 ms", "1.24 s", "2 min 5 s". */
export function milliseconds(value) {
  if (!is_known(value)) return DASH;
  if (value < 1000) return `${short(value)} ms`;
  return value < 60_000 ? `${short(value / 1000)} s` : duration(value / 1000);
}

/** Seconds: "4 s", "3 min 12 s", "5 h 3 min", "2 d 4 h". */
export function duration(seconds) {
  if (!is_known(seconds)) return DASH;
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export function rate(value, unit) {
  return is_known(value) ? `${short(value)} ${unit}` : DASH;
}

export function bytes(value) {
  if (!is_known(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB"];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) {
    value /= 1024;
    ++step;
  }
  return `${short(value)} ${units[step]}`;
}

/** An element; properties that are no attribute of every element (text, class, data) have their own word. */
export function element(tag, { text, class: names, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (names) made.className = names;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Writes only what has changed: a screen reader or a selection is not disturbed by the same words again. */
export function set_text(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
