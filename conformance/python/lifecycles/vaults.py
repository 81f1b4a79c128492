"""azure-mgmt-keyvault, and the permissions of the vault's data plane."""

from azure.keyvault.secrets import SecretClient
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.keyvault import KeyVaultManagementClient
from lifecycle_steps import name_of, pages_of, resource_group

GROUP = "sdk-vaults"
VAULT = "sdk-vaults-lifecycle"
ASSIGNMENT = "0b9c0c52-4a52-4d0c-8f1b-7a4fb1f4ec51"
SECRETS_OFFICER = "b86a8fe4-44ce-4948-aee5-eccb2c155cd7"


def vault_facts(vault):
    properties = vault.properties
    return {
        "id": vault.id,
        "location": vault.location,
        "tags": vault.tags,
        "uri": properties.vault_uri,
        "tenant": properties.tenant_id,
        "sku": properties.sku.name,
        "rbac": properties.enable_rbac_authorization,
        "soft_delete": properties.enable_soft_delete,
        "retention_days": properties.soft_delete_retention_in_days,
        "state": properties.provisioning_state,
    }


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    management = KeyVaultManagementClient(credential, subscription)
    client = management.vaults
    with resource_group(credential, subscription, GROUP):
        parameters = {
            "location": "westeurope",
            "tags": {"stage": "test"},
            "properties": {
                "tenantId": inputs["tenant"],
                "sku": {"family": "A", "name": "standard"},
                "enableRbacAuthorization": True,
                "softDeleteRetentionInDays": 30,
            },
        }
        steps.run(
            "create a vault",
            lambda: client.begin_create_or_update(GROUP, VAULT, parameters).result(),
            vault_facts,
        )
        steps.run("get a vault", lambda: client.get(GROUP, VAULT), vault_facts)
        steps.run(
            "check the availability of its name",
            lambda: client.check_name_availability(
                {"name": VAULT, "type": "Microsoft.KeyVault/vaults"}
            ),
            lambda it: {"available": it.name_available, "reason": it.reason},
        )
        run_data_plane(steps, credential, inputs)
        run_keys(steps, management.keys)
        steps.run(
            "change the tags",
            lambda: client.update(GROUP, VAULT, {"tags": {"stage": "production"}}),
            lambda vault: {"tags": vault.tags},
        )
        steps.run(
            "list the vaults of the group",
            lambda: client.list_by_resource_group(GROUP),
            lambda vaults: pages_of(vaults, name_of),
        )
        steps.run(
            "list the vaults of the subscription",
            client.list_by_subscription,
            lambda vaults: {"is_listed": VAULT in map(name_of, vaults)},
        )
        steps.run(
            "create a vault with an invalid name",
            lambda: client.begin_create_or_update(GROUP, "0-vault", parameters).result(),
        )
        steps.run("delete a vault", lambda: client.delete(GROUP, VAULT))
        steps.run("get a deleted vault", lambda: client.get(GROUP, VAULT))
        steps.run(
            "create a deleted vault",
            lambda: client.begin_create_or_update(GROUP, VAULT, parameters).result(),
        )
        steps.run(
            "find the deleted vault",
            lambda: client.get_deleted(VAULT, "westeurope"),
            lambda it: {"name": it.name, "vault": it.properties.vault_id},
        )
        steps.run(
            "purge a vault", lambda: client.begin_purge_deleted(VAULT, "westeurope").result()
        )
        steps.run("find the purged vault", lambda: client.get_deleted(VAULT, "westeurope"))


def run_keys(steps, client):
    """Keys of the vault through Azure Resource Manager."""

    def create(size):
        return client.create_if_not_exist(
            GROUP, VAULT, "disks", {"properties": {"kty": "RSA", "keySize": size}}
        )

    def key_facts(key):
        properties = key.properties
        return {
            "id": key.id,
            "type": properties.kty,
            "bits": properties.key_size,
            "operations": sorted(properties.key_ops),
            "uri": properties.key_uri,
        }

    key = steps.run("create a key", lambda: create(2048), key_facts)
    steps.run("create the key again with another size", lambda: create(3072), key_facts)
    steps.run("get the key", lambda: client.get(GROUP, VAULT, "disks"), key_facts)
    version = key.properties.key_uri_with_version.rsplit("/", 1)[-1]
    steps.run(
        "get a version of the key",
        lambda: client.get_version(GROUP, VAULT, "disks", version),
        lambda it: {"is_version": it.name == version, "uri": it.properties.key_uri},
    )
    steps.run("get a missing key", lambda: client.get(GROUP, VAULT, "missing"))


def run_data_plane(steps, credential, inputs):
    """Ownership of a vault permits no access to its objects until a role of the data plane is assigned."""
    subscription = inputs["subscription"]
    scope = (
        f"/subscriptions/{subscription}/resourceGroups/{GROUP}"
        f"/providers/Microsoft.KeyVault/vaults/{VAULT}"
    )
    roles = AuthorizationManagementClient(credential, subscription)
    secrets = SecretClient(f"https://{VAULT}.vault.azure.net", credential)
    role = f"/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions/{SECRETS_OFFICER}"

    def set_secret():
        return secrets.set_secret("connection", "value")

    steps.run("set a secret without a role", set_secret)
    roles.role_assignments.create(
        scope,
        ASSIGNMENT,
        {
            "role_definition_id": role,
            "principal_id": inputs["object_id"],
            "principal_type": "ServicePrincipal",
        },
    )
    steps.run("set a secret with a role", set_secret, lambda it: {"name": it.name})
