"""azure-mgmt-containerservice."""

from azure.mgmt.containerservice import ContainerServiceClient
from lifecycle_steps import name_of, pages_of, resource_group

GROUP = "sdk-clusters"
CLUSTER = "management"


def cluster_facts(cluster):
    provider = cluster.addon_profiles["azureKeyvaultSecretsProvider"]
    return {
        "id": cluster.id,
        "state": cluster.provisioning_state,
        "fqdn": cluster.fqdn,
        "identity": cluster.identity.type,
        "kubelet_identity": bool(cluster.identity_profile["kubeletidentity"].client_id),
        "provider": provider.enabled,
        "provider_identity": bool(provider.identity.client_id),
        "issuer": cluster.oidc_issuer_profile.issuer_url,
        "workload_identity": cluster.security_profile.workload_identity.enabled,
        "node_group": cluster.node_resource_group,
        "pools": [{"name": it.name, "count": it.count} for it in cluster.agent_pool_profiles],
    }


def pool_facts(pool):
    return {"name": pool.name, "count": pool.count, "mode": pool.mode, "state": pool.provisioning_state}


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    client = ContainerServiceClient(credential, subscription)
    with resource_group(credential, subscription, GROUP):
        clusters, pools = client.managed_clusters, client.agent_pools
        pool = {"name": "system", "count": 1, "vmSize": "Standard_D2s_v5", "mode": "System"}
        body = {
            "location": "westeurope",
            "identity": {"type": "SystemAssigned"},
            "properties": {
                "dnsPrefix": CLUSTER,
                "agentPoolProfiles": [pool],
                "oidcIssuerProfile": {"enabled": True},
                "securityProfile": {"workloadIdentity": {"enabled": True}},
                "addonProfiles": {"azureKeyvaultSecretsProvider": {"enabled": True}},
            },
        }
        steps.run(
            "create a cluster",
            lambda: clusters.begin_create_or_update(GROUP, CLUSTER, body).result(),
            cluster_facts,
        )
        steps.run("get a cluster", lambda: clusters.get(GROUP, CLUSTER), cluster_facts)
        steps.run(
            "list the clusters of the group",
            lambda: clusters.list_by_resource_group(GROUP),
            lambda found: pages_of(found, name_of),
        )
        steps.run(
            "create a node pool",
            lambda: pools.begin_create_or_update(
                GROUP,
                CLUSTER,
                "user",
                {"properties": {"count": 2, "vmSize": "Standard_D4s_v5", "mode": "User"}},
            ).result(),
            pool_facts,
        )
        steps.run(
            "list the node pools", lambda: pools.list(GROUP, CLUSTER), lambda it: pages_of(it, name_of)
        )
        steps.run(
            "delete the last system pool",
            lambda: pools.begin_delete(GROUP, CLUSTER, "system").result(),
        )
        steps.run(
            "delete a node pool", lambda: pools.begin_delete(GROUP, CLUSTER, "user").result()
        )
        steps.run("get a deleted node pool", lambda: pools.get(GROUP, CLUSTER, "user"))
        steps.run("get a missing cluster", lambda: clusters.get(GROUP, "missing"))
        steps.run("delete a cluster", lambda: clusters.begin_delete(GROUP, CLUSTER).result())
        steps.run("get a deleted cluster", lambda: clusters.get(GROUP, CLUSTER))
