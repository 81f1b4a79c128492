//! `spec.secretEncryption`.

use lanyard_api::crd_definitions::validation_messages;
use lanyard_api::hosted_cluster::{
    AwsKmsSpec, AzureKmsSpec, IbmKmsAuth, IbmKmsKey, IbmKmsSpec, KmsKey, SecretEncryption,
};
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
    if let Some(wire) = &encryption.aescbc {
        checker.check_required(&format!("{field}.aescbc.activeKey"), wire.active_key.as_ref());
    }
    let Some(kms) = &encryption.kms else { return };
    let known = ["IBMCloud", "AWS", "Azure"];
    checker.check_required_one_of(&format!("{field}.kms.provider"), kms.provider.as_ref(), &known);
    if let Some(wire) = &kms.azure {
        check_azure_kms(checker, wire);
    }
    if let Some(wire) = &kms.aws {
        check_aws_kms(checker, wire);
    }
    if let Some(wire) = &kms.ibm_cloud {
        check_ibm_kms(checker, wire);
    }
}

fn check_aws_kms(checker: &mut FieldChecker, aws: &AwsKmsSpec) {
    let field = "spec.secretEncryption.kms.aws";
    checker.check_text(&format!("{field}.region"), aws.region.as_ref(), 0..=255);
    let active = checker.check_required(&format!("{field}.activeKey"), aws.active_key.as_ref());
    for (name, key) in [("activeKey", active), ("backupKey", aws.backup_key.as_ref())] {
        let Some(key) = key else { continue };
        let field = format!("{field}.{name}.arn");
        if let Some(text) = checker.check_text(&field, key.arn.as_ref(), 1..=2048) {
            checker.check_rule(&field, text.starts_with("arn:"), validation_messages::AWS_ARN);
        }
    }
    let auth = format!("{field}.auth");
    if let Some(wire) = checker.check_required(&auth, aws.auth.as_ref()) {
        checker.check_text(&format!("{auth}.awsKms"), wire.role_arn.as_ref(), 0..=2048);
    }
}

fn check_ibm_kms(checker: &mut FieldChecker, ibm: &IbmKmsSpec) {
    let field = "spec.secretEncryption.kms.ibmcloud";
    checker.check_text(&format!("{field}.region"), ibm.region.as_ref(), 0..=255);
    let auth = format!("{field}.auth");
    if let Some(wire) = checker.check_required(&auth, ibm.auth.as_ref()) {
        check_ibm_auth(checker, &auth, wire);
    }
    let list = format!("{field}.keyList");
    let Some(keys) = checker.check_required(&list, ibm.key_list.as_ref()) else { return };
    checker.check_item_count(&list, keys.len(), 0..=100);
    for (index, key) in keys.iter().enumerate() {
        check_ibm_key(checker, &format!("{list}[{index}]"), key);
    }
}

fn check_ibm_auth(checker: &mut FieldChecker, field: &str, auth: &IbmKmsAuth) {
    let known = ["Managed", "Unmanaged"];
    checker.check_required_one_of(&format!("{field}.type"), auth.auth_type.as_ref(), &known);
    if let Some(wire) = &auth.unmanaged {
        let credentials = format!("{field}.unmanaged.credentials");
        checker.check_required(&credentials, wire.credentials.as_ref());
    }
}

fn check_ibm_key(checker: &mut FieldChecker, field: &str, key: &IbmKmsKey) {
    let texts = [
        ("crkID", &key.root_key_id),
        ("instanceID", &key.instance_id),
        ("correlationID", &key.correlation_id),
    ];
    for (name, value) in texts {
        checker.check_text(&format!("{field}.{name}"), value.as_ref(), 1..=255);
    }
    let url = format!("{field}.url");
    if let Some(text) = checker.check_text(&url, key.url.as_ref(), 1..=2048) {
        checker.check_rule(&url, text.starts_with("https://"), validation_messages::IBM_KEY_URL);
    }
    let version = format!("{field}.keyVersion");
    if let Some(number) = checker.check_required(&version, key.key_version) {
        checker.check_number(&version, number, 0..=i64::from(i32::MAX));
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
