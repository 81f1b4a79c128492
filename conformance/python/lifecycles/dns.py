"""azure-mgmt-dns."""

from azure.mgmt.dns import DnsManagementClient
from lifecycle_steps import name_of, pages_of, resource_group

GROUP = "sdk-dns"
ZONE = "sdk.example.org"


def zone_facts(zone):
    return {
        "id": zone.id,
        "location": zone.location,
        "type": zone.zone_type,
        "record_sets": zone.number_of_record_sets,
        "name_servers": len(zone.name_servers),
    }


def text_facts(record):
    return {
        "fqdn": record.fqdn,
        "ttl": record.ttl,
        "values": [it.value for it in record.txt_records],
        "metadata": record.metadata,
    }


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    client = DnsManagementClient(credential, subscription)
    with resource_group(credential, subscription, GROUP):
        zones, records = client.zones, client.record_sets

        def create(name, **conditions):
            body = {
                "properties": {
                    "TTL": 60,
                    "metadata": {"stage": "test"},
                    "TXTRecords": [{"value": ["first", "second"]}],
                }
            }
            return records.create_or_update(GROUP, ZONE, name, "TXT", body, **conditions)

        steps.run(
            "create a zone",
            lambda: zones.create_or_update(GROUP, ZONE, {"location": "global"}),
            zone_facts,
        )
        record = steps.run("create a record set", lambda: create("challenge"), text_facts)
        steps.run(
            "create an existing record set",
            lambda: create("challenge", if_none_match="*"),
        )
        steps.run(
            "change a record set with an old ETag",
            lambda: create("challenge", if_match="00000000-1111-4222-8333-444444444444"),
        )
        steps.run(
            "change a record set with its ETag",
            lambda: create("challenge", if_match=record.etag),
            text_facts,
        )
        steps.run(
            "list the record sets, one per page",
            lambda: records.list_by_dns_zone(GROUP, ZONE, top=1),
            lambda found: pages_of(found, name_of),
        )
        steps.run(
            "list the record sets of a type",
            lambda: records.list_by_type(GROUP, ZONE, "TXT"),
            lambda found: pages_of(found, name_of),
        )
        steps.run("get the zone", lambda: zones.get(GROUP, ZONE), zone_facts)
        steps.run("delete the name servers", lambda: records.delete(GROUP, ZONE, "@", "NS"))
        steps.run("delete a record set", lambda: records.delete(GROUP, ZONE, "challenge", "TXT"))
        steps.run("get a deleted record set", lambda: records.get(GROUP, ZONE, "challenge", "TXT"))
        steps.run("delete a zone", lambda: zones.begin_delete(GROUP, ZONE).result())
        steps.run("get a deleted zone", lambda: zones.get(GROUP, ZONE))
