"""Runs commands of the Azure CLI and of lanyard, and checks their results.

Usage: runner.py list AREA.yaml...
       runner.py serve AREA.yaml < requests

Each file lists the commands of one area, in the order in which they run. conformance/README.md describes
its fields. `list` prints the areas with their commands as one JSON line.

`serve` reads JSON lines: the variables of the commands, then the index of each command to run. It answers each
index with `{"command": INDEX, "problems": [...]}`. `problems` is empty if the result is as expected.

The Azure CLI is unmodified. All commands of an area run in one process, because the CLI starts more slowly than
most commands run. Environment variables direct its requests to the local Azure. The variable LANYARD names the
program of the commands of lanyard, which are processes of their own.
"""

import contextlib
import difflib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import jmespath
import requests
import yaml


@dataclass
class Command:
    """An entry of an area file."""

    # The command line without `az`, or that without `lanyard`, or a credential document that requests a token. The
    # output of the latter is the claims of the token.
    az: str = ""
    lanyard: str = ""
    credential: str = ""
    note: str = ""
    # Files that are written before the command runs: text, or content for JSON.
    files: dict = field(default_factory=dict)
    # The expected exit code, by default 0, or 1 with `error`.
    exit: int | None = None
    # Expected values by JMESPath expressions on the printed JSON.
    json: dict = field(default_factory=dict)
    # Regular expressions that the values match, by JMESPath expressions.
    matches: dict = field(default_factory=dict)
    # The expected standard output, without the blanks around it.
    stdout: str | None = None
    # Texts that standard error contains.
    error: list | str = field(default_factory=list)
    # The exact texts of files after the command, by name.
    written: dict = field(default_factory=dict)
    # The modes of files after the command, in octal digits, by name.
    modes: dict = field(default_factory=dict)
    # JMESPath expressions, or `stdout`, by the names of the variables that get their values.
    capture: dict = field(default_factory=dict)
    # The user who enters the device code, with `name` and `password`.
    sign_in: dict | None = None

    def __post_init__(self):
        if [bool(it) for it in (self.az, self.lanyard, self.credential)].count(True) != 1:
            raise TypeError("an entry needs one of `az`, `lanyard` and `credential`")

    def name(self):
        if self.credential:
            return f"token of {self.credential}"
        return f"az {self.az}" if self.az else f"lanyard {self.lanyard}"

    def expected_code(self):
        return self.exit if self.exit is not None else 1 if self.error else 0


@dataclass
class Area:
    """The commands of a file, and the values that they captured."""

    name: str
    commands: list
    captured: dict = field(default_factory=dict)
    # The index of the next command.
    position: int = 0


def read_area(path):
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        return Area(path.stem, [Command(**entry) for entry in entries])
    except TypeError as error:
        raise SystemExit(f"{path}: {error}") from error


# Variables -----------------------------------------------------------------------------------

VARIABLE = re.compile(r"\$\{([\w.]+)\}")


class MissingValue(Exception):
    """A variable has no value, because the command that captures it failed."""


def look_up(name, variables):
    value = variables
    for part in name.split("."):
        if not isinstance(value, dict) or value.get(part) is None:
            raise MissingValue(f"`{name}` has no value, because an earlier command failed")
        value = value[part]
    return value


def as_text(value):
    return value if isinstance(value, str) else json.dumps(value)


def substitute(template, variables):
    """Replaces each `${name}` in the strings of a template."""
    match template:
        case dict():
            items = template.items()
            return {substitute(k, variables): substitute(v, variables) for k, v in items}
        case list():
            return [substitute(item, variables) for item in template]
        case str():
            whole = VARIABLE.fullmatch(template)
            if whole:
                return look_up(whole.group(1), variables)
            return VARIABLE.sub(lambda it: as_text(look_up(it.group(1), variables)), template)
        case _:
            return template


# Execution -----------------------------------------------------------------------------------


class ErrorStream(io.StringIO):
    """Standard error of the CLI. Its log handlers keep the first stream that they open."""

    def clear(self):
        self.seek(0)
        self.truncate()


def run_command(command, variables, errors):
    """Runs a command. Returns its captured values, and the problems with its result."""
    for name, content in substitute(command.files, variables).items():
        Path(name).write_text(as_text(content), encoding="utf-8")
    # Values are inserted after the split, because they may contain blanks and quotes.
    parts = shlex.split(command.az or command.lanyard)
    arguments = [as_text(substitute(part, variables)) for part in parts]
    if command.credential:
        code, output = request_token(substitute(command.credential, variables), errors)
    elif command.az:
        with device_sign_in(substitute(command.sign_in, variables), errors):
            code, output = invoke(arguments, errors)
    else:
        code, output = run_lanyard(arguments, errors)
    captured = {}
    if code == command.expected_code():
        captured = {name: capture(path, output) for name, path in command.capture.items()}
    return captured, list(find_problems(command, variables, code, output, errors.getvalue()))


