"""Whether a server's certificate was not accepted: another attempt does not change that."""

from __future__ import annotations

import ssl

HINT = "SSL_CERT_FILE names the certificates of a private authority, or of a proxy's"


def is_about_a_certificate(error: BaseException | None) -> bool:
    """Whether an error of the HTTP library comes of a certificate that was not accepted."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
