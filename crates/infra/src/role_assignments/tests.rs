use lanyard_vocabulary::{ArmResourceId, Component, InfraId, RoleDefinitionId};

use super::*;

const ALL_SCOPES: [AssignmentScope; 9] = [
    AssignmentScope::Group(GroupScope::Managed),
    AssignmentScope::Group(GroupScope::SecurityGroup),
    AssignmentScope::Group(GroupScope::Vnet),
    AssignmentScope::Group(GroupScope::Dns),
    AssignmentScope::Vnet,
    AssignmentScope::Subnet,
    AssignmentScope::SecurityGroup,
    AssignmentScope::DnsZone,
    AssignmentScope::EncryptionKey,
];

fn id(text: &str) -> ArmResourceId {
    text.parse().unwrap()
}

fn infra_id(text: &str) -> InfraId {
    text.parse().unwrap()
}

/// Every scope has an id of its own.
fn separate_ids() -> AssignmentScopeIds {
    let ids = ALL_SCOPES.iter().enumerate();
    ids.map(|(index, scope)| (*scope, id(&format!("/subscriptions/s/resourceGroups/g{index}"))))
        .collect()
}

/// The scopes of an identity as one letter each.
fn letters(requirements: &[RoleRequirement], key: &str) -> String {
    let own = requirements.iter().filter(|it| it.identity.role_key() == key);
    own.map(|it| match it.scope {
        AssignmentScope::Group(GroupScope::Managed) => 'M',
        AssignmentScope::Group(GroupScope::SecurityGroup) => 'N',
        AssignmentScope::Group(GroupScope::Vnet) => 'V',
        AssignmentScope::Group(GroupScope::Dns) => 'D',
        AssignmentScope::Vnet => 'v',
        AssignmentScope::Subnet => 's',
        AssignmentScope::SecurityGroup => 'n',
        AssignmentScope::DnsZone => 'd',
        AssignmentScope::EncryptionKey => 'k',
    })
    .collect()
}

#[test]
fn default_table_is_that_of_hypershift() {
    let requirements = role_requirements(&RoleOptions::new(RoleProfile::Hypershift, true));
    let expected = [
        ("cpo", "MNV", RoleDefinitionId::CONTRIBUTOR),
        ("capz", "MV", RoleDefinitionId::CONTRIBUTOR),
        ("cloud-provider", "MNV", RoleDefinitionId::CLOUD_CONTROLLER_MANAGER),
        ("azure-file", "MNV", RoleDefinitionId::FILE),
        ("azure-disk", "M", RoleDefinitionId::DISK),
        ("ingress", "MVD", RoleDefinitionId::INGRESS),
        ("cncc", "MV", RoleDefinitionId::NETWORK),
        ("ciro", "M", RoleDefinitionId::IMAGE_REGISTRY),
        ("ciroWI", "M", RoleDefinitionId::IMAGE_REGISTRY),
        ("azure-diskWI", "M", RoleDefinitionId::DISK),
        ("azure-fileWI", "M", RoleDefinitionId::FILE),
    ];
    for (key, scopes, role) in expected {
        assert_eq!(letters(&requirements, key), scopes, "{key}");
        let mut own = requirements.iter().filter(|it| it.identity.role_key() == key);
        assert!(own.all(|it| it.role == role), "{key}");
    }
    assert_eq!(requirements.len(), 21);
    assert_eq!(role_requirements(&RoleOptions::new(RoleProfile::Hypershift, false)).len(), 18);
}

#[test]
fn hosted_control_plane_roles_replace_contributor_only() {
    let default = role_requirements(&RoleOptions::new(RoleProfile::Hypershift, true));
    let hosted = role_requirements(&RoleOptions::new(RoleProfile::HostedControlPlanes, true));
    assert_eq!(default.len(), hosted.len());
    for (before, after) in default.iter().zip(&hosted) {
        assert_eq!((before.identity, before.scope), (after.identity, after.scope));
        match after.identity.role_key() {
            "cpo" => assert_eq!(after.role, RoleDefinitionId::CONTROL_PLANE_OPERATOR),
            "capz" => assert_eq!(after.role, RoleDefinitionId::CLUSTER_API_PROVIDER),
            _ => assert_eq!(after.role, before.role),
        }
    }
}

