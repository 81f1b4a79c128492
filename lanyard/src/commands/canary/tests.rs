use std::time::Duration;

use clap::Parser;
use lanyard_canary::{CanarySettings, CredentialFileLocation, ProbeSettings};
use lanyard_desired::hosted_cluster::kms_api_version::KmsApiVersion;
use lanyard_desired::objects::{ControlPlaneOwner, OperatorMode, VolumeRefresh};
use lanyard_desired::{DesiredObjectInputs, WorkloadTemplates, desired_objects};

use super::*;

#[derive(Debug, Parser)]
struct CanaryArgsParser {
    #[command(flatten)]
    args: Args,
}

fn parse_args(flags: &[&str]) -> Result<Args, clap::Error> {
    let all = ["canary", "--component=disk"].iter().chain(flags);
    CanaryArgsParser::try_parse_from(all).map(|line| line.args)
}

fn resolve_flags(flags: &[&str]) -> Result<CanarySettings, CommandError> {
    settings::resolve_settings(&parse_args(flags).unwrap())
}

const FILE: &str = "--credential-file=/mnt/certs/disk";

#[test]
fn exactly_one_credential_file_flag_is_required() {
    let place = |flags: &[&str]| resolve_flags(flags).unwrap().credential_location;
    assert_eq!(place(&[FILE]), CredentialFileLocation::File("/mnt/certs/disk".into()));
    let config = place(&["--cloud-config=/etc/cloud/cloud.conf"]);
    assert_eq!(config, CredentialFileLocation::CloudConfig("/etc/cloud/cloud.conf".into()));
    let CredentialFileLocation::Variable { name, value } =
        place(&["--credential-file-from-env=LANYARD_TEST_OF_A_VARIABLE_THAT_IS_NOT_SET"])
    else {
        panic!("expected a variable");
    };
    assert_eq!(name, "LANYARD_TEST_OF_A_VARIABLE_THAT_IS_NOT_SET");
    assert_eq!(value, None);
    assert!(parse_args(&[]).is_err());
    assert!(parse_args(&[FILE, "--cloud-config=/etc/cloud/cloud.conf"]).is_err());
}

#[test]
fn omitted_flags_have_documented_defaults() {
    let settings = resolve_flags(&[FILE]).unwrap();
    assert_eq!(settings.interval, Duration::from_mins(1));
    assert_eq!(settings.token_interval, Duration::from_mins(10));
    assert_eq!(settings.probe_interval, Duration::from_mins(10));
    assert!(settings.call.is_none() && settings.probes.is_empty());
    let args = parse_args(&[FILE]).unwrap();
    assert_eq!(args.metrics_addr.to_string(), ":8080");
}

#[test]
fn both_probes_can_be_enabled_together() {
    let group = "/subscriptions/s/resourceGroups/g";
    let vnet = format!("--vnet-id={group}/providers/Microsoft.Network/virtualNetworks/v");
    let security =
        format!("--security-group-id={group}/providers/Microsoft.Network/networkSecurityGroups/n");
    let group = format!("--resource-group-id={group}");
    let settings = resolve_flags(&[
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
fn all_flag_problems_are_reported_together() {
    let refused = resolve_flags(&[
        FILE,
        "--call=DELETE https://management.azure.com/x?api-version=1",
        "--probe=network",
        "--probe=encryption",
        "--key-url=https://kv.vault.azure.cn/keys/etcd/abc",
        "--interval=10ms",
    ])
    .unwrap_err()
    .to_string();
    for problem in [
        "--call: a canary makes only GET and HEAD requests, not DELETE",
        "--probe network: give --vnet-id",
        "--probe network: give --security-group-id",
        "--probe network: give --resource-group-id",
        "--key-url: `https://kv.vault.azure.cn/keys/etcd/abc` does not have the form",
        "--interval: give 1 s or more",
        "hint:",
    ] {
        assert!(refused.contains(problem), "{problem} is not in\n{refused}");
    }
}

#[test]
fn call_host_must_belong_to_the_selected_cloud() {
    let call = "--call=GET https://management.usgovcloudapi.net/x?api-version=1";
    assert!(resolve_flags(&[FILE, call]).is_err());
    let settings = resolve_flags(&[FILE, call, "--cloud=AzureUSGovernmentCloud"]).unwrap();
    let scope = settings.call.unwrap().scope().to_owned();
    assert_eq!(scope, "https://management.core.usgovcloudapi.net//.default");
    let stack = resolve_flags(&[FILE, "--cloud=AzureStackCloud"]).unwrap_err().to_string();
    assert!(stack.contains("AzureStackCloud has no fixed endpoints"), "{stack}");
}

#[test]
fn canary_arguments_rendered_by_the_operator_parse() {
    let wire = include_str!("../../../../examples/hostedcluster.yaml");
    let wire = lanyard_api::HostedCluster::parse_yaml(wire).unwrap();
    let cluster = lanyard_desired::validate(&wire).unwrap().hosted_cluster;
    let inputs = DesiredObjectInputs {
        wire: &wire,
        mode: OperatorMode::All,
        owner: ControlPlaneOwner::WithoutUid,
        vault_reader: None,
        templates: &WorkloadTemplates::default(),
        refresh: VolumeRefresh::Polled,
        private_router: None,
        control_plane_endpoint: None,
        kms_api_version: KmsApiVersion::default(),
    };
    let mut observed = Vec::new();
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
            let crate::cli::CliCommand::Canary(args) = cli.command else {
                panic!("{:?} is not a canary", object.key);
            };
            let settings = settings::resolve_settings(&args).unwrap();
            assert!(settings.call.is_some(), "{}", args.component);
            observed.push((args.component, settings.probes.len()));
        }
    }
    observed.sort_unstable();
    let probes = |component| match component {
        Component::ControlPlaneOperator => 2,
        Component::Kms => 1,
        _ => 0,
    };
    let mut expected: Vec<_> = Component::ALL.map(|it| (it, probes(it))).into();
    expected.sort_unstable();
    assert_eq!(observed, expected);
}
