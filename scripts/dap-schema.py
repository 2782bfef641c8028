#!/usr/bin/env python3
"""Checks `gretel dap` against the Debug Adapter Protocol's own JSON schema: a session with each request that is offered.

Usage: scripts/dap-schema.py SCHEMA [GRETEL]

SCHEMA is debugAdapterProtocol.json of https://github.com/microsoft/debug-adapter-protocol. Needs gcc and Python's jsonschema. Each
message is checked in both directions, an answer by its command, an event by its name. Ends with 1 where one is not as the schema says.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRETEL = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/release/gretel").resolve()
TYPES = json.loads(pathlib.Path(sys.argv[1]).read_text())["definitions"]
EVENTS = {
    kind["allOf"][1]["properties"]["event"]["enum"][0]: name
    for name, kind in TYPES.items()
    if name.endswith("Event") and name != "Event"
}
PROGRAM = """#include <stdio.h>
#include <stdlib.h>
struct node { long key; struct node *next; };
static struct node *head;
static void push(long key) {
    struct node *node = malloc(sizeof *node);
    node->key = key;
    node->next = head;
    head = node;
}
int main(void) {
    for (long key = 0; key < 4; key++) push(key);
    head->next->next = (struct node *)0x1234;
    long sum = 0;
    for (struct node *node = head; node; node = node->next) sum += node->key;
    printf("%ld\\n", sum);
}
"""


class Session:
    """The editor's end of a session."""

    def __init__(self, folder):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.adapter = subprocess.Popen([GRETEL, "dap"], cwd=folder, **pipes)
        self.sent, self.heard = 0, 0
        self.events, self.wrong = [], []
        self.checked = collections.Counter()

    def check(self, name, message):
        """Whether a message is one of this type."""
        schema = {"$ref": f"#/definitions/{name}", "definitions": TYPES}
        self.checked[name] += 1
        for error in jsonschema.Draft4Validator(schema).iter_errors(message):
            self.wrong.append(f"{name}: {error.json_path}: {error.message}")

    def hear(self):
        """The next message."""
        length = 0
        while (line := self.adapter.stdout.readline().decode()) != "\r\n":
            if not line:
                sys.exit("the adapter has ended")
            name, value = line.split(": ")
            length = int(value) if name == "Content-Length" else length
        message = json.loads(self.adapter.stdout.read(length))
        if message["seq"] <= self.heard:
            self.wrong.append(f"number {message['seq']} behind {self.heard}")
        self.heard = message["seq"]
        if message["type"] == "event":
            self.check(EVENTS.get(message["event"], "Event"), message)
        elif message["success"]:
            command = message["command"]
            self.check(f"{command[0].upper()}{command[1:]}Response", message)
        else:
            self.check("ErrorResponse", message)
        return message

    def ask(self, command, **arguments):
        """The body of the answer, which is empty where there is only a refusal."""
        self.sent += 1
        message = {"seq": self.sent, "type": "request", "command": command, "arguments": arguments}
        self.check(f"{command[0].upper()}{command[1:]}Request", message)
        text = json.dumps(message).encode()
        self.adapter.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self.adapter.stdin.flush()
        while (heard := self.hear())["type"] == "event":
            self.events.append(heard)
        return heard.get("body") or {}

    def until(self, name):
        """The next event of this name."""
        while True:
            for number, event in enumerate(self.events):
                if event["event"] == name:
                    return self.events.pop(number).get("body") or {}
            self.events.append(self.hear())


def look(session, thread):
    """The innermost frame, with all that an editor shows of it."""
    frame = session.ask("stackTrace", threadId=thread, startFrame=0, levels=20)["stackFrames"][0]
    for scope in session.ask("scopes", frameId=frame["id"])["scopes"]:
        shown = session.ask("variables", variablesReference=scope["variablesReference"])["variables"]
        for variable in filter(lambda it: it["variablesReference"], shown[:12]):
            session.ask("variables", variablesReference=variable["variablesReference"])
    return frame


def run(session, source):
    """All requests that are offered, and some that are not."""
    session.ask("initialize", adapterID="gretel", supportsVariableType=True, supportsMemoryReferences=True)
    session.ask("launch", recording="rec")
    session.until("initialized")
    session.ask("setBreakpoints", source={"path": source}, breakpoints=[{"line": 7}, {"line": 9999}])
    session.ask("setFunctionBreakpoints", breakpoints=[{"name": "push"}, {"name": "none_such"}])
    session.ask("setExceptionBreakpoints", filters=[])
    session.ask("configurationDone")
    thread = session.until("stopped")["threadId"]
    session.ask("threads")
    session.ask("exceptionInfo", threadId=thread)
    frame = look(session, thread)
    for context, expression in [("watch", "head->next"), ("hover", "sum"), ("watch", "none (")]:
        session.ask("evaluate", expression=expression, frameId=frame["id"], context=context)
    for command in ["when", "help", "none such"]:
        session.ask("evaluate", expression=command, frameId=frame["id"], context="repl")
    for way in ["stepBack", "stepBack", "next", "stepIn", "stepOut", "stepBack", "reverseContinue"]:
        session.ask(way, threadId=thread)
        session.until("stopped")
        frame = look(session, thread)
    session.ask("stepBack", threadId=thread, granularity="instruction")
    session.until("stopped")
    data = session.ask("dataBreakpointInfo", name="head", frameId=look(session, thread)["id"])["dataId"]
    session.ask("setDataBreakpoints", breakpoints=[{"dataId": data, "accessType": "write"}])
    session.ask("continue", threadId=thread)
    session.until("stopped")
    code = look(session, thread)["instructionPointerReference"]
    session.ask("disassemble", memoryReference=code, instructionOffset=-4, instructionCount=12)
    session.ask("setInstructionBreakpoints", breakpoints=[{"instructionReference": code}])
    session.ask("readMemory", memoryReference=code, offset=0, count=16)
    session.ask("loadedSources")
    session.ask("modules")
    session.ask("source", source={"path": source}, sourceReference=0)
    session.ask("restartFrame", frameId=1)
    session.ask("breakpointLocations", source={"path": source}, line=7)
    session.ask("disconnect")


def main():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "list.c")
        source.write_text(PROGRAM)
        subprocess.run(["gcc", "-g", "-O0", "-o", "list", source], cwd=folder, check=True)
        recorded = [GRETEL, "record", "-o", "rec", "--", "./list"]
        subprocess.run(recorded, cwd=folder, check=False, stderr=subprocess.DEVNULL)
        session = Session(folder)
        run(session, str(source))
        session.adapter.stdin.close()
        session.adapter.wait(timeout=20)
    print(f"{session.checked.total()} messages of {len(session.checked)} types, {len(session.wrong)} not as the schema says")
    print("\n".join(session.wrong))
    sys.exit(bool(session.wrong))


main()
