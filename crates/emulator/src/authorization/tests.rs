use lanyard_vocabulary::{Component, RoleScope};
use proptest::prelude::*;

use super::*;

const CALLER: Uuid = uuid::uuid!("00000000-0000-4000-8000-0000000000ca");
const KEY_VAULT_READER: RoleDefinitionId =
    RoleDefinitionId(uuid::uuid!("21090545-7ca7-4776-b22c-e363652d74d2"));
const CONTRIBUTOR: RoleDefinitionId =
    RoleDefinitionId(uuid::uuid!("b24988ac-6180-42a0-ab88-20f7382dd24c"));

fn scope(text: &str) -> AccessScope {
    text.parse().unwrap()
}

fn assignment(name: u128, role: RoleDefinitionId, at: &str) -> RoleAssignment {
    RoleAssignment {
        name: Uuid::from_u128(name),
        scope: scope(at),
        role,
        principal_id: CALLER,
        principal_type: "ServicePrincipal".to_owned(),
        description: None,
        created_on: Timestamp::UNIX_EPOCH,
    }
}

fn authorization_with(assignments: &[(RoleDefinitionId, &str)]) -> Authorization {
    let mut authorization = Authorization::default();
    for (name, (role, at)) in (1..).zip(assignments) {
        authorization.assign(assignment(name, *role, at)).unwrap();
    }
    authorization
}

fn is_granted(authorization: &Authorization, plane: ActionPlane, action: &str, at: &str) -> bool {
    let at = scope(at);
    let request = AccessRequest { principal_id: CALLER, plane, action, scope: &at };
    authorization.decide_access(request).is_ok()
}

const MANAGED: &str = "/subscriptions/s/resourceGroups/m";
const NSG: &str = "/subscriptions/s/resourceGroups/n";
const VNET: &str = "/subscriptions/s/resourceGroups/v";
const DNS: &str = "/subscriptions/s/resourceGroups/d";
const VAULT: &str = "/subscriptions/s/resourceGroups/d/providers/Microsoft.KeyVault/vaults/kv";

fn authorization_of_component(component: Component) -> Authorization {
    let facts = component.definition();
    let scopes: Vec<_> = facts
        .scopes
        .iter()
        .map(|scope| match scope {
            RoleScope::ManagedResourceGroup => MANAGED,
            RoleScope::SecurityGroupResourceGroup => NSG,
            RoleScope::VnetResourceGroup => VNET,
            RoleScope::DnsResourceGroup => DNS,
            RoleScope::KeyVault => VAULT,
        })
        .map(|at| (facts.role, at))
        .collect();
    authorization_with(&scopes)
}

