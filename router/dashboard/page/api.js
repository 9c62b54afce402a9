// Requests to the router, with the key of this tab. The key is typed once, kept in sessionStorage, and
// goes nowhere else.

const STORE = "quadriga-key";

export class KeyWanted extends Error {}

const dialog = document.getElementById("key-dialog");
const field = document.getElementById("key");
const message = document.getElementById("key-message");
const button = document.getElementById("key-button");
const first_message = message.textContent;

let waiting = null; // resolves when the dialog closes

function close(has_key) {
  dialog.close();
  field.value = "";
  waiting?.(has_key);
  waiting = null;
}

/** True when a key was given, false when the dialog was left. */
export function ask_key(is_wrong) {
  button.hidden = false;
  message.textContent = is_wrong ? "That key was not accepted. Try another one." : first_message;
  if (!dialog.open) dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    waiting?.(false);
    waiting = resolve;
  });
}

export function has_key() {
  return sessionStorage.getItem(STORE) !== null;
}

/** fetch with the key; throws KeyWanted on 401. Paths are relative: a proxy may put us under a prefix. */
export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = sessionStorage.getItem(STORE);
  if (key !== null) headers.set("authorization", `Bearer ${key}`);
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (response.status === 401) throw new KeyWanted();
  return response;
}

document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = field.value.trim();
  if (key === "") return;
  sessionStorage.setItem(STORE, key);
  close(true);
});
document.getElementById("key-cancel").addEventListener("click", () => close(false));
dialog.addEventListener("cancel", (event) => {
  event.preventDefault();
  close(false);
});
