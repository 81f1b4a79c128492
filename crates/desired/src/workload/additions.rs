//! What is added to a deployment so that it has its identities.

use std::collections::BTreeMap;
use std::net::IpAddr;

use lanyard_vocabulary::ClientId;
use lanyard_vocabulary::component::{ConfigMount, Told};
use serde_json::{Value, json};

use super::{CREDENTIAL_FILE, MANAGED_SERVICE, VAULT_READER, cloud_config};
use crate::hosted_cluster::cloud_config::CLOUD_CONF;
use crate::hosted_cluster::wiring::Wiring;

/// The mode of Secrets in volumes: 0640, which JSON writes in decimal.
const SECRET_MODE: u32 = 0o640;

/// What is added to a deployment.
#[derive(Debug, Default)]
pub(super) struct Additions {
    volumes: Vec<Value>,
    mounts: BTreeMap<String, Vec<Value>>,
    variables: BTreeMap<String, Vec<Value>>,
    sidecars: Vec<Value>,
    host_aliases: Vec<Value>,
}

impl Additions {
    /// The credential of a consumer, and its cloud configuration.
    pub(super) fn wiring(&mut self, wiring: &Wiring) {
        self.volumes.push(json!(wiring.volume));
        for container in &wiring.containers {
            self.mount(container, json!(wiring.mount));
        }
        if let Some((secret, mount)) = cloud_config(&wiring.consumer) {
            self.secret(secret, CLOUD_CONF, mount);
            for container in &wiring.containers {
                self.mount(container, mount_of(mount));
            }
        }
    }

    /// A volume with a Secret, whose key is a file of the name that the consumer looks for.
    pub(super) fn secret(&mut self, secret: &str, key: &str, mount: ConfigMount) {
        let mut source = json!({"secretName": secret, "defaultMode": SECRET_MODE});
        if mount.file != key {
            source["items"] = json!([{"key": key, "path": mount.file}]);
        }
        self.volumes.push(json!({"name": mount.volume, "secret": source}));
    }

    pub(super) fn volume(&mut self, volume: Value) {
        self.volumes.push(volume);
    }

    pub(super) fn mount(&mut self, container: &str, mount: Value) {
        self.mounts.entry(container.to_owned()).or_default().push(mount);
    }

    pub(super) fn sidecar(&mut self, container: Value) {
        self.sidecars.push(container);
    }

    pub(super) fn host_alias(&mut self, address: IpAddr, hosts: &[String]) {
        if !hosts.is_empty() {
            self.host_aliases.push(json!({"ip": address.to_string(), "hostnames": hosts}));
        }
    }

    fn variable(&mut self, container: &str, name: &str, value: &str) {
        let variable = json!({"name": name, "value": value});
        self.variables.entry(container.to_owned()).or_default().push(variable);
    }

    /// The variables of the wirings that go to this deployment, be it a consumer or the operator
    /// that renders one.
    pub(super) fn variables(&mut self, wirings: &[Wiring], deployment: &str) {
        for variable in wirings.iter().flat_map(|wiring| &wiring.variables) {
            if variable.deployment == deployment {
                let value = variable.variable.value.as_deref().unwrap_or_default();
                self.variable(variable.container, &variable.variable.name, value);
            }
        }
    }

    /// What the components themselves want to know, which canaries do not.
    pub(super) fn operator_variables(&mut self, wirings: &[&Wiring], reader: Option<ClientId>) {
        for wiring in wirings {
            let container = wiring.consumer.container;
            match wiring.consumer.told {
                Told::StorageOperator { mount, .. } => {
                    self.variable(container, CREDENTIAL_FILE, &mount.path());
                }
                Told::Computed if self.has(container, MANAGED_SERVICE) => {}
                Told::Computed | Told::ClusterIdentity => {
                    if let Some(reader) = reader {
                        self.variable(container, VAULT_READER, &reader.to_string());
                    }
                    if wiring.consumer.told == Told::Computed {
                        self.variable(container, MANAGED_SERVICE, "ARO-HCP");
                    }
                }
                _ => {}
            }
        }
    }

    fn has(&self, container: &str, name: &str) -> bool {
        let mut variables = self.variables.get(container).into_iter().flatten();
        variables.any(|variable| variable.get("name").and_then(Value::as_str) == Some(name))
    }

    /// Adds everything to a deployment. A volume of a name that is there already is not added.
    pub(super) fn apply(self, deployment: &mut Value) {
        let pod = &mut deployment["spec"]["template"]["spec"];
        let mut volumes = items(&mut pod["volumes"]);
        for volume in self.volumes {
            if !volumes.iter().any(|other| other.get("name") == volume.get("name")) {
                volumes.push(volume);
            }
        }
        pod["volumes"] = Value::Array(volumes);
        if !self.host_aliases.is_empty() {
            extend(&mut pod["hostAliases"], self.host_aliases);
        }
        let mut containers = items(&mut pod["containers"]);
        containers.extend(self.sidecars);
        for container in &mut containers {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            for (field, additions) in [("volumeMounts", &self.mounts), ("env", &self.variables)] {
                if let Some(additions) = additions.get(&name) {
                    extend(&mut container[field], additions.clone());
                }
            }
        }
        pod["containers"] = Value::Array(containers);
    }
}

pub(super) fn mount_of(mount: ConfigMount) -> Value {
    json!({"name": mount.volume, "mountPath": mount.directory})
}

/// Takes the items out of a list; what is no list has none.
fn items(list: &mut Value) -> Vec<Value> {
    match list.take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn extend(list: &mut Value, more: Vec<Value>) {
    let mut all = items(list);
    all.extend(more);
    *list = Value::Array(all);
}
