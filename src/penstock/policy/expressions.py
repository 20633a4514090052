"""Conditions in CEL: compiled once, asked often. Deny rules and approvals of a policy file are such conditions.

    denies = compiled('job.class == "experiment" && offer.gpu == "H100"', OF_RULES)    # or BadExpression
    denies.reads                                                                      # ("job.class", "offer.gpu")
    denies.holds({"job.class": "experiment", "offer.gpu": "A100"})                     # True, False, or an error's text

A condition that gets an answer other than True or False has failed, and whoever asks denies: `holds` never raises.
Time is bounded by what compiles: no loops, a short text, and lists and texts of bounded length to read. Each variable
is declared with its type and its whole name, so that most mistakes are found before anybody is denied anything.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Final

from penstock.extras import install
from penstock.policy.cel_syntax import Syntax, syntax_of
from penstock.policy.fields import Field, Kind, Read

#: Characters of a condition; elements of a list and characters of a text that it may read.
MOST_CHARACTERS: Final = 2_000
MOST_LISTED: Final = 256
MOST_TEXT: Final = 4_096
#: Answers that one condition remembers: most jobs and offers are alike in what it reads.
MOST_REMEMBERED: Final = 4_096
MACROS: Final = "exists, exists_one, all, map and filter"
KINDS: Final[dict[Kind, str]] = {"text": "STRING", "whole": "INT", "amount": "DYN", "truth": "BOOL", "texts": ""}
TYPES: Final = {"string": "text", "int": "a whole number", "double": "a number with decimals", "bool": "true or false"}


class BadExpression(ValueError):
    """It cannot be used: a sentence, and where in the text, both counted from 1; 0: as a whole."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(
            f"column {column}: {message}" if line == 1 else f"{line}:{column}: {message}" if line else message
        )


class Expression:
    """A condition over named values. Make it with `compiled`."""

    __slots__ = ("_answers", "_env", "_program", "reads", "texts")

    def __init__(self, env: Any, program: Any, syntax: Syntax, fields: tuple[Field, ...]) -> None:
        self._env, self._program = env, program
        self._answers: dict[tuple[object, ...], bool | str] = {}
        self.reads = tuple(field.name for field in fields if field.name in syntax.reads)  #: in the order of the fields
        self.texts = syntax.texts  #: its literals

    def holds(self, values: Mapping[str, Read]) -> bool | str:
        """What it reads must be among the values, in the kinds that it was compiled for."""
        try:
            key = tuple([tuple(value) if isinstance(value := values[name], list) else value for name in self.reads])
            known = self._answers.get(key)
            if known is None:
                if len(self._answers) >= MOST_REMEMBERED:
                    self._answers.clear()
                known = self._answers[key] = self._ask({name: values[name] for name in self.reads})
        except Exception as error:  # noqa: BLE001 - whatever it is: no answer, and so no permission
            return f"{type(error).__name__}: {error}"
        return known

    def _ask(self, values: Mapping[str, Read]) -> bool | str:
        for name, value in values.items():
            if isinstance(value, (str, list)) and (fault := _too_long(name, value)):
                return fault
        answer = self._program.eval(self._env.Activation(dict(values))).value()
        if answer is True or answer is False:
            return bool(answer)
        return _plain(str(answer))


def _too_long(name: str, value: str | list[str]) -> str:
    if isinstance(value, list) and len(value) > MOST_LISTED:
        return f"{name} has {len(value):,} entries, and a rule reads at most {MOST_LISTED}"
    if any(len(text) > MOST_TEXT for text in ([value] if isinstance(value, str) else value)):
        return f"{name} is longer than {MOST_TEXT:,} characters"
    return ""


def _plain(error: str) -> str:
    """Without the status code that cel puts in front: `INVALID_ARGUMENT: divide by zero`."""
    return re.sub(r"^[A-Z_]+: ", "", error.removesuffix("]").partition(" [")[0])


