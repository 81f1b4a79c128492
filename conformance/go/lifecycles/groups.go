package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v3"
)

const location = "westeurope"

// createGroup creates a resource group, and returns the function that deletes it.
func (l *lifecycle) createGroup(name string) (func() error, error) {
	client, err := armresources.NewResourceGroupsClient(l.Subscription, l.credential, nil)
	if err != nil {
		return nil, err
	}
	group := armresources.ResourceGroup{Location: to.Ptr(location)}
	if _, err := client.CreateOrUpdate(l.ctx, name, group, nil); err != nil {
		return nil, err
	}
	return func() error {
		poller, err := client.BeginDelete(l.ctx, name, nil)
		_, err = poll(l.ctx, poller, err)
		return err
	}, nil
}
