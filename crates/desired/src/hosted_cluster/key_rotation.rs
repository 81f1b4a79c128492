//! Rotation of the KMS key: the recorded state that keeps every stored value readable for the API
//! server.
//!
//! The record is `status.secretEncryption` of the HostedCluster, in HyperShift's fields and states:
//! `activeKey` encrypted the stored values, `targetKey` replaces it, and the newest entry of
//! `history` holds the state of the rotation. [`with_key_roles`] derives the roles of the keys from
//! the record. A rotation moves from [`READ_ONLY_DEPLOY_STATE`] to [`WRITE_PROMOTE_STATE`] once
//! every API server can read values of the new key. It stays in that state until all values are
//! re-encrypted and the new key is recorded as `activeKey`; until then the API servers also read
//! the old key.
//!
//! Source: the enhancement for re-encryption of etcd data in HyperShift; `SecretEncryptionStatus`
//! of `hypershift.openshift.io/v1beta1`.
//!
//! [`with_key_roles`]: super::encryption_config

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use lanyard_api::{HostedCluster, truncate_to_second};
use serde::Deserialize;
use serde_json::{Value, json};

use super::encryption_config::{
    ENCRYPTION_CONFIG_KEY, is_promoted, read_status_key, with_key_roles,
};
use super::kms_api_version::KmsApiVersion;
use super::{EncryptionKey, KmsEncryption, ValidatedHostedCluster};
use crate::problem::{ProblemSeverity, ValidationProblem};

mod data_encryption;
#[cfg(test)]
mod tests;

pub use data_encryption::{DATA_ENCRYPTION_UP_TO_DATE, DataEncryption, data_encryption};

/// State: API servers can decrypt with the new key, and still encrypt with the old one.
pub const READ_ONLY_DEPLOY_STATE: &str = "ReadOnlyDeploy";
/// State: API servers encrypt with the new key, and can still decrypt with the old one.
pub const WRITE_PROMOTE_STATE: &str = "WritePromote";
const INTERRUPTED_STATE: &str = "Interrupted";

/// The observed state that decides the next rotation step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRotationInputs<'a> {
    /// The providers of the live `EncryptionConfiguration`; `None` if it does not exist.
    pub configured_providers: Option<&'a ConfiguredProviders>,
    /// Whether every API server runs with the current key roles.
    pub is_rolled_out: bool,
    /// The current time.
    pub now: Timestamp,
}

/// The providers of an `EncryptionConfiguration`: a KMS provider by its name, any other provider by
/// its type.
///
/// The provider `identity` does not encrypt and is omitted. Source: `EncryptionConfiguration` of
/// `apiserver.config.k8s.io/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredProviders {
    /// The KMS provider that encrypts. Empty if there is not exactly one: the configuration cannot
    /// be parsed, a provider of another type encrypts, or different keys encrypt different
    /// resources.
    pub writer: String,
    /// All providers; the API server can decrypt values of each.
    pub readers: BTreeSet<String>,
}

/// The next change of `status.secretEncryption`.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyRotationStep {
    /// No change.
    Unchanged,
    /// Write this record before any other change.
    Record {
        /// The whole `status.secretEncryption`.
        status: Value,
        /// The reason of the event.
        reason: &'static str,
        /// The message of the event, including the suggested next step.
        message: String,
        /// Whether the encrypting key would change without this record.
        is_required: bool,
    },
    /// Write no objects: the HostedCluster names neither in its spec nor in its status a key that
    /// encrypts or has encrypted values, so the key would be lost.
    WouldLoseKey(ValidationProblem),
}

/// Returns the next step of a cluster's key rotation, from its spec and its record.
pub fn next_key_rotation_step(
    cluster: &ValidatedHostedCluster,
    wire: &HostedCluster,
    inputs: &KeyRotationInputs<'_>,
) -> KeyRotationStep {
    let Some(encryption) = &cluster.encryption else { return KeyRotationStep::Unchanged };
    let spec = &encryption.active_key;
    let Some((status, known)) = key_record(wire) else {
        return first_key_record(encryption, inputs);
    };
    let rotation = |target| KeyRotation {
        from: &known,
        to: target,
        status,
        is_managed_hsm: encryption.is_managed_hsm,
        now: inputs.now,
    };
    match read_status_key(status, "targetKey") {
        Some(_) if is_promoted(status) => KeyRotationStep::Unchanged,
        None if known == *spec => KeyRotationStep::Unchanged,
        None => rotation(spec).begin(),
        Some(target) if target != *spec => rotation(spec).replace_target(&target),
        Some(target) if inputs.is_rolled_out => rotation(&target).promote(),
        Some(_) => KeyRotationStep::Unchanged,
    }
}