#[test]
fn least_privilege_uses_single_resources_outside_the_managed_group() {
    let mut options = RoleOptions::new(RoleProfile::LeastPrivilege, true);
    options.encryption_key = true;
    let requirements = role_requirements(&options);
    let expected = [
        ("capz", "Ms"),
        ("cpo", "Mvn"),
        ("cloud-provider", "Msn"),
        ("ingress", "Msd"),
        ("azure-disk", "M"),
        ("azure-file", "Msn"),
        ("azure-fileWI", "Msn"),
        ("ciro", "M"),
        ("cncc", "Msv"),
        ("kms", "k"),
    ];
    for (key, scopes) in expected {
        assert_eq!(letters(&requirements, key), scopes, "{key}");
    }
    assert!(requirements.iter().all(|it| it.role != RoleDefinitionId::CONTRIBUTOR));
}

#[test]
fn operator_of_a_private_cluster_may_write_networks_in_every_profile() {
    let operator = |profile| {
        let mut options = RoleOptions::new(profile, true);
        options.private_endpoint = true;
        let requirements = role_requirements(&options);
        let own = requirements.into_iter().filter(|it| it.identity.role_key() == "cpo");
        own.map(|it| (it.scope, it.role)).collect::<Vec<_>>()
    };
    let group = |scope| AssignmentScope::Group(scope);
    let groups = [GroupScope::Managed, GroupScope::SecurityGroup, GroupScope::Vnet];
    for (profile, role) in [
        (RoleProfile::Hypershift, RoleDefinitionId::CONTRIBUTOR),
        (RoleProfile::HostedControlPlanes, RoleDefinitionId::NETWORK_CONTRIBUTOR),
    ] {
        assert_eq!(operator(profile), groups.map(|scope| (group(scope), role)), "{profile:?}");
    }
    assert_eq!(
        operator(RoleProfile::LeastPrivilege),
        [
            (group(GroupScope::Managed), RoleDefinitionId::NETWORK_CONTRIBUTOR),
            (AssignmentScope::Vnet, RoleDefinitionId::NETWORK_CONTRIBUTOR),
            (AssignmentScope::SecurityGroup, RoleDefinitionId::CONTROL_PLANE_OPERATOR),
        ]
    );
}

#[test]
fn names_of_assignments_are_unique_in_a_private_cluster_with_one_group() {
    let one = id("/subscriptions/s/resourceGroups/one");
    for profile in [RoleProfile::HostedControlPlanes, RoleProfile::LeastPrivilege] {
        let mut options = RoleOptions::new(profile, true);
        options.private_endpoint = true;
        let mut ids = separate_ids();
        for scope in [GroupScope::Managed, GroupScope::SecurityGroup, GroupScope::Vnet] {
            ids.insert(AssignmentScope::Group(scope), one.clone());
        }
        let requirements = role_requirements(&options);
        let planned = plan_role_assignments(&requirements, &infra_id("x"), &ids).unwrap();
        let names: std::collections::HashSet<_> =
            planned.iter().map(PlannedRoleAssignment::id).collect();
        assert_eq!(names.len(), planned.len(), "{profile:?}");
    }
}

#[test]
fn absent_identities_get_no_roles() {
    let mut options = RoleOptions::new(RoleProfile::Hypershift, true);
    options.image_registry = false;
    options.control_plane_operator = false;
    let requirements = role_requirements(&options);
    for key in ["ciro", "ciroWI", "cpo", "kms"] {
        assert_eq!(letters(&requirements, key), "", "{key}");
    }
    options.encryption_key = true;
    let requirements = role_requirements(&options);
    let kms: Vec<_> = requirements
        .iter()
        .filter(|it| it.identity == RoleIdentity::ControlPlane(Component::Kms))
        .collect();
    assert_eq!(kms.len(), 1);
    assert_eq!(kms[0].role, RoleDefinitionId::KEY_VAULT_CRYPTO_USER);
    assert_eq!(kms[0].scope, AssignmentScope::EncryptionKey);
}

