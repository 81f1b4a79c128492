"""Runs commands of the Azure CLI and checks what they print.

Usage: runner.py list AREA.yaml...
       runner.py serve AREA.yaml... < requests

Each file lists the commands of one area, from top to bottom (README.md describes its fields).
`list` prints the areas with their commands as JSON. `serve` reads JSON lines: first the variables of
the commands, then `{"area": 0, "command": 3}` for each command to run. It answers each request with
one JSON line, `{"problems": [...]}`, which is empty if the command did what the file expects.

The Azure CLI is unmodified. All commands run in this process, because starting the CLI takes longer
than most commands. Environment variables direct its requests to the local Azure.
"""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import threading
from dataclasses import dataclass, field

import jmespath
import yaml

# Fields of a command in an area file.
FIELDS = {
    "az", "note", "files", "exit", "json", "matches", "stdout", "error", "capture", "sign_in",
}  # fmt: skip


@dataclass
class Area:
    """The commands of one file, and the values that they captured."""

    name: str
    commands: list
    values: dict = field(default_factory=dict)
    # Index of the command that runs next.
    position: int = 0


def read_area(path):
    with open(path, encoding="utf-8") as file:
        commands = yaml.safe_load(file)
    for command in commands:
        unknown = set(command) - FIELDS
        if unknown or "az" not in command:
            raise SystemExit(f"{path}: {unknown or 'no command'} in {command}")
    return Area(os.path.splitext(os.path.basename(path))[0], commands)


# Values ---------------------------------------------------------------------------------------

VARIABLE = re.compile(r"\$\{([A-Za-z0-9_.]+)\}")


class MissingValue(Exception):
    """A variable without a value: the command that captures it failed."""


def look_up(name, values):
    value = values
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            raise MissingValue(f"`{name}` has no value, because an earlier command failed")
        value = value[part]
    return value


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value)


def with_values(template, values):
    """Replaces `${name}` in every string of a template."""
    if isinstance(template, dict):
        return {with_values(k, values): with_values(v, values) for k, v in template.items()}
    if isinstance(template, list):
        return [with_values(item, values) for item in template]
    if not isinstance(template, str):
        return template
    whole = VARIABLE.fullmatch(template)
    if whole:
        return look_up(whole.group(1), values)
    return VARIABLE.sub(lambda found: text_of(look_up(found.group(1), values)), template)


# The Azure CLI --------------------------------------------------------------------------------


class Console(io.StringIO):
    """Standard error of the CLI, which its log handlers open only once."""

    def clear(self):
        self.seek(0)
        self.truncate()


def invoke(arguments, errors):
    """Runs one command; returns its exit code and its standard output."""
    from azure.cli.core import get_default_cli

    errors.clear()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            code = get_default_cli().invoke(arguments, out_file=printed)
        except SystemExit as end:
            code = end.code
    return code or 0, printed.getvalue()


DEVICE_CODE = re.compile(r"enter the code (\S+) to authenticate")


@contextlib.contextmanager
def device_sign_in(user, errors):
    """Signs a user in at the page of device codes as soon as the CLI prints a code."""
    if user is None:
        yield
        return
    done = threading.Event()

    def watch():
        while not done.wait(0.05):
            found = DEVICE_CODE.search(errors.getvalue())
            if found:
                confirm_device_code(found.group(1), user)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def confirm_device_code(code, user):
    import requests

    form = {"user_code": code, "username": user["name"], "password": user["password"]}
    url = "https://login.microsoftonline.com/common/oauth2/deviceauth"
    requests.post(url, data=form, timeout=10)


# Checks ---------------------------------------------------------------------------------------


def run_command(command, values, errors):
    """Runs a command and returns the problems with what it printed."""
    command = with_values({k: v for k, v in command.items() if k not in ("az", "capture")}, values) | {
        "az": command["az"], "capture": command.get("capture", {}),
    }  # fmt: skip
    for name, content in command.get("files", {}).items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text_of(content))
    # Values are replaced after the split, because they may contain blanks and quotes.
    arguments = [text_of(with_values(part, values)) for part in shlex.split(command["az"])]
    with device_sign_in(command.get("sign_in"), errors):
        code, printed = invoke(arguments, errors)
    if code == 0:
        for name, path in command["capture"].items():
            values[name] = printed.strip() if path == "stdout" else query(path, printed)
    return list(check(command, code, printed, errors.getvalue()))


def query(path, printed):
    try:
        return jmespath.search(path, json.loads(printed or "null"))
    except (ValueError, jmespath.exceptions.JMESPathError) as error:
        return f"not found: {error}"


def check(command, code, printed, errors):
    expected = command.get("exit", 1 if "error" in command else 0)
    if code != expected:
        yield f"exit code {code}, expected {expected}"
    wanted = command.get("error", [])
    for text in [wanted] if isinstance(wanted, str) else wanted:
        if text not in errors:
            yield f"the error does not contain `{text}`"
    if code == 0 and expected == 0:
        yield from check_output(command, printed)
    elif code != expected or wanted:
        return
    elif printed.strip():
        yield f"output of a failed command: {printed.strip()}"


def check_output(command, printed):
    if "stdout" in command and printed.strip() != text_of(command["stdout"]):
        yield f"standard output is `{printed.strip()}`"
    for path, wanted in command.get("json", {}).items():
        found = query(path, printed)
        if found != wanted:
            yield f"`{path}` is {json.dumps(found)}, expected {json.dumps(wanted)}"
    for path, pattern in command.get("matches", {}).items():
        found = query(path, printed)
        if found is None or not re.fullmatch(pattern, text_of(found), re.DOTALL):
            yield f"`{path}` is {json.dumps(found)}, expected a match of {pattern}"


# Requests -------------------------------------------------------------------------------------


def run_up_to(area, index, variables, errors):
    """Runs the commands of an area that have not run yet, up to this one."""
    problems = []
    while area.position <= index:
        command = area.commands[area.position]
        area.position += 1
        values = area.values | variables
        try:
            problems = run_command(command, values, errors)
        except MissingValue as missing:
            problems = [str(missing)]
        area.values |= {name: values[name] for name in command.get("capture", {}) if name in values}
        if problems and errors.getvalue().strip():
            problems.append(errors.getvalue().strip())
    return problems


def serve(areas):
    requests, answers = sys.stdin, sys.stdout
    errors = sys.stderr = Console()
    variables = json.loads(next(requests))
    for line in requests:
        request = json.loads(line)
        problems = run_up_to(areas[request["area"]], request["command"], variables, errors)
        print(json.dumps({"problems": problems}), file=answers, flush=True)


def list_commands(areas):
    listing = [
        {"name": area.name, "commands": [command["az"] for command in area.commands]}
        for area in areas
    ]
    print(json.dumps(listing))


if __name__ == "__main__":
    actions = {"list": list_commands, "serve": serve}
    if len(sys.argv) < 3 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    actions[sys.argv[1]]([read_area(path) for path in sys.argv[2:]])
