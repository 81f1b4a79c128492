"""Runs a drill of the local Azure against the Azure SDK for Python or the Azure CLI.

Usage: drills.py CASE < inputs.json

Standard input is a JSON object with the credentials of the test clients. Standard output is the JSON object
{"problems": [...]}, which is empty if the client behaved as on Azure.

The clients are unmodified. This program replaces `time.time` and `time.sleep`: sleeping advances the clock of
the local Azure. So a client waits as long as on Azure, and the case takes no time.
"""

import base64
import contextlib
import io
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

CONTROL = os.environ["LANYARD_AZURE_CONTROL"]
ARM = "https://management.azure.com"
ARM_SCOPE = f"{ARM}/.default"
API_VERSION = "2023-11-01"

REAL_TIME, REAL_SLEEP = time.time, time.sleep


# The local Azure -----------------------------------------------------------------------------


def control(method, path, body=None):
    """Sends a request to the control API, without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{CONTROL}/{path}", data=data, method=method)
    request.add_header("x-lanyard-control", "1")
    request.add_header("content-type", "application/json")
    with opener.open(request, timeout=60) as response:
        content = response.read()
    return json.loads(content) if content else None


class LocalAzureClock:
    """The clock of this process: that of the local Azure. Sleeping advances it."""

    def __init__(self):
        self.ahead = 0.0
        self.slept = 0.0
        self.lock = threading.Lock()

    def install(self):
        self.ahead = control("GET", "clock")["aheadMilliseconds"] / 1000
        time.time = lambda: REAL_TIME() + self.ahead
        time.sleep = self.sleep

    def sleep(self, seconds):
        # The local Azure advances by whole seconds; the fraction passes in real time.
        whole = int(seconds)
        with self.lock:
            self.slept += seconds
            if whole:
                control("POST", "clock", {"advanceSeconds": whole})
                self.ahead += whole
        REAL_SLEEP(min(seconds - whole, 1))


CLOCK = LocalAzureClock()


class RequestLog:
    """The requests since the creation of this object."""

    def __init__(self):
        entries = control("GET", "request-log")["value"]
        self.since = entries[-1]["sequence"] if entries else 0

    def entries(self, **fields):
        entries = control("GET", f"request-log?since={self.since}")["value"]
        return [
            entry
            for entry in entries
            if all(entry.get(name) == value for name, value in fields.items())
        ]

    def faults(self):
        return [entry for entry in self.entries() if entry.get("fault")]


@contextlib.contextmanager
def drill(name):
    control("POST", f"drills/{name}")
    try:
        yield RequestLog()
    finally:
        control("DELETE", "drills")


@contextlib.contextmanager
def settings(change, reset):
    control("PATCH", "settings", change)
    try:
        yield RequestLog()
    finally:
        control("PATCH", "settings", reset)


@contextlib.contextmanager
def fault(rule):
    control("POST", "faults", rule)
    try:
        yield RequestLog()
    finally:
        control("DELETE", f"faults/{rule['name']}")


# Expectations --------------------------------------------------------------------------------

PROBLEMS = []


def expect(what, found, expected):
    if found != expected:
        PROBLEMS.append(f"{what}: expected {expected!r}, found {found!r}")


def expect_true(what, condition, found=None):
    if not condition:
        PROBLEMS.append(what if found is None else f"{what}: found {found!r}")


def refused(call):
    """Returns the error with which a call fails, as text."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - every error of a client is a result
        return f"{type(error).__name__}: {error}"
    return ""


# Clients of the Azure SDK --------------------------------------------------------------------


def secret_credential(inputs):
    from azure.identity import ClientSecretCredential

    owner = inputs["owner"]
    return ClientSecretCredential(inputs["tenant"], owner["client_id"], owner["secret"])


def machine_credential(inputs):
    from azure.identity import ManagedIdentityCredential

    return ManagedIdentityCredential(client_id=inputs["machine"]["client_id"])


def resources_client(inputs):
    from azure.mgmt.resource.resources import ResourceManagementClient

    return ResourceManagementClient(secret_credential(inputs), inputs["subscription"])


