package main

import (
	"sort"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"lanyard.dev/conformance/internal/program"
)

const networkGroup = "sdk-network"

func runNetwork(l *lifecycle) error {
	factory, err := armnetwork.NewClientFactory(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	deleteGroup, err := l.createGroup(networkGroup)
	if err != nil {
		return err
	}
	runSecurityGroup(l, factory)
	runVirtualNetwork(l, factory)
	runLoadBalancer(l, factory)
	networks := factory.NewVirtualNetworksClient()
	runStep(l.steps, "delete the network", func() (armnetwork.VirtualNetworksClientDeleteResponse, error) {
		poller, err := networks.BeginDelete(l.ctx, networkGroup, "nodes", nil)
		return poll(l.ctx, poller, err)
	}, nothing)
	runStep(l.steps, "get the deleted network", func() (armnetwork.VirtualNetwork, error) {
		response, err := networks.Get(l.ctx, networkGroup, "nodes", nil)
		return response.VirtualNetwork, err
	}, networkFacts)
	return deleteGroup()
}

func runSecurityGroup(l *lifecycle, factory *armnetwork.ClientFactory) {
	groups, rules := factory.NewSecurityGroupsClient(), factory.NewSecurityRulesClient()
	runStep(l.steps, "create a security group", func() (armnetwork.SecurityGroup, error) {
		group := armnetwork.SecurityGroup{Location: to.Ptr(location)}
		poller, err := groups.BeginCreateOrUpdate(l.ctx, networkGroup, "nodes", group, nil)
		response, err := poll(l.ctx, poller, err)
		return response.SecurityGroup, err
	}, func(it armnetwork.SecurityGroup) facts {
		defaults := namesOf(it.Properties.DefaultSecurityRules, func(it *armnetwork.SecurityRule) string {
			return *it.Name
		})
		sort.Strings(defaults)
		return facts{
			"id":            it.ID,
			"rules":         len(it.Properties.SecurityRules),
			"default_rules": defaults,
			"state":         it.Properties.ProvisioningState,
		}
	})
	create := func(name string) func() (armnetwork.SecurityRule, error) {
		return func() (armnetwork.SecurityRule, error) {
			rule := armnetwork.SecurityRule{Properties: &armnetwork.SecurityRulePropertiesFormat{
				Protocol:                 to.Ptr(armnetwork.SecurityRuleProtocolTCP),
				Access:                   to.Ptr(armnetwork.SecurityRuleAccessAllow),
				Direction:                to.Ptr(armnetwork.SecurityRuleDirectionInbound),
				Priority:                 to.Ptr(int32(100)),
				SourceAddressPrefix:      to.Ptr("*"),
				SourcePortRange:          to.Ptr("*"),
				DestinationAddressPrefix: to.Ptr("*"),
				DestinationPortRange:     to.Ptr("443"),
			}}
			poller, err := rules.BeginCreateOrUpdate(l.ctx, networkGroup, "nodes", name, rule, nil)
			response, err := poll(l.ctx, poller, err)
			return response.SecurityRule, err
		}
	}
	describe := func(it armnetwork.SecurityRule) facts {
		return facts{
			"name":      it.Name,
			"priority":  it.Properties.Priority,
			"access":    it.Properties.Access,
			"direction": it.Properties.Direction,
			"port":      it.Properties.DestinationPortRange,
			"state":     it.Properties.ProvisioningState,
		}
	}
	runStep(l.steps, "create a rule", create("https"), describe)
	runStep(l.steps, "create a rule with the same priority", create("copy"), describe)
}

func networkFacts(it armnetwork.VirtualNetwork) facts {
	subnets := namesOf(it.Properties.Subnets, func(it *armnetwork.Subnet) string {
		return *it.Name + " " + program.Value(it.Properties.AddressPrefix)
	})
	sort.Strings(subnets)
	return facts{
		"id":       it.ID,
		"prefixes": it.Properties.AddressSpace.AddressPrefixes,
		"subnets":  subnets,
		"state":    it.Properties.ProvisioningState,
		"has_etag": it.Etag != nil,
	}
}

func runVirtualNetwork(l *lifecycle, factory *armnetwork.ClientFactory) {
	networks, subnets := factory.NewVirtualNetworksClient(), factory.NewSubnetsClient()
	groups := factory.NewSecurityGroupsClient()
	runStep(l.steps, "create a network", func() (armnetwork.VirtualNetwork, error) {
		network := armnetwork.VirtualNetwork{
			Location: to.Ptr(location),
			Tags:     tags("test"),
			Properties: &armnetwork.VirtualNetworkPropertiesFormat{
				AddressSpace: &armnetwork.AddressSpace{
					AddressPrefixes: []*string{to.Ptr("10.0.0.0/16")},
				},
				Subnets: []*armnetwork.Subnet{{
					Name: to.Ptr("nodes"),
					Properties: &armnetwork.SubnetPropertiesFormat{
						AddressPrefix: to.Ptr("10.0.0.0/24"),
					},
				}},
			},
		}
		poller, err := networks.BeginCreateOrUpdate(l.ctx, networkGroup, "nodes", network, nil)
		response, err := poll(l.ctx, poller, err)
		return response.VirtualNetwork, err
	}, networkFacts)
	create := func(name, prefix string, group *armnetwork.SecurityGroup) func() (armnetwork.Subnet, error) {
		return func() (armnetwork.Subnet, error) {
			subnet := armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{
				AddressPrefix: to.Ptr(prefix), NetworkSecurityGroup: group,
			}}
			poller, err := subnets.BeginCreateOrUpdate(l.ctx, networkGroup, "nodes", name, subnet, nil)
			response, err := poll(l.ctx, poller, err)
			return response.Subnet, err
		}
	}
	describe := func(it armnetwork.Subnet) facts {
		return facts{
			"id":             it.ID,
			"prefix":         it.Properties.AddressPrefix,
			"security_group": it.Properties.NetworkSecurityGroup.ID,
		}
	}
	group := setUp(l.steps, func() (armnetwork.SecurityGroupsClientGetResponse, error) {
		return groups.Get(l.ctx, networkGroup, "nodes", nil)
	})
	reference := &armnetwork.SecurityGroup{ID: group.ID}
	runStep(l.steps, "create a subnet", create("ingress", "10.0.1.0/24", reference), describe)
	runStep(l.steps, "create an overlapping subnet", create("overlap", "10.0.1.128/25", nil), describe)
	runStep(l.steps, "get the network", func() (armnetwork.VirtualNetwork, error) {
		response, err := networks.Get(l.ctx, networkGroup, "nodes", nil)
		return response.VirtualNetwork, err
	}, networkFacts)
	runStep(l.steps, "list the subnets", func() (page, error) {
		pager := subnets.NewListPager(networkGroup, "nodes", nil)
		return readPages(l.ctx, pager, func(it armnetwork.SubnetsClientListResponse) []string {
			return namesOf(it.Value, func(it *armnetwork.Subnet) string { return *it.Name })
		})
	}, pageFacts)
	runStep(l.steps, "change the tags", func() (armnetwork.VirtualNetwork, error) {
		object := armnetwork.TagsObject{Tags: tags("production")}
		response, err := networks.UpdateTags(l.ctx, networkGroup, "nodes", object, nil)
		return response.VirtualNetwork, err
	}, func(it armnetwork.VirtualNetwork) facts { return facts{"tags": it.Tags} })
	runStep(l.steps, "delete a security group in use", func() (armnetwork.SecurityGroupsClientDeleteResponse, error) {
		poller, err := groups.BeginDelete(l.ctx, networkGroup, "nodes", nil)
		return poll(l.ctx, poller, err)
	}, nothing)
	runStep(l.steps, "get a missing subnet", func() (armnetwork.Subnet, error) {
		response, err := subnets.Get(l.ctx, networkGroup, "nodes", "missing", nil)
		return response.Subnet, err
	}, describe)
}

