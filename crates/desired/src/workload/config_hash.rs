//! Hashes of the configurations that a pod mounts.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::WorkloadContext;
use crate::hash::{MountedValue, config_hash};
use crate::hosted_cluster::encryption_config::ENCRYPTION_CONFIG_KEY;
use crate::objects::{ObjectKey, OwnedKind};

/// A `ConfigMap` whose changes do not require a restart.
const UNHASHED_CONFIG_MAP: &str = "client-ca";

/// The configurations that a pod mounts, each once, however many volumes contain it.
#[derive(Debug, Default)]
struct MountedConfigs<'a> {
    secrets: BTreeSet<&'a str>,
    config_maps: BTreeSet<&'a str>,
}

impl<'a> MountedConfigs<'a> {
    fn of(deployment: &'a Value) -> Self {
        let volumes = deployment.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        let mut mounted = Self::default();
        for volume in volumes.into_iter().flatten() {
            mounted.add_source(volume);
            let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
            sources.into_iter().flatten().for_each(|source| mounted.add_source(source));
        }
        mounted
    }

    /// A Secret volume and a projected source use different fields for the name of the Secret.
    fn add_source(&mut self, source: &'a Value) {
        let text = |pointer| source.pointer(pointer).and_then(Value::as_str);
        self.secrets.extend(text("/secret/secretName").or_else(|| text("/secret/name")));
        self.config_maps.extend(text("/configMap/name"));
    }
}

/// Returns whether the pods of a deployment mount one of these objects.
pub(crate) fn mounts_any(deployment: &Value, objects: &[ObjectKey]) -> bool {
    let mounted = MountedConfigs::of(deployment);
    objects.iter().any(|key| match key.kind {
        OwnedKind::Secret => mounted.secrets.contains(key.name.as_str()),
        OwnedKind::ConfigMap => mounted.config_maps.contains(key.name.as_str()),
        _ => false,
    })
}

impl WorkloadContext<'_> {
    /// Returns the hash of the Secrets and `ConfigMap`s of lanyard that the deployment mounts.
    /// Objects of other managers are unknown here and are ignored.
    pub(super) fn config_hash(self, deployment: &Value) -> String {
        let mounted = MountedConfigs::of(deployment);
        let contains = |names: &BTreeSet<&str>, metadata: &ObjectMeta| {
            metadata.name.as_deref().is_some_and(|name| names.contains(name))
        };
        let secrets = self.desired.secrets.iter().chain(self.encryption_config);
        let secrets = secrets.filter(|secret| contains(&mounted.secrets, &secret.metadata));
        let secrets = secrets.filter_map(|secret| secret.data.as_ref()).flatten();
        let maps = self.desired.config_maps.iter();
        let maps = maps.filter(|map| contains(&mounted.config_maps, &map.metadata));
        let maps = maps.filter(|map| map.metadata.name.as_deref() != Some(UNHASHED_CONFIG_MAP));
        let maps = maps.filter_map(|map| map.data.as_ref()).flatten();
        let bytes = secrets.map(|(_, value)| MountedValue::Bytes(&value.0));
        config_hash(bytes.chain(maps.map(|(_, text)| MountedValue::Text(text))))
    }

    /// Returns the hexadecimal SHA-256 of the `EncryptionConfiguration`.
    pub(super) fn encryption_config_hash(self) -> Option<String> {
        let data = self.encryption_config?.data.as_ref()?.get(ENCRYPTION_CONFIG_KEY)?;
        Some(hex::encode(digest(&SHA256, &data.0)))
    }
}
