//! `spec.secretEncryption`. What belongs to other providers is kept as it comes.

use super::authentication::{managed_identity, workload_identity};
use super::message;
use super::schema::Schema;

/// `secretEncryption`: a union, of which the API checks no more than the discriminators.
pub(super) fn secret_encryption() -> Schema {
    let kms = Schema::object()
        .describe("Encryption by a key management service.")
        .open()
        .required("provider", Schema::choice(&["IBMCloud", "AWS", "Azure"]))
        .field("azure", azure_kms());
    Schema::object()
        .describe("Encryption of secrets at rest.")
        .open()
        .required("type", Schema::choice(&["kms", "aescbc"]))
        .field("kms", kms)
}

fn azure_kms() -> Schema {
    let kinds = ["KeyVault", "ManagedHSM"];
    let kind_of =
        |object: &str| format!("(has({object}.keyVaultType) ? {object}.keyVaultType : 'KeyVault')");
    Schema::object()
        .describe("Keys in a vault.")
        .required("activeKey", key("The key that encrypts."))
        .field("backupKey", key("A key that still decrypts (deprecated)."))
        .field("kms", managed_identity().describe("The identity, on managed Azure."))
        .field(
            "workloadIdentity",
            workload_identity().describe("The identity, on self-managed Azure."),
        )
        .field("keyVaultType", Schema::choice(&kinds).describe("What holds the keys."))
        .field(
            "keyVaultAccess",
            Schema::choice(&["Public", "Private", ""]).describe("How the vault is reached."),
        )
        .rule(
            "!has(self.backupKey) || self.backupKey.keyVaultName == self.activeKey.keyVaultName",
            message::BACKUP_KEY_VAULT,
        )
        .rule("!has(self.kms) || !has(self.workloadIdentity)", message::KMS_EXCLUSIVE)
        .rule("has(self.kms) || has(self.workloadIdentity)", message::KMS_MISSING)
        .rule(
            "has(self.kms) == has(oldSelf.kms) && has(self.workloadIdentity) == has(oldSelf.workloadIdentity)",
            message::KMS_MODE_IMMUTABLE,
        )
        .rule(
            &format!("{} == {}", kind_of("self"), kind_of("oldSelf")),
            message::KEY_VAULT_TYPE_IMMUTABLE,
        )
}

fn key(description: &str) -> Schema {
    let text = |what: &str| Schema::text(255).at_least(1).describe(what);
    Schema::object()
        .describe(description)
        .required("keyVaultName", text("The vault."))
        .required("keyName", text("The key."))
        .required("keyVersion", text("The version of the key."))
}
