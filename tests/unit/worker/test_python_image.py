"""The tar file that an image of this machine's Python is made of."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from eva_master.adapters.local.image import Tree


def test_names_every_directory_before_what_lies_in_it(tmp_path: Path) -> None:
    # An engine with the storage driver vfs makes the others itself, so that nobody may enter them.
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    tree = Tree()
    tree.links |= {"/lib": "usr/lib", "/usr/local/bin/python": "python3"}
    tree.files |= {"/lib/machine/libc.so": program, "/usr/lib/python3/os.py": program}
    tree.texts["/etc/eva/made"] = "here"

    with tarfile.open(fileobj=io.BytesIO(b"".join(tree.packed()))) as tar:
        entries = list(tar)

    directories = set()
    for entry in entries:
        # Below a link lies what lies below its target.
        place = Path(entry.name.replace("lib/", "usr/lib/") if entry.name[0] == "l" else entry.name)
        assert {str(parent) for parent in place.parents} <= directories | {"."}, entry.name
        if entry.isdir():
            directories.add(entry.name)
            assert entry.mode & 0o555 == 0o555
    assert directories > {"tmp", "usr/lib/machine", "usr/local/bin", "etc/eva"}
    assert "lib" not in directories
