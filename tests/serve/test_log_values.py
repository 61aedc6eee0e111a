"""The log of requests, line by line: the method, the address as far as it is ours, and the status."""

from pathlib import Path

from running import Running, serving, until


def requests(running: Running) -> list[tuple[str, str, int]]:
    return [(event["method"], event["route"], event["status"]) for event in running.events("request")]


def test_a_line_tells_the_method_the_route_and_the_status_and_nothing_that_a_caller_made_up(
    artefact_folder: Path, jpeg: bytes
) -> None:
    with serving(artefact_folder, "--log-requests") as running:
        running.grade(jpeg)
        running.send("GET", "/ping")
        running.send("POST", "/endpoints/maria/invocations", b"no photograph", **{"content-type": "image/jpeg"})
        running.send("GET", "/v2/models/maria/ready")
        running.send("DELETE", "/models/maria")
        running.send("GET", "/maria")
        until(lambda: len(running.events("request")) == 6)
        assert requests(running) == [
            ("POST", "/invocations", 200),
            ("GET", "/ping", 200),
            ("POST", "/endpoints", 400),
            ("GET", "/v2", 200),
            ("DELETE", "/models", 404),
            ("GET", "other", 404),
        ]
        assert all(event["ms"] >= 0 for event in running.events("request"))
