"""One repository: a bare git repository with its LFS objects and a file of facts beside it."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dulwich.errors import NotTreeError
from dulwich.object_store import iter_tree_contents, tree_lookup_path
from dulwich.objects import S_ISGITLINK, Blob, Commit, SubmoduleEncountered, Tag, Tree
from dulwich.refs import check_ref_format
from dulwich.repo import Repo

from .blob_facts import BlobFacts
from .lfs import LfsObjects, Pointer
from .refusal import Refusal, no_entry, no_revision

MAIN = "refs/heads/main"
_SHA = re.compile(r"[0-9a-f]{40}")
_FACTS = "hub.json"

_blobs = BlobFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What git does not know of a repository. `created` is in seconds since the epoch."""

    private: bool
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a listing. `oid` is git's SHA-1; `size` is that of the content, bytes."""

    path: str
    oid: str
    is_folder: bool = False
    size: int = 0
    lfs: Pointer | None = None
    pointer_size: int = 0


class Repository:
    """An open repository. Writing methods need the lock that `Repositories` hands out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git = Repo(os.fspath(folder))
        self.lfs = LfsObjects(folder)

    @classmethod
    def initialise(cls, folder: Path, *, private: bool) -> None:
        """Make an empty repository whose `main` holds one commit, as the public Hub does."""
        git = Repo.init_bare(os.fspath(folder), mkdir=True, default_branch=b"main")
        config = git.get_config()
        config.set((b"core",), b"fsyncObjectFiles", True)
        config.write_to_path()
        git.close()
        write_facts(folder, Facts(private=private, created=int(time.time())))
        with cls(folder) as repository:
            tree = Tree()
            attributes = repository.store(b"* -text\n")
            tree.add(b".gitattributes", 0o100644, attributes)
            repository.git.object_store.add_object(tree)
            commit = repository.commit(tree.id, None, "initial commit", "kernelhub")
            repository.git.refs.add_if_new(MAIN.encode(), commit.encode())

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self.git.close()

    # Facts and refs

    @property
    def facts(self) -> Facts:
        data = json.loads((self.folder / _FACTS).read_bytes())
        return Facts(private=data["private"], created=data["created"])

    def refs(self, prefix: str) -> dict[str, str]:
        """Short name to commit, of all refs below `prefix` ("refs/heads/"), sorted by name."""
        found = {}
        for ref, sha in sorted(self.git.refs.as_dict().items()):
            name = ref.decode("utf-8", "replace")
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = self._peel(sha)
        return found

    def commit_of(self, revision: str) -> str:
        """The commit that a branch, tag, full ref name or full commit id stands for.

        Raises:
            Refusal: 404 RevisionNotFound.
        """
        candidates = [f"refs/heads/{revision}", f"refs/tags/{revision}"]
        if revision.startswith("refs/") or revision == "HEAD":
            candidates = [revision]
        for candidate in candidates:
            sha = self._ref(candidate)
            if sha is not None:
                return self._peel(sha)
        store = self.git.object_store
        is_known = _SHA.fullmatch(revision) is not None and revision.encode() in store
        if is_known and isinstance(store[revision.encode()], Commit):
            return revision
        raise no_revision(revision)

    def branch(self, revision: str) -> tuple[str, str]:
        """The full name and head of the branch or pull request that a commit would go to.

        Raises:
            Refusal: 404 RevisionNotFound; 400, it is a tag or a commit.
        """
        writable = revision.startswith(("refs/heads/", "refs/pr/"))
        ref = revision if writable else f"refs/heads/{revision}"
        head = self._ref(ref)
        if head is None:
            self.commit_of(revision)
            raise Refusal(400, f"{revision} is not a branch: commits go to branches")
        return ref, head.decode()

    def _ref(self, ref: str) -> bytes | None:
        try:
            name = ref.encode()
        except UnicodeEncodeError:
            return None
        if name != b"HEAD" and not (check_ref_format(name) and name.startswith(b"refs/")):
            return None
        try:
            return self.git.refs[name]  # type: ignore[no-any-return]
        except (KeyError, OSError):  # OSError: a folder of that name
            return None

    def _peel(self, sha: bytes) -> str:
        found = self.git.object_store[sha]
        while isinstance(found, Tag):
            found = self.git.object_store[found.object[1]]
        return found.id.decode()  # type: ignore[no-any-return]

    # Reading

    def commit_object(self, commit: str) -> Commit:
        return self.git.object_store[commit.encode()]

    def entry(self, commit: str, path: str) -> Entry | None:
        """The file or folder of that path, None if there is none."""
        store = self.git.object_store
        tree = self.commit_object(commit).tree
        if "" in path.split("/"):  # git's lookup would skip over it
            return None
        try:
            mode, sha = tree_lookup_path(store.__getitem__, tree, path.encode())
        except (KeyError, NotTreeError, SubmoduleEncountered, UnicodeEncodeError):
            return None
        if S_ISGITLINK(mode):
            return None
        return self._entry(path, mode, sha)

    def oid_at(self, commit: Commit, path: str) -> bytes | None:
        """The id of a file or folder in a commit, None where it is not there."""
        try:
            found = tree_lookup_path(self.git.object_store.__getitem__, commit.tree, path.encode())
        except (KeyError, NotTreeError, SubmoduleEncountered):
            return None
        return found[1]  # type: ignore[no-any-return]

    def file(self, commit: str, path: str) -> Entry:
        """The file of that path.

        Raises:
            Refusal: 404 EntryNotFound, also if it is a folder.
        """
        entry = self.entry(commit, path)
        if entry is None or entry.is_folder:
            raise no_entry(path, commit)
        return entry

    def listing(self, commit: str, path: str, *, recursive: bool) -> list[tuple[str, int, bytes]]:
        """Path, mode and id of what lies below a folder ("" for the root), in git's order.

        Raises:
            Refusal: 404 EntryNotFound, also if it is a file.
        """
        store = self.git.object_store
        tree = self.commit_object(commit).tree
        if path:
            entry = self.entry(commit, path)
            if entry is None or not entry.is_folder:
                raise no_entry(path, commit)
            tree = entry.oid.encode()
        prefix = f"{path}/" if path else ""
        found = (
            iter_tree_contents(store, tree, include_trees=True)
            if recursive
            else store[tree].iteritems()
        )
        return [
            (prefix + item.path.decode("utf-8", "replace"), item.mode, item.sha)
            for item in found
            if item.path and not S_ISGITLINK(item.mode)
        ]

    def entries(self, items: Iterable[tuple[str, int, bytes]]) -> list[Entry]:
        """Complete lines of a listing."""
        return [self._entry(*item) for item in items]

    def _entry(self, path: str, mode: int, sha: bytes) -> Entry:
        if stat.S_ISDIR(mode):
            return Entry(path=path, oid=sha.decode(), is_folder=True)
        size, pointer = _blobs.of(self.git.object_store, sha)
        return Entry(
            path=path,
            oid=sha.decode(),
            size=pointer.size if pointer else size,
            lfs=pointer,
            pointer_size=size if pointer else 0,
        )

    def content(self, oid: str) -> bytes:
        """The bytes of an ordinary file."""
        return self.git.object_store[oid.encode()].data  # type: ignore[no-any-return]

    def history(self, commit: str) -> Iterator[Commit]:
        """Commits, newest first."""
        return (walked.commit for walked in self.git.get_walker(include=[commit.encode()]))

    # Writing

    def store(self, data: bytes) -> bytes:
        """Store a blob and return its id."""
        blob = Blob.from_string(data)
        self.git.object_store.add_object(blob)
        return blob.id  # type: ignore[no-any-return]

    def commit(self, tree: bytes, parent: str | None, message: str, author: str) -> str:
        """Store a commit object; no ref moves yet."""
        commit = Commit()
        commit.tree = tree
        commit.parents = [parent.encode()] if parent else []
        commit.author = commit.committer = f"{author} <{author}@kernelhub>".encode()
        commit.author_time = commit.commit_time = int(time.time())
        commit.author_timezone = commit.commit_timezone = 0
        commit.encoding = b"UTF-8"
        commit.message = message.encode("utf-8", "replace")
        self.git.object_store.add_object(commit)
        return commit.id.decode()  # type: ignore[no-any-return]

    def move_ref(self, ref: str, old: str | None, new: str) -> None:
        """Compare and swap: `old` None means that the ref must not exist.

        Raises:
            Refusal: 409, the ref exists, or its name clashes with another; 412, it moved.
        """
        name = ref.encode()
        try:
            if old is None:
                moved = self.git.refs.add_if_new(name, new.encode())
            else:
                moved = self.git.refs.set_if_equals(name, old.encode(), new.encode())
        except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            raise Refusal(409, f"{ref} clashes with the name of another ref") from error
        if not moved and old is None:
            raise Refusal(409, f"Reference already exists: {ref}")
        if not moved:
            raise Refusal(412, f"{ref} has moved since; fetch it and try again")


def write_facts(folder: Path, facts: Facts) -> None:
    """Replace the file of facts whole."""
    sibling = folder / f"{_FACTS}.new"
    sibling.write_text(json.dumps({"private": facts.private, "created": facts.created}), "utf-8")
    sibling.replace(folder / _FACTS)
