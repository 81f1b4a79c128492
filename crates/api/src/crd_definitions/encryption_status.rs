//! `status.secretEncryption`: the keys with which the data is encrypted, and the rotations.

use super::encryption::{aws_key_schema, ibm_key_schema, kms_key_schema};
use super::schema::CrdSchema;
use super::validation_messages;

const PROVIDERS: [&str; 4] = ["Azure", "AWS", "IBMCloud", "AESCBC"];

/// The record of the encryption keys.
pub(super) fn secret_encryption_status_schema() -> CrdSchema {
    CrdSchema::object()
        .with_description("The keys with which the data is encrypted.")
        .with_minimum_size(1)
        .optional_field("activeKey", key_status_schema("The key with which all data is encrypted."))
        .optional_field(
            "targetKey",
            key_status_schema("The key that replaces `activeKey` when the rotation completes."),
        )
        .optional_field("history", history_schema())
}

/// A recorded key: a union.
fn key_status_schema(description: &str) -> CrdSchema {
    let member = |member: &str, provider: &str| {
        format!("has(self.{member}) == (self.provider == '{provider}')")
    };
    CrdSchema::object()
        .with_description(description)
        .required_field(
            "provider",
            CrdSchema::enumeration(&PROVIDERS).with_description("The provider of the key."),
        )
        .optional_field("azure", kms_key_schema("A key in a vault."))
        .optional_field("aws", aws_key_schema("A key of AWS KMS."))
        .optional_field("ibmCloud", ibm_key_schema("A key of IBM Cloud."))
        .optional_field("aescbc", aescbc_key_schema())
        .with_cel_rule(&member("azure", "Azure"), validation_messages::AZURE_KEY_STATUS)
        .with_cel_rule(&member("aws", "AWS"), validation_messages::AWS_KEY_STATUS)
        .with_cel_rule(&member("ibmCloud", "IBMCloud"), validation_messages::IBM_KEY_STATUS)
        .with_cel_rule(&member("aescbc", "AESCBC"), validation_messages::AESCBC_KEY_STATUS)
}

fn aescbc_key_schema() -> CrdSchema {
    let name = CrdSchema::string(253)
        .with_minimum_size(1)
        .with_description("The name of the Secret.")
        .with_cel_rule(
            r"self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
            validation_messages::AESCBC_SECRET_NAME,
        );
    let secret = CrdSchema::object()
        .with_description("The Secret with the key.")
        .required_field("name", name);
    CrdSchema::object()
        .with_description("A key in a Secret.")
        .required_field("secret", secret)
        .required_field("dataHash", digest_schema("The SHA-256 digest of the key."))
}

fn history_schema() -> CrdSchema {
    let key = |what: &str| {
        CrdSchema::object()
            .with_description(what)
            .required_field(
                "provider",
                CrdSchema::enumeration(&PROVIDERS).with_description("The provider of the key."),
            )
            .required_field(
                "fingerprint",
                digest_schema("The SHA-256 digest of the names that identify the key."),
            )
    };
    let states = ["ReadOnlyDeploy", "WritePromote", "Migrating", "Completed", "Interrupted"];
    let rotation = CrdSchema::object()
        .with_description("One rotation.")
        .required_field("from", key("The key before the rotation."))
        .required_field("to", key("The key after the rotation."))
        .required_field(
            "state",
            CrdSchema::enumeration(&states).with_description("The state of the rotation."),
        )
        .required_field(
            "startedTime",
            CrdSchema::date_time().with_description("When the rotation started."),
        )
        .optional_field(
            "completionTime",
            CrdSchema::date_time().with_description("When the rotation ended."),
        );
    CrdSchema::bounded_list(rotation, 5)
        .with_minimum_size(1)
        .into_atomic_list()
        .with_description("The rotations, the newest first.")
}

fn digest_schema(description: &str) -> CrdSchema {
    CrdSchema::string(64).with_minimum_size(1).with_description(description)
}
