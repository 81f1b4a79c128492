//! `azureAuthenticationConfig`: the union, the vault and the identities of the control plane.

use std::collections::BTreeMap;

use lanyard_api::hosted_cluster::{
    AzureAuthentication, AzurePlatform, ControlPlaneIdentities,
    DataPlaneIdentities as WireDataPlane, HostedClusterSpec, ManagedIdentities,
};
use lanyard_vocabulary::component::FieldParent;
use lanyard_vocabulary::{ClientId, Component};

use super::identity::identity;
use super::schema::Checker;
use super::{IdentityVault, VaultTenant};
use crate::hosted_cluster::{ControlPlaneIdentity, DataPlaneIdentities};

const AUTHENTICATION: &str = "spec.platform.azure.azureAuthenticationConfig";

/// Components that a cluster runs only while a capability of this name is on.
const CAPABILITIES: [(Component, &str); 2] =
    [(Component::ImageRegistry, "ImageRegistry"), (Component::Ingress, "Ingress")];

/// What the configuration says of managed Azure.
pub(super) struct Authentication {
    pub(super) vault: IdentityVault,
    pub(super) identities: BTreeMap<Component, ControlPlaneIdentity>,
    pub(super) data_plane: DataPlaneIdentities,
}

pub(super) fn authentication(
    checker: &mut Checker,
    azure: &AzurePlatform,
    spec: &HostedClusterSpec,
) -> Option<Authentication> {
    let config = checker.required(AUTHENTICATION, azure.authentication.as_ref())?;
    let field = format!("{AUTHENTICATION}.azureAuthenticationConfigType");
    let kind = checker.text(&field, config.authentication_type.as_ref(), 0..=255);
    if let Some(kind) = kind {
        checker.one_of(&field, kind, &["ManagedIdentities", "WorkloadIdentities"]);
    }
    union(checker, azure, config, kind);
    managed(checker, config.managed_identities.as_ref()?, spec)
}

/// Both rules are always evaluated, so a wrong combination may break both.
fn union(
    checker: &mut Checker,
    azure: &AzurePlatform,
    config: &AzureAuthentication,
    kind: Option<&str>,
) {
    checker.rule(
        AUTHENTICATION,
        (kind == Some("ManagedIdentities")) == config.managed_identities.is_some(),
        "managedIdentities is required when azureAuthenticationConfigType is ManagedIdentities, and forbidden otherwise",
    );
    checker.rule(
        AUTHENTICATION,
        (kind == Some("WorkloadIdentities")) == config.workload_identities.is_some(),
        "workloadIdentities is required when azureAuthenticationConfigType is WorkloadIdentities, and forbidden otherwise",
    );
    let private = azure.private.as_ref().and_then(|private| private.private_type.as_deref());
    let operator =
        config.workload_identities.as_ref().is_some_and(|w| w.contains_key("controlPlaneOperator"));
    checker.rule(
        "spec.platform.azure",
        private != Some("PrivateLink") || kind != Some("WorkloadIdentities") || operator,
        "workloadIdentities.controlPlaneOperator is required when Private Link is configured with WorkloadIdentities authentication",
    );
}

fn managed(
    checker: &mut Checker,
    managed: &ManagedIdentities,
    spec: &HostedClusterSpec,
) -> Option<Authentication> {
    let parent = FieldParent::ControlPlane.path();
    let control_plane = checker.required(parent, managed.control_plane.as_ref());
    let vault = control_plane.and_then(|control_plane| vault(checker, control_plane));
    let identities = control_plane.map(|control_plane| {
        let disabled = spec.capabilities.as_ref().and_then(|c| c.disabled.clone());
        identities(checker, control_plane, &disabled.unwrap_or_default())
    });
    let field = format!("{AUTHENTICATION}.managedIdentities.dataPlane");
    let data_plane = checker
        .required(&field, managed.data_plane.as_ref())
        .map(|wire| data_plane(checker, &field, wire));
    Some(Authentication { vault: vault?, identities: identities?, data_plane: data_plane? })
}

fn vault(checker: &mut Checker, control_plane: &ControlPlaneIdentities) -> Option<IdentityVault> {
    let field = format!("{}.managedIdentitiesKeyVault", FieldParent::ControlPlane.path());
    let wire = checker.required(&field, control_plane.key_vault.as_ref())?;
    let name_field = format!("{field}.name");
    let name = checker.text(&name_field, wire.name.as_ref(), 0..=255);
    let name = name.and_then(|text| checker.parsed(&name_field, text));
    let tenant_field = format!("{field}.tenantID");
    let tenant = checker.text(&tenant_field, wire.tenant_id.as_ref(), 0..=255).and_then(|text| {
        let tenant = checker.parsed(&tenant_field, text)?;
        checker.expect_uuid(&tenant_field, text);
        Some(VaultTenant(tenant))
    });
    Some(IdentityVault { name: name?, tenant: tenant? })
}

/// Checks the identity of every component, and keeps those of the components that run.
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
            match capability {
                _ if !component.facts().optional => checker.problems.error(field, "Required value"),
                Some(name) if runs => checker.problems.lint(
                    field,
                    format!("the capability `{name}` is on and has no identity, so its component gets no credential"),
                    format!("give the identity, or add `{name}` to spec.capabilities.disabled"),
                ),
                _ => {}
            }
            continue;
        };
        if let Some(identity) = identity(checker, &field, wire).filter(|_| runs) {
            kept.insert(component, identity);
        }
    }
    kept
}

fn data_plane(checker: &mut Checker, field: &str, wire: &WireDataPlane) -> DataPlaneIdentities {
    let mut read = |name: &str, value: Option<&String>| -> Option<ClientId> {
        let field = format!("{field}.{name}");
        let text = checker.text(&field, value, 0..=255)?;
        checker.expect_uuid(&field, text);
        text.parse().ok()
    };
    DataPlaneIdentities {
        image_registry: read("imageRegistryMSIClientID", wire.image_registry.as_ref()),
        disk: read("diskMSIClientID", wire.disk.as_ref()),
        file: read("fileMSIClientID", wire.file.as_ref()),
    }
}