def component_secret(inputs):
    """Reads the vault secret with the credential of a component, as its pod does."""
    from azure.keyvault.secrets import SecretClient

    client = SecretClient(inputs["vault"], machine_credential(inputs))
    return client.get_secret(inputs["secret_name"])


def sign_in_with(secret):
    """Signs in with the certificate in the document of a component's secret."""
    from azure.identity import CertificateCredential

    document = json.loads(secret.value)
    credential = CertificateCredential(
        document["tenant_id"],
        document["client_id"],
        certificate_data=base64.b64decode(document["client_secret"]),
        send_certificate_chain=True,
    )
    return credential.get_token(ARM_SCOPE)


def token_key_id(token):
    header = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"]


def read_status(token, path):
    """Returns the status of a request with a token, without the policies of an SDK."""
    request = urllib.request.Request(f"{ARM}{path}")
    request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def network_security_group(inputs, group, name):
    return (
        f"/subscriptions/{inputs['subscription']}/resourceGroups/{group}"
        f"/providers/Microsoft.Network/networkSecurityGroups/{name}"
    )


def begin_create(client, resource):
    return client.resources.begin_create_or_update_by_id(
        resource, {"location": "westeurope", "properties": {}}, api_version=API_VERSION
    )


# Cases of the Azure SDK ----------------------------------------------------------------------


def kv_throttled_at_boot(inputs):
    with drill("kv-throttled-at-boot") as log:
        names = [component_secret(inputs).name for _ in range(9)]
        throttled = log.faults()
    expect("secrets of nine pods", names, [inputs["secret_name"]] * 9)
    expect_true("at least four reads are throttled", len(throttled) >= 4, len(throttled))
    expect("throttled replies", {entry["status"] for entry in throttled}, {429})
    # One second for each throttled read: Retry-After.
    expect_true("the client waits for Retry-After", CLOCK.slept >= len(throttled), CLOCK.slept)


def entra_brownout(inputs):
    with drill("entra-brownout") as log:
        credentials = [secret_credential(inputs) for _ in range(8)]
        for credential in credentials:
            credential.get_token(ARM_SCOPE)
        failed = log.entries(fault="entra-brownout-error")
        requests = len(log.entries(service="entra"))
        for credential in credentials:
            credential.get_token(ARM_SCOPE)
        again = len(log.entries(service="entra"))
    expect_true("some token requests fail", failed)
    expect("failed replies", {entry["status"] for entry in failed}, {503})
    expect("requests for cached tokens", again - requests, 0)


def imds_starting(inputs):
    with drill("imds-starting") as log:
        token = machine_credential(inputs).get_token(ARM_SCOPE)
        statuses = [entry["status"] for entry in log.entries(operation="Identities_GetToken")]
        faults = [entry["fault"] for entry in log.faults()]
    expect_true("the client gets a token", token.token)
    expect(
        "faults in their order",
        faults,
        ["imds-starting-404"] * 2 + ["imds-starting-410", "imds-starting-429"],
    )
    expect("the last reply", statuses[-1:], [200])


def issuer_key_rollover(inputs):
    credential = secret_credential(inputs)
    with drill("issuer-key-rollover"):
        first = credential.get_token(ARM_SCOPE).token
        CLOCK.sleep(3500)
        # The tokens of this time outlive the change of the signing key.
        overlapping = secret_credential(inputs).get_token(ARM_SCOPE).token
        CLOCK.sleep(200)
        second = credential.get_token(ARM_SCOPE).token
        expect("key of the overlapping token", token_key_id(overlapping), token_key_id(first))
        expect_true("a new key signs", token_key_id(second) != token_key_id(first))
        subscriptions = "/subscriptions?api-version=2022-12-01"
        expect("status with the old key", read_status(overlapping, subscriptions), 200)
        expect("status with the new key", read_status(second, subscriptions), 200)
        CLOCK.sleep(93600)
        third = credential.get_token(ARM_SCOPE).token
        expect("status after the old key is removed", read_status(third, subscriptions), 200)


