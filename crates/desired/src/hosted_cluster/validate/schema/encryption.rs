//! `spec.secretEncryption`.

use lanyard_api::crd_definitions::validation_messages;
use lanyard_api::hosted_cluster::{AzureKmsSpec, KmsKey, SecretEncryption};
use lanyard_vocabulary::Component;

use super::authentication::{check_managed_identity, check_workload_identity};
use crate::hosted_cluster::validate::checker::FieldChecker;

/// The schema checks only the discriminators of the unions.
pub(super) fn check_secret_encryption(checker: &mut FieldChecker, encryption: &SecretEncryption) {
    let field = "spec.secretEncryption";
    let known = ["kms", "aescbc"];
    checker.check_required_one_of(
        &format!("{field}.type"),
        encryption.encryption_type.as_ref(),
        &known,
    );
    let Some(kms) = &encryption.kms else { return };
    let known = ["IBMCloud", "AWS", "Azure"];
    checker.check_required_one_of(&format!("{field}.kms.provider"), kms.provider.as_ref(), &known);
    if let Some(wire) = &kms.azure {
        check_azure_kms(checker, wire);
    }
}

fn check_azure_kms(checker: &mut FieldChecker, azure: &AzureKmsSpec) {
    let field = Component::Kms.definition().parent.path();
    let active = format!("{field}.activeKey");
    if let Some(wire) = checker.check_required(&active, azure.active_key.as_ref()) {
        check_key(checker, &active, wire);
    }
    if let Some(wire) = &azure.backup_key {
        check_key(checker, &format!("{field}.backupKey"), wire);
    }
    let vault = |key: Option<&KmsKey>| key.and_then(|key| key.key_vault_name.clone());
    let same = vault(azure.backup_key.as_ref()) == vault(azure.active_key.as_ref());
    checker.check_rule(
        field,
        azure.backup_key.is_none() || same,
        validation_messages::BACKUP_KEY_VAULT,
    );
    if let Some(text) = &azure.key_vault_type {
        checker.check_one_of(&format!("{field}.keyVaultType"), text, &["KeyVault", "ManagedHSM"]);
    }
    if let Some(text) = &azure.key_vault_access {
        checker.check_one_of(&format!("{field}.keyVaultAccess"), text, &["Public", "Private", ""]);
    }
    let (managed, workload) = (azure.kms.as_ref(), azure.workload_identity.as_ref());
    checker.check_rule(
        field,
        managed.is_none() || workload.is_none(),
        validation_messages::KMS_EXCLUSIVE,
    );
    checker.check_rule(
        field,
        managed.is_some() || workload.is_some(),
        validation_messages::KMS_MISSING,
    );
    if let Some(wire) = managed {
        check_managed_identity(checker, &Component::Kms.field_path(), wire);
    }
    if let Some(wire) = workload {
        check_workload_identity(checker, &format!("{field}.workloadIdentity"), wire);
    }
}

fn check_key(checker: &mut FieldChecker, field: &str, wire: &KmsKey) {
    let texts = [
        ("keyVaultName", &wire.key_vault_name),
        ("keyName", &wire.key_name),
        ("keyVersion", &wire.key_version),
    ];
    for (name, value) in texts {
        checker.check_text(&format!("{field}.{name}"), value.as_ref(), 1..=255);
    }
}
