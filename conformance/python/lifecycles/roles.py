"""azure-mgmt-authorization."""

from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.msi import ManagedServiceIdentityClient
from lifecycle_steps import pages_of, resource_group

GROUP = "sdk-roles"
ASSIGNMENT = "5d1f1c43-5d29-4c9b-9a51-2b7c5c0f9a11"
CUSTOM_ROLE = "c05d8f6e-33c1-4a3f-8a2e-7d5c3d1f0b22"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"


def definition_facts(definition):
    return {
        "name": definition.name,
        "role_name": definition.role_name,
        "type": definition.role_type,
        "actions": definition.permissions[0].actions,
        "scopes": definition.assignable_scopes,
    }


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    scope = f"/subscriptions/{subscription}/resourceGroups/{GROUP}"
    client = AuthorizationManagementClient(credential, subscription)
    with resource_group(credential, subscription, GROUP):
        identities = ManagedServiceIdentityClient(credential, subscription).user_assigned_identities
        principal = identities.create_or_update(
            GROUP, "reader", {"location": "westeurope"}
        ).principal_id
        definitions, assignments = client.role_definitions, client.role_assignments
        reader = steps.run(
            "find a role by its name",
            lambda: next(iter(definitions.list(scope, filter="roleName eq 'Reader'"))),
            definition_facts,
        ).id

        def assignment_facts(assignment):
            return {
                "name": assignment.name,
                "scope": assignment.scope,
                "role": assignment.role_definition_id,
                "principal_type": assignment.principal_type,
                "is_principal": assignment.principal_id == principal,
                "description": assignment.description,
            }

        def assign(name, role=reader, to=principal, **more):
            body = {
                "role_definition_id": role,
                "principal_id": to,
                "principal_type": "ServicePrincipal",
                **more,
            }
            return assignments.create(scope, name, body)

        steps.run("assign a role", lambda: assign(ASSIGNMENT, description="reads"), assignment_facts)
        steps.run("assign a role again", lambda: assign("7f2b8c33-90f4-4f14-8d9a-0c3cf5b0aa33"))
        steps.run("get an assignment", lambda: assignments.get(scope, ASSIGNMENT), assignment_facts)
        steps.run(
            "assign a missing role",
            lambda: assign(
                "7f2b8c33-90f4-4f14-8d9a-0c3cf5b0aa34",
                role=reader.replace(READER, "00000000-1111-4222-8333-444444444444"),
            ),
        )
        steps.run(
            "list the assignments of a principal",
            lambda: assignments.list_for_scope(scope, filter=f"principalId eq '{principal}'"),
            lambda found: pages_of(found, lambda it: it.name),
        )
        steps.run(
            "delete an assignment", lambda: assignments.delete(scope, ASSIGNMENT), assignment_facts
        )
        steps.run("get a deleted assignment", lambda: assignments.get(scope, ASSIGNMENT))
        run_caller(steps, client)
        run_custom_role(steps, definitions, scope)


def run_caller(steps, client):
    steps.run(
        "list the permissions of the caller",
        lambda: client.permissions.list_for_resource_group(GROUP),
        lambda found: pages_of(found, lambda it: it.actions),
    )
    steps.run(
        "count the role assignments of the subscription",
        client.role_assignment_metrics.get_metrics_for_subscription,
        lambda metrics: {
            "subscription": metrics.subscription_id,
            "limit": metrics.role_assignments_limit,
            "is_sum": metrics.role_assignments_current_count + metrics.role_assignments_remaining_count
            == metrics.role_assignments_limit,
        },
    )


def run_custom_role(steps, definitions, scope):
    role = {
        "role_name": "SDK Operator",
        "description": "Starts machines",
        "role_type": "CustomRole",
        "permissions": [{"actions": ["Microsoft.Compute/virtualMachines/start/action"]}],
        "assignable_scopes": [scope],
    }
    steps.run(
        "create a custom role",
        lambda: definitions.create_or_update(scope, CUSTOM_ROLE, role),
        definition_facts,
    )
    steps.run(
        "create a custom role without scopes",
        lambda: definitions.create_or_update(
            scope, "c05d8f6e-33c1-4a3f-8a2e-7d5c3d1f0b23", {**role, "assignable_scopes": []}
        ),
    )
    steps.run(
        "list the custom roles",
        lambda: definitions.list(scope, filter="type eq 'CustomRole'"),
        lambda found: pages_of(found, lambda it: it.role_name),
    )
    steps.run(
        "delete a custom role", lambda: definitions.delete(scope, CUSTOM_ROLE), definition_facts
    )
    steps.run("get a deleted role", lambda: definitions.get(scope, CUSTOM_ROLE))
