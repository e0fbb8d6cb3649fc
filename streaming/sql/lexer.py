"""A view's text as Spark reads it: its words, numbers, texts and names, each with its place.

Spark's lexical rules are stated here once, for what a view may hold; what they do not know is refused
by name. sqlglot, which builds the syntax tree, has rules of its own for quotes, escapes, numbers and
prefixes, and drops or rewrites what it reads before there is a tree. So it never sees them: it reads a
copy of the text in which every literal is filler of the same length (`tokens`), and gets the real
values afterwards. Offsets in that copy are those of the text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from streaming.errors import FrescoError

SPACE = " \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000"
_LEXEME = re.compile(
    rf"""(?P<space>[{SPACE}]+|--(?:\\\n|[^\r\n])*)
    |(?P<hint>/\*\+)|(?P<comment>/\*)
    |(?P<raw>[rR](?:'[^']*'|"[^"]*"))
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<number>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[dDfF]|[bB][dD])?(?![A-Za-z0-9_])
        |\d+(?:[eE][+-]\d+)(?:[dDfF]|[bB][dD])?(?![A-Za-z0-9_])
        |\d+(?:[lLsSyY]|(?:[eE]\d+)?(?:[dDfF]|[bB][dD])?)(?![A-Za-z0-9_]))
    |(?P<word>[A-Za-z0-9_]+)
    |(?P<compound>!<|!>|->|=>|<<|>>>?)
    |(?P<operator><=>|==|<>|!=|<=|>=|\|\||::|[-+*/%=<>(),.;!])
    |(?P<other>[&|^~?:@\#${{}}\[\]\\'"`]|.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[01][0-7]{2})|(?P<one>.))",
    re.DOTALL,
)
_ESCAPED = dict(zip("0bnrtZ%_", ("\0", "\b", "\n", "\r", "\t", "\x1a", "\\%", "\\_"), strict=True))
_OTHER = {
    "'": ("a text that does not end", "end it with '"),
    '"': ("a text that does not end", 'end it with "'),
    "`": ("a name that does not end", "end it with `"),
    "[": ("[, an element of an array or a map", ""),
    "?": ("?, a parameter", "write the value as a literal"),
    ":": (":, a parameter or a field", "write the value as a literal"),
    "->": ("->, a function of its own", ""),
    "=>": ("=>, an argument by name", "write the arguments in their order"),
    **dict.fromkeys(("&", "|", "^", "~", "<<", ">>", ">>>"), ("{}, an operator on bits", "")),
    "!<": ("!<", "write >="),
    "!>": ("!>", "write <="),
}
"""What stands for a character that no view may hold, and what to write in its place."""
_LITERALS = {
    "string": TokenType.STRING,
    "number": TokenType.NUMBER,
    "name": TokenType.IDENTIFIER,
}


@dataclass(frozen=True)
class Lexeme:
    """One word of the text.

    Attributes:
        kind: word, operator, number, string or name (in backticks).
        text: a word, operator or number as written; the value of a string, the name without quotes.
        end: the offset after its last character.
    """

    kind: str
    text: str
    start: int
    end: int


class LexicalError(Exception):
    """What is wrong at an offset of the text; `error` has no place yet."""

    def __init__(self, error: FrescoError, offset: int) -> None:
        super().__init__(error.what)
        self.error = error
        self.offset = offset


def _refuse(code: str, what: str, todo: str, offset: int) -> NoReturn:
    raise LexicalError(FrescoError(code, what, todo=todo), offset)


def lexemes(sql: str) -> tuple[Lexeme, ...]:
    """The words of a text, comments and spaces left out.

    Raises:
        LexicalError: SQL_SYNTAX, SQL_UNSUPPORTED, at the first character that no view may hold.
    """
    return tuple(_lexemes(sql))


def _lexemes(sql: str) -> Iterator[Lexeme]:
    at = 0
    while at < len(sql):
        match = _LEXEME.match(sql, at)
        assert match is not None and match.lastgroup is not None
        kind, text, at = match.lastgroup, match[0], match.end()
        start = match.start()
        match kind:
            case "space":
                continue
            case "comment":
                at = _comment_end(sql, start)
                continue
            case "hint":
                todo = "remove them; the pipeline plans its own work"
                _refuse("SQL_UNSUPPORTED", "hints, /*+ ... */, are not supported", todo, start)
            case "other" | "compound":
                _refuse_other(text, start)
            case "raw":
                yield Lexeme("string", text[2:-1], start, at)
            case "string":
                yield Lexeme("string", _value(text, start), start, at)
            case "name" if text == "``":
                _refuse("SQL_SYNTAX", "a name of no letters", "give it a name", start)
            case "name":
                yield Lexeme("name", text[1:-1].replace("``", "`"), start, at)
            case _:
                yield Lexeme(kind, text, start, at)


def _refuse_other(text: str, start: int) -> NoReturn:
    if text in _OTHER:
        what, todo = _OTHER[text]
        if text in "'\"`":
            _refuse("SQL_SYNTAX", f"this is not SQL that can be read: {what}", todo, start)
        what = what.format(text)
        todo = todo or "compute it where the view is read"
        _refuse("SQL_UNSUPPORTED", f"{what}, is not supported", todo, start)
    shown = text if text.isprintable() else f"U+{ord(text):04X}"
    todo = "write names with other letters than A to Z in `backticks`, and texts in quotes"
    what = f"this is not SQL that can be read: the character {shown} stands alone"
    _refuse("SQL_SYNTAX", what, todo, start)


def _comment_end(sql: str, start: int) -> int:
    """Brackets of comments may stand inside each other."""
    depth, at = 0, start
    for match in re.compile(r"/\*|\*/").finditer(sql, start):
        depth += 1 if match[0] == "/*" else -1
        at = match.end()
        if depth == 0:
            return at
    _refuse("SQL_SYNTAX", "a comment that does not end", "end it with */", start)


def _value(written: str, start: int) -> str:
    """What a text in quotes stands for: a doubled quote is one, and Spark's escapes."""
    quote, inner = written[0], written[1:-1]
    parts = re.split(rf"((?:\\.)+)|{quote * 2}", inner, flags=re.DOTALL)
    # split() gives text, escapes (None for a doubled quote), text, ...
    pieces = [parts[0]]
    for escapes, text in zip(parts[1::2], parts[2::2], strict=True):
        pieces += [quote if escapes is None else escapes, text]
    value = _ESCAPE.sub(_unescaped, "".join(pieces)) if "\\" in inner else "".join(pieces)
    try:
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError:
        todo = "write both halves of the character, or the character itself"
        _refuse("SQL_LITERAL", "a text with half a character (a lone surrogate)", todo, start)


def _unescaped(match: re.Match[str]) -> str:
    if match["short"] or match["long"]:
        point = int(match["short"] or match["long"], 16)
        if point > 0x10FFFF:
            return "\ud800"  # no character: refused where the text is put together
        return chr(point)
    if match["octal"]:
        return chr(int(match["octal"], 8))
    return _ESCAPED.get(match["one"], match["one"])


def tokens(sql: str, words: tuple[Lexeme, ...]) -> list[Token]:
    """sqlglot's tokens for the words of a text, with Spark's values.

    Raises:
        LexicalError: SQL_SYNTAX, where sqlglot would cut the text into other words than Spark.
    """
    words = joined(words)
    _shapes(words)
    try:
        found = Spark().tokenize(_filled(sql, words))
    except TokenError as error:
        what = f"this is not SQL that can be read: {error}"
        _refuse("SQL_SYNTAX", what, "correct it", words[0].start if words else 0)
    left = deque(words)
    result: list[Token] = []
    for token in found:
        parts = [left.popleft()]
        while left and left[0].start <= token.end:
            parts.append(left.popleft())
        first, last = parts[0], parts[-1]
        literal = any(part.kind in _LITERALS for part in parts)
        if (token.start, token.end) != (first.start, last.end - 1) or (literal and last != first):
            written = sql[first.start : last.end]
            todo = "write texts as 'text', and a space after the word before one"
            what = f"{written}, a text with a prefix, is not supported"
            _refuse("SQL_UNSUPPORTED", what, todo, first.start)
        kind = _LITERALS.get(first.kind)
        if kind is None and first.text[0].isdigit():
            kind = TokenType.VAR
        if kind is not None:
            token = Token(kind, first.text, token.line, token.col, first.start, first.end - 1)
        result.append(token)
    return result


def joined(words: tuple[Lexeme, ...]) -> tuple[Lexeme, ...]:
    """Texts that stand side by side are one text."""
    joined: list[Lexeme] = []
    for word in words:
        if joined and word.kind == joined[-1].kind == "string":
            first = joined.pop()
            word = Lexeme("string", first.text + word.text, first.start, word.end)
        joined.append(word)
    return tuple(joined)


def _shapes(words: tuple[Lexeme, ...]) -> None:
    """What sqlglot would read otherwise, or more kindly, than Spark."""
    for word, after in pairwise(words):
        text, next_ = word.text.upper(), after.text.upper()
        if (
            word.kind == "word"
            and text == "X"
            and after.kind == "string"
            and word.end == after.start
        ):
            todo = "compute it where the view is read"
            _refuse(
                "SQL_UNSUPPORTED", "X'...', a binary literal, is not supported", todo, word.start
            )
        if after.kind != "word" or word.kind != "operator":
            continue
        if text == "!" and next_ in ("IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "NULL"):
            what = f"this is not SQL that can be read: ! before {next_}"
            _refuse("SQL_SYNTAX", what, "write NOT", word.start)


def _filled(sql: str, words: tuple[Lexeme, ...]) -> str:
    """The text with filler for literals, names and comments, of the same length and lines."""
    parts: list[str] = []
    at = 0
    for word in words:
        parts.append(_blank(sql[at : word.start], " "))
        text = sql[word.start : word.end]
        if word.kind == "string":
            text = "'" + _blank(text[1:-1], "q") + "'"
        elif word.kind == "name":
            text = "`" + _blank(text[1:-1], "q") + "`"
        elif word.kind == "number":
            text = "1" * len(text)
        elif text[0].isdigit():
            text = "q" * len(text)
        parts.append(text)
        at = word.end
    parts.append(_blank(sql[at:], " "))
    return "".join(parts)


def _blank(text: str, filler: str) -> str:
    return re.sub(r"[^\n]", filler, text)
