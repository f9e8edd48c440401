#!/usr/bin/env python3
"""Records a run of `callboard` on a pseudo-terminal and writes it as an animated SVG: docs/recording/run.svg.

    cargo build --release -p callboard-cli
    python3 docs/recording/record.py target/release/callboard docs/recording/run.svg

The run is a real one, of the model that does not think, in a temporary folder; nothing is fetched and no other package is
needed. Lines appear in the order and at the times in which they were printed, at least STEP seconds apart, once. A viewer that plays
no animations, or whose reader wants none, shows the end. A test of callboard-cli makes such a recording too, and fails when its lines
differ from those of the committed one.
"""

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

COLUMNS = 112
STEP = 0.12  # seconds between two lines, at least
TYPING = 0.9  # seconds from a prompt to the command's first line

COMMANDS = [
    ["callboard", "init"],
    ["callboard", "run", "review this repository", "--to", "coordinator", "--model", "fake"],
    ["callboard", "runs", "list"],
]

MAIN = """\
fn main() {
    let port: u16 = std::env::args().nth(1).unwrap().parse().unwrap(); // TODO: an error in place of a panic
    println!("{port}");
}
"""

# The palette, and the cell of a font of 14 px whose characters are 0.6 em wide.
BACKGROUND, FOREGROUND, BAR = "#1b1f27", "#d6dae2", "#2b313c"
COLOURS = {31: "#ef7b7b", 32: "#8fce7f", 33: "#e3c06f", 34: "#7aa8ef", 35: "#c792ea", 36: "#6fc9cf"}
FONT, WIDTH, HEIGHT, MARGIN, TOP = 14, 8.4, 20, 16, 40
NBSP = "\u00a0"  # A row of blanks would be shown as one.
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def record(program: Path) -> list[tuple[float, str]]:
    """The lines of the whole session, each with the second in which it came."""
    lines: list[tuple[float, str]] = []
    now = 0.5
    with tempfile.TemporaryDirectory() as folder:
        project, state = Path(folder, "project"), Path(folder, "state")
        project.mkdir()
        (project / "main.rs").write_text(MAIN)
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "USER": "ann", "TERM": "xterm-256color", "LANG": "C.UTF-8",
                       "XDG_STATE_HOME": str(state)}
        for command in COMMANDS:
            words = " ".join(f'"{word}"' if " " in word else word for word in command)
            lines.append((now, f"\x1b[32m$\x1b[0m {words}"))
            begin, now = now + TYPING, now + TYPING
            for at, line in run([str(program), *command[1:]], project, environment):
                now = max(now + STEP, begin + at)
                lines.append((now, line))
            lines.append((now, ""))
            now += TYPING
    lines.pop()
    return lines


def run(command: list[str], folder: Path, environment: dict[str, str]):
    """Runs a command on a terminal of its own; each line with its seconds since the start."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=there, stdout=there, stderr=there,
                               start_new_session=True)
    os.close(there)
    pending = b""
    while True:
        try:
            read = os.read(here, 65536)
        except OSError:  # Linux: the other side was closed by the last process.
            read = b""
        if not read:
            break
        *complete, pending = (pending + read).split(b"\n")
        for line in complete:
            yield time.monotonic() - started, text_of(line)
    os.close(here)
    if pending:
        yield time.monotonic() - started, text_of(pending)
    if process.wait() != 0:
        sys.exit(f"{command}: exit code {process.returncode}")


def text_of(line: bytes) -> str:
    text = line.decode().rstrip("\r")
    rest = SGR.sub("", text)
    if any(ord(character) < 32 for character in rest):
        sys.exit(f"this line moves the cursor, which this script does not show: {text!r}")
    return text


def spans(line: str) -> str:
    """The line as SVG text: a part for each run of characters of one style, stretched to its cells."""
    parts, column, style = [], 0, ""
    for index, piece in enumerate(SGR.split(line)):
        if index % 2:
            style = style_of(piece, style)
        elif piece:
            # Blanks at the ends need no glyph.
            text = piece.strip(" ")
            start = column + len(piece) - len(piece.lstrip(" "))
            if text:
                x, length = MARGIN + start * WIDTH, len(text) * WIDTH
                parts.append(f'<tspan x="{x:.1f}" textLength="{length:.1f}"{style}>{html.escape(text).replace(" ", NBSP)}</tspan>')
            column += len(piece)
    return "".join(parts)


def style_of(codes: str, style: str) -> str:
    for code in map(int, codes.split(";") if codes else ["0"]):
        if code == 0:
            style = ""
        elif code == 1:
            style += ' font-weight="bold"'
        elif code == 2:
            style += ' opacity="0.6"'
        elif code in COLOURS:
            style += f' fill="{COLOURS[code]}"'
        else:
            sys.exit(f"this script does not know the style {code}")
    return style


def svg(lines: list[tuple[float, str]]) -> str:
    width, height = 2 * MARGIN + COLUMNS * WIDTH, TOP + len(lines) * HEIGHT + MARGIN
    texts = []
    for row, (at, line) in enumerate(lines):
        if not line:
            continue
        y = TOP + (row + 0.75) * HEIGHT
        shown = f"animation-delay:{at:.2f}s"
        texts.append(f'<text y="{y:.0f}" class="l" style="{shown}">{spans(line)}</text>')
    dots = "".join(f'<circle cx="{MARGIN + 6 + 18 * i}" cy="16" r="5.5" fill="{c}"/>'
                   for i, c in enumerate(["#ef7b7b", "#e3c06f", "#8fce7f"]))
    body = "\n".join(texts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-labelledby="title">
<!-- Not drawn by hand: a run of the program, with the model that does not think, recorded by
python3 docs/recording/record.py target/release/callboard docs/recording/run.svg
A test of callboard-cli runs that script too, and fails when the program prints something else. -->
<title id="title">A terminal: callboard init writes four agents, callboard run has them review a folder, runs list shows the run.</title>
<style>
text {{ font: {FONT}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: {FOREGROUND}; white-space: pre }}
@media (prefers-reduced-motion: no-preference) {{
  .l {{ animation: appear 0.05s backwards }}
  @keyframes appear {{ from {{ opacity: 0 }} }}
}}
</style>
<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>
<path d="M0 8a8 8 0 0 1 8-8H{width - 8:.0f}a8 8 0 0 1 8 8V32H0z" fill="{BAR}"/>
{dots}
{body}
</svg>
"""


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, drawing = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    drawing.write_text(svg(record(program)))


main()
