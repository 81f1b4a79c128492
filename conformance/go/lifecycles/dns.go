package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
)

func runDNS(l *lifecycle) error {
	const group, zone = "sdk-dns", "sdk.example.org"
	factory, err := armdns.NewClientFactory(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	deleteGroup, err := l.createGroup(group)
	if err != nil {
		return err
	}
	zones, records := factory.NewZonesClient(), factory.NewRecordSetsClient()
	describeZone := func(it armdns.Zone) facts {
		return facts{
			"id":           it.ID,
			"location":     it.Location,
			"type":         it.Properties.ZoneType,
			"record_sets":  it.Properties.NumberOfRecordSets,
			"name_servers": len(it.Properties.NameServers),
		}
	}
	getZone := func() (armdns.Zone, error) {
		response, err := zones.Get(l.ctx, group, zone, nil)
		return response.Zone, err
	}
	runStep(l.steps, "create a zone", func() (armdns.Zone, error) {
		parameters := armdns.Zone{Location: to.Ptr("global")}
		response, err := zones.CreateOrUpdate(l.ctx, group, zone, parameters, nil)
		return response.Zone, err
	}, describeZone)
	runTextRecords(l, records, group, zone)
	runStep(l.steps, "get the zone", getZone, describeZone)
	remove := func(name string, kind armdns.RecordType) func() (armdns.RecordSetsClientDeleteResponse, error) {
		return func() (armdns.RecordSetsClientDeleteResponse, error) {
			return records.Delete(l.ctx, group, zone, name, kind, nil)
		}
	}
	runStep(l.steps, "delete the name servers", remove("@", armdns.RecordTypeNS), nothing)
	runStep(l.steps, "delete a record set", remove("challenge", armdns.RecordTypeTXT), nothing)
	runStep(l.steps, "get a deleted record set", func() (armdns.RecordSetsClientGetResponse, error) {
		return records.Get(l.ctx, group, zone, "challenge", armdns.RecordTypeTXT, nil)
	}, nothing)
	runStep(l.steps, "delete a zone", func() (armdns.ZonesClientDeleteResponse, error) {
		poller, err := zones.BeginDelete(l.ctx, group, zone, nil)
		return poll(l.ctx, poller, err)
	}, nothing)
	runStep(l.steps, "get a deleted zone", getZone, describeZone)
	return deleteGroup()
}

func runTextRecords(l *lifecycle, client *armdns.RecordSetsClient, group, zone string) {
	describe := func(it armdns.RecordSet) facts {
		values := [][]*string{}
		for _, record := range it.Properties.TxtRecords {
			values = append(values, record.Value)
		}
		return facts{
			"fqdn":     it.Properties.Fqdn,
			"ttl":      it.Properties.TTL,
			"values":   values,
			"metadata": it.Properties.Metadata,
		}
	}
	create := func(options *armdns.RecordSetsClientCreateOrUpdateOptions) func() (armdns.RecordSet, error) {
		return func() (armdns.RecordSet, error) {
			record := armdns.RecordSet{Properties: &armdns.RecordSetProperties{
				TTL:        to.Ptr(int64(60)),
				Metadata:   tags("test"),
				TxtRecords: []*armdns.TxtRecord{{Value: []*string{to.Ptr("first"), to.Ptr("second")}}},
			}}
			kind := armdns.RecordTypeTXT
			response, err := client.CreateOrUpdate(l.ctx, group, zone, "challenge", kind, record, options)
			return response.RecordSet, err
		}
	}
	ifMatch := func(etag *string) func() (armdns.RecordSet, error) {
		return create(&armdns.RecordSetsClientCreateOrUpdateOptions{IfMatch: etag})
	}
	record := runStep(l.steps, "create a record set", create(nil), describe)
	existing := &armdns.RecordSetsClientCreateOrUpdateOptions{IfNoneMatch: to.Ptr("*")}
	runStep(l.steps, "create an existing record set", create(existing), describe)
	old := to.Ptr("00000000-1111-4222-8333-444444444444")
	runStep(l.steps, "change a record set with an old ETag", ifMatch(old), describe)
	runStep(l.steps, "change a record set with its ETag", ifMatch(record.Etag), describe)
	name := func(it *armdns.RecordSet) string { return *it.Name }
	runStep(l.steps, "list the record sets, one per page", func() (page, error) {
		options := &armdns.RecordSetsClientListByDNSZoneOptions{Top: to.Ptr(int32(1))}
		pager := client.NewListByDNSZonePager(group, zone, options)
		return readPages(l.ctx, pager, func(it armdns.RecordSetsClientListByDNSZoneResponse) []string {
			return namesOf(it.Value, name)
		})
	}, pageFacts)
	runStep(l.steps, "list the record sets of a type", func() (page, error) {
		pager := client.NewListByTypePager(group, zone, armdns.RecordTypeTXT, nil)
		return readPages(l.ctx, pager, func(it armdns.RecordSetsClientListByTypeResponse) []string {
			return namesOf(it.Value, name)
		})
	}, pageFacts)
}