func runLoadBalancer(l *lifecycle, factory *armnetwork.ClientFactory) {
	addresses, balancers := factory.NewPublicIPAddressesClient(), factory.NewLoadBalancersClient()
	address := runStep(l.steps, "create a public address", func() (armnetwork.PublicIPAddress, error) {
		address := armnetwork.PublicIPAddress{
			Location: to.Ptr(location),
			SKU:      &armnetwork.PublicIPAddressSKU{Name: to.Ptr(armnetwork.PublicIPAddressSKUNameStandard)},
			Properties: &armnetwork.PublicIPAddressPropertiesFormat{
				PublicIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodStatic),
			},
		}
		poller, err := addresses.BeginCreateOrUpdate(l.ctx, networkGroup, "ingress", address, nil)
		response, err := poll(l.ctx, poller, err)
		return response.PublicIPAddress, err
	}, func(it armnetwork.PublicIPAddress) facts {
		return facts{
			"id":      it.ID,
			"method":  it.Properties.PublicIPAllocationMethod,
			"version": it.Properties.PublicIPAddressVersion,
			"address": it.Properties.IPAddress,
		}
	})
	runStep(l.steps, "create a load balancer", func() (armnetwork.LoadBalancer, error) {
		balancer := armnetwork.LoadBalancer{
			Location: to.Ptr(location),
			SKU:      &armnetwork.LoadBalancerSKU{Name: to.Ptr(armnetwork.LoadBalancerSKUNameStandard)},
			Properties: &armnetwork.LoadBalancerPropertiesFormat{
				FrontendIPConfigurations: []*armnetwork.FrontendIPConfiguration{{
					Name: to.Ptr("public"),
					Properties: &armnetwork.FrontendIPConfigurationPropertiesFormat{
						PublicIPAddress: &armnetwork.PublicIPAddress{ID: address.ID},
					},
				}},
				BackendAddressPools: []*armnetwork.BackendAddressPool{{Name: to.Ptr("nodes")}},
			},
		}
		poller, err := balancers.BeginCreateOrUpdate(l.ctx, networkGroup, "ingress", balancer, nil)
		response, err := poll(l.ctx, poller, err)
		return response.LoadBalancer, err
	}, func(it armnetwork.LoadBalancer) facts {
		return facts{
			"frontend": it.Properties.FrontendIPConfigurations[0].ID,
			"pool":     it.Properties.BackendAddressPools[0].ID,
			"state":    it.Properties.ProvisioningState,
		}
	})
	removeAddress := func() (armnetwork.PublicIPAddressesClientDeleteResponse, error) {
		poller, err := addresses.BeginDelete(l.ctx, networkGroup, "ingress", nil)
		return poll(l.ctx, poller, err)
	}
	runStep(l.steps, "delete an address in use", removeAddress, nothing)
	setUp(l.steps, func() (armnetwork.LoadBalancersClientDeleteResponse, error) {
		poller, err := balancers.BeginDelete(l.ctx, networkGroup, "ingress", nil)
		return poll(l.ctx, poller, err)
	})
	runStep(l.steps, "delete a free address", removeAddress, nothing)
}
