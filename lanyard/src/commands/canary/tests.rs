use clap::Parser;
use lanyard_canary::{CanarySettings, CredentialPlace, ProbeSettings};
use lanyard_desired::objects::{Mode, Owner, VolumeRefresh};
use lanyard_desired::{Inputs, WorkloadTemplates, desired_objects};

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
    let all = ["canary", "--component=disk"].iter().chain(flags);
    Line::try_parse_from(all).map(|line| line.args)
}

fn resolved(flags: &[&str]) -> Result<CanarySettings, CommandError> {
    settings::resolve(&parse(flags).unwrap())
}

const FILE: &str = "--credential-file=/mnt/certs/disk";

#[test]
fn the_file_is_found_in_one_way_exactly() {
    let place = |flags: &[&str]| resolved(flags).unwrap().place;
    assert_eq!(place(&[FILE]), CredentialPlace::File("/mnt/certs/disk".into()));
    let config = place(&["--cloud-config=/etc/cloud/cloud.conf"]);
    assert_eq!(config, CredentialPlace::CloudConfig("/etc/cloud/cloud.conf".into()));
    let CredentialPlace::Variable { name, value } =
        place(&["--credential-file-from-env=LANYARD_TEST_OF_A_VARIABLE_THAT_IS_NOT_SET"])
    else {
        panic!("it is a variable");
    };
    assert_eq!(name, "LANYARD_TEST_OF_A_VARIABLE_THAT_IS_NOT_SET");
    assert_eq!(value, None);
    assert!(parse(&[]).is_err());
    assert!(parse(&[FILE, "--cloud-config=/etc/cloud/cloud.conf"]).is_err());
}

#[test]
fn what_is_not_said_has_the_value_that_the_help_tells() {
    let settings = resolved(&[FILE]).unwrap();
    assert_eq!(settings.interval, Duration::from_mins(1));
    assert_eq!(settings.token_interval, Duration::from_mins(10));
    assert_eq!(settings.probe_interval, Duration::from_mins(10));
    assert!(settings.call.is_none() && settings.probes.is_empty());
    let args = parse(&[FILE]).unwrap();
    assert_eq!(args.metrics_addr.to_string(), ":8080");
}

#[test]
fn both_probes_may_be_asked_for_together() {
    let group = "/subscriptions/s/resourceGroups/g";
    let vnet = format!("--vnet-id={group}/providers/Microsoft.Network/virtualNetworks/v");
    let security =
        format!("--security-group-id={group}/providers/Microsoft.Network/networkSecurityGroups/n");
    let group = format!("--resource-group-id={group}");
    let settings = resolved(&[
        FILE,
        "--probe=network",
        &vnet,
        &security,
        &group,
        "--probe=encryption",
        "--key-url=https://kv.vault.azure.net/keys/etcd/abc",
        "--encryption-credential-file=/mnt/kms/kms",
    ])
    .unwrap();
    let [ProbeSettings::Network(place), ProbeSettings::Encryption { credential_file, .. }] =
        settings.probes.as_slice()
    else {
        panic!("{:?}", settings.probes);
    };
    assert_eq!(place.vnet.name(), "v");
    assert_eq!(credential_file.as_deref(), Some(std::path::Path::new("/mnt/kms/kms")));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let refused = resolved(&[
        FILE,
        "--call=DELETE https://management.azure.com/x?api-version=1",
        "--probe=network",
        "--probe=encryption",
        "--key-url=https://kv.vault.azure.cn/keys/etcd/abc",
        "--interval=10ms",
    ])
    .unwrap_err()
    .to_string();
    for told in [
        "--call: a canary makes GET and HEAD requests only, and no DELETE",
        "--probe network: give --vnet-id",
        "--probe network: give --security-group-id",
        "--probe network: give --resource-group-id",
        "--key-url: `https://kv.vault.azure.cn/keys/etcd/abc` is not",
        "--interval: give 1 s or more",
        "hint:",
    ] {
        assert!(refused.contains(told), "{told} is not in\n{refused}");
    }
}

#[test]
fn the_call_belongs_to_the_cloud_that_is_named() {
    let call = "--call=GET https://management.usgovcloudapi.net/x?api-version=1";
    assert!(resolved(&[FILE, call]).is_err());
    let settings = resolved(&[FILE, call, "--cloud=AzureUSGovernmentCloud"]).unwrap();
    let scope = settings.call.unwrap().scope().to_owned();
    assert_eq!(scope, "https://management.core.usgovcloudapi.net//.default");
    let stack = resolved(&[FILE, "--cloud=AzureStackCloud"]).unwrap_err().to_string();
    assert!(stack.contains("AzureStackCloud has no fixed endpoints"), "{stack}");
}

#[test]
fn what_the_operator_renders_for_canaries_is_understood_here() {
    let wire = include_str!("../../../../examples/hostedcluster.yaml");
    let wire = lanyard_api::HostedCluster::parse_yaml(wire).unwrap();
    let cluster = lanyard_desired::validate(&wire).unwrap().hosted_cluster;
    let inputs = Inputs {
        wire: &wire,
        mode: Mode::All,
        owner: Owner::Blank,
        vault_reader: None,
        templates: &WorkloadTemplates::default(),
        refresh: VolumeRefresh::Polled,
        private_router: None,
    };
    let mut seen = Vec::new();
    for object in desired_objects(&cluster, &inputs) {
        let containers = object.value.pointer("/spec/template/spec/containers");
        for container in containers.and_then(serde_json::Value::as_array).into_iter().flatten() {
            let Ok(words) = serde_json::from_value::<Vec<String>>(container["args"].clone()) else {
                continue;
            };
            if words.first().map(String::as_str) != Some("canary") {
                continue;
            }
            let line = std::iter::once("lanyard".to_owned()).chain(words);
            let cli = crate::cli::Cli::try_parse_from(line).unwrap();
            let crate::cli::Command::Canary(args) = cli.command else {
                panic!("{:?} is no canary", object.key);
            };
            let settings = settings::resolve(&args).unwrap();
            assert!(settings.call.is_some(), "{}", args.component);
            seen.push((args.component, settings.probes.len()));
        }
    }
    seen.sort_unstable();
    let probes = |component| match component {
        Component::ControlPlaneOperator => 2,
        Component::Kms => 1,
        _ => 0,
    };
    let mut expected: Vec<_> = Component::ALL.map(|it| (it, probes(it))).into();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}
