//! `spec.secretEncryption`.

use lanyard_api::definitions::message;
use lanyard_api::hosted_cluster::{AzureKms, KmsKey, SecretEncryption};
use lanyard_vocabulary::Component;

use super::authentication::{managed_identity, workload_identity};
use crate::hosted_cluster::validate::checker::Checker;

/// Of the unions the schema knows no more than the discriminators.
pub(super) fn encryption(checker: &mut Checker, encryption: &SecretEncryption) {
    let field = "spec.secretEncryption";
    let known = ["kms", "aescbc"];
    checker.choice(&format!("{field}.type"), encryption.encryption_type.as_ref(), &known);
    let Some(kms) = &encryption.kms else { return };
    let known = ["IBMCloud", "AWS", "Azure"];
    checker.choice(&format!("{field}.kms.provider"), kms.provider.as_ref(), &known);
    if let Some(wire) = &kms.azure {
        azure(checker, wire);
    }
}

fn azure(checker: &mut Checker, azure: &AzureKms) {
    let field = Component::Kms.facts().parent.path();
    let active = format!("{field}.activeKey");
    if let Some(wire) = checker.required(&active, azure.active_key.as_ref()) {
        key(checker, &active, wire);
    }
    if let Some(wire) = &azure.backup_key {
        key(checker, &format!("{field}.backupKey"), wire);
    }
    let vault = |key: Option<&KmsKey>| key.and_then(|key| key.key_vault_name.clone());
    let same = vault(azure.backup_key.as_ref()) == vault(azure.active_key.as_ref());
    checker.rule(field, azure.backup_key.is_none() || same, message::BACKUP_KEY_VAULT);
    if let Some(text) = &azure.key_vault_type {
        checker.one_of(&format!("{field}.keyVaultType"), text, &["KeyVault", "ManagedHSM"]);
    }
    if let Some(text) = &azure.key_vault_access {
        checker.one_of(&format!("{field}.keyVaultAccess"), text, &["Public", "Private", ""]);
    }
    let (managed, workload) = (azure.kms.as_ref(), azure.workload_identity.as_ref());
    checker.rule(field, managed.is_none() || workload.is_none(), message::KMS_EXCLUSIVE);
    checker.rule(field, managed.is_some() || workload.is_some(), message::KMS_MISSING);
    if let Some(wire) = managed {
        managed_identity(checker, &Component::Kms.field_path(), wire);
    }
    if let Some(wire) = workload {
        workload_identity(checker, &format!("{field}.workloadIdentity"), wire);
    }
}

fn key(checker: &mut Checker, field: &str, wire: &KmsKey) {
    let texts = [
        ("keyVaultName", &wire.key_vault_name),
        ("keyName", &wire.key_name),
        ("keyVersion", &wire.key_version),
    ];
    for (name, value) in texts {
        checker.text(&format!("{field}.{name}"), value.as_ref(), 1..=255);
    }
}
