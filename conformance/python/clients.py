"""Runs one conformance case with the Azure SDK for Python.

Usage: clients.py CALL:CREDENTIAL < inputs.json
       clients.py lifecycle:NAME < inputs.json
       clients.py grpc:unix-socket < inputs.json

Standard input is a JSON object with the inputs. Standard output is a JSON object: the result of the
call, or {"refused": {"code", "inner", "status", "message"}} with the error that the client reported.
A lifecycle prints one JSON object for each step.
The clients are unmodified; only HTTPS_PROXY and REQUESTS_CA_BUNDLE direct their requests to the
local Azure. `custom-cloud:secret` uses no proxy, but the settings of the clients for their cloud.
"""

import base64
import datetime
import hashlib
import html
import importlib
import json
import re
import sys
import threading
import uuid
import webbrowser

import grpc
import jwt
import requests
from azure.core.exceptions import HttpResponseError
from azure.identity import (
    CertificateCredential,
    ClientAssertionCredential,
    ClientSecretCredential,
    DeviceCodeCredential,
    InteractiveBrowserCredential,
    ManagedIdentityCredential,
    UsernamePasswordCredential,
    WorkloadIdentityCredential,
)
from azure.keyvault.secrets import SecretClient
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.keyvault import KeyVaultManagementClient
from azure.mgmt.resource.resources import ResourceManagementClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from lifecycle_steps import LifecycleSteps

ARM = "https://management.azure.com/.default"
ROLE_DEFINITIONS = "Microsoft.Authorization/roleDefinitions"
# Key Vault Administrator
VAULT_ADMINISTRATOR = "00482a5a-887f-4fb3-b363-3b7fe8e74483"
KEY_FORMAT = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


# Credentials ---------------------------------------------------------------------------------


def certificate_credential(inputs, **overrides):
    inputs = {**inputs, **overrides}
    return CertificateCredential(
        inputs["tenant"],
        inputs["client"],
        inputs.get("certificate"),
        certificate_data=inputs.get("certificate_data"),
        send_certificate_chain=inputs.get("send_certificate_chain", False),
    )


def secret_credential(inputs, **overrides):
    inputs = {**inputs, **overrides}
    return ClientSecretCredential(inputs["tenant"], inputs["client"], inputs["client_secret"])


def federated_credential(inputs):
    return WorkloadIdentityCredential(
        tenant_id=inputs["tenant"],
        client_id=inputs["client"],
        token_file_path=inputs["token_file"],
    )


def managed_identity_credential(inputs):
    return ManagedIdentityCredential(client_id=inputs["client"])


def password_credential(inputs, **overrides):
    inputs = {**inputs, **overrides}
    return UsernamePasswordCredential(
        inputs["client"], inputs["username"], inputs["password"], tenant_id=inputs["tenant"]
    )


def device_code_credential(inputs):
    """Returns a credential whose user enters the code on the page that the client prints."""

    def enter_code(page, user_code, _expires):
        fields = {
            "user_code": user_code,
            "username": inputs["username"],
            "password": inputs["password"],
        }
        with requests.Session() as session:
            session.trust_env = False
            session.post(page, data=fields, timeout=30).raise_for_status()

    return DeviceCodeCredential(
        inputs["client"], tenant_id=inputs["tenant"], prompt_callback=enter_code
    )


class UserBrowser(webbrowser.BaseBrowser):
    """Selects the user on the page of the authorization endpoint, and submits the response."""

    def __init__(self, username):
        super().__init__("user-browser")
        self.username = username

    def open(self, url, new=0, autoraise=True):
        threading.Thread(target=self.sign_in, args=(url,), daemon=True).start()
        return True

    def sign_in(self, url):
        page = requests.post(url, data={"user": self.username}, timeout=30).text
        action = html.unescape(re.search(r'action="([^"]*)"', page).group(1))
        hidden = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', page)
        fields = {html.unescape(name): html.unescape(value) for name, value in hidden}
        with requests.Session() as session:
            session.trust_env = False
            session.post(action, data=fields, timeout=30)


def browser_credential(inputs):
    webbrowser.register("user-browser", None, UserBrowser(inputs["username"]), preferred=True)
    return InteractiveBrowserCredential(client_id=inputs["client"], tenant_id=inputs["tenant"])


CREDENTIALS = {
    "certificate": certificate_credential,
    "secret": secret_credential,
    "federated": federated_credential,
    "managed-identity": managed_identity_credential,
    "password": password_credential,
    "device-code": device_code_credential,
    "browser": browser_credential,
}


# Credentials that Entra rejects --------------------------------------------------------------


def client_assertion(inputs, *, key=None, audience=None, lifetime=300):
    """Returns a client assertion with the registered thumbprint; each argument makes it invalid."""
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


def assertion_credential(inputs, assertion):
    return ClientAssertionCredential(inputs["tenant"], inputs["client"], lambda: assertion)


