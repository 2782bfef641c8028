#!/usr/bin/env python3
"""Makes docs/images/session.svg: the first commands of docs/tutorial.md, run for real, as an animated terminal.

Usage: scripts/cast.py [GRETEL] [OUTPUT]     (default: target/release/gretel, docs/images/session.svg)

The program is the one on the page. Whoever asks for less motion sees the end at once, and so does a viewer that animates nothing.
"""

import html
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRETEL = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/gretel").resolve()
OUTPUT = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs/images/session.svg")
COLUMNS, WIDTH, HEIGHT, PAUSE = 104, 7.3, 17, 1.6
COMMANDS = [
    "gretel record -o rec -- ./orders <input",
    "gretel why rec",
    "gretel last-write rec 0x55555555a2c8 8",
    "gretel replay rec",
]
STYLE = """
:root { --back: #ffffff; --fore: #1b1f24; --dim: #59636e; --prompt: #116329; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --fore: #dde3ea; --dim: #98a2ad; --prompt: #7ee787; --line: #3a424b; } }
rect { fill: var(--back); stroke: var(--line); }
text { fill: var(--fore); font: 12px ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre; }
.err { fill: var(--dim); } .prompt { fill: var(--prompt); font-weight: 600; }
@keyframes come { from { opacity: 0 } to { opacity: 1 } }
@media (prefers-reduced-motion: no-preference) { text { animation: come 0.05s backwards } }
"""


def run(command, folder):
    """The lines that a command prints, with what standard error had marked."""
    shell = command.replace("gretel", str(GRETEL), 1)
    done = subprocess.run(shell, shell=True, cwd=folder, capture_output=True, text=True)
    lines = [("", line) for line in done.stdout.splitlines()] + [("err", line) for line in done.stderr.splitlines()]
    return [(kind, line.replace(f"{folder}/", "")) for kind, line in lines]


def main():
    page = (ROOT / "docs/tutorial.md").read_text()
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "orders.c").write_text(re.search(r"```c\n(.*?)```", page, re.S).group(1))
        make = re.search(r"```\n(gcc -g .*?)```", page, re.S).group(1)
        subprocess.run(make, shell=True, cwd=folder, check=True)
        at = 0.5
        for command in COMMANDS:
            shown.append((at, "prompt", f"$ {command}"))
            for kind, line in run(command, folder):
                at += 0.06
                cut = line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"
                shown.append((at + 0.5, kind, cut))
            at += PAUSE
    width, height = round(COLUMNS * WIDTH) + 32, len(shown) * HEIGHT + 30
    print(f"{len(shown)} lines, {at:.0f} seconds", file=sys.stderr)
    with OUTPUT.open("w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" ')
        out.write(f'aria-label="A session of gretel in a terminal"><style>{STYLE}</style>\n')
        out.write(f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>\n')
        for row, (when, kind, line) in enumerate(shown):
            y = 24 + row * HEIGHT
            style = f' class="{kind}"' if kind else ""
            out.write(f'<text x="16" y="{y}"{style} style="animation-delay:{when:.2f}s">{html.escape(line)}</text>\n')
        out.write("</svg>\n")


main()
