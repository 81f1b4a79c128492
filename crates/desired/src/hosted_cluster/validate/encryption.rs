//! `spec.secretEncryption`: keys in a vault, and the identity that uses them.

use lanyard_api::hosted_cluster::{AzureKms, HostedClusterSpec, KmsKey};
use lanyard_vocabulary::Component;

use super::identity::identity;
use super::schema::Checker;
use crate::hosted_cluster::{ControlPlaneIdentity, Encryption, EncryptionKey};

const FIELD: &str = "spec.secretEncryption";

type KmsIdentity = (Component, ControlPlaneIdentity);

/// The keys and the identity, where a vault's key encrypts with a managed identity.
pub(super) fn encryption(
    checker: &mut Checker,
    spec: &HostedClusterSpec,
) -> Option<(Encryption, KmsIdentity)> {
    let encryption = spec.secret_encryption.as_ref()?;
    let field = format!("{FIELD}.type");
    let kind = checker.text(&field, encryption.encryption_type.as_ref(), 0..=255)?;
    if !checker.one_of(&field, kind, &["kms", "aescbc"]) || kind != "kms" {
        return None;
    }
    let field = format!("{FIELD}.kms");
    let kms = checker.required(&field, encryption.kms.as_ref())?;
    let provider_field = format!("{field}.provider");
    let provider = checker.text(&provider_field, kms.provider.as_ref(), 0..=255)?;
    if !checker.one_of(&provider_field, provider, &["IBMCloud", "AWS", "Azure"]) {
        return None;
    }
    if provider != "Azure" {
        checker.problems.lint(
            provider_field,
            format!(
                "keys of {provider} are not reached by an Azure identity; nothing is made for them"
            ),
            "use the provider `Azure` on Azure",
        );
        return None;
    }
    let wire = checker.required(&format!("{field}.azure"), kms.azure.as_ref())?;
    azure(checker, wire)
}

fn azure(checker: &mut Checker, azure: &AzureKms) -> Option<(Encryption, KmsIdentity)> {
    let field = Component::Kms.facts().parent.path();
    let active = key(checker, &format!("{field}.activeKey"), azure.active_key.as_ref());
    let backup_field = format!("{field}.backupKey");
    let backup = azure.backup_key.as_ref().and_then(|wire| key(checker, &backup_field, Some(wire)));
    let vault = |key: Option<&KmsKey>| key.and_then(|key| key.key_vault_name.clone());
    checker.rule(
        field,
        azure.backup_key.is_none()
            || vault(azure.backup_key.as_ref()) == vault(azure.active_key.as_ref()),
        "backupKey.keyVaultName must match activeKey.keyVaultName; both keys must reside in the same Key Vault",
    );
    if azure.backup_key.is_some() {
        checker.problems.lint(
            backup_field,
            "the field is deprecated",
            "keep it while secrets are encrypted with the key, and no longer",
        );
    }
    let managed_hsm = choice(
        checker,
        &format!("{field}.keyVaultType"),
        azure.key_vault_type.as_deref().unwrap_or("KeyVault"),
        &["KeyVault", "ManagedHSM"],
    ) == Some("ManagedHSM");
    let private_access = choice(
        checker,
        &format!("{field}.keyVaultAccess"),
        azure.key_vault_access.as_deref().unwrap_or_default(),
        &["Public", "Private", ""],
    ) == Some("Private");
    let identity = kms_identity(checker, field, azure);
    let encryption =
        Encryption { active_key: active?, backup_key: backup, managed_hsm, private_access };
    Some((encryption, (Component::Kms, identity?)))
}

fn choice<'a>(
    checker: &mut Checker,
    field: &str,
    text: &'a str,
    known: &[&str],
) -> Option<&'a str> {
    checker.one_of(field, text, known).then_some(text)
}

/// Managed Azure uses the managed identity; the other mode belongs to self-managed Azure.
fn kms_identity(
    checker: &mut Checker,
    field: &str,
    azure: &AzureKms,
) -> Option<ControlPlaneIdentity> {
    let (managed, workload) = (azure.kms.is_some(), azure.workload_identity.is_some());
    checker.rule(field, !(managed && workload), "kms and workloadIdentity are mutually exclusive");
    checker.rule(field, managed || workload, "one of kms or workloadIdentity must be set");
    if workload && !managed {
        checker.problems.lint(
            format!("{field}.workloadIdentity"),
            "a cluster of managed Azure has no credential in the vault for a workload identity; nothing is made for the key",
            "name a managed identity in `kms`",
        );
    }
    identity(checker, &Component::Kms.field_path(), azure.kms.as_ref()?)
}

fn key(checker: &mut Checker, field: &str, wire: Option<&KmsKey>) -> Option<EncryptionKey> {
    let wire = checker.required(field, wire)?;
    let fields = ["keyVaultName", "keyName", "keyVersion"].map(|name| format!("{field}.{name}"));
    let vault = checker.text(&fields[0], wire.key_vault_name.as_ref(), 1..=255);
    let name = checker.text(&fields[1], wire.key_name.as_ref(), 1..=255);
    let version = checker.text(&fields[2], wire.key_version.as_ref(), 1..=255);
    let vault = vault.and_then(|text| checker.parsed(&fields[0], text));
    let name = name.and_then(|text| checker.parsed(&fields[1], text));
    Some(EncryptionKey { vault: vault?, name: name?, version: version?.to_owned() })
}
