"""llama.cpp behind the protocol of engine-bench, through the low-level API of llama-cpp-python.

    driver.py MODEL [--threads 2] [--context 1024] [--sequences 16]

One JSON object a line on standard input, one answer a line on standard output:

    {"op": "decode", "sequences": 4, "prompt": [ids], "tokens": [ids]}   as tests/perf/engine_bench.cpp
    {"op": "prefill", "tokens": [ids], "step": 64}                       likewise
    {"op": "tokenize", "text": "...", "special": true}                   {"ids": [...]}
    {"op": "greedy", "tokens": [ids], "steps": 32}       {"ids": [...], "gaps": [...], "pieces": [...], "ended": true}
    {"op": "gaps", "tokens": [ids], "answer": [ids]}     {"gaps": [...]}
    {"op": "render", "chats": [[{role, content}]]}       {"texts": [...]}
    {"op": "widen", "to": "file"}                        {}

Timed is llama_decode with everything it leaves to be waited for; filling batches and reading logits is not. K and V are
f16, flash attention and the repacking of weights are left to the library's own choice.
"""

import argparse
import array
import ctypes
import json
import math
import sys
import time

import jinja2.sandbox
import llama_cpp.llama_cpp as llama


class Engine:
    def __init__(self, options):
        self.log = llama.llama_log_callback(lambda level, text, user: None)
        llama.llama_log_set(self.log, None)
        llama.llama_backend_init()
        params = llama.llama_model_default_params()
        params.use_extra_bufts = not options.plain
        self.path = options.model.encode()
        self.model = llama.llama_model_load_from_file(self.path, params)
        assert self.model, f"llama.cpp cannot load {options.model}"
        settings = llama.llama_context_default_params()
        settings.n_ctx = options.context * options.sequences
        settings.n_seq_max = options.sequences
        settings.n_batch = settings.n_ubatch = 512
        settings.n_threads = settings.n_threads_batch = options.threads
        settings.no_perf = True
        self.context = llama.llama_init_from_model(self.model, settings)
        assert self.context, "llama.cpp cannot make a context"
        self.vocab = llama.llama_model_get_vocab(self.model)
        self.vocabulary = llama.llama_vocab_n_tokens(self.vocab)
        self.batch = llama.llama_batch_init(512, 0, 1)

    def forget(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def step(self, rows):
        """rows: (sequence, token, position, wants logits). Returns wall and processor milliseconds."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (sequence, token, position, wants) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wants
        cpu = time.process_time()
        begin = time.perf_counter()
        code = llama.llama_decode(self.context, batch)
        llama.llama_synchronize(self.context)
        wall = time.perf_counter() - begin
        cpu = time.process_time() - cpu
        assert code == 0, f"llama_decode says {code}"
        return wall * 1e3, cpu * 1e3

    def logits(self, row):
        values = llama.llama_get_logits_ith(self.context, row)
        return array.array("f", ctypes.string_at(values, 4 * self.vocabulary))

    def feed(self, sequence, tokens, before=0, step=512):
        """A stretch of one sequence in steps; logits of the last row stand at the last step's last row."""
        wall = cpu = 0.0
        for begin in range(0, len(tokens), step):
            part = tokens[begin:begin + step]
            rows = [(sequence, token, before + begin + i, begin + i == len(tokens) - 1)
                    for i, token in enumerate(part)]
            times = self.step(rows)
            wall, cpu = wall + times[0], cpu + times[1]
        return wall, cpu, len(part) - 1

    # -- what the protocol asks -------------------------------------------------------------------

    def decode(self, ask):
        self.forget()
        prompt, tokens, count = ask["prompt"], ask["tokens"], ask["sequences"]
        for s in range(count):
            turn = s % len(prompt)
            self.feed(s, prompt[turn:] + prompt[:turn])
        record = {"ms": [], "cpu_ms": 0.0, "argmax": [], "finite": True}
        for i in range(len(tokens)):
            rows = [(s, tokens[(i + s) % len(tokens)], len(prompt) + i, True) for s in range(count)]
            wall, cpu = self.step(rows)
            self.keep(record, wall, cpu, range(count))
        return record

    def prefill(self, ask):
        self.forget()
        record = {"ms": [], "cpu_ms": 0.0, "argmax": [], "finite": True}
        wall, cpu, row = self.feed(0, ask["tokens"], step=ask["step"])
        self.keep(record, wall, cpu, [row])
        return record

    def keep(self, record, wall, cpu, rows):
        record["ms"].append(wall)
        record["cpu_ms"] += cpu
        best = []
        for row in rows:
            logits = self.logits(row)
            top = max(logits)
            record["finite"] = record["finite"] and math.isfinite(sum(logits))
            best.append(logits.index(top))
        record["argmax"].append(best)

    def tokenize(self, ask):
        text = ask["text"].encode()
        room = (llama.llama_token * (len(text) + 8))()
        count = llama.llama_tokenize(self.vocab, text, len(text), room, len(room), False, ask.get("special", False))
        assert count >= 0, "no room for the tokens"
        return {"ids": list(room[:count])}

    def greedy(self, ask):
        """The best token again and again; beside each how far the second best logit lies below it."""
        ids, gaps = [], []
        ended = False
        while len(ids) < ask["steps"] and not ended:
            logits = self.next_logits(ask["tokens"], ids)
            ids.append(logits.index(max(logits)))
            gaps.append(gap_of(logits, ids[-1]))
            ended = bool(llama.llama_vocab_is_eog(self.vocab, ids[-1]))
        if ended:
            ids.pop()  # the gap of the end stays: whether to end is a choice too
        return {"ids": ids, "gaps": gaps, "ended": ended, "pieces": [self.piece(token) for token in ids]}

    def gaps(self, ask):
        """The gaps where another engine's answer is fed: its token's logit over the best of the others."""
        gaps = []
        for i in range(len(ask["answer"])):
            logits = self.next_logits(ask["tokens"], ask["answer"][:i])
            gaps.append(gap_of(logits, ask["answer"][i]))
        return {"gaps": gaps}

    def next_logits(self, prompt, answer):
        """After the prompt and the answer so far; only the answer's last token is new, unless there is none."""
        if not answer:
            self.forget()
            _, _, row = self.feed(0, prompt)
        else:
            _, _, row = self.feed(0, answer[-1:], len(prompt) + len(answer) - 1)
        return self.logits(row)

    def piece(self, token):
        """The token's bytes as a string, a code point each: a token may end inside a character."""
        room = ctypes.create_string_buffer(256)
        count = llama.llama_token_to_piece(self.vocab, token, room, len(room), 0, False)
        assert count >= 0, "no room for a piece"
        return room.raw[:count].decode("latin-1")

    def render(self, ask):
        """Chats through the file's template, by Jinja2."""
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        room = ctypes.create_string_buffer(1 << 16)
        count = llama.llama_model_meta_val_str(self.model, b"tokenizer.chat_template", room, len(room))
        assert 0 < count < len(room), "the file has no template, or a very long one"
        template = environment.from_string(room.value.decode())
        return {"texts": [template.render(messages=chat, add_generation_prompt=True) for chat in ask["chats"]]}

    def widen(self, ask):
        """Writes the model with all weights as F32."""
        params = llama.llama_model_quantize_default_params()
        params.allow_requantize = True
        params.ftype = llama.LLAMA_FTYPE_ALL_F32
        code = llama.llama_model_quantize(self.path, ask["to"].encode(), params)
        assert code == 0, f"llama_model_quantize says {code}"
        return {}


def gap_of(logits, token):
    """How far the token's logit lies above the best of the others; negative when one of them is better."""
    own = logits[token]
    logits[token] = -math.inf
    return own - max(logits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="weights as they are in the file, not repacked")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=16)
    engine = Engine(parser.parse_args())
    names = ("decode", "prefill", "tokenize", "greedy", "gaps", "render", "widen")
    print(json.dumps({"engine": "llama.cpp", "device": llama.llama_print_system_info().decode().strip(),
                      "vocabulary": engine.vocabulary}), flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        assert ask["op"] in names, f"op is one of {names}"
        print(json.dumps(getattr(engine, ask["op"])(ask)), flush=True)


if __name__ == "__main__":
    main()
