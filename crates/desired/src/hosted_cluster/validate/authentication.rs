//! `azureAuthenticationConfig` of managed Azure: the vault and the identities.

use std::collections::BTreeMap;

use lanyard_api::hosted_cluster::{
    AzurePlatform, ControlPlaneIdentities, DataPlaneIdentities as WireDataPlane, HostedClusterSpec,
};
use lanyard_vocabulary::component::IdentityFieldParent;
use lanyard_vocabulary::{Component, EntraClientId};

use super::checker::FieldChecker;
use super::identity::check_identity;
use super::{AUTHENTICATION, CredentialVault, VaultTenant};
use crate::hosted_cluster::{ControlPlaneIdentity, DataPlaneClientIds};

/// Components that a cluster runs only if it has the capability of this name.
const COMPONENT_CAPABILITIES: [(Component, &str); 2] =
    [(Component::ImageRegistry, "ImageRegistry"), (Component::Ingress, "Ingress")];

/// The validated `azureAuthenticationConfig` of managed Azure.
pub(super) struct ValidatedAuthentication {
    pub(super) vault: CredentialVault,
    pub(super) identities: BTreeMap<Component, ControlPlaneIdentity>,
    pub(super) data_plane: DataPlaneClientIds,
}

/// The schema rules report missing fields.
pub(super) fn check_authentication(
    checker: &mut FieldChecker,
    azure: &AzurePlatform,
    spec: &HostedClusterSpec,
) -> Option<ValidatedAuthentication> {
    let managed = azure.authentication.as_ref()?.managed_identities.as_ref()?;
    let control_plane = managed.control_plane.as_ref();
    let vault = control_plane.and_then(|control_plane| check_vault(checker, control_plane));
    let identities = control_plane.map(|control_plane| {
        let disabled = spec.capabilities.as_ref().and_then(|c| c.disabled.clone());
        check_identities(checker, control_plane, &disabled.unwrap_or_default())
    });
    let data_plane = managed.data_plane.as_ref().map(|wire| check_data_plane(checker, wire));
    Some(ValidatedAuthentication {
        vault: vault?,
        identities: identities?,
        data_plane: data_plane?,
    })
}

fn check_vault(
    checker: &mut FieldChecker,
    control_plane: &ControlPlaneIdentities,
) -> Option<CredentialVault> {
    let field = format!("{}.managedIdentitiesKeyVault", IdentityFieldParent::ControlPlane.path());
    let wire = control_plane.key_vault.as_ref()?;
    let name_field = format!("{field}.name");
    let name = wire.name.as_ref().and_then(|text| checker.check_parsed(&name_field, text));
    let tenant_field = format!("{field}.tenantID");
    let tenant = wire.tenant_id.as_ref().and_then(|text| {
        let tenant = checker.check_parsed(&tenant_field, text)?;
        checker.lint_non_uuid(&tenant_field, text);
        Some(VaultTenant(tenant))
    });
    Some(CredentialVault { name: name?, tenant: tenant? })
}

/// Checks the identity of every component and returns those of the running components.
fn check_identities(
    checker: &mut FieldChecker,
    control_plane: &ControlPlaneIdentities,
    disabled: &[String],
) -> BTreeMap<Component, ControlPlaneIdentity> {
    let mut retained = BTreeMap::new();
    let ours =
        |component: &Component| component.definition().parent == IdentityFieldParent::ControlPlane;
    for component in Component::ALL.into_iter().filter(ours) {
        let capability =
            COMPONENT_CAPABILITIES.iter().find(|(of, _)| *of == component).map(|(_, name)| *name);
        let runs = capability.is_none_or(|name| !disabled.iter().any(|off| off == name));
        let field = component.field_path();
        let Some(wire) = control_plane.identities.get(&component) else {
            if let Some(name) = capability.filter(|_| runs && component.definition().optional) {
                checker.problems.lint(
                    field,
                    format!("the capability `{name}` is enabled and has no identity, so its component gets no credential"),
                    format!("set the identity, or add `{name}` to spec.capabilities.disabled"),
                );
            }
            continue;
        };
        if let Some(identity) = check_identity(checker, &field, wire).filter(|_| runs) {
            retained.insert(component, identity);
        }
    }
    retained
}

fn check_data_plane(checker: &mut FieldChecker, wire: &WireDataPlane) -> DataPlaneClientIds {
    let mut read = |name: &str, value: Option<&String>| -> Option<EntraClientId> {
        let text = value?;
        checker
            .lint_non_uuid(&format!("{AUTHENTICATION}.managedIdentities.dataPlane.{name}"), text);
        text.parse().ok()
    };
    DataPlaneClientIds {
        image_registry: read("imageRegistryMSIClientID", wire.image_registry.as_ref()),
        disk: read("diskMSIClientID", wire.disk.as_ref()),
        file: read("fileMSIClientID", wire.file.as_ref()),
    }
}