def mi_renewal_missed(inputs):
    with drill("mi-renewal-missed"):
        expired = component_secret(inputs)
        error = refused(lambda: sign_in_with(expired))
        expect_true("the expired certificate is named", "AADSTS1000502" in error, error)
        CLOCK.sleep(1800)
        renewed = component_secret(inputs)
        changed = renewed.properties.version != expired.properties.version
        expect_true("the renewed secret has another version", changed)
        expect_true("the renewed certificate signs in", sign_in_with(renewed).token)


def rotate_during_rollout(inputs):
    with drill("rotate-during-rollout"):
        secrets = [component_secret(inputs)]
        for _ in range(3):
            CLOCK.sleep(30)
            secrets.append(component_secret(inputs))
            expect_true("the rotated certificate signs in", sign_in_with(secrets[-1]).token)
        expect("versions", len({secret.properties.version for secret in secrets}), 4)
        expect_true("the first certificate stays valid", sign_in_with(secrets[0]).token)


def arm_429_on_destroy(inputs):
    client = resources_client(inputs)
    group = "drill-destroy"
    client.resource_groups.create_or_update(group, {"location": "westeurope"})
    names = [network_security_group(inputs, group, f"nsg-{number}") for number in range(5)]
    for name in names:
        begin_create(client, name).result()
    with drill("arm-429-on-destroy") as log:
        slept = CLOCK.slept
        for name in names:
            client.resources.begin_delete_by_id(name, api_version=API_VERSION).result()
        throttled = [entry for entry in log.faults() if entry["status"] == 429]
        polls = [entry for entry in log.entries() if "/operationResults/" in entry["path"]]
        polls += [entry for entry in log.entries() if "/operations/" in entry["path"]]
    left = [resource.name for resource in client.resources.list_by_resource_group(group)]
    expect("leftovers", left, [])
    expect_true("at least three deletions are throttled", len(throttled) >= 3, len(throttled))
    expect_true("the client waits for Retry-After", CLOCK.slept - slept >= 13, CLOCK.slept - slept)
    expect_true("each deletion is polled", len(polls) >= 10, len(polls))


def long_running_operations(inputs):
    client = resources_client(inputs)
    group = "drill-operations"
    client.resource_groups.create_or_update(group, {"location": "westeurope"})
    resource = network_security_group(inputs, group, "nsg")
    reset = {"resourceManager": {"longRunning": None}}

    def operations(**rule):
        rule = {"resourceType": "Microsoft.Network/networkSecurityGroups", "polls": 2, **rule}
        return settings({"resourceManager": {"longRunning": [rule]}}, reset)

    for style in ("async-operation", "location", "body"):
        with operations(style=style):
            created = begin_create(client, resource).result()
            state = created.properties["provisioningState"]
            expect(f"provisioning state ({style})", state, "Succeeded")
    failed = {"status": "Failed", "code": "OverconstrainedAllocation", "message": "No capacity."}
    with operations(outcome=failed):
        error = refused(lambda: begin_create(client, resource).result())
        expect_true("the failed operation names its code", "OverconstrainedAllocation" in error, error)
    with operations(outcome={"status": "Canceled"}):
        error = refused(lambda: begin_create(client, resource).result())
        expect_true("the cancelled operation fails", "ancel" in error, error)
    with operations(missingReads=1):
        error = refused(lambda: begin_create(client, resource).result())
        expect_true("the written resource is not found yet", "ResourceNotFound" in error, error)
    with operations(expiresAfterPolls=1):
        error = refused(lambda: begin_create(client, resource).result())
        expect_true("the status URL is gone", "OperationNotFound" in error, error)


def paging(inputs):
    client = resources_client(inputs)
    reset = {"resourceManager": {"pageSize": None}}
    names = {group.name for group in client.resource_groups.list()}
    with settings({"resourceManager": {"pageSize": 1}}, reset) as log:
        paged = {group.name for group in client.resource_groups.list()}
        pages = log.entries(operation="ResourceGroups_List")
    expect("groups in pages of one", paged, names)
    expect("pages", len(pages), len(names))


# Cases of the Azure CLI ----------------------------------------------------------------------


