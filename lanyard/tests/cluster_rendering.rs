//! Runs `lanyard create cluster azure --render` as a process, without Azure and without a kubeconfig.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::{Command, Output};

use tempfile::TempDir;

const SUBSCRIPTION: &str = "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40";
const TENANT: &str = "64dc69e4-d083-49fc-9569-ebece1dd1408";

/// The output of `create infra azure` for a self-managed cluster.
fn infra_output() -> String {
    let id = |group: &str, rest: &str| {
        format!(
            "/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/{rest}"
        )
    };
    let components = [
        "imageRegistry",
        "ingress",
        "file",
        "disk",
        "nodePoolManagement",
        "cloudProvider",
        "network",
        "controlPlaneOperator",
    ];
    let identities = components
        .map(|name| format!("  {name}:\n    clientID: 11111111-1111-1111-1111-111111111111\n"));
    format!(
        "baseDomain: hcp.example.com
bootImageID: \"\"
controlPlaneMIs: null
dataPlaneIdentities:
  diskMSIClientID: \"\"
  fileMSIClientID: \"\"
  imageRegistryMSIClientID: \"\"
infraID: harbour-x7k2p
kmsClientID: 22222222-2222-2222-2222-222222222222
natSubnetID: {}
privateZoneID: {}
publicZoneID: {}
region: eastus
resourceGroupName: main
securityGroupID: {}
subnetID: {}
vnetID: {}
workloadIdentities:
{}",
        id("net", "virtualNetworks/vnet/subnets/nat"),
        id("main", "privateDnsZones/harbour.hcp.example.com"),
        id("dns", "dnsZones/hcp.example.com"),
        id("net", "networkSecurityGroups/nsg"),
        id("net", "virtualNetworks/vnet/subnets/default"),
        id("net", "virtualNetworks/vnet"),
        identities.join("")
    )
}

/// A directory with the files of the command.
fn workspace() -> TempDir {
    let files = tempfile::tempdir().unwrap();
    let credentials = format!("subscriptionId: {SUBSCRIPTION}\ntenantId: {TENANT}\n");
    for (name, content) in [
        ("infra.yaml", infra_output().as_str()),
        ("pull-secret.json", "{\"auths\": {\"planted\": {}}}"),
        ("creds.yaml", &credentials),
    ] {
        std::fs::write(files.path().join(name), content).unwrap();
    }
    files
}

/// Runs the command in an environment in which every request fails.
fn create(files: &TempDir, flags: &[&[&str]]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    command.current_dir(files.path()).env_clear();
    command.envs([("HTTPS_PROXY", "http://127.0.0.1:1"), ("KUBECONFIG", "absent")]);
    command.args(["create", "cluster", "azure", "--name", "harbour"]);
    command.args(["--pull-secret", "pull-secret.json", "--release-image", "release:4.22.1"]);
    command.args(["--azure-creds", "creds.yaml"]).args(flags.concat());
    command.output().unwrap()
}

fn render(files: &TempDir, flags: &[&str]) -> Output {
    create(files, &[&["--infra-json", "infra.yaml", "--render"], flags])
}

fn rendered(files: &TempDir, flags: &[&str]) -> String {
    let output = render(files, flags);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

fn rejected(files: &TempDir, flags: &[&str]) -> String {
    let output = render(files, flags);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn objects_are_rendered_without_requests_and_without_secrets() {
    let files = workspace();
    let text = rendered(&files, &["--endpoint-access", "Private", "--fips=true"]);
    for expected in [
        "kind: Namespace",
        "kind: HostedCluster",
        "kind: NodePool",
        "fips: true",
        "topology: Private",
        "virtualNetworks/vnet/subnets/nat",
        &format!("tenantID: {TENANT}"),
        &format!("subscriptionID: {SUBSCRIPTION}"),
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("kind: Secret"), "{text}");
}

#[test]
fn sensitive_objects_are_written_into_a_private_file() {
    use std::os::unix::fs::PermissionsExt as _;

    let files = workspace();
    let key = "https://harbour-keys.managedhsm.azure.net/keys/etcd/0a1b";
    let flags = ["--render-into", "objects.yaml", "--render-sensitive", "--encryption-key-id", key];
    assert_eq!(rendered(&files, &flags), "");
    let path = files.path().join("objects.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("kind: Secret\n").count(), 2, "{text}");
    assert!(text.contains("keyVaultType: ManagedHSM"), "{text}");
    assert!(text.contains("clientID: 22222222-2222-2222-2222-222222222222"), "{text}");
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn wrong_flags_are_named_before_the_kubeconfig_is_read() {
    let files = workspace();
    let from_file = ["--infra-json", "infra.yaml"];
    let new = ["--base-domain", "hcp.example.com", "--workload-identities-file", "iam.json"];
    for source in [&from_file[..], &new] {
        for (flags, expected) in [
            (&["--root-disk-size", "1"][..], "--root-disk-size must be at least 16 GiB"),
            (&["--kms-credentials-secret-name", "x"], "--encryption-key-id"),
            (&["--external-dns-domain", "example.com"], "--external-dns-domain must be neither"),
            (
                &["--cluster-cidr", "10.128.0.0/14", "--service-cidr", "10.128.0.0/14"],
                "--service-cidr `10.128.0.0/14` overlaps `10.128.0.0/14` of --cluster-cidr",
            ),
            (
                &["--cluster-cidr", "10.128.0.0/14", "--service-cidr", "10.130.0.0/16"],
                "--service-cidr `10.130.0.0/16` overlaps `10.128.0.0/14` of --cluster-cidr",
            ),
        ] {
            let output = create(&files, &[source, flags]);
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{error}");
            assert!(error.contains(expected), "{flags:?}: {error}");
        }
    }
}

#[test]
fn wrong_flags_are_named() {
    let files = workspace();
    for (flags, expected) in [
        (
            &["--assign-service-principal-roles"][..],
            "run `lanyard create infra azure` with the flag",
        ),
        (&["--auto-assign-roles"], "--assign-identity-roles excludes --infra-json"),
        (&["--network-security-group-id", "x"], "--resource-group-name is missing"),
        (&["--managed-identities-file", "x"], "--data-plane-identities-file is missing"),
        (&["--vnet-id", "x"], "--vnet-id differs from --infra-json"),
        (&["--base-domain", "other.example.com"], "--base-domain differs from the infrastructure"),
        (&["--availability-zones", "1,4"], "give one of 1, 2, 3"),
        (&["--oauth-publishing-strategy", "NodePort"], "give one of Route, LoadBalancer"),
        (&["--generate-ssh", "--ssh-key", "creds.yaml"], "--generate-ssh excludes --ssh-key"),
        (&["--sa-token-issuer-private-key-path", "creds.yaml"], "--oidc-issuer-url"),
        (&["--cluster-cidr", "10.0.0.0"], "is not a range of IP addresses"),
    ] {
        let error = rejected(&files, flags);
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
    std::fs::write(files.path().join("pull-secret.json"), "planted").unwrap();
    let error = rejected(&files, &[]);
    assert!(error.contains("is not a pull secret") && !error.contains("planted"), "{error}");
}
