"""azure-storage-blob."""

from datetime import datetime, timedelta, timezone

from azure.core import MatchConditions
from azure.storage.blob import (
    BlobClient,
    BlobServiceClient,
    ContentSettings,
    generate_blob_sas,
)
from lifecycle_steps import name_of, pages_of

CONTAINER = "lifecycle"
DOCUMENT = b'{"issuer": "https://issuer.example.org"}'


def blob_facts(blob):
    return {
        "name": blob.name,
        "type": blob.blob_type,
        "size": blob.size,
        "content_type": blob.content_settings.content_type,
        "metadata": blob.metadata,
        "has_etag": bool(blob.etag),
    }


def run(steps, credential, inputs):
    account = inputs["storage_account"]
    service = BlobServiceClient(f"https://{account}.blob.core.windows.net", credential)
    container = service.get_container_client(CONTAINER)
    blob = container.get_blob_client("openid/configuration.json")
    steps.run(
        "create a container",
        lambda: service.create_container(CONTAINER).get_container_properties(),
        lambda it: {"name": it.name, "has_etag": bool(it.etag)},
    )
    steps.run("create an existing container", lambda: service.create_container(CONTAINER))
    steps.run(
        "upload a blob",
        lambda: blob.upload_blob(
            DOCUMENT,
            content_settings=ContentSettings(content_type="application/json"),
            metadata={"stage": "test"},
        ),
        lambda it: {"has_etag": bool(it["etag"]), "encrypted": it["request_server_encrypted"]},
    )
    properties = steps.run("get the properties of a blob", blob.get_blob_properties, blob_facts)
    steps.run(
        "download a blob", lambda: blob.download_blob().readall(), lambda it: {"text": it.decode()}
    )
    steps.run(
        "download a range",
        lambda: blob.download_blob(offset=2, length=6).readall(),
        lambda it: {"text": it.decode()},
    )
    steps.run("upload an existing blob", lambda: blob.upload_blob(DOCUMENT))
    steps.run(
        "change a blob with an old ETag",
        lambda: blob.set_blob_metadata(
            {"stage": "production"}, etag="0x0", match_condition=MatchConditions.IfNotModified
        ),
    )
    steps.run(
        "change a blob with its ETag",
        lambda: blob.set_blob_metadata(
            {"stage": "production"},
            etag=properties.etag,
            match_condition=MatchConditions.IfNotModified,
        ),
        lambda it: {"new_etag": it["etag"] != properties.etag},
    )
    steps.run("get the changed properties", blob.get_blob_properties, blob_facts)
    run_blocks(steps, container)
    steps.run(
        "list the blobs, one per page",
        lambda: container.list_blobs(results_per_page=1),
        lambda blobs: pages_of(blobs, name_of),
    )
    steps.run(
        "list the directories",
        lambda: container.walk_blobs(delimiter="/"),
        lambda items: {"names": sorted(item.name for item in items)},
    )
    run_delegation(steps, service, account)
    steps.run("get a missing blob", container.get_blob_client("missing").get_blob_properties)
    steps.run("delete a blob", blob.delete_blob)
    steps.run("download a deleted blob", blob.download_blob)
    steps.run("delete the container", container.delete_container)
    steps.run("get the deleted container", container.get_container_properties)


def run_blocks(steps, container):
    blob = container.get_blob_client("large")
    blob.stage_block("0001", b"first ")
    blob.stage_block("0002", b"second")
    steps.run(
        "commit blocks", lambda: blob.commit_block_list(["0001", "0002"]), lambda it: {"has_etag": bool(it["etag"])}
    )
    steps.run(
        "download the blocks", lambda: blob.download_blob().readall(), lambda it: {"text": it.decode()}
    )
    steps.run("commit an unknown block", lambda: blob.commit_block_list(["0003"]))


def run_delegation(steps, service, account):
    now = datetime.now(timezone.utc)
    key = steps.run(
        "get a user delegation key",
        lambda: service.get_user_delegation_key(now, now + timedelta(hours=1)),
        lambda it: {"service": it.signed_service, "tenant": it.signed_tid, "object_id": it.signed_oid},
    )

    def read_with(permission, expiry):
        signature = generate_blob_sas(
            account,
            CONTAINER,
            "large",
            user_delegation_key=key,
            permission=permission,
            start=now - timedelta(hours=2),
            expiry=expiry,
        )
        url = f"https://{account}.blob.core.windows.net/{CONTAINER}/large?{signature}"
        return BlobClient.from_blob_url(url).download_blob().readall()

    later, earlier = now + timedelta(minutes=10), now - timedelta(hours=1)
    steps.run(
        "download with a shared access signature",
        lambda: read_with("r", later),
        lambda it: {"text": it.decode()},
    )
    steps.run("download with a signature for writes", lambda: read_with("w", later))
    steps.run("download with an expired signature", lambda: read_with("r", earlier))
    steps.run(
        "download without a credential",
        BlobClient(f"https://{account}.blob.core.windows.net", CONTAINER, "large").download_blob,
    )
