"""Obtains the credential of a user-assigned identity from the MSI data plane, as a resource provider does.

Usage: issue_identity_credential.py HEADERS IDENTITY_ID FILE

HEADERS is a JSON file with the headers that Azure Resource Manager adds to a PUT of a resource.

The application of AZURE_CLIENT_ID and AZURE_CLIENT_SECRET needs the role Managed Identity Operator at the
identity. Nothing here depends on the local Azure: `urllib` takes the proxy and the CA from the environment.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

AUDIENCE = "https://identity.azure.net"


def send(url, body, headers):
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def challenged_authority(url):
    """Returns the authority of the challenge, `https://HOST/TENANT`."""
    try:
        send(url, b"{}", {})
    except urllib.error.HTTPError as error:
        return re.search(r'authorization="([^"]+)"', error.headers["WWW-Authenticate"]).group(1)
    sys.exit("the data plane answered without a token")


def issue(identity_url, identity_id):
    url = f"{identity_url}&api-version=2024-01-01"
    form = {
        "grant_type": "client_credentials",
        "client_id": os.environ["AZURE_CLIENT_ID"],
        "client_secret": os.environ["AZURE_CLIENT_SECRET"],
        "scope": f"{AUDIENCE}/.default",
    }
    authority = challenged_authority(url)
    form = urllib.parse.urlencode(form).encode()
    token = send(f"{authority}/oauth2/v2.0/token", form, {})["access_token"]
    body = json.dumps({"identityIds": [identity_id]}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return send(url, body, headers)["explicit_identities"][0]


def main(headers, identity_id, file):
    with open(headers, encoding="utf-8") as document:
        identity_url = json.load(document)["headers"]["x-ms-identity-url"]
    try:
        credential = issue(identity_url, identity_id)
    except urllib.error.HTTPError as error:
        sys.exit(f"no credential: {error}: {json.load(error)['error']['message']}")
    private = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(private, "w", encoding="utf-8") as output:
        json.dump(credential, output)
    print(f"wrote the credential of {credential['client_id']} to {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
