//! `spec.secretEncryption`: the keys in a vault and the identity that uses them.

use lanyard_api::hosted_cluster::{AzureKmsSpec, HostedClusterSpec, KmsKey};
use lanyard_vocabulary::Component;

use super::checker::FieldChecker;
use super::identity::check_identity;
use crate::hosted_cluster::{ControlPlaneIdentity, EncryptionKey, KmsEncryption};

const FIELD: &str = "spec.secretEncryption.kms";
const MANAGED_HSM_TYPE: &str = "ManagedHSM";
/// The first HyperShift release that supports a Managed HSM.
const FIRST_HSM_RELEASE: (u64, u64) = (4, 22);

type KmsComponentIdentity = (Component, ControlPlaneIdentity);

/// Returns the keys and the identity, if encryption uses vault keys with a managed identity.
pub(super) fn check_encryption(
    checker: &mut FieldChecker,
    spec: &HostedClusterSpec,
) -> Option<(KmsEncryption, KmsComponentIdentity)> {
    let encryption = spec.secret_encryption.as_ref()?;
    if encryption.encryption_type.as_deref() != Some("kms") {
        return None;
    }
    // The schema accepts the discriminator without its member, from which nothing can be rendered.
    let kms = checker.check_required(FIELD, encryption.kms.as_ref())?;
    let provider = kms.provider.as_deref()?;
    if provider != "Azure" {
        checker.problems.lint(
            format!("{FIELD}.provider"),
            format!(
                "keys of {provider} cannot be used with an Azure identity; lanyard creates no objects for them"
            ),
            "use the provider `Azure` on Azure",
        );
        return None;
    }
    let wire = checker.check_required(&format!("{FIELD}.azure"), kms.azure.as_ref())?;
    if wire.key_vault_type.as_deref() == Some(MANAGED_HSM_TYPE) {
        lint_hsm_release(checker, spec);
    }
    check_azure_kms(checker, wire)
}

/// HyperShift's operator rejects a Managed HSM before [`FIRST_HSM_RELEASE`], because the KMS plugin
/// of earlier releases does not support one. An image reference with a digest does not contain the
/// release version.
fn lint_hsm_release(checker: &mut FieldChecker, spec: &HostedClusterSpec) {
    // The KMS plugin is part of the control plane, so its release counts.
    let mut releases = ["controlPlaneRelease", "release"].into_iter();
    let image = |name: &str| spec.unknown.get(name)?.get("image")?.as_str();
    let Some((name, image)) = releases.find_map(|name| Some((name, image(name)?))) else {
        return;
    };
    if let Some((major, minor)) =
        release_version(image).filter(|version| *version < FIRST_HSM_RELEASE)
    {
        let (since_major, since_minor) = FIRST_HSM_RELEASE;
        checker.problems.lint(
            format!("{}.keyVaultType", Component::Kms.definition().parent.path()),
            format!(
                "a Managed HSM needs release {since_major}.{since_minor}.0 or later, and `spec.{name}.image` is {major}.{minor}"
            ),
            "use a later release, or keys in a vault",
        );
    }
}

/// Returns the major and minor version from the tag of an image, such as `4.21.3-multi`.
fn release_version(image: &str) -> Option<(u64, u64)> {
    let (_, tag) = image.split('@').next()?.rsplit_once(':')?;
    let mut numbers = tag.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn check_azure_kms(
    checker: &mut FieldChecker,
    azure: &AzureKmsSpec,
) -> Option<(KmsEncryption, KmsComponentIdentity)> {
    let field = Component::Kms.definition().parent.path();
    let active = check_key(checker, &format!("{field}.activeKey"), azure.active_key.as_ref());
    let backup_field = format!("{field}.backupKey");
    let backup = check_key(checker, &backup_field, azure.backup_key.as_ref());
    if azure.backup_key.is_some() {
        checker.problems.lint(
            &*backup_field,
            "the field is deprecated",
            "remove it as soon as no secrets are encrypted with the key",
        );
    }
    let identity = check_kms_identity(checker, field, azure);
    let active = active?;
    if backup.as_ref() == Some(&active) {
        checker.problems.lint(
            &*backup_field,
            "the backup key is the active key, of which the API server takes one provider only: lanyard ignores the backup key",
            "remove it, or set the previous key",
        );
    }
    let backup = backup.filter(|backup| *backup != active);
    let encryption = KmsEncryption {
        routed_vault: active.vault.clone(),
        active_key: active,
        backup_key: backup,
        is_managed_hsm: azure.key_vault_type.as_deref() == Some(MANAGED_HSM_TYPE),
        is_private_access: azure.key_vault_access.as_deref() == Some("Private"),
    };
    Some((encryption, (Component::Kms, identity?)))
}

/// Managed Azure uses the managed identity; workload identity belongs to self-managed Azure.
fn check_kms_identity(
    checker: &mut FieldChecker,
    field: &str,
    azure: &AzureKmsSpec,
) -> Option<ControlPlaneIdentity> {
    if azure.workload_identity.is_some() && azure.kms.is_none() {
        checker.problems.lint(
            format!("{field}.workloadIdentity"),
            "a cluster of managed Azure has no credential in the vault for a workload identity; lanyard creates no objects for the key",
            "set a managed identity in `kms`",
        );
    }
    check_identity(checker, &Component::Kms.field_path(), azure.kms.as_ref()?)
}

fn check_key(
    checker: &mut FieldChecker,
    field: &str,
    wire: Option<&KmsKey>,
) -> Option<EncryptionKey> {
    let wire = wire?;
    let [vault, name, version] =
        ["keyVaultName", "keyName", "keyVersion"].map(|name| format!("{field}.{name}"));
    let vault = wire.key_vault_name.as_ref().and_then(|text| checker.check_parsed(&vault, text));
    let name = wire.key_name.as_ref().and_then(|text| checker.check_parsed(&name, text));
    // The schema accepts any text, but every KMS plugin and canary exits if the key version is
    // invalid.
    let text = wire.key_version.as_ref().filter(|text| !text.is_empty());
    let version = text.and_then(|text| checker.check_parsed(&version, text));
    Some(EncryptionKey { vault: vault?, name: name?, version: version? })
}