def new_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def unknown_certificate():
    """Returns an unregistered certificate with its key, as PEM."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unknown")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(*KEY_FORMAT) + certificate.public_bytes(serialization.Encoding.PEM)


REJECTED_CREDENTIALS = {
    "wrong-signature": lambda inputs: assertion_credential(
        inputs, client_assertion(inputs, key=new_key())
    ),
    "wrong-audience": lambda inputs: assertion_credential(
        inputs, client_assertion(inputs, audience="https://example.org/token")
    ),
    "expired-assertion": lambda inputs: assertion_credential(
        inputs, client_assertion(inputs, lifetime=-3600)
    ),
    "unknown-thumbprint": lambda inputs: certificate_credential(
        inputs, certificate=None, certificate_data=unknown_certificate()
    ),
    "unknown-application": lambda inputs: certificate_credential(inputs, client=str(uuid.uuid4())),
    "wrong-password": lambda inputs: password_credential(inputs, password="not-the-password"),
    "unknown-user": lambda inputs: password_credential(inputs, username="unknown@lanyard.test"),
    "wrong-secret": lambda inputs: secret_credential(inputs, client_secret="not-the-secret"),
}


# Calls ---------------------------------------------------------------------------------------


def token_claims(token):
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return {name: claims.get(name) for name in ("aud", "appid", "oid", "tid", "idtyp", "xms_mirid")}


def read_token(credential, inputs):
    return {"token": token_claims(credential.get_token(inputs.get("scope", ARM)).token)}


def read_secret(credential, inputs):
    client = SecretClient(inputs["vault"], credential)
    secret = client.get_secret(inputs["secret_name"])
    digest = hashlib.sha256((secret.value or "").encode()).hexdigest()
    return {"secret": {"name": secret.name, "version": secret.properties.version, "sha256": digest}}


def read_resource_group(credential, inputs):
    client = ResourceManagementClient(credential, inputs["subscription"])
    group = client.resource_groups.get(inputs["resource_group"])
    return {"group": {"name": group.name, "location": group.location}}


def use_custom_cloud(_credential, inputs):
    """Creates a vault in a custom cloud, and writes and reads a secret."""
    credential = ClientSecretCredential(
        inputs["tenant"],
        inputs["client"],
        inputs["client_secret"],
        authority=inputs["authority"],
        disable_instance_discovery=True,
    )
    cloud = {
        "base_url": inputs["resource_manager"],
        "credential_scopes": [f"{inputs['resource_manager']}/.default"],
    }
    subscription, group = inputs["subscription"], "python-custom"
    resources = ResourceManagementClient(credential, subscription, **cloud)
    resources.resource_groups.create_or_update(group, {"location": "westeurope"})
    vaults = KeyVaultManagementClient(credential, subscription, **cloud).vaults
    properties = {
        "tenantId": inputs["tenant"],
        "sku": {"family": "A", "name": "standard"},
        "enableRbacAuthorization": True,
    }
    vault = vaults.begin_create_or_update(
        group, "kv-python-custom", {"location": "westeurope", "properties": properties}
    ).result()
    assignments = AuthorizationManagementClient(credential, subscription, **cloud).role_assignments
    role = f"/subscriptions/{subscription}/providers/{ROLE_DEFINITIONS}/{VAULT_ADMINISTRATOR}"
    assignment = {
        "role_definition_id": role,
        "principal_id": inputs["object_id"],
        "principal_type": "ServicePrincipal",
    }
    assignments.create(vault.id, str(uuid.uuid4()), assignment)
    client = SecretClient(vault.properties.vault_uri, credential)
    client.set_secret("one", "first")
    return {"vault": vault.properties.vault_uri, "value": client.get_secret("one").value}


CALLS = {
    "token": read_token,
    "vault": read_secret,
    "arm": read_resource_group,
    "custom-cloud": use_custom_cloud,
}


def error_details(error):
    """Returns the reported error; its code is the AADSTS code of Entra, or that of another service."""
    aadsts_code = re.search(r"AADSTS\d+", str(error))
    detail = getattr(error, "error", None)
    inner = getattr(detail, "innererror", None) or {}
    # Errors of storage have their code outside of the details.
    service_code = getattr(error, "error_code", None) or getattr(detail, "code", None)
    code = aadsts_code.group() if aadsts_code else service_code
    return {
        "code": code,
        "inner": inner.get("code"),
        "status": getattr(error, "status_code", None) or getattr(error.response, "status_code", None),
        "message": str(error),
    }


def run(case, inputs):
    """Runs a case, `CALL:CREDENTIAL`, such as `vault:managed-identity` or `token:wrong-audience`."""
    call, _, name = case.partition(":")
    build = CREDENTIALS.get(name) or REJECTED_CREDENTIALS[name]
    try:
        with build(inputs) as credential:
            return CALLS[call](credential, inputs)
    except HttpResponseError as error:
        return {"refused": error_details(error)}


def run_lifecycle(name, inputs):
    lifecycle = importlib.import_module(f"lifecycles.{name.replace('-', '_')}")
    with secret_credential(inputs) as credential:
        lifecycle.run(LifecycleSteps(error_details), credential, inputs)


def call_unix_socket(inputs):
    """Calls the CSI driver at a socket, with more metadata than the header table of a connection holds."""
    with grpc.insecure_channel(f"unix:{inputs['socket']}") as channel:
        plugin_info = channel.unary_unary("/csi.v1.Identity/GetPluginInfo")
        for number in range(inputs["calls"]):
            reply = plugin_info(b"", metadata=(("x-number", f"{number:0200}"),), timeout=10)
    return {"reply": reply.decode()}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    case, inputs = sys.argv[1], json.load(sys.stdin)
    call, _, name = case.partition(":")
    if call == "lifecycle":
        run_lifecycle(name, inputs)
    elif call == "grpc":
        print(json.dumps(call_unix_socket(inputs)))
    else:
        print(json.dumps(run(case, inputs)))


if __name__ == "__main__":
    main()