/// Returns whether a rotation waits for the rollout of the API servers, so that
/// [`KeyRotationInputs::is_rolled_out`] matters.
pub fn awaits_api_server_rollout(cluster: &ValidatedHostedCluster, wire: &HostedCluster) -> bool {
    let Some(spec) = cluster.encryption.as_ref().map(|encryption| &encryption.active_key) else {
        return false;
    };
    key_record(wire).is_some_and(|(status, _)| {
        !is_promoted(status) && read_status_key(status, "targetKey").as_ref() == Some(spec)
    })
}

/// Returns whether the HostedCluster has a key record.
pub fn has_key_record(wire: &HostedCluster) -> bool {
    key_record(wire).is_some()
}

/// Lints a rotation between private vaults, which the API servers cannot reach at the same time: the
/// private router of HyperShift knows only the vault of the spec's active key.
pub fn lint_private_rotation(
    cluster: &ValidatedHostedCluster,
    wire: &HostedCluster,
) -> Option<ValidationProblem> {
    let encryption = with_key_roles(cluster, wire).encryption?;
    if !encryption.is_private_access {
        return None;
    }
    let (_, stranded) = encryption.keys().find(|(_, key)| !encryption.is_routed(key))?;
    Some(ValidationProblem {
        field: "spec.secretEncryption.kms.azure.activeKey.keyVaultName".to_owned(),
        severity: ProblemSeverity::Lint,
        message: format!(
            "the private router leads only to the vault `{}`, so the API servers cannot use {stranded}",
            encryption.routed_vault
        ),
        hint: Some(format!(
            "restore a key of the vault `{}`; or make this vault reachable from the management cluster without the router until all values are re-encrypted",
            stranded.vault
        )),
    })
}

/// Lints a rotation that needs manual re-encryption to finish.
pub fn lint_key_rotation(wire: &HostedCluster) -> Option<ValidationProblem> {
    let (status, known) = key_record(wire)?;
    let target = read_status_key(status, "targetKey").filter(|_| is_promoted(status))?;
    Some(ValidationProblem {
        field: "status.secretEncryption.targetKey".to_owned(),
        severity: ProblemSeverity::Lint,
        message: format!("{target} encrypts, and {known} is kept to read what it encrypted"),
        hint: Some(format!(
            "re-encrypt all Secrets in the hosted cluster, then record {target} as `activeKey` and remove `targetKey`; another change of the key waits for that"
        )),
    })
}

/// Returns the providers in the Secret with an `EncryptionConfiguration`. The Secret may be written
/// by lanyard or by HyperShift.
pub fn read_configured_providers(secret: &Value) -> ConfiguredProviders {
    let Some(configuration) = parse_encryption_configuration(secret) else {
        return ConfiguredProviders::default();
    };
    ConfiguredProviders {
        writer: configuration.writer_name().unwrap_or_default(),
        readers: configuration.reader_names(),
    }
}

/// Returns the KMS API version in the Secret with an `EncryptionConfiguration`: that of the provider
/// that encrypts. A configuration in which no KMS provider encrypts gets the version of a new one.
pub fn read_kms_api_version(secret: &Value) -> KmsApiVersion {
    let configuration = parse_encryption_configuration(secret);
    let resources = configuration.iter().flat_map(|configuration| &configuration.resources);
    let mut writers = resources.filter_map(|entry| entry.providers.first()?.get("kms"));
    match writers.next().map(|kms| kms.get("apiVersion").and_then(Value::as_str)) {
        // The API server reads a KMS provider without a version as `v1`.
        Some(None | Some("v1")) => KmsApiVersion::V1,
        None | Some(Some(_)) => KmsApiVersion::V2,
    }
}

/// The fields of an `EncryptionConfiguration` that determine the encrypting provider.
#[derive(Debug, Deserialize)]
struct EncryptionConfiguration {
    resources: Vec<EncryptedResources>,
}

#[derive(Debug, Deserialize)]
struct EncryptedResources {
    providers: Vec<BTreeMap<String, Value>>,
}

fn parse_encryption_configuration(secret: &Value) -> Option<EncryptionConfiguration> {
    let data = secret.get("data")?.get(ENCRYPTION_CONFIG_KEY)?.clone();
    let bytes: ByteString = serde_json::from_value(data).ok()?;
    let text = std::str::from_utf8(&bytes.0).ok()?;
    serde_saphyr::from_str(text).ok()
}

impl EncryptionConfiguration {
    fn reader_names(&self) -> BTreeSet<String> {
        let providers = self.resources.iter().flat_map(|entry| &entry.providers).flatten();
        let names = providers.filter(|(kind, _)| *kind != "identity").map(|(kind, settings)| {
            let name = settings.get("name").and_then(Value::as_str);
            name.filter(|_| kind == "kms").unwrap_or(kind).to_owned()
        });
        names.collect()
    }

