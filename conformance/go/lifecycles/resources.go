package main

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v3"
)

const identityVersion = "2024-11-30"

func groupFacts(it armresources.ResourceGroup) facts {
	return facts{
		"id":       it.ID,
		"location": it.Location,
		"tags":     it.Tags,
		"state":    it.Properties.ProvisioningState,
	}
}

func runResources(l *lifecycle) error {
	const name = "sdk-resources"
	groups, err := armresources.NewResourceGroupsClient(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	resources, err := armresources.NewClient(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	put := func(name, location string, tags map[string]*string) (armresources.ResourceGroup, error) {
		group := armresources.ResourceGroup{Location: to.Ptr(location), Tags: tags}
		response, err := groups.CreateOrUpdate(l.ctx, name, group, nil)
		return response.ResourceGroup, err
	}
	exists := func() (bool, error) {
		response, err := groups.CheckExistence(l.ctx, name, nil)
		return response.Success, err
	}
	existsFacts := func(exists bool) facts { return facts{"exists": exists} }
	runStep(l.steps, "check a missing group", exists, existsFacts)
	runStep(l.steps, "create a group", func() (armresources.ResourceGroup, error) {
		return put(name, location, tags("test"))
	}, groupFacts)
	runStep(l.steps, "check a group", exists, existsFacts)
	runStep(l.steps, "move a group to another location", func() (armresources.ResourceGroup, error) {
		return put(name, "northeurope", nil)
	}, groupFacts)
	runStep(l.steps, "create a group with an invalid name", func() (armresources.ResourceGroup, error) {
		return put("ends-with-a-dot.", location, nil)
	}, groupFacts)
	runStep(l.steps, "change the tags", func() (armresources.ResourceGroup, error) {
		patch := armresources.ResourceGroupPatchable{Tags: tags("production")}
		response, err := groups.Update(l.ctx, name, patch, nil)
		return response.ResourceGroup, err
	}, groupFacts)
	groupNames := func(it armresources.ResourceGroupsClientListResponse) []string {
		return namesOf(it.Value, func(it *armresources.ResourceGroup) string { return *it.Name })
	}
	runStep(l.steps, "list the groups with a tag", func() (page, error) {
		filter := "tagName eq 'stage' and tagValue eq 'production'"
		options := &armresources.ResourceGroupsClientListOptions{Filter: to.Ptr(filter)}
		return readPages(l.ctx, groups.NewListPager(options), groupNames)
	}, pageFacts)
	runStep(l.steps, "list the groups, one per page", func() (page, error) {
		options := &armresources.ResourceGroupsClientListOptions{Top: to.Ptr(int32(1))}
		return readPages(l.ctx, groups.NewListPager(options), groupNames)
	}, func(it page) facts { return facts{"more_than_one_page": it.pages > 1} })
	runGenericResources(l, resources, name)
	runStep(l.steps, "delete a group", func() (armresources.ResourceGroupsClientDeleteResponse, error) {
		poller, err := groups.BeginDelete(l.ctx, name, nil)
		return poll(l.ctx, poller, err)
	}, nothing)
	runStep(l.steps, "get a deleted group", func() (armresources.ResourceGroupsClientGetResponse, error) {
		return groups.Get(l.ctx, name, nil)
	}, nothing)
	return nil
}

func runGenericResources(l *lifecycle, client *armresources.Client, group string) {
	id := fmt.Sprintf(
		"/subscriptions/%s/resourceGroups/%s/providers/Microsoft.ManagedIdentity/userAssignedIdentities/workload",
		l.Subscription, group,
	)
	runStep(l.steps, "create a resource by its ID", func() (armresources.ClientCreateOrUpdateByIDResponse, error) {
		resource := armresources.GenericResource{Location: to.Ptr(location)}
		poller, err := client.BeginCreateOrUpdateByID(l.ctx, id, identityVersion, resource, nil)
		return poll(l.ctx, poller, err)
	}, func(it armresources.ClientCreateOrUpdateByIDResponse) facts {
		return facts{"id": it.ID, "type": it.Type, "location": it.Location}
	})
	runStep(l.steps, "list the resources of the group", func() (page, error) {
		pager := client.NewListByResourceGroupPager(group, nil)
		return readPages(l.ctx, pager, func(it armresources.ClientListByResourceGroupResponse) []string {
			return namesOf(it.Value, func(it *armresources.GenericResourceExpanded) string { return *it.ID })
		})
	}, pageFacts)
	get := func(id, version string) func() (armresources.ClientGetByIDResponse, error) {
		return func() (armresources.ClientGetByIDResponse, error) {
			return client.GetByID(l.ctx, id, version, nil)
		}
	}
	runStep(l.steps, "get a missing resource", get(id+"-missing", identityVersion), nothing)
	runStep(l.steps, "get a resource with an invalid version", get(id, "newest"), nothing)
}
