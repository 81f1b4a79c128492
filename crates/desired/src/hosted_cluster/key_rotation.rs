//! What is recorded about the key that encrypts, so that no change of it leaves values that the API
//! server cannot read.
//!
//! The record is `status.secretEncryption` of the HostedCluster, in the fields and states of the
//! reference: `activeKey` has encrypted what is there, `targetKey` is to take its place, and the
//! state of the newest entry of `history` says how far that came. [`with_key_roles`] gives the keys
//! their parts by it. A rotation goes from [`READ_ONLY_DEPLOY`] to [`WRITE_PROMOTE`] once every API
//! server can read what the new key writes. There it stays: whoever has written all values anew
//! records the new key as `activeKey`, and until then the old one is read.
//!
//! Source: the enhancement for re-encryption of etcd data in HyperShift; `SecretEncryptionStatus`
//! of `hypershift.openshift.io/v1beta1`.
//!
//! [`with_key_roles`]: super::encryption_config

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use lanyard_api::{HostedCluster, whole_second};
use serde::Deserialize;
use serde_json::{Value, json};

use super::encryption_config::{ENCRYPTION_CONFIG, is_promoted, key_in};
use super::{Encryption, EncryptionKey, ValidatedHostedCluster};
use crate::problem::{Problem, Severity};

#[cfg(test)]
mod tests;

/// The new key is read and does not write yet.
pub const READ_ONLY_DEPLOY: &str = "ReadOnlyDeploy";
/// The new key writes, and the old one is read.
pub const WRITE_PROMOTE: &str = "WritePromote";
const INTERRUPTED: &str = "Interrupted";

/// What a step is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyEvidence<'a> {
    /// What is in the `EncryptionConfiguration` that is there; nothing where there is none.
    pub configured: Option<&'a ConfiguredProviders>,
    /// Whether every API server runs with the parts that the keys have now.
    pub has_rolled: bool,
    /// The time.
    pub now: Timestamp,
}

/// The providers of an `EncryptionConfiguration`: a KMS provider by its name, any other one by its kind.
///
/// `identity` encrypts nothing and is none. Source: `EncryptionConfiguration` of
/// `apiserver.config.k8s.io/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredProviders {
    /// The KMS provider that writes; empty where there is not exactly one: the configuration cannot be
    /// read, a provider of another kind writes, or several keys do, each for other resources.
    pub writer: String,
    /// All of them: what any of them wrote is read.
    pub readers: BTreeSet<String>,
}

/// What is to be done about the record.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyStep {
    /// Nothing.
    Keep,
    /// It becomes this, before anything else is done.
    Record {
        /// The whole `status.secretEncryption`.
        status: Value,
        /// A word for what happens.
        reason: &'static str,
        /// What happens, and what is to be done.
        message: String,
        /// Whether another key than now would write without it.
        is_needed: bool,
    },
    /// Nothing may be written: a key that encrypts, or that something was encrypted with, is in no
    /// field, and would be lost.
    Lost(Problem),
}

/// The next step of the keys of a cluster, by its spec and its record.
pub fn key_step(
    cluster: &ValidatedHostedCluster,
    wire: &HostedCluster,
    evidence: &KeyEvidence<'_>,
) -> KeyStep {
    let Some(encryption) = &cluster.encryption else { return KeyStep::Keep };
    let spec = &encryption.active_key;
    let Some((status, known)) = record_of(wire) else { return first(encryption, evidence) };
    let rotation = |target| Rotation { from: &known, to: target, status, now: evidence.now };
    match key_in(status, "targetKey") {
        Some(_) if is_promoted(status) => KeyStep::Keep,
        None if known == *spec => KeyStep::Keep,
        None => rotation(spec).begin(),
        Some(target) if target != *spec => rotation(spec).replace(&target),
        Some(target) if evidence.has_rolled => rotation(&target).promote(),
        Some(_) => KeyStep::Keep,
    }
}

/// Whether a rotation waits for the API servers: [`KeyEvidence::has_rolled`] matters.
pub fn awaits_rollout(cluster: &ValidatedHostedCluster, wire: &HostedCluster) -> bool {
    let Some(spec) = cluster.encryption.as_ref().map(|encryption| &encryption.active_key) else {
        return false;
    };
    record_of(wire).is_some_and(|(status, _)| {
        !is_promoted(status) && key_in(status, "targetKey").as_ref() == Some(spec)
    })
}

/// Whether anything is recorded yet.
pub fn is_recorded(wire: &HostedCluster) -> bool {
    record_of(wire).is_some()
}

