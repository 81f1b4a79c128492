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
    RoleAssignment::new(Uuid::from_u128(name), scope(at), role, CALLER, Timestamp::UNIX_EPOCH)
}

fn authorization_with(assignments: &[(RoleDefinitionId, &str)]) -> Authorization {
    let mut authorization = Authorization::default();
    for (name, (role, at)) in (1..).zip(assignments) {
        authorization.assign(assignment(name, *role, at)).unwrap();
    }
    authorization
}

fn request<'a>(plane: ActionPlane, action: &'a str, scope: &'a AccessScope) -> AccessRequest<'a> {
    AccessRequest {
        principal_ids: &[CALLER],
        plane,
        action,
        scope,
        management_groups: Box::leak(Box::default()),
        role_assignment: None,
        now: Timestamp::UNIX_EPOCH,
    }
}

fn is_granted(authorization: &Authorization, plane: ActionPlane, action: &str, at: &str) -> bool {
    let at = scope(at);
    let granted = authorization.is_granted(request(plane, action, &at));
    assert_eq!(authorization.decide_access(request(plane, action, &at)).is_ok(), granted);
    granted
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(seconds)
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
    let request = |action| request(ActionPlane::Control, action, &at);
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
    assert_eq!(authorization.assignment_count(), 1);
}

