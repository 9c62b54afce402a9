// The page: which view is shown, and the poll of the router's state, once per second.
//
// No stream is held open. A hidden tab asks every 30 s; a router that does not answer is asked after 1, 2, 4, 8,
// then 15 s. The router numbers samples and decisions, so that each poll brings only what is new.

import { KeyWanted, ask_key, has_key, request } from "./api.js";
import { set_text } from "./format.js";
import { Fleet } from "./fleet.js";
import { Playground } from "./playground.js";

const POLL_MS = 1_000;
const POLL_HIDDEN_MS = 30_000;
const RETRY_MS_MAX = 15_000;
const TIMEOUT_MS = 10_000;

const live = document.getElementById("live");
const live_text = document.getElementById("live-text");
const fleet = new Fleet();
const playground = new Playground();

let timer = 0;
let failures = 0;
let is_polling = false;

function say(state, text) {
  live.dataset.state = state;
  set_text(live_text, text);
}

function schedule(ms) {
  clearTimeout(timer);
  timer = setTimeout(poll, ms);
}

async function poll() {
  if (is_polling) return;
  is_polling = true;
  try {
    const response = await request(`dashboard/state?${fleet.cursor()}`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!response.ok) throw new Error(`The router answers ${response.status}.`);
    const state = await response.json();
    failures = 0;
    fleet.take(state);
    playground.take(state);
    say("live", "live");
    schedule(document.hidden ? POLL_HIDDEN_MS : POLL_MS);
  } catch (error) {
    if (error instanceof KeyWanted) {
      say("lost", "a key is needed");
      is_polling = false;
      if (await ask_key(has_key())) schedule(0);
      return;
    }
    const wait = Math.min(RETRY_MS_MAX, POLL_MS * 2 ** failures++);
    say("lost", `no answer, next try in ${Math.round(wait / 1000)} s`);
    schedule(wait);
  } finally {
    is_polling = false;
  }
}

function show_view() {
  const name = location.hash === "#playground" ? "playground" : "fleet";
  for (const view of ["fleet", "playground"]) {
    // No element has the name of a view as its id: the browser would move the focus to it.
    document.getElementById(`view-${view}`).hidden = view !== name;
    const link = document.getElementById(`link-${view}`);
    if (view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  fleet.show(name === "fleet");
  playground.show(name === "playground");
}

addEventListener("hashchange", show_view);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) schedule(0);
});
document.getElementById("key-button").addEventListener("click", async () => {
  if (await ask_key(false)) schedule(0);
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view, not a place in it
  document.getElementById("main").focus();
});

show_view();
poll();
