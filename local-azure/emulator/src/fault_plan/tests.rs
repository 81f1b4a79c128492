use std::collections::BTreeMap;

use super::*;
use crate::testing::seeded_state::{
    SEED_TIME, nine_identity_plan, seed_azure, seeded_nine_identities,
};

/// The objects that a component's identity flow depends on: its secret, its principal, its assignments and
/// the permission of the vault reader.
fn object_digests(azure: &AzureState) -> BTreeMap<&'static str, String> {
    let mut traces = BTreeMap::new();
    for component in Component::ALL {
        let holder = azure.registry.component_identity(component).unwrap();
        let vault = azure.vaults.vault_at_host(&holder.vault_host).unwrap();
        let secret = azure.vaults.secrets.object(&vault.host, holder.secret_name.as_str()).ok();
        let scope = object_scope(vault, KeyVaultObjectKind::Secret, holder.secret_name.as_str());
        let readers = azure.authorization.at(&scope).count();
        let trace = (
            serde_json::to_string(&secret).unwrap(),
            serde_json::to_string(
                &azure.directory.service_principal_by_client_id(holder.client_id),
            )
            .unwrap(),
            azure.authorization.of_principal(holder.object_id).count(),
            readers,
        );
        traces.insert(component.name(), format!("{trace:?}"));
    }
    traces
}

#[test]
fn every_fault_parses_from_its_documented_name() {
    let names: Vec<_> = IdentityFault::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "encoding",
            "missing-secret",
            "vault-role",
            "expired",
            "key-mismatch",
            "missing-leaf",
            "unknown-application",
            "audience",
            "arm-role"
        ]
    );
    for fault in IdentityFault::ALL {
        assert_eq!(fault.name().parse(), Ok(fault));
    }
    let error = "Encoding".parse::<IdentityFault>().unwrap_err().to_string();
    assert!(error.contains("missing-secret"), "{error}");
}

#[test]
fn fault_plan_affects_only_its_component() {
    let (azure, ids) = seeded_nine_identities();
    let before = object_digests(&azure);
    for fault in IdentityFault::ALL {
        let (mut azure, mut ids) = (azure.clone(), ids.clone());
        let planned_fault = FaultPlan { fault, component: Component::Ingress };
        planned_fault.apply(&mut azure, &mut ids, SEED_TIME).unwrap();
        let after = object_digests(&azure);
        for component in Component::ALL {
            let touched = before[component.name()] != after[component.name()];
            assert_eq!(touched, component == Component::Ingress, "{fault}: {component}");
        }
    }
}

#[test]
fn fault_plan_for_component_without_identity_is_rejected() {
    let mut plan = nine_identity_plan();
    plan.identities.retain(|identity| identity.component == Component::Disk);
    let (mut azure, mut ids) = seed_azure(&plan);
    let planned_fault = FaultPlan { fault: IdentityFault::Expired, component: Component::File };
    let error = planned_fault.apply(&mut azure, &mut ids, SEED_TIME).unwrap_err();
    assert!(matches!(error, SeedError::ComponentIdentityMissing { component: Component::File }));
}

#[test]
fn seeded_fault_plans_remove_only_the_named_objects() {
    let mut plan = nine_identity_plan();
    plan.kms_key = None;
    let drills = [
        (IdentityFault::MissingSecret, Component::Disk),
        (IdentityFault::VaultRole, Component::File),
        (IdentityFault::UnknownApplication, Component::Network),
        (IdentityFault::ArmRole, Component::Ingress),
    ];
    plan.drills =
        drills.into_iter().map(|(fault, component)| FaultPlan { fault, component }).collect();
    let (azure, _) = seed_azure(&plan);
    for component in Component::ALL {
        let planned_fault =
            drills.iter().find(|(_, broken)| *broken == component).map(|(fault, _)| *fault);
        let holder = azure.registry.component_identity(component).unwrap();
        let vault = azure.vaults.vault_at_host(&holder.vault_host).unwrap();
        let scope = object_scope(vault, KeyVaultObjectKind::Secret, holder.secret_name.as_str());
        let found = [
            (
                IdentityFault::MissingSecret,
                azure.vaults.secrets.object(&vault.host, holder.secret_name.as_str()).is_err(),
            ),
            (IdentityFault::VaultRole, azure.authorization.at(&scope).next().is_none()),
            (
                IdentityFault::UnknownApplication,
                azure.directory.service_principal_by_client_id(holder.client_id).is_none(),
            ),
            (
                IdentityFault::ArmRole,
                azure.authorization.of_principal(holder.object_id).next().is_none(),
            ),
        ];
        for (fault, broken) in found {
            assert_eq!(broken, planned_fault == Some(fault), "{component}: {fault}");
        }
    }
}
