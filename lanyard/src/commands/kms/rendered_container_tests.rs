//! Tests that the plugin accepts the arguments and the configuration that the operator renders for it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use lanyard_desired::hosted_cluster::kms_api_version::KmsApiVersion;
use lanyard_desired::objects::{ControlPlaneOwner, OperatorMode, VolumeRefresh};
use lanyard_desired::{
    DesiredObjectInputs, WorkloadTemplates, desired_objects, parse_hosted_cluster, render_objects,
};
use lanyard_kms::{CiphertextLayout, KmsConfiguration, PinnedKey, VaultIdentity, VaultKind};
use lanyard_telemetry::ListenAddress;
use serde_json::{Value, json};

use super::Args;
use super::go_arguments::normalize_single_dash_flags;
use super::settings::KmsSettings;
use crate::cli::{Cli, CliCommand};

const EXAMPLE: &str = include_str!("../../../../examples/hostedcluster.yaml");

/// The rendered pod of the API server, with the Secret of its KMS configuration.
struct RenderedApiServerPod {
    pod: Value,
    secret: Value,
}

impl RenderedApiServerPod {
    fn for_cluster(cluster: &str, canary: Value) -> Self {
        let Value::Object(canary) = canary else { panic!("{canary}") };
        let parsed = parse_hosted_cluster(cluster).unwrap();
        let templates = WorkloadTemplates::parse_with_canary_overrides("", canary).unwrap();
        let inputs = DesiredObjectInputs {
            wire: &parsed.wire,
            mode: OperatorMode::All,
            owner: ControlPlaneOwner::WithoutUid,
            vault_reader: None,
            templates: &templates,
            refresh: VolumeRefresh::Polled,
            private_router: None,
            control_plane_endpoint: None,
            kms_api_version: KmsApiVersion::default(),
        };
        let objects = desired_objects(&parsed.hosted_cluster, &inputs);
        let files = render_objects(&objects).unwrap();
        let read = |name: &str| -> Value {
            let file = files.iter().find(|file| file.name == name).unwrap();
            serde_saphyr::from_str(&file.text).unwrap()
        };
        let deployment = read("deployment-kube-apiserver.yaml");
        Self {
            pod: deployment["spec"]["template"]["spec"].clone(),
            secret: read("secret-azure-kms-config.yaml"),
        }
    }

    fn kms_containers(&self) -> Vec<RenderedKmsContainer<'_>> {
        let containers = self.pod["containers"].as_array().unwrap();
        let runs_it = |it: &&Value| it["args"][0] == "kms";
        containers.iter().filter(runs_it).map(|it| RenderedKmsContainer::parse(self, it)).collect()
    }

    /// The volume that contains a path of a container, and the path within the volume.
    fn volume_at_path(&self, container: &Value, path: &Path) -> (Value, PathBuf) {
        let place = |mount: &Value| Some(PathBuf::from(mount["mountPath"].as_str()?));
        let mounts = container["volumeMounts"].as_array().unwrap();
        let behind = |mount: &&Value| place(mount).is_some_and(|place| path.starts_with(place));
        let mount = mounts.iter().find(behind).unwrap_or_else(|| panic!("nothing at {path:?}"));
        let volumes = self.pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|it| it["name"] == mount["name"]).unwrap();
        let inside = path.strip_prefix(place(mount).unwrap()).unwrap();
        (volume.clone(), inside.to_owned())
    }
}

/// A sidecar whose arguments the command line parser accepted.
struct RenderedKmsContainer<'a> {
    rendered: &'a RenderedApiServerPod,
    container: &'a Value,
    args: Args,
    settings: KmsSettings,
}

impl<'a> RenderedKmsContainer<'a> {
    fn parse(rendered: &'a RenderedApiServerPod, container: &'a Value) -> Self {
        let given = container["args"].as_array().unwrap();
        let given = given.iter().map(|it| OsString::from(it.as_str().unwrap()));
        let line = std::iter::once(OsString::from("lanyard")).chain(given);
        let cli = Cli::try_parse_from(normalize_single_dash_flags(line)).unwrap();
        let CliCommand::Kms(args) = cli.command else { panic!("{container}") };
        let settings = KmsSettings::resolve(&args.run).unwrap();
        Self { rendered, container, args, settings }
    }

