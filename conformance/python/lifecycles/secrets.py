"""azure-keyvault-secrets."""

from datetime import datetime, timezone

from azure.keyvault.secrets import SecretClient
from lifecycle_steps import name_of, pages_of

EXPIRES = datetime(2099, 1, 1, tzinfo=timezone.utc)


def secret_facts(secret):
    return {"value": secret.value, **property_facts(secret.properties)}


def property_facts(properties):
    return {
        "name": properties.name,
        "version": properties.version,
        "content_type": properties.content_type,
        "enabled": properties.enabled,
        "expires": properties.expires_on and properties.expires_on.isoformat(),
        "tags": properties.tags,
        "recovery_level": properties.recovery_level,
    }


def deleted_facts(deleted):
    return {
        "name": deleted.name,
        "recovery_id": deleted.recovery_id,
        "days": (deleted.scheduled_purge_date - deleted.deleted_date).days,
    }


def own_secrets(paged):
    """Returns the facts of a list. Other lifecycles use the same vault at the same time."""
    found = pages_of(paged, name_of)
    items = [name for name in found["items"] if name.startswith("lifecycle")]
    return {"several_pages": found["pages"] > 1, "items": items}


def run(steps, credential, inputs):
    client = SecretClient(inputs["vault"], credential)

    def read(version=None):
        return client.get_secret("lifecycle", version)

    first = steps.run(
        "set a secret",
        lambda: client.set_secret(
            "lifecycle", "first", content_type="text/plain", tags={"stage": "test"}
        ),
        secret_facts,
    ).properties.version
    steps.run(
        "set a new version", lambda: client.set_secret("lifecycle", "second"), secret_facts
    )
    steps.run("get the newest version", read, secret_facts)
    steps.run("get the first version", lambda: read(first), secret_facts)
    steps.run(
        "change the properties of the first version",
        lambda: client.update_secret_properties(
            "lifecycle", first, expires_on=EXPIRES, tags={"stage": "old"}, enabled=False
        ),
        property_facts,
    )
    steps.run("get a disabled version", lambda: read(first))
    steps.run("get a missing secret", lambda: client.get_secret("missing"))
    steps.run(
        "set a secret with an invalid name", lambda: client.set_secret("under_score", "value")
    )
    steps.run(
        "list the versions, one per page",
        lambda: client.list_properties_of_secret_versions("lifecycle", max_page_size=1),
        lambda versions: pages_of(versions, lambda it: {"enabled": it.enabled}),
    )
    steps.run(
        "list the secrets, three per page",
        lambda: client.list_properties_of_secrets(max_page_size=3),
        own_secrets,
    )
    backup = steps.run(
        "back a secret up",
        lambda: client.backup_secret("lifecycle"),
        lambda content: {"empty": not content},
    )
    steps.run(
        "delete a secret",
        lambda: client.begin_delete_secret("lifecycle").result(),
        deleted_facts,
    )
    steps.run("get a deleted secret", read)
    steps.run("set a deleted secret", lambda: client.set_secret("lifecycle", "third"))
    steps.run(
        "list the deleted secrets",
        lambda: client.list_deleted_secrets(max_page_size=25),
        own_secrets,
    )
    steps.run(
        "recover a secret",
        lambda: client.begin_recover_deleted_secret("lifecycle").result(),
        property_facts,
    )
    steps.run("get the recovered secret", read, secret_facts)
    client.begin_delete_secret("lifecycle").wait()
    steps.run("purge a secret", lambda: client.purge_deleted_secret("lifecycle"))
    steps.run("get a purged secret", lambda: client.get_deleted_secret("lifecycle"))
    steps.run(
        "restore a secret", lambda: client.restore_secret_backup(backup), property_facts
    )
    steps.run("get the restored version", lambda: read(first))
    client.begin_delete_secret("lifecycle").wait()