/// What a person has to do for a rotation to come to its end.
pub fn lint_rotation(wire: &HostedCluster) -> Option<Problem> {
    let (status, known) = record_of(wire)?;
    let target = key_in(status, "targetKey").filter(|_| is_promoted(status))?;
    Some(Problem {
        field: "status.secretEncryption.targetKey".to_owned(),
        severity: Severity::Lint,
        message: format!("{target} encrypts, and {known} is kept to read what it encrypted"),
        hint: Some(format!(
            "write all Secrets anew in the hosted cluster, then record {target} as `activeKey` and take `targetKey` away; another change of the key waits for that"
        )),
    })
}

/// The providers in the Secret with an `EncryptionConfiguration`, whoever wrote it.
pub fn providers_in(secret: &Value) -> ConfiguredProviders {
    let Some(configuration) = configuration_in(secret) else {
        return ConfiguredProviders::default();
    };
    ConfiguredProviders {
        writer: configuration.writer().unwrap_or_default(),
        readers: configuration.readers(),
    }
}

/// As much of an `EncryptionConfiguration` as tells who writes.
#[derive(Debug, Deserialize)]
struct EncryptionConfiguration {
    resources: Vec<EncryptedResources>,
}

#[derive(Debug, Deserialize)]
struct EncryptedResources {
    providers: Vec<BTreeMap<String, Value>>,
}

fn configuration_in(secret: &Value) -> Option<EncryptionConfiguration> {
    let data = secret.get("data")?.get(ENCRYPTION_CONFIG)?.clone();
    let bytes: ByteString = serde_json::from_value(data).ok()?;
    let text = std::str::from_utf8(&bytes.0).ok()?;
    serde_saphyr::from_str(text).ok()
}

impl EncryptionConfiguration {
    fn readers(&self) -> BTreeSet<String> {
        let providers = self.resources.iter().flat_map(|entry| &entry.providers).flatten();
        let names = providers.filter(|(kind, _)| *kind != "identity").map(|(kind, settings)| {
            let name = settings.get("name").and_then(Value::as_str);
            name.filter(|_| kind == "kms").unwrap_or(kind).to_owned()
        });
        names.collect()
    }

    /// The first provider of each entry is the one that writes.
    fn writer(&self) -> Option<String> {
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

/// Whether every pod of a Deployment is of its present template, and none of an earlier one is left.
pub fn has_rolled(deployment: &Value) -> bool {
    let count = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64);
    let wanted = count("/spec/replicas").unwrap_or(1);
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    count("/status/observedGeneration").is_some()
        && count("/status/observedGeneration") == count("/metadata/generation")
        && wanted > 0
        && counts.iter().all(|name| count(&format!("/status/{name}")) == Some(wanted))
        && count("/status/terminatingReplicas").unwrap_or(0) == 0
}

fn record_of(wire: &HostedCluster) -> Option<(&Value, EncryptionKey)> {
    let status = wire.unknown.get("status")?.get("secretEncryption")?;
    Some((status, key_in(status, "activeKey")?))
}

/// Nothing is recorded yet: what writes now is, whatever the spec became meanwhile.
fn first(encryption: &Encryption, evidence: &KeyEvidence<'_>) -> KeyStep {
    let active = &encryption.active_key;
    let backup = encryption.backup_key.as_ref().filter(|backup| *backup != active);
    let writes = |key: &EncryptionKey| match evidence.configured {
        Some(configured) => configured.writer == encryption.provider_name(key),
        None => key == active,
    };
    let is_named = |provider: &str| {
        let keys = [Some(active), backup].into_iter().flatten();
        keys.into_iter().any(|key| provider == encryption.provider_name(key))
    };
    let mut readers = evidence.configured.into_iter().flat_map(|configured| &configured.readers);
    let forgotten = readers.find(|reader| !is_named(reader.as_str()));
    let status = match backup {
        _ if !writes(active) && !backup.is_some_and(writes) => {
            return lost_writer(active, evidence.configured);
        }
        _ if let Some(reader) = forgotten => return lost_reader(active, reader),
        None => json!({"activeKey": recorded(active)}),
        Some(backup) if writes(active) => json!({
            "activeKey": recorded(backup),
            "targetKey": recorded(active),
            "history": [entry(backup, active, WRITE_PROMOTE, evidence.now)],
        }),
        Some(backup) => json!({"activeKey": recorded(backup)}),
    };
    let message = "the key that encrypts is recorded in `status.secretEncryption`, so that a change of it keeps the old one".to_owned();
    let is_needed = !writes(active);
    KeyStep::Record { status, reason: "EncryptionKeyRecorded", message, is_needed }
}

fn lost_writer(active: &EncryptionKey, configured: Option<&ConfiguredProviders>) -> KeyStep {
    let writer = configured.map(|it| it.writer.as_str()).filter(|writer| !writer.is_empty());
    let writer = writer.unwrap_or("a provider that is not known");
    lost(
        format!(
            "the API server encrypts with another key than {active} (provider `{writer}`), and nothing is recorded of it: without it its values could not be read"
        ),
        "set the key back, or name it as `backupKey`; the new key follows in two stages",
    )
}

/// A rotation was under way, and nobody knows whether all values were written anew.
fn lost_reader(active: &EncryptionKey, reader: &str) -> KeyStep {
    lost(
        format!(
            "the API server encrypts with {active} and reads what the provider `{reader}` encrypted, of which nothing is recorded: without it such values could not be read"
        ),
        "name its key as `backupKey`; or write all Secrets anew in the hosted cluster, and record the key of the spec in `status.secretEncryption.activeKey`",
    )
}

fn lost(message: String, hint: &str) -> KeyStep {
    KeyStep::Lost(Problem {
        field: "spec.secretEncryption.kms.azure.activeKey".to_owned(),
        severity: Severity::Error,
        message,
        hint: Some(hint.to_owned()),
    })
}

/// One key takes the place of another.
#[derive(Debug, Clone, Copy)]
struct Rotation<'a> {
    from: &'a EncryptionKey,
    to: &'a EncryptionKey,
    status: &'a Value,
    now: Timestamp,
}

