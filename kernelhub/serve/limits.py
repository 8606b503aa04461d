"""What one client may ask of the Hub at once, and where a file stops being an ordinary git blob.

**Which files go through LFS.** A client asks before it uploads. `huggingface_hub` from 1.20
on, with `hf_xet` installed (it is by default on x86-64 and arm64), can send an LFS file that was
given as a path or as bytes only through a Xet service, and fails without one; it does not tell the
server that it is such a client. So a file below `lfs_from` is an ordinary git blob whatever its
content, which lets a plain `hf upload` of a kernel folder work out of the box. From `lfs_from` on,
the file is LFS and streams to disk: open file objects given to `create_commit`, clients run with
`HF_HUB_DISABLE_XET=1` and `kernel-builder publish` take that road. Lower `lfs_from` where all do.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes are bytes.

    Attributes:
        lfs_from: files of at least this size are asked for through LFS.
        regular_bytes: largest file that is taken inside a commit body.
        commit_bytes: largest commit body.
        operations: most files added and removed by one commit.
        json_bytes: largest body of every other call.
        lfs_bytes: largest LFS object.
        multipart_from: LFS objects of at least this size are uploaded in parts.
        part_bytes: size of such a part.
        page: entries of one page of a tree or of a history.
        expanded_page: the same, where the last commit of each entry is asked for.
        items: most paths, files or objects that one call may ask about.
        lock_seconds: how long a writer waits for another writer of the same repository.
        link_seconds: how long the links for an LFS upload stay valid.
    """

    lfs_from: int = 10 * MIB
    regular_bytes: int = 32 * MIB
    commit_bytes: int = 2 * GIB
    operations: int = 25_000
    json_bytes: int = 8 * MIB
    lfs_bytes: int = 100 * GIB
    multipart_from: int = 4 * GIB
    part_bytes: int = 256 * MIB
    page: int = 1000
    expanded_page: int = 50
    items: int = 10_000
    lock_seconds: float = 60.0
    link_seconds: int = 6 * 3600
