package main

import (
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"lanyard.dev/conformance/internal/program"
)

const (
	reader         = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
	assignmentName = "5d1f1c43-5d29-4c9b-9a51-2b7c5c0f9a11"
	customRole     = "c05d8f6e-33c1-4a3f-8a2e-7d5c3d1f0b22"
)

func definitionFacts(it armauthorization.RoleDefinition) facts {
	return facts{
		"name":      it.Name,
		"role_name": it.Properties.RoleName,
		"type":      it.Properties.RoleType,
		"actions":   it.Properties.Permissions[0].Actions,
		"scopes":    it.Properties.AssignableScopes,
	}
}

func runRoles(l *lifecycle) error {
	const group = "sdk-roles"
	factory, err := armauthorization.NewClientFactory(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	identities, err := armmsi.NewUserAssignedIdentitiesClient(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	deleteGroup, err := l.createGroup(group)
	if err != nil {
		return err
	}
	identity, err := identities.CreateOrUpdate(
		l.ctx, group, "reader", armmsi.Identity{Location: to.Ptr(location)}, nil,
	)
	if err != nil {
		return err
	}
	scope := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s", l.Subscription, group)
	definitions := factory.NewRoleDefinitionsClient()
	role := runStep(l.steps, "find a role by its name", func() (armauthorization.RoleDefinition, error) {
		options := &armauthorization.RoleDefinitionsClientListOptions{Filter: to.Ptr("roleName eq 'Reader'")}
		page, err := definitions.NewListPager(scope, options).NextPage(l.ctx)
		if err != nil {
			return armauthorization.RoleDefinition{}, err
		}
		if len(page.Value) != 1 {
			return armauthorization.RoleDefinition{}, fmt.Errorf("%d roles are named Reader", len(page.Value))
		}
		return *page.Value[0], nil
	}, definitionFacts)
	runAssignments(l, factory.NewRoleAssignmentsClient(), scope, program.Value(role.ID), program.Value(identity.Properties.PrincipalID))
	runCustomRole(l, definitions, scope)
	return deleteGroup()
}

func runAssignments(
	l *lifecycle, client *armauthorization.RoleAssignmentsClient, scope, role, principal string,
) {
	describe := func(it armauthorization.RoleAssignment) facts {
		return facts{
			"name":           it.Name,
			"scope":          it.Properties.Scope,
			"role":           it.Properties.RoleDefinitionID,
			"principal_type": it.Properties.PrincipalType,
			"is_principal":   program.Value(it.Properties.PrincipalID) == principal,
			"description":    it.Properties.Description,
		}
	}
	assign := func(name, role, description string) func() (armauthorization.RoleAssignment, error) {
		return func() (armauthorization.RoleAssignment, error) {
			parameters := armauthorization.RoleAssignmentCreateParameters{
				Properties: &armauthorization.RoleAssignmentProperties{
					RoleDefinitionID: to.Ptr(role),
					PrincipalID:      to.Ptr(principal),
					PrincipalType:    to.Ptr(armauthorization.PrincipalTypeServicePrincipal),
					Description:      to.Ptr(description),
				},
			}
			response, err := client.Create(l.ctx, scope, name, parameters, nil)
			return response.RoleAssignment, err
		}
	}
	get := func() (armauthorization.RoleAssignment, error) {
		response, err := client.Get(l.ctx, scope, assignmentName, nil)
		return response.RoleAssignment, err
	}
	const second = "7f2b8c33-90f4-4f14-8d9a-0c3cf5b0aa33"
	missing := strings.Replace(role, reader, "00000000-1111-4222-8333-444444444444", 1)
	runStep(l.steps, "assign a role", assign(assignmentName, role, "reads"), describe)
	runStep(l.steps, "assign a role again", assign(second, role, ""), describe)
	runStep(l.steps, "get an assignment", get, describe)
	runStep(l.steps, "assign a missing role", assign(second, missing, ""), describe)
	runStep(l.steps, "list the assignments of a principal", func() (page, error) {
		// This module does not encode the filter.
		filter := fmt.Sprintf("principalId%%20eq%%20'%s'", principal)
		pager := client.NewListForScopePager(
			scope, &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: &filter},
		)
		return readPages(l.ctx, pager, func(it armauthorization.RoleAssignmentsClientListForScopeResponse) []string {
			return namesOf(it.Value, func(it *armauthorization.RoleAssignment) string { return *it.Name })
		})
	}, pageFacts)
	runStep(l.steps, "delete an assignment", func() (armauthorization.RoleAssignment, error) {
		response, err := client.Delete(l.ctx, scope, assignmentName, nil)
		return response.RoleAssignment, err
	}, describe)
	runStep(l.steps, "get a deleted assignment", get, describe)
}

func runCustomRole(l *lifecycle, client *armauthorization.RoleDefinitionsClient, scope string) {
	create := func(name string, scopes ...*string) func() (armauthorization.RoleDefinition, error) {
		return func() (armauthorization.RoleDefinition, error) {
			start := to.Ptr("Microsoft.Compute/virtualMachines/start/action")
			definition := armauthorization.RoleDefinition{
				Properties: &armauthorization.RoleDefinitionProperties{
					RoleName:         to.Ptr("SDK Operator"),
					RoleType:         to.Ptr("CustomRole"),
					Permissions:      []*armauthorization.Permission{{Actions: []*string{start}}},
					AssignableScopes: scopes,
				},
			}
			response, err := client.CreateOrUpdate(l.ctx, scope, name, definition, nil)
			return response.RoleDefinition, err
		}
	}
	runStep(l.steps, "create a custom role", create(customRole, &scope), definitionFacts)
	runStep(l.steps, "create a custom role without scopes",
		create("c05d8f6e-33c1-4a3f-8a2e-7d5c3d1f0b23"), definitionFacts)
	runStep(l.steps, "list the custom roles", func() (page, error) {
		options := &armauthorization.RoleDefinitionsClientListOptions{Filter: to.Ptr("type eq 'CustomRole'")}
		return readPages(l.ctx, client.NewListPager(scope, options), func(it armauthorization.RoleDefinitionsClientListResponse) []string {
			return namesOf(it.Value, func(it *armauthorization.RoleDefinition) string {
				return *it.Properties.RoleName
			})
		})
	}, pageFacts)
	runStep(l.steps, "delete a custom role", func() (armauthorization.RoleDefinition, error) {
		response, err := client.Delete(l.ctx, scope, customRole, nil)
		return response.RoleDefinition, err
	}, definitionFacts)
	runStep(l.steps, "get a deleted role", func() (armauthorization.RoleDefinition, error) {
		response, err := client.Get(l.ctx, scope, customRole, nil)
		return response.RoleDefinition, err
	}, definitionFacts)
}
