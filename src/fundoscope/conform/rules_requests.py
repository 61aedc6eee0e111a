"""Rules that one request at a time can try: routes, odd photographs, headers, payload."""

import json
from collections.abc import Iterator
from dataclasses import replace

from fundoscope.conform.contract import ATTRIBUTES, MIB, SAGEMAKER
from fundoscope.conform.finding import Finding, broken, held, judged, not_applicable, not_tried
from fundoscope.conform.live import Live
from fundoscope.conform.photographs import odd_payloads, padded
from fundoscope.conform.wire import Answer, ask, chunked, message

PARAMETERS = {"MaxConcurrentTransforms": int, "BatchStrategy": str, "MaxPayloadInMB": int}
STRATEGIES = ("SINGLE_RECORD", "MULTI_RECORD", "SingleRecord", "MultiRecord")
LONG_HEADER = 100_000  # characters: more than any server's buffer for one
EXTRA_HEADERS = (
    ("X-Amzn-SageMaker-Inference-Id", "conform-1"),
    ("X-Amzn-SageMaker-Target-Variant", "variant-1"),
    ("X-Amzn-SageMaker-Enable-Explanations", "`false`"),
    ("X-Amzn-Trace-Id", "Root=1-67891233-abcdef012345678912345678"),
    ("X-Forwarded-For", "192.0.2.1, 198.51.100.2"),
    ("X-Conform-Empty", ""),
    *((f"X-Conform-{n}", "ignore me") for n in range(20)),
)
EARLY_S = 0.3  # how long we wait for a refusal before sending the body that earns it


def routes(live: Live) -> Iterator[Finding]:
    ping, answer, own = live.ping(), live.invoke(), live.plan.routes
    check = "GET /ping and POST /invocations"
    if own != SAGEMAKER:
        yield broken(4, check, f"it is asked at {own.ping} and {own.invocations}, not at /ping and /invocations")
    else:
        yield judged(
            answer.ok and ping.status not in (0, 404, 405),  # what else it says is the seventh rule's
            4,
            check,
            f"{check} answer",
            f"GET /ping: {ping}; POST /invocations with {live.plan.payload.name}: {_quoted(answer)}",
            f"/ping {ping}, /invocations {answer}",
        )
    yield execution_parameters(live)
    unknown = live.request("GET", "/no-such-route")
    yield judged(
        unknown.status == 404, 4, "unknown route", "an unknown route is 404", f"an unknown route: {unknown}, not 404"
    )
    asked = (("GET", own.invocations), ("POST", own.ping), ("DELETE", own.invocations))
    wrong = {f"{method} {path}": live.request(method, path) for method, path in asked}
    bad = [f"{what}: {answer}" for what, answer in wrong.items() if not 400 <= answer.status < 500]
    yield judged(
        not bad,
        4,
        "wrong method",
        f"a wrong method is {'/'.join(sorted({str(a) for a in wrong.values()}))}",
        f"a wrong method is not refused with 4xx: {', '.join(bad)}",
    )


def execution_parameters(live: Live) -> Finding:
    check = "GET /execution-parameters"
    answer = live.request("GET", "/execution-parameters")
    if answer.status in (404, 405):
        return not_applicable(4, check, f"optional, and not there ({answer}): batch takes 6 MB and one record")
    try:
        found = json.loads(answer.body) if answer.ok else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return broken(4, check, f"/execution-parameters: {answer}, and no JSON object")
    wrong = [
        f"{name} is {found[name]!r}"
        for name, kind in PARAMETERS.items()
        if name in found and (not isinstance(found[name], kind) or isinstance(found[name], bool))
    ]
    if found.get("BatchStrategy", STRATEGIES[0]) not in STRATEGIES:
        wrong.append(f"BatchStrategy is {found['BatchStrategy']!r}")
    wrong += [f"{name} is missing" for name in PARAMETERS if name not in found]
    said = ", ".join(f"{name} {found[name]}" for name in PARAMETERS if name in found)
    return judged(not wrong, 4, check, "/execution-parameters are well-formed", "; ".join(wrong), said)


def odd_photographs(live: Live) -> Iterator[Finding]:
    check = "odd and hostile photographs"
    answers: dict[str, Answer] = {}
    for payload in odd_payloads(live.plan.payload):
        answers[payload.name] = answer = live.invoke(payload)
        if answer.kind == "late":
            break  # it hangs; the others would cost a minute each
    bad = [f"{name}: {_complaint(answer)}" for name, answer in answers.items() if _complaint(answer)]
    said = ", ".join(f"{name} {answer}" for name, answer in answers.items())
    good = f"{len(answers)} odd photographs got 2xx or 4xx and a sentence"
    yield judged(not bad, 4, check, good, "; ".join(bad), said)


def _complaint(answer: Answer) -> str:
    """What is wrong with this answer to a bad photograph."""
    if answer.status == 0:
        return f"the server {answer}"
    if not 200 <= answer.status < 500 or 300 <= answer.status < 400:
        return f"{_quoted(answer)}, where 2xx or 4xx was due"
    return "" if answer.body.strip() else f"{answer} without a word"