/// A proof call: the plane, the scope of the object, the path below it, the permission.
type ProofCallPermission = (ActionPlane, &'static str, &'static str, &'static str);

const SUBNET: &str = "providers/Microsoft.Network/virtualNetworks/vnet/subnets/default";
const SUBNET_READ: &str = "Microsoft.Network/virtualNetworks/subnets/read";
const VNET_READ: &str = "Microsoft.Network/virtualNetworks/read";
const NSG_READ: &str = "Microsoft.Network/networkSecurityGroups/read";
const SECRET_READ: &str = "Microsoft.KeyVault/vaults/secrets/getSecret/action";

fn granted_and_denied_proofs(component: Component) -> [ProofCallPermission; 2] {
    use ActionPlane::{Control, Data};
    let vnet = (Control, VNET, "providers/Microsoft.Network/virtualNetworks/vnet", VNET_READ);
    let subnet = (Control, VNET, SUBNET, SUBNET_READ);
    let nsg = (Control, NSG, "providers/Microsoft.Network/networkSecurityGroups/nsg", NSG_READ);
    let managed = |action| (Control, MANAGED, "", action);
    match component {
        Component::ControlPlaneOperator | Component::Network => [vnet, subnet],
        Component::NodePoolManagement => [managed("Microsoft.Compute/virtualMachines/read"), nsg],
        Component::CloudProvider => [managed("Microsoft.Network/loadBalancers/read"), vnet],
        Component::File => [managed("Microsoft.Storage/storageAccounts/read"), nsg],
        Component::Disk => [
            managed("Microsoft.Compute/disks/read"),
            managed("Microsoft.Network/networkInterfaces/read"),
        ],
        Component::Ingress => [subnet, managed("Microsoft.Network/privateDnsZones/A/read")],
        Component::ImageRegistry => [
            managed("Microsoft.Storage/storageAccounts/blobServices/containers/read"),
            managed("Microsoft.Storage/storageAccounts/fileServices/shares/read"),
        ],
        Component::Kms => [
            (Data, VAULT, "keys/etcd", "Microsoft.KeyVault/vaults/keys/read"),
            (Data, VAULT, "secrets/any", SECRET_READ),
        ],
    }
}

#[test]
fn every_component_is_granted_its_own_proof_call_only() {
    for component in Component::ALL {
        let authorization = authorization_of_component(component);
        for ((plane, base, child, action), expected) in
            granted_and_denied_proofs(component).into_iter().zip([true, false])
        {
            let at = if child.is_empty() { base.to_owned() } else { format!("{base}/{child}") };
            let case = format!("{component}: {action} at {at}");
            assert_eq!(is_granted(&authorization, plane, action, &at), expected, "{case}");
        }
    }
}

#[test]
fn no_component_reads_a_vault_secret_or_the_assignments_of_its_group() {
    for component in Component::ALL {
        let authorization = authorization_of_component(component);
        let secret = format!("{VAULT}/secrets/other");
        assert!(
            !is_granted(&authorization, ActionPlane::Data, SECRET_READ, &secret),
            "{component}"
        );
        let assignments = "Microsoft.Authorization/roleAssignments/read";
        assert!(
            !is_granted(&authorization, ActionPlane::Control, assignments, MANAGED),
            "{component}"
        );
    }
}

#[test]
fn reading_the_managed_group_itself_is_granted_to_disk_and_control_plane_operator_only() {
    for component in Component::ALL {
        let read = "Microsoft.Resources/subscriptions/resourceGroups/read";
        let expected = matches!(component, Component::Disk | Component::ControlPlaneOperator);
        assert_eq!(
            is_granted(&authorization_of_component(component), ActionPlane::Control, read, MANAGED),
            expected,
            "{component}"
        );
    }
}

#[test]
fn a_control_plane_right_gives_no_data_plane_right() {
    let contributor = authorization_with(&[(CONTRIBUTOR, "/subscriptions/s")]);
    assert!(is_granted(
        &contributor,
        ActionPlane::Control,
        "Microsoft.KeyVault/vaults/read",
        VAULT
    ));
    assert!(!is_granted(&contributor, ActionPlane::Data, SECRET_READ, VAULT));
}

#[test]
fn reading_certificate_private_key_needs_secret_permission() {
    let certificate_user = RoleDefinitionId(uuid::uuid!("db79e9a7-68ee-4b58-9aeb-b90e7c24fcba"));
    assert!(is_granted(
        &authorization_with(&[(certificate_user, VAULT)]),
        ActionPlane::Data,
        SECRET_READ,
        VAULT
    ));
    assert!(!is_granted(
        &authorization_with(&[(KEY_VAULT_READER, VAULT)]),
        ActionPlane::Data,
        SECRET_READ,
        VAULT
    ));
}

#[test]
fn a_right_on_one_secret_covers_its_versions_and_no_other_secret() {
    let secret = format!("{VAULT}/secrets/one");
    let reader = authorization_with(&[(RoleDefinitionId::KEY_VAULT_SECRETS_USER, &secret)]);
    let get = |name: &str| {
        is_granted(&reader, ActionPlane::Data, SECRET_READ, &format!("{VAULT}/secrets/{name}"))
    };
    assert!(get("one") && get("ONE") && get("one/0123"));
    assert!(!get("one0") && !get("two"));
}

#[test]
fn nearest_miss_names_the_missing_grant() {
    let at = scope(&format!("{NSG}/{}", "providers/Microsoft.Network/networkSecurityGroups/nsg"));
    let request = |action| AccessRequest {
        principal_id: CALLER,
        plane: ActionPlane::Control,
        action,
        scope: &at,
    };
    let cases = [
        (authorization_with(&[]), NSG_READ, "no role assignment"),
        (
            authorization_with(&[(CONTRIBUTOR, MANAGED)]),
            NSG_READ,
            "is assigned at `/subscriptions/s/resourceGroups/m`",
        ),
        (authorization_with(&[(RoleDefinitionId::FILE, NSG)]), NSG_READ, "lacks the action"),
        (
            authorization_with(&[(RoleDefinitionId::FILE, MANAGED)]),
            NSG_READ,
            "no assignment of the caller is at",
        ),
        (
            authorization_with(&[(CONTRIBUTOR, NSG)]),
            "Microsoft.Authorization/roleAssignments/write",
            "excludes the action by `Microsoft.Authorization/*/Write`",
        ),
    ];
    for (authorization, action, words) in cases {
        let explanation = authorization.explain_decision(request(action));
        assert!(!explanation.granted);
        assert!(explanation.reason.contains(words), "{}", explanation.reason);
    }
    let granting = authorization_with(&[(CONTRIBUTOR, "/subscriptions/s")])
        .explain_decision(request(NSG_READ));
    assert!(granting.granted);
    assert_eq!(granting.role.as_deref(), Some("Contributor"));
}

#[test]
fn same_assignment_is_created_once() {
    let mut authorization = authorization_with(&[(CONTRIBUTOR, MANAGED)]);
    assert_eq!(
        authorization.assign(assignment(1, CONTRIBUTOR, MANAGED)),
        Ok(AssignOutcome::Unchanged)
    );
    assert_eq!(
        authorization.assign(assignment(1, CONTRIBUTOR, VNET)),
        Err(AssignError::UpdateNotPermitted { name: Uuid::from_u128(1) })
    );
    assert_eq!(
        authorization.assign(assignment(2, CONTRIBUTOR, "/SUBSCRIPTIONS/s/resourcegroups/M")),
        Err(AssignError::AlreadyAssigned { existing: Uuid::from_u128(1) })
    );
    let unknown = RoleDefinitionId(Uuid::from_u128(7));
    assert_eq!(
        authorization.assign(assignment(3, unknown, MANAGED)),
        Err(AssignError::RoleUnknown { role: Uuid::from_u128(7) })
    );
    assert_eq!(authorization.iter().count(), 1);
}

#[test]
fn a_revoked_assignment_grants_nothing_and_the_others_stay() {
    let mut authorization = authorization_with(&[(CONTRIBUTOR, MANAGED), (CONTRIBUTOR, VNET)]);
    let removed = authorization.revoke(|assignment| assignment.scope == scope(MANAGED));
    assert_eq!(removed.len(), 1);
    assert!(!is_granted(&authorization, ActionPlane::Control, VNET_READ, MANAGED));
    assert!(is_granted(&authorization, ActionPlane::Control, VNET_READ, VNET));
}

#[test]
fn deserialized_assignments_give_the_same_decisions() {
    let before = authorization_of_component(Component::Kms);
    let text = serde_json::to_string(&before).unwrap();
    let after: Authorization = serde_json::from_str(&text).unwrap();
    assert!(is_granted(&after, ActionPlane::Data, "Microsoft.KeyVault/vaults/keys/read", VAULT));
    assert_eq!(serde_json::to_string(&after).unwrap(), text);
}

fn scope_segments() -> impl Strategy<Value = String> {
    prop::collection::vec("[abAB]", 0..4).prop_map(|path| {
        if path.is_empty() { "/".to_owned() } else { format!("/{}", path.join("/")) }
    })
}

proptest! {
    #[test]
    fn decision_uses_assignments_at_and_above_the_scope(
        held in prop::collection::vec((scope_segments(), any::<bool>()), 0..6), at in scope_segments(),
    ) {
        let roles = |reads: bool| if reads { CONTRIBUTOR } else { RoleDefinitionId::INGRESS };
        let mut authorization = Authorization::default();
        for (name, (place, reads)) in (1..).zip(&held) {
            // The same role at the same scope twice is rejected: it adds nothing.
            drop(authorization.assign(assignment(name, roles(*reads), place)));
        }
        let expected =
            held.iter().any(|(place, reads)| *reads && scope(place).contains(&scope(&at)));
        prop_assert_eq!(is_granted(&authorization, ActionPlane::Control, NSG_READ, &at), expected);
    }
}
