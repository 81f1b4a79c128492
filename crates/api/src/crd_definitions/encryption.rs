//! `spec.secretEncryption`.

use super::authentication::{managed_identity_schema, workload_identity_schema};
use super::schema::CrdSchema;
use super::validation_messages;

/// `secretEncryption`: a union of which the API checks only the discriminators.
pub(super) fn secret_encryption_schema() -> CrdSchema {
    let kms = CrdSchema::object()
        .with_description("Encryption with a key management service.")
        .required_field("provider", CrdSchema::enumeration(&["IBMCloud", "AWS", "Azure"]))
        .optional_field("azure", azure_kms_schema())
        .optional_field("aws", aws_kms_schema())
        .optional_field("ibmcloud", ibm_kms_schema());
    let aescbc = CrdSchema::object()
        .with_description("Encryption with a key in a Secret.")
        .required_field(
            "activeKey",
            CrdSchema::local_reference("The key that is used for encryption."),
        )
        .optional_field(
            "backupKey",
            CrdSchema::local_reference("A key that is used only for decryption (deprecated)."),
        );
    CrdSchema::object()
        .with_description("Encryption of secrets at rest.")
        .required_field("type", CrdSchema::enumeration(&["kms", "aescbc"]))
        .optional_field("kms", kms)
        .optional_field("aescbc", aescbc)
}

fn aws_kms_schema() -> CrdSchema {
    let auth =
        CrdSchema::object().with_description("The role that may use the key.").required_field(
            "awsKms",
            CrdSchema::string(2048).with_description("The Amazon Resource Name of the role."),
        );
    CrdSchema::object()
        .with_description("Keys of AWS KMS.")
        .required_field("region", CrdSchema::string(255).with_description("The AWS region."))
        .required_field("activeKey", aws_key_schema("The key that is used for encryption."))
        .optional_field(
            "backupKey",
            aws_key_schema("A key that is used only for decryption (deprecated)."),
        )
        .required_field("auth", auth)
}

/// A key of AWS KMS, in the spec and in the status.
pub(super) fn aws_key_schema(description: &str) -> CrdSchema {
    let arn = CrdSchema::string(2048)
        .with_minimum_size(1)
        .with_description("The Amazon Resource Name of the key.")
        .with_cel_rule("self.startsWith('arn:')", validation_messages::AWS_ARN);
    CrdSchema::object().with_description(description).required_field("arn", arn)
}

fn ibm_kms_schema() -> CrdSchema {
    let unmanaged = CrdSchema::object()
        .with_description("Credentials of the user.")
        .required_field("credentials", CrdSchema::local_reference("The Secret with the API key."));
    let auth = CrdSchema::object()
        .with_description("How the plugin authenticates.")
        .required_field("type", CrdSchema::enumeration(&["Managed", "Unmanaged"]))
        .optional_field(
            "managed",
            CrdSchema::object().with_description("Authentication between services."),
        )
        .optional_field("unmanaged", unmanaged);
    CrdSchema::object()
        .with_description("Keys of IBM Cloud.")
        .required_field("region", CrdSchema::string(255).with_description("The IBM Cloud region."))
        .required_field("auth", auth)
        .required_field(
            "keyList",
            CrdSchema::bounded_list(ibm_key_schema("One key."), 100).with_description("The keys."),
        )
}

/// A key of IBM Cloud, in the spec and in the status.
pub(super) fn ibm_key_schema(description: &str) -> CrdSchema {
    let text = |what: &str| CrdSchema::string(255).with_minimum_size(1).with_description(what);
    let url = CrdSchema::string(2048)
        .with_minimum_size(1)
        .with_description("The URL of the key service.")
        .with_cel_rule("self.startsWith('https://')", validation_messages::IBM_KEY_URL);
    CrdSchema::object()
        .with_description(description)
        .required_field("crkID", text("The id of the root key."))
        .required_field("instanceID", text("The id of the instance of the key service."))
        .required_field("correlationID", text("The id that marks the calls of the plugin."))
        .required_field("url", url)
        .required_field(
            "keyVersion",
            CrdSchema::integer_between(0, 2_147_483_647).with_description("The number of the key."),
        )
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

/// A key in a vault, in the spec and in the status.
pub(super) fn kms_key_schema(description: &str) -> CrdSchema {
    let text = |what: &str| CrdSchema::string(255).with_minimum_size(1).with_description(what);
    CrdSchema::object()
        .with_description(description)
        .required_field("keyVaultName", text("The vault."))
        .required_field("keyName", text("The key."))
        .required_field("keyVersion", text("The version of the key."))
}
