#!/usr/bin/env python3
"""Compares random templates between chat-probe and Python's Jinja2.

usage: jinja_diff.py CHAT_PROBE [COUNT] [SEED]

Both must give the same text or the same kind of error. Prints each difference, the seed and a
summary; exits 1 when there was one. Needs the package jinja2, which nothing else here does.
"""
import json
import random
import subprocess
import sys
import warnings

import jinja2
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "s": "Hello, wörld 🦙", "e": "", "p": " \n pad\t ", "q": "it's \"q\" \\ \n", "n": 7, "z": 0,
    "neg": -3, "f": 2.5, "g": 1e-7, "t": True, "no": False, "nil": None, "xs": [3, 1, 2],
    "ws": ["b", "A", "c"], "mix": [1, "a", None, 2.0, [1], {"k": 1}], "none_list": [],
    "m": {"b": 1, "a": [1, 2], "items": "x"}, "em": {}, "csv": "a,b,,c",
    "ms": [{"role": "user", "content": "Hi", "n": 2}, {"role": "tool", "content": None, "n": 1},
           {"role": "user", "n": 3}],
}
NAMES = list(CONTEXT) + ["nope", "v", "w"]
KEYS = ["a", "b", "k", "role", "content", "n", "items", "x", "upper", "get"]


class Raised(Exception):
    """What raise_exception throws."""


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=["jinja2.ext.loopcontrols"])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def python_result(env, text):
    try:
        return {"output": env.from_string(text).render(json.loads(json.dumps(CONTEXT)))}
    except Raised:
        return {"kind": "raised"}
    except TemplateSyntaxError:
        return {"kind": "syntax"}
    except UndefinedError:
        return {"kind": "undefined"}
    except SecurityError:
        return {"kind": "security"}
    except (ZeroDivisionError, OverflowError):
        return {"kind": "arithmetic"}
    except (TypeError, ValueError, AttributeError, jinja2.TemplateRuntimeError):
        return {"kind": "type"}


