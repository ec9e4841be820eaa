"""Finds English that a reader has to read twice, in pages, messages, docstrings and comments.

`python tests/prose.py` fails if there are more hits than the ceilings allow. With rules, kinds of text, parts of paths
or "all" as arguments it lists the hits, then their counts. It needs only Python: Vale's package downloads its binary
from outside of PyPI, and proselint knows none of these rules.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from inspect import cleandoc
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

__all__ = ("RULES", "Text", "ceilings", "hits_in", "more_than_allowed", "texts")

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_fileperf"
KINDS = ("page", "message", "public", "docstring", "comment")
"""Kinds of texts; public are docstrings of the names that users import."""
MOST_WORDS = 20

_SUBJECT = (
    "(?:an?|the|there|it|its|they|that|this|these|those|one|no|none|nothing|nobody|neither|both|all|each|only|some)"
)
_NOT_ASKED = "".join(
    f"(?<!{verb} )" for verb in ("say", "says", "tell", "tells", "show", "shows", "know", "knows", "out")
)
_BE = "(?:is|are|was|were|be|been|being)"
RULES = {
    "headless": (
        r"^what\b(?!.*\?)|\b(?:of|for|from|with|by|to|than|as|in|on|and|but|or) what\b(?! to\b)"
        rf"|{_NOT_ASKED}\bwhat (?:{_BE}|has|had|cannot|can|may|must|an?|the|no|its?)\b"
        r"|\b(?:that|those) of\b|\bthose (?:that|which|who|with|whose|in|from|for)\b",
        "name the noun: not “what was lost”, “that of”, “those that”",
    ),
    "of": (
        rf"\b{_BE} of (?:an?|the|one|this|that|these|each|every|another|other|its?|all|our)\b"
        r"|\bof(?: (?!of\b)[\w'-]+){1,2} of(?: (?!of\b)[\w'-]+){1,2} of\b",
        "use a possessive, a compound, “for”, “from” or “on”",
    ),
    "passive": (
        rf"\b{_BE}(?: (?:not|never|also|only|then|so|thus))? (?:told|said|seen|heard)\b(?! apart| from)",
        "name who tells, says or sees it",
    ),
    "where": (
        r"\b(?:none|empty|nothing|zero|0|true|false|one|whether|only|unless|even|or|and)\b,? where\b"
        rf"|[;:] where {_SUBJECT}\b|(?-i:^Where) {_SUBJECT}\b[^:?]*,",
        "“if” and “when” for conditions: “where” is for places",
    ),
    "uncommon": (
        r"\b(?:bears?|bearing|borne|in turns?|loud(?:er|ly)?|worlds?|at the (?:most|least)|holds?|holding|held"
        r"|(?<!log )(?<!top[ -])(?<!low[ -])(?<!high[ -])(?<!logging )levels?)\b",
        "common words: contain, keep, noisy, throughput, environment, alternately, at most",
    ),
    "no": (
        rf"(?<!there )(?<!there would )(?<!there will )\b{_BE} (?:(?-i:none)\b(?! of\b)"
        r"|no (?!longer\b|more\b|less\b|later\b|fewer\b|worse\b|better\b))",
        "“isn't a …”, “has no …”",
    ),
    "trailing": (r"(?:, too|\b(?:also|as well))(?=[.;:)]|$)", "“even”, “also”, “at most” before the verb"),
    "private": (
        r"\b(?:boots?|booted|booting|pairs?|turns?|(?<!server[ -])(?<!client[ -])sides?(?! effects?)|verbs?"
        r"|bases?(?! class| directory| image| path| URL))\b",
        "the glossary's words: start-up, old and new code, measurement, test",
    ),
    "chain": (r"\S \S+(?<!\"):\s[^()]*(?<!\"):\s|;[^()]*;", "no chain of colons or semicolons"),
    "long": (r"(?!)", f"one claim, at most {MOST_WORDS} words"),
    "repeats": (
        rf"[;,] (?:empty|none|0|nothing) (?:if|where|when) (?:there|it|that|this) {_BE} "
        r"(?:none|gone|not(?: known| there| so)?)(?=[.;,]|$)",
        "a docstring that repeats its name goes, or says why a value can be missing",
    ),
}
"""Kinds of hits: how they are found in a sentence, and what to write instead."""
_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, (pattern, _) in RULES.items()}

EXCEPTIONS = {
    "X isn't a pair of whole numbers": "numbers",
    "no rate holds": "a value in stored records",
    "--fileperf-base-packages": "the name of an option",
    "import importlib.util, sys": "a program",
    'env={"PORT": "X"}': "code",
    "{'login': {'max_p99': '50ms'}": "code",
    "X: X: X can be known only for the whole load": "a place, a key and a metric",
}
"""Parts of messages that break a rule, with the reason."""
CEILINGS = Path(__file__).with_suffix(".json")
"""The most hits by kind of text and rule. They only fall: `python tests/prose.py lower` writes the counts of now."""


class Text(NamedTuple):
    kind: str
    path: str
    line: int
    words: str
    """Without markup; code is the word X."""
    name: str = ""
    """The documented name of a docstring, with its class."""


def texts() -> Iterator[Text]:
    """Yields all that people read."""
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "examples").rglob("*.md"))]:
        yield from _of_page(path)
    public = set(re.findall(r'^    "(\w+)",$', (PACKAGE / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE))
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        yield from _of_code(ast.parse(source), path, public)
        yield from _of_comments(source, path)


def hits_in(text: Text) -> Iterator[tuple[str, str]]:
    """Yields kinds of hits with their sentences; none for an exception."""
    if text.kind == "message" and any(part in text.words for part in EXCEPTIONS):
        return
    if text.name and _repeats(text):
        yield "repeats", text.words
    for sentence in re.split(r"(?<!e\.g\.)(?<!i\.e\.)(?<! al\.)(?<! vs\.)(?<=[.!?])[\"')\]”]*\s+", text.words):
        if sum(bool(re.search(r"\w", word)) for word in sentence.split()) > MOST_WORDS:
            yield "long", sentence
        for kind, pattern in _PATTERNS.items():
            if (kind != "private" or text.kind in {"page", "message", "public"}) and pattern.search(sentence):
                yield kind, sentence


def counts() -> Counter[tuple[str, str]]:
    return Counter((text.kind, rule) for text in texts() for rule, _ in hits_in(text))


def ceilings() -> dict[str, dict[str, int]]:
    ceilings: dict[str, dict[str, int]] = json.loads(CEILINGS.read_text(encoding="utf-8"))
    return ceilings


def more_than_allowed() -> list[str]:
    """Returns a line for each kind of text and rule that has more hits than its ceiling."""
    allowed = ceilings()
    return [
        f"{kind} {rule}: {count} hits, allowed {most}: {RULES[rule][1]} (python tests/prose.py {kind} {rule})"
        for (kind, rule), count in sorted(counts().items())
        if count > (most := allowed.get(kind, {}).get(rule, 0))
    ]


def lower() -> None:
    """Writes the counts of now, but never a higher one."""
    found = counts()
    lowered = {
        kind: {rule: min(most, found[kind, rule]) for rule, most in rules.items()} for kind, rules in ceilings().items()
    }
    CEILINGS.write_text(json.dumps(lowered, indent=1) + "\n", encoding="utf-8")


def _of_page(path: Path) -> Iterator[Text]:
    """Yields paragraphs, list items, headings and cells of tables; code blocks are left out."""
    source = path.read_text(encoding="utf-8")
    source = re.sub(
        r"^( *)(`{3,}).*?^\1\2$|<!--.*?-->", lambda code: "\n" * code[0].count("\n"), source, flags=re.M | re.S
    )
    shown = str(path.relative_to(ROOT))
    start, lines = 1, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], 1):
        begins = re.match(r"\s*(?:[-*] |\d+\. |#+ |> |\|)|\s*$", line)
        if begins and lines:
            yield Text("page", shown, start, _plain(" ".join(lines)))
            lines = []
        if line.lstrip().startswith("|"):
            yield from (
                Text("page", shown, number, _plain(cell))
                for cell in re.split(r"(?<!\\)\|", line)
                if re.search(r"\w", cell)
            )
        elif line.strip():
            start = start if lines else number
            lines.append(line[begins.end() :] if begins else line)


def _of_code(tree: ast.Module, path: Path, public: set[str]) -> Iterator[Text]:
    """Yields docstrings, field docs under fields, and texts of three words or more: those are messages."""
    shown = str(path.relative_to(ROOT))
    is_public = path.name in {"errors.py", "fixtures.py"}

    def walk(node: ast.AST, name: str, *, known: bool) -> Iterator[Text]:
        for child in ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                documents = name if child is getattr(node, "body", [None])[0] else ""
                for line, words in _paragraphs(cleandoc(child.value.value)):
                    yield Text("public" if known else "docstring", shown, child.lineno + line, words, documents)
                    documents = ""
            elif isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{name} {child.name}"
                private = child.name.startswith("_")
                yield from walk(
                    child, inner, known=not private and (known or (not name and (is_public or child.name in public)))
                )
            elif isinstance(child, ast.Constant | ast.JoinedStr):
                said = _message(child)
                if (
                    len(re.findall(r"\b[a-z]{2,}\b", said)) >= 3
                    and " " in said
                    and not re.search(r"[{};]\n|\\[wbsd]|</", said)
                ):
                    yield Text("message", shown, child.lineno, _plain(_filled(said)))
            else:
                yield from walk(child, name, known=known)

    yield from walk(tree, "", known=False)


def _filled(said: str) -> str:
    """Returns a message as people read it: with values, and each line a sentence."""
    return re.sub(r"\n(?=[A-Z])", ". ", re.sub(r"\{[\w.:,]*\}", "X", said))


def _message(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_message(part) for part in node.values)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "X"


def _of_comments(source: str, path: Path) -> Iterator[Text]:
    """Yields comments; lines that follow each other are one, up to a heading, an empty line or a drawing."""
    found = [one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type == tokenize.COMMENT]
    alone = [token for token in found if not token.line[: token.start[1]].strip()]
    groups = [[token] for token in found if token not in alone]
    for _, group in groupby(enumerate(alone), lambda entry: entry[1].start[0] - entry[0]):
        groups.append([token for _, token in group])
    for lines in groups:
        whole = "\n".join(re.sub(r"^#!? ?|(?:# )?noqa.*|(?:type|fmt|pragma):.*", "", token.string) for token in lines)
        whole = re.sub(r"^--- .*", lambda heading: heading[0] + "\n", whole, flags=re.MULTILINE)
        for line, words in _paragraphs(whole):
            yield Text("comment", str(path.relative_to(ROOT)), lines[0].start[0] + line, words)


def _paragraphs(source: str) -> Iterator[tuple[int, str]]:
    """Yields lines and texts; drawings and tables, which are indented, are left out."""
    line = 0
    for part in re.split(r"(\n\s*\n|\n(?=- )|\n(?: {4}|.*\S {2,}\S).*)", source):
        if re.search(r"\w", part) and not part.startswith("\n"):
            yield line, _plain(part)
        line += part.count("\n")


def _plain(source: str) -> str:
    source = re.sub(r"``.+?``|`[^`]*`", "X", source, flags=re.S)
    source = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", source)
    return " ".join(re.sub(r"\*\*|^-+ |\[ \]", "", source.strip()).split())


_EMPTY = set(
    re.findall(r"\w+", "a an the of returns yields it its this that one whether is are has and for in to with all")
)


def _repeats(text: Text) -> bool:
    """Whether each word of a docstring is in the name that it documents, or says nothing."""
    words = {word.rstrip("s") for word in re.findall(r"[a-z]+", text.words.lower()) if word not in _EMPTY}
    known = {word.rstrip("s") for word in re.findall(r"[A-Z]?[a-z]+", text.name) for word in [word.lower()]}
    return words <= known


def main(wanted: list[str]) -> int:
    if wanted == ["lower"]:
        lower()
    if not wanted or wanted == ["lower"]:
        print("\n".join(broken := more_than_allowed()), end="\n" * bool(broken))
        return bool(broken)
    rules, kinds = set(wanted) & RULES.keys(), set(wanted) & set(KINDS)
    paths = set(wanted) - rules - kinds - {"all"}
    found = Counter[tuple[str, str]]()
    for text in texts():
        if (not kinds or text.kind in kinds) and (not paths or any(part in text.path for part in paths)):
            for rule, sentence in hits_in(text):
                if not rules or rule in rules:
                    found[text.kind, rule] += 1
                    print(f"{text.path}:{text.line}: {text.kind} {rule}: {sentence}")
    print({one: {rule: count for (kind, rule), count in sorted(found.items()) if kind == one} for one in KINDS})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
