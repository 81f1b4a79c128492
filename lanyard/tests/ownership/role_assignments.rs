//! Role assignments that lanyard finds by their principals and not by its journal.

use std::time::Duration;

use lanyard_azure::{ArmBody as _, ManagedIdentityBody, RoleAssignmentBody};
use lanyard_changes::{AzureAccess, AzureGraph, read_live};
use lanyard_clock::Clock as _;
use lanyard_infra::{
    delete_orphaned_assignment, find_orphaned_assignments, find_other_role_assignments,
};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::contested_resources::desired_resources;
use crate::two_clients::TwoClients;

/// Object ids that the directory does not have.
const MISSING: Uuid = Uuid::from_u128(91);
const OTHER_MISSING: Uuid = Uuid::from_u128(92);
/// The name of the role assignment.
const NAME: Uuid = Uuid::from_u128(90);

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
}

/// A role assignment on the subscription.
fn assignment_id(subscription: &SubscriptionId) -> ArmResourceId {
    RoleAssignmentBody::id(&ArmResourceId::subscription_scope(subscription), NAME)
}

fn assignment_body(principal: Uuid) -> Value {
    let reader = "/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7";
    json!({ "properties": {
        "roleDefinitionId": reader, "principalId": principal, "principalType": "ServicePrincipal"
    } })
}

#[test]
fn orphaned_assignment_that_another_client_created_again_stays() {
    block_on(async {
        let clients = TwoClients::new();
        let (arm, graph) = clients.lanyard_clients();
        let subscription = "sub".parse().unwrap();
        let id = assignment_id(&subscription);
        let scope = ArmResourceId::subscription_scope(&subscription);
        for (created_again, is_deleted) in [
            (None, true),
            (Some((Duration::from_mins(1), MISSING)), false),
            (Some((Duration::ZERO, OTHER_MISSING)), false),
        ] {
            clients.write("PUT", &id, &assignment_body(MISSING));
            let (caller, age) = (clients.own_object(), (clients.clock().now(), Duration::ZERO));
            let search = find_orphaned_assignments(&arm, &graph, &scope, caller, age);
            let found = clients.while_time_advances(search).await.unwrap();
            let orphan = found.iter().find(|it| it.id == id).unwrap();
            if let Some((pause, principal)) = created_again {
                clients.write("DELETE", &id, &Value::Null);
                clients.clock().advance(pause);
                clients.write("PUT", &id, &assignment_body(principal));
            }
            let before = clients.read(&id);
            assert!(before.is_some(), "{created_again:?}");
            let deletion = delete_orphaned_assignment(&arm, orphan);
            let deleted = clients.while_time_advances(deletion).await.unwrap();
            assert_eq!(deleted, is_deleted, "{created_again:?}");
            let expected = before.filter(|_| !is_deleted);
            assert_eq!(clients.read(&id), expected, "{created_again:?}");
            if !is_deleted {
                clients.write("DELETE", &id, &Value::Null);
            }
        }
    });
}

#[test]
fn role_assignment_of_an_identity_of_another_client_is_left_out() {
    block_on(async {
        let clients = TwoClients::new();
        let (arm, directory) = clients.lanyard_clients();
        let subscription = "sub".parse().unwrap();
        let graph = AzureGraph::new(desired_resources(&subscription)).unwrap();
        let is_identity = |id: &ArmResourceId| id.has_type(ManagedIdentityBody::RESOURCE_TYPE);
        let mut ids = graph.resources().iter().filter_map(|it| it.id.arm());
        let identity = ids.find(|id| is_identity(id)).unwrap().clone();
        let put = |tags: &Value| {
            clients.write("PUT", &identity, &json!({ "location": "eastus", "tags": tags }));
        };
        let foreign = json!({ "owner": "another team" });
        put(&foreign);
        let principal = clients.read(&identity).unwrap()["properties"]["principalId"].take();
        let principal = principal.as_str().unwrap().parse().unwrap();
        clients.write("PUT", &assignment_id(&subscription), &assignment_body(principal));
        let own = json!({ "lanyard-cluster": "harbour", "lanyard-infra-id": "harbour-x7k2p" });
        for (tags, expected) in [(foreign, Vec::new()), (own, vec![NAME.to_string()])] {
            put(&tags);
            let access = AzureAccess::new(arm.clone(), directory.clone());
            let live = read_live(&access, &graph);
            let live = clients.while_time_advances(live).await.unwrap();
            let tags = clients.tags();
            let search = find_other_role_assignments(&arm, &subscription, &graph, &live, tags);
            let found = clients.while_time_advances(search).await.unwrap();
            let names: Vec<_> = found.into_iter().map(|it| it.name).collect();
            assert_eq!(names, expected);
        }
    });
}
