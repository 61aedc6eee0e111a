import json
from pathlib import Path

from saved_image import save_image

from fundoscope.deploy.sbom import Component, components, distribution, document, interesting_files

OS_RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
STATUS = """Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 12.2.0-14+deb12u1

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: libcrypt1
Status: install ok installed
Architecture: amd64
Version: 1:4.4.33-2
"""
GCC_TERMS = "On Debian GNU/Linux systems, the licence is in /usr/share/common-licenses/GPL-3. See also there.\n"
CRYPT_TERMS = "Format: https://example.org\n\nFiles: *\nLicense: LGPL-2.1+\n\nLicense: BSD-3-clause\n Redistribution…\n"
FILES = {
    "usr/lib/python3/dist-packages/typing_extensions-4.16.0.dist-info/METADATA": (
        "Name: typing_extensions\nVersion: 4.16.0\nLicense-Expression: PSF-2.0\n\nName: not me\n"
    ),
    "usr/lib/python3/dist-packages/h11-0.16.0.dist-info/METADATA": (
        "Name: h11\nVersion: 0.16.0\nLicense: MIT\nClassifier: License :: OSI Approved :: MIT License\n"
    ),
    "var/lib/dpkg/status": STATUS,
    "usr/share/doc/libstdc++6/copyright": GCC_TERMS,
    "usr/share/doc/libcrypt1/copyright": CRYPT_TERMS,
    "etc/os-release": OS_RELEASE,
    "usr/lib/python3/dist-packages/h11/__init__.py": "not of interest",
}


def _saved(folder: Path) -> dict[str, str]:
    archive = folder / "image.tar"
    files = {name: text.encode() for name, text in FILES.items()}
    save_image(archive, [{"etc/os-release": b"ID=older\n"}, files])
    return interesting_files(archive)


def test_packages_are_read_from_the_layers_with_their_licences(tmp_path: Path) -> None:
    sha256 = "ab" * 32
    found = components(_saved(tmp_path), {"typing_extensions-4.16.0": sha256})
    assert found == [
        Component("deb", "libcrypt1", "1:4.4.33-2", ("BSD-3-clause", "LGPL-2.1+"), architecture="amd64"),
        Component("deb", "libstdc++6", "12.2.0-14+deb12u1", ("GPL-3",), architecture="amd64"),
        Component("pypi", "h11", "0.16.0", ("MIT License",)),
        Component("pypi", "typing-extensions", "4.16.0", expression="PSF-2.0", sha256=sha256),
    ]


def test_a_later_layer_replaces_an_earlier_ones_files(tmp_path: Path) -> None:
    assert distribution(_saved(tmp_path)) == "debian-12"


def test_a_python_that_no_package_brought_is_listed_all_the_same() -> None:
    note = {"usr/share/fundoscope/image.json": json.dumps({"python": "3.11.9"})}
    assert components(note, {}) == [Component("generic", "python", "3.11.9", expression="PSF-2.0")]
    packaged = {**note, "var/lib/dpkg/status.d/python3.11-minimal": ""}
    assert components(packaged, {}) == []


def test_the_document_is_cyclonedx(tmp_path: Path) -> None:
    files = _saved(tmp_path)
    made = document("fundoscope:lean", "sha256:00", components(files, {}), distro=distribution(files))
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert made["metadata"]["component"]["type"] == "container"
    # Addresses as the examples of the package-url specification write them: + as %2B, the epoch's colon as it is.
    assert [part["purl"] for part in made["components"]] == [
        "pkg:deb/debian/libcrypt1@1:4.4.33-2?arch=amd64&distro=debian-12",
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12",
        "pkg:pypi/h11@0.16.0",
        "pkg:pypi/typing-extensions@4.16.0",
    ]
    assert made["components"][3]["licenses"] == [{"expression": "PSF-2.0"}]
    assert made["components"][2]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert len({part["bom-ref"] for part in made["components"]}) == 4


def test_the_same_image_has_the_same_document(tmp_path: Path) -> None:
    files = _saved(tmp_path)
    first, second = (document("x", "sha256:00", components(files, {}), distro="debian-12") for _ in range(2))
    assert first == second
    assert document("x", "sha256:01", [], distro="")["serialNumber"] != first["serialNumber"]
