"""Reads a secret from a vault with the managed identity of this machine and writes it to a file.

Usage: read_secret.py VAULT SECRET FILE

Nothing here depends on the local Azure: `urllib` takes the proxy and the CA from the environment.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

IMDS = "http://169.254.169.254/metadata/identity/oauth2/token"


def get(url, headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def read_secret(vault, name):
    query = {"api-version": "2018-02-01", "resource": "https://vault.azure.net"}
    token = get(f"{IMDS}?{urllib.parse.urlencode(query)}", {"Metadata": "true"})
    url = f"https://{vault}.vault.azure.net/secrets/{name}?api-version=7.4"
    return get(url, {"Authorization": f"Bearer {token['access_token']}"})["value"]


def main(vault, name, file):
    try:
        value = read_secret(vault, name)
    except urllib.error.HTTPError as error:
        sys.exit(f"cannot read secret {name} of vault {vault}: {error}")
    private = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(private, "w", encoding="utf-8") as output:
        output.write(value)
    print(f"wrote secret {name} to {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
