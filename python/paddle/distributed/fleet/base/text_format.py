# SPDX-License-Identifier: Apache-2.0
"""The text form of protobuf messages, as strategies are saved in.

    amp: true
    amp_configs {
      custom_white_list: "softmax"
    }

A message is a list of (name, value) pairs in the order of the text; a value is a bool,
a number, a str, a Word (the name of an enum's value) or a message. A repeated field
occurs several times.
"""

import re


class Word(str):
    """A value that stands without quotes."""


_TOKEN = re.compile(
    r"""\s+ | \#[^\n]*                                   # between tokens
    | (?P<text> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | (?P<number> [-+]? (?: \.\d | \d ) [\w.]* (?: (?<=[eE])[-+]\d+ )? )
    | (?P<word> -?[A-Za-z_]\w* )
    | (?P<mark> [:{}<>\[\],;] )""",
    re.VERBOSE,
)
_ENDS = {"{": "}", "<": ">"}
_WORDS = {
    "true": True,
    "false": False,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
}


def write(message, indent=""):
    """The text of a message."""
    lines = []
    for name, value in message:
        if isinstance(value, list):
            lines.append(
                f"{indent}{name} {{\n{write(value, indent + '  ')}{indent}}}\n"
            )
        else:
            lines.append(f"{indent}{name}: {_show(value)}\n")
    return "".join(lines)


def _show(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not isinstance(value, Word):
        return '"' + value.translate(_ESCAPES) + '"'
    return str(value)


_ESCAPES = {ord(c): "\\" + e for c, e in zip('"\\\n\r\t', '"\\nrt')}


def parse(text):
    """The message that `text` says. ValueError names the line of what is wrong."""
    tokens = _Tokens(text)
    return _message(tokens, "end", "")


class _Tokens:
    """The tokens of a text as (kind, token), and one look ahead."""

    def __init__(self, text):
        self._text = text
        self._position = 0
        self._line = 1
        self.next = self._read()

    def take(self):
        token, self.next = self.next, self._read()
        return token

    def accept(self, *marks):
        return self.next[0] == "mark" and self.next[1] in marks and self.take()[1]

    def wrong(self, what):
        return ValueError(f"line {self._line}: {what}")

    def _read(self):
        while self._position < len(self._text):
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                raise self.wrong(f"unexpected {self._text[self._position]!r}")
            self._position = match.end()
            self._line += match.group().count("\n")
            if match.lastgroup:
                return match.lastgroup, match.group()
        return "end", ""


def _message(tokens, kind, end):
    fields = []
    while tokens.next != (kind, end):
        name_kind, name = tokens.take()
        if name_kind != "word":
            raise tokens.wrong(f"expected the name of a field, not {name!r}")
        if not tokens.accept(":") and tokens.next[1] not in _ENDS:
            raise tokens.wrong(f"{name} has no value")
        if tokens.accept("["):
            while not tokens.accept("]"):
                fields.append((name, _value(tokens)))
                tokens.accept(",")
        else:
            fields.append((name, _value(tokens)))
        tokens.accept(",", ";")
    tokens.take()
    return fields


def _value(tokens):
    kind, token = tokens.take()
    if kind == "mark" and token in _ENDS:
        return _message(tokens, "mark", _ENDS[token])
    if kind == "number":
        return _number(tokens, token)
    if kind == "word":
        return _WORDS.get(token, Word(token))
    if kind == "text":
        parts = [token]
        while tokens.next[0] == "text":  # neighbours are one text
            parts.append(tokens.take()[1])
        return "".join(_unquote(part) for part in parts)
    raise tokens.wrong(f"expected a value, not {token!r}")


def _unquote(token):
    """Escapes are those of bytes, and the bytes are UTF-8."""
    data = token[1:-1].encode("utf8").decode("unicode_escape").encode("latin-1")
    return data.decode("utf8")


def _number(tokens, token):
    for read in (lambda text: int(text, 0), lambda text: float(text.rstrip("fF"))):
        try:
            return read(token)
        except ValueError:
            pass
    raise tokens.wrong(f"{token!r} is not a number")
