// Server-sent events out of a fetch body: `for await (const { name, data } of events(response.body)) …`

export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      held += value;
      // A CR at the end may be half of a CR LF; it waits for the rest.
      const parts = held.split(/\r\n\r\n|\n\n|\r\r(?!$)/);
      held = parts.pop();
      for (const part of parts) {
        const event = parse(part);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // of a stream that was left midway; its own end is no news
  }
}

function parse(text) {
  let name = "message";
  const data = [];
  for (const line of text.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment: the ping
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  return data.length > 0 ? { name, data: data.join("\n") } : null;
}