def invoke(arguments, errors):
    """Invokes the CLI. Returns its exit code and its standard output."""
    from azure.cli.core import get_default_cli

    errors.clear()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            code = get_default_cli().invoke(arguments, out_file=output)
        except SystemExit as end:
            code = end.code
    return code or 0, output.getvalue()


def run_lanyard(arguments, errors):
    """Runs lanyard. Returns its exit code and its standard output."""
    errors.clear()
    program = [os.environ["LANYARD"], *arguments]
    result = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    errors.write(result.stderr)
    return result.returncode, result.stdout


def request_token(document, errors):
    """Requests a token with a credential document. Returns an exit code, and the claims of the token."""
    from credential_document import token_claims

    errors.clear()
    try:
        return 0, json.dumps(token_claims(document))
    except ValueError as error:
        errors.write(str(error))
        return 1, ""


DEVICE_CODE = re.compile(r"open the page (\S+) and enter the code (\S+) to authenticate")


@contextlib.contextmanager
def device_sign_in(user, errors):
    """Signs a user in on the page of device codes as soon as the CLI prints the page and a code."""
    if user is None:
        yield
        return
    ended = threading.Event()

    def sign_in():
        while not ended.wait(0.02):
            printed = DEVICE_CODE.search(errors.getvalue())
            if printed:
                page, code = printed.groups()
                form = {"user_code": code, "username": user["name"], "password": user["password"]}
                requests.post(page, data=form, proxies={"http": "", "https": ""}, timeout=10)
                return

    thread = threading.Thread(target=sign_in, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# Checks --------------------------------------------------------------------------------------


def capture(path, output):
    return output.strip() if path == "stdout" else query(path, output)


def query(path, output):
    try:
        return jmespath.search(path, json.loads(output or "null"))
    except (ValueError, jmespath.exceptions.JMESPathError) as error:
        return f"no value: {error}"


def find_problems(command, variables, code, output, errors):
    expected = command.expected_code()
    if code != expected:
        yield f"exit code {code}, expected {expected}"
    for text in [command.error] if isinstance(command.error, str) else command.error:
        text = substitute(text, variables)
        if text not in errors:
            yield f"standard error does not contain `{text}`"
    if code != expected:
        return
    yield from find_file_problems(command, variables)
    if command.stdout is not None and output.strip() != substitute(command.stdout, variables):
        yield f"standard output is `{output.strip()}`"
    for path, wanted in substitute(command.json, variables).items():
        found = query(path, output)
        if found != wanted:
            yield f"`{path}` is {json.dumps(found)}, expected {json.dumps(wanted)}"
    for path, pattern in substitute(command.matches, variables).items():
        found = query(path, output)
        if found is None or not re.fullmatch(pattern, as_text(found), re.DOTALL):
            yield f"`{path}` is {json.dumps(found)}, expected a match of {pattern}"


def find_file_problems(command, variables):
    for name, wanted in substitute(command.written, variables).items():
        found = Path(name).read_text(encoding="utf-8") if Path(name).exists() else ""
        if found != wanted:
            lines = (it.splitlines(keepends=True) for it in (wanted, found))
            yield "".join(difflib.unified_diff(*lines, f"{name} (expected)", name))
    for name, wanted in command.modes.items():
        found = f"{Path(name).stat().st_mode & 0o7777:o}" if Path(name).exists() else "absent"
        if found != wanted:
            yield f"the mode of {name} is {found}, expected {wanted}"


# Requests ------------------------------------------------------------------------------------


def run_up_to(area, index, variables, errors):
    """Runs the commands of an area that have not run, up to this one. Returns the problems of the last one."""
    problems = []
    while area.position <= index:
        command = area.commands[area.position]
        area.position += 1
        errors.clear()
        try:
            captured, problems = run_command(command, variables | area.captured, errors)
            area.captured |= captured
        except MissingValue as missing:
            problems = [str(missing)]
        except Exception:
            problems = [traceback.format_exc()]
        if problems and errors.getvalue().strip():
            problems.append(errors.getvalue().strip())
    return problems


def serve(areas):
    (area,) = areas
    answers = sys.stdout
    errors = sys.stderr = ErrorStream()
    variables = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        index = json.loads(line)
        problems = run_up_to(area, index, variables, errors)
        print(json.dumps({"command": index, "problems": problems}), file=answers, flush=True)


def list_commands(areas):
    listing = [{"name": it.name, "commands": [command.name() for command in it.commands]} for it in areas]
    print(json.dumps(listing))


if __name__ == "__main__":
    actions = {"list": list_commands, "serve": serve}
    if len(sys.argv) < 3 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    actions[sys.argv[1]]([read_area(Path(path)) for path in sys.argv[2:]])
