"""Azure SDK for Python as a judge: one case per process.

Usage: clients.py CASE < inputs.json

The inputs are one JSON object on standard input; the answer is one JSON object on standard
output: what the client got, or {"refused": {"code", "status"}} with the code that it reported.
Where requests go is decided by the environment alone (HTTPS_PROXY, REQUESTS_CA_BUNDLE): the
clients are used as published and know nothing of an emulator.
"""

import base64
import datetime
import hashlib
import json
import re
import sys
import uuid

import jwt
from azure.core.exceptions import HttpResponseError
from azure.identity import (
    CertificateCredential,
    ClientAssertionCredential,
    ClientSecretCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)
from azure.keyvault.secrets import SecretClient
from azure.mgmt.resource.resources import ResourceManagementClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

ARM = "https://management.azure.com/.default"
KEY = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()


# Credentials ---------------------------------------------------------------------------------


def certificate(inputs, **changed):
    given = {**inputs, **changed}
    return CertificateCredential(
        given["tenant"],
        given["client"],
        given.get("certificate"),
        certificate_data=given.get("certificate_data"),
        send_certificate_chain=given.get("send_certificate_chain", False),
    )


def secret(inputs, **changed):
    given = {**inputs, **changed}
    return ClientSecretCredential(given["tenant"], given["client"], given["client_secret"])


def federated(inputs):
    return WorkloadIdentityCredential(
        tenant_id=inputs["tenant"],
        client_id=inputs["client"],
        token_file_path=inputs["token_file"],
    )


def managed_identity(inputs):
    return ManagedIdentityCredential(client_id=inputs["client"])


CREDENTIALS = {
    "certificate": certificate,
    "secret": secret,
    "federated": federated,
    "managed-identity": managed_identity,
}


# Assertions that no honest client would make -------------------------------------------------


def forged(inputs, *, key=None, audience=None, lifetime=300):
    """A client assertion with the registered thumbprint and one thing wrong."""
    with open(inputs["certificate"], "rb") as file:
        content = file.read()
    registered = x509.load_pem_x509_certificates(content)[0]
    key = key or serialization.load_pem_private_key(content, None)
    now = datetime.datetime.now(datetime.timezone.utc)
    expires = now + datetime.timedelta(seconds=lifetime)
    thumbprint = base64.urlsafe_b64encode(registered.fingerprint(hashes.SHA256()))
    tenant = inputs["tenant"]
    endpoint = f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token"
    return jwt.encode(
        {
            "aud": audience or endpoint,
            "iss": inputs["client"],
            "sub": inputs["client"],
            "jti": str(uuid.uuid4()),
            "nbf": expires - datetime.timedelta(seconds=600),
            "exp": expires,
        },
        key,
        algorithm="PS256",
        headers={"x5t#S256": thumbprint.rstrip(b"=").decode()},
    )


def by_assertion(inputs, assertion):
    return ClientAssertionCredential(inputs["tenant"], inputs["client"], lambda: assertion)


def new_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def unknown_certificate():
    """Returns an unregistered certificate with its key, as PEM."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unknown")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(*KEY) + made.public_bytes(serialization.Encoding.PEM)


REFUSALS = {
    "wrong-signature": lambda it: by_assertion(it, forged(it, key=new_key())),
    "wrong-audience": lambda it: by_assertion(it, forged(it, audience="https://example.org/token")),
    "expired-assertion": lambda it: by_assertion(it, forged(it, lifetime=-3600)),
    "unknown-thumbprint": lambda it: certificate(
        it, certificate=None, certificate_data=unknown_certificate()
    ),
    "unknown-application": lambda it: certificate(it, client=str(uuid.uuid4())),
    "wrong-secret": lambda it: secret(it, client_secret="not-the-secret"),
}


# Calls ---------------------------------------------------------------------------------------


def claims_of(token):
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return {name: claims.get(name) for name in ("aud", "appid", "oid", "tid", "idtyp", "xms_mirid")}


def read_token(credential, inputs):
    return {"token": claims_of(credential.get_token(inputs.get("scope", ARM)).token)}


def read_secret(credential, inputs):
    client = SecretClient(inputs["vault"], credential)
    answer = client.get_secret(inputs["secret_name"])
    digest = hashlib.sha256((answer.value or "").encode()).hexdigest()
    return {"secret": {"name": answer.name, "version": answer.properties.version, "sha256": digest}}


def read_group(credential, inputs):
    client = ResourceManagementClient(credential, inputs["subscription"])
    group = client.resource_groups.get(inputs["resource_group"])
    return {"group": {"name": group.name, "location": group.location}}


CALLS = {"token": read_token, "vault": read_secret, "arm": read_group}


def refusal(error):
    """The code that the client shows: AADSTS from Entra, else the service's own."""
    entra = re.search(r"AADSTS\d+", str(error))
    detail = getattr(error, "error", None)
    inner = getattr(detail, "innererror", None) or {}
    code = entra.group() if entra else getattr(detail, "code", None)
    return {
        "code": code,
        "inner": inner.get("code"),
        "status": getattr(error, "status_code", None),
        "message": str(error),
    }


def run(case, inputs):
    """A case is `CALL:CREDENTIAL`, such as `vault:managed-identity` or `token:wrong-audience`."""
    call, _, name = case.partition(":")
    build = CREDENTIALS.get(name) or REFUSALS[name]
    try:
        with build(inputs) as credential:
            return CALLS[call](credential, inputs)
    except HttpResponseError as error:
        return {"refused": refusal(error)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps(run(sys.argv[1], json.load(sys.stdin))))
