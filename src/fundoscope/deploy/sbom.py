"""What is in an image: Python packages and Debian packages, as a CycloneDX 1.6 document.

Read from the layers of the finished image, so that it says what is there and not what was asked for. Written beside
the build's record, not into the image.
"""

import json
import re
import tarfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fundoscope.deploy.sizes import layer_names, open_layer

KEPT = re.compile(
    r"(?P<python>.*\.dist-info/METADATA)|(?P<dpkg>var/lib/dpkg/status(\.d/[^/]+)?)|"
    r"(?P<terms>usr/share/doc/[^/]+/copyright)|(?P<note>usr/share/fundoscope/image\.json)|"
    r"(?P<os>(etc|usr/lib)/os-release)"
)
LICENCE = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)  # Debian's machine-readable notices
COMMON_LICENCE = re.compile(r"/usr/share/common-licenses/([A-Z]\w*(?:[-.]\w+)*)")


@dataclass(frozen=True)
class Component:
    kind: str  # pypi, deb or generic, as package addresses say it
    name: str
    version: str
    licences: tuple[str, ...] = ()
    expression: str = ""  # the licence in SPDX's terms, where it is given so
    architecture: str = ""
    sha256: str = ""  # of the wheel that was installed


def interesting_files(archive: Path) -> dict[str, str]:
    """The few texts in an image that say what it holds, by path; a later layer's replaces an earlier one's."""
    found: dict[str, str] = {}
    for name in layer_names(archive):
        with open_layer(archive, name) as file, tarfile.open(fileobj=file, mode="r|") as layer:
            for member in layer:
                path = member.name.removeprefix("./").removeprefix("/")
                if member.isreg() and KEPT.fullmatch(path):
                    content = layer.extractfile(member)
                    assert content is not None
                    found[path] = content.read().decode(errors="replace")
    return found


def components(files: dict[str, str], hashes: dict[str, str]) -> list[Component]:
    """Every package that these files name; `hashes` are those of the wheels, by name-version."""
    found = {*_python_packages(files, hashes), *_debian_packages(files), *_python_itself(files)}
    return sorted(found, key=lambda part: (part.kind, part.name, part.version))


def _python_packages(files: dict[str, str], hashes: dict[str, str]) -> Iterator[Component]:
    for path, text in files.items():
        if path.endswith(".dist-info/METADATA"):
            said = HeaderParser().parsestr(text)
            name, number = said["Name"], said["Version"]
            sha256 = hashes.get(f"{re.sub('[-_.]+', '_', name).lower()}-{number.lower()}", "")
            yield Component(
                "pypi",
                re.sub("[-_.]+", "-", name).lower(),
                number,
                _python_licences(said),
                said["License-Expression"] or "",
                sha256=sha256,
            )


def _python_licences(said: Any) -> tuple[str, ...]:
    named = [line.split(" :: ")[-1] for line in said.get_all("Classifier", []) if line.startswith("License :: ")]
    named = [name for name in named if name != "OSI Approved"]
    short = (said["License"] or "").strip().splitlines()[:1]
    return tuple(named) or tuple(line for line in short if 0 < len(line) <= 80)


def _debian_packages(files: dict[str, str]) -> Iterator[Component]:
    paths = [path for path in files if path.startswith("var/lib/dpkg/status")]
    for stanza in (stanza for path in paths for stanza in re.split(r"\n\n+", files[path]) if stanza.strip()):
        said = HeaderParser().parsestr(stanza)
        if "installed" in (said["Status"] or "").split():
            path = f"usr/share/doc/{said['Package']}/copyright"
            licences = _debian_licences(path, files.get(path, ""))
            yield Component("deb", said["Package"], said["Version"], licences, architecture=said["Architecture"])


def _debian_licences(path: str, terms: str) -> tuple[str, ...]:
    """By name, where the notice is written for machines; else the common ones it refers to; else where it is."""
    named = LICENCE.findall(terms) if terms.startswith("Format:") else COMMON_LICENCE.findall(terms)
    return tuple(sorted(set(named))) or ((f"see /{path}",) if terms else ())


def _python_itself(files: dict[str, str]) -> Iterator[Component]:
    """Where it was built from source, as in the official Python images, no package says that it is there."""
    from_debian = any(re.match(r"var/lib/dpkg/status\.d/(lib)?python3", path) for path in files)
    if (number := note(files).get("python")) and not from_debian:
        yield Component("generic", "python", number, expression="PSF-2.0")


def note(files: dict[str, str]) -> dict[str, Any]:
    """What containers/assemble.py wrote down; images made without it have none."""
    return dict(json.loads(files.get("usr/share/fundoscope/image.json", "{}")))


def distribution(files: dict[str, str]) -> str:
    """debian-12, for example."""
    text = files.get("etc/os-release") or files.get("usr/lib/os-release") or ""
    said = dict(re.findall(r'^(\w+)="?(.*?)"?$', text, re.MULTILINE))
    return f"{said.get('ID', 'linux')}-{said.get('VERSION_ID', '')}".rstrip("-")


def document(image: str, digest: str, parts: Iterable[Component], *, distro: str) -> dict[str, Any]:
    """The CycloneDX document: the same image always has the same one."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "fundoscope", "version": version("fundoscope")}]},
            "component": {"type": "container", "bom-ref": digest, "name": image, "version": digest},
        },
        "components": [_described(part, distro) for part in parts],
    }


def _described(part: Component, distro: str) -> dict[str, Any]:
    address = _address(part, distro)
    described: dict[str, Any] = {
        "type": "library",
        "bom-ref": address,
        "name": part.name,
        "version": part.version,
        "purl": address,
    }
    if part.expression:
        described["licenses"] = [{"expression": part.expression}]
    elif part.licences:
        described["licenses"] = [{"license": {"name": name}} for name in part.licences]
    if part.sha256:
        described["hashes"] = [{"alg": "SHA-256", "content": part.sha256}]
    return described


def _address(part: Component, distro: str) -> str:
    """https://github.com/package-url/purl-spec"""
    number = quote(part.version, safe=":")
    if part.kind == "deb":
        vendor = distro.split("-")[0]
        return f"pkg:deb/{vendor}/{quote(part.name)}@{number}?arch={part.architecture}&distro={distro}"
    return f"pkg:{part.kind}/{part.name}@{number}"
