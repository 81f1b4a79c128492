//! `azureAuthenticationConfig` of managed Azure: the vault and the identities.

use std::collections::BTreeMap;

use lanyard_api::hosted_cluster::{
    AzurePlatform, ControlPlaneIdentities, DataPlaneIdentities as WireDataPlane, HostedClusterSpec,
};
use lanyard_vocabulary::component::FieldParent;
use lanyard_vocabulary::{ClientId, Component};

use super::checker::Checker;
use super::identity::identity;
use super::{AUTHENTICATION, IdentityVault, VaultTenant};
use crate::hosted_cluster::{ControlPlaneIdentity, DataPlaneIdentities};

/// Components that a cluster runs only while a capability of this name is on.
const CAPABILITIES: [(Component, &str); 2] =
    [(Component::ImageRegistry, "ImageRegistry"), (Component::Ingress, "Ingress")];

/// What the configuration says of managed Azure.
pub(super) struct Authentication {
    pub(super) vault: IdentityVault,
    pub(super) identities: BTreeMap<Component, ControlPlaneIdentity>,
    pub(super) data_plane: DataPlaneIdentities,
}

/// What is missing was said by the schema.
pub(super) fn authentication(
    checker: &mut Checker,
    azure: &AzurePlatform,
    spec: &HostedClusterSpec,
) -> Option<Authentication> {
    let managed = azure.authentication.as_ref()?.managed_identities.as_ref()?;
    let control_plane = managed.control_plane.as_ref();
    let vault = control_plane.and_then(|control_plane| vault(checker, control_plane));
    let identities = control_plane.map(|control_plane| {
        let disabled = spec.capabilities.as_ref().and_then(|c| c.disabled.clone());
        identities(checker, control_plane, &disabled.unwrap_or_default())
    });
    let data_plane = managed.data_plane.as_ref().map(|wire| data_plane(checker, wire));
    Some(Authentication { vault: vault?, identities: identities?, data_plane: data_plane? })
}

fn vault(checker: &mut Checker, control_plane: &ControlPlaneIdentities) -> Option<IdentityVault> {
    let field = format!("{}.managedIdentitiesKeyVault", FieldParent::ControlPlane.path());
    let wire = control_plane.key_vault.as_ref()?;
    let name_field = format!("{field}.name");
    let name = wire.name.as_ref().and_then(|text| checker.parsed(&name_field, text));
    let tenant_field = format!("{field}.tenantID");
    let tenant = wire.tenant_id.as_ref().and_then(|text| {
        let tenant = checker.parsed(&tenant_field, text)?;
        checker.expect_uuid(&tenant_field, text);
        Some(VaultTenant(tenant))
    });
    Some(IdentityVault { name: name?, tenant: tenant? })
}

/// Reads the identity of every component, and keeps those of the components that run.
fn identities(
    checker: &mut Checker,
    control_plane: &ControlPlaneIdentities,
    disabled: &[String],
) -> BTreeMap<Component, ControlPlaneIdentity> {
    let mut kept = BTreeMap::new();
    let ours = |component: &Component| component.facts().parent == FieldParent::ControlPlane;
    for component in Component::ALL.into_iter().filter(ours) {
        let capability =
            CAPABILITIES.iter().find(|(of, _)| *of == component).map(|(_, name)| *name);
        let runs = capability.is_none_or(|name| !disabled.iter().any(|off| off == name));
        let field = component.field_path();
        let Some(wire) = control_plane.identities.get(&component) else {
            if let Some(name) = capability.filter(|_| runs && component.facts().optional) {
                checker.problems.lint(
                    field,
                    format!("the capability `{name}` is on and has no identity, so its component gets no credential"),
                    format!("give the identity, or add `{name}` to spec.capabilities.disabled"),
                );
            }
            continue;
        };
        if let Some(identity) = identity(checker, &field, wire).filter(|_| runs) {
            kept.insert(component, identity);
        }
    }
    kept
}

fn data_plane(checker: &mut Checker, wire: &WireDataPlane) -> DataPlaneIdentities {
    let mut read = |name: &str, value: Option<&String>| -> Option<ClientId> {
        let text = value?;
        checker.expect_uuid(&format!("{AUTHENTICATION}.managedIdentities.dataPlane.{name}"), text);
        text.parse().ok()
    };
    DataPlaneIdentities {
        image_registry: read("imageRegistryMSIClientID", wire.image_registry.as_ref()),
        disk: read("diskMSIClientID", wire.disk.as_ref()),
        file: read("fileMSIClientID", wire.file.as_ref()),
    }
}