impl Rotation<'_> {
    /// First the new key is read.
    fn begin(self) -> KeyStep {
        let history = self.history();
        let message = format!(
            "the rotation from {} to {} begins: every API server learns to read the new key",
            self.from, self.to
        );
        self.record(READ_ONLY_DEPLOY, history, "EncryptionKeyRotationBegan", message)
    }

    /// Nothing was written with the key that was to come, so another one may take its place.
    fn replace(self, target: &EncryptionKey) -> KeyStep {
        let mut history = self.history();
        if let Some(newest) = history.first_mut() {
            newest["state"] = json!(INTERRUPTED);
            newest["completionTime"] = json!(whole_second(self.now));
        }
        if self.to == self.from {
            let status = json!({"activeKey": recorded(self.from), "history": history});
            let message = format!("the rotation to {target} is taken back: it wrote nothing");
            let reason = "EncryptionKeyRotationEnded";
            return KeyStep::Record { status, reason, message, is_needed: false };
        }
        let message = format!("{} takes the place of {target}, which wrote nothing", self.to);
        self.record(READ_ONLY_DEPLOY, history, "EncryptionKeyRotationBegan", message)
    }

    /// Every API server reads the new key: now it writes.
    fn promote(self) -> KeyStep {
        let mut history = self.history();
        let is_this = |newest: &Value| newest["state"] == READ_ONLY_DEPLOY;
        let message = format!(
            "{} encrypts from now on, and {} is read; write all Secrets anew in the hosted cluster, then record the new key as `activeKey`",
            self.to, self.from
        );
        let reason = "EncryptionKeyPromoted";
        match history.first_mut().filter(|newest| is_this(newest)) {
            Some(newest) => {
                newest["state"] = json!(WRITE_PROMOTE);
                self.go_on(history, reason, message)
            }
            None => self.record(WRITE_PROMOTE, history, reason, message),
        }
    }

    /// With a new entry of the history.
    fn record(
        self,
        state: &str,
        mut history: Vec<Value>,
        reason: &'static str,
        message: String,
    ) -> KeyStep {
        history.insert(0, entry(self.from, self.to, state, self.now));
        history.truncate(MOST_HISTORY);
        self.go_on(history, reason, message)
    }

    /// With this history, and both keys as they are.
    fn go_on(self, history: Vec<Value>, reason: &'static str, message: String) -> KeyStep {
        let status = json!({
            "activeKey": recorded(self.from),
            "targetKey": recorded(self.to),
            "history": history,
        });
        KeyStep::Record { status, reason, message, is_needed: false }
    }

    fn history(self) -> Vec<Value> {
        let history = self.status.get("history").and_then(Value::as_array);
        history.cloned().unwrap_or_default()
    }
}

fn entry(from: &EncryptionKey, to: &EncryptionKey, state: &str, now: Timestamp) -> Value {
    json!({
        "from": reference(from),
        "to": reference(to),
        "state": state,
        "startedTime": whole_second(now),
    })
}

fn recorded(key: &EncryptionKey) -> Value {
    let azure = json!({
        "keyVaultName": key.vault.as_str(),
        "keyName": key.name.as_str(),
        "keyVersion": key.version,
    });
    json!({"provider": "Azure", "azure": azure})
}

/// A key in the history, by a digest of what names it.
fn reference(key: &EncryptionKey) -> Value {
    let fingerprint = hex::encode(digest(&SHA256, recorded(key)["azure"].to_string().as_bytes()));
    json!({"provider": "Azure", "fingerprint": fingerprint})
}

/// Source: `maxItems` of `history`.
const MOST_HISTORY: usize = 5;
