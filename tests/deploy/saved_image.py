"""An archive as `docker save` writes it, made by hand: two layers of a few files."""

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, bytes]


def tar_of(files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def save_image(archive: Path, layers: list[Files], *, zipped: bool = False) -> list[bytes]:
    """Writes the archive; the layers' tars are returned."""
    tars = [tar_of(files) for files in layers]
    history = [{"created_by": "/bin/sh -c #(nop) COPY dir:0123 in / "}, {"created_by": "ENV A=1", "empty_layer": True}]
    history += [{"created_by": f"RUN step {index} # buildkit"} for index in range(1, len(tars))]
    config = json.dumps({"architecture": "amd64", "history": history}).encode()
    names = [f"{index}/layer.tar" for index in range(len(tars))]
    manifest = json.dumps([{"Config": "config.json", "RepoTags": ["x:y"], "Layers": names}]).encode()
    stored = [gzip.compress(tar) if zipped else tar for tar in tars]
    contents = {"manifest.json": manifest, "config.json": config, **dict(zip(names, stored, strict=True))}
    archive.write_bytes(tar_of(contents))
    return tars