    /// The first provider of each entry encrypts.
    fn writer_name(&self) -> Option<String> {
        let mut writer = None;
        for entry in &self.resources {
            let provider = entry.providers.first()?;
            let (kind, settings) = provider.iter().next().filter(|_| provider.len() == 1)?;
            match kind.as_str() {
                "identity" => {}
                "kms" => {
                    let name = settings.get("name")?.as_str()?;
                    if *writer.get_or_insert(name) != name {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        writer.map(str::to_owned)
    }
}

/// Returns whether a Deployment is rolled out: every pod has the current template, and no earlier
/// pod is left.
pub fn is_rolled_out(deployment: &Value) -> bool {
    let count = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64);
    let wanted = count("/spec/replicas").unwrap_or(1);
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    count("/status/observedGeneration").is_some()
        && count("/status/observedGeneration") == count("/metadata/generation")
        && wanted > 0
        && counts.iter().all(|name| count(&format!("/status/{name}")) == Some(wanted))
        && count("/status/terminatingReplicas").unwrap_or(0) == 0
}

fn key_record(wire: &HostedCluster) -> Option<(&Value, EncryptionKey)> {
    let status = wire.unknown.get("status")?.get("secretEncryption")?;
    Some((status, read_status_key(status, "activeKey")?))
}

/// Creates the first record, with the key that encrypts now, even if the spec has changed
/// meanwhile.
fn first_key_record(encryption: &KmsEncryption, inputs: &KeyRotationInputs<'_>) -> KeyRotationStep {
    let active = &encryption.active_key;
    let backup = encryption.backup_key.as_ref().filter(|backup| *backup != active);
    let writes = |key: &EncryptionKey| match inputs.configured_providers {
        Some(configured) => configured.writer == encryption.provider_name(key),
        None => key == active,
    };
    let is_named = |provider: &str| {
        let keys = [Some(active), backup].into_iter().flatten();
        keys.into_iter().any(|key| provider == encryption.provider_name(key))
    };
    let mut readers =
        inputs.configured_providers.into_iter().flat_map(|configured| &configured.readers);
    let forgotten = readers.find(|reader| !is_named(reader.as_str()));
    let status = match backup {
        _ if !writes(active) && !backup.is_some_and(writes) => {
            return unknown_writer(active, inputs.configured_providers);
        }
        _ if let Some(reader) = forgotten => return unknown_reader(active, reader),
        None => json!({"activeKey": status_key(active)}),
        Some(backup) if writes(active) => {
            let rotation = KeyRotation {
                from: backup,
                to: active,
                status: &Value::Null,
                is_managed_hsm: encryption.is_managed_hsm,
                now: inputs.now,
            };
            json!({
                "activeKey": status_key(backup),
                "targetKey": status_key(active),
                "history": [rotation.history_entry(WRITE_PROMOTE_STATE)],
            })
        }
        Some(backup) => json!({"activeKey": status_key(backup)}),
    };
    let message = "the key that encrypts is recorded in `status.secretEncryption`, so that a change of it keeps the old one".to_owned();
    let is_needed = !writes(active);
    KeyRotationStep::Record {
        status,
        reason: "EncryptionKeyRecorded",
        message,
        is_required: is_needed,
    }
}

fn unknown_writer(
    active: &EncryptionKey,
    configured: Option<&ConfiguredProviders>,
) -> KeyRotationStep {
    let writer = configured.map(|it| it.writer.as_str()).filter(|writer| !writer.is_empty());
    let writer = writer.unwrap_or("an unknown provider");
    would_lose_key(
        format!(
            "the API server encrypts with another key than {active} (provider `{writer}`), which is not recorded: without that key its values could not be decrypted"
        ),
        "restore the key, or set it as `backupKey`; the new key follows in two stages",
    )
}

/// An unrecorded rotation was in progress, and it is unknown whether all values were re-encrypted.
fn unknown_reader(active: &EncryptionKey, reader: &str) -> KeyRotationStep {
    would_lose_key(
        format!(
            "the API server encrypts with {active} and reads what the provider `{reader}` encrypted, which is not recorded: without its key such values could not be decrypted"
        ),
        "set its key as `backupKey`; or re-encrypt all Secrets in the hosted cluster, and record the key of the spec in `status.secretEncryption.activeKey`",
    )
}

fn would_lose_key(message: String, hint: &str) -> KeyRotationStep {
    KeyRotationStep::WouldLoseKey(ValidationProblem {
        field: "spec.secretEncryption.kms.azure.activeKey".to_owned(),
        severity: ProblemSeverity::Error,
        message,
        hint: Some(hint.to_owned()),
    })
}

/// A rotation from one key to another.
#[derive(Debug, Clone, Copy)]
struct KeyRotation<'a> {
    from: &'a EncryptionKey,
    to: &'a EncryptionKey,
    status: &'a Value,
    is_managed_hsm: bool,
    now: Timestamp,
}

impl KeyRotation<'_> {
    /// Starts the rotation: API servers learn to decrypt with the new key.
    fn begin(self) -> KeyRotationStep {
        let history = self.history();
        let message = format!(
            "the rotation from {} to {} starts: every API server learns to decrypt with the new key",
            self.from, self.to
        );
        self.record_new_entry(
            READ_ONLY_DEPLOY_STATE,
            history,
            "EncryptionKeyRotationBegan",
            message,
        )
    }

    /// Replaces the target key. This is safe before the promotion, because the target has not
    /// encrypted any value.
    fn replace_target(self, target: &EncryptionKey) -> KeyRotationStep {
        let mut history = self.history();
        if let Some(newest) = history.first_mut() {
            newest["state"] = json!(INTERRUPTED_STATE);
            newest["completionTime"] = json!(truncate_to_second(self.now));
        }
        if self.to == self.from {
            let status = json!({"activeKey": status_key(self.from), "history": history});
            let message =
                format!("the rotation to {target} is canceled: the key has encrypted nothing");
            let reason = "EncryptionKeyRotationEnded";
            return KeyRotationStep::Record { status, reason, message, is_required: false };
        }
        let message = format!("{} replaces {target}, which has encrypted nothing", self.to);
        self.record_new_entry(
            READ_ONLY_DEPLOY_STATE,
            history,
            "EncryptionKeyRotationBegan",
            message,
        )
    }

    /// Promotes the new key to encrypt, once every API server can decrypt with it.
    fn promote(self) -> KeyRotationStep {
        let mut history = self.history();
        let is_this = |newest: &Value| newest["state"] == READ_ONLY_DEPLOY_STATE;
        let message = format!(
            "{} encrypts from now on, and {} only decrypts; re-encrypt all Secrets in the hosted cluster, then record the new key as `activeKey`",
            self.to, self.from
        );
        let reason = "EncryptionKeyPromoted";
        match history.first_mut().filter(|newest| is_this(newest)) {
            Some(newest) => {
                newest["state"] = json!(WRITE_PROMOTE_STATE);
                self.record_status(history, reason, message)
            }
            None => self.record_new_entry(WRITE_PROMOTE_STATE, history, reason, message),
        }
    }

    /// Records a state with a new history entry.
    fn record_new_entry(
        self,
        state: &str,
        mut history: Vec<Value>,
        reason: &'static str,
        message: String,
    ) -> KeyRotationStep {
        history.insert(0, self.history_entry(state));
        history.truncate(MAX_HISTORY_ENTRIES);
        self.record_status(history, reason, message)
    }

    /// Records a state with this history and unchanged keys.
    fn record_status(
        self,
        history: Vec<Value>,
        reason: &'static str,
        message: String,
    ) -> KeyRotationStep {
        let status = json!({
            "activeKey": status_key(self.from),
            "targetKey": status_key(self.to),
            "history": history,
        });
        KeyRotationStep::Record { status, reason, message, is_required: false }
    }

    fn history(self) -> Vec<Value> {
        let history = self.status.get("history").and_then(Value::as_array);
        history.cloned().unwrap_or_default()
    }

    fn history_entry(self, state: &str) -> Value {
        json!({
            "from": key_reference(self.from, self.is_managed_hsm),
            "to": key_reference(self.to, self.is_managed_hsm),
            "state": state,
            "startedTime": truncate_to_second(self.now),
        })
    }
}

fn status_key(key: &EncryptionKey) -> Value {
    let azure = json!({
        "keyVaultName": key.vault.as_str(),
        "keyName": key.name.as_str(),
        "keyVersion": key.version,
    });
    json!({"provider": "Azure", "azure": azure})
}

/// Returns the history's reference to a key.
fn key_reference(key: &EncryptionKey, is_managed_hsm: bool) -> Value {
    json!({"provider": "Azure", "fingerprint": key_fingerprint(key, is_managed_hsm)})
}

/// Returns HyperShift's fingerprint of a key: the hexadecimal SHA-256 of `vault/name/version`, with
/// `/ManagedHSM` for a key of a managed HSM.
fn key_fingerprint(key: &EncryptionKey, is_managed_hsm: bool) -> String {
    let hsm = if is_managed_hsm { "/ManagedHSM" } else { "" };
    let text = format!("{}/{}/{}{hsm}", key.vault, key.name, key.version);
    hex::encode(digest(&SHA256, text.as_bytes()))
}

/// Source: `maxItems` of `history`.
const MAX_HISTORY_ENTRIES: usize = 5;
