"""The contract: models and parsers of every file that is published or received. No I/O here.

Functions take text or bytes and return values, or raise `FormatError` with every fault of the file.
Files that are received (metadata, lock, evidence) may hold unknown keys and are refused for an
unknown major version; files that authors write (build.toml) may not hold unknown keys.
"""