class Generator:
    def __init__(self, rng, env):
        self.rng = rng
        self.env = env

    def pick(self, *options):
        return self.rng.choice(options)

    def literal(self):
        return self.pick("1", "0", "-2", "2.5", "'a'", "'b,c'", '"é🦙"', "''", "true", "none",
                         "[1, 'x']", "{'k': 1, 'a': none}", "(1, 2)", "[]", "' x '", "3", "'A b-c'")

    def expression(self, depth):
        if depth <= 0 or self.rng.random() < 0.2:
            return self.pick(self.literal(), self.rng.choice(NAMES), self.rng.choice(NAMES))
        sub = lambda: self.expression(depth - 1)
        form = self.rng.randrange(13)
        if form == 0:
            # No % of a text: that formats in Python, and is not part of the subset.
            rest = f"{self.pick('n', 'f', 'neg', '7', 't')} % {self.pick('n', 'f', 'neg', '2', sub())}"
            return self.pick(f"{sub()} {self.pick('+', '-', '*', '/', '//')} {sub()}", rest)
        if form == 1:
            return f"{sub()} ~ {sub()}"
        if form == 2:
            return f"{sub()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {sub()}"
        if form == 3:
            return f"{sub()} {self.pick('and', 'or')} {sub()}"
        if form == 4:
            return self.pick(f"(not {sub()})", f"-{sub()}", f"({sub()})", f"({sub()})")
        if form == 5:
            other = self.pick("", f" else {sub()}")
            return f"({sub()} if {sub()}{other})"
        if form == 6:
            key = self.rng.choice(KEYS)
            return self.pick(f"({sub()}).{key}", f"({sub()})['{key}']", f"({sub()})[{sub()}]")
        if form == 7:
            part = lambda: self.pick("", "1", "-1", "2", "-2", "9", "none")
            # A name: Jinja folds slices of constants, and its folding forgives what Python does not.
            return f"{self.rng.choice(NAMES)}[{part()}:{part()}{self.pick('', ':2', ':-1', ':-2', ':')}]"
        if form in (8, 9):
            return f"({sub()}) | {self.filter(depth - 1)}"
        if form == 10:
            return f"({sub()}) is {self.pick('', 'not ')}{self.test(depth - 1)}"
        if form == 11:
            return f"({sub()}).{self.method(depth - 1)}"
        return self.pick(f"[{sub()}, {sub()}]", f"({sub()},)", f"{{'k': {sub()}}}",
                         f"range({self.pick('3', '1, 4', '5, 0, -2', 'n')})", f"[{sub()}]")

    def filter(self, depth):
        sub = lambda: self.expression(depth - 1)
        text = lambda: self.pick("'a'", "','", "' '", "''", "'é'", sub())
        return self.pick(
            "trim", f"trim({text()})", "length", "tojson", "tojson(indent=1)", "items | list",
            "string", f"default({sub()})", f"default({sub()}, true)", f"join({text()})",
            "join", "lower", "upper", "first", "last", "list", "map('upper') | list",
            "map('string') | join", "map(attribute='n') | list",
            "map(attribute='n', default=0) | list", "selectattr('role') | list",
            "selectattr('role', 'equalto', 'user') | list", "selectattr('n', '>', 1) | list",
            "rejectattr('content') | list", "select | list", "reject('none') | list",
            f"replace({text()}, {text()})", "int", "int(5)", "dictsort", "float", "abs",
            "sort | list", "reverse | list", "capitalize", "title", "sum", "min", "max",
            "unique | list", "round", "round(1)", "indent", "indent(2, true)", "count",
            "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)",
            "list | length", "map('length') | list", "map('trim') | list", "sum(attribute='n')")

    def test(self, depth):
        return self.pick("defined", "undefined", "none", "string", "mapping", "iterable", "sequence",
                         "number", "integer", "boolean", "true", "false", "float", "odd", "even",
                         f"equalto({self.expression(depth - 1)})", f"in({self.expression(depth - 1)})",
                         "eq(1)", "lt(2)", "divisibleby(2)", "upper", "lower")

    def method(self, depth):
        text = lambda: self.pick("'a'", "','", "'l'", "'é'", "' '")
        return self.pick(
            f"startswith({text()})", f"endswith({text()})", f"split({text()})", "split()",
            f"split({text()}, 1)", "strip()", f"strip({text()})", "lstrip()", "rstrip()",
            f"rstrip({text()})", f"replace({text()}, {text()})", "upper()", "lower()", "title()",
            "items() | list", "keys() | list", "values() | list", "get('a')", "get('x', 5)",
            "append(1)", "count('l')", "find('l')", "capitalize()", "splitlines()", "rsplit(',', 1)",
            f"join(['x', 'y'])", "nothing()", "index(1)", "isdigit()", "update({})")

    def space(self):
        return self.pick("", "", "", "\n", "  ", "\n  ", " x ", "\n\n", "y")

    def tag(self, body):
        left = self.pick("", "", "", "-", "+")
        right = self.pick("", "", "", "-", "+")
        return self.space() + "{%" + left + " " + body + " " + right + "%}" + self.space()

    def sound(self, depth):
        """An expression that mostly has a value: random ones are mostly errors."""
        for _ in range(6):
            expression = self.expression(depth)
            if "output" in python_result(self.env, "{{ " + expression + " }}"):
                break
        return expression

    def output(self, depth):
        left, right = self.pick("", "", "-"), self.pick("", "", "-")
        return self.space() + "{{" + left + " " + self.sound(depth) + " " + right + "}}"

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randint(1, 3)))

    def statement(self, depth):
        form = self.rng.randrange(10) if depth > 0 else 0
        body = lambda: self.block(depth - 1)
        if form <= 3:
            return self.output(3) + self.space()
        if form == 4:
            middle = self.pick("", self.tag("else") + body(),
                               self.tag(f"elif {self.sound(2)}") + body())
            return self.tag(f"if {self.sound(2)}") + body() + middle + self.tag("endif")
        if form == 5:
            loop = self.pick("", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.previtem }}",
                             "{% if loop.index == 2 %}{% break %}{% endif %}",
                             "{% if loop.first %}{% continue %}{% endif %}")
            condition = self.pick("", "", f" if {self.sound(1)}")
            target = self.pick("v", "v", "v", "v, w")
            sequence = self.pick("xs", "ws", "ms", "s", "m", "range(n)", self.sound(2), self.sound(2))
            other = self.pick("", "", self.tag("else") + "none")
            return (self.tag(f"for {target} in {sequence}{condition}") + loop + body() +
                    other + self.tag("endfor"))
        if form == 6:
            return self.tag(f"set {self.pick('v', 'w', 'v, w')} = {self.sound(3)}")
        if form == 7:
            return (self.tag(f"set v{self.pick('', '', ' | upper', ' | trim')}") + body() +
                    self.tag("endset"))
        if form == 8:
            return (self.tag("macro mac(v, w=2)") + body() + self.tag("endmacro") +
                    "{{ mac(" + self.pick("", "1", "s, w=n", "1, 2, 3", self.expression(1)) + ") }}")
        return ("{% set ns = namespace(c=0) %}{% for i in range(3) %}{% set ns.c = ns.c + i %}" +
                "{% endfor %}{{ ns.c }}" + self.pick("", "{# note #}\n", "{%- raw %} {{ x }} {% endraw %}"))


def main():
    warnings.simplefilter("ignore")  # Python warns of [1](2) and its kin
    probe, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    env = environment()
    generator = Generator(random.Random(seed), env)
    templates = [generator.block(2) for _ in range(count)]
    lines = "".join(json.dumps({"template": t, "context": CONTEXT}) + "\n" for t in templates)
    answer = subprocess.run([probe, "jinja"], input=lines, capture_output=True, text=True, check=True)
    differences, errors = 0, 0
    for text, line in zip(templates, answer.stdout.split("\n")):
        ours = json.loads(line)
        theirs = python_result(env, text)
        same = (ours["output"] == theirs.get("output") if "output" in ours
                else ours["error"]["kind"] == theirs.get("kind"))
        errors += "kind" in theirs
        # Generators print their address in Python; 64 bits are not what Python's integers stop at.
        if not same and " object at 0x" not in theirs.get("output", "").lower():
            differences += 1
            if differences <= 20:
                print(f"template {text!r}\n  python {theirs}\n  ours   {ours}")
    print(f"seed {seed}: {count} templates, {errors} of them errors, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
