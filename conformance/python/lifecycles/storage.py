"""azure-mgmt-storage, and the keys and permissions of the account's data plane."""

from azure.core.credentials import AzureNamedKeyCredential
from azure.mgmt.storage import StorageManagementClient
from azure.storage.blob import BlobServiceClient
from lifecycle_steps import name_of, pages_of, resource_group

GROUP = "sdk-storage"
ACCOUNT = "sdkstoragelifecycle"


def account_facts(account):
    return {
        "id": account.id,
        "location": account.location,
        "kind": account.kind,
        "sku": account.sku.name,
        "tags": account.tags,
        "blob": account.primary_endpoints.blob,
        "public_access": account.allow_blob_public_access,
        "https_only": account.enable_https_traffic_only,
        "state": account.provisioning_state,
    }


def container_facts(container):
    return {"name": container.name, "public_access": container.public_access}


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    client = StorageManagementClient(credential, subscription)
    accounts, containers = client.storage_accounts, client.blob_containers
    with resource_group(credential, subscription, GROUP):
        parameters = {
            "location": "westeurope",
            "kind": "StorageV2",
            "sku": {"name": "Standard_LRS"},
            "tags": {"stage": "test"},
            "properties": {"allowBlobPublicAccess": False},
        }

        def check_name(name):
            return accounts.check_name_availability(
                {"name": name, "type": "Microsoft.Storage/storageAccounts"}
            )

        steps.run(
            "check the availability of a free name",
            lambda: check_name(ACCOUNT),
            lambda it: {"available": it.name_available, "reason": it.reason},
        )
        steps.run(
            "create an account",
            lambda: accounts.begin_create(GROUP, ACCOUNT, parameters).result(),
            account_facts,
        )
        steps.run(
            "check the availability of its name",
            lambda: check_name(ACCOUNT),
            lambda it: {"available": it.name_available, "reason": it.reason},
        )
        steps.run("get an account", lambda: accounts.get_properties(GROUP, ACCOUNT), account_facts)
        keys = steps.run(
            "list the keys",
            lambda: accounts.list_keys(GROUP, ACCOUNT).keys_property,
            lambda keys: {
                "names": [key.key_name for key in keys],
                "permissions": [key.permissions for key in keys],
                "different": keys[0].value != keys[1].value,
            },
        )
        run_data_plane(steps, credential, keys)
        steps.run(
            "get a container through ARM", lambda: containers.get(GROUP, ACCOUNT, "issuer"), container_facts
        )
        steps.run(
            "create a public container through ARM",
            lambda: containers.create(
                GROUP, ACCOUNT, "public", {"properties": {"publicAccess": "Container"}}
            ),
            container_facts,
        )
        steps.run(
            "permit public access",
            lambda: accounts.update(
                GROUP, ACCOUNT, {"properties": {"allowBlobPublicAccess": True}}
            ),
            lambda account: {"public_access": account.allow_blob_public_access, "tags": account.tags},
        )
        steps.run(
            "create a permitted public container",
            lambda: containers.create(
                GROUP, ACCOUNT, "public", {"properties": {"publicAccess": "Container"}}
            ),
            container_facts,
        )
        steps.run(
            "list the containers through ARM",
            lambda: containers.list(GROUP, ACCOUNT),
            lambda found: pages_of(found, name_of),
        )
        steps.run("get a missing container through ARM", lambda: containers.get(GROUP, ACCOUNT, "missing"))
        steps.run(
            "list the accounts of the group",
            lambda: accounts.list_by_resource_group(GROUP),
            lambda found: pages_of(found, name_of),
        )
        steps.run(
            "create an account with an invalid name",
            lambda: accounts.begin_create(GROUP, "Upper-Case", parameters).result(),
        )
        steps.run("delete an account", lambda: accounts.delete(GROUP, ACCOUNT))
        steps.run("get a deleted account", lambda: accounts.get_properties(GROUP, ACCOUNT))


def run_data_plane(steps, credential, keys):
    """The keys permit everything. Ownership of an account permits no access to its blobs with a token."""
    url = f"https://{ACCOUNT}.blob.core.windows.net"
    with_key = BlobServiceClient(url, AzureNamedKeyCredential(ACCOUNT, keys[0].value))
    with_wrong_key = BlobServiceClient(url, AzureNamedKeyCredential(ACCOUNT, "AAAA"))
    with_token = BlobServiceClient(url, credential)
    steps.run(
        "create a container with a key",
        lambda: with_key.create_container("issuer").get_container_properties(),
        lambda it: {"name": it.name, "public_access": it.public_access},
    )
    steps.run(
        "create a container with a wrong key", lambda: with_wrong_key.create_container("other")
    )
    steps.run(
        "list blobs without a role",
        lambda: list(with_token.get_container_client("issuer").list_blobs()),
    )
