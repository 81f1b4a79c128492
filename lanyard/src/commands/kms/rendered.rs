//! What is rendered for the plugin is what the plugin takes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use lanyard_desired::objects::{Mode, Owner, VolumeRefresh};
use lanyard_desired::{Inputs, WorkloadTemplates, desired_objects, parse_hosted_cluster, render};
use lanyard_kms::{Configuration, Identity, Layout, PinnedKey, VaultKind};
use lanyard_telemetry::ListenAddress;
use serde_json::{Value, json};

use super::Args;
use super::go_arguments::go_arguments;
use super::settings::KmsSettings;
use crate::cli::{Cli, Command};

const EXAMPLE: &str = include_str!("../../../../examples/hostedcluster.yaml");

/// The pod of the API server's place, with everything beside it.
struct Rendered {
    pod: Value,
    secret: Value,
}

impl Rendered {
    fn of(cluster: &str, canary: Value) -> Self {
        let Value::Object(canary) = canary else { panic!("{canary}") };
        let parsed = parse_hosted_cluster(cluster).unwrap();
        let templates = WorkloadTemplates::parse_over("", canary).unwrap();
        let inputs = Inputs {
            wire: &parsed.wire,
            mode: Mode::All,
            owner: Owner::Blank,
            vault_reader: None,
            templates: &templates,
            refresh: VolumeRefresh::Polled,
            private_router: None,
        };
        let objects = desired_objects(&parsed.hosted_cluster, &inputs);
        let files = render(&objects).unwrap();
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

    fn plugins(&self) -> Vec<Plugin<'_>> {
        let containers = self.pod["containers"].as_array().unwrap();
        let runs_it = |it: &&Value| it["args"][0] == "kms";
        containers.iter().filter(runs_it).map(|it| Plugin::started(self, it)).collect()
    }

    /// The volume behind a path of a container, and the path in it.
    fn volume(&self, container: &Value, path: &Path) -> (Value, PathBuf) {
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

/// A sidecar whose arguments our command line has taken.
struct Plugin<'a> {
    rendered: &'a Rendered,
    container: &'a Value,
    args: Args,
    settings: KmsSettings,
}

impl<'a> Plugin<'a> {
    fn started(rendered: &'a Rendered, container: &'a Value) -> Self {
        let given = container["args"].as_array().unwrap();
        let given = given.iter().map(|it| OsString::from(it.as_str().unwrap()));
        let line = std::iter::once(OsString::from("lanyard")).chain(given);
        let cli = Cli::try_parse_from(go_arguments(line)).unwrap();
        let Command::Kms(args) = cli.command else { panic!("{container}") };
        let settings = KmsSettings::resolve(&args.run).unwrap();
        Self { rendered, container, args, settings }
    }

    /// The configuration file, as the volume shows it.
    fn configuration(&self) -> Configuration {
        let path = &self.args.run.key.config_file_path;
        let (volume, name) = self.rendered.volume(self.container, path);
        assert_eq!(volume["secret"]["secretName"], self.rendered.secret["metadata"]["name"]);
        let items = volume["secret"]["items"].as_array().unwrap();
        let item = items.iter().find(|it| Path::new(it["path"].as_str().unwrap()) == name).unwrap();
        let text = &self.rendered.secret["stringData"][item["key"].as_str().unwrap()];
        Configuration::parse(text.as_str().unwrap()).unwrap()
    }

    fn key(&self) -> PinnedKey {
        let KmsSettings { kind, vault, key, version, .. } = &self.settings;
        let endpoints = self.configuration().endpoints;
        PinnedKey::new(endpoints, *kind, vault.clone(), key.clone(), version.clone())
    }

    /// Fails unless volumes hold what the plugin opens, and the probe asks where it answers.
    fn expect_to_work(&self) {
        let Identity::CredentialFile(file) = self.configuration().identity else {
            panic!("{:?}", self.configuration())
        };
        let (volume, name) = self.rendered.volume(self.container, &file);
        let class = &volume["csi"]["volumeAttributes"]["secretProviderClass"];
        assert_eq!(
            (class, name.as_path()),
            (&json!("managed-azure-kms"), Path::new("harbour-kms"))
        );
        let (volume, _) = self.rendered.volume(self.container, &self.settings.socket);
        assert!(volume["emptyDir"].is_object(), "{volume}");
        let probe = &self.container["livenessProbe"]["httpGet"];
        let port = u16::try_from(probe["port"].as_u64().unwrap()).unwrap();
        let asked = match probe["host"].as_str() {
            None => ListenAddress::Everywhere(port),
            Some(host) => format!("{host}:{port}").parse().unwrap(),
        };
        assert_eq!((probe["path"].as_str(), &self.settings.health), (Some("/livez"), &asked));
        assert_eq!(Layout::from(self.args.run.key.ciphertext_layout), Layout::OpenShift);
    }
}

#[test]
fn the_plugin_takes_the_arguments_and_the_configuration_that_are_rendered_for_it() {
    let rendered = Rendered::of(EXAMPLE, json!({}));
    let plugins = rendered.plugins();
    let [plugin] = plugins.as_slice() else { panic!("{}", plugins.len()) };
    plugin.expect_to_work();
    let url = "https://harbour-keys.vault.azure.net/keys/etcd-encryption/4f9d2c7b1e8a46f0b35d9c6e7a1f2084";
    assert_eq!(plugin.key().url(), url);
    assert_eq!(plugin.settings.socket, Path::new("/opt/azurekmsactive.socket"));
    assert_eq!(plugin.settings.metrics, ListenAddress::Everywhere(8095));
}

#[test]
fn two_keys_in_a_managed_module_of_another_cloud_have_two_plugins_that_do_not_meet() {
    let cluster = EXAMPLE
        .replace("        kms:\n          clientID", "        backupKey:\n          keyVaultName: harbour-keys\n          keyName: etcd-encryption\n          keyVersion: 0123\n        keyVaultType: ManagedHSM\n        kms:\n          clientID")
        .replace("AzurePublicCloud", "AzureUSGovernmentCloud");
    let rendered =
        Rendered::of(&cluster, json!({"metricsAddress": "127.0.0.1", "hostNetwork": true}));
    let plugins = rendered.plugins();
    let [active, backup] = plugins.as_slice() else { panic!("{}", plugins.len()) };
    for plugin in &plugins {
        plugin.expect_to_work();
        assert_eq!(plugin.settings.kind, VaultKind::ManagedHsm);
        let host = "https://harbour-keys.managedhsm.usgovcloudapi.net/";
        assert!(plugin.key().url().starts_with(host), "{}", plugin.key().url());
    }
    assert!(backup.key().url().ends_with("/0123"));
    let (one, two) = (&active.settings, &backup.settings);
    assert_eq!(
        (one.metrics, one.health),
        ("127.0.0.1:8095".parse().unwrap(), "127.0.0.1:8787".parse().unwrap())
    );
    assert!(one.socket != two.socket && one.metrics != two.metrics && one.health != two.health);
}
