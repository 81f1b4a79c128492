//! The KMS plugins, which run as sidecars of the API server.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::WorkloadContext;
use super::additions::{DeploymentAdditions, config_mount_json};
use super::canary::{base_container, vault_host};
use crate::container_settings::{ENCRYPTION_CONFIG_MOUNT, KMS_SOCKET_MOUNT, cloud_config_mount};
use crate::hosted_cluster::EncryptionKey;
use crate::hosted_cluster::credential_injection::CredentialInjection;
use crate::hosted_cluster::encryption_config::{
    ENCRYPTION_CONFIG_KEY, ENCRYPTION_CONFIG_SECRET, KeyRole,
};
use crate::templates::api_server_flags::missing_encryption_flags;
use crate::templates::template_container;

impl WorkloadContext<'_> {
    /// Adds a KMS plugin for each key, unless the template has one. An API server from a template
    /// also gets the sockets, the `EncryptionConfiguration` and its flags, which a canary does not
    /// need.
    pub(super) fn add_key_plugins(
        self,
        additions: &mut DeploymentAdditions,
        own: &CredentialInjection,
        template: Option<&Value>,
    ) {
        let Some(encryption) = &self.cluster.encryption else { return };
        let server = own.consumer.deployment;
        additions.add_volume(json!({"name": KMS_SOCKET_MOUNT.volume, "emptyDir": {}}));
        let config =
            cloud_config_mount(&own.consumer).map(|(_, mount)| mount.path()).unwrap_or_default();
        for (part, key) in encryption.keys() {
            additions.add_mount(part.container_name(), config_mount_json(KMS_SOCKET_MOUNT));
            if template.is_some_and(|template| {
                template_container(template, part.container_name()).is_some()
            }) {
                continue;
            }
            let address = self.inputs.templates.canary.specific_metrics_address();
            let mut arguments = key_plugin_arguments(part, key, &config, address);
            arguments.extend(encryption.is_managed_hsm.then(|| "--managed-hsm".to_owned()));
            // The ciphertext layout of HyperShift's KMS plugin.
            arguments.push("--ciphertext-layout=openshift".to_owned());
            let mut plugin = self.key_plugin_container(part, &arguments);
            if let Some(template) = template {
                plugin["securityContext"] =
                    sidecar_security_context(&plugin["securityContext"], template, server);
            }
            additions.add_sidecar(plugin);
            // The plugin gets the additional volumes of canaries.
            for volume in &self.inputs.templates.canary.volumes {
                additions.add_volume(volume.clone());
            }
        }
        if let Some(template) = template {
            let container = template_container(template, server);
            let flags = container.map(missing_encryption_flags).unwrap_or_default();
            additions.add_arguments(server, flags);
            additions.add_mount(server, config_mount_json(KMS_SOCKET_MOUNT));
            additions.add_secret_volume(
                ENCRYPTION_CONFIG_SECRET,
                ENCRYPTION_CONFIG_KEY,
                ENCRYPTION_CONFIG_MOUNT,
            );
            additions.add_mount(server, config_mount_json(ENCRYPTION_CONFIG_MOUNT));
        }
        if let Some(router) = self.inputs.private_router.filter(|_| encryption.is_private_access) {
            let cloud = self.cluster.azure.cloud;
            let host = vault_host(encryption, &encryption.routed_vault, cloud);
            additions.add_host_alias(router, host.as_slice());
        }
    }

    fn key_plugin_container(self, part: KeyRole, arguments: &[String]) -> Value {
        let template = &self.inputs.templates.canary;
        let mut container = base_container(template, part.container_name());
        container.insert("args".to_owned(), json!(arguments));
        if !template.env.is_empty() {
            container.insert("env".to_owned(), json!(template.env));
        }
        container.insert("volumeMounts".to_owned(), json!(template.volume_mounts));
        container.insert(
            "ports".to_owned(),
            // Port names must be unique in a pod, which may contain two plugins.
            json!([{"containerPort": part.health_port(), "protocol": "TCP"}]),
        );
        // The liveness probe does not use the health check of the key: a restart fixes neither the
        // vault nor the identity, and discards the state of the process.
        let mut liveness = template.http_probe("/livez", part.health_port());
        liveness["initialDelaySeconds"] = json!(120);
        liveness["periodSeconds"] = json!(300);
        liveness["timeoutSeconds"] = json!(160);
        liveness["failureThreshold"] = json!(3);
        container.insert("livenessProbe".to_owned(), liveness);
        container
            .insert("resources".to_owned(), json!({"requests": {"cpu": "10m", "memory": "10Mi"}}));
        Value::Object(container)
    }
}

/// Returns the plugin's security context in the pod of a templated API server: the API server's
/// user, because only that user may open the socket, and the settings that the restricted pod
/// security standard requires of the pod or of each container.
fn sidecar_security_context(own: &Value, template: &Value, server: &str) -> Value {
    let mut context = own.clone();
    context["seccompProfile"] = json!({"type": "RuntimeDefault"});
    let of_server = template_container(template, server).and_then(|it| it.get("securityContext"));
    for field in ["runAsUser", "runAsGroup", "runAsNonRoot"] {
        if let Some(value) = of_server.and_then(|it| it.get(field)) {
            context[field] = value.clone();
        }
    }
    context
}

fn key_plugin_arguments(
    part: KeyRole,
    key: &EncryptionKey,
    config: &str,
    address: Option<IpAddr>,
) -> Vec<String> {
    let metrics = match address {
        None => part.metrics_port().to_string(),
        Some(address) => SocketAddr::new(address, part.metrics_port()).to_string(),
    };
    let mut arguments = vec![
        "kms".to_owned(),
        format!("--keyvault-name={}", key.vault),
        format!("--key-name={}", key.name),
        format!("--key-version={}", key.version),
        format!("--listen-addr={}", part.socket_endpoint()),
        format!("--healthz-port={}", part.health_port()),
        format!("--metrics-addr={metrics}"),
        "--healthz-path=/healthz".to_owned(),
        format!("--config-file-path={config}"),
        "-v=1".to_owned(),
    ];
    arguments.extend(address.map(|address| format!("--healthz-addr={address}")));
    arguments
}