    /// The configuration file, read from the volume.
    fn read_configuration(&self) -> KmsConfiguration {
        let path = &self.args.run.key.config_file_path;
        let (volume, name) = self.rendered.volume_at_path(self.container, path);
        assert_eq!(volume["secret"]["secretName"], self.rendered.secret["metadata"]["name"]);
        let items = volume["secret"]["items"].as_array().unwrap();
        let item = items.iter().find(|it| Path::new(it["path"].as_str().unwrap()) == name).unwrap();
        let text = &self.rendered.secret["stringData"][item["key"].as_str().unwrap()];
        KmsConfiguration::parse(text.as_str().unwrap()).unwrap()
    }

    fn pinned_key(&self) -> PinnedKey {
        let KmsSettings { vault_kind: kind, vault, key, version, .. } = &self.settings;
        let endpoints = self.read_configuration().endpoints;
        PinnedKey::new(endpoints, *kind, vault.clone(), key.clone(), version.clone())
    }

    /// Asserts that volumes contain the files that the plugin opens, and that the probe uses the plugin's
    /// health address.
    fn assert_volumes_and_probe_match(&self) {
        let VaultIdentity::CredentialFile(file) = self.read_configuration().identity else {
            panic!("{:?}", self.read_configuration())
        };
        let (volume, name) = self.rendered.volume_at_path(self.container, &file);
        let class = &volume["csi"]["volumeAttributes"]["secretProviderClass"];
        assert_eq!(
            (class, name.as_path()),
            (&json!("managed-azure-kms"), Path::new("harbour-kms"))
        );
        let (volume, _) = self.rendered.volume_at_path(self.container, &self.settings.socket);
        assert!(volume["emptyDir"].is_object(), "{volume}");
        let probe = &self.container["livenessProbe"]["httpGet"];
        let port = u16::try_from(probe["port"].as_u64().unwrap()).unwrap();
        let asked = match probe["host"].as_str() {
            None => ListenAddress::AllInterfaces(port),
            Some(host) => format!("{host}:{port}").parse().unwrap(),
        };
        assert_eq!(
            (probe["path"].as_str(), &self.settings.health_address),
            (Some("/livez"), &asked)
        );
        assert_eq!(
            CiphertextLayout::from(self.args.run.key.ciphertext_layout),
            CiphertextLayout::OpenShift
        );
    }
}

#[test]
fn rendered_arguments_and_configuration_are_accepted_by_the_plugin() {
    let rendered = RenderedApiServerPod::for_cluster(EXAMPLE, json!({}));
    let plugins = rendered.kms_containers();
    let [plugin] = plugins.as_slice() else { panic!("{}", plugins.len()) };
    plugin.assert_volumes_and_probe_match();
    let url = "https://harbour-keys.vault.azure.net/keys/etcd-encryption/4f9d2c7b1e8a46f0b35d9c6e7a1f2084";
    assert_eq!(plugin.pinned_key().url(), url);
    assert_eq!(plugin.settings.socket, Path::new("/opt/azurekmsactive.socket"));
    assert_eq!(plugin.settings.metrics_address, ListenAddress::AllInterfaces(8095));
}

#[test]
fn two_managed_hsm_keys_get_plugins_with_distinct_sockets_and_ports() {
    let cluster = EXAMPLE
        .replace("        kms:\n          clientID", "        backupKey:\n          keyVaultName: harbour-keys\n          keyName: etcd-encryption\n          keyVersion: 0123\n        keyVaultType: ManagedHSM\n        kms:\n          clientID")
        .replace("AzurePublicCloud", "AzureUSGovernmentCloud");
    let rendered = RenderedApiServerPod::for_cluster(
        &cluster,
        json!({"metricsAddress": "127.0.0.1", "hostNetwork": true}),
    );
    let plugins = rendered.kms_containers();
    let [active, backup] = plugins.as_slice() else { panic!("{}", plugins.len()) };
    for plugin in &plugins {
        plugin.assert_volumes_and_probe_match();
        assert_eq!(plugin.settings.vault_kind, VaultKind::ManagedHsm);
        let host = "https://harbour-keys.managedhsm.usgovcloudapi.net/";
        assert!(plugin.pinned_key().url().starts_with(host), "{}", plugin.pinned_key().url());
    }
    assert!(backup.pinned_key().url().ends_with("/0123"));
    let (one, two) = (&active.settings, &backup.settings);
    assert_eq!(
        (one.metrics_address, one.health_address),
        ("127.0.0.1:8095".parse().unwrap(), "127.0.0.1:8787".parse().unwrap())
    );
    assert!(
        one.socket != two.socket
            && one.metrics_address != two.metrics_address
            && one.health_address != two.health_address
    );
}