def _quoted(answer: Answer) -> str:
    said = " ".join(answer.body.decode(errors="replace").split())[:120]
    return f"{answer} {said}".strip()


def headers(live: Live) -> Iterator[Finding]:
    answer = live.invoke(headers=EXTRA_HEADERS)
    yield judged(
        answer.ok,
        11,
        "extra headers",
        f"{len(EXTRA_HEADERS)} extra headers are ignored",
        f"with {len(EXTRA_HEADERS)} extra headers: {_quoted(answer)}",
    )
    yield custom_attributes(live)
    yield _survives(live, "custom attributes too long", "a" * (live.plan.limits.attributes + 1))
    yield _survives(live, "header too long", "a" * LONG_HEADER)


def custom_attributes(live: Live) -> Finding:
    """Taken at full length. Coming back is up to the container, but what comes back must be what it set, whole."""
    check, full = "custom attributes", live.plan.limits.attributes
    sent = {length: ("fundoscope=1,trace:" + "x" * full)[:length] for length in (19, full)}
    answers = {length: live.invoke(headers=[(ATTRIBUTES, value)]) for length, value in sent.items()}
    refused = [f"{length} characters: {_quoted(answer)}" for length, answer in answers.items() if not answer.ok]
    if refused:
        return broken(11, check, f"custom attributes are refused: {'; '.join(refused)}")
    back = {length: answer.headers.get(ATTRIBUTES.lower()) for length, answer in answers.items()}
    for value in back.values():
        if value is not None and (len(value) > full or not all(" " <= character <= "~" for character in value)):
            return broken(11, check, f"the answer's custom attributes are not {full} visible ASCII characters")
    if all(value is None for value in back.values()):
        return held(11, check, f"custom attributes of {full} characters are taken; none are sent back")
    whole = [length for length, value in back.items() if value == sent[length]]
    if len(whole) in (0, len(sent)):
        way = "echoed whole" if whole else "answered with the server's own"
        return held(11, check, f"custom attributes of {full} characters are taken and {way}")
    lost = next(length for length in sent if length not in whole)
    return broken(
        11, check, f"custom attributes of {whole[0]} characters come back, of {lost} only {len(back[lost] or '')}"
    )


def _survives(live: Live, check: str, value: str) -> Finding:
    """More than the platform lets through: taken or refused, but answered, and the server lives on."""
    answer = live.invoke(headers=[(ATTRIBUTES, value)])
    live.invocations.pop()  # not one that the 60 s are about
    fine = (answer.hung_up or 200 <= answer.status < 500) and live.is_there()
    what = f"a header of {len(value):,} characters"
    done = f"ends the connection: it {answer}" if answer.hung_up else f"gets {answer}"
    return judged(fine, 11, check, f"{what} {done}", f"after {what}: {_quoted(answer)}, /ping {live.ping()}")


def payload(live: Live) -> Iterator[Finding]:
    limit = live.plan.limits.payload_bytes
    yield _at_the_limit(live, limit)
    sent = replace(live.plan.payload, data=padded(live.plan.payload.data, limit + 1))
    request = live.invocation(sent)
    yield _above(live, "one byte above the limit", request, len(request) - len(sent.data))
    chunks = chunked(sent.data)
    kind = ("Content-Type", sent.content_type)
    head = message("POST", live.plan.routes.invocations, headers=[kind, ("Transfer-Encoding", "chunked")])
    yield _above(live, "above the limit, in chunks of unsaid number", head + chunks, len(head))


def _at_the_limit(live: Live, limit: int) -> Finding:
    check, size = "at the limit", f"{limit / MIB:g} MB"
    answer = live.invoke(replace(live.plan.payload, data=padded(live.plan.payload.data, limit)))
    if answer.ok:
        return held(12, check, f"{size} are taken", f"{answer} after {answer.seconds:.2f} s", seconds=answer.seconds)
    if 400 <= answer.status < 500 and answer.status != 413:
        return not_tried(12, check, f"a photograph padded to {size} is refused for another reason: {_quoted(answer)}")
    return broken(12, check, f"a photograph of {size}, which the platform lets through: {_quoted(answer)}")


def _above(live: Live, check: str, request: bytes, head: int) -> Finding:
    for _ in range(3):
        answer = ask(live.address, request, within_s=live.plan.limits.response_s, pause_after=head, pause_s=EARLY_S)
        # A closed connection may have swallowed the answer on its way: once more, if there is still somebody.
        if not answer.hung_up or not live.is_there():
            break
    healthy = live.is_there()
    said = f"{check}: {_quoted(answer)}" if answer.status else f"{check}: the server {answer}"
    if not healthy:
        return broken(12, check, f"{said}, and /ping is no longer answered with 200")
    if 400 <= answer.status < 500:
        return held(12, check, f"{check}: refused with {answer}")
    if answer.ok:
        return held(12, check, f"{check}: taken all the same ({answer}); the platform would have refused it")
    return broken(12, check, said)
