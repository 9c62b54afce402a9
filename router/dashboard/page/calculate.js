// + - * / and parentheses, for the sample tool of the playground. null for anything else.

const DEPTH_MAX = 32;

export function calculate(text) {
  if (typeof text !== "string") return null;
  const tokens = text.replace(/[×·]/g, "*").replace(/÷/g, "/").match(/\d+(?:\.\d+)?|[-+*/()]|\S/g) ?? [];
  let next = 0;
  let depth = 0;

  const sum = () => {
    let value = product();
    while (tokens[next] === "+" || tokens[next] === "-") value = tokens[next++] === "+" ? value + product() : value - product();
    return value;
  };
  const product = () => {
    let value = factor();
    while (tokens[next] === "*" || tokens[next] === "/") value = tokens[next++] === "*" ? value * factor() : value / factor();
    return value;
  };
  const factor = () => {
    if (++depth > DEPTH_MAX) return NaN;
    const token = tokens[next++];
    let value = NaN;
    if (token === "-") value = -factor();
    else if (token === "(") {
      value = sum();
      if (tokens[next++] !== ")") value = NaN;
    } else if (token !== undefined && /^\d/.test(token)) value = Number(token);
    --depth;
    return value;
  };

  const value = sum();
  return next >= tokens.length && Number.isFinite(value) ? value : null;
}
