//! The additions to a deployment that provide its credentials.

use std::collections::BTreeMap;
use std::net::IpAddr;

use lanyard_vocabulary::EntraClientId;
use lanyard_vocabulary::component::{CloudConfigMount, CredentialPathSource};
use serde_json::{Value, json};

use crate::container_settings::{
    CREDENTIAL_FILE_VARIABLE, MANAGED_SERVICE_VARIABLE, VAULT_READER, cloud_config_mount,
};
use crate::hosted_cluster::cloud_config::CLOUD_CONFIG_KEY;
use crate::hosted_cluster::credential_injection::CredentialInjection;

/// The mode of files in Secret volumes: 0640, which JSON contains in decimal.
const SECRET_VOLUME_MODE: u32 = 0o640;

/// The volumes, mounts, variables and sidecars to add to a deployment.
#[derive(Debug, Default)]
pub(super) struct DeploymentAdditions {
    volumes: Vec<Value>,
    mounts: BTreeMap<String, Vec<Value>>,
    variables: BTreeMap<String, Vec<Value>>,
    arguments: BTreeMap<String, Vec<Value>>,
    sidecars: Vec<Value>,
    host_aliases: Vec<Value>,
}

impl DeploymentAdditions {
    /// Adds the credential volume of a consumer and its cloud configuration.
    pub(super) fn add_injection(&mut self, wiring: &CredentialInjection) {
        self.volumes.push(json!(wiring.volume));
        for container in &wiring.containers {
            self.add_mount(container, json!(wiring.mount));
        }
        if let Some((secret, mount)) = cloud_config_mount(&wiring.consumer) {
            self.add_secret_volume(secret, CLOUD_CONFIG_KEY, mount);
            for container in &wiring.containers {
                self.add_mount(container, config_mount_json(mount));
            }
        }
    }

    /// Adds a volume in which one key of a Secret has the file name that the consumer expects.
    pub(super) fn add_secret_volume(&mut self, secret: &str, key: &str, mount: CloudConfigMount) {
        let mut source = json!({"secretName": secret, "defaultMode": SECRET_VOLUME_MODE});
        if mount.file != key {
            source["items"] = json!([{"key": key, "path": mount.file}]);
        }
        self.volumes.push(json!({"name": mount.volume, "secret": source}));
    }

    pub(super) fn add_volume(&mut self, volume: Value) {
        self.volumes.push(volume);
    }

    pub(super) fn add_mount(&mut self, container: &str, mount: Value) {
        self.mounts.entry(container.to_owned()).or_default().push(mount);
    }

    /// Adds arguments after those of a container.
    pub(super) fn add_arguments(&mut self, container: &str, arguments: Vec<String>) {
        let arguments = arguments.into_iter().map(Value::String);
        self.arguments.entry(container.to_owned()).or_default().extend(arguments);
    }

    pub(super) fn add_sidecar(&mut self, container: Value) {
        self.sidecars.push(container);
    }

    pub(super) fn add_host_alias(&mut self, address: IpAddr, hosts: &[String]) {
        if !hosts.is_empty() {
            self.host_aliases.push(json!({"ip": address.to_string(), "hostnames": hosts}));
        }
    }

    fn add_variable(&mut self, container: &str, name: &str, value: &str) {
        let variable = json!({"name": name, "value": value});
        self.variables.entry(container.to_owned()).or_default().push(variable);
    }

    /// Adds the variables of the injections for this deployment, which is a consumer or an operator
    /// that renders one.
    pub(super) fn add_injected_variables(
        &mut self,
        wirings: &[CredentialInjection],
        deployment: &str,
    ) {
        for variable in wirings.iter().flat_map(|wiring| &wiring.variables) {
            if variable.deployment == deployment {
                let value = variable.variable.value.as_deref().unwrap_or_default();
                self.add_variable(variable.container, &variable.variable.name, value);
            }
        }
    }

    /// Adds variables that only the real components need, and canaries do not.
    pub(super) fn add_component_variables(
        &mut self,
        wirings: &[&CredentialInjection],
        reader: Option<EntraClientId>,
    ) {
        for wiring in wirings {
            let container = wiring.consumer.container;
            match wiring.consumer.path_source {
                CredentialPathSource::StorageOperator { mount, .. } => {
                    self.add_variable(container, CREDENTIAL_FILE_VARIABLE, &mount.path());
                }
                CredentialPathSource::Computed
                    if self.has_variable(container, MANAGED_SERVICE_VARIABLE) => {}
                CredentialPathSource::Computed | CredentialPathSource::ClusterIdentity => {
                    if let Some(reader) = reader {
                        self.add_variable(container, VAULT_READER, &reader.to_string());
                    }
                    if wiring.consumer.path_source == CredentialPathSource::Computed {
                        self.add_variable(container, MANAGED_SERVICE_VARIABLE, "ARO-HCP");
                    }
                }
                _ => {}
            }
        }
    }

    fn has_variable(&self, container: &str, name: &str) -> bool {
        let mut variables = self.variables.get(container).into_iter().flatten();
        variables.any(|variable| variable.get("name").and_then(Value::as_str) == Some(name))
    }

    /// Applies the additions to a deployment. A volume whose name already exists is not added. Returns
    /// the names of the added volumes whose content is on the node.
    pub(super) fn apply_to(self, deployment: &mut Value) -> Vec<String> {
        let pod = &mut deployment["spec"]["template"]["spec"];
        let mut volumes = take_items(&mut pod["volumes"]);
        let mut local_volumes = Vec::new();
        for volume in self.volumes {
            if volumes.iter().any(|other| other.get("name") == volume.get("name")) {
                continue;
            }
            if is_local_volume(&volume) {
                let name = volume.get("name").and_then(Value::as_str);
                local_volumes.extend(name.map(str::to_owned));
            }
            volumes.push(volume);
        }
        pod["volumes"] = Value::Array(volumes);
        if !self.host_aliases.is_empty() {
            extend_array(&mut pod["hostAliases"], self.host_aliases);
        }
        let mut containers = take_items(&mut pod["containers"]);
        containers.extend(self.sidecars);
        for container in &mut containers {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let lists = [
                ("volumeMounts", &self.mounts),
                ("env", &self.variables),
                ("args", &self.arguments),
            ];
            for (field, additions) in lists {
                if let Some(additions) = additions.get(&name).filter(|it| !it.is_empty()) {
                    extend_array(&mut container[field], additions.clone());
                }
            }
        }
        pod["containers"] = Value::Array(containers);
        local_volumes
    }
}

/// Returns whether the content of a volume is on the node. By default, the cluster autoscaler does not
/// drain a node with such a volume.
fn is_local_volume(volume: &Value) -> bool {
    volume.get("emptyDir").is_some() || volume.get("hostPath").is_some()
}

pub(super) fn config_mount_json(mount: CloudConfigMount) -> Value {
    json!({"name": mount.volume, "mountPath": mount.directory})
}

/// Takes the items out of a list; any other value has none.
fn take_items(list: &mut Value) -> Vec<Value> {
    match list.take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn extend_array(list: &mut Value, more: Vec<Value>) {
    let mut all = take_items(list);
    all.extend(more);
    *list = Value::Array(all);
}
