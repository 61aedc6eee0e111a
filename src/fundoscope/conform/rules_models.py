"""Rule 13: many models behind one server, loaded and unloaded by name."""

import json
from collections.abc import Iterator

from fundoscope.conform.contract import MANY_LABEL
from fundoscope.conform.finding import Finding, broken, held, not_applicable, not_tried
from fundoscope.conform.live import Live
from fundoscope.conform.wire import Answer

NAME = "conform"
COPIES = 8  # of the model, in the hope that memory runs out; a server on a large machine may take them all
LOADED = (200, 201)


def many_models(live: Live) -> Iterator[Finding]:
    """Started with SAGEMAKER_MULTI_MODEL=true. Each step needs the ones before it."""
    listing = live.request("GET", "/models")
    if listing.status == 404 or (listing.status == 405 and (live.target.labels() or {}).get(MANY_LABEL) != "true"):
        if (live.target.labels() or {}).get(MANY_LABEL) == "true":
            yield broken(
                13, "GET /models", f"the label …{MANY_LABEL}=true offers many models, GET /models is {listing}"
            )
        else:
            yield not_applicable(13, "GET /models", f"it serves one model: GET /models is {listing}")
        return
    yield from _unknown_names(live, listing)
    url = live.target.models_url
    if url is None:
        yield not_tried(13, "POST /models", "there is no model to load; say --model FOLDER")
        return
    yield from _load_and_unload(live, url)


def _unknown_names(live: Live, listing: Answer) -> Iterator[Finding]:
    yield _expect("GET /models", listing, (200,), '"models"')
    yield _expect("GET /models/{unknown}", live.request("GET", "/models/nobody"), (404,))
    yield _expect("DELETE /models/{unknown}", live.request("DELETE", "/models/nobody"), (404,))
    yield _expect("POST /models/{unknown}/invoke", _invoke(live, "nobody"), (404,))


def _load_and_unload(live: Live, url: str) -> Iterator[Finding]:
    loading = _load(live, NAME, url)
    yield _expect("POST /models", loading, LOADED)
    if loading.status not in LOADED:
        return
    yield _expect("POST /models, loaded already", _load(live, NAME, url), (409,))
    yield _expect("GET /models, one loaded", live.request("GET", "/models"), (200,), f'"{NAME}"')
    yield _expect("GET /models/{name}", live.request("GET", f"/models/{NAME}"), (200,), f'"{NAME}"')
    yield _expect("POST /models/{name}/invoke", _invoke(live, NAME), (200,))
    yield _no_memory(live, url)
    yield _expect("DELETE /models/{name}", live.request("DELETE", f"/models/{NAME}"), (200,))
    yield _expect("DELETE /models/{name}, unloaded already", live.request("DELETE", f"/models/{NAME}"), (404,))
    yield _expect("POST /models/{name}/invoke, unloaded", _invoke(live, NAME), (404,))


def _no_memory(live: Live, url: str) -> Finding:
    """Copies until the server says it has no room; what it says must be 507."""
    check, loaded = "no memory left", []
    try:
        for n in range(COPIES):
            name = f"{NAME}-{n}"
            answer = _load(live, name, url)
            if answer.status not in LOADED:
                return _expect(check, answer, (507,))
            loaded.append(name)
    finally:
        for name in loaded:
            live.request("DELETE", f"/models/{name}")
    return not_tried(13, check, f"507: this machine has room for {COPIES} copies of the model and more")


def _load(live: Live, name: str, url: str) -> Answer:
    body = json.dumps({"model_name": name, "url": url}).encode()
    return live.request("POST", "/models", body=body, headers=[("Content-Type", "application/json")])


def _invoke(live: Live, name: str) -> Answer:
    sent = live.plan.payload
    headers = [("Content-Type", sent.content_type), ("X-Amzn-SageMaker-Target-Model", f"{name}.tar.gz")]
    return live.request("POST", f"/models/{name}/invoke", body=sent.data, headers=headers)


def _expect(check: str, answer: Answer, wanted: tuple[int, ...], within: str = "") -> Finding:
    if answer.status not in wanted:
        said = " ".join(answer.body.decode(errors="replace").split())[:120]
        return broken(13, check, f"{check}: {answer}, not {wanted[0]}" + (f" ({said})" if said else ""))
    if within and within not in answer.body.decode(errors="replace"):
        return broken(13, check, f"{check}: the answer does not say {within}")
    return held(13, check, f"{check} {answer}")
