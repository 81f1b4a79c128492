//! The Deployment of a canary.

use std::net::SocketAddr;

use lanyard_vocabulary::component::CredentialPathSource;
use lanyard_vocabulary::{Cloud, Component, VaultName};
use serde_json::{Map, Value, json};

use super::additions::config_mount_json;
use super::{CANARY_SERVICE_ACCOUNT, WorkloadContext, is_key_plugin, main_container};
use crate::container_settings::{KMS_SOCKET_MOUNT, cloud_config_mount};
use crate::hosted_cluster::credential_injection::CredentialInjection;
use crate::hosted_cluster::{EncryptionKey, KmsEncryption};
use crate::templates::CanaryTemplate;

/// The unprivileged user of distroless images.
const NON_ROOT_USER: u32 = 65532;

impl WorkloadContext<'_> {
    /// Returns the Deployment with the canary of a component, without the credential injection.
    pub(super) fn canary_deployment(
        self,
        own: &CredentialInjection,
        wirings: &[&CredentialInjection],
    ) -> Value {
        let template = &self.inputs.templates.canary;
        let name = own.consumer.deployment;
        let mut pod = template.placement.clone();
        pod.insert("serviceAccountName".to_owned(), json!(CANARY_SERVICE_ACCOUNT));
        pod.insert("securityContext".to_owned(), pod_security_context());
        pod.insert("containers".to_owned(), json!([self.canary_container(own, wirings)]));
        pod.insert("volumes".to_owned(), json!(template.volumes));
        if !template.image_pull_secrets.is_empty() {
            let secrets = template.image_pull_secrets.iter().map(|name| json!({"name": name}));
            pod.insert("imagePullSecrets".to_owned(), secrets.collect());
        }
        if template.host_network {
            pod.insert("hostNetwork".to_owned(), json!(true));
            pod.insert("dnsPolicy".to_owned(), json!("ClusterFirstWithHostNet"));
        }
        let mut labels = json!(template.labels);
        labels["app"] = json!(name);
        json!({
            "metadata": {"labels": {"app": name}},
            "spec": {
                "replicas": template.replicas,
                "revisionHistoryLimit": 2,
                "selector": {"matchLabels": {"app": name}},
                "strategy": rollout_strategy(template),
                "template": {
                    "metadata": {"labels": labels, "annotations": template.annotations},
                    "spec": pod,
                },
            },
        })
    }

    fn canary_container(
        self,
        own: &CredentialInjection,
        wirings: &[&CredentialInjection],
    ) -> Value {
        let template = &self.inputs.templates.canary;
        let port = self.metrics_port(own.component);
        let mut container = base_container(template, main_container(&own.consumer));
        container.insert("args".to_owned(), json!(self.canary_arguments(own, wirings, port)));
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let mut variables = vec![
            json!({"name": "POD_NAME", "valueFrom": field("metadata.name")}),
            json!({"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")}),
        ];
        variables.extend(template.env.iter().cloned());
        container.insert("env".to_owned(), json!(variables));
        container.insert(
            "ports".to_owned(),
            json!([{"name": "metrics", "containerPort": port, "protocol": "TCP"}]),
        );
        let mut liveness = template.http_probe("/healthz", port);
        liveness["periodSeconds"] = json!(20);
        container.insert("livenessProbe".to_owned(), liveness);
        container.insert("readinessProbe".to_owned(), template.http_probe("/readyz", port));
        container.insert("resources".to_owned(), template.resources.clone());
        let mut mounts = template.volume_mounts.clone();
        if is_key_plugin(&own.consumer) {
            // In this pod the KMS plugins mount the credential, so the canary mounts it, too.
            mounts.push(json!(own.mount));
            mounts.extend(
                cloud_config_mount(&own.consumer).map(|(_, mount)| config_mount_json(mount)),
            );
            mounts.push(config_mount_json(KMS_SOCKET_MOUNT));
        }
        container.insert("volumeMounts".to_owned(), json!(mounts));
        Value::Object(container)
    }

    fn metrics_port(self, component: Component) -> u16 {
        let template = &self.inputs.templates.canary;
        let place = Component::ALL.iter().position(|known| *known == component).unwrap_or_default();
        let offset =
            if template.host_network { u16::try_from(place).unwrap_or_default() } else { 0 };
        template.metrics_port.saturating_add(offset)
    }

    fn canary_arguments(
        self,
        own: &CredentialInjection,
        wirings: &[&CredentialInjection],
        port: u16,
    ) -> Vec<String> {
        let template = &self.inputs.templates.canary;
        let azure = &self.cluster.azure;
        let mut arguments = vec![
            "canary".to_owned(),
            format!("--component={}", own.component),
            self.credential_path_argument(own),
            format!("--cloud={}", azure.cloud),
        ];
        let call = self.canary_calls().request_line(self.cluster, own.component);
        arguments.extend(call.map(|call| format!("--call={call}")));
        if own.component == Component::ControlPlaneOperator
            && let (Some(vnet), Some(security_group)) = (&azure.vnet, &azure.security_group)
        {
            arguments.extend([
                "--probe=network".to_owned(),
                format!("--vnet-id={vnet}"),
                format!("--security-group-id={security_group}"),
                format!("--resource-group-id={}", self.cluster.managed_resource_group()),
            ]);
        }
        arguments.extend(self.encryption_probe_arguments(own, wirings));
        arguments.extend([
            format!("--interval={}", template.interval),
            format!("--probe-interval={}", template.probe_interval),
            format!("--metrics-addr={}", SocketAddr::new(template.metrics_address, port)),
        ]);
        arguments
    }

    /// Returns the canary's credential path argument. If an object in the pod configures the
    /// component's path, the canary reads the path from that object, too.
    fn credential_path_argument(self, own: &CredentialInjection) -> String {
        match own.consumer.path_source {
            CredentialPathSource::CloudConfig { mount, .. }
            | CredentialPathSource::StorageOperator { mount, .. } => {
                format!("--cloud-config={}", mount.path())
            }
            CredentialPathSource::Environment { name }
            | CredentialPathSource::Rendered { name, .. } => {
                format!("--credential-file-from-env={name}")
            }
            CredentialPathSource::Computed | CredentialPathSource::ClusterIdentity => {
                let path = self.desired.configured_credential_path(own.component, &own.consumer);
                // Without a configured path, use the path in the volume.
                let path = path.unwrap_or_else(|| own.credential_path());
                format!("--credential-file={path}")
            }
        }
    }

    /// Returns the arguments of the encryption probe. The KMS identity probes the key. The control
    /// plane operator probes it, too, with the KMS credential that it mounts for this purpose,
    /// unless only the API server can reach the vault. An unreachable key is not probed.
    fn encryption_probe_arguments(
        self,
        own: &CredentialInjection,
        wirings: &[&CredentialInjection],
    ) -> Vec<String> {
        let Some(encryption) = &self.cluster.encryption else { return Vec::new() };
        let Some(wiring) = wirings.iter().find(|wiring| wiring.component == Component::Kms) else {
            return Vec::new();
        };
        let is_own = own.component == Component::Kms;
        let url = key_url(encryption, &encryption.active_key, self.cluster.azure.cloud);
        let is_reached =
            !encryption.is_private_access || (is_own && self.inputs.private_router.is_some());
        let Some(url) = url.filter(|_| is_reached) else {
            return Vec::new();
        };
        let mut arguments = vec!["--probe=encryption".to_owned(), format!("--key-url={url}")];
        if !is_own {
            arguments.push(format!("--encryption-credential-file={}", wiring.credential_path()));
        }
        arguments
    }
}

