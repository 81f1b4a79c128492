package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/privatedns/armprivatedns"
)

const privateGroup, privateZone = "sdk-private-dns", "cluster.example.internal"

func runPrivateDNS(l *lifecycle) error {
	factory, err := armprivatedns.NewClientFactory(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	deleteGroup, err := l.createGroup(privateGroup)
	if err != nil {
		return err
	}
	zones := factory.NewPrivateZonesClient()
	describe := func(it armprivatedns.PrivateZone) facts {
		return facts{
			"id":          it.ID,
			"location":    it.Location,
			"record_sets": it.Properties.NumberOfRecordSets,
			"state":       it.Properties.ProvisioningState,
			"has_etag":    it.Etag != nil,
		}
	}
	create := func(options *armprivatedns.PrivateZonesClientBeginCreateOrUpdateOptions) func() (armprivatedns.PrivateZone, error) {
		return func() (armprivatedns.PrivateZone, error) {
			parameters := armprivatedns.PrivateZone{Location: to.Ptr("global")}
			poller, err := zones.BeginCreateOrUpdate(l.ctx, privateGroup, privateZone, parameters, options)
			response, err := poll(l.ctx, poller, err)
			return response.PrivateZone, err
		}
	}
	get := func() (armprivatedns.PrivateZone, error) {
		response, err := zones.Get(l.ctx, privateGroup, privateZone, nil)
		return response.PrivateZone, err
	}
	remove := func() (armprivatedns.PrivateZonesClientDeleteResponse, error) {
		poller, err := zones.BeginDelete(l.ctx, privateGroup, privateZone, nil)
		return poll(l.ctx, poller, err)
	}
	runStep(l.steps, "create a zone", create(nil), describe)
	existing := &armprivatedns.PrivateZonesClientBeginCreateOrUpdateOptions{IfNoneMatch: to.Ptr("*")}
	runStep(l.steps, "create an existing zone", create(existing), describe)
	links := factory.NewVirtualNetworkLinksClient()
	if err := runLinks(l, links); err != nil {
		return err
	}
	runAddressRecords(l, factory.NewRecordSetsClient(), func() { runStep(l.steps, "get the changed zone", get, describe) })
	runStep(l.steps, "delete a linked zone", remove, nothing)
	setUp(l.steps, func() (armprivatedns.VirtualNetworkLinksClientDeleteResponse, error) {
		poller, err := links.BeginDelete(l.ctx, privateGroup, privateZone, "nodes", nil)
		return poll(l.ctx, poller, err)
	})
	runStep(l.steps, "delete a zone", remove, nothing)
	runStep(l.steps, "get a deleted zone", get, describe)
	return deleteGroup()
}

func runLinks(l *lifecycle, client *armprivatedns.VirtualNetworkLinksClient) error {
	networks, err := armnetwork.NewVirtualNetworksClient(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	network := setUp(l.steps, func() (armnetwork.VirtualNetworksClientCreateOrUpdateResponse, error) {
		parameters := armnetwork.VirtualNetwork{
			Location: to.Ptr(location),
			Properties: &armnetwork.VirtualNetworkPropertiesFormat{
				AddressSpace: &armnetwork.AddressSpace{
					AddressPrefixes: []*string{to.Ptr("10.0.0.0/16")},
				},
			},
		}
		poller, err := networks.BeginCreateOrUpdate(l.ctx, privateGroup, "nodes", parameters, nil)
		return poll(l.ctx, poller, err)
	})
	link := func(name string) func() (armprivatedns.VirtualNetworkLink, error) {
		return func() (armprivatedns.VirtualNetworkLink, error) {
			parameters := armprivatedns.VirtualNetworkLink{
				Location: to.Ptr("global"),
				Properties: &armprivatedns.VirtualNetworkLinkProperties{
					VirtualNetwork:      &armprivatedns.SubResource{ID: network.ID},
					RegistrationEnabled: to.Ptr(false),
				},
			}
			poller, err := client.BeginCreateOrUpdate(l.ctx, privateGroup, privateZone, name, parameters, nil)
			response, err := poll(l.ctx, poller, err)
			return response.VirtualNetworkLink, err
		}
	}
	describe := func(it armprivatedns.VirtualNetworkLink) facts {
		return facts{
			"id":           it.ID,
			"network":      it.Properties.VirtualNetwork.ID,
			"registration": it.Properties.RegistrationEnabled,
			"link_state":   it.Properties.VirtualNetworkLinkState,
			"state":        it.Properties.ProvisioningState,
		}
	}
	runStep(l.steps, "link a network", link("nodes"), describe)
	runStep(l.steps, "link a network again", link("again"), describe)
	return nil
}

func runAddressRecords(l *lifecycle, client *armprivatedns.RecordSetsClient, readZone func()) {
	kind := armprivatedns.RecordTypeA
	describe := func(it armprivatedns.RecordSet) facts {
		return facts{
			"fqdn": it.Properties.Fqdn,
			"ttl":  it.Properties.TTL,
			"addresses": namesOf(it.Properties.ARecords, func(it *armprivatedns.ARecord) string {
				return *it.IPv4Address
			}),
			"type": it.Type,
		}
	}
	get := func(name string) func() (armprivatedns.RecordSet, error) {
		return func() (armprivatedns.RecordSet, error) {
			response, err := client.Get(l.ctx, privateGroup, privateZone, kind, name, nil)
			return response.RecordSet, err
		}
	}
	runStep(l.steps, "create a record set", func() (armprivatedns.RecordSet, error) {
		record := armprivatedns.RecordSet{Properties: &armprivatedns.RecordSetProperties{
			TTL: to.Ptr(int64(300)), ARecords: []*armprivatedns.ARecord{{IPv4Address: to.Ptr("10.0.0.4")}},
		}}
		response, err := client.CreateOrUpdate(l.ctx, privateGroup, privateZone, kind, "api", record, nil)
		return response.RecordSet, err
	}, describe)
	runStep(l.steps, "get a record set", get("api"), describe)
	list := func(options *armprivatedns.RecordSetsClientListOptions) func() (page, error) {
		return func() (page, error) {
			pager := client.NewListPager(privateGroup, privateZone, options)
			return readPages(l.ctx, pager, func(it armprivatedns.RecordSetsClientListResponse) []string {
				return namesOf(it.Value, func(it *armprivatedns.RecordSet) string { return *it.Name })
			})
		}
	}
	runStep(l.steps, "list the record sets", list(nil), pageFacts)
	one := &armprivatedns.RecordSetsClientListOptions{Top: to.Ptr(int32(1))}
	runStep(l.steps, "list the record sets, one per page", list(one), pageFacts)
	readZone()
	runStep(l.steps, "get a missing record set", get("missing"), describe)
	runStep(l.steps, "delete a record set", func() (armprivatedns.RecordSetsClientDeleteResponse, error) {
		return client.Delete(l.ctx, privateGroup, privateZone, kind, "api", nil)
	}, nothing)
}
