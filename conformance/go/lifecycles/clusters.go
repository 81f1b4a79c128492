package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"

	"lanyard.dev/conformance/internal/program"
)

const clusterGroup, clusterName = "sdk-clusters", "management"

func clusterFacts(it armcontainerservice.ManagedCluster) facts {
	provider := it.Properties.AddonProfiles["azureKeyvaultSecretsProvider"]
	pools := []facts{}
	for _, pool := range it.Properties.AgentPoolProfiles {
		pools = append(pools, facts{"name": pool.Name, "count": pool.Count})
	}
	return facts{
		"id":                it.ID,
		"state":             it.Properties.ProvisioningState,
		"fqdn":              it.Properties.Fqdn,
		"identity":          it.Identity.Type,
		"kubelet_identity":  program.Value(it.Properties.IdentityProfile["kubeletidentity"].ClientID) != "",
		"provider":          provider.Enabled,
		"provider_identity": program.Value(provider.Identity.ClientID) != "",
		"issuer":            it.Properties.OidcIssuerProfile.IssuerURL,
		"workload_identity": it.Properties.SecurityProfile.WorkloadIdentity.Enabled,
		"node_group":        it.Properties.NodeResourceGroup,
		"pools":             pools,
	}
}

func newCluster() armcontainerservice.ManagedCluster {
	provider := &armcontainerservice.ManagedClusterAddonProfile{Enabled: to.Ptr(true)}
	return armcontainerservice.ManagedCluster{
		Location: to.Ptr(location),
		Identity: &armcontainerservice.ManagedClusterIdentity{
			Type: to.Ptr(armcontainerservice.ResourceIdentityTypeSystemAssigned),
		},
		Properties: &armcontainerservice.ManagedClusterProperties{
			DNSPrefix: to.Ptr(clusterName),
			AgentPoolProfiles: []*armcontainerservice.ManagedClusterAgentPoolProfile{{
				Name:   to.Ptr("system"),
				Count:  to.Ptr(int32(1)),
				VMSize: to.Ptr("Standard_D2s_v5"),
				Mode:   to.Ptr(armcontainerservice.AgentPoolModeSystem),
			}},
			OidcIssuerProfile: &armcontainerservice.ManagedClusterOIDCIssuerProfile{Enabled: to.Ptr(true)},
			SecurityProfile: &armcontainerservice.ManagedClusterSecurityProfile{
				WorkloadIdentity: &armcontainerservice.ManagedClusterSecurityProfileWorkloadIdentity{
					Enabled: to.Ptr(true),
				},
			},
			AddonProfiles: map[string]*armcontainerservice.ManagedClusterAddonProfile{
				"azureKeyvaultSecretsProvider": provider,
			},
		},
	}
}

func runClusters(l *lifecycle) error {
	factory, err := armcontainerservice.NewClientFactory(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	deleteGroup, err := l.createGroup(clusterGroup)
	if err != nil {
		return err
	}
	clusters := factory.NewManagedClustersClient()
	get := func(name string) func() (armcontainerservice.ManagedCluster, error) {
		return func() (armcontainerservice.ManagedCluster, error) {
			response, err := clusters.Get(l.ctx, clusterGroup, name, nil)
			return response.ManagedCluster, err
		}
	}
	runStep(l.steps, "create a cluster", func() (armcontainerservice.ManagedCluster, error) {
		poller, err := clusters.BeginCreateOrUpdate(l.ctx, clusterGroup, clusterName, newCluster(), nil)
		response, err := poll(l.ctx, poller, err)
		return response.ManagedCluster, err
	}, clusterFacts)
	runStep(l.steps, "get a cluster", get(clusterName), clusterFacts)
	runStep(l.steps, "list the clusters of the group", func() (page, error) {
		pager := clusters.NewListByResourceGroupPager(clusterGroup, nil)
		return readPages(l.ctx, pager, func(it armcontainerservice.ManagedClustersClientListByResourceGroupResponse) []string {
			return namesOf(it.Value, func(it *armcontainerservice.ManagedCluster) string { return *it.Name })
		})
	}, pageFacts)
	runNodePools(l, factory.NewAgentPoolsClient())
	runStep(l.steps, "get a missing cluster", get("missing"), clusterFacts)
	runStep(l.steps, "delete a cluster", func() (armcontainerservice.ManagedClustersClientDeleteResponse, error) {
		poller, err := clusters.BeginDelete(l.ctx, clusterGroup, clusterName, nil)
		return poll(l.ctx, poller, err)
	}, nothing)
	runStep(l.steps, "get a deleted cluster", get(clusterName), clusterFacts)
	return deleteGroup()
}

func runNodePools(l *lifecycle, client *armcontainerservice.AgentPoolsClient) {
	describe := func(it armcontainerservice.AgentPool) facts {
		return facts{
			"name":  it.Name,
			"count": it.Properties.Count,
			"mode":  it.Properties.Mode,
			"state": it.Properties.ProvisioningState,
		}
	}
	runStep(l.steps, "create a node pool", func() (armcontainerservice.AgentPool, error) {
		pool := armcontainerservice.AgentPool{
			Properties: &armcontainerservice.ManagedClusterAgentPoolProfileProperties{
				Count:  to.Ptr(int32(2)),
				VMSize: to.Ptr("Standard_D4s_v5"),
				Mode:   to.Ptr(armcontainerservice.AgentPoolModeUser),
			},
		}
		poller, err := client.BeginCreateOrUpdate(l.ctx, clusterGroup, clusterName, "user", pool, nil)
		response, err := poll(l.ctx, poller, err)
		return response.AgentPool, err
	}, describe)
	runStep(l.steps, "list the node pools", func() (page, error) {
		pager := client.NewListPager(clusterGroup, clusterName, nil)
		return readPages(l.ctx, pager, func(it armcontainerservice.AgentPoolsClientListResponse) []string {
			return namesOf(it.Value, func(it *armcontainerservice.AgentPool) string { return *it.Name })
		})
	}, pageFacts)
	remove := func(name string) func() (armcontainerservice.AgentPoolsClientDeleteResponse, error) {
		return func() (armcontainerservice.AgentPoolsClientDeleteResponse, error) {
			poller, err := client.BeginDelete(l.ctx, clusterGroup, clusterName, name, nil)
			return poll(l.ctx, poller, err)
		}
	}
	runStep(l.steps, "delete the last system pool", remove("system"), nothing)
	runStep(l.steps, "delete a node pool", remove("user"), nothing)
	runStep(l.steps, "get a deleted node pool", func() (armcontainerservice.AgentPool, error) {
		response, err := client.Get(l.ctx, clusterGroup, clusterName, "user", nil)
		return response.AgentPool, err
	}, describe)
}
