"""Progress where there is no terminal: a line now and then, on standard error."""

import json
from io import StringIO

from command.in_process import invoke
from rich.console import Console
from rich.text import Text

from attnlaw.render.terminal import console


def test_lines_come_late_and_seldom_and_show_what_is_left(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(console.messages, "get_time", lambda: now[0])
    with console.progress("learn [x]") as report:
        # 10 in 12 seconds; then 19 in 38, without the slowest step.
        for second, done in ((5, 1), (12, 10), (20, 15), (43, 20), (80, 40)):
            now[0] = 100.0 + second
            report(done, 40)
        now[0] = 300.0
        report(4, 40, left=3725)
    assert capsys.readouterr().err.splitlines() == [
        "learn [x]: 10 of 40, about 0:00:36 left",
        "learn [x]: 20 of 40, about 0:00:40 left",
        "learn [x]: 40 of 40",  # the end, because a line before it showed a part
        "learn [x]: 4 of 40, about 1:02:05 left",
    ]


def test_the_pace_of_steps_that_take_minutes_is_known(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.messages, "get_time", lambda: now[0])
    with console.progress("study") as report:
        for done in range(3):
            now[0] = 600.0 * done
            report(done, 10)
    assert capsys.readouterr().err.splitlines() == ["study: 1 of 10", "study: 2 of 10, about 1:20:00 left"]


def show_150_tasks(monkeypatch, first):
    """Show the progress of tasks that take 3 seconds each, except the first."""
    now = [0.0]
    monkeypatch.setattr(console.messages, "get_time", lambda: now[0])
    monkeypatch.setattr(console, "FIRST_REPORT", 0.0)
    monkeypatch.setattr(console, "REPORT_INTERVAL", 0.0)
    with console.progress("init") as report:
        for done in range(1, 151):
            now[0] = first + 3.0 * (done - 1)
            report(done, 150)


def test_no_time_is_shown_before_five_percent_of_the_work(capsys, monkeypatch):
    show_150_tasks(monkeypatch, 3.0)
    lines = capsys.readouterr().err.splitlines()
    assert [" left" in line for line in lines[:9]] == [False] * 7 + [True] * 2
    assert lines[7] == "init: 8 of 150, about 0:07:06 left"


def test_a_slow_first_step_does_not_lengthen_the_estimate(capsys, monkeypatch):
    show_150_tasks(monkeypatch, 20.0)
    assert "init: 8 of 150, about 0:07:06 left" in capsys.readouterr().err.splitlines()


def test_the_bar_of_a_terminal_shows_the_same_time(monkeypatch):
    now, file = [0.0], StringIO()
    screen = Console(width=80, file=file, force_terminal=True, get_time=lambda: now[0])
    monkeypatch.setattr(console, "messages", screen)
    bar, report = console.progress_bar("init")
    for done in (1, 7, 8):
        now[0] = 3.0 * done
        report(done, 150)
        screen.print(bar.get_renderable())
    shown = [Text.from_ansi(line).plain.rstrip() for line in file.getvalue().splitlines()]
    assert [" left" in line for line in shown] == [False, False, True]
    assert shown[-1].endswith("8/150 about 0:07:06 left")


def test_a_command_writes_them_to_standard_error_alone(monkeypatch):
    monkeypatch.setattr(console, "FIRST_REPORT", 0.0)
    monkeypatch.setattr(console, "REPORT_INTERVAL", 0.0)
    ended = invoke("limit", "--width", "4,8,inf", "--draws", "500", "--json")
    assert ended.stderr.startswith("limit: 0 of 3\nlimit: 1 of 3\nlimit: 2 of 3, about 0:00:0")
    assert len(json.loads(ended.stdout)) == 3
