#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into seeds/: small inputs that reach far, and nasty ones.

Inputs that fuzzing found lie beside them as found-NAME; this program leaves those alone. The layout of an
input (the bytes in front of the text) is in the header comment of each target.
"""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def write(target: str, name: str, data: bytes) -> None:
    folder = HERE / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# ---- GGUF ----


def string(text) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind: int, data) -> bytes:
    formats = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B",
               U64: "<Q", I64: "<q", F64: "<d"}
    return string(data) if kind == STRING else struct.pack(formats[kind], data)


def entry(key: str, kind: int, data) -> bytes:
    return string(key) + struct.pack("<I", kind) + value(kind, data)


def array(key: str, kind: int, items) -> bytes:
    head = string(key) + struct.pack("<IIQ", ARRAY, kind, len(items))
    return head + b"".join(value(kind, item) for item in items)


def gguf(entries, tensors, version=3, alignment=32) -> bytes:
    """tensors: (name, dimensions, type, bytes of data)."""
    directory, data = b"", b""
    for name, shape, kind, size in tensors:
        data += b"\0" * (-len(data) % alignment)
        directory += string(name) + struct.pack("<I", len(shape))
        directory += b"".join(struct.pack("<Q", n) for n in shape) + struct.pack("<IQ", kind, len(data))
        data += bytes(i * 37 % 251 for i in range(size))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + directory
    return head + b"\0" * (-len(head) % alignment) + data


def bpe_entries(pre="qwen2"):
    tokens = ["!", "a", "b", "c", "h", "e", "l", "o", "he", "ll", "hell", "hello", "\u0120", "<|im_end|>",
              "<think>", "[PAD1]"]
    types = [1] * 13 + [3, 4, 5]
    return [entry("tokenizer.ggml.model", STRING, "gpt2"), entry("tokenizer.ggml.pre", STRING, pre),
            array("tokenizer.ggml.tokens", STRING, tokens), array("tokenizer.ggml.token_type", I32, types),
            array("tokenizer.ggml.merges", STRING, ["h e", "l l", "he ll", "hell o"]),
            entry("tokenizer.ggml.bos_token_id", U32, 13), entry("tokenizer.ggml.eos_token_id", U32, 13),
            entry("tokenizer.ggml.add_bos_token", BOOL, 1),
            entry("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m.content }}{% endfor %}")]


def spm_entries():
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(0, 256, 3)] + ["\u2581", "h", "e", "he", "\u2581he"]
    count = len(tokens)
    types = [2, 3, 3] + [6] * (count - 8) + [1] * 5
    return [entry("tokenizer.ggml.model", STRING, "llama"), array("tokenizer.ggml.tokens", STRING, tokens),
            array("tokenizer.ggml.scores", F32, [-float(i) for i in range(count)]),
            array("tokenizer.ggml.token_type", I32, types), entry("tokenizer.ggml.unknown_token_id", U32, 0),
            entry("tokenizer.ggml.add_space_prefix", BOOL, 0)]


def model_entries(arch: str):
    keys = [("embedding_length", U32, 64), ("context_length", U32, 128), ("block_count", U32, 4),
            ("feed_forward_length", U32, 96), ("attention.head_count", U32, 4),
            ("attention.head_count_kv", U32, 2), ("attention.layer_norm_rms_epsilon", F32, 1e-5),
            ("rope.freq_base", F32, 10000.0)]
    if arch == "qwen35":
        keys += [("attention.key_length", U32, 32), ("attention.value_length", U32, 32),
                 ("rope.dimension_count", U32, 16), ("full_attention_interval", U32, 4),
                 ("ssm.conv_kernel", U32, 4), ("ssm.state_size", U32, 16), ("ssm.group_count", U32, 2),
                 ("ssm.time_step_rank", U32, 4), ("ssm.inner_size", U32, 64), ("nextn_predict_layers", U32, 1)]
    entries = [entry("general.architecture", STRING, arch), entry("general.name", STRING, "seed"),
               entry("general.alignment", U32, 32)]
    entries += [entry(f"{arch}.{key}", kind, data) for key, kind, data in keys]
    if arch == "qwen35":
        entries.append(array("qwen35.rope.dimension_sections", I32, [3, 3, 2, 0]))
    return entries


def gguf_seeds() -> None:
    embedding = ("token_embd.weight", [64, 4], 0, 64 * 4 * 4)
    q4_k = ("blk.0.attn_q.weight", [256, 2], 12, 2 * 144)
    norm = ("blk.0.attn_norm.weight", [64], 0, 256)
    write("gguf", "llama-spm", gguf(model_entries("llama") + spm_entries(), [embedding, norm]))
    write("gguf", "qwen2-bpe", gguf(model_entries("qwen2") + bpe_entries(), [embedding, q4_k]))
    write("gguf", "qwen35-bpe", gguf(model_entries("qwen35") + bpe_entries("qwen35"), [embedding]))
    write("gguf", "llama3-bpe", gguf(model_entries("llama") + bpe_entries("llama-bpe"), [embedding]))
    yarn = [entry("qwen3.rope.scaling.type", STRING, "yarn"), entry("qwen3.rope.scaling.factor", F32, 4.0),
            entry("qwen3.rope.scaling.attn_factor", F32, 1.0),
            array("qwen3.attention.recurrent_layers", BOOL, [1, 0, 0, 1])]
    write("gguf", "qwen3-yarn", gguf(model_entries("qwen3") + yarn, [embedding]))
    kinds = [entry("k.u8", U8, 1), entry("k.i8", I8, -1), entry("k.u16", U16, 7), entry("k.i16", I16, -7),
             entry("k.u64", U64, 2**63), entry("k.i64", I64, -2**63), entry("k.f64", F64, 1e300),
             entry("k.bool", BOOL, 1), entry("k.text", STRING, "a\n\x1b\u00e9"), array("k.none", STRING, []),
             array("k.f64s", F64, [0.5, float("nan"), float("inf")]), array("k.texts", STRING, ["", "x" * 50])]
    write("gguf", "kinds", gguf(kinds, [("t", [], 0, 4)], version=2))
    write("gguf", "split", gguf([entry("split.no", U16, 0), entry("split.count", U16, 2),
                                 entry("split.tensors.count", I32, 1)], [embedding]))
    whole = gguf(model_entries("llama") + spm_entries(), [embedding])
    write("gguf", "cut", whole[: len(whole) - 100])
    write("gguf", "cut-header", whole[:200])
    write("gguf", "counts", b"GGUF" + struct.pack("<IQQ", 3, 2**62, 2**62))
    write("gguf", "big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    write("gguf", "overlap", gguf([], [embedding, norm]).replace(struct.pack("<Q", 1024), struct.pack("<Q", 992), 1))
    write("gguf", "huge-array", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") +
          struct.pack("<IIQ", ARRAY, U64, 2**61) + b"\0" * 64)
    # A token of one letter that is a control token: text must not become it.
    odd = bpe_entries()
    odd[3] = array("tokenizer.ggml.token_type", I32, [3] * 16)
    write("gguf", "control-letters", gguf(odd, [embedding]))
    odd = bpe_entries()
    odd[4] = array("tokenizer.ggml.merges", STRING, ["a b", "  x", "no", "he llo", "\u0120 \u0120"])
    write("gguf", "odd-merges", gguf(odd, [embedding]))


# ---- JSON bodies ----


def json_seeds() -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "description": "d", "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Rome\"}"}}
    chat = {"model": "m", "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}, {"type": "text", "text": "\u00e9\U0001f600"}]},
        {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": [call, dict(call, id="call_2")]},
        {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "reasoning_content": "So."}],
        "tools": [tool], "tool_choice": "auto", "parallel_tool_calls": False, "stream": True,
        "stream_options": {"include_usage": True, "odd": 1}, "max_completion_tokens": 64, "temperature": 0.7}
    everything = {"messages": [{"role": "user", "content": "x"}], "n": 2, "top_p": 0.9, "min_p": 0.05, "top_k": 40,
                  "frequency_penalty": -2, "presence_penalty": 2.0, "repetition_penalty": 1.1, "seed": 5e0, "stop": ["a", "\n"],
                  "stop_token_ids": [1, 2], "logit_bias": {"5": -100, "6": 1.5}, "min_tokens": 1, "ignore_eos": True,
                  "logprobs": True, "top_logprobs": 3, "reasoning_effort": "low", "thinking_token_budget": -1,
                  "chat_template_kwargs": {"enable_thinking": False}, "priority": 1, "user": "u", "include_timings": True,
                  "return_token_ids": True, "unknown_field": [1], "store": True, "modalities": ["text"]}
    schema = {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", "json_schema": {
        "name": "s", "strict": True, "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}}
    choice = {"messages": [{"role": "user", "content": "x"}], "tools": [tool],
              "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                  {"type": "function", "function": {"name": "get_weather"}}]}}}
    named = {"messages": [{"role": "user", "content": "x"}], "tools": [tool],
             "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    outputs = {"prompt": "x", "structured_outputs": {"regex": "[0-9]+", "json": False}}
    ended = {"messages": [{"role": "assistant", "content": "I"}], "continue_final_message": True, "chat_template": "{{ x }}"}
    bodies = {"chat": chat, "everything": everything, "schema": schema, "allowed": choice, "named": named, "continue": ended,
              "completion": {"prompt": ["a", "b"], "max_tokens": 3, "echo": True, "n": 1, "best_of": 1},
              "token-prompts": {"prompt": [[1, 2], [3]], "logprobs": 2}, "outputs": outputs,
              "choices": {"prompt": [1, 2.0, 3e0], "structured_outputs": {"choice": ["yes", "no"]}},
              "grammar": {"prompt": "x", "grammar": "root ::= \"a\"", "suffix": None}}
    for name, body in bodies.items():
        write("json", name, b"\x01" + json.dumps(body, ensure_ascii=False).encode())
    nasty = {"empty": b"", "spaces": b" \t\r\n", "deep": b"[" * 200, "deep-closed": b"[" * 128 + b"]" * 128,
             "objects": b'{"a":' * 100 + b"1" + b"}" * 100, "twice": b'{"a":1,"a":2}', "mark": b"\xef\xbb\xbf{}",
             "surrogate": b'"\\ud83d"', "pair": b'"\\ud83d\\ude00\\u0000"', "overlong": b'"\xc0\xaf"', "after": b"{} x",
             "zero": b"[-0, -0.0, 0e5, 00]", "tiny": b"[1e-400, 0.0000001e-330, 4.9e-324]", "huge": b"[1e400]",
             "integers": b"[18446744073709551615, -9223372036854775808, 9007199254740993]",
             "too-large": b"18446744073709551616", "nan": b"[NaN]", "comment": b"[1, /* x */ 2]", "comma": b"[1,]",
             "control": b'"\x01"', "odd-name": b'{"messages":[{"role":"user","content":""}],"dry_\\u001b[31m":1}',
             "odd-output": b'{"prompt":"x","structured_outputs":{"\\n\\u0007":1}}',
             "odd-stream": b'{"prompt":"x","stream":true,"stream_options":{"\\u001b":1}}',
             "arguments": b'{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\\"a\\":[[[]]]}"}}]}]}'}
    for name, body in nasty.items():
        write("json", "nasty-" + name, b"\x00" + body)
    for role in ("user", "assistant"):
        message = {"role": role, "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "OPEN1CLOSE"}}]}
        body = json.dumps({"messages": [message]}).encode().replace(b"OPEN", b"\x01").replace(b"CLOSE", b"\x02")
        write("json", "nasty-deep-arguments-" + role, b"\x08" + body)
    write("json", "nasty-small-limits", b"\x06" + json.dumps(chat).encode())


# ---- templates ----


def jinja_seeds() -> None:
    golden = json.loads((GOLDEN / "foal-template.json").read_text())
    for index, case in enumerate(golden["cases"][:12]):
        write("jinja", f"golden-{index:02}", b"\x03" + json.dumps(case["context"], ensure_ascii=False).encode())
    features = json.loads((GOLDEN / "jinja-features.json").read_text())
    for index, case in enumerate(features["cases"]):
        context = json.dumps(case["context"], ensure_ascii=False)
        flags = (2, 6, 0)[index % 3]
        write("jinja", f"feature-{index:03}", bytes([flags]) + case["template"].encode() + b"\0" + context.encode())
    nasty = {
        "endless-macro": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "deep-parens": "{{ " + "(" * 300, "deep-not": "{{ " + "not " * 300 + "a }}", "minus": "{{ " + "-" * 200 + "1 }}",
        "doubling": "{% set ns = namespace(v=x) %}{% for i in range(90) %}{% set ns.v = ns.v ~ ns.v %}{% endfor %}{{ ns.v }}",
        "lists": "{% set ns = namespace(v=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}{{ ns.v }}",
        "loops": "{% for a in range(900) %}{% for b in range(900) %}{% endfor %}{% endfor %}",
        "cycle": "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{{ ns == ns }}{{ [ns]|tojson }}",
        "large": "{{ 'x' * 9223372036854775807 }}", "power": "{{ 2 ** 63 }}{{ 9223372036854775807 + 1 }}",
        "division": "{{ 1 // 0 }}", "modulo": "{{ -9223372036854775808 % -1 }}", "smallest": "{{ (-9223372036854775807 - 1) // -1 }}",
        "private": "{{ x.__class__.__mro__ }}", "slice": "{{ x[::-1] }}{{ x[-9223372036854775808:9223372036854775807:-1] }}{{ x[1:2:0] }}",
        "unclosed": "{% if x %}{{ 'a", "comment": "{# {{ #}{#- -#}{%- raw -%}{{ x }}{%- endraw -%}",
        "indent": "{{ x|tojson(indent=1000) }}{{ x|indent(4, true) }}",
        "transforms": "{{ x|upper }}{{ x|title }}{{ x|capitalize }}{{ x|trim }}{{ x|replace('a', 'b') }}{{ x.split()|join('-') }}"
                      "{{ x|list|join }}{{ x|reverse }}{{ x.strip().lstrip('<').rstrip() }}{{ x|tojson }}{{ [x, {x: x}] }}{{ x|string|escape }}",
        "keys": "{% for k, v in m.items() %}{{ k }}={{ v }}{% endfor %}{{ m }}{{ m|tojson }}{{ m|dictsort }}{{ m.keys()|list|sort|join(',') }}",
        "groups": "{{ l|map(attribute='a')|unique|sort(reverse=true)|join(', ') }}{{ l|selectattr('a', 'eq', 'b')|list }}"
                  "{{ l|groupby('a') }}{{ l|sum(attribute='n') }}{{ l|batch(2)|list }}{{ l|first }}{{ l|last }}{{ l|length }}",
        "text": "{{ 'a%sb' % x }}{{ x.startswith('<') }}{{ x.find('a') }}{{ x[0] }}{{ x[-1] }}{{ x|truncate(3) }}{{ x|wordcount }}",
        "now": "{{ strftime_now('%Y-%m-%d %H:%M:%S %j %A %B %%') }}{{ raise_exception(x) }}",
        "inline": "{{ 'a' if x else 'b' }}{{ x is defined and x is not none }}{{ x in [1, 'a'] }}{{ not x }}{{ 1 < 2 < 3 }}{{ x ~ 1 ~ true }}",
        "macro": "{%- macro r(t, d=x) -%}<{{ t }}|{{ d }}>{%- endmacro -%}{% set a = r(x) %}{{ a }}{{ r('b', d='c') }}{{ caller }}",
        "loop-fields": "{% for c in x %}{{ loop.index }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}"
                       "{% if loop.last %}{% break %}{% else %}{% continue %}{% endif %}{% else %}none{% endfor %}",
    }
    context = {"x": "<a> b\u00e9 \u00df\n", "m": {"k1": "v", "k2": 2}, "l": [{"a": "b", "n": 1}, {"a": "c", "n": 2.5}]}
    for name, source in nasty.items():
        write("jinja", "nasty-" + name, b"\x06" + source.encode() + b"\0" + json.dumps(context, ensure_ascii=False).encode())


# ---- streams, stop strings, model output ----


def sse_seeds() -> None:
    stream = b'data: {"id":1}\n\nevent: error\ndata: a\ndata:  b\n\n: ping\n\ndata: [DONE]\n\n'
    seeds = {"lf": stream, "crlf": stream.replace(b"\n", b"\r\n"), "cr": stream.replace(b"\n", b"\r"),
             "mixed": b"\xef\xbb\xbfdata: a\r\r\ndata: b\n\r\ndata\n\ndata:\n\n", "mark-later": b"data: a\n\n\xef\xbb\xbfdata: b\n\n",
             "fields": b"id: 1\nretry: 5\nevent:x\nevent: y\n\nevent\ndata\ndata\n\n:\n\nunknown\n\n", "open": b"data: a\nda",
             "cr-end": b"data: a\n\r", "nul": b"data: \0\xff\n\n"}
    for name, text in seeds.items():
        write("sse", name, b"\x03\x00" + text)
    write("sse", "small-limit", b"\x05\x10" + stream)
    write("sse", "too-large", b"\x05\x08data: 0123456789\n\ndata: a\n\n")
    write("sse", "many-lines", b"\x05\x20" + b"data\n" * 20)
    write("sse", "comments", b"\x05\x20" + b":\n" * 100)


def stop_seeds() -> None:
    for name, flags, strings, text in [
            ("plain", 0, b"</s>\nUser:", b"Hello</s> User:"), ("overlap", 0, b"abab\nbabc\nc", b"abababc"),
            ("nested", 1, b"aaaa\naa\na", b"baaaaab"), ("inside", 0, b"bcd\nabcde", b"abcd abcde"), ("none", 0, b"", b"text"),
            ("utf8", 1, "\u00e9\n\U0001f600".encode(), "caf\u00e9 \U0001f600".encode()), ("held", 0, b"abcdefghij", b"abcdefghabcdefghi")]:
        write("stop", name, bytes([7, flags]) + strings + b"\0" + text)


def output_seeds() -> None:
    none, xml, hermes, llama3 = range(4)
    start, reasoning, content = range(3)
    xml_call = "<tool_call>\n<function=f>\n<parameter=s>\ntext </parameter> more\n</parameter>\n<parameter=i>\n5\n</parameter>\n" \
               "<parameter=o>\n{\"a\": [1, \"x\"]}\n</parameter>\n</function>\n</tool_call>"
    hermes_call = '<tool_call>\n{"name": "f", "arguments": {"s": "a\\"b}", "o": {"x": [1]}}}\n</tool_call>'
    cases = [
        ("plain", none, content, 0, "Just text, \u00e9 \U0001f600."), ("think", none, start, 0, "<think>\nHm.\n</think>\n\nYes."),
        ("xml", xml, reasoning, 0, "I think.\n</think>\n\n" + xml_call + "\n" + xml_call + "\nDone."),
        ("xml-reasoning", xml, reasoning, 0, "So " + xml_call + "</think> and"), ("xml-cut", xml, content, 16, xml_call[:-30]),
        ("xml-bare", xml, content, 0, "<function=f>\n<parameter=b>\ntrue\n</parameter>\n</function>"),
        ("xml-types", xml, content, 0, "<tool_call><function=f>" + "".join(
            f"<parameter={k}>{v}</parameter>" for k, v in [("n", "-1.5e3"), ("b", "yes"), ("a", "[1,"), ("z", "null"), ("u", "false"),
                                                           ("q", "?"), ("s", ""), ("s", "again")]) + "</function></tool_call>"),
        ("xml-unclosed", xml, content, 0, "<tool_call><function=f><parameter=s>a</parameter></function>x<tool_call><function=ping>"),
        ("xml-broken", xml, content, 0, "<tool_call><function=></tool_call><tool_call> <func <parameter=a>\n</parameter></function>"),
        ("hermes", hermes, content, 0, "Text " + hermes_call + hermes_call + " end"), ("hermes-cut", hermes, content, 16, hermes_call[:40]),
        ("hermes-text", hermes, content, 0, '<tool_call>{"name": "f", "arguments": "{\\"s\\": \\"\\u00e9\\ud83d\\ude00\\"}"}</tool_call>'),
        ("hermes-broken", hermes, content, 0, '<tool_call>{"arguments": {}, "name": "f", x}}}</tool_call> {"name": 5}'),
        ("llama3", llama3, content, 0, '<|python_tag|>{"name": "f", "parameters": {"s": "a"}}; {"name": "ping", "parameters": {}}\ntext'),
        ("llama3-text", llama3, content, 0, '{"name": "unknown", "parameters": {}} {"name"'),
        ("bytes", none, content, 0, b"\xf0\x9f\x98 \xff\xc3 \xe2\x82\xac\xed\xa0\x80"), ("tags", xml, start, 0, "<think> <think></think></think></tool_call>")]
    for name, form, state, flags, text in cases:
        raw = text if isinstance(text, bytes) else text.encode()
        write("output", name, bytes([9, form | state << 2, flags, 0]) + raw)
    for place in (20, 35, 43, 50, 58):  # where the token limit falls, in pairs of bytes
        write("output", f"xml-cut-at-{place}", bytes([place, xml | content << 2, 32, 0]) + xml_call.encode())
    limited = [("space", xml, " \n" * 40), ("name", hermes, '<tool_call>{"x": "' + "a" * 90), ("opening", llama3, '{"k": [' * 12),
               ("value", xml, '<tool_call><function=f><parameter=o>{"a": 1, ' * 6), ("tag", xml, "<tool_call>\n<function=" + "f" * 90),
               ("after", xml, xml_call + "\n" * 40 + "text"), ("closing", xml, xml_call.replace("</parameter>", "</parameter>" + " " * 40, 1))]
    for name, form, text in limited:
        write("output", "limit-" + name, bytes([9, form | content << 2, 0, 32]) + text.encode())


def main() -> None:
    for seeds in (gguf_seeds, json_seeds, jinja_seeds, sse_seeds, stop_seeds, output_seeds):
        seeds()
    files = [f for f in (HERE / "seeds").rglob("*") if f.is_file()]
    print(f"{len(files)} seeds, {sum(f.stat().st_size for f in files)} bytes")


if __name__ == "__main__":
    main()
