//! Hashes of the configurations that a pod mounts.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::Value;

use super::WorkloadContext;
use crate::hash::{MountedValue, config_hash};
use crate::hosted_cluster::encryption_config::ENCRYPTION_CONFIG_KEY;

/// A `ConfigMap` whose changes do not require a restart.
const UNHASHED_CONFIG_MAP: &str = "client-ca";

impl WorkloadContext<'_> {
    /// Returns the hash of the Secrets and `ConfigMap`s of lanyard that the deployment mounts.
    /// Objects of other managers are unknown here and are ignored.
    pub(super) fn config_hash(self, deployment: &Value) -> String {
        let volumes = deployment.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        let mut values = Vec::new();
        for volume in volumes.into_iter().flatten() {
            self.collect_volume_values(volume, &mut values);
            let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
            for source in sources.into_iter().flatten() {
                self.collect_volume_values(source, &mut values);
            }
        }
        config_hash(values)
    }

    /// A Secret volume and a projected source use different fields for the name of the Secret.
    fn collect_volume_values<'a>(&'a self, volume: &Value, values: &mut Vec<MountedValue<'a>>) {
        let text = |pointer| volume.pointer(pointer).and_then(Value::as_str);
        if let Some(name) = text("/secret/secretName").or_else(|| text("/secret/name")) {
            let secrets = self.desired.secrets.iter().chain(self.encryption_config);
            let secret = secrets.filter(|secret| secret.metadata.name.as_deref() == Some(name));
            let data = secret.filter_map(|secret| secret.data.as_ref()).flatten();
            values.extend(data.map(|(_, value)| MountedValue::Bytes(&value.0)));
        }
        if let Some(name) = text("/configMap/name").filter(|name| *name != UNHASHED_CONFIG_MAP) {
            let maps = self.desired.config_maps.iter();
            let map = maps.filter(|map| map.metadata.name.as_deref() == Some(name));
            let data = map.filter_map(|map| map.data.as_ref()).flatten();
            values.extend(data.map(|(_, text)| MountedValue::Text(text)));
        }
    }

    /// Returns the hexadecimal SHA-256 of the `EncryptionConfiguration`.
    pub(super) fn encryption_config_hash(self) -> Option<String> {
        let data = self.encryption_config?.data.as_ref()?.get(ENCRYPTION_CONFIG_KEY)?;
        Some(hex::encode(digest(&SHA256, &data.0)))
    }
}
