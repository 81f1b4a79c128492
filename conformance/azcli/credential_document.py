"""Requests a token with a credential document, as the components of a hosted control plane do.

The document is the JSON of a vault secret, as msi-dataplane defines it. Its certificate is PEM or PKCS#12.
"""

import base64
import json

import msal
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificates

SCOPE = "https://management.azure.com/.default"


def token_claims(text):
    """Returns the claims of a token for Azure Resource Manager."""
    document = json.loads(text)
    key, certificate = load_certificate(base64.b64decode(document["client_secret"]))
    credential = {
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "thumbprint": certificate.fingerprint(hashes.SHA1()).hex(),
    }
    application = msal.ConfidentialClientApplication(
        document["client_id"],
        client_credential=credential,
        authority=document["authentication_endpoint"] + document["tenant_id"],
    )
    response = application.acquire_token_for_client([SCOPE])
    if "access_token" not in response:
        raise ValueError(response.get("error_description", response))
    payload = response["access_token"].split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


def load_certificate(data):
    if data.startswith(b"-----BEGIN"):
        return load_pem_private_key(data, None), load_pem_x509_certificates(data)[0]
    key, certificate, _ = pkcs12.load_key_and_certificates(data, None)
    return key, certificate