#[test]
fn a_revoked_assignment_grants_nothing_and_the_others_stay() {
    let mut authorization = authorization_with(&[(CONTRIBUTOR, MANAGED), (CONTRIBUTOR, VNET)]);
    let name = Uuid::from_u128(1);
    let removed = authorization.revoke(name, after(0), PropagationDelay::default());
    assert_eq!(removed.map(|removed| removed.scope), Some(scope(MANAGED)));
    assert_eq!(authorization.revoke(name, after(0), PropagationDelay::default()), None);
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

#[test]
fn assignment_of_a_group_counts_for_its_members() {
    let authorization = authorization_with(&[(CONTRIBUTOR, MANAGED)]);
    let member = Uuid::from_u128(0xfe);
    let at = scope(MANAGED);
    let groups = [member, Uuid::from_u128(0xfd), CALLER];
    let of_member = AccessRequest {
        principal_ids: &groups,
        ..request(ActionPlane::Control, "Microsoft.Network/virtualNetworks/read", &at)
    };
    let explained = authorization.explain_decision(of_member);
    assert!(explained.granted);
    assert_eq!(explained.group, Some(CALLER.to_string()));
    assert!(explained.reason.contains("`Contributor` of the group"), "{}", explained.reason);
    let alone = AccessRequest { principal_ids: &groups[..2], ..of_member };
    assert!(!authorization.is_granted(alone));
    let elsewhere = scope(VNET);
    let explained =
        authorization.explain_decision(AccessRequest { scope: &elsewhere, ..of_member });
    assert_eq!(explained.group, Some(CALLER.to_string()));
    assert!(explained.reason.contains("but is assigned at"), "{}", explained.reason);
}

#[test]
fn assignment_at_a_management_group_or_at_the_root_is_inherited() {
    let groups = [AccessScope::management_group("Team"), AccessScope::management_group("Root")];
    let at = scope(MANAGED);
    let read = AccessRequest {
        management_groups: &groups.to_vec().into(),
        ..request(ActionPlane::Control, "Microsoft.Network/virtualNetworks/read", &at)
    };
    for place in [
        "/",
        "/providers/Microsoft.Management/managementGroups/root",
        "/providers/microsoft.management/managementgroups/TEAM",
    ] {
        let authorization = authorization_with(&[(CONTRIBUTOR, place)]);
        assert!(authorization.is_granted(read), "{place}");
        assert!(authorization.has_assignment_around(&[CALLER], &at, &groups), "{place}");
    }
    let other = "/providers/Microsoft.Management/managementGroups/other";
    let authorization = authorization_with(&[(CONTRIBUTOR, other)]);
    assert!(!authorization.is_granted(read));
    assert!(!authorization.has_assignment_around(&[CALLER], &at, &groups));
}

#[test]
fn assignment_takes_effect_after_the_delay_of_its_plane() {
    let mut authorization = Authorization::default();
    let delay = PropagationDelay { control_plane_seconds: 60, data_plane_seconds: 300 };
    // The role grants both planes.
    let role = RoleDefinitionId(uuid::uuid!("00482a5a-887f-4fb3-b363-3b7fe8e74483"));
    authorization.assign(RoleAssignment { delay, ..assignment(1, role, VAULT) }).unwrap();
    let at = scope(VAULT);
    let granted = |authorization: &Authorization, plane, seconds| {
        let action = match plane {
            ActionPlane::Control => "Microsoft.KeyVault/vaults/read",
            ActionPlane::Data => SECRET_READ,
        };
        authorization
            .is_granted(AccessRequest { now: after(seconds), ..request(plane, action, &at) })
    };
    for (plane, from) in [(ActionPlane::Control, 60), (ActionPlane::Data, 300)] {
        assert!(!granted(&authorization, plane, from - 1), "{plane:?}");
        assert!(granted(&authorization, plane, from), "{plane:?}");
    }
    let early = AccessRequest { now: after(10), ..request(ActionPlane::Data, SECRET_READ, &at) };
    let explained = authorization.explain_decision(early);
    assert!(explained.reason.contains("from 1970-01-01T00:05:00Z on"), "{}", explained.reason);

    // The deletion, too, and a changed setting does not matter.
    let later = PropagationDelay { control_plane_seconds: 0, data_plane_seconds: 100 };
    assert!(authorization.revoke(Uuid::from_u128(1), after(1_000), later).is_some());
    assert_eq!(authorization.assignment_count(), 0);
    assert!(!granted(&authorization, ActionPlane::Control, 1_000));
    assert!(granted(&authorization, ActionPlane::Data, 1_099));
    assert!(!granted(&authorization, ActionPlane::Data, 1_100));
    let stored = serde_json::to_string(&authorization).unwrap();
    let loaded: Authorization = serde_json::from_str(&stored).unwrap();
    assert!(granted(&loaded, ActionPlane::Data, 1_099));
}

#[test]
fn assignment_that_is_deleted_before_it_takes_effect_grants_nothing() {
    let mut authorization = Authorization::default();
    let delay = PropagationDelay { control_plane_seconds: 0, data_plane_seconds: 300 };
    let at = scope(VAULT);
    let role = RoleDefinitionId::KEY_VAULT_SECRETS_USER;
    authorization.assign(RoleAssignment { delay, ..assignment(1, role, VAULT) }).unwrap();
    let earlier = PropagationDelay { control_plane_seconds: 0, data_plane_seconds: 100 };
    authorization.revoke(Uuid::from_u128(1), after(100), earlier);
    let read = request(ActionPlane::Data, SECRET_READ, &at);
    let granted = |second| authorization.is_granted(AccessRequest { now: after(second), ..read });
    assert!(!(0..1_000).any(granted));
    assert_eq!(authorization.revoked.len(), 1);
    // The next deletion removes those that have taken effect.
    authorization.assign(assignment(2, role, VAULT)).unwrap();
    authorization.revoke(Uuid::from_u128(2), after(5_000), PropagationDelay::default());
    assert_eq!(authorization.revoked.len(), 0);
}

#[test]
fn stored_deny_assignments_of_earlier_revisions_are_ignored() {
    let authorization = authorization_with(&[(RoleDefinitionId::OWNER, MANAGED)]);
    let mut stored = serde_json::to_value(&authorization).unwrap();
    stored["deny_assignments"] = serde_json::json!({
        "00000000-0000-4000-8000-00000000000d": { "scope": MANAGED, "display_name": "locked" },
    });
    let loaded: Authorization = serde_json::from_value(stored).unwrap();
    assert!(is_granted(&loaded, ActionPlane::Control, "Microsoft.Compute/disks/delete", MANAGED));
}

#[test]
fn conditional_assignment_grants_only_what_its_condition_allows() {
    let administrator = RoleDefinitionId(uuid::uuid!("f58310d9-a9f6-439a-9e8d-f62e7b41a168"));
    let text = "@Request[Microsoft.Authorization/roleAssignments:RoleDefinitionId] \
                ForAnyOfAnyValues:GuidEquals {4633458b-17de-408a-b874-0445c86b69e6}";
    let condition = Some(Condition::parse("2.0", text).unwrap());
    let mut authorization = Authorization::default();
    authorization
        .assign(RoleAssignment { condition, ..assignment(1, administrator, MANAGED) })
        .unwrap();
    let at = scope(MANAGED);
    let write = request(ActionPlane::Control, "Microsoft.Authorization/roleAssignments/write", &at);
    let given = assignment(9, RoleDefinitionId::KEY_VAULT_SECRETS_USER, MANAGED);
    let attributes = |given| AccessRequest {
        role_assignment: Some(RoleAssignment::attributes(given, AttributeSource::Request)),
        ..write
    };
    assert!(authorization.is_granted(attributes(&given)));
    let other = assignment(9, CONTRIBUTOR, MANAGED);
    assert!(!authorization.is_granted(attributes(&other)));
    assert!(!authorization.is_granted(write), "the permission is not unrestricted");
    let explained = authorization.explain_decision(attributes(&other));
    assert!(explained.reason.contains("has a condition that is not met"), "{}", explained.reason);
}

#[test]
fn custom_role_grants_its_permissions_until_it_is_deleted() {
    let tenant: lanyard_vocabulary::EntraTenantId =
        "11111111-0000-4000-8000-000000000001".parse().unwrap();
    let id = RoleDefinitionId(Uuid::from_u128(0xc0));
    let role = CustomRole {
        definition: RoleDefinition {
            id,
            name: "Secret reader".to_owned(),
            permissions: vec![PermissionBlock {
                data_actions: vec![ActionPattern::compile("Microsoft.KeyVault/vaults/secrets/*")],
                not_data_actions: vec![ActionPattern::compile("*/setSecret/action")],
                ..PermissionBlock::default()
            }],
        },
        tenant: tenant.clone(),
        description: None,
        assignable_scopes: vec![scope("/subscriptions/s")],
        created_on: after(0),
        created_by: CALLER,
        updated_on: after(0),
        updated_by: CALLER,
    };
    let mut authorization = Authorization::default();
    authorization.put_custom_role(role.clone()).unwrap();
    authorization.assign(assignment(1, id, VAULT)).unwrap();
    assert!(authorization.is_role_assigned(id));
    assert!(is_granted(&authorization, ActionPlane::Data, SECRET_READ, VAULT));
    let set = "Microsoft.KeyVault/vaults/secrets/setSecret/action";
    assert!(!is_granted(&authorization, ActionPlane::Data, set, VAULT));
    let at = scope(VAULT);
    let explained = authorization.explain_decision(request(ActionPlane::Data, set, &at));
    assert_eq!(explained.role.as_deref(), Some("Secret reader"));
    assert!(explained.reason.contains("excludes the action"), "{}", explained.reason);

    let renamed = |name: &str, id: u128| {
        let mut role = role.clone();
        role.definition.id = RoleDefinitionId(Uuid::from_u128(id));
        name.clone_into(&mut role.definition.name);
        role
    };
    for taken in ["secret READER", "Owner"] {
        let found = authorization.put_custom_role(renamed(taken, 0xc1));
        assert_eq!(found, Err(CustomRoleError::SameName), "{taken}");
    }
    assert_eq!(authorization.put_custom_role(renamed("Secret reader", 0xc0)), Ok(()));
    assert_eq!(authorization.role_with_name(Some(&tenant), "Secret Reader"), Some(id));
    authorization.remove_custom_role(id);
    assert!(!is_granted(&authorization, ActionPlane::Data, SECRET_READ, VAULT));
}

#[test]
fn subscription_and_management_group_have_their_limits() {
    let mut authorization = Authorization::default();
    for name in 0..4_000_u128 {
        let at = format!("/subscriptions/s/resourceGroups/g{name}");
        authorization.assign(assignment(name, CONTRIBUTOR, &at)).unwrap();
    }
    let more = |authorization: &mut Authorization, at: &str| {
        authorization.assign(assignment(9_999, CONTRIBUTOR, at))
    };
    let limit = Err(AssignError::LimitExceeded { limit: 4_000 });
    assert_eq!(more(&mut authorization, "/subscriptions/S"), limit);
    assert_eq!(authorization.count_in_subscription("S"), 4_000);
    authorization.revoke(Uuid::from_u128(7), after(0), PropagationDelay::default());
    assert_eq!(more(&mut authorization, "/subscriptions/S"), Ok(AssignOutcome::Created));
    let group = "/providers/Microsoft.Management/managementGroups/g";
    for name in 10_000..10_500_u128 {
        let principal_id = Uuid::from_u128(name);
        let assignment = RoleAssignment { principal_id, ..assignment(name, CONTRIBUTOR, group) };
        authorization.assign(assignment).unwrap();
    }
    let found = authorization.assign(assignment(10_500, CONTRIBUTOR, group));
    assert_eq!(found, Err(AssignError::LimitExceeded { limit: 500 }));
    authorization.limits.at_management_group = 501;
    let found = authorization.assign(assignment(10_500, CONTRIBUTOR, group));
    assert_eq!(found, Ok(AssignOutcome::Created));
}

/// The cost of single operations must not depend on the number of assignments. Far more than linear cost
/// would exceed the time limit of tests.
#[test]
fn hundred_thousand_assignments_are_stored_found_and_deleted() {
    let mut authorization = Authorization::default();
    let place = |n: u128| format!("/subscriptions/s{}/resourceGroups/g{n}", n % 50);
    let principal = |n: u128| Uuid::from_u128(0x1_0000 + n % 1_000);
    for n in 0..100_000_u128 {
        let given = assignment(n, CONTRIBUTOR, &place(n));
        authorization.assign(RoleAssignment { principal_id: principal(n), ..given }).unwrap();
    }
    let action = "Microsoft.Network/virtualNetworks/read";
    for n in (0..100_000_u128).step_by(10) {
        let at = scope(&place(n));
        let ids = [principal(n)];
        let wanted = request(ActionPlane::Control, action, &at);
        assert!(authorization.is_granted(AccessRequest { principal_ids: &ids, ..wanted }));
        assert!(!authorization.is_granted(wanted));
        assert_eq!(authorization.assignment(Uuid::from_u128(n)).unwrap().scope, at);
        assert_eq!(authorization.at(&at).count(), 1);
        let removed =
            authorization.revoke(Uuid::from_u128(n), after(0), PropagationDelay::default());
        assert!(removed.is_some());
    }
    assert_eq!(authorization.assignment_count(), 90_000);
    assert_eq!(authorization.of_principal(principal(1)).count(), 100);
    assert_eq!(authorization.below(&scope("/subscriptions/s1")).count(), 2_000);
    authorization.remove_within(&scope("/subscriptions/s1"));
    assert_eq!(authorization.assignment_count(), 88_000);
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
