"""Makes tests/golden/smollm2-greedy.json: what llama.cpp answers to a dozen prompts with SmolLM2-135M-Instruct Q4_1.

    smollm2_reference.py [OUT]      (runs itself in the Python of install.py; a minute, and 0.6 GB for the wide copy)

A prompt goes through the file's own chat template (by Jinja2) and llama.cpp's tokenizer. Beside every id of the greedy
answer stands its gap: how far the second best logit lies below. Where the gap is small the choice hangs on rounding, and
another engine may rightly choose otherwise. How small is measured: the same answers are fed to llama.cpp holding the same
weights widened to F32, which rounds no activations to eight bits. The root mean square of what that changes in a gap is
the noise of one engine; two engines that round independently differ by sqrt(2) times as much, and the tolerance is four
times that: one gap in some ten thousand moves farther.
"""

import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import install

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUT = ROOT / "tests/golden/smollm2-greedy.json"
DRIVER = pathlib.Path(__file__).with_name("driver.py")
ANSWER_TOKENS = 64
SYSTEM = "You are a terse assistant."
CHATS = [
    [("user", "What is the capital of France?")],
    [("user", "Name three primary colors.")],
    [("user", "Write one sentence about the sea.")],
    [("user", "Explain in simple words why the sky is blue.")],
    [("user", "What is 7 + 5?")],
    [("user", "Translate 'good morning' to Spanish.")],
    [("user", "List the days of the week, one per line.")],
    [("user", "Write a Python function that returns the larger of two numbers.")],
    [("user", "Was ist ein Pferd? Antworte kurz: ä, ö, ü, ß.")],
    [("system", SYSTEM), ("user", "Who wrote Romeo and Juliet?")],
    [("system", SYSTEM), ("user", "How many legs does a horse have?")],
    [("user", "My name is Ada."), ("assistant", "Nice to meet you, Ada!"), ("user", "What is my name?")],
    [("user", "Give me a recipe for pancakes with  two   spaces\tand a tab.\n\nAnd blank lines.")],
    [("user", "Summarize: The quick brown fox jumps over the lazy dog 1234567890 times!")],
]


def ask(model, questions, *arguments):
    """Answers of the driver, in the Python that has llama_cpp."""
    result = subprocess.run([str(install.llama_python()), str(DRIVER), str(model), "--plain", "--sequences", "1",
                             *arguments], input="".join(json.dumps(q) + "\n" for q in questions),
                            stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()[1:]]


def reference(threads="1"):
    """The document."""
    model = install.smollm2()
    chats = [[{"role": role, "content": text} for role, text in chat] for chat in CHATS]
    with tempfile.TemporaryDirectory() as folder:
        wide = pathlib.Path(folder, "wide.gguf")
        prompts, = ask(model, [{"op": "render", "chats": chats}], "--threads", threads)
        ids = [answer["ids"] for answer in ask(model, [
            {"op": "tokenize", "text": text, "special": True} for text in prompts["texts"]], "--threads", threads)]
        answers = ask(model, [{"op": "greedy", "tokens": prompt, "steps": ANSWER_TOKENS} for prompt in ids],
                      "--threads", threads)
        ask(model, [{"op": "widen", "to": str(wide)}], "--threads", threads)
        exact = ask(wide, [{"op": "gaps", "tokens": prompt, "answer": answer["ids"]}
                           for prompt, answer in zip(ids, answers)], "--threads", threads)
    changes = [a - b for answer, other in zip(answers, exact) for a, b in zip(answer["gaps"], other["gaps"])]
    noise = math.sqrt(statistics.fmean(change * change for change in changes))
    return {"about": "greedy answers of llama.cpp; made by tests/support/llama/smollm2_reference.py",
            "model": model.name, "engine": install.LLAMA, "answer_tokens_max": ANSWER_TOKENS,
            "noise": round(noise, 4), "tolerance": round(4 * math.sqrt(2) * noise, 2),
            "answers": [{"messages": chat, "prompt": text, "prompt_ids": prompt, "ids": answer["ids"],
                         "gaps": [round(gap, 4) for gap in answer["gaps"]], "pieces": answer["pieces"],
                         "ended": answer["ended"]}
                        for chat, text, prompt, answer in zip(chats, prompts["texts"], ids, answers)]}


def write(document, path):
    """One line per answer: a change of one shows as one line."""
    head = {key: value for key, value in document.items() if key != "answers"}
    lines = ",\n  ".join(json.dumps(answer, ensure_ascii=False) for answer in document["answers"])
    text = json.dumps(head, indent=1)[:-2] + ',\n "answers": [\n  ' + lines + "\n ]\n}\n"
    assert json.loads(text) == document
    path.write_text(text)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    made = reference()
    write(made, out)
    count = sum(len(answer["ids"]) for answer in made["answers"])
    print(f"{out}: {len(made['answers'])} answers, {count} tokens, noise {made['noise']}, tolerance {made['tolerance']}")
