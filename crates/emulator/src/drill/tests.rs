use std::collections::BTreeMap;

use super::*;
use crate::seed::tests::{NOW, nine, plan, seeded};

/// What a component's way depends on: its secret, its principal, its assignments and the right
/// of the reader.
fn traces(world: &World) -> BTreeMap<&'static str, String> {
    let mut traces = BTreeMap::new();
    for component in Component::ALL {
        let holder = world.roster.holder(component).unwrap();
        let vault = world.vaults.at_host(&holder.vault_host).unwrap();
        let secret = vault.secrets.object(holder.secret_name.as_str()).ok();
        let scope = object_scope(vault, ObjectKind::Secret, holder.secret_name.as_str());
        let readers = world.authorization.iter().filter(|held| held.scope == scope).count();
        let trace = (
            serde_json::to_string(&secret).unwrap(),
            serde_json::to_string(&world.directory.by_client(holder.client_id)).unwrap(),
            world.authorization.of_principal(holder.object_id).count(),
            readers,
        );
        traces.insert(component.name(), format!("{trace:?}"));
    }
    traces
}

#[test]
fn every_fault_is_read_by_its_name_and_the_names_are_these() {
    let names: Vec<_> = Fault::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "encoding",
            "missing-secret",
            "vault-role",
            "expired",
            "key-mismatch",
            "unknown-application",
            "audience",
            "arm-role"
        ]
    );
    for fault in Fault::ALL {
        assert_eq!(fault.name().parse(), Ok(fault));
    }
    let error = "Encoding".parse::<Fault>().unwrap_err().to_string();
    assert!(error.contains("missing-secret"), "{error}");
}

#[test]
fn a_drill_on_a_running_world_touches_its_component_only() {
    let (world, ids) = nine();
    let before = traces(&world);
    for fault in Fault::ALL {
        let (mut world, mut ids) = (world.clone(), ids.clone());
        let drill = Drill { fault, component: Component::Ingress };
        apply_drill(&mut world, drill, &mut ids, NOW).unwrap();
        let after = traces(&world);
        for component in Component::ALL {
            let touched = before[component.name()] != after[component.name()];
            assert_eq!(touched, component == Component::Ingress, "{fault}: {component}");
        }
    }
}

#[test]
fn a_drill_for_a_component_without_an_identity_is_refused() {
    let mut plan = plan();
    plan.identities.retain(|identity| identity.component == Component::Disk);
    let (mut world, mut ids) = seeded(&plan);
    let drill = Drill { fault: Fault::Expired, component: Component::File };
    let error = apply_drill(&mut world, drill, &mut ids, NOW).unwrap_err();
    assert!(matches!(error, SeedError::NoIdentity { component: Component::File }));
}

#[test]
fn drills_of_a_plan_take_away_what_they_name_and_leave_the_rest() {
    let mut plan = plan();
    plan.kms_key = None;
    let drills = [
        (Fault::MissingSecret, Component::Disk),
        (Fault::VaultRole, Component::File),
        (Fault::UnknownApplication, Component::Network),
        (Fault::ArmRole, Component::Ingress),
    ];
    plan.drills = drills.into_iter().map(|(fault, component)| Drill { fault, component }).collect();
    let (world, _) = seeded(&plan);
    for component in Component::ALL {
        let drill = drills.iter().find(|(_, broken)| *broken == component).map(|(fault, _)| *fault);
        let holder = world.roster.holder(component).unwrap();
        let vault = world.vaults.at_host(&holder.vault_host).unwrap();
        let scope = object_scope(vault, ObjectKind::Secret, holder.secret_name.as_str());
        let found = [
            (Fault::MissingSecret, vault.secrets.object(holder.secret_name.as_str()).is_err()),
            (Fault::VaultRole, !world.authorization.iter().any(|held| held.scope == scope)),
            (Fault::UnknownApplication, world.directory.by_client(holder.client_id).is_none()),
            (Fault::ArmRole, world.authorization.of_principal(holder.object_id).next().is_none()),
        ];
        for (fault, broken) in found {
            assert_eq!(broken, drill == Some(fault), "{component}: {fault}");
        }
    }
}