# --- compiling -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4_096)
def compiled(text: str, fields: tuple[Field, ...]) -> Expression:
    """Raises `BadExpression`, with the sentence for whoever wrote it."""
    if not text.strip():
        raise BadExpression("The condition is empty.")
    if len(text) > MOST_CHARACTERS:
        raise BadExpression(f"The condition has {len(text):,} characters; {MOST_CHARACTERS:,} are the most.")
    env = _environment(fields)
    try:
        program = env.compile(text)
    except RuntimeError as error:
        raise _said(str(error), fields) from None
    except (TypeError, UnicodeError):
        raise BadExpression("The condition has characters that are no text.") from None
    syntax = syntax_of(program.serialize())
    if syntax.loops:
        raise BadExpression(f"Loops over lists ({MACROS}) are not allowed: they can take very long. Use `in`.")
    kind = program.return_type().name().lower()
    if kind != "bool":
        raise BadExpression(f"The condition gives {TYPES.get(kind, kind)}, and must give true or false.")
    expression = Expression(env, program, syntax, fields)
    _try(expression, fields)
    return expression


@cache
def _environment(fields: tuple[Field, ...]) -> Any:
    cel = _cel()
    kinds = {kind: getattr(cel.Type, name) if name else cel.Type.List(cel.Type.STRING) for kind, name in KINDS.items()}
    return cel.NewEnv(variables={field.name: kinds[field.kind] for field in fields})


def _cel() -> Any:
    """Only a policy with conditions needs it."""
    try:
        from cel_expr_python import cel
    except ImportError:
        command = install("policy")
        raise BadExpression(f"Rules in CEL need a package of 50 MB that is missing; run: {command}") from None
    return cel


def _try(expression: Expression, fields: tuple[Field, ...]) -> None:
    """Numbers of two kinds are found out only when they meet, so let them: `offer.price_per_gpu_hour * 8`."""
    for text in chain(("",), dict.fromkeys(expression.texts)):
        for truth in (True, False):
            sample: dict[Kind, Read] = {"text": text, "whole": 1, "amount": 1.5, "truth": truth, "texts": [text]}
            answer = expression.holds({field.name: sample[field.kind] for field in fields})
            if isinstance(answer, str) and "No matching overloads" in answer:
                raise BadExpression(_no_overload(answer.rpartition(": ")[2]))


# --- what is wrong with it -------------------------------------------------------------------------------------------


def _said(error: str, fields: tuple[Field, ...]) -> BadExpression:
    match = re.search(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)", error)
    if match is None:
        deep = "recursion" in error
        return BadExpression("The condition is nested too deeply." if deep else f"CEL says: {_plain(error)}.")
    line, column, complaint = int(match[1]), int(match[2]), match[3].removesuffix(" [INVALID_ARGUMENT]")
    if unknown := re.match(r"undeclared reference to '([^']*)'", complaint):
        root = re.match(r"\w+", unknown[1])
        start = column - (len(root[0]) if root and "." in unknown[1] else 0)
        return BadExpression(_unknown(unknown[1], fields), line, max(1, start))
    if complaint.startswith("found no matching overload for "):
        return BadExpression(_no_overload(complaint), line, column)
    if complaint.startswith("Syntax error: "):
        complaint = complaint.partition(" expecting ")[0].replace("mismatched input '<EOF>'", "it ends too early")
        return BadExpression(f"{complaint}.", line, column)
    return BadExpression(f"{complaint}.", line, column)


def _unknown(name: str, fields: tuple[Field, ...]) -> str:
    known = [field.name for field in fields]
    root, _, rest = name.partition(".")
    roots = list(dict.fromkeys(field.partition(".")[0] for field in known))
    own = [field for field in known if field.startswith(root + ".")]
    alike = [field for field in known if rest and field.endswith("." + rest)] or get_close_matches(name, known, 1, 0.75)
    advice = f"There is no {name}"
    if not rest and root in roots:
        advice = f"{root} has fields, written like {own[0]}"
    elif alike:
        advice += f"; did you mean {alike[0]}"
        return f"{advice}? A rule may read {', '.join(own)}." if own else f"{advice}?"
    return f"{advice}. A rule may read {', '.join(own or ['fields of ' + ', '.join(roots)])}."


def _no_overload(complaint: str) -> str:
    """From `... '_>_' applied to '(int, string)'`, or `_>_(double, string)`."""
    match = re.search(r"'?([^'\s(]+)'?(?: applied to '|)\(([^)]*)\)", complaint)
    if match is None:
        return f"CEL says: {complaint}."
    operator = match[1].strip("_@")
    kinds = [kind.strip().removesuffix("64") for kind in match[2].split(",")]
    operands = " and ".join(TYPES.get(kind, kind) for kind in kinds)
    hint = " Write the whole number with a decimal, like 2.0." if {*kinds} == {"int", "double"} else ""
    return f"'{operator}' does not work on {operands}.{hint}"
