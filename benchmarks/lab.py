"""The lab's page of `learn`, linear output: from the move of a slider to the new curve on the screen.

Measured in chromium, by the page's own clock: from the key that moves the slider to the frame after the chart
has changed. Limit: 200 ms, the median of all moves. Run it on a machine with nothing else to do.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from claims import Claims

MILLISECONDS, MOVES, WARM = 200.0, 24, 3
# Keep the time of a key, and of the frame after the curve has changed.
WATCH = """() => {
  window.moves = [];
  let start = null;
  const curve = () => document.querySelector('.lab-charts svg')?.innerHTML;
  let known = curve();
  document.addEventListener('keydown', () => { start = performance.now(); }, true);
  new MutationObserver(() => {
    const now = curve();
    if (now === undefined || now === known) return;
    known = now;
    const from = start;
    requestAnimationFrame(() => setTimeout(() => window.moves.push(performance.now() - from)));
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(address: str, pid: int) -> tuple[list[float], float]:
    """Milliseconds of each move, and the server's processor time for one."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_selector(".lab-table")
        page.evaluate(WATCH)
        slider = page.locator("[data-setting=alpha] [role=slider]").first
        before = 0.0
        for move in range(WARM + MOVES):
            if move == WARM:
                before = cpu_seconds(pid)
            slider.press("ArrowLeft" if move % 2 else "ArrowRight")
            page.wait_for_function("count => window.moves.length > count", arg=move)
            time.sleep(0.1)
        spent = cpu_seconds(pid) - before
        moves = page.evaluate("window.moves")
        browser.close()
    return moves[WARM:], 1000 * spent / MOVES


def main() -> int:
    command = [sys.executable, "-m", "attnlaw", "lab", "learn", "--no-browser"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        address = next(word for word in server.stderr.readline().split() if word.startswith("http"))
        moves, spent = measured(address, server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    print(f"moves, ms: {' '.join(f'{move:.0f}' for move in moves)}")
    print(f"processor time of the server for one: {spent:.0f} ms")
    claims = Claims()
    task = "lab: from a move of a slider to the new curve (learn, linear), ms"
    ours = f"{spent:.0f} ms of the server's processor"
    claims.add(task, ours, "no peer", median(moves), MILLISECONDS, least=False)
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