/// Returns the host of a vault or managed HSM that holds keys; `None` if the cloud has no such
/// service.
pub(super) fn vault_host(
    encryption: &KmsEncryption,
    vault: &VaultName,
    cloud: Cloud,
) -> Option<String> {
    let endpoints = cloud.endpoints()?;
    let suffix = if encryption.is_managed_hsm {
        endpoints.managed_hsm_suffix
    } else {
        endpoints.vault_suffix
    };
    Some(format!("{vault}.{suffix}"))
}

fn key_url(encryption: &KmsEncryption, key: &EncryptionKey, cloud: Cloud) -> Option<String> {
    let host = vault_host(encryption, &key.vault, cloud)?;
    Some(format!("https://{host}/keys/{}/{}", key.name, key.version))
}

/// Returns the fields that every container of lanyard has.
pub(super) fn base_container(template: &CanaryTemplate, name: &str) -> Map<String, Value> {
    let mut container = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("image".to_owned(), json!(template.image)),
        ("terminationMessagePolicy".to_owned(), json!("FallbackToLogsOnError")),
        (
            "securityContext".to_owned(),
            json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            }),
        ),
    ]);
    if !template.command.is_empty() {
        container.insert("command".to_owned(), json!(template.command));
    }
    if let Some(policy) = &template.image_pull_policy {
        container.insert("imagePullPolicy".to_owned(), json!(policy));
    }
    container
}

/// Mounted Secrets are readable by a group and not by all users, so the pod sets `fsGroup`.
fn pod_security_context() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": NON_ROOT_USER,
        "runAsGroup": NON_ROOT_USER,
        "fsGroup": NON_ROOT_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// With host networking, two pods on a node cannot use the same port.
fn rollout_strategy(template: &CanaryTemplate) -> Value {
    let (surge, unavailable) = if template.host_network { (0, 1) } else { (1, 0) };
    json!({
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    })
}
