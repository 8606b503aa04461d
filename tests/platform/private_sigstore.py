"""A Sigstore in one object: an authority, a certificate log and a transparency log of one entry.

Makes bundles that the `sigstore` package verifies offline against `trusted_root`, as the public
instance would make them.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import struct
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

_SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ISSUER_2 = ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_ORIGIN = "log.example.org - 1"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def der(key: Any) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def key_id(key: Any) -> bytes:
    return hashlib.sha256(der(key)).digest()


def sign(key: Any, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


class PrivateSigstore:
    """One instance, with keys of its own."""

    def __init__(self) -> None:
        self.now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        self.ca, self.certificate_log, self.log = (
            ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
        )
        self.root = self._root()

    def bundle(self, artifact: bytes, identity: str, issuer: str) -> bytes:
        """A bundle over the bytes of a file, as HF publishes them."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key, identity, issuer)
        signature = sign(key, artifact)
        digest = hashlib.sha256(artifact)
        body = {
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": digest.hexdigest()}},
                "signature": {
                    "content": b64(signature),
                    "publicKey": {
                        "content": b64(certificate.public_bytes(serialization.Encoding.PEM))
                    },
                },
            },
        }
        content = {
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(digest.digest())},
                "signature": b64(signature),
            }
        }
        return self._bundle(certificate, body, content)

    def model_bundle(self, statement: bytes, identity: str, issuer: str) -> bytes:
        """A bundle over a statement of the OpenSSF model signing format."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key, identity, issuer)
        kind = "application/vnd.in-toto+json"
        pae = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(statement), statement)
        signature = sign(key, pae)
        envelope = {
            "payload": b64(statement),
            "payloadType": kind,
            "signatures": [{"sig": b64(signature)}],
        }
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        hashed = {
            "algorithm": "sha256",
            "value": hashlib.sha256(json.dumps(envelope).encode()).hexdigest(),
        }
        body = {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": hashed,
                "payloadHash": {
                    "algorithm": "sha256",
                    "value": hashlib.sha256(statement).hexdigest(),
                },
                "signatures": [{"signature": b64(signature), "verifier": b64(pem)}],
            },
        }
        return self._bundle(certificate, body, {"dsseEnvelope": envelope})

    @property
    def trusted_root(self) -> str:
        """What a client is given to verify by."""
        since = {
            "start": (self.now - datetime.timedelta(days=1)).isoformat().replace("+00:00", "Z")
        }

        def instance(key: Any) -> dict[str, Any]:
            return {
                "baseUrl": "https://log.example.org",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": b64(der(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": since,
                },
                "logId": {"keyId": b64(key_id(key))},
            }

        authority = {
            "subject": {"organization": "test", "commonName": "test"},
            "uri": "https://ca.example.org",
            "certChain": {
                "certificates": [
                    {"rawBytes": b64(self.root.public_bytes(serialization.Encoding.DER))}
                ]
            },
            "validFor": since,
        }
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [instance(self.log)],
                "certificateAuthorities": [authority],
                "ctlogs": [instance(self.certificate_log)],
                "timestampAuthorities": [],
            }
        )

    def _bundle(
        self, certificate: x509.Certificate, body: dict[str, Any], content: dict[str, Any]
    ) -> bytes:
        material = {
            "certificate": {"rawBytes": b64(certificate.public_bytes(serialization.Encoding.DER))},
            "tlogEntries": [self._entry(body)],
        }
        value = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": material,
            **content,
        }
        return json.dumps(value).encode()

    def _entry(self, body: dict[str, Any]) -> dict[str, Any]:
        data = rfc8785.dumps(body)
        root = hashlib.sha256(b"\0" + data).digest()
        note = f"{_ORIGIN}\n1\n{b64(root)}\n"
        note_signature = key_id(self.log)[:4] + sign(self.log, note.encode())
        promise = rfc8785.dumps(
            {
                "body": b64(data),
                "integratedTime": int(self.now.timestamp()),
                "logID": key_id(self.log).hex(),
                "logIndex": 0,
            }
        )
        return {
            "logIndex": "0",
            "logId": {"keyId": b64(key_id(self.log))},
            "kindVersion": {"kind": body["kind"], "version": "0.0.1"},
            "integratedTime": str(int(self.now.timestamp())),
            "inclusionPromise": {"signedEntryTimestamp": b64(sign(self.log, promise))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {
                    "envelope": f"{note}\n\N{EM DASH} log.example.org {b64(note_signature)}\n"
                },
            },
            "canonicalizedBody": b64(data),
        }

    def _root(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "private sigstore")])
        key = self.ca.public_key()
        identifier = x509.SubjectKeyIdentifier.from_public_key(key)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - datetime.timedelta(days=1))
            .not_valid_after(self.now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(self.ca, hashes.SHA256())
        )

    def _certificate(self, key: Any, identity: str, issuer: str) -> x509.Certificate:
        """A short-lived certificate for an identity, noted in the certificate log."""
        code = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
        name = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
        text = issuer.encode()
        issuer_2 = b"\x0c" + bytes([len(text)]) + text
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.root.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - datetime.timedelta(minutes=1))
            .not_valid_after(self.now + datetime.timedelta(minutes=10))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(code, critical=False)
            .add_extension(name, critical=True)
            .add_extension(authority, critical=False)
            .add_extension(x509.UnrecognizedExtension(_ISSUER, text), critical=False)
            .add_extension(x509.UnrecognizedExtension(_ISSUER_2, issuer_2), critical=False)
        )
        before = builder.sign(self.ca, hashes.SHA256()).tbs_certificate_bytes
        timestamps = x509.UnrecognizedExtension(_SCT_LIST, self._timestamps(before))
        return builder.add_extension(timestamps, critical=False).sign(self.ca, hashes.SHA256())

    def _timestamps(self, certificate: bytes) -> bytes:
        """The list of signed certificate timestamps, of one (RFC 6962)."""
        moment = int(self.now.timestamp() * 1000)
        entry = key_id(self.ca) + struct.pack("!I", len(certificate))[1:] + certificate
        signed = struct.pack("!BBQH", 0, 0, moment, 1) + entry + struct.pack("!H", 0)
        signature = sign(self.certificate_log, signed)
        one = struct.pack("!B32sQH", 0, key_id(self.certificate_log), moment, 0)
        one += struct.pack("!BBH", 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(one) + 2, len(one)) + one
        assert len(listed) < 256
        head = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else bytes([0x81, len(listed)]))
        return head + listed


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
