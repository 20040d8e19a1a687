"""Progress where there is no terminal: a line now and then, on standard error."""

import json

from command.in_process import invoke

from attnlaw.render.terminal import console


def test_lines_come_late_and_seldom_and_show_what_is_left(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(console.messages, "get_time", lambda: now[0])
    with console.progress("learn [x]") as report:
        # 9 since the first report in 7 seconds, 19 in 38.
        for second, done in ((5, 1), (12, 10), (20, 15), (43, 20), (80, 40)):
            now[0] = 100.0 + second
            report(done, 40)
        now[0] = 300.0
        report(0, 40, left=3725)
    assert capsys.readouterr().err.splitlines() == [
        "learn [x]: 10 of 40, about 0:00:24 left",
        "learn [x]: 20 of 40, about 0:00:40 left",
        "learn [x]: 0 of 40, about 1:02:05 left",
    ]


def test_the_pace_of_steps_that_take_minutes_is_known(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.messages, "get_time", lambda: now[0])
    with console.progress("study") as report:
        for done in range(3):
            now[0] = 600.0 * done
            report(done, 10)
    assert capsys.readouterr().err.splitlines() == ["study: 1 of 10", "study: 2 of 10, about 1:20:00 left"]


def test_a_command_writes_them_to_standard_error_alone(monkeypatch):
    monkeypatch.setattr(console, "FIRST_REPORT", 0.0)
    monkeypatch.setattr(console, "REPORT_INTERVAL", 0.0)
    ended = invoke("limit", "--width", "4,8,inf", "--draws", "500", "--json")
    assert ended.stderr.startswith("limit: 0 of 3\nlimit: 1 of 3\nlimit: 2 of 3, about 0:00:0")
    assert len(json.loads(ended.stdout)) == 3
