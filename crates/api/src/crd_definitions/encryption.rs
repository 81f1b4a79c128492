//! `spec.secretEncryption`. Fields of other providers are preserved unchecked.

use super::authentication::{managed_identity_schema, workload_identity_schema};
use super::schema::CrdSchema;
use super::validation_messages;

/// `secretEncryption`: a union of which the API checks only the discriminators.
pub(super) fn secret_encryption_schema() -> CrdSchema {
    let kms = CrdSchema::object()
        .with_description("Encryption with a key management service.")
        .preserve_unknown_fields()
        .required_field("provider", CrdSchema::enumeration(&["IBMCloud", "AWS", "Azure"]))
        .optional_field("azure", azure_kms_schema());
    CrdSchema::object()
        .with_description("Encryption of secrets at rest.")
        .preserve_unknown_fields()
        .required_field("type", CrdSchema::enumeration(&["kms", "aescbc"]))
        .optional_field("kms", kms)
}

fn azure_kms_schema() -> CrdSchema {
    let kinds = ["KeyVault", "ManagedHSM"];
    let kind_of =
        |object: &str| format!("(has({object}.keyVaultType) ? {object}.keyVaultType : 'KeyVault')");
    CrdSchema::object()
        .with_description("Keys in a vault.")
        .required_field("activeKey", kms_key_schema("The key that is used for encryption."))
        .optional_field("backupKey", kms_key_schema("A key that is used only for decryption (deprecated)."))
        .optional_field("kms", managed_identity_schema().with_description("The identity, on managed Azure."))
        .optional_field(
            "workloadIdentity",
            workload_identity_schema().with_description("The identity, on self-managed Azure."),
        )
        .optional_field("keyVaultType", CrdSchema::enumeration(&kinds).with_description("The provider of the keys."))
        .optional_field(
            "keyVaultAccess",
            CrdSchema::enumeration(&["Public", "Private", ""]).with_description("Whether the vault is public or private."),
        )
        .with_cel_rule(
            "!has(self.backupKey) || self.backupKey.keyVaultName == self.activeKey.keyVaultName",
            validation_messages::BACKUP_KEY_VAULT,
        )
        .with_cel_rule("!has(self.kms) || !has(self.workloadIdentity)", validation_messages::KMS_EXCLUSIVE)
        .with_cel_rule("has(self.kms) || has(self.workloadIdentity)", validation_messages::KMS_MISSING)
        .with_cel_rule(
            "has(self.kms) == has(oldSelf.kms) && has(self.workloadIdentity) == has(oldSelf.workloadIdentity)",
            validation_messages::KMS_MODE_IMMUTABLE,
        )
        .with_cel_rule(
            &format!("{} == {}", kind_of("self"), kind_of("oldSelf")),
            validation_messages::KEY_VAULT_TYPE_IMMUTABLE,
        )
}

fn kms_key_schema(description: &str) -> CrdSchema {
    let text = |what: &str| CrdSchema::string(255).with_minimum_size(1).with_description(what);
    CrdSchema::object()
        .with_description(description)
        .required_field("keyVaultName", text("The vault."))
        .required_field("keyName", text("The key."))
        .required_field("keyVersion", text("The version of the key."))
}
