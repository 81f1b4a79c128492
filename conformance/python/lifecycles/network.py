"""azure-mgmt-network."""

from azure.mgmt.network import NetworkManagementClient
from lifecycle_steps import name_of, pages_of, resource_group

GROUP = "sdk-network"
LOCATION = "westeurope"


def network_facts(network):
    return {
        "id": network.id,
        "prefixes": network.address_space.address_prefixes,
        "subnets": sorted(f"{it.name} {it.address_prefix}" for it in network.subnets),
        "state": network.provisioning_state,
        "has_etag": bool(network.etag),
    }


def rule_facts(rule):
    return {
        "name": rule.name,
        "priority": rule.priority,
        "access": rule.access,
        "direction": rule.direction,
        "port": rule.destination_port_range,
        "state": rule.provisioning_state,
    }


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    client = NetworkManagementClient(credential, subscription)
    with resource_group(credential, subscription, GROUP):
        run_security_group(steps, client)
        run_virtual_network(steps, client)
        run_load_balancer(steps, client)
        steps.run(
            "delete the network",
            lambda: client.virtual_networks.begin_delete(GROUP, "nodes").result(),
        )
        steps.run("get the deleted network", lambda: client.virtual_networks.get(GROUP, "nodes"))


def run_security_group(steps, client):
    groups, rules = client.network_security_groups, client.security_rules
    steps.run(
        "create a security group",
        lambda: groups.begin_create_or_update(GROUP, "nodes", {"location": LOCATION}).result(),
        lambda it: {
            "id": it.id,
            "rules": len(it.security_rules),
            "default_rules": sorted(rule.name for rule in it.default_security_rules),
            "state": it.provisioning_state,
        },
    )
    https = {
        "properties": {
            "protocol": "Tcp",
            "access": "Allow",
            "direction": "Inbound",
            "priority": 100,
            "sourceAddressPrefix": "*",
            "sourcePortRange": "*",
            "destinationAddressPrefix": "*",
            "destinationPortRange": "443",
        }
    }
    steps.run(
        "create a rule",
        lambda: rules.begin_create_or_update(GROUP, "nodes", "https", https).result(),
        rule_facts,
    )
    steps.run(
        "create a rule with the same priority",
        lambda: rules.begin_create_or_update(GROUP, "nodes", "copy", https).result(),
    )


def run_virtual_network(steps, client):
    networks, subnets = client.virtual_networks, client.subnets
    security_group = client.network_security_groups.get(GROUP, "nodes").id
    network = {
        "location": LOCATION,
        "tags": {"stage": "test"},
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [{"name": "nodes", "properties": {"addressPrefix": "10.0.0.0/24"}}],
        },
    }
    steps.run(
        "create a network",
        lambda: networks.begin_create_or_update(GROUP, "nodes", network).result(),
        network_facts,
    )
    steps.run(
        "create a subnet",
        lambda: subnets.begin_create_or_update(
            GROUP,
            "nodes",
            "ingress",
            {
                "properties": {
                    "addressPrefix": "10.0.1.0/24",
                    "networkSecurityGroup": {"id": security_group},
                }
            },
        ).result(),
        lambda it: {
            "id": it.id,
            "prefix": it.address_prefix,
            "security_group": it.network_security_group.id,
        },
    )
    steps.run(
        "create an overlapping subnet",
        lambda: subnets.begin_create_or_update(
            GROUP, "nodes", "overlap", {"properties": {"addressPrefix": "10.0.1.128/25"}}
        ).result(),
    )
    steps.run("get the network", lambda: networks.get(GROUP, "nodes"), network_facts)
    steps.run(
        "list the subnets", lambda: subnets.list(GROUP, "nodes"), lambda it: pages_of(it, name_of)
    )
    steps.run(
        "change the tags",
        lambda: networks.update_tags(GROUP, "nodes", {"tags": {"stage": "production"}}),
        lambda it: {"tags": it.tags},
    )
    steps.run(
        "delete a security group in use",
        lambda: client.network_security_groups.begin_delete(GROUP, "nodes").result(),
    )
    steps.run("get a missing subnet", lambda: subnets.get(GROUP, "nodes", "missing"))


def run_load_balancer(steps, client):
    address = steps.run(
        "create a public address",
        lambda: client.public_ip_addresses.begin_create_or_update(
            GROUP,
            "ingress",
            {
                "location": LOCATION,
                "sku": {"name": "Standard"},
                "properties": {"publicIPAllocationMethod": "Static"},
            },
        ).result(),
        lambda it: {
            "id": it.id,
            "method": it.public_ip_allocation_method,
            "version": it.public_ip_address_version,
            "address": it.ip_address,
        },
    )
    balancer = {
        "location": LOCATION,
        "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [
                {"name": "public", "properties": {"publicIPAddress": {"id": address.id}}}
            ],
            "backendAddressPools": [{"name": "nodes"}],
        },
    }
    steps.run(
        "create a load balancer",
        lambda: client.load_balancers.begin_create_or_update(GROUP, "ingress", balancer).result(),
        lambda it: {
            "frontend": it.frontend_ip_configurations[0].id,
            "pool": it.backend_address_pools[0].id,
            "state": it.provisioning_state,
        },
    )
    steps.run(
        "delete an address in use",
        lambda: client.public_ip_addresses.begin_delete(GROUP, "ingress").result(),
    )
    client.load_balancers.begin_delete(GROUP, "ingress").wait()
    steps.run(
        "delete a free address",
        lambda: client.public_ip_addresses.begin_delete(GROUP, "ingress").result(),
    )
