"""azure-mgmt-privatedns."""

from azure.core import MatchConditions
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.privatedns import PrivateDnsManagementClient
from lifecycle_steps import name_of, pages_of, resource_group

GROUP = "sdk-private-dns"
ZONE = "cluster.example.internal"


def zone_facts(zone):
    return {
        "id": zone.id,
        "location": zone.location,
        "record_sets": zone.number_of_record_sets,
        "state": zone.provisioning_state,
        "has_etag": bool(zone.etag),
    }


def record_facts(record):
    return {
        "fqdn": record.fqdn,
        "ttl": record.ttl,
        "addresses": [it.ipv4_address for it in record.a_records],
        "type": record.type,
    }


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    client = PrivateDnsManagementClient(credential, subscription)
    with resource_group(credential, subscription, GROUP):
        zones, records = client.private_zones, client.record_sets
        steps.run(
            "create a zone",
            lambda: zones.begin_create_or_update(GROUP, ZONE, {"location": "global"}).result(),
            zone_facts,
        )
        steps.run(
            "create an existing zone",
            lambda: zones.begin_create_or_update(
                GROUP,
                ZONE,
                {"location": "global"},
                etag="*",
                match_condition=MatchConditions.IfMissing,
            ).result(),
        )
        run_links(steps, client, NetworkManagementClient(credential, subscription))
        body = {"properties": {"ttl": 300, "aRecords": [{"ipv4Address": "10.0.0.4"}]}}
        steps.run(
            "create a record set",
            lambda: records.create_or_update(GROUP, ZONE, "A", "api", body),
            record_facts,
        )
        steps.run("get a record set", lambda: records.get(GROUP, ZONE, "A", "api"), record_facts)
        steps.run(
            "list the record sets",
            lambda: records.list(GROUP, ZONE),
            lambda found: pages_of(found, name_of),
        )
        steps.run(
            "list the record sets, one per page",
            lambda: records.list(GROUP, ZONE, top=1),
            lambda found: pages_of(found, name_of),
        )
        steps.run("get the changed zone", lambda: zones.get(GROUP, ZONE), zone_facts)
        steps.run("get a missing record set", lambda: records.get(GROUP, ZONE, "A", "missing"))
        steps.run("delete a record set", lambda: records.delete(GROUP, ZONE, "A", "api"))
        steps.run("delete a linked zone", lambda: zones.begin_delete(GROUP, ZONE).result())
        client.virtual_network_links.begin_delete(GROUP, ZONE, "nodes").wait()
        steps.run("delete a zone", lambda: zones.begin_delete(GROUP, ZONE).result())
        steps.run("get a deleted zone", lambda: zones.get(GROUP, ZONE))


def run_links(steps, client, network_client):
    network = {
        "location": "westeurope",
        "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}},
    }
    network = network_client.virtual_networks.begin_create_or_update(
        GROUP, "nodes", network
    ).result()

    def link(name):
        body = {
            "location": "global",
            "properties": {"virtualNetwork": {"id": network.id}, "registrationEnabled": False},
        }
        links = client.virtual_network_links
        return links.begin_create_or_update(GROUP, ZONE, name, body).result()

    steps.run(
        "link a network",
        lambda: link("nodes"),
        lambda it: {
            "id": it.id,
            "network": it.virtual_network.id,
            "registration": it.registration_enabled,
            "link_state": it.virtual_network_link_state,
            "state": it.provisioning_state,
        },
    )
    steps.run("link a network again", lambda: link("again"))