def azure_cli(*arguments):
    """Runs a command of the Azure CLI in this process. Returns its exit code, result and messages."""
    from azure.cli.core import get_default_cli

    output, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(messages):
        cli = get_default_cli()
        code = cli.invoke([*arguments, "--output", "json"], out_file=output)
    result = output.getvalue()
    return code, json.loads(result) if code == 0 and result.strip() else None, messages.getvalue()


def sign_azure_cli_in(inputs):
    owner = inputs["user"]
    code, _, messages = azure_cli("login", "--username", owner["name"], "--password", owner["password"])
    expect("exit code of az login", (code, messages if code else ""), (0, ""))


def rbac_five_minutes(inputs):
    sign_azure_cli_in(inputs)
    scope = f"/subscriptions/{inputs['subscription']}"
    with drill("rbac-five-minutes") as log:
        slept = CLOCK.slept
        code, created, messages = azure_cli(
            "ad", "sp", "create-for-rbac", "--name", "drill-rbac", "--role", "Reader", "--scopes", scope
        )
        expect("exit code of create-for-rbac", code, 0)
        if code:
            PROBLEMS.append(messages[-2000:])
            return
        rejected = [
            entry
            for entry in log.entries(service="graph", method="POST", status=400)
            if entry["path"].endswith("/servicePrincipals")
        ]
        waited = CLOCK.slept - slept
        expect_true("az repeats the creation of the service principal", len(rejected) >= 2, len(rejected))
        expect_true("az waits until the application is replicated", 10 <= waited <= 60, waited)

        # The role takes effect after five minutes.
        from msal import ConfidentialClientApplication

        application = ConfidentialClientApplication(
            created["appId"],
            client_credential=created["password"],
            authority=f"https://login.microsoftonline.com/{created['tenant']}",
        )
        token = application.acquire_token_for_client([ARM_SCOPE])["access_token"]
        group = f"{scope}/resourcegroups/{inputs['resource_group']}?api-version=2021-04-01"
        statuses = [read_status(token, group)]
        while statuses[-1] == 403 and len(statuses) < 12:
            CLOCK.sleep(60)
            statuses.append(read_status(token, group))
        expect("statuses until the role takes effect", statuses, [403] * 5 + [200])


def principal_not_found(inputs):
    """The loop of `az ad sp create-for-rbac`, which depends on the text of the error."""
    sign_azure_cli_in(inputs)
    scope = f"/subscriptions/{inputs['subscription']}"
    message = (
        f"Principal 0123456789abcdef0123456789abcdef does not exist in the directory {inputs['tenant']}."
    )
    rule = {
        "name": "principal-not-found",
        "service": "arm",
        "method": "PUT",
        "path": "*/roleAssignments/*",
        "times": 3,
        "effect": {"type": "status", "status": 400, "code": "PrincipalNotFound", "message": message},
    }
    slept = CLOCK.slept
    with fault(rule) as log:
        code, _, messages = azure_cli(
            "ad", "sp", "create-for-rbac", "--name", "drill-principal", "--role", "Reader", "--scopes", scope
        )
    expect("exit code of create-for-rbac", (code, messages[-2000:] if code else ""), (0, ""))
    expect("rejected role assignments", len(log.faults()), 3)
    expect_true("az waits five seconds each time", CLOCK.slept - slept >= 15, CLOCK.slept - slept)


CASES = {
    "kv-throttled-at-boot": kv_throttled_at_boot,
    "entra-brownout": entra_brownout,
    "imds-starting": imds_starting,
    "issuer-key-rollover": issuer_key_rollover,
    "mi-renewal-missed": mi_renewal_missed,
    "rotate-during-rollout": rotate_during_rollout,
    "arm-429-on-destroy": arm_429_on_destroy,
    "long-running-operations": long_running_operations,
    "paging": paging,
    "rbac-five-minutes": rbac_five_minutes,
    "principal-not-found": principal_not_found,
}


def main():
    case = CASES[sys.argv[1]]
    inputs = json.load(sys.stdin)
    CLOCK.install()
    case(inputs)
    print(json.dumps({"problems": PROBLEMS}))


if __name__ == "__main__":
    main()