#[test]
fn names_are_those_of_hypershift() {
    const SUBSCRIPTION: &str = "/subscriptions/11111111-1111-1111-1111-111111111111";
    let managed = format!("{SUBSCRIPTION}/resourceGroups/mycluster-mycluster-abc12");
    let vnet = format!("{SUBSCRIPTION}/resourceGroups/mycluster-vnet-mycluster-abc12");
    let test_group = "/subscriptions/test-sub-id/resourceGroups/test-rg";
    let cases = [
        ("test-infra", "ingress", test_group, "53150cfa-be6c-5041-a0a2-faf9d36c7248"),
        ("mycluster-abc12", "cpo", &managed, "f5b00626-5a3e-57cd-a0cf-8ab049d803d6"),
        ("mycluster-abc12", "azure-diskWI", &managed, "f59d48b0-c1e8-599e-9bbf-d65af3120869"),
        ("mycluster-abc12", "ciro", &managed, "8fd5ac60-c3d9-54e1-9de1-b223438a3233"),
        ("mycluster-abc12", "cncc", &vnet, "021239a2-242d-5cb5-b0d1-10cdf8c4751c"),
    ];
    for (infra, key, scope, expected) in cases {
        let name = role_assignment_name(&infra_id(infra), key, &id(scope));
        assert_eq!(name.to_string(), expected, "{infra} {key} {scope}");
    }
}

#[test]
fn equal_assignments_of_a_single_group_collapse() {
    let requirements = role_requirements(&RoleOptions::new(RoleProfile::Hypershift, true));
    let planned =
        plan_role_assignments(&requirements, &infra_id("x-abc12"), &separate_ids()).unwrap();
    assert_eq!(planned.len(), 21);
    let mut ids = separate_ids();
    // Azure compares ids without case.
    let group = |text: &str| id(&format!("/subscriptions/s/resourceGroups/{text}"));
    ids.insert(AssignmentScope::Group(GroupScope::Managed), group("one"));
    ids.insert(AssignmentScope::Group(GroupScope::SecurityGroup), group("ONE"));
    ids.insert(AssignmentScope::Group(GroupScope::Vnet), group("One"));
    let planned = plan_role_assignments(&requirements, &infra_id("x-abc12"), &ids).unwrap();
    // Eight components and three identities of worker nodes at the group, and ingress at the DNS group.
    assert_eq!(planned.len(), 12);
    let ids: std::collections::HashSet<_> = planned.iter().map(PlannedRoleAssignment::id).collect();
    assert_eq!(ids.len(), planned.len());
}

#[test]
fn every_unknown_scope_is_listed_once() {
    let requirements = role_requirements(&RoleOptions::new(RoleProfile::LeastPrivilege, true));
    let mut ids = separate_ids();
    ids.remove(&AssignmentScope::Subnet);
    ids.remove(&AssignmentScope::DnsZone);
    let error = plan_role_assignments(&requirements, &infra_id("x"), &ids).unwrap_err();
    assert_eq!(
        error.to_string(),
        "role assignments need a scope that is not known: the subnet, the public DNS zone"
    );
}

#[test]
fn id_of_an_assignment_is_below_its_scope() {
    let requirements = role_requirements(&RoleOptions::new(RoleProfile::Hypershift, false));
    let planned = plan_role_assignments(&requirements, &infra_id("x"), &separate_ids()).unwrap();
    let id = planned[0].id();
    assert!(planned[0].scope.contains(&id));
    assert_eq!(id.resource_type().as_deref(), Some("Microsoft.Authorization/roleAssignments"));
}
