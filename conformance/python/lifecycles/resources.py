"""azure-mgmt-resource."""

from azure.mgmt.resource.resources import ResourceManagementClient
from lifecycle_steps import name_of, pages_of

GROUP = "sdk-resources"
IDENTITY_VERSION = "2024-11-30"


def group_facts(group):
    return {
        "id": group.id,
        "location": group.location,
        "tags": group.tags,
        "state": group.properties.provisioning_state,
    }


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    client = ResourceManagementClient(credential, subscription)
    groups, resources = client.resource_groups, client.resources
    identity = (
        f"/subscriptions/{subscription}/resourceGroups/{GROUP}"
        "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/workload"
    )

    def get(resource, version):
        return resources.get_by_id(resource, api_version=version)

    def exists():
        return {"exists": groups.check_existence(GROUP)}

    steps.run("check a missing group", exists, dict)
    steps.run(
        "create a group",
        lambda: groups.create_or_update(
            GROUP, {"location": "westeurope", "tags": {"stage": "test"}}
        ),
        group_facts,
    )
    steps.run("check a group", exists, dict)
    steps.run(
        "move a group to another location",
        lambda: groups.create_or_update(GROUP, {"location": "northeurope"}),
    )
    steps.run(
        "create a group with an invalid name",
        lambda: groups.create_or_update("ends-with-a-dot.", {"location": "westeurope"}),
    )
    steps.run(
        "change the tags",
        lambda: groups.update(GROUP, {"tags": {"stage": "production"}}),
        group_facts,
    )
    groups.create_or_update(f"{GROUP}-other", {"location": "westeurope"})
    steps.run(
        "list the groups with a tag",
        lambda: groups.list(filter="tagName eq 'stage' and tagValue eq 'production'"),
        lambda found: pages_of(found, name_of),
    )
    steps.run(
        "list the groups, one per page",
        lambda: groups.list(top=1),
        lambda found: {"more_than_one_page": pages_of(found, name_of)["pages"] > 1},
    )
    steps.run(
        "create a resource by its ID",
        lambda: resources.begin_create_or_update_by_id(
            identity, {"location": "westeurope"}, api_version=IDENTITY_VERSION
        ).result(),
        lambda it: {"id": it.id, "type": it.type, "location": it.location},
    )
    steps.run(
        "list the resources of the group",
        lambda: resources.list_by_resource_group(GROUP),
        lambda found: pages_of(found, lambda it: it.id),
    )
    steps.run(
        "get a missing resource",
        lambda: get(f"{identity}-missing", IDENTITY_VERSION),
    )
    steps.run(
        "get a resource with an invalid version", lambda: get(identity, "newest")
    )
    steps.run("delete a group", lambda: groups.begin_delete(GROUP).result())
    steps.run("get a deleted group", lambda: groups.get(GROUP))
    steps.run("get a resource of a deleted group", lambda: get(identity, IDENTITY_VERSION))
    groups.begin_delete(f"{GROUP}-other").wait()
